"""Compare the peak memory of ``pydelta.open`` with that of delta-rs: each change in a process of its own, no JVM.

The changes are those of ``benchmarks.without_spark``. Both kinds of process make the same source rows with NumPy and
Arrow; each imports its own engine and not the other's, as a user's process would.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks._timing import peak_mb
from benchmarks.without_spark import make_tables, operations

CONTESTANTS = ("pydelta", "delta-rs")


def run() -> dict[str, Any]:
    """2,000,000 rows (``PYDELTA_BENCH_ROWS``) in 16 files, and in 1,000; one process each, in MB."""
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        make_tables(folder)
        for name, (kind, *_) in operations().items():
            peaks = {contestant: _peak(name, contestant, f"{folder}/{kind}", folder) for contestant in CONTESTANTS}
            result[name] = {"ratio": round(peaks["pydelta"] / peaks["delta-rs"], 2), "peak MB": peaks}
            print(name, result[name], flush=True)
    return result


def _peak(name: str, contestant: str, base: str, folder: str) -> int:
    copy = f"{folder}/copy"
    shutil.copytree(base, copy)
    command = [sys.executable, "-m", "benchmarks.memory", name, contestant, copy]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    shutil.rmtree(copy)
    return int(json.loads(done.stdout))


def main() -> None:
    """Be one of the processes: ``NAME CONTESTANT PATH``."""
    name, contestant, path = sys.argv[1:]
    _, ours, theirs = operations()[name]
    (ours if contestant == "pydelta" else theirs)(path)
    print(peak_mb())


if __name__ == "__main__":
    main()
