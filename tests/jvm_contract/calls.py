"""See each call that the project's own modules make into the JVM, by py4j.

A call belongs to the module whose code makes it: what PySpark does for itself is Spark's own affair.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from py4j.java_gateway import JavaClass, JavaMember

ROOT = Path(__file__).resolve().parents[2]
OURS = tuple(f"{ROOT / package}/" for package in ("pydelta", "catalog_sync", "jobs"))
COMPILED = "pydelta/engines/spark/calls"
"""Calls the engine's own Java, which is compiled with the jars of each version, so that its classes are checked."""
NEW = "new"
FIELD = "field"


class Use(NamedTuple):
    """What a module does with a member, as Python sees it."""

    module: str
    member: str
    """A method, ``new`` for a constructor, or a static field such as ``MODULE$``."""
    arguments: int


def module_of(frame: FrameType | None) -> str | None:
    """Return the module of the project that a frame belongs to, such as ``pydelta/engines/spark/jvm``; else None."""
    if frame is None:
        return None
    name = frame.f_code.co_filename
    module = str(Path(name).relative_to(ROOT).with_suffix("")) if name.startswith(OURS) else None
    return None if module == COMPILED else module


def observe(see: Callable[[Use, Any, Any, tuple[Any, ...]], None]) -> Callable[[], None]:
    """Call a function after each call of ours and each look at a static field that did not fail; return what ends it.

    Args:
        see: Gets the use, the member or class, the class's name or the object, and the arguments.
    """
    call, new, member = JavaMember.__call__, JavaClass.__call__, JavaClass.__getattr__

    def called(self: Any, *arguments: Any) -> Any:
        module = module_of(sys._getframe(1))
        answer = call(self, *arguments)
        if module is not None:
            see(Use(module, self.name, len(arguments)), self, self.container, arguments)
        return answer

    def made(self: Any, *arguments: Any) -> Any:
        module = module_of(sys._getframe(1))
        answer = new(self, *arguments)
        if module is not None:
            see(Use(module, NEW, len(arguments)), self, self._fqn, arguments)
        return answer

    def looked_up(self: Any, name: str) -> Any:
        found = member(self, name)
        module = module_of(sys._getframe(1))
        if module is not None and not isinstance(found, (JavaMember, JavaClass)):
            see(Use(module, name, 0), self, FIELD, ())
        return found

    JavaMember.__call__, JavaClass.__call__, JavaClass.__getattr__ = called, made, looked_up

    def end() -> None:
        JavaMember.__call__, JavaClass.__call__, JavaClass.__getattr__ = call, new, member

    return end
