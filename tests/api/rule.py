"""Which changes of the interface a changelog has to name, and under which heading. Pure.

::

    released entries, current entries --changes--> [Change(heading, entry)]
    changes, Unreleased section ------problems---> what the section lacks
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tests.api.entries import Entry

BREAKING, DEPRECATED, ADDED = "Breaking", "Deprecated", "Added"
_PARENTS = {"method", "attribute", "member"}
"""Kinds whose name begins with that of a class."""


class Change(NamedTuple):
    """A change, and the heading under which it has to be named."""

    heading: str
    entry: Entry
    what: str

    def __str__(self) -> str:
        return f"{self.what}: {self.entry}"


def changes(released: Iterable[Entry], current: Iterable[Entry]) -> list[Change]:
    """Compare the interface of the last release with that of today.

    An old name that still works with a warning is deprecated, not removed. What is inside a new class, command, job or
    module is named with it.
    """
    before, after = ({entry.key: entry for entry in entries} for entries in (released, current))
    old_names = {entry.name for entry in after.values() if entry.kind == "deprecated"}
    found = []
    for key, entry in before.items():
        if key not in after:
            if f"{entry.kind} {entry.name}" in old_names:
                continue  # the new row of the deprecated name is a change, too
            found.append(Change(BREAKING, entry, "removed"))
        elif after[key].value != entry.value:
            heading = ADDED if _accepts_more(entry, after[key]) else BREAKING
            found.append(Change(heading, after[key], f"changed from {entry.value or 'nothing'}"))
    for key, entry in after.items():
        if key not in before and _container(entry) not in after.keys() - before.keys():
            found.append(Change(DEPRECATED if entry.kind == "deprecated" else ADDED, entry, "new"))
    return found


def problems(found: Iterable[Change], section: str, version: str) -> list[str]:
    """Say what the section of a changelog lacks.

    Args:
        found: The changes since the last release.
        section: Everything below ``## Unreleased``.
        version: The version under development; a deprecated name may go when it is reached.
    """
    bullets = bullets_of(section)
    lacking = []
    for change in found:
        words = named_by(change.entry)
        if not any(words <= spans for spans in bullets.get(change.heading, ())):
            lacking.append(
                f"### {change.heading} lacks a line with {' and '.join(f'`{it}`' for it in sorted(words))}; {change}"
            )
        gone = re.search(r"gone in ([\d.]+)$", change.entry.value)
        if change.what == "removed" and gone and _numbers(version) < _numbers(gone[1]):
            lacking.append(f"it was promised to work until {gone[1]}; {change}")
    return lacking


def bullets_of(section: str) -> dict[str, list[set[str]]]:
    """Heading -> for each of its lines what stands in code spans: whole spans, and the words in them."""
    found: dict[str, list[set[str]]] = {}
    parts = re.split(r"^### (.+)$", section, flags=re.MULTILINE)[1:]
    for heading, text in zip(parts[::2], parts[1::2], strict=True):
        for bullet in re.split(r"^- ", text, flags=re.MULTILINE)[1:]:
            spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", bullet)]
            words = {word.strip(",()") for span in spans for word in span.split()}
            dotted = {word.partition("(")[0] for word in words}
            shorter = {".".join(word.split(".")[at:]) for word in dotted for at in range(word.count(".") + 1)}
            found.setdefault(heading, []).append({*spans, *words, *shorter})
    return found


def named_by(entry: Entry) -> set[str]:
    """The words that name an entry for a reader: a method with its class, a flag with its command."""
    kind, name = entry.kind, entry.name
    if kind == "deprecated":
        kind, _, name = name.partition(" ")
        if kind == "argument":
            return {name.partition(" ")[2]}
    if kind in _PARENTS:
        return {".".join(name.split(".")[-2:])}
    if kind in ("class", "function", "error", "constant", "result"):
        return {name.split(".")[-1]} if kind != "result" else {name}
    if kind == "flag":
        place, _, flag = name.partition(" --") if " --" in name else name.rpartition(" ")
        return {place.split()[-1], f"--{flag}".split()[0] if " --" in name else flag}
    if kind in ("command", "keyword", "option", "entry-point"):
        return {name.split()[-1]}
    return {name}


def _accepts_more(old: Entry, new: Entry) -> bool:
    """Whether every call and every use of the old entry still works, and means the same."""
    if old.kind == "flag":
        old_words, new_words = old.value.split(" default ")[0].split(), new.value.split(" default ")[0].split()
        same_default = old.value.split(" default ")[1:] == new.value.split(" default ")[1:]
        return same_default and old_words[0] == new_words[0] and set(new_words) - set(old_words) <= {"repeatable"}
    if old.kind in ("method", "function", "class") and old.value.startswith("(") and new.value.startswith("("):
        return _calls_still_work(_arguments(old.value), _arguments(new.value))
    if old.kind == "error":  # more is caught, and nothing less
        was, now = old.value.split(", "), new.value.split(", ")
        return was[0] == now[0] and set(was) <= set(now)
    return old.kind == "option" and old.value == "no effect"


class Argument(NamedTuple):
    """An argument of a signature: its place (None for one given by name), and its default (None if it is required)."""

    place: int | None
    default: str | None


def _arguments(signature: str) -> Mapping[str, Argument]:
    given = ast.parse(f"def f{signature}: ...").body[0].args  # type: ignore[attr-defined]
    placed = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(placed) - len(given.defaults)) + [ast.unparse(item) for item in given.defaults]
    found = {arg.arg: Argument(at, default) for at, (arg, default) in enumerate(zip(placed, defaults, strict=True))}
    for arg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        found[arg.arg] = Argument(None, None if default is None else ast.unparse(default))
    for star, arg in (("*", given.vararg), ("**", given.kwarg)):
        if arg is not None:
            found[star] = Argument(None, "...")
    return found


def _calls_still_work(old: Mapping[str, Argument], new: Mapping[str, Argument]) -> bool:
    for name, was in old.items():
        now = new.get(name)
        if now is None or (was.place is not None and now.place != was.place):
            return False
        if now.default != was.default and was.default is not None:  # a required argument may get a default
            return False
    return all(argument.default is not None for name, argument in new.items() if name not in old)


def _container(entry: Entry) -> tuple[str, str]:
    kind, name = entry.kind, entry.name
    if kind in _PARENTS:
        return "class", name.rpartition(".")[0]
    if kind in ("class", "function", "error", "constant"):
        return "module", name.rpartition(".")[0]
    if kind == "flag":
        place = name[: name.index(" -")]
        return ("job", place) if place.endswith(".py") else ("command", place)
    if kind == "keyword":
        return "statement", name.partition(":")[0]
    if kind == "entry-point":
        return "entry-points", name.split()[0]
    return "", ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.match(r"[\d.]+", version)[0].strip(".").split(".")[:2])
