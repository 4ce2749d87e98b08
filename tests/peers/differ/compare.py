"""Compare what came of a program on two engines. Pure."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Difference", "Kept", "differences", "kept_of"]


@dataclass(frozen=True)
class Difference:
    """Something that is not the same.

    Args:
        program: Its name.
        where: Which part of what came of it, as a path with dots.
        ours: What this engine gives, and
        theirs: what the reference does; None for nothing.
    """

    program: str
    where: str
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        return f"{self.program} {self.where}\n    ours   {_short(self.ours)}\n    theirs {_short(self.theirs)}"


@dataclass(frozen=True)
class Kept:
    """A difference that stays.

    Args:
        program: Pattern of names, as a shell has them.
        where: Patterns of the places that differ; none stands for all, so that any other change is noticed.
        reason: Why, in words that a user accepts.
        ours: Text that our side has to hold; empty for any.
    """

    program: str
    where: tuple[str, ...]
    reason: str
    ours: str = ""

    def holds(self, difference: Difference) -> bool:
        """Tell whether the difference is this one."""
        return (
            fnmatch.fnmatchcase(difference.program, self.program)
            and any(fnmatch.fnmatchcase(difference.where, place) for place in self.where)
            and self.ours in json.dumps(difference.ours)
        )


def kept_of(entries: Sequence[Mapping[str, Any]]) -> list[Kept]:
    """The kept list, from its file; ``where`` is a pattern or a list of them.

    Raises:
        ValueError: An entry holds for whatever differs in its programs.
    """
    found = []
    for entry in entries:
        where = entry["where"]
        places = (where,) if isinstance(where, str) else tuple(where)
        if any(place in ("*", "ends.*", "outcomes.*") for place in places):
            raise ValueError(f"{entry['program']}: where = {where!r} names no place. Say which outcomes differ.")
        found.append(Kept(program=entry["program"], where=places, reason=entry["reason"], ours=entry.get("ours", "")))
    return found


_COLUMN_NUMBER = re.compile(r"#\d+(?=L?\b)")
_TOOK = re.compile(r"\b(\w+_time_ms)=\d+")
_CLOCK = ("startTimeMs", "endTimeMs")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _shared(value: Any) -> Any:
    """What both engines can agree on: numbers of columns, names by chance and times differ from run to run."""
    if isinstance(value, str):
        return _TOOK.sub(r"\1=?", _UUID.sub("UUID", value))
    if isinstance(value, list):
        return [_shared(item) for item in value]
    if not isinstance(value, dict):
        return value
    shared = {key: "?" if key in _CLOCK and item is not None else _shared(item) for key, item in value.items()}
    if isinstance(parameters := shared.get("parameters"), dict):
        shared["parameters"] = {key: _parameter(item) for key, item in parameters.items()}
    return shared


def _parameter(text: Any) -> Any:
    """A parameter of the history: JSON by its meaning, columns of a plan without their numbers."""
    if not isinstance(text, str):
        return text
    plain = _COLUMN_NUMBER.sub("#", text)
    return json.loads(plain) if plain.startswith(("[", "{")) else plain


def differences(name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[Difference]:
    """Compare two results of one program."""
    found = []
    for part in ("outcomes", "ends"):
        for where, mine, other in _compared(part, _shared(ours[part]), _shared(theirs[part])):
            found.append(Difference(name, where, mine, other))
    return found


def _compared(where: str, ours: Any, theirs: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if "error" in ours and "error" in theirs:
            yield from _errors(where, ours, theirs)
            return
        if "error" in ours or "error" in theirs:
            yield where, ours, theirs
            return
        for key in sorted(ours.keys() | theirs.keys()):
            if key not in ours or key not in theirs:
                if ours.get(key) is not None or theirs.get(key) is not None or "metrics" in where:
                    yield f"{where}.{key}", ours.get(key, "(not there)"), theirs.get(key, "(not there)")
            elif key in ("rows", "schema"):
                if ours[key] != theirs[key]:
                    yield f"{where}.{key}", ours[key], theirs[key]
            else:
                yield from _compared(f"{where}.{key}", ours[key], theirs[key])
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for place, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from _compared(f"{where}.{place}", mine, other)
    elif ours != theirs:
        yield where, ours, theirs


def _errors(where: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """A Java exception that PySpark has no class for says nothing of classes: that there is an error is enough.

    Likewise a condition that Spark calls legacy: it is a number in the place of a name.
    """
    if theirs["error"] in ("Exception", "Py4JJavaError"):
        return
    if theirs["error"] not in ours["caught_by"]:
        yield f"{where}.error", f"{ours['error']}: {ours['text']}", f"{theirs['error']}: {theirs['text']}"
    for key in ("condition", "state"):
        named = theirs[key] is not None and not theirs[key].startswith("_LEGACY_ERROR_TEMP_")
        if named and ours[key] != theirs[key]:
            yield f"{where}.{key}", f"{ours[key]}: {ours['text']}", f"{theirs[key]}: {theirs['text']}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) < 420 else f"{text[:400]} … ({len(text)})"
