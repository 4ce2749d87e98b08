"""Random tables and commands by SQL, by the API of a session and without a JVM: the same logs, the same rows.

``make simulation ARGS=--routes`` runs other seeds, by Spark Connect too (``docs/reference/simulation.md``).
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from pydelta.log import DeltaLog
from tests.routes.commands import Command
from tests.routes.run import run_seed, ways_of
from tests.routes.ways import Local, Sql

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


class _Forgetful(Local):
    """Counts one row more than it deleted, or leaves a file behind where it refuses."""

    def run(self, command: Command, path: str, rows: Path) -> None:
        try:
            super().run(command, path, rows)
        except Exception:
            Path(path, "left.parquet").touch()
            raise
        log = sorted(Path(path, "_delta_log").glob("*.json"))[-1]
        lines = log.read_text().splitlines()
        for number, line in enumerate(lines):
            info = json.loads(line).get("commitInfo")
            if info and info["operation"] == "WRITE":
                info["operationMetrics"]["numOutputRows"] += "1"
                lines[number] = json.dumps({"commitInfo": info})
        log.write_text("\n".join(lines) + "\n")


def test_a_way_that_says_something_else_and_one_that_leaves_a_file_are_found_out(spark, tmp_path):
    first = ways_of(spark)[0]
    found = []
    for seed in range(20):
        outcome = run_seed(seed, [first, _Forgetful()], tmp_path / str(seed), spark, steps=2)
        found += outcome.wrong
        if any("numOutputRows" in text for text in found) and any("left.parquet" in text for text in found):
            return
    pytest.fail(f"found {found}")


def test_a_way_that_does_another_thing_is_found_out(spark, tmp_path):
    class Other(Sql):
        def run(self, command: Command, path: str, rows: Path) -> None:
            where = None if command.kind == "delete" else command.where
            super().run(dataclasses.replace(command, where=where), path, rows)

    first = ways_of(spark)[0]
    for seed in range(20):
        outcome = run_seed(seed, [first, Other(spark)], tmp_path / str(seed), spark, steps=4)
        if outcome.wrong:
            assert "differ" in outcome.wrong[0] or "versions" in outcome.wrong[0]
            return
    pytest.fail("nothing was found")


@pytest.fixture(autouse=True)
def _no_log_is_left():
    yield
    DeltaLog.clear_cache()
