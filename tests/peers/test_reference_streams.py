"""Queries that one engine starts and the other one goes on with, from the same checkpoint."""

from __future__ import annotations

import json

import pytest
from stream_steps import perform

from pydelta.log import DeltaLog

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUERIES = {
    "snapshot": ("plain", {"maxFilesPerTrigger": "1"}, 2),
    "at_once": ("plain", {}, 0),
    "versions": ("plain", {"maxFilesPerTrigger": "2", "startingVersion": "0"}, 1),
    "behind": ("plain", {"maxFilesPerTrigger": "1", "startingVersion": "0"}, 4),
    "feed": ("feed", {"readChangeFeed": "true", "startingVersion": "0", "maxFilesPerTrigger": "1"}, 4),
    "feed_snapshot": ("feed", {"readChangeFeed": "true", "maxFilesPerTrigger": "1"}, 1),
    "vectors": ("vectors", {"maxFilesPerTrigger": "1"}, 1),
    "mapped": ("mapped", {"maxFilesPerTrigger": "1", "startingVersion": "1"}, 2),
}
TABLES = {
    "plain": "",
    "feed": "'delta.enableChangeDataFeed'='true'",
    "vectors": "'delta.enableDeletionVectors'='true'",
    "mapped": "'delta.columnMapping.mode'='name'",
}


def _tables(folder):
    for name, properties in TABLES.items():
        path = str(folder / name)
        if properties:
            text = f"CREATE TABLE delta.`{path}` (id long, p long) USING delta TBLPROPERTIES ({properties})"
            yield {"kind": "sql", "text": text}
        yield {"kind": "append", "path": path, "first": 0, "last": 30, "files": 3}
        yield {"kind": "append", "path": path, "first": 30, "last": 50, "files": 2}
    yield {"kind": "sql", "text": f"UPDATE delta.`{folder / 'feed'}` SET p = 7 WHERE id < 3"}
    yield {"kind": "sql", "text": f"DELETE FROM delta.`{folder / 'vectors'}` WHERE id % 10 = 4"}


def _query(folder, name, *, fail=False, own=False):
    table, options, fail_in = QUERIES[name]
    side = "alone" if own else "shared"
    return {
        "kind": "query",
        "table": str(folder / table),
        "checkpoint": str(folder / f"{side}-{name}-checkpoint"),
        "out": str(folder / f"{side}-{name}.jsonl"),
        "options": options,
        "fail_in": fail_in if fail else None,
    }


def _copy(folder, **how):
    names = {"table": str(folder / "plain"), "checkpoint": str(folder / "copying"), "target": str(folder / "copied")}
    return {"kind": "copy", **names, **how}


def _batches(folder, name):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def _run_reference(run_reference, folder, steps):
    (folder / "steps.json").write_text(json.dumps(steps))
    run_reference("reference_streams.py", folder / "steps.json")


def _offsets(folder, name):
    files = sorted((folder / name / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    return [file.read_text().splitlines()[-1] for file in files]


@pytest.mark.parametrize("first", ["reference", "ours"])
def test_query_goes_on_in_the_other_engine_with_the_rows_it_would_have_had(spark, run_reference, tmp_path, first):
    """Each query is also run by the first engine alone, to its end: the batches of the two have to be its batches."""
    begun = [
        *_tables(tmp_path),
        *(_query(tmp_path, name, fail=True) for name in QUERIES),
        *(_query(tmp_path, name, own=True) for name in QUERIES),
        _copy(tmp_path, forget=4),
    ]
    appended = {"kind": "append", "path": str(tmp_path / "plain"), "first": 50, "last": 60, "files": 2}
    finished = [*(_query(tmp_path, name) for name in QUERIES), appended, _copy(tmp_path)]
    if first == "reference":
        _run_reference(run_reference, tmp_path, begun)
        perform(spark, finished)
    else:
        perform(spark, begun)
        _run_reference(run_reference, tmp_path, finished)
    for name in QUERIES:
        assert _offsets(tmp_path, f"shared-{name}-checkpoint")[0] == _offsets(tmp_path, f"alone-{name}-checkpoint")[0]
        shared = [row for batch in _batches(tmp_path, f"shared-{name}.jsonl") for row in batch]
        alone = [row for batch in _batches(tmp_path, f"alone-{name}.jsonl") for row in batch]
        assert sorted(shared) == sorted(alone), name
        assert len(shared) in (45, 50, 56), name
    copied = spark.read.format("delta").load(str(tmp_path / "copied"))
    assert sorted(row.id for row in copied.collect()) == list(range(60))
    log = DeltaLog.for_table(str(tmp_path / "copied"))
    assert [item.commit_info.operation for item in log.history()] == ["STREAMING UPDATE"] * 7


def _tracked(folder, columns, *, condition=None, **options):
    """A run of the query that keeps its schemas; it selects columns by name, so that their names are those it reads."""
    given = {
        "table": str(folder / "tracked"),
        "checkpoint": str(folder / "tracking"),
        "out": str(folder / "tracked.jsonl"),
        "options": {"schemaTrackingLocation": str(folder / "tracking" / "schemas"), **options},
    }
    kind = {"kind": "query"} if condition is None else {"kind": "stopped", "condition": condition}
    return {**given, **kind, "columns": columns}


@pytest.mark.parametrize("first", ["reference", "ours"])
def test_schemas_that_one_engine_tracked_are_gone_on_with_by_the_other(spark, run_reference, tmp_path, first):
    table = f"delta.`{tmp_path / 'tracked'}`"
    properties = "'delta.columnMapping.mode'='name', 'delta.enableTypeWidening'='true'"

    def sql(text):
        return {"kind": "sql", "text": text}

    begun = [
        sql(f"CREATE TABLE {table} (id long, v string) USING delta TBLPROPERTIES ({properties})"),
        sql(f"INSERT INTO {table} VALUES (1, 'a')"),
        _tracked(tmp_path, ["id", "v"]),
        sql(f"INSERT INTO {table} VALUES (2, 'b')"),
        sql(f"ALTER TABLE {table} RENAME COLUMN v TO w"),
        sql(f"INSERT INTO {table} VALUES (3, 'c')"),
        _tracked(tmp_path, ["id", "v"], condition="DELTA_STREAMING_METADATA_EVOLUTION"),
    ]
    followed = [
        _tracked(tmp_path, ["id", "w"], condition="DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION"),
        _tracked(tmp_path, ["id", "w"], allowSourceColumnRename="3"),
        sql(f"ALTER TABLE {table} ADD COLUMN x int"),
        sql(f"ALTER TABLE {table} ALTER COLUMN x TYPE long"),
        sql(f"INSERT INTO {table} VALUES (4, 'd', 5000000000)"),
        _tracked(tmp_path, ["id", "w"], condition="DELTA_STREAMING_METADATA_EVOLUTION", allowSourceColumnRename="3"),
    ]
    finished = [
        _tracked(tmp_path, ["id", "w", "x"]),
        sql(f"ALTER TABLE {table} DROP COLUMN w"),
        sql(f"INSERT INTO {table} VALUES (5, 6)"),
        _tracked(tmp_path, ["id", "w", "x"], condition="DELTA_STREAMING_METADATA_EVOLUTION"),
        _tracked(tmp_path, ["id", "x"], allowSourceColumnDrop="always"),
    ]
    for number, steps in enumerate((begun, followed, finished)):
        if (number % 2 == 0) == (first == "reference"):
            _run_reference(run_reference, tmp_path, steps)
        else:
            perform(spark, steps)
    rows = [row for batch in _batches(tmp_path, "tracked.jsonl") for row in batch]
    assert rows == [["1", "a"], ["2", "b"], ["3", "c"], ["4", "d", "5000000000"], ["5", "6"]]
    [log] = (tmp_path / "tracking" / "schemas").iterdir()
    entries = [json.loads((log / str(number)).read_text().split("\n")[1]) for number in range(5)]
    assert [entry["deltaCommitVersion"] for entry in entries] == [1, 3, 5, 6, 8]
    assert [entry.get("previousMetadataSeqNum") for entry in entries] == [None, None, None, 1, None]
