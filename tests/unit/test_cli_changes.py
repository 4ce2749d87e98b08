"""``pydelta delete|update|append|merge|optimize``: what they do, say and return, with no JVM."""

from __future__ import annotations

import json

import polars as pl
import pytest

import pydelta
from pydelta.api.cli.cli import main
from pydelta.log import DeltaLog
from pydelta.protocol.actions import Protocol
from pydelta.protocol.types import MapType, PrimitiveType, StructField, StructType
from pydelta.storage import open_store
from pydelta.testing.tables import TableBuilder

FEATURES = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("deletionVectors", "checkConstraints"),
)


@pytest.fixture
def table(tmp_path):
    path = str(tmp_path / "t")
    built = TableBuilder(open_store(path), columns={"id": "long", "s": "string", "d": "date"}, protocol=FEATURES)
    rows = pl.DataFrame({"id": [1, 2, 3], "s": ["a", "b", "c"]}, schema={"id": pl.Int64, "s": pl.String})
    rows = rows.with_columns(pl.lit(None, pl.Date).alias("d")).to_arrow().cast(_schema())
    built.commit(built.file(rows))
    yield path
    DeltaLog.clear_cache()


def _schema():
    import pyarrow as pa

    return pa.schema([("id", pa.int64()), ("s", pa.string()), ("d", pa.date32())])


def run(capsys, *argv):
    with pytest.raises(SystemExit) as stopped:
        main([*argv])
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


def rows(path):
    found = pl.DataFrame(pl.from_arrow(pydelta.open(path).scan()))
    return sorted(zip(found["id"], found["s"], strict=True))


def test_rows_are_deleted_updated_and_added(capsys, table, tmp_path):
    assert run(capsys, "delete", table, "--where", "id = 2") == (
        0, "Deleted in version 1: 1 rows deleted, 2 rows copied, 1 files touched.\n", "",
    )  # fmt: skip
    code, out, _ = run(capsys, "update", table, "--set", "s='it''s = new'", "-w", "id >= 3", "--json")
    assert (code, json.loads(out)["rowsUpdated"], json.loads(out)["version"]) == (0, 1, 2)
    more = tmp_path / "more.csv"
    more.write_text("ID,D\n7,2024-02-29\n")
    code, out, _ = run(capsys, "append", table, str(more))
    assert (code, out) == (0, "Appended in version 3: 1 rows added, 1 files added.\n")
    assert rows(table) == [(1, "a"), (3, "it's = new"), (7, None)]
    assert run(capsys, "delete", table, "-w", "id = 99")[1] == "Nothing to do: no version was made.\n"


def test_rows_are_merged(capsys, table, tmp_path):
    file = tmp_path / "rows.parquet"
    pl.DataFrame({"id": [2, 9], "s": ["B", "new"]}).write_parquet(file)
    code, out, err = run(capsys, "merge", table, str(file), "--on", "id", "--not-matched-by-source", "delete", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) | {"filesTouched": 0} == {
        "version": 1, "rowsUpdated": 1, "rowsDeleted": 2, "rowsInserted": 1, "rowsCopied": 0, "filesTouched": 0,
    }  # fmt: skip
    assert rows(table) == [(2, "B"), (9, "new")]


def test_a_table_is_compacted_put_in_order_and_purged(capsys, table, tmp_path):
    file = tmp_path / "rows.ndjson"
    file.write_text('{"id": 0, "s": "z"}\n')
    run(capsys, "append", table, str(file))
    code, out, _ = run(capsys, "optimize", table)
    assert code == 0
    assert out.startswith("Optimized in version 2: 2 files removed, 1 files added, ")
    assert run(capsys, "optimize", table)[1] == "Nothing to do: no version was made.\n"
    code, out, _ = run(capsys, "optimize", table, "--zorder-by", "id", "--json")
    assert (code, json.loads(out)["filesAdded"]) == (0, 1)
    assert run(capsys, "optimize", table, "--purge")[1] == "Nothing to do: no version was made.\n"
    assert rows(table) == [(0, "z"), (1, "a"), (2, "b"), (3, "c")]


def rows_in_odd_encodings():
    import pyarrow as pa

    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array(["ä", None]))
    days = pa.array([19_000, None], pa.int32()).cast(pa.date32()).dictionary_encode()
    return pa.table({"id": pa.array([8, 9], pa.uint64()), "s": runs, "d": days})


@pytest.mark.parametrize("stream", [False, True], ids=["file", "stream"])
def test_arrow_files_hold_every_encoding_that_fits(capsys, table, tmp_path, stream):
    import pyarrow.ipc

    given, path = rows_in_odd_encodings(), str(tmp_path / "rows.arrow")
    with (pyarrow.ipc.new_stream if stream else pyarrow.ipc.new_file)(path, given.schema) as writer:
        writer.write_table(given)
    assert run(capsys, "append", table, path)[0] == 0
    assert rows(table)[-2:] == [(8, "ä"), (9, None)]


def test_parquet_files_with_maps_dictionaries_and_old_times_are_read_as_they_are(capsys, tmp_path):
    import datetime as dt

    import pyarrow as pa
    import pyarrow.parquet as pq

    path, kind = str(tmp_path / "t"), MapType(PrimitiveType("string"), PrimitiveType("integer"))
    built = TableBuilder(open_store(path), columns={}, protocol=FEATURES)
    fields = (
        StructField("m", kind),
        StructField("s", PrimitiveType("string")),
        StructField("t", PrimitiveType("timestamp")),
    )
    built.metadata = built.metadata.replace(schema_string=StructType(fields).to_json())
    built.commit()
    far = dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)
    given = pa.table({
        "m": pa.array([[("k", 1), ("l", None)], None, []], pa.map_(pa.string(), pa.int32())),
        "s": pa.array(["x", None, "x"]).dictionary_encode(),
        "t": pa.array([far, None, far], pa.timestamp("us", "UTC")),
    })  # fmt: skip
    pq.write_table(given, tmp_path / "rows[1].parquet")
    assert run(capsys, "append", path, str(tmp_path / "rows[1].parquet"))[0] == 0
    assert pydelta.open(path).scan().to_pylist() == given.to_pylist()
    DeltaLog.clear_cache()


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_a_type_that_no_column_holds_is_refused_by_name(capsys, table, tmp_path, kind):
    import pyarrow as pa
    import pyarrow.ipc
    import pyarrow.parquet as pq

    given = pa.table({"id": pa.array([pa.MonthDayNano([1, 2, 3])] if kind == "arrow" else [b"\xff"])})
    path = str(tmp_path / f"rows.{kind}")
    if kind == "arrow":
        with pyarrow.ipc.new_file(path, given.schema) as writer:
            writer.write_table(given)
    else:
        pq.write_table(given, path)
    code, out, err = run(capsys, "append", table, path)
    assert (code, out) == (1, "") and "Column 'id' is long in the table" in err


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["delete", "TABLE"], "Without a condition this would delete every row"),
        (["delete", "TABLE", "--all-rows", "-w", "id = 1"], "exclude each other"),
        (["update", "TABLE", "--set", "s='x'"], "would change every row"),
        (["update", "TABLE", "--all-rows"], "sets nothing"),
        (["update", "TABLE", "--all-rows", "--set", "s"], "has no value"),
        (["update", "TABLE", "--all-rows", "--set", "s='x'", "--set", "s='y'"], "'s' is given twice"),
        (["update", "TABLE", "--all-rows", "--set", "id=s"], "Only Spark is sure"),
        (["append", "TABLE", "rows.xlsx"], "not a file of rows"),
        (["append", "TABLE", "nowhere.parquet"], "cannot be read"),
        (["merge", "TABLE", "nowhere.parquet", "--on", "id"], "cannot be read"),
        (["optimize", "TABLE", "--purge", "--full"], "--purge cannot be combined"),
        (["optimize", "TABLE", "--where", "id = 1"], "only partition columns"),
        (["delete", "TABLE/none", "--all-rows"], "no Delta table at"),
    ],
)
def test_what_cannot_be_done_says_so_and_changes_nothing(capsys, table, argv, text):
    code, out, err = run(capsys, *[item.replace("TABLE", table) for item in argv])
    assert (code, out) == (1, "")
    assert text in err
    assert "Next: " in err
    assert DeltaLog.for_table(table).update().version == 0
