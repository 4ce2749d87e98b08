"""An UPDATE copies the columns of a large file that it leaves alone: the file is what encoding them would make."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pydelta.api.python.local import LocalTable
from pydelta.engines.arrow import changes
from pydelta.engines.arrow.tasks import copied_columns, old_files
from pydelta.engines.arrow.tasks.copied_columns import columns_to_copy
from pydelta.engines.arrow.tasks.footers import footer_of
from pydelta.engines.arrow.tasks.side_by_side import SideBySideWriter
from pydelta.engines.arrow.tasks.thrift import BINARY, I64, STRUCT, write_struct
from pydelta.errors import DeltaError, RowsDoNotAddUpError, StorageError
from pydelta.log import DeltaLog
from pydelta.protocol.actions import AddFile, Protocol
from pydelta.protocol.paths import decode_log_path
from pydelta.protocol.types import PrimitiveType, StructField, StructType
from pydelta.storage.memory import MemoryStore
from pydelta.testing.tables import TableBuilder
from tests.arrow_rows import Generator, canonical_rows

_NAMES = itertools.count()
PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("columnMapping", "timestampNtz", "deletionVectors"),
    writer_features=(
        *("columnMapping", "timestampNtz", "deletionVectors"),
        *("rowTracking", "domainMetadata", "changeDataFeed", "appendOnly", "invariants"),
    ),
)
TRACKED = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_id",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_version",
}
LONG, STRING = PrimitiveType("long"), PrimitiveType("string")
SIMPLE = StructType(
    (
        StructField("id", LONG),
        StructField("n", LONG),
        StructField("s", STRING),
        StructField("v", PrimitiveType("double")),
    )
)


@pytest.fixture
def always(monkeypatch):
    """Copy from files of any size. Returns the chunks that were copied."""
    monkeypatch.setattr(changes, "_COPIED_BYTES", 0)
    monkeypatch.setattr(copied_columns, "_LEAST_SHARE", 0)
    found = []
    real = SideBySideWriter.write_table

    def noting(writer, table, row_group_size, copied=()):
        found.extend(copied)
        return real(writer, table, row_group_size, copied)

    monkeypatch.setattr(SideBySideWriter, "write_table", noting)
    return found


def table_of(schema, properties=None, *, data=None, partition=None):
    """A table; with ``data`` of one Parquet file that some other engine has written."""
    store = MemoryStore(f"memory://copied{next(_NAMES)}/t")
    built = TableBuilder(
        store, columns={}, partition_columns=list(partition or ()), properties=properties or {}, protocol=PROTOCOL
    )
    built.metadata = built.metadata.replace(schema_string=schema.to_json())
    built.commit()
    if data is not None:
        store.put("theirs.parquet", data)
        where = {"path": "theirs.parquet", "partition_values": partition or {}, "size": len(data)}
        built.commit(AddFile(**where, modification_time=0, data_change=True))
    return LocalTable(DeltaLog(store)), store


def only_file(table, store):
    files = table._log.update().files
    [add] = files.adds(files.core)
    return store.read(decode_log_path(add.path).text), add


def simple(rows=1000, **others):
    ids = np.arange(rows)
    texts = pa.array([f"name {key % 50}" for key in ids])
    return pa.table({"id": ids, "n": ids % 7, "s": texts, "v": ids / 3} | others)


def parquet(rows, **options):
    """The bytes of a file as this engine writes it, but for some options."""
    sink = pa.BufferOutputStream()
    usual = {"compression": "snappy", "store_schema": False, "store_decimal_as_integer": True, "write_page_index": True}
    pq.write_table(rows, sink, **usual | options)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("block", range(4))
def test_a_file_with_copied_columns_is_the_one_that_encoding_makes(block, always, monkeypatch):
    copies = 0
    for seed in range(block, 80, 4):
        generator = Generator(seed)
        schema = StructType((*generator.schema().fields, StructField("n", LONG)))
        properties = generator.random.choice([{}, TRACKED, {"delta.dataSkippingNumIndexedCols": "2"}])
        rows = generator.rows(schema, range(generator.random.choice([1, 20, 200])), spoil=False).table
        monkeypatch.setattr(
            old_files, "WHOLE_BYTES", generator.random.choice([0, 1 << 20])
        )  # By ranges, or as a whole.
        found = []
        for least in (0, 1 << 40):
            monkeypatch.setattr(changes, "_COPIED_BYTES", least)
            table, store = table_of(schema, properties)
            table.append(rows)
            table.update("id = 0", {"n": "7"})
            always.clear()
            table.update("id BETWEEN 0 AND 9", {"n": "id"} if seed % 2 else {"n": "41"})
            copies += bool(always)
            assert not (least and always)
            data, add = only_file(table, store)
            found.append((data, add.stats, add.size, canonical_rows(table.scan(), schema)))
        assert found[0] == found[1], f"seed {seed}"
    assert copies >= 8, "of twenty"


def test_every_row_group_keeps_its_place(always):
    table, store = table_of(SIMPLE, data=parquet(simple(), row_group_size=300))
    table.update("id IN (299, 300, 999)", {"n": "100"})
    data, add = only_file(table, store)
    file = pq.ParquetFile(pa.BufferReader(data))
    assert [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)] == [300, 300, 300, 100]
    expected = simple().to_pylist()
    for place in (299, 300, 999):
        expected[place]["n"] = 100
    assert file.read().to_pylist() == expected
    assert len(always) == 8, "id and s, in four row groups"
    assert '"numRecords":1000' in add.stats


def test_a_file_beyond_the_target_size_becomes_several(always):
    table, _ = table_of(SIMPLE, {"delta.targetFileSize": "1"}, data=parquet(simple(), row_group_size=300))
    table.update("id < 5", {"n": "100"})
    assert table._log.update().files.core.height == 4
    assert sorted(table.scan().column("id").to_pylist()) == list(range(1000))
    assert always


def test_a_file_of_a_partition_stays_in_it(always):
    schema = StructType((*SIMPLE.fields, StructField("p", LONG)))
    table, store = table_of(schema, data=parquet(simple()), partition={"p": "5"})
    table.update("id < 5", {"n": "p"})
    _, add = only_file(table, store)
    assert (add.partition_values, add.path[:4]) == ({"p": "5"}, "p=5/")
    assert table.scan().filter(pa.compute.field("id") < 7).column("n").to_pylist() == [5] * 5 + [5, 6]
    assert always


@pytest.mark.parametrize(
    ("properties", "prepared"),
    [({"delta.enableChangeDataFeed": "true"}, None), ({"delta.enableDeletionVectors": "true"}, "id = 3")],
)
def test_rows_of_the_feed_and_hidden_rows_take_all_columns(always, properties, prepared):
    table, _ = table_of(SIMPLE, properties, data=parquet(simple()))
    if prepared:
        table.delete(prepared)
    table.update("id < 5", {"n": "100"})
    assert always == []
    assert table.scan().num_rows == (999 if prepared else 1000)


def test_a_moved_row_takes_all_columns(always):
    schema = StructType((*SIMPLE.fields, StructField("p", LONG)))
    table, _ = table_of(schema, data=parquet(simple()), partition={"p": "5"})
    table.update("id < 5", {"p": "6"})
    assert always == []
    assert sorted(table.scan().column("p").to_pylist()) == [5] * 995 + [6] * 5


def altered(data, change):
    """A file with another footer."""
    size = int.from_bytes(data[-8:-4], "little")
    footer = footer_of(memoryview(data))
    change(footer, footer[4][1][1][0], {chunk[3][1][3][1][1][0]: chunk for chunk in footer[4][1][1][0][1][1][1]})
    new = write_struct(footer)
    return data[: -8 - size] + new + len(new).to_bytes(4, "little") + b"PAR1"


def column(name, key, value):
    """Set a field of a column's structure."""
    return lambda footer, group, chunks: chunks[name][3][1].update({key: value})


OURS = parquet(simple())
WITH_NULL = simple(s=pa.array([None, *["x"] * 999]))
FILES = {
    "as this engine writes it": (OURS, {"id", "s"}),
    "another codec": (parquet(simple(), compression="zstd"), None),
    "no page index": (parquet(simple(), write_page_index=False), None),
    "one column with another codec": (parquet(simple(), compression={"s": "gzip"}), None),
    "another column": (parquet(simple(more=pa.nulls(1000, pa.int8()))), None),
    "a column less": (parquet(simple().drop_columns(["v"])), None),
    "another type": (parquet(simple(s=pa.array([1] * 1000))), None),
    "another order": (parquet(simple().select(["s", "id", "n", "v"])), None),
    "no rows": (parquet(simple(0)), None),
    "another writer": (OURS.replace(b"parquet-cpp-arrow", b"parquet-other-one"), None),
    "another version of the writer": (OURS.replace(b"arrow version ", b"arrow version 1"), None),
    "a null, where it may be": (parquet(WITH_NULL), {"id", "s"}),
    "encrypted": (altered(OURS, lambda footer, group, chunks: footer.update({8: (STRUCT, {})})), None),
    "a Bloom filter": (altered(OURS, column(b"s", 14, (I64, 4))), {"id"}),
    "an index page": (altered(OURS, column(b"s", 10, (I64, 4))), {"id"}),
    "a column of another file": (
        altered(OURS, lambda footer, group, chunks: chunks[b"s"].update({1: (BINARY, b"other.parquet")})),
        {"id"},
    ),
    "fewer values than rows": (altered(OURS, column(b"id", 5, (I64, 999))), {"s"}),
    "a row group beyond memory": (altered(OURS, lambda footer, group, chunks: group.update({2: (I64, 1 << 40)})), None),
    "a row group without rows": (altered(OURS, lambda footer, group, chunks: group.update({3: (I64, 0)})), None),
    "not Parquet": (b"PAR1" + b"x" * 40 + b"PAR1", None),
    "a footer longer than the file": (b"PAR1\xff\xff\xff\x7fPAR1", None),
    "a footer that ends in a field": (OURS[:-60] + OURS[-8:], None),
}


def asked(data, *, changed=("n",), required=(), share=0.0, monkeypatch):
    monkeypatch.setattr(copied_columns, "_LEAST_SHARE", share)
    table, _ = table_of(SIMPLE)
    task = table._engine.write_task(table._log.update())
    view = memoryview(data)
    return columns_to_copy(lambda begin, size: view[begin : begin + size], len(data), task, changed, required)


@pytest.mark.parametrize("kind", FILES)
def test_only_what_this_engine_would_write_is_copied(kind, monkeypatch):
    data, names = FILES[kind]
    found = asked(data, monkeypatch=monkeypatch)
    assert (None if found is None else set(found.names)) == names


def test_a_column_that_must_not_hold_nulls_is_copied_if_it_holds_none(monkeypatch):
    assert asked(OURS, required=["s"], monkeypatch=monkeypatch).names == {"id", "s"}
    assert asked(parquet(WITH_NULL), required=["s"], monkeypatch=monkeypatch).names == {"id"}
    assert asked(parquet(simple(), write_statistics=["id"]), required=["s"], monkeypatch=monkeypatch).names == {"id"}


def test_one_column_is_always_encoded(monkeypatch):
    assert asked(OURS, changed=("v",), monkeypatch=monkeypatch).names == {"id", "n", "s"}
    fields = [item for item in SIMPLE.fields if item.name != "v"]
    table, _ = table_of(StructType(tuple(fields)))
    task = table._engine.write_task(table._log.update())
    view = memoryview(parquet(simple().drop_columns(["v"])))
    read = lambda begin, size: view[begin : begin + size]  # noqa: E731
    assert columns_to_copy(read, len(view), task, ("n",), ()).names == {"id", "s"}
    assert columns_to_copy(read, len(view), task, (), ()) is None


def test_little_is_not_worth_copying(monkeypatch):
    assert asked(OURS, share=0.9, monkeypatch=monkeypatch) is None
    assert asked(OURS, share=0.05, monkeypatch=monkeypatch) is not None


def test_a_null_in_a_column_that_is_not_null_is_found_as_before(always, monkeypatch):
    fields = [StructField(item.name, item.data_type, nullable=item.name != "s") for item in SIMPLE.fields]
    said = []
    for least in (0, 1 << 40):
        monkeypatch.setattr(changes, "_COPIED_BYTES", least)
        table, store = table_of(StructType(tuple(fields)), data=parquet(WITH_NULL))
        before = sorted(item.path for item in store.list_all())
        with pytest.raises(DeltaError) as error:
            table.update("id = 0", {"n": "1"})
        said.append(str(error.value).replace(store.root, ""))
        assert sorted(item.path for item in store.list_all()) == before
    assert said[0] == said[1]


@pytest.mark.parametrize("whole", [0, 1 << 20])
def test_a_copied_column_beyond_the_end_of_the_file_fails_and_leaves_nothing(whole, always, monkeypatch):
    monkeypatch.setattr(old_files, "WHOLE_BYTES", whole)
    table, store = table_of(SIMPLE, data=altered(OURS, column(b"s", 7, (I64, 1 << 30))))
    before = sorted(item.path for item in store.list_all())
    with pytest.raises(StorageError, match=r"theirs\.parquet cannot be read"):
        table.update("id = 0", {"n": "1"})
    assert sorted(item.path for item in store.list_all()) == before


def rewritten(*sizes):
    return iter([changes.Rewritten(rows=pa.record_batch({"id": list(range(size))})) for size in sizes])


@pytest.mark.parametrize("given", [(3, 4), (7,), (1, 1, 1, 1, 1, 1, 1), (0, 5, 2, 0)])
@pytest.mark.parametrize("groups", [(7,), (3, 4), (2, 2, 3)])
def test_rows_are_divided_into_the_row_groups_of_the_old_file(given, groups):
    assert [group.num_rows for group in changes._in_groups(rewritten(*given), groups)] == list(groups)


@pytest.mark.parametrize("given", [(3, 3), (), (7, 1), (0, 8)])
def test_rows_that_do_not_fill_the_row_groups_are_refused(given):
    with pytest.raises(RowsDoNotAddUpError):
        list(changes._in_groups(rewritten(*given), (3, 4)))
