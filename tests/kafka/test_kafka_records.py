"""``jobs/ingest_stream.py`` out of a real Kafka: each record becomes a row or a bad record, once."""

from __future__ import annotations

import base64
import json

import pytest
from stream_session import Stream

SCHEMA = "id BIGINT, v STRING"


def raw(row):
    return base64.b64decode(row["value"]).decode()


def event(op, before, after, lsn, *, wrapped=False):
    found = {"op": op, "before": before, "after": after, "source": {"lsn": lsn, "db": "shop"}, "ts_ms": 1}
    return {"schema": {"type": "struct"}, "payload": found} if wrapped else found


def test_json_is_appended_and_what_is_not_json_of_the_schema_is_set_aside(stream):
    good = [{"id": number, "v": f"row {number}"} for number in range(7)]
    odd = [
        '{"id": 7}{"id": 8}',
        '{"id": 9},{"id": 10}',
        '[{"id": 11}]',
        '{"id": "twelve"}',
        "nothing",
        "",
        '{"id": 1} x',
    ]
    stream.send(*good, *odd, None)
    code, batches, last = stream.run("--schema", SCHEMA, "--max-per-trigger", "5")
    assert code == 0, last
    assert [batch["rows"] for batch in batches] == [5, 5, 5]
    assert [batch["lag"] for batch in batches] == [10, 5, 0]
    assert all(batch["rows"] == batch["written"] + batch["bad"] and batch["seconds"] > 0 for batch in batches)
    assert last == {"table": stream.table, "batches": 3, "rows": 15, "written": 7, "bad": 8, "tombstones": 0,
                    "superseded": 0, "stopped": False}  # fmt: skip
    assert sorted(stream.rows(), key=lambda row: row["id"]) == good
    bad = sorted(stream.rows(stream.bad), key=lambda row: row["offset"])
    assert [raw(row) for row in bad[:-1]] == odd
    assert [row["offset"] for row in bad] == list(range(7, 15))
    assert {(row["source"], row["partition"]) for row in bad} == {(stream.topic, 0)}
    assert bad[-1]["reason"] == "The record has no value."
    assert bad[0]["reason"] == "The record does not fit the schema as json."


def test_columns_are_inferred_once_and_kept(stream):
    stream.send({"id": 1, "v": "a"})
    assert stream.run()[0] == 0
    stream.send({"id": 2, "v": "b", "more": 5}, {"id": "x"})
    code, batches, _ = stream.run()
    assert code == 0
    assert [(batch["batch"], batch["rows"], batch["written"], batch["bad"]) for batch in batches] == [(1, 2, 1, 1)]
    assert sorted(map(str, stream.rows())) == ["{'id': 1, 'v': 'a'}", "{'id': 2, 'v': 'b'}"]


def test_a_bad_record_without_a_place_for_it_stops_the_job_and_writes_nothing(stream):
    stream.send({"id": 1, "v": "a"}, "oops")
    place = stream.arguments.index("--bad-records")
    code, lines = stream.session.job("ingest_stream", *stream.arguments[:place], "--schema", SCHEMA)
    assert code == 1
    assert "1 records of the batch are bad" in lines[-1]["message"]
    assert f"{stream.topic}, partition 0, offset 1" in lines[-1]["message"]
    assert stream.rows() == []
    code, _, last = stream.run("--schema", SCHEMA)
    assert (code, last["written"], last["bad"]) == (0, 1, 1)


def test_the_newest_record_of_a_key_takes_the_place_of_its_row(stream):
    upsert = ("--schema", "id BIGINT, v STRING, at BIGINT", "--merge-key", "id", "--order-by", "at")
    stream.send({"id": 1, "v": "new", "at": 5}, {"id": 1, "v": "old", "at": 4}, {"id": 2, "v": "two", "at": 1},
                {"v": "no key", "at": 1}, {"id": 3, "v": "no time"})  # fmt: skip
    code, (batch,), _ = stream.run(*upsert)
    assert code == 0
    assert [batch[name] for name in ("rows", "written", "bad", "superseded", "inserted")] == [5, 2, 2, 1, 2]
    stream.send({"id": 1, "v": "older than the table", "at": 3}, {"id": 2, "v": "two again", "at": 2})
    code, (batch,), _ = stream.run(*upsert)
    assert (code, batch["inserted"], batch["updated"]) == (0, 0, 1)
    assert {row["id"]: row["v"] for row in stream.rows()} == {1: "new", 2: "two again"}
    reasons = sorted(row["reason"] for row in stream.rows(stream.bad))
    assert reasons == ["The key column `id` is null.", "The order column `at` is null."]


def test_changes_of_a_database_are_applied_by_their_position_in_its_log(stream):
    debezium = ("--schema", SCHEMA, "--merge-key", "id", "--changes", "debezium")
    stream.send(
        event("r", None, {"id": 1, "v": "snapshot"}, 1), event("c", None, {"id": 2, "v": "two"}, 2, wrapped=True),
        event("u", {"id": 1}, {"id": 1, "v": "changed"}, 9), event("u", {"id": 1}, {"id": 1, "v": "sent again"}, 3),
        event("d", {"id": 2}, None, 4, wrapped=True), None, event("c", None, {"id": 3, "v": "three"}, 5),
        event("t", None, None, 6), event("d", None, None, 7), {"id": 9},
        event("u", None, {"id": 3, "v": "__debezium_unavailable_value"}, 8),
    )  # fmt: skip
    code, (batch,), _ = stream.run(*debezium)
    assert code == 0
    names = ("rows", "written", "bad", "tombstones", "superseded", "inserted", "deleted")
    assert [batch[name] for name in names] == [11, 3, 4, 1, 3, 2, 0]
    assert batch["rows"] == batch["written"] + batch["bad"] + batch["tombstones"] + batch["superseded"]
    assert {row["id"]: row["v"] for row in stream.rows()} == {1: "changed", 3: "three"}
    stream.send(event("d", {"id": 1, "v": "changed"}, None, 20), event("u", None, {"id": 3, "v": "last"}, 21))
    code, (batch,), _ = stream.run(*debezium)
    assert (code, batch["updated"], batch["deleted"], batch["inserted"]) == (0, 1, 1, 0)
    assert {row["id"]: row["v"] for row in stream.rows()} == {3: "last"}


def test_avro_that_cannot_be_decoded_is_told_from_a_record_of_nulls(stream, tmp_path):
    fields = [{"name": "id", "type": ["null", "long"]}, {"name": "name", "type": ["null", "string"]}]
    schema = json.dumps({"type": "record", "name": "row", "fields": fields})
    (tmp_path / "row.avsc").write_text(schema)
    encoded = stream.session.order("avro", schema=schema, values=[[1, "a"], [None, None]])
    stream.send(*map(bytes.fromhex, encoded), b"\xff\xff", None)
    code, (batch,), _ = stream.run("--format", "avro", "--schema", str(tmp_path / "row.avsc"))
    assert (code, batch["rows"], batch["written"], batch["bad"]) == (0, 4, 2, 2)
    assert sorted(map(str, stream.rows())) == ["{'id': 1, 'name': 'a'}", "{}"]


@pytest.mark.parametrize(
    ("changed", "said", "expected"),
    [
        ({"--topic": "not-there"}, "has no topic not-there", 1),
        ({"--brokers": "127.0.0.1:9"}, "does not answer", 2),
        ({"--brokers": "nonsense"}, "refuses its settings", 1),
        ({"--schema": "id BIGNIT"}, "cannot be read", 1),
        ({"--format": "xml"}, "invalid choice", 1),
        ({"--merge-key": "nope"}, "'nope', which the records do not have", 1),
        ({"--trigger": "often"}, "--trigger is 'often'", 1),
        ({"--record-option": "mode=DROPMALFORMED"}, "what happens to bad records", 1),
    ],
)
def test_what_cannot_be_right_is_said_without_a_trace(stream, changed, said, expected):
    quick = ["kafka.request.timeout.ms=900", "kafka.default.api.timeout.ms=1000"]
    given = [*stream.arguments, "--schema", SCHEMA, *[part for item in quick for part in ("--option", item)]]
    code, lines = stream.session.job("ingest_stream", *given, *[part for pair in changed.items() for part in pair])
    assert code == expected
    message = lines[-1]["message"]
    assert said in message
    assert "  Next: " in message
    assert "org.apache" not in message
    assert "\tat " not in message


def test_a_checkpoint_of_another_stream_is_refused(stream, session, broker, tmp_path):
    stream.send({"id": 1, "v": "a"})
    assert stream.run("--schema", SCHEMA)[0] == 0
    other = Stream(session, broker, tmp_path, partitions=1)
    code, _, last = other.run("--schema", SCHEMA)
    assert code == 1
    assert f"belongs to another source: kafka: {stream.topic}, but this run has kafka: {other.topic}" in last["message"]
