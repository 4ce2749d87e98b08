"""Random tables and commands by SQL, by the API of a session and without a JVM: the same logs, the same rows.

``make test SUITE=simulation ARGS=--routes`` runs other seeds (``docs/reference/simulation.md``).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pytest

from pydelta.log import DeltaLog
from pydelta.protocol.types import PrimitiveType
from tests.routes.commands import Column, Command, Rows, Table
from tests.routes.run import run_commands, run_seed, ways_of
from tests.routes.ways import Local

pytestmark = [pytest.mark.spark, pytest.mark.damages_tables]

KEPT = [
    int(line.split()[0])
    for line in Path(__file__).with_name("kept.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize("seed", [*range(3), *KEPT])
def test_a_seed_leaves_the_same_log_by_every_way_and_reads_the_same(spark, tmp_path, seed):
    outcome = run_seed(seed, ways_of(spark), tmp_path, spark)
    assert outcome.wrong == [], "\n".join([*outcome.trace, *outcome.wrong])
    assert outcome.counts["steps"] == 6


LONG = PrimitiveType("long")
PLAIN = Table((Column("id", LONG, nullable=False), Column("x", LONG)), (), {}, {}, "t")


def _rows(*ids):
    rows = pa.table({"id": pa.array(ids, pa.int64()), "x": pa.array([7] * len(ids), pa.int64())})
    return Command("append", Rows(rows, rows, tuple(rows.to_pylist())))


class _Boastful(Local):
    """Says of each append that it added one row more."""

    def run(self, command: Command, path: str, rows: Path) -> None:
        super().run(command, path, rows)
        log = sorted(Path(path, "_delta_log").glob("*.json"))[-1]
        log.write_text(log.read_text().replace('"numOutputRows":"', '"numOutputRows":"1'))


class _Untidy(Local):
    """Leaves a file where it fails."""

    def run(self, command: Command, path: str, rows: Path) -> None:
        try:
            super().run(command, path, rows)
        except Exception:
            Path(path, "left.parquet").touch()
            raise


class _Careless(Local):
    """Deletes whatever the condition."""

    def run(self, command: Command, path: str, rows: Path) -> None:
        super().run(dataclasses.replace(command, where=None), path, rows)


@pytest.mark.parametrize(
    ("way", "commands", "word"),
    [
        (_Boastful(), [_rows(1, 2)], "numOutputRows"),
        (_Untidy(), [_rows(1, None)], "left.parquet"),
        (_Careless(), [_rows(1, 2), Command("delete", where="id = 1")], "differ"),
    ],
)
def test_a_way_that_lies_leaves_files_or_does_another_thing_is_found_out(spark, tmp_path, way, commands, word):
    outcome = run_commands(PLAIN, commands, [ways_of(spark)[0], way], tmp_path, spark)
    assert any(word in text for text in outcome.wrong), outcome
    assert outcome.trace[0] == str(PLAIN)


@pytest.mark.parametrize("properties", [{}, {"delta.enableChangeDataFeed": "true"}], ids=["plain", "change feed"])
def test_replaced_and_restored_rows_leave_the_same_log_by_every_way(spark, tmp_path, properties):
    replacing = dataclasses.replace(_rows(5, 5), kind="replace where", where="id = 5")
    commands = [
        _rows(1, 2, 3),
        dataclasses.replace(_rows(4, 5, 6), kind="overwrite"),
        replacing,
        Command("restore", version=1),
        dataclasses.replace(replacing, where="id = 1"),
    ]
    outcome = run_commands(dataclasses.replace(PLAIN, properties=properties), commands, ways_of(spark), tmp_path, spark)
    assert outcome.wrong == [], "\n".join([*outcome.trace, *outcome.wrong])
    assert (outcome.counts["no JVM"], outcome.counts["refused"]) == (4, 1)


@pytest.fixture(autouse=True)
def _no_log_is_left():
    yield
    DeltaLog.clear_cache()
