"""Puts another text of a module in the place of one that is loaded and in use.

Functions and classes stay the objects that other modules and the session hold; what they do changes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any

_OF_THE_CLASS = frozenset({"__dict__", "__weakref__", "__module__", "__qualname__", "__firstlineno__", "__slots__"})


def put(
    module: ModuleType, source: str, importers: Iterable[ModuleType] = (), names: Mapping[str, Any] | None = None
) -> None:
    """Run a text as a loaded module's.

    Args:
        module: The loaded module.
        source: Its new text.
        importers: Modules whose own tables are built again, since they may hold its constants.
        names: Further names that the text may use.
    """
    module.__dict__.update(names or {})
    _put_one(module, source, names or {})
    for other in importers:
        _put_one(other, Path(str(other.__file__)).read_text(), {})


def _put_one(module: ModuleType, source: str, names: Mapping[str, Any]) -> None:
    fresh = ModuleType(module.__name__)
    fresh.__dict__.update(names)
    fresh.__dict__.update({name: module.__dict__[name] for name in ("__file__", "__package__", "__spec__")})
    exec(compile(source, str(module.__file__), "exec"), fresh.__dict__)
    holders = [vars(other) for name, other in list(sys.modules.items()) if name.startswith("pydelta") and other]
    for name, new in fresh.__dict__.items():
        if name.startswith("__"):
            continue
        old = module.__dict__.get(name)
        kept = _merged(old, new, module.__name__)
        module.__dict__[name] = kept
        if kept is not old and callable(old):  # A decorated function: others hold it by its name.
            for holder in holders:
                for key in [key for key, value in holder.items() if value is old]:
                    holder[key] = kept


def _merged(old: Any, new: Any, module: str) -> Any:
    """The old object, which does what the new one does; the new one if it is neither a function nor a class."""
    if getattr(new, "__module__", None) != module:
        return new
    if isinstance(old, FunctionType) and isinstance(new, FunctionType):
        if old.__code__.co_freevars != new.__code__.co_freevars:
            return new
        old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__
        return old
    if isinstance(old, type) and isinstance(new, type):
        for name, value in vars(new).items():
            if name not in _OF_THE_CLASS and not isinstance(value, MemberDescriptorType):
                before = vars(old).get(name)
                after = _merged(before, value, module)
                if after is not before:
                    setattr(old, name, after)
        return old
    return new
