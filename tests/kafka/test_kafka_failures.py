"""Streams out of Kafka when the broker or the job dies: rows are counted, and none is lost or doubled."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

SCHEMA = ("--schema", "id BIGINT, v STRING")


def records(first, last):
    return [{"id": number, "v": "x"} for number in range(first, last)]


def ids(stream):
    return sorted(row["id"] for row in stream.rows())


@pytest.mark.ci
def test_a_broker_that_is_killed_and_comes_back_costs_no_row(stream, broker):
    stream.send(*records(0, 12))
    running = stream.session.begin(
        "job", name="ingest_stream", args=[*stream.arguments, *SCHEMA, "--max-per-trigger", "3"]
    )
    running.wait_for_line()
    broker.kill()
    broker.start()
    assert running.result() == 0
    assert running.lines[-1]["rows"] == 12
    assert ids(stream) == list(range(12))


def test_partitions_that_are_added_are_read_from_their_beginning(stream):
    stream.send(*records(0, 4))
    assert stream.run(*SCHEMA)[0] == 0
    stream.session.order("grow", name=stream.topic, partitions=3)
    stream.send(*records(4, 6), partition=2)
    stream.send(*records(6, 9), partition=0)
    code, batches, last = stream.run(*SCHEMA)
    assert (code, last["rows"], batches[-1]["lag"]) == (0, 5, 0)
    assert ids(stream) == list(range(9))


def forget_batch_0(stream):
    """Leave the checkpoint as a job does that ends between the batch's commit and Spark's note of it."""
    commits = Path(stream.checkpoint) / "commits"
    for name in ("0", ".0.crc"):
        (commits / name).unlink()
    assert list(commits.iterdir()) == []


@pytest.mark.parametrize("way", [(), ("--merge-key", "id")], ids=["append", "merge"])
def test_a_batch_that_spark_has_not_noted_as_done_is_written_once(stream, way):
    stream.send(*records(0, 5), "bad")
    assert stream.run(*SCHEMA, *way)[0] == 0
    forget_batch_0(stream)
    stream.send(*records(5, 7))
    code, batches, last = stream.run(*SCHEMA, *way)
    assert code == 0, last
    assert [batch.get("landed_before", False) for batch in batches] == [True, False]
    assert [(batch["rows"], batch["bad"]) for batch in batches] == [(6, 1), (2, 0)]
    assert ids(stream) == list(range(7))
    assert len(stream.rows(stream.bad)) == 1


def test_another_schema_waits_until_a_batch_that_was_written_is_noted_as_done(stream):
    stream.send(*records(0, 2), "bad")
    assert stream.run(*SCHEMA)[0] == 0
    forget_batch_0(stream)
    code, _, last = stream.run("--schema", "id BIGINT, v STRING, w STRING")
    assert code == 1
    assert "has written part of batch 0" in last["message"]
    assert stream.run()[0] == 0, "the schema that was kept"
    assert (ids(stream), len(stream.rows(stream.bad))) == ([0, 1], 1)


def test_sigterm_ends_the_job_after_the_batch_under_way(stream):
    stream.send(*records(0, 3))
    running = stream.session.begin("job", name="ingest_stream", args=[*stream.arguments, *SCHEMA, "--trigger", "0.1"])
    assert running.wait_for_line()["written"] == 3
    stream.session.signal(signal.SIGTERM)
    assert running.result() == 0
    assert (running.lines[-1]["stopped"], running.lines[-1]["rows"]) == (True, 3)
    stream.send(*records(3, 5))
    assert stream.run()[0] == 0
    assert ids(stream) == list(range(5))


@pytest.mark.ci
def test_a_job_that_is_killed_after_its_commit_goes_on_with_the_next_record(stream):
    stream.send(*records(0, 6), "bad", *records(6, 8))
    code, lines = stream.session.job("ingest_stream", *stream.arguments, *SCHEMA, "--max-per-trigger", "4", die_after=1)
    assert code is None
    assert [line["rows"] for line in lines] in ([4], [])
    stream.session.start()
    code, batches, _ = stream.run("--max-per-trigger", "4")
    assert code == 0
    assert [(batch["batch"], batch.get("landed_before", False)) for batch in batches] == [(1, True), (2, False)]
    assert ids(stream) == list(range(8))
    assert len(stream.rows(stream.bad)) == 1
