"""Notice a call into the JVM that the register does not have, while any tests run. It asks the JVM nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jvm_contract.calls import Use, observe
from jvm_contract.register import DEFAULT, MANY, PATH, read, uses

OF_EVERY_OBJECT = {("equals", 1), ("getClass", 0), ("hashCode", 0), ("toString", 0)}
"""Methods of ``java.lang.Object``, which no version of Spark can lack. When they are called may depend on the time."""


class Watch:
    """Collects what is not registered.

    Args:
        known: What is.
    """

    def __init__(self, known: frozenset[Use]) -> None:
        self._known = known
        self.unknown: set[Use] = set()

    def see(self, use: Use, target: Any, owner: Any, arguments: tuple[Any, ...]) -> None:
        """Look at a call."""
        is_known = use in self._known or use._replace(arguments=MANY) in self._known
        if not is_known and DEFAULT not in use.member and (use.member, use.arguments) not in OF_EVERY_OBJECT:
            self.unknown.add(use)


def watch_calls() -> tuple[Watch, Callable[[], None]]:
    """Begin to watch this process; return the watch and what ends it."""
    seen = Watch(uses(read(PATH.read_text())[0]))
    return seen, observe(seen.see)


def complaint(unknown: set[Use]) -> str:
    """Say which calls the register lacks."""
    lines = [f"  {use.module}: {use.member} with {use.arguments} arguments" for use in sorted(unknown)]
    return "\n".join(
        ["tests/jvm_contract/register.txt lacks calls into the JVM; scripts/spark-contract record adds them:", *lines]
    )
