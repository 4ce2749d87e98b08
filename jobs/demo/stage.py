"""Provide a chapter with its session, a folder, and methods to show steps, check results and fill the page."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.demo.charts import Chart
from pydelta.api.console.terminal import Terminal, styled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Chapter", "Check", "Fact", "ShownTable", "Stage", "Step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A comparison of the table with independently computed values."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step that was done, and how long it took."""

    title: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One line of the summary: a word, and what happened in numbers."""

    word: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTable:
    """A small table, as text."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(slots=True, kw_only=True)
class Chapter:
    """The steps of a chapter, in the order in which they happened."""

    name: str = ""
    title: str = ""
    seconds: float = 0.0
    steps: list[Step] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    tables: list[ShownTable] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Stage:
    """Session, folder and terminal of a run, with everything that its chapters showed."""

    spark: SparkSession
    folder: Path
    terminal: Terminal
    chapters: list[Chapter] = field(default_factory=lambda: [Chapter()])

    @property
    def checks(self) -> list[Check]:
        """The checks of all chapters."""
        return [check for chapter in self.chapters for check in chapter.checks]

    @contextmanager
    def chapter(self, name: str, title: str) -> Iterator[None]:
        """Show a chapter while it runs, and its time afterwards."""
        started = time.monotonic()
        self.terminal.rule(title)
        self.chapters.append(Chapter(name=name, title=title))
        yield
        self._chapter.seconds = time.monotonic() - started
        self.terminal.say(f"  chapter {name}: {self._chapter.seconds:.0f} s")

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Show a step while it runs, and its time afterwards."""
        started = time.monotonic()
        with self.terminal.status(f"{title} …"):
            yield
        seconds = time.monotonic() - started
        self._chapter.steps.append(Step(title=title, seconds=seconds))
        self.terminal.say("  ", styled("✓ ", "green"), title, styled(f" {seconds:.1f} s", "dim"))

    def check(self, name: str, *, expected: Any, found: Any) -> None:
        """Compare two values. A difference is shown at once and makes the run fail."""
        passed = bool(expected == found)
        detail = f"{found}" if passed else f"expected {expected}, found {found}"
        self._chapter.checks.append(Check(name=name, passed=passed, detail=detail))
        if not passed:
            self.terminal.say("  ", styled(f"✗ {name}", "red"), f": {detail[:500]}")

    def table(self, title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Print a small table, and keep it for the page."""
        cells = tuple(tuple("" if value is None else str(value) for value in row) for row in rows)
        self._chapter.tables.append(ShownTable(title=title, header=tuple(header), rows=cells))
        self.terminal.table(header, rows, title=title)

    def fact(self, word: str, text: str) -> None:
        """Keep a line for the summary."""
        self._chapter.facts.append(Fact(word=word, text=text))

    def chart(self, chart: Chart) -> None:
        """Keep a chart for the page."""
        self._chapter.charts.append(chart)

    @property
    def _chapter(self) -> Chapter:
        return self.chapters[-1]
