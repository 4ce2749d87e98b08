"""Faults that are planted: pydelta certify finds each, in processes over a real disk, with fixed operations."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from pydelta.tools.certify.checker import check
from pydelta.tools.certify.history import CertifyPlan, PlannedStep, Process
from pydelta.tools.certify.plan import make_plan
from pydelta.tools.certify.run import Request, run_plan

pytestmark = pytest.mark.ci

SETTING = "spark.pydelta.logStore.file"


@pytest.fixture(autouse=True)
def _liars_can_be_imported(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])


def plan(*processes: str, retention_seconds: int = 300) -> CertifyPlan:
    """A plan of words per process: ``append:3`` is an append of key 3."""
    made = []
    for number, text in enumerate(processes, start=1):
        steps = []
        for place, word in enumerate(text.split(), start=1):
            kind, _, key = word.partition(":")
            rows = 2 if kind in ("append", "stream", "replace") else 0
            steps.append(PlannedStep(op=f"{number}-{place}", kind=kind, key=int(key or 0), rows=rows, back=1))
        made.append(Process(number=number, engine="pydelta", steps=tuple(steps)))
    return CertifyPlan(seed=1, processes=tuple(made), retention_seconds=retention_seconds)


def found(tmp_path, liar: str, what: CertifyPlan) -> dict[str, str]:
    """The broken promises with the first thing said of each, of a run over a store that lies."""
    request = Request(uri=str(tmp_path / "place"), options={SETTING: f"certify_liars:{liar}"}, minutes=10)
    broken: dict[str, str] = {}
    for item in check(run_plan(what, request).history):
        broken.setdefault(item.promise, item.says)
    return broken


def test_a_put_if_absent_that_lies_one_time_in_500_is_found(tmp_path):
    broken = found(tmp_path, "one_in_500", plan(*["append:1 " * 20] * 3))
    assert "was told that version" in broken["durable"]
    assert "its commit is nowhere in the log" in broken["durable"]


def test_listings_that_are_behind_are_found(tmp_path):
    broken = found(tmp_path, "stale", plan("append:1 read read " * 4))
    assert "had been acknowledged, or read, before it began" in broken["fresh"]


def test_a_writer_that_writes_over_a_version_is_found(tmp_path):
    broken = found(tmp_path, "careless", plan("append:1 " * 12))
    assert "its commit is nowhere in the log" in broken["durable"]
    assert "it was written over" in broken.get("immutable", "it was written over")  # if the first one was seen in time


def test_a_vacuum_with_no_retention_is_found(tmp_path):
    broken = found(tmp_path, "vacuuming", plan("append:1 append:2 delete:1 append:3 vacuum append:1 read"))
    assert "is gone, and version 2 needs it" in broken["files"]


def test_the_same_operations_over_a_store_that_keeps_its_promises_break_none(tmp_path):
    """What the tests above find is the fault, and not the operations."""
    what = plan(
        "append:1 append:2 delete:1 append:3 vacuum append:1 read " + "append:1 read " * 4,
        "append:1 stream:2 update:1 replace:1 checkpoint optimize read restore delete:4 read",
    )
    ran = run_plan(what, Request(uri=str(tmp_path / "place"), minutes=10))
    assert check(ran.history) == []
    done = {event.step.kind for event in ran.history.events if event.outcome == "ok"}
    assert done >= {"append", "stream", "delete", "vacuum", "read", "checkpoint"}
    assert list(tmp_path.iterdir()) == [], "nothing is left"


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.isolationLevel": "WriteSerializable"},
        {"delta.enableDeletionVectors": "true", "delta.enableInCommitTimestamps": "true"},
        {"delta.checkpointPolicy": "v2", "delta.enableRowTracking": "true"},
    ],
    ids=["write serializable", "deletion vectors", "v2 checkpoints"],
)
def test_tables_with_other_properties_are_judged_by_what_they_promise(tmp_path, properties):
    what = make_plan(12, engines=["pydelta"] * 3, operations=60, properties=properties)
    history = run_plan(what, Request(uri=str(tmp_path / "place"), minutes=10)).history
    assert check(history) == []
    assert history.level == properties.get("delta.isolationLevel", "Serializable")
    assert len(history.commits) > 20


@pytest.mark.spark
def test_a_spark_session_writes_and_reads_beside_the_others(tmp_path):
    what = plan("append:1 append:2 read append:3 optimize read", "append:1 update:1 merge:1 merge:4 delete:2 read")
    own, other = what.processes
    what = msgspec.structs.replace(what, processes=(own, msgspec.structs.replace(other, engine="spark")))
    history = run_plan(what, Request(uri=str(tmp_path / "place"), minutes=20, readers=["spark"])).history
    assert check(history) == []
    events = [event for event in history.events if event.engine == "spark"]
    assert len(events) == 6
    assert {"append", "read"} <= {event.step.kind for event in events if event.outcome == "ok"}
    assert [read.rows is not None for read in history.reads if read.engine == "spark"] == [True]
