"""Compare the changes of ``changes`` on a table of 3 GB: 80 million rows. It takes half an hour."""

from __future__ import annotations

from typing import Any

from benchmarks.changes import run_size

ONLY_IF_NAMED = True


def run() -> dict[str, Any]:
    """80 million rows in 160 files, one turn after one on two million rows, else as ``changes``."""
    return run_size(80_000_000, 1, warm_up=2_000_000)
