"""Read what the folder has for each suite: its row, its packages, its reasons and the outcomes that are kept."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
Outcomes = dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A row of ``suites.toml``."""

    name: str
    title: str
    package: str
    runs: tuple[str, ...]
    plugins: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    server: bool
    project: bool
    parts: int
    section: str = ""
    concerns: tuple[str, ...] = ()
    note: str = ""

    @property
    def packages(self) -> Path:
        """Return the file of pinned packages."""
        return HERE / "packages" / f"{self.name}.txt"

    @property
    def version(self) -> str:
        """Return the pinned version of the suite's package."""
        for path in (self.packages, HERE.parents[1] / "constraints.txt"):
            if found := re.search(
                rf"^{re.escape(self.package)}==(\S+)", path.read_text(), re.MULTILINE | re.IGNORECASE
            ):
                return found[1]
        raise SystemExit(f"{self.packages.name} does not pin {self.package}.")

    @property
    def kept(self) -> Path:
        """Return the file of the outcomes that are kept."""
        return HERE / "results" / f"{self.name}.json"

    def outcomes(self) -> Outcomes:
        """Read the outcomes that are kept."""
        return json.loads(self.kept.read_text()) if self.kept.exists() else {}

    def reasons(self) -> list[Reason]:
        """Read why tests fail or are left out."""
        path = HERE / "reasons" / f"{self.name}.toml"
        found = tomllib.loads(path.read_text()) if path.exists() else {}
        return [
            Reason(kind=kind, tests=tuple(row["tests"]), reason=row["reason"])
            for kind in ("fails", "left_out")
            for row in found.get(kind, [])
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why tests fail (``fails``) or do not run (``left_out``); ``*`` in a pattern is any text."""

    kind: str
    tests: tuple[str, ...]
    reason: str

    def about(self, name: str) -> list[str]:
        """Return the patterns that match a test."""
        return [pattern for pattern in self.tests if matches(pattern, name)]


def matches(pattern: str, name: str) -> bool:
    """Return whether a pattern, in which only ``*`` is special, is a test's whole name."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None


def suites() -> dict[str, Suite]:
    """Read the rows of ``suites.toml`` by name."""
    table = tomllib.loads((HERE / "suites.toml").read_text())
    lists = ("runs", "plugins", "options", "concerns")
    return {
        name: Suite(name=name, **{key: tuple(value) if key in lists else value for key, value in row.items()})
        for name, row in table.items()
    }
