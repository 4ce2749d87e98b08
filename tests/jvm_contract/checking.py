"""Compare what a version of Spark has with what the engine uses of it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jvm_contract.classes import Classes
from jvm_contract.register import NEW, Member, Register

DIFFERENCES = Path(__file__).with_name("differences.toml")
MOST_ALIKE = 4


@dataclass(frozen=True)
class Difference:
    """What a supported version lacks, and why the engine works without it."""

    versions: tuple[str, ...]
    """Such as ``4.2`` for all its patches, ``4.2.0``, or ``*`` for any version."""
    lacks: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Lack:
    """Something that a version lacks."""

    what: str
    """As ``differences.toml`` names it."""
    used_by: str
    has: Sequence[str] = ()
    """Signatures of the same name that it has."""

    @property
    def whole(self) -> str:
        """All of the class or interface that the lack is of, as ``differences.toml`` names it."""
        return self.what.partition(" ")[0] + " *"

    def __str__(self) -> str:
        has = f"\n    it has: {'; '.join(self.has)}" if self.has else ""
        return f"  {self.what}\n    used by: {self.used_by}{has}"


def differences(path: Path = DIFFERENCES) -> list[Difference]:
    """Return the known differences between supported versions."""
    rows = tomllib.loads(path.read_text()).get("difference", [])
    return [Difference(tuple(row["versions"]), tuple(row["lacks"]), row["reason"]) for row in rows]


def lacks(
    classes: Classes,
    register: Register,
    names: Iterable[str],
    implemented: Mapping[str, Mapping[str, frozenset[str]]],
) -> list[Lack]:
    """Return all that a version lacks: members, names of classes, and methods of interfaces that Python has not."""
    found = []
    for member, modules in sorted(register.items()):
        if not classes.has(member):
            what = f"{member.owner} {member}"
            found.append(Lack(what, " ".join(sorted(modules)), _alike(classes, member)))
    for name in names:
        known = classes.members(name) is not None if "." in name else name in classes.simple_names
        if not known:
            found.append(Lack(f"class {name}", "a comparison with this name"))
    for interface, users in sorted(implemented.items()):
        wanted = classes.abstract_methods(interface)
        if wanted is None:
            found.append(Lack(f"interface {interface}", " ".join(users)))
        for user, has in sorted(users.items()):
            found += [Lack(f"{user} {method}", interface) for method in sorted((wanted or frozenset()) - has)]
    return found


def _alike(classes: Classes, member: Member) -> list[str]:
    if classes.members(member.owner) is None:
        return ["no such class"]
    return classes.alike(member)[:MOST_ALIKE] or [f"nothing called {member.name}" if member.name != NEW else "none"]


def compared(found: Sequence[Lack], known: Iterable[Difference], version: str) -> list[str]:
    """Return what is wrong with a version: lacks that are not known, and known ones that it does not have.

    Args:
        found: What it lacks.
        known: The known differences of supported versions.
        version: Its number, such as ``4.2.1``.
    """
    expected = {lack for row in known if _concerns(row, version) for lack in row.lacks}
    anywhere = {lack for row in known if "*" in row.versions for lack in row.lacks}
    there = {name for lack in found for name in (lack.what, lack.whole)}
    wrong = [str(lack) for lack in found if not {lack.what, lack.whole} & (expected | anywhere)]
    return wrong + [
        f"  {what}\n    is there, although differences.toml says that Spark {version} lacks it"
        for what in sorted(expected - there)
    ]


def _concerns(row: Difference, version: str) -> bool:
    return any(f"{version}.".startswith(f"{listed}.") for listed in row.versions)
