"""Provide a chapter with its session, a folder, and methods to show steps and check results."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydelta.api.console.terminal import Terminal, styled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Check", "Stage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A comparison of the table with independently computed values."""

    name: str
    passed: bool
    detail: str


@dataclass(slots=True, kw_only=True)
class Stage:
    """Session, folder and terminal of a run, with the checks collected so far."""

    spark: SparkSession
    folder: Path
    terminal: Terminal
    checks: list[Check] = field(default_factory=list)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Show a step while it runs, and its time afterwards."""
        started = time.monotonic()
        with self.terminal.status(f"{title} …"):
            yield
        seconds = styled(f" {time.monotonic() - started:.1f} s", "dim")
        self.terminal.say("  ", styled("✓ ", "green"), title, seconds)

    def check(self, name: str, *, expected: Any, found: Any) -> None:
        """Compare two values. A difference is shown at once and makes the run fail."""
        passed = bool(expected == found)
        detail = f"{found}" if passed else f"expected {expected}, found {found}"
        self.checks.append(Check(name=name, passed=passed, detail=detail))
        if not passed:
            self.terminal.say("  ", styled(f"✗ {name}", "red"), f": {detail[:500]}")

    def table(self, title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Print a small table."""
        self.terminal.table(header, rows, title=title)
