"""``pydelta.LocalTable``: create, overwrite, restore, clone, history, detail, fsck, checkpoint, cleanup; no JVM."""

from __future__ import annotations

import datetime as dt
import os
from collections import Counter
from decimal import Decimal

import deltalake
import polars as pl
import pyarrow as pa
import pytest

import pydelta
from pydelta.engines.arrow.engine import ArrowEngine
from pydelta.errors import (
    ConstraintViolatedError,
    DeltaError,
    InvalidArgumentError,
    SchemaError,
    SchemaMismatchError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnknownSettingError,
    UnsafeOperationError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from pydelta.log import DeltaLog
from pydelta.protocol.types import parse_type

FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def place(tmp_path):
    yield lambda name: str(tmp_path / name)
    DeltaLog.clear_cache()


def numbers(*values, p="a"):
    return pl.DataFrame({"id": list(values), "p": [p] * len(values)}, schema={"id": pl.Int64, "p": pl.String})


def rows(table, *columns):
    found = pl.from_arrow(table.scan(columns=columns or None))
    return sorted(found.rows())


def feed_rows(path):
    return sorted(
        row
        for root, _, files in os.walk(os.path.join(path, "_change_data"))
        for file in files
        for row in pl.read_parquet(os.path.join(root, file), hive_partitioning=False)
        .select("id", "_change_type")
        .rows()
    )


def test_a_table_is_created_with_rows_and_another_engine_reads_it(place):
    table = pydelta.LocalTable.create(place("t"), numbers(1, 2), partition_by="p", properties=FEED)
    assert (table.version, rows(table)) == (0, [(1, "a"), (2, "a")])
    (commit,) = table.history()
    assert commit["operation"] == "CREATE TABLE AS SELECT"
    assert table.detail()["partitionColumns"] == ["p"]
    assert table.detail()["properties"] == FEED
    assert deltalake.DeltaTable(place("t")).to_pyarrow_table().num_rows == 2
    table.append(numbers(3, p="b"))
    assert len(rows(pydelta.open(place("t")))) == 3


def test_a_table_is_created_without_rows_by_names_or_by_an_arrow_schema(place):
    named = pydelta.LocalTable.create(place("n"), {"id": "bigint", "price": "decimal(8,2)", "at": "timestamp"})
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("price", pa.decimal128(8, 2)), ("at", pa.timestamp("us", "UTC"))]
    )
    typed = pydelta.LocalTable.create(place("a"), schema)
    assert named.schema == typed.schema
    assert [table.history()[0]["operation"] for table in (named, typed)] == ["CREATE TABLE"] * 2
    with pytest.raises(ConstraintViolatedError, match="NOT NULL"):
        typed.append(pa.table({"id": pa.nulls(1, pa.int64())}))
    named.append(pa.table({"id": pa.nulls(1, pa.int64())}))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.int8(), "byte"), (pa.uint8(), "short"), (pa.uint32(), "long"), (pa.uint64(), "decimal(20,0)"),
        (pa.float16(), "float"), (pa.large_string(), "string"), (pa.binary(3), "binary"), (pa.date64(), "date"),
        (pa.timestamp("ns"), "timestamp_ntz"), (pa.timestamp("s", "Europe/Berlin"), "timestamp"),
        (pa.decimal256(38, 3), "decimal(38,3)"), (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.run_end_encoded(pa.int32(), pa.int64()), "long"), (pa.bool_(), "boolean"),
        (pa.large_list(pa.int32()), {"type": "array", "elementType": "integer", "containsNull": True}),
        (pa.map_(pa.string(), pa.int16()),
         {"type": "map", "keyType": "string", "valueType": "short", "valueContainsNull": True}),
        (pa.struct([pa.field("x", pa.int64(), nullable=False)]),
         {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": False, "metadata": {}}]}),
    ],
    ids=str,
)  # fmt: skip
def test_each_arrow_type_becomes_the_column_type_that_holds_its_values(place, kind, name):
    table = pydelta.LocalTable.create(place("t"), pa.schema([("id", pa.int64()), ("v", kind)]))
    assert DeltaLog.for_table(place("t")).update().schema.field("v").data_type == parse_type(name)
    filled = pydelta.LocalTable.create(place("r"), pa.table({"id": [1], "v": pa.nulls(1, kind)}))
    assert filled.schema == table.schema
    assert filled.scan().num_rows == 1


def test_values_of_a_created_table_are_those_that_were_given(place):
    given = {
        "small": pa.array([200], pa.uint8()),
        "large": pa.array([2**64 - 1], pa.uint64()),
        "half": pa.array([1.5], pa.float16()),
        "kind": pa.array(["x"]).dictionary_encode(),
    }
    table = pydelta.LocalTable.create(place("t"), pa.table(given))
    expected = {"small": 200, "large": Decimal(2**64 - 1), "half": 1.5, "kind": "x"}
    assert table.scan().to_pylist() == [expected]


def test_an_existing_table_is_refused_left_or_replaced(place):
    table = pydelta.LocalTable.create(place("t"), numbers(1))
    for columns in (numbers(2), {"x": "int"}):
        with pytest.raises(TableAlreadyExistsError, match="at version 0"):
            pydelta.LocalTable.create(place("t"), columns)
        assert pydelta.LocalTable.create(place("t"), columns, mode="ignore").version == 0
    pydelta.LocalTable.create(place("t"), pl.DataFrame({"x": [2.5]}), mode="replace")
    assert (table.version, rows(table)) == (1, [(2.5,)])
    assert pydelta.LocalTable.create(place("t"), {"y": "int"}, mode="replace").schema.names == ["y"]
    assert [commit["operation"] for commit in table.history()] == [
        "CREATE OR REPLACE TABLE", "CREATE OR REPLACE TABLE AS SELECT", "CREATE TABLE AS SELECT",
    ]  # fmt: skip


def test_a_location_with_other_files_is_refused(place, tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "other.parquet").write_bytes(b"x")
    for columns in (numbers(1), {"x": "int"}):
        with pytest.raises(TableAlreadyExistsError, match=r"other\.parquet"):
            pydelta.LocalTable.create(place("t"), columns)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda at: pydelta.LocalTable.create(5, {"x": "int"}), InvalidArgumentError, "location must be .* not int"),
        (lambda at: pydelta.LocalTable.create(at, 5), InvalidArgumentError, "Columns must be"),
        (lambda at: pydelta.LocalTable.create(at, {5: "int"}), InvalidArgumentError,
         "name of a column must be text, not int"),
        (lambda at: pydelta.LocalTable.create(at, {"x": int}), InvalidArgumentError, "type of column 'x'"),
        (lambda at: pydelta.LocalTable.create(at, {"x": "nothing"}), UnsupportedFeatureError, "'x' is nothing"),
        (lambda at: pydelta.LocalTable.create(at, {"x": "int"}, mode="append"), InvalidArgumentError, "no mode"),
        (lambda at: pydelta.LocalTable.create(at, {"x": "int"}, partition_by=["y"]), SchemaError, "'y'"),
        (lambda at: pydelta.LocalTable.create(at, {"x": "int"}, partition_by=[5]), InvalidArgumentError,
         "partition columns must be text, not int"),
        (lambda at: pydelta.LocalTable.create(at, numbers(1), partition_by=["y"]), SchemaError, "'y'"),
        (lambda at: pydelta.LocalTable.create(at, numbers(1), properties={"delta.appendOnli": "true"}),
         UnknownSettingError, "appendOnly"),
        (lambda at: pydelta.LocalTable.create(at, numbers(1), properties={"a": True}), InvalidArgumentError,
         "property 'a' must be text, not bool"),
        (lambda at: pydelta.LocalTable.create(at, numbers(1), properties={"delta.constraints.c": "id > 1"}),
         DeltaError, "constraints"),
        (lambda at: pydelta.LocalTable.create(at, pa.table({"t": pa.array([1], pa.time64("us"))})),
         UnsupportedFeatureError, "'t' of the rows is time64"),
        (lambda at: pydelta.LocalTable.create(at, pa.table([[1], [2]], names=["x", "X"])),
         SchemaMismatchError, "twice"),
        (lambda at: pydelta.LocalTable.create(at, pa.table({})), SchemaError, "no columns"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_created_is_an_error_with_a_hint(place, call, error, words):
    with pytest.raises(error, match=words) as caught:
        call(place("t"))
    assert caught.value.hint
    assert not os.path.exists(place("t"))


def test_rows_are_replaced_all_or_by_a_condition(place):
    table = pydelta.LocalTable.create(place("t"), pl.concat([numbers(1, 2), numbers(3, 4, p="b")]), partition_by=["p"])
    done = table.overwrite(numbers(7, p="b"), "p = 'b'")
    assert (done.version, done.num_rows, done.num_removed_files) == (1, 1, 1)
    assert rows(table) == [(1, "a"), (2, "a"), (7, "b")]
    table.overwrite(numbers(9), "id >= 2 AND id < 10")
    assert rows(table) == [(1, "a"), (9, "a")]
    assert table.history(1)[0]["operationParameters"]["predicate"] == "id >= 2 AND id < 10"
    table.overwrite(numbers(5))
    assert rows(table) == [(5, "a")]
    assert table.overwrite(numbers()).version == 4
    assert rows(table) == []


def test_a_new_row_outside_the_condition_is_refused_and_nothing_is_left(place):
    table = pydelta.LocalTable.create(place("t"), numbers(1, 2))
    files = sorted(os.listdir(place("t")))
    for bad in (numbers(2, 5), pl.DataFrame({"id": [2, None], "p": ["a", "a"]})):
        with pytest.raises(ConstraintViolatedError, match="1 rows do not satisfy") as caught:
            table.overwrite(bad, "id = 2")
        assert caught.value.condition.name == "DELTA_REPLACE_WHERE_MISMATCH"
    assert (table.version, sorted(os.listdir(place("t")))) == (0, files)


def test_the_change_feed_of_a_replacement_has_the_old_and_the_new_rows(place):
    table = pydelta.LocalTable.create(place("t"), numbers(1, 2), properties=FEED)
    table.overwrite(numbers(2, 2), "id = 2")
    assert rows(table) == [(1, "a"), (2, "a"), (2, "a")]
    assert feed_rows(place("t")) == [(2, "delete"), (2, "insert"), (2, "insert")]


def test_the_rows_may_define_the_columns_again(place):
    table = pydelta.LocalTable.create(place("t"), numbers(1))
    with pytest.raises(SchemaMismatchError, match="'x'"):
        table.overwrite(pl.DataFrame({"x": [1.5]}))
    table.overwrite(pl.DataFrame({"x": [1.5]}), overwrite_schema=True)
    assert rows(table) == [(1.5,)]
    assert table.schema.names == ["x"]


def test_columns_that_are_defined_again_keep_the_partitions(place):
    table = pydelta.LocalTable.create(place("t"), numbers(1), partition_by=["p"])
    with pytest.raises(InvalidArgumentError, match="lacks the partition column p"):
        table.overwrite(pl.DataFrame({"x": [1.5]}), overwrite_schema=True)
    table.overwrite(pl.DataFrame({"x": [1.5], "p": ["b"]}), overwrite_schema=True)
    assert rows(table) == [(1.5, "b")]
    assert DeltaLog.for_table(place("t")).update().partition_columns == ("p",)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda table: table.overwrite([{"id": 1}]), InvalidArgumentError),
        (lambda table: table.overwrite(numbers(1), 5), InvalidArgumentError),
        (lambda table: table.overwrite(numbers(1), "nothing = 1"), DeltaError),
        (lambda table: table.overwrite(numbers(1), "upper(p) = 'A'"), DeltaError),
        (lambda table: table.overwrite(numbers(1), "id = 1", overwrite_schema=True), InvalidArgumentError),
        (lambda table: table.history("3"), InvalidArgumentError),
        (lambda table: table.restore(9), VersionNotFoundError),
        (lambda table: table.restore("0"), InvalidArgumentError),
        (lambda table: table.restore(True), InvalidArgumentError),
        (lambda table: table.restore(), InvalidArgumentError),
        (lambda table: table.restore(0, "2024-01-01T00:00:00Z"), InvalidArgumentError),
        (lambda table: table.restore(timestamp="2024-01-01"), InvalidArgumentError),
        (lambda table: table.restore(timestamp="yesterday"), InvalidArgumentError),
        (lambda table: table.restore(timestamp=5), InvalidArgumentError),
        (lambda table: table.restore(timestamp="1999-01-01T00:00:00Z"), VersionNotFoundError),
        (lambda table: table.clone(5), InvalidArgumentError),
        (lambda table: table.clone("/nowhere/t", version=9), VersionNotFoundError),
        (lambda table: table.clone("/nowhere/t", version=0, timestamp="2024-01-01T00:00:00Z"), InvalidArgumentError),
        (lambda table: table.clone("/nowhere/t", properties={"a": 1}), InvalidArgumentError),
        (lambda table: table.fsck(repair="yes"), InvalidArgumentError),
        (lambda table: table.generate("id = 1"), DeltaError),
    ],
)
def test_wrong_arguments_are_errors_with_hints_and_commit_nothing(place, call, error):
    table = pydelta.LocalTable.create(place("t"), numbers(1))
    with pytest.raises(error) as caught:
        call(table)
    assert caught.value.hint
    assert table.version == 0


def test_an_earlier_version_is_restored_by_number_and_by_time(place):
    table = pydelta.LocalTable.create(place("t"), numbers(1))
    table.append(numbers(2))
    times = {commit["version"]: commit["timestamp"] for commit in table.history()}
    done = table.restore(0)
    assert (done.version, done.num_removed_files, rows(table, "id")) == (2, 1, [(1,)])
    later = table.restore(timestamp=times[1])
    assert (later.version, later.num_restored_files, rows(table, "id")) == (3, 1, [(1,), (2,)])
    text = times[0].astimezone(dt.timezone(dt.timedelta(hours=5))).isoformat()
    assert table.restore(timestamp=text).version == 4
    assert table.restore(4).version is None
    zoned = pydelta.open(place("t"), time_zone="UTC")
    assert zoned.restore(timestamp=times[1].replace(tzinfo=None)).version == 5


def test_a_version_without_its_files_is_not_restored(place):
    table = pydelta.LocalTable.create(place("t"), numbers(1))
    table.overwrite(numbers(2))
    for file in os.listdir(place("t")):
        if file.endswith(".parquet"):
            os.remove(os.path.join(place("t"), file))
    with pytest.raises(UnsafeOperationError, match="no longer exist"):
        table.restore(0)
    assert table.version == 1


def test_a_version_is_cloned_with_its_files_or_by_naming_them(place):
    table = pydelta.LocalTable.create(place("t"), numbers(1), properties=FEED)
    table.append(numbers(2))
    deep = table.clone(place("deep"), version=0, properties={"owner": "me"})
    assert (deep.version, rows(deep, "id")) == (0, [(1,)])
    assert deep.detail()["properties"] == {**FEED, "owner": "me"}
    shallow = table.clone(place("shallow"), shallow=True)
    assert shallow.detail()["numFiles"] == 2
    assert [name for name in os.listdir(place("shallow")) if name.endswith(".parquet")] == []
    with pytest.raises(UnsupportedFeatureError, match="outside the table's folder"):
        shallow.scan()
    with pytest.raises(TableAlreadyExistsError):
        table.clone(place("deep"))
    assert table.clone(place("deep"), replace=True).version == 1
    with pytest.raises(InvalidArgumentError, match="itself"):
        table.clone(place("t"))


def test_history_and_detail_are_those_of_the_command_line(place, capsys):
    import json

    from pydelta.api.cli.cli import main

    table = pydelta.LocalTable.create(place("t"), numbers(1))
    table.append(numbers(2))
    for command, found in (("history", table.history()), ("detail", table.detail())):
        with pytest.raises(SystemExit):
            main([command, place("t"), "--json"])
        printed = json.loads(capsys.readouterr().out)
        for left, right in zip(*((it if isinstance(it, list) else [it]) for it in (printed, found)), strict=True):
            plain = {
                key: value.isoformat(timespec="milliseconds") if isinstance(value, dt.datetime) else value
                for key, value in right.items()
            }
            assert {key: left[key] for key in plain} == plain
    assert len(table.history(1)) == 1


def test_a_table_is_checked_repaired_and_its_log_maintained(place):
    table = pydelta.LocalTable.create(place("t"), numbers(1))
    assert table.fsck().ok
    table.append(numbers(2))
    gone = DeltaLog.for_table(place("t")).update().files.adds
    snapshot = DeltaLog.for_table(place("t")).update()
    (first, _) = gone(snapshot.files.core)
    os.remove(os.path.join(place("t"), first.path))
    assert table.fsck().missing_files == (first.path,)
    assert table.version == 1
    assert table.fsck(repair=True).repaired_version == 2
    assert table.fsck().ok
    written = table.checkpoint()
    assert (written.version, written.num_adds) == (2, 1)
    assert os.path.exists(os.path.join(place("t"), written.name))
    assert table.cleanup().deleted == 0


def test_manifests_are_generated(place):
    table = pydelta.LocalTable.create(place("t"), pl.concat([numbers(1), numbers(2, p="b")]), partition_by=["p"])
    assert len(table.generate("p = 'a'").written) == 1
    assert table.generate(full=True).files == 2


def test_a_table_that_is_gone_is_an_error(place, tmp_path):
    with pytest.raises(TableNotFoundError):
        pydelta.open(place("none"))
    table = pydelta.LocalTable(DeltaLog.for_table(place("none")))
    for call in (table.history, table.detail, table.fsck, table.checkpoint, table.cleanup, lambda: table.restore(0)):
        with pytest.raises(TableNotFoundError):
            call()


def test_an_engine_is_notified_of_each_commit_once(place, monkeypatch):
    seen = []
    monkeypatch.setattr(
        ArrowEngine, "committed", lambda self, snapshot: seen.append((snapshot.table_uri, snapshot.version))
    )
    table = pydelta.LocalTable.create(place("t"), numbers(1, 2), properties={"delta.enableDeletionVectors": "true"})
    verbs = {
        "append": lambda: table.append(numbers(3)),
        "overwrite": lambda: table.overwrite(numbers(3, 4)),
        "replace where": lambda: table.overwrite(numbers(4, 4), "id = 4"),
        "delete": lambda: table.delete("id = 3"),
        "update": lambda: table.update("id = 4", {"p": "'u'"}),
        "merge": lambda: table.merge(numbers(4, 8)[1:], on="id"),
        "restore": lambda: table.restore(2),
        "optimize": lambda: (table.append(numbers(5)), table.optimize()),
        "purge": lambda: (table.delete("id = 5"), table.purge()),
        "repair": lambda: (_lose_a_file(place("t")), table.fsck(repair=True)),
        "replace": lambda: pydelta.LocalTable.create(place("t"), {"id": "bigint"}, mode="replace"),
        "vacuum": lambda: table.vacuum(),
    }
    before = 1
    for verb, run in verbs.items():
        run()
        made = [(DeltaLog.for_table(place("t")).uri, commit["version"]) for commit in table.history()]
        assert len(made) > before or verb == "purge", verb
        assert Counter(seen) == Counter(made), verb
        before = len(made)
    seen.clear()
    made = [
        table.clone(place("deep")),
        table.clone(place("shallow"), shallow=True),
        pydelta.LocalTable.create(place("new"), {"id": "int"}),
    ]
    assert seen == [(each._log.uri, 0) for each in made]


def _lose_a_file(path):
    snapshot = DeltaLog.for_table(path).update()
    os.remove(os.path.join(path, snapshot.files.adds(snapshot.files.core)[0].path))
