"""Measure what an erasure costs by the files that hold the keys and by the number of keys, against a whole rewrite.

The table has 100 files of 40,000 rows, without a JVM, on local disk. Its keys are clustered, so that statistics exclude
most files. An erasure is a look, a commit, the deletions and a search of everything that is left; the last row is the
look of a dry run alone. Each figure is one run on a copy of the table.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

import pydelta
from pydelta.api.python.local import LocalTable
from pydelta.log import DeltaLog

FILES: Final = 100
ROWS: Final = 40_000
TOUCHED: Final = (1, 10, 50, 100)
KEYS: Final = (1, 100, 1000)


def run() -> dict[str, Any]:
    """Erase keys in 1 to 100 of 100 files, and 1 to 1,000 keys in ten of them."""
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder, "base")
        _table(base)
        whole = _timed(base, Path(folder, "whole"), lambda table: table.overwrite(table.scan()))
        result["all files rewritten by overwrite"] = {"seconds": round(whole, 2)}
        for touched in TOUCHED:
            keys = [_person(file * ROWS) for file in range(touched)]
            took = _timed(base, Path(folder, f"files-{touched}"), lambda table, keys=keys: _erase(table, keys))
            result[f"keys in {touched} of {FILES} files"] = {
                "seconds": round(took, 2),
                "of a rewrite of all": round(took / whole, 2),
            }
        for number in KEYS:
            keys = [_person(place % 10 * ROWS + place) for place in range(number)]
            took = _timed(base, Path(folder, f"keys-{number}"), lambda table, keys=keys: _erase(table, keys))
            result[f"{number} keys in {min(number, 10)} files"] = {"seconds": round(took, 2)}
        took = _timed(base, Path(folder, "dry"), lambda table: table.erase({"who": [_person(0)]}, dry_run=True))
        result["dry run, one key"] = {"seconds": round(took, 2)}
    return result


def _person(number: int) -> str:
    return f"person-{number:08d}@example.org"


def _table(path: Path) -> None:
    table: LocalTable | None = None
    chance = np.random.default_rng(7)
    for file in range(FILES):
        numbers = np.arange(file * ROWS, (file + 1) * ROWS)
        rows = pa.table(
            {
                "who": pa.array([_person(number) for number in numbers.tolist()], pa.string()),
                "amount": pa.array(chance.integers(0, 1 << 40, ROWS), pa.int64()),
                "score": pa.array(chance.random(ROWS)),
            }
        )
        if table is None:
            table = LocalTable.create(path, rows)
        else:
            table.append(rows)


def _erase(table: LocalTable, keys: list[str]) -> None:
    done = table.erase({"who": keys}, history="drop")
    assert done.is_proven
    assert done.result.num_deleted_rows == len(keys), done.result


def _timed(base: Path, path: Path, work: Any) -> float:
    shutil.copytree(base, path)
    DeltaLog.clear_cache()
    table = pydelta.open(path)
    started = time.perf_counter()
    work(table)
    took = time.perf_counter() - started
    shutil.rmtree(path)
    return took
