"""Record which method of which class each call into the JVM reaches, in a process that tests run in or start.

py4j chooses a method by the arguments that a call has. The recorder asks the same code of py4j, in the JVM.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaClass, JavaObject
from py4j.protocol import STATIC_PREFIX, Py4JError

from jvm_contract.calls import FIELD, NEW, Use, observe

_HANDLES = ("findVirtual", "findStatic")
_NAME = 2
"""Place of the method's name in the arguments of Catalyst's ``StaticInvoke``."""
FIRST = 6
"""The first calls of each use are looked at, and then each whose number is a power of two."""


class Recorder:
    """Writes one line of JSON per use and method to a file.

    Args:
        folder: Where the process keeps its file.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{os.getpid()}.jsonl"
        self._calls: Counter[Use] = Counter()
        self._known: set[tuple[Use, str]] = set()
        self._asking = False

    def see(self, use: Use, target: Any, owner: Any, arguments: tuple[Any, ...]) -> None:
        """Record a call unless enough calls of its use were."""
        self._calls[use] += 1
        number = self._calls[use]
        if self._asking or (number > FIRST and number & (number - 1)):
            return
        self._asking = True
        try:
            reached = f"field {target._fqn}.{use.member}" if owner is FIELD else _reached(use, target, owner, arguments)
        except Py4JError:  # The call ended the session, or what it was made on.
            return
        finally:
            self._asking = False
        for text in [reached, *_named_by(use, arguments)]:
            if (use, text) not in self._known:
                self._known.add((use, text))
                with self._path.open("a") as file:
                    file.write(json.dumps([*use, text]) + "\n")


def _reached(use: Use, target: Any, owner: Any, arguments: tuple[Any, ...]) -> str:
    """Return Java's text for the method or constructor that py4j chooses."""
    client = target._gateway_client if use.member == NEW else target.gateway_client
    engine = JavaClass("py4j.reflection.ReflectionEngine", client)()
    given = JavaClass("java.util.ArrayList", client)()
    for argument in target._get_args(arguments)[0]:
        given.add(argument)
    if use.member == NEW:
        return str(engine.getConstructor(target._fqn, given.toArray()).getConstructor().toString())
    if owner is None:  # a static method
        owner = target.target_id.removeprefix(STATIC_PREFIX)
    method = engine.getMethod(owner, use.member, given.toArray()).getMethod()
    declared = method.getDeclaringClass()
    if "$Proxy" in declared.getName():  # one of our own objects, seen by its first interface
        return str(method.toString()).replace(declared.getName(), declared.getInterfaces()[0].getName())
    return str(method.toString())


def _named_by(use: Use, arguments: tuple[Any, ...]) -> list[str]:
    """Return the methods that a call names to the JVM: those of handles and of generated code."""
    if use.member in _HANDLES:
        owner, name, kind = arguments[0], str(arguments[1]), arguments[2]
        parameters = ",".join(str(item.getTypeName()) for item in kind.parameterArray())
        return [f"public {kind.returnType().getTypeName()} {owner.getName()}.{name}({parameters})"]
    if use.member == NEW and len(arguments) > _NAME and _is_class(arguments[0]) and isinstance(arguments[_NAME], str):
        return [f"any {arguments[0].getName()}.{arguments[_NAME]}"]
    return []


def _is_class(value: Any) -> bool:
    return isinstance(value, JavaObject) and str(value.getClass().getName()) == "java.lang.Class"


def start(folder: str) -> None:
    """Record the calls of this process into a folder."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    observe(Recorder(Path(folder)).see)
