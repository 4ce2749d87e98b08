"""``pydelta.open``: a table is read and changed with no JVM."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal

import deltalake
import polars as pl
import pyarrow as pa
import pytest

import pydelta
from pydelta.errors import (
    BindError,
    ConstraintViolatedError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableNotFoundError,
    UnsafeOperationError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from pydelta.protocol.actions import Protocol
from pydelta.storage import open_store
from pydelta.testing.tables import TableBuilder

COLUMNS = {"id": "long", "day": "date", "name": "string", "price": "decimal(8,2)", "at": "timestamp", "p": "string"}
FEATURES = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("deletionVectors", "appendOnly", "checkConstraints"),
)


def make(folder, *, columns=COLUMNS, partition_columns=("p",), rows=None, **properties):
    store = open_store(str(folder))
    own = {name.replace("_", "."): value for name, value in properties.items()}
    built = TableBuilder(store, columns=columns, partition_columns=partition_columns, properties=own, protocol=FEATURES)
    built.commit(*[built.file(data, partition) for data, partition in rows or ()])
    return pydelta.open(str(folder))


def test_rows_are_appended_scanned_and_deleted(tmp_path):
    table = make(tmp_path / "t", delta_enableDeletionVectors="true")
    assert table.scan().num_rows == 0
    rows = pl.DataFrame(
        {
            "id": [1, 2, 3],
            "name": ["a", "é", None],
            "price": [Decimal("1.50"), None, Decimal("3.00")],
            "P": ["x", "y", None],
            "day": pl.Series([18_000, None, 19_000], dtype=pl.Int32).cast(pl.Date),
        }
    )
    done = table.append(rows)
    assert (done.version, done.num_rows, done.num_files) == (1, 3, 3)
    found = pl.from_arrow(table.scan()).sort("id")
    assert found.columns == list(COLUMNS)
    assert found["p"].to_list() == ["x", "y", None]
    assert found["at"].to_list() == [None] * 3
    assert found["day"].to_list() == rows["day"].to_list()
    assert found["price"].to_list() == rows["price"].to_list()
    assert table.delete("name = 'é' OR price > 2 AND p IS NULL").num_deleted_rows == 2
    assert table.scan(columns=["ID"]).to_pylist() == [{"id": 1}]
    assert table.scan("p = 'y'", version=1).num_rows == 1
    assert table.version == 2


def test_delta_rs_reads_what_was_appended_and_rewritten(tmp_path):
    table = make(tmp_path / "t")
    table.append(pa.table({"id": list(range(100)), "p": [str(n % 3) for n in range(100)]}))
    assert table.delete("id < 50").num_copied_rows == 50
    query = "select count(*) as n, sum(id) as ids from t"
    found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(tmp_path / "t"))).execute(query).read_all()
    assert (found.column("n").to_pylist(), found.column("ids").to_pylist()) == ([50], [sum(range(50, 100))])


def test_what_does_not_fit_is_refused_and_nothing_is_committed(tmp_path):
    table = make(tmp_path / "t")
    for rows, error, word in [
        (pa.table({"nope": [1]}), SchemaMismatchError, "nope"),
        (pa.table({"id": ["1"]}), SchemaMismatchError, "another kind"),
        (pa.table({"id": [1.5]}), SchemaMismatchError, "'id'"),
        (pa.table({"price": pa.array([Decimal("1.555")])}), SchemaMismatchError, "'price'"),
        (pa.table({"at": pa.array([0], pa.timestamp("us"))}), SchemaMismatchError, "'at'"),
        ([{"id": 1}], InvalidArgumentError, "list"),
    ]:
        with pytest.raises(error, match=word) as caught:
            table.append(rows)
        assert caught.value.hint
    assert table.version == 0
    assert [path.name for path in (tmp_path / "t").rglob("*.parquet")] == []


def test_rules_that_only_spark_checks_are_named(tmp_path):
    table = make(tmp_path / "t", delta_constraints_positive="id > 0")
    with pytest.raises(UnsupportedFeatureError, match=r"delta\.constraints\.positive"):
        table.append(pa.table({"id": [1]}))


def test_a_required_column_takes_no_null(tmp_path):
    store = open_store(str(tmp_path / "t"))
    built = TableBuilder(store, columns={"id": "long"}, protocol=FEATURES)
    built.metadata = built.metadata.replace(
        schema_string=built.metadata.schema_string.replace('"nullable":true', '"nullable":false')
    )
    built.commit()
    with pytest.raises(ConstraintViolatedError, match="NOT NULL"):
        pydelta.open(str(tmp_path / "t")).append(pa.table({"id": pa.array([1, None], pa.int64())}))


def test_an_append_only_table_refuses_a_delete(tmp_path):
    with pytest.raises(UnsafeOperationError, match="append-only"):
        make(tmp_path / "t", delta_appendOnly="true").delete("id = 1")


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(TableNotFoundError):
        pydelta.open(str(tmp_path / "nothing"))
    table = make(tmp_path / "t")
    with pytest.raises(BindError, match="nope"):
        table.scan(columns=["nope"])
    with pytest.raises(VersionNotFoundError):
        table.scan(version=7)


def test_no_jvm_and_no_pyspark_is_needed(tmp_path):
    make(tmp_path / "t")
    code = (
        "import sys; sys.modules['pyspark'] = None; sys.modules['py4j'] = None\n"
        "import pydelta, pyarrow as pa\n"
        f"table = pydelta.open({str(tmp_path / 't')!r})\n"
        "table.append(pa.table({'id': [1, 2]})); table.delete('id = 1')\n"
        "print(table.scan(columns=['id']).to_pylist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "[{'id': 2}]", done.stderr


def test_a_name_in_an_update_or_a_key_of_a_merge_is_read_as_sql_reads_it(tmp_path):
    inner = {"type": "struct", "fields": [{"name": "k", "type": "long", "nullable": True, "metadata": {}}]}
    rows = pa.table({"a.b": [1, 2], "id": [1, 2]})
    table = make(tmp_path / "t", columns={"a.b": "long", "id": "long", "o": inner}, partition_columns=())
    table.append(rows)
    table.update("`a.b` = 1", {"`id`": "5", "`a.b`": "7"})
    assert sorted(table.scan(columns=["a.b", "id"]).to_pylist(), key=str) == [{"a.b": 2, "id": 2}, {"a.b": 7, "id": 5}]
    for name, error in (("o.k", UnsupportedFeatureError), ("a.b", BindError), ("o.z", BindError)):
        with pytest.raises(error):
            table.update(set={name: "1"})
        with pytest.raises(error):
            table.merge(rows, name)
    for name in ("id.", "`id", "a..b", "", "i`d"):
        with pytest.raises(InvalidArgumentError, match="not the name of a column"):
            table.update(set={name: "1"})
    assert table.merge(rows.slice(0, 1), ["`a.b`"]).num_inserted_rows == 1
    assert table.version == 3


def test_a_time_without_a_zone_is_refused_unless_a_zone_is_given(tmp_path, in_berlin):
    table = make(tmp_path / "t", partition_columns=())
    noon = dt.datetime(2024, 1, 5, 12, tzinfo=dt.UTC)
    table.append(pa.table({"at": pa.array([noon], pa.timestamp("us", tz="UTC"))}))
    for text in ("at = '2024-01-05 12:00:00'", "at = TIMESTAMP '2024-01-05 12:00:00'", "at IN ('2024-01-05')"):
        with pytest.raises(BindError, match="names no time zone"):
            table.delete(text)
    with pytest.raises(BindError, match="--time-zone"):
        table.update(set={"at": "'2024-01-05 12:00:00'"})
    assert table.scan("at = '2024-01-05 13:00:00+01:00'").num_rows == 1
    there = pydelta.open(str(tmp_path / "t"), time_zone="America/New_York")
    assert there.scan("at = '2024-01-05 07:00:00'").num_rows == 1
    there.update(set={"at": "TIMESTAMP '2024-07-05 08:00:00'"})
    assert table.scan("at = '2024-07-05T12:00:00Z'").num_rows == 1
    with pytest.raises(InvalidArgumentError, match="no time zone"):
        pydelta.open(str(tmp_path / "t"), time_zone="Middle/Earth")


def test_partition_values_without_a_zone_leave_no_file_out_in_silence(tmp_path):
    columns = {"id": "long", "t": "timestamp"}
    rows = [(pa.table({"id": [1]}), {"t": "2024-01-05 12:00:00"})]
    table = make(tmp_path / "t", columns=columns, partition_columns=("t",), rows=rows)
    with pytest.raises(UnsupportedFeatureError, match="without a zone"):
        table.scan("t = '2024-01-05 11:00:00Z'")


@pytest.mark.parametrize(
    ("call", "match"),
    [
        pytest.param(lambda path: pydelta.open(5), "location must be .* not int", id="open int"),
        pytest.param(lambda path: pydelta.open(str(path).encode()), "not bytes", id="open bytes"),
        pytest.param(lambda path: pydelta.open(f"{path}\0x"), "character NUL", id="open NUL"),
        pytest.param(lambda path: pydelta.open(path, options=["a=b"]), "dict of strings, not list", id="options list"),
        pytest.param(lambda path: pydelta.open(path, options={"a": 5}), "option 'a' must be text", id="options int"),
        pytest.param(lambda path: pydelta.open(path, options={5: "a"}), "name of a storage option", id="options key"),
        pytest.param(lambda path: pydelta.open(path, time_zone=5), "time zone must be text, not int", id="zone int"),
        pytest.param(lambda path: pydelta.open(path, settings={}), "settings must be .* not dict", id="settings dict"),
        pytest.param(lambda path: pydelta.open(path).scan(columns=5), "Columns must be .* not int", id="columns int"),
        pytest.param(lambda path: pydelta.open(path).scan(columns=[None]), "Each of columns", id="columns None"),
        pytest.param(lambda path: pydelta.open(path).scan(columns=["id", "ID"]), "'id' is named twice", id="twice"),
        pytest.param(lambda path: pydelta.open(path).scan(version="0"), "whole number, not str", id="version text"),
        pytest.param(lambda path: pydelta.open(path).scan(version=0.5), "whole number, not float", id="version float"),
        pytest.param(lambda path: pydelta.open(path).scan(version=True), "whole number, not bool", id="version bool"),
        pytest.param(
            lambda path: pydelta.open(path).update("id = 1"), "new values must be .* NoneType", id="update text"
        ),
        pytest.param(
            lambda path: pydelta.open(path).update([("id", "1")]), "condition must be text, not list", id="update list"
        ),
        pytest.param(lambda path: pydelta.open(path).update({5: "1"}), "name of a column must be text", id="update 5"),
        pytest.param(lambda path: pydelta.open(path).update({"id": 1}), "'id' must be SQL text, not int", id="value"),
        pytest.param(lambda path: pydelta.open(path).update({"name": None}), "SQL text, not NoneType", id="value None"),
        pytest.param(lambda path: pydelta.open(path).merge(pa.table({"id": [1]}), 5), "Key columns", id="merge int"),
        pytest.param(lambda path: pydelta.open(path).merge(pa.table({"id": [1]}), [5]), "Each of key", id="merge [5]"),
        pytest.param(lambda path: pydelta.open(path).optimize(zorder_by=5), "Columns to order by", id="zorder int"),
        pytest.param(lambda path: pydelta.open(path).optimize(zorder_by=[5]), "Each of columns to", id="zorder [5]"),
        pytest.param(lambda path: pydelta.open(path).vacuum("200"), "number of hours, not str", id="vacuum text"),
        pytest.param(lambda path: pydelta.open(path).vacuum(True), "number of hours, not bool", id="vacuum bool"),
    ],
)
def test_an_argument_of_another_type_is_named_and_nothing_is_done(tmp_path, call, match):
    table = make(tmp_path / "t", partition_columns=())
    table.append(pa.table({"id": [1], "name": ["a"]}))
    with pytest.raises(InvalidArgumentError, match=match) as caught:
        call(tmp_path / "t")
    assert caught.value.hint and table.version == 1


def test_a_path_of_pathlib_opens_and_one_name_may_stand_for_a_list(tmp_path):
    make(tmp_path / "t", partition_columns=()).append(pa.table({"id": [1], "name": ["a"]}))
    table = pydelta.open(tmp_path / "t")
    assert table.scan(columns="id").to_pydict() == {"id": [1]}
    assert table.optimize(zorder_by="id").version == 2
