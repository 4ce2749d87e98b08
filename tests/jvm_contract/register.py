"""Read and write the register: the members of the JVM's classes that the engine uses, and which modules use them.

::

    org.apache.spark.sql.catalyst.plans.logical.Filter
      condition()                                            pydelta/api/routing/aggregates pydelta/api/sql/change
      new(org.…expressions.Expression, org.…LogicalPlan)     pydelta/engines/spark/jvm
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from jvm_contract.calls import FIELD, NEW, Use

PATH = Path(__file__).with_name("register.txt")
NAMES = "classes that are known by their name alone"
"""The register's last section: the code compares these with the names of an object's class."""
_METHOD = re.compile(r"([\w.$]+)\.([\w$]+)\(([^)]*)\)")
_CONSTRUCTOR = re.compile(r"([\w.$]+)\(([^)]*)\)")


DEFAULT = "$default$"
"""In the name of a method that returns the default value of a parameter, such as ``copy$default$7``."""
MANY = -1
ANY = ("…",)
"""Parameters of a method that the engine gives to Spark by its name, so that Spark chooses among those of this name."""


class Member(NamedTuple):
    """A method, constructor or static field of a class, with the names of its parameters' types."""

    owner: str
    name: str
    parameters: tuple[str, ...] | None
    """None for a field."""

    def __str__(self) -> str:
        if self.parameters == ANY:
            return f"{self.name}(…)"
        return self.name if self.parameters is None else f"{self.name}({', '.join(self.parameters)})"

    @property
    def arguments(self) -> int:
        """The number of arguments that a call has."""
        return len(self.parameters or ())


Register = Mapping[Member, frozenset[str]]
"""Members and the modules that use them."""


def member_of(text: str) -> Member:
    """Return the member for Java's own text, as ``public scala.Option scala.Option.apply(java.lang.Object)``.

    Args:
        text: ``toString()`` of a method or a constructor, or ``field`` and the field's full name.

    Raises:
        ValueError: The text is none of these.
    """
    if text.startswith(FIELD + " "):
        owner, _, name = text.removeprefix(FIELD + " ").rpartition(".")
        return Member(owner, name, None)
    if text.startswith("any "):
        owner, _, name = text.removeprefix("any ").rpartition(".")
        return Member(owner, name, ANY)
    before = text[: text.index("(")].split()
    words = [word for word in before if word not in _MODIFIERS]
    pattern = _METHOD if len(words) > 1 else _CONSTRUCTOR
    found = pattern.search(text)
    if found is None:
        raise ValueError(f"This is neither a method nor a constructor: {text}")
    parts = found.groups()
    parameters = tuple(part for part in parts[-1].split(",") if part)
    return Member(parts[0], parts[1] if len(words) > 1 else NEW, parameters)


_MODIFIERS = frozenset(
    {"public", "protected", "private", "static", "final", "abstract", "native", "synchronized", "default", "strictfp"}
)


def written(register: Register, names: Iterable[str]) -> str:
    """Return the register's text."""
    by_owner: dict[str, list[str]] = defaultdict(list)
    for member, modules in register.items():
        by_owner[member.owner].append(f"  {member}  {' '.join(sorted(modules))}")
    parts = ["\n".join([owner, *sorted(lines)]) for owner, lines in sorted(by_owner.items())]
    parts.append("\n".join([NAMES, *(f"  {name}" for name in sorted(names))]))
    return "\n\n".join(parts) + "\n"


def read(text: str) -> tuple[dict[Member, frozenset[str]], list[str]]:
    """Return the members and the names of a register's text."""
    found: dict[Member, frozenset[str]] = {}
    names: list[str] = []
    owner = ""
    for line in filter(None, text.splitlines()):
        if not line.startswith("  "):
            owner = line
        elif owner == NAMES:
            names.append(line.strip())
        else:
            signature, _, modules = line.strip().partition("  ")
            found[_parsed(owner, signature)] = frozenset(modules.split())
    return found, names


def _parsed(owner: str, signature: str) -> Member:
    name, opened, rest = signature.partition("(")
    parameters = tuple(filter(None, rest.removesuffix(")").split(", ")))
    return Member(owner, name, parameters if opened else None)


def uses(register: Register) -> frozenset[Use]:
    """Return what modules do, as Python sees it. ``MANY`` is the number of arguments where any number is right."""
    return frozenset(
        Use(module, member.name, MANY if member.parameters == ANY else member.arguments)
        for member, modules in register.items()
        for module in modules
    )
