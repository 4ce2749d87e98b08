"""Compare what DESCRIBE HISTORY, DETAIL and a table's history take with the reference engine, on the very same table.

Both run in processes of their own, warm, turn by turn; each time the number of rows is checked.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from typing import Any

import deltalake
import pyarrow as pa

from benchmarks._peer import Peer, reference_engine
from benchmarks._timing import ratios

COMMITS = (20, 300)
ROUNDS = 7
QUESTIONS = {"history()": None, "history(1)": 1, "DESCRIBE HISTORY … LIMIT 5": 5, "detail()": 1}
"""With how many rows answer them; None: one per commit."""

_ASK = """
from delta.tables import DeltaTable
def ask(name, path):
    if name == "history()":
        return DeltaTable.forPath(spark, path).history().collect()
    if name == "history(1)":
        return DeltaTable.forPath(spark, path).history(1).collect()
    if name == "detail()":
        return DeltaTable.forPath(spark, path).detail().collect()
    return spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 5").collect()

def turn(name, path, expected):
    started = time.perf_counter()
    rows = ask(name, path)
    took = time.perf_counter() - started
    assert len(rows) == int(expected), (name, len(rows))
    return took
"""
_OURS = "import pydelta\npydelta.enable(spark)\n" + _ASK.replace("from delta.tables", "from pydelta.tables")


def run() -> dict[str, Any]:
    """Tables of 20 and 300 commits of one row; figures are medians over the reference engine's."""
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in COMMITS:
            _table(f"{folder}/{count}", count)
        reference = reference_engine(_ASK)
        if reference is None:
            raise SystemExit("this compares with the reference engine: set PYDELTA_REFERENCE_PYTHON")
        with reference, Peer(sys.executable, _OURS, {}) as ours:
            for count in COMMITS:
                for question, rows in QUESTIONS.items():
                    asked = (question, f"{folder}/{count}", str(rows or count))
                    result[f"{question}, {count} commits"] = _compare(ours, reference, asked)
    return result


def _compare(ours: Peer, reference: Peer, asked: tuple[str, str, str]) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {"pydelta": [], "delta-spark": []}
    for turn in range(ROUNDS + 2):
        for name, peer in (("pydelta", ours), ("delta-spark", reference)):
            took = peer(*asked)
            if turn > 1:
                seconds[name].append(took)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {**ratios(medians, to="delta-spark"), "seconds": round(medians["pydelta"], 3)}


def _table(path: str, commits: int) -> None:
    for _ in range(commits):
        deltalake.write_deltalake(path, pa.table({"id": pa.array([1], pa.int64())}), mode="append")
