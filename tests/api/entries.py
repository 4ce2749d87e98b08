"""An entry of the public interface, and the file that keeps all of them.

A line is a kind, a name, and after two spaces what users rely on beside the name::

    flag pydelta vacuum --retention-hours  float
    method pydelta.LocalTable.delete  (condition=None, *, where=None)
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent
CURRENT = FOLDER / "public_api.txt"
RELEASED = FOLDER / "released_api.txt"
HEAD = {
    CURRENT: "# What users rely on, found in the code by `python -m tests.api`, which writes this file.\n",
    RELEASED: "# The same of the last release: `python -m tests.api released` writes it when a release was made.\n",
}


class Entry(NamedTuple):
    """One line. Names of one kind are unique."""

    kind: str
    name: str
    value: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f"  {self.value}" if self.value else "")

    @classmethod
    def parse(cls, line: str) -> Entry:
        before, _, value = line.partition("  ")
        kind, _, name = before.partition(" ")
        return cls(kind, name, value)


def text_of(entries: Iterable[Entry], path: Path) -> str:
    """The text of a kept file."""
    return HEAD[path] + "".join(f"{entry}\n" for entry in sorted(set(entries)))


def kept(path: Path) -> list[Entry]:
    """The entries of a kept file."""
    return [Entry.parse(line) for line in path.read_text().splitlines() if not line.startswith("#")]
