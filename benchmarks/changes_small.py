"""Compare the changes of ``changes`` on a table of 76 MB: 2 million rows."""

from __future__ import annotations

from typing import Any

from benchmarks.changes import ROUNDS, run_size


def run() -> dict[str, Any]:
    """2 million rows in 16 files, else as ``changes``."""
    return run_size(2_000_000, ROUNDS)
