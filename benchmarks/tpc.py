"""Run TPC-H by SQL: over Delta tables by this engine and by delta-spark, and over the same rows as Parquet.

All three have a session of their own kind, and take turns query by query. What a query answers here and over Parquet is
compared; the reference engine reads the tables that this engine wrote.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException

import pydelta
from benchmarks._peer import reference_engine
from benchmarks._tpc import generate, queries, write_both

SCALE = float(os.environ.get("PYDELTA_BENCH_SCALE", "1"))
ROUNDS = int(os.environ.get("PYDELTA_BENCH_ROUNDS", "3"))
MINUTES = float(os.environ.get("PYDELTA_BENCH_MINUTES", "inf"))
"""No query begins after this time: the result says of how many it is."""
# With PYDELTA_BENCH_DATA, the data is made in that folder and stays there for the next run.
FIRST = int(os.environ.get("PYDELTA_BENCH_FIRST", "1"))
"""Queries of a smaller number are left out: a run that was cut off is continued."""

SETTINGS = {
    "spark.driver.memory": os.environ.get("PYDELTA_BENCH_MEMORY", "4g"),
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
}
_REFERENCE = """
from pathlib import Path
for folder in Path(FOLDER).iterdir():
    spark.read.format("delta").load(str(folder)).createOrReplaceTempView(folder.name)
def turn(text):
    began = time.perf_counter()
    spark.sql(text).collect()
    return time.perf_counter() - began
"""


def run() -> dict[str, Any]:
    """Scale 1 (``PYDELTA_BENCH_SCALE``); medians of turns after one that is not counted, and ratios of their sums."""
    return {"tpch": workload("tpch")}


def workload(kind: str, *, scale: float = SCALE, rounds: int = ROUNDS, warm_up: int = 1) -> dict[str, Any]:
    """Run the queries of ``tpch`` or ``tpcds``.

    Args:
        kind: Which of them.
        scale: 1 is a gigabyte of text.
        rounds: Turns that count.
        warm_up: Turns before these.
    """
    kept = os.environ.get("PYDELTA_BENCH_DATA")
    with nullcontext(kept) if kept else tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables = generate(kind, scale, folder / "source")
        spark = pydelta.session("bench-tpc", conf={"spark.master": "local[2]", **SETTINGS})
        write_both(spark, folder / "source", tables, f"{folder}/parquet", f"{folder}/delta")
        sessions = {"pydelta": spark.newSession(), "parquet": spark.newSession()}
        for form, session in zip(("delta", "parquet"), sessions.values(), strict=True):
            for table in tables:
                session.read.format(form).load(f"{folder}/{form}/{table}").createOrReplaceTempView(table)
        reference = reference_engine(_REFERENCE.replace("FOLDER", repr(f"{folder}/delta")), SETTINGS)
        try:
            return _rounds(queries(kind), sessions, reference, (warm_up, rounds))
        finally:
            if reference is not None:
                reference.__exit__(None, None, None)
            spark.stop()


def _rounds(texts: dict[int, str], sessions: dict[str, Any], reference: Any, turns: tuple[int, int]) -> dict[str, Any]:
    warm_up, rounds = turns
    names = [*sessions, *(["delta-spark"] if reference is not None else [])]
    totals = dict.fromkeys(names, 0.0)
    by_query: dict[str, float] = {}
    refused: list[str] = []
    began = time.monotonic()
    for number, text in texts.items():
        if time.monotonic() - began > MINUTES * 60:
            break
        if number < FIRST:
            continue
        seconds: dict[str, list[float]] = {name: [] for name in names}
        answers: dict[str, Counter[str]] = {}
        try:
            sessions["parquet"].sql(text)
        except AnalysisException as error:  # written for another engine, and wrong in Spark whatever the tables are
            refused.append(f"q{number}: {str(error).splitlines()[0][:120]}")
            continue
        for turn in range(warm_up + rounds):
            for name in _order(names, turn + number):
                took = reference(text) if name == "delta-spark" else _timed(sessions[name], text, answers, name)
                if turn >= warm_up:
                    seconds[name].append(took)
        if answers["pydelta"] != answers["parquet"]:
            raise SystemExit(f"q{number} has other rows over Delta tables than over Parquet")
        medians = {name: sorted(values)[len(values) // 2] for name, values in seconds.items()}
        print(f"q{number}", {name: round(value, 2) for name, value in medians.items()}, file=sys.stderr, flush=True)
        for name, value in medians.items():
            totals[name] += value
        by_query[f"q{number}"] = round(medians["pydelta"] / medians["parquet"], 2)
    return {
        "queries": f"{len(by_query)} of {len(texts)}",
        "not Spark's SQL": refused,
        "seconds": {name: round(value, 1) for name, value in totals.items()},
        "pydelta over": {name: round(totals["pydelta"] / totals[name], 3) for name in names if name != "pydelta"},
        "over parquet, by query": by_query,
    }


def _order(names: list[str], turn: int) -> list[str]:
    """Return every order of the contestants in turn: the later ones find warmer code, and files in memory."""
    orders = list(itertools.permutations(names))
    return list(orders[turn % len(orders)])


def _timed(session: Any, text: str, answers: dict[str, Counter[str]], name: str) -> float:
    began = time.perf_counter()
    rows = session.sql(text).collect()
    took = time.perf_counter() - began
    answers[name] = Counter(str([_rounded(value) for value in row]) for row in rows)
    return took


def _rounded(value: Any) -> Any:
    """Sums of floats depend on the order of rows in their last digits."""
    return float(f"{value:.9g}") if isinstance(value, float) else value
