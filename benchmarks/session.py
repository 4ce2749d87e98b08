"""Measure what a session costs until its first rows: importing, enabling and the first query, beside Spark alone.

Each turn is a process of its own. Spark alone reads the data files of the table, so that only the engine differs.
Python keeps its compiled modules from the first turn, which does not count, as it does where a package is installed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import pydelta

ROUNDS = 5
STEPS = ("import", "session", "enable", "first query", "second query", "another table")

_TURN = """
import json, sys, time
engine, table, other = sys.argv[1:]
taken = {}
def timed(name, step):
    began = time.perf_counter()
    found = step()
    taken[name] = time.perf_counter() - began
    return found
from pyspark.sql import SparkSession
def load():
    if engine == "pydelta":
        import pydelta
timed("import", load)
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = timed("session", builder.getOrCreate)
spark.sparkContext.setLogLevel("OFF")
def enable():
    if engine == "pydelta":
        import pydelta
        pydelta.enable(spark)
timed("enable", enable)
def query(path):
    form = "delta" if engine == "pydelta" else "parquet"
    frame = spark.read.format(form).load(path if engine == "pydelta" else path + "/*.parquet")
    return frame.where("id >= 10").groupBy("p").sum("v").collect()
timed("first query", lambda: query(table))
timed("second query", lambda: query(table))
timed("another table", lambda: query(other))
print(json.dumps(taken))
"""


def run() -> dict[str, Any]:
    """Medians of five turns in seconds: with the engine, with Spark alone, and what the engine adds."""
    found: dict[str, list[dict[str, float]]] = {"pydelta": [], "parquet": []}
    with tempfile.TemporaryDirectory() as folder:
        tables = [f"{folder}/{name}" for name in ("first", "other")]
        for path in tables:
            _make(path)
        for turn in range(ROUNDS + 1):
            for engine, turns in found.items():
                command = [sys.executable, "-c", _TURN, engine, *tables]
                done = subprocess.run(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    check=True,
                    env=_environment(folder),
                )
                if turn:
                    turns.append(json.loads(done.stdout))
    result: dict[str, Any] = {}
    for step in STEPS:
        medians = {engine: statistics.median(turn[step] for turn in turns) for engine, turns in found.items()}
        result[step] = {engine: round(value, 3) for engine, value in medians.items()}
        result[step]["added"] = round(medians["pydelta"] - medians["parquet"], 3)
    result["import and enable"] = {"added": round(sum(result[step]["added"] for step in ("import", "enable")), 3)}
    return result


def _environment(folder: str) -> dict[str, str]:
    """Return this process' environment, in which Python writes compiled modules, and workers run this interpreter."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return inherited | {"PYTHONPYCACHEPREFIX": f"{folder}/compiled", "PYSPARK_PYTHON": sys.executable}


def _make(path: str) -> None:
    ids = np.arange(100_000, dtype=np.int64)
    rows = pa.table({"id": ids, "p": (ids % 7).astype(np.int32), "v": ids / 3})
    table = pydelta.LocalTable.create(path, rows.slice(0, 50_000))
    table.append(rows.slice(50_000))
    assert pq.read_table(path).num_rows == len(ids)
