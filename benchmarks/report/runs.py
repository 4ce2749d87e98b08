"""Keep a run of a benchmark as JSON, with the machine that it ran on, and read such runs back."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["KEPT", "LATEST", "Run", "machine", "read_runs", "value_at", "write_run"]

_ROOT: Final = Path(__file__).parents[2]
LATEST: Final = _ROOT / "build" / "bench"
"""Where ``make bench`` puts what it measured."""
KEPT: Final = _ROOT / "benchmarks" / "results"
"""The runs that the report is of."""
_PACKAGES: Final = ("pyspark", "polars", "pyarrow", "deltalake")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a benchmark.

    Args:
        benchmark: Its name.
        ended: When, in UTC, to the second.
        commit: The commit that was checked out, with ``+`` if files differed from it.
        machine: What ``machine`` tells; ``load`` is that of the minute before it began.
        seconds: How long it took.
        result: What it returned.
    """

    benchmark: str
    ended: str
    commit: str
    machine: dict[str, Any]
    seconds: float
    result: dict[str, Any]


def machine() -> dict[str, Any]:
    """Tell the processors, the load of the last minute and the versions of what takes part."""
    return {
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def write_run(folder: Path, benchmark: str, before: dict[str, Any], seconds: float, result: dict[str, Any]) -> Path:
    """Write ``FOLDER/BENCHMARK.json``, in the place of an older run.

    Args:
        folder: Is made.
        benchmark: Its name.
        before: What ``machine`` told before it began.
        seconds: How long it took.
        result: What it returned.
    """
    ended = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M:%S")
    run = Run(
        benchmark=benchmark, ended=ended, commit=_commit(), machine=before, seconds=round(seconds, 1), result=result
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{benchmark}.json"
    path.write_text(json.dumps(asdict(run), indent=1, default=str) + "\n")
    return path


def read_runs(folder: Path) -> dict[str, Run]:
    """Read the runs of a folder, by the benchmark's name."""
    return {path.stem: Run(**json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))}


def value_at(result: dict[str, Any], at: list[str]) -> float | None:
    """Return the number at a path of names in a result; None where there is none."""
    found: Any = result
    for name in at:
        found = found.get(name) if isinstance(found, dict) else None
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + ("+" if changed else "")
