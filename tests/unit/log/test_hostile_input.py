"""What fuzzing found, each defect once: input that nobody should write gives an error of ours, in bounded memory."""

from __future__ import annotations

import io
import itertools
import json
import struct

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pydelta.api.python.local import LocalTable
from pydelta.api.sql.grammar import is_ours, parse_statement
from pydelta.errors import (
    BindError,
    InvalidArgumentError,
    LogCorruptedError,
    ParseError,
    SchemaError,
    StorageError,
)
from pydelta.log import DeltaLog
from pydelta.log.checkpoint.parquet_rows import ParquetRows
from pydelta.log.pruning import PartitionSpec
from pydelta.log.side_files import decode_checksum
from pydelta.manifests.state import STATE_PATH, read_state
from pydelta.predicate import parse_predicate
from pydelta.protocol.actions import CommitInfo, decode_commit
from pydelta.protocol.partitions import zone_of
from pydelta.protocol.roaring import decode_bitmap, encode_bitmap
from pydelta.protocol.schema import to_arrow
from pydelta.protocol.types import parse_schema, parse_type
from pydelta.protocol.vectors import deleted_rows, inline_vector
from pydelta.settings.values import parse_interval_ms
from pydelta.storage import MemoryStore
from pydelta.testing.tables import TableBuilder
from pydelta.tools.inventory.manifest import InventoryManifest, decode_manifest
from pydelta.tools.inventory.rows import raw_frames

_NUMBERS = itertools.count()
LONG = parse_schema('{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}')
DEEP = b'{"a":' * 1_000_000 + b"1" + b"}" * 1_000_000  # Python 3.14 reads tens of thousands of levels


def parquet(table: pa.Table, **options: object) -> ParquetRows:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    store = MemoryStore(f"memory://hostile{next(_NUMBERS)}/t")
    store.put("c.parquet", out.getvalue())
    return ParquetRows(store, "c.parquet")


def test_deep_json_is_a_damaged_line():
    with pytest.raises(LogCorruptedError, match=r"Line 1 of c\.json is not a valid action: it is nested too deeply"):
        decode_commit(DEEP, source="c.json")


def test_half_a_character_in_a_commit_becomes_the_replacement_character():
    (info,) = decode_commit(b'{"commitInfo":{"userMetadata":"a\\ud800b"}}', source="c.json")
    assert isinstance(info, CommitInfo)
    assert info.get("userMetadata") == "a\ufffdb"


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_what_only_python_takes_for_json_is_a_damaged_line(word):
    with pytest.raises(LogCorruptedError, match="not JSON"):
        decode_commit(f'{{"commitInfo":{{"x":{word}}}}}'.encode(), source="c.json")


def test_a_size_beyond_a_long_is_a_damaged_line():
    add = {"path": "x", "partitionValues": {}, "size": 10**30, "modificationTime": 1, "dataChange": True}
    with pytest.raises(LogCorruptedError, match="Line 1"):
        decode_commit(json.dumps({"add": add}).encode(), source="c.json")


def test_a_deep_checksum_or_state_is_passed_over():
    assert decode_checksum(DEEP) is None
    store = MemoryStore(f"memory://hostile{next(_NUMBERS)}/t")
    for data in (DEEP, b"\x80", b'{"tableId":"\\ud800"}'):
        store.put(STATE_PATH, data)
        assert read_state(store) is None


def test_a_table_partitioned_twice_by_a_column_is_refused():
    with pytest.raises(LogCorruptedError, match="names a partition column twice: a, a"):
        PartitionSpec.of(LONG, ("a", "a"), "none")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"type":"array","elementType":' * 400 + '"long"' + "}" * 400, "nested more than 300 levels deep"),
        ("[" * 1_000_000, "nested too deeply"),
        ('{"type":"struct","fields":[{"name":{},"type":"long"}]}', "not the name of a column"),
        ('{"type":"struct","fields":[{"name":"\\ud800","type":"long"}]}', "surrogates not allowed"),
        ('{"type":"struct","fields":[{"name":"a","type":"decimal(99,99)"}]}', "a decimal has 1 to 38 digits"),
    ],
)
def test_a_schema_that_cannot_be_is_refused(text, why):
    with pytest.raises(LogCorruptedError, match=why):
        parse_schema(text)


def test_a_decimal_without_digits_is_not_a_type():
    with pytest.raises(SchemaError):
        parse_type("decimal(0,0)")
    assert str(parse_type("decimal(38,38)")) == "decimal(38,38)"


def test_a_void_column_that_is_said_to_be_required_is_still_null():
    schema = parse_schema('{"type":"struct","fields":[{"name":"v","type":"void","nullable":false,"metadata":{}}]}')
    assert to_arrow(schema).field("v").nullable


@pytest.mark.parametrize("text", ["interval " + "9" * 400 + " days", "interval 99999999999999999 days"])
def test_an_interval_longer_than_time_is_refused(text):
    with pytest.raises(InvalidArgumentError, match="not an interval of fixed length"):
        parse_interval_ms(text)


@pytest.mark.parametrize("name", ["+99:99", "a." * 400, "", "../../etc/passwd", "Europe/Nowhere", "a\x00b"])
def test_what_is_not_the_name_of_a_zone_is_not_looked_up(name):
    with pytest.raises(InvalidArgumentError, match="There is no time zone"):
        zone_of(name)


def test_a_zone_of_each_spelling_is_found():
    for name in ("Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5", "UTC", "Z", "+01:30"):
        zone_of(name)


def test_numbers_of_thousands_of_digits_are_refused():
    with pytest.raises(BindError, match="has 5000 characters"):
        parse_predicate("a = " + "9" * 5_000, LONG)
    assert parse_statement("RESTORE t TO VERSION AS OF " + "9" * 5_000).to.version > 1 << 63
    assert parse_statement("DESCRIBE HISTORY t LIMIT " + "9" * 5_000).limit > 1 << 63


def test_comments_before_a_statement_are_taken_in_one_way_only():
    """In as many ways as there are comments' ends, 5,000 of them would take longer than the universe has."""
    assert not is_ours("/**/" * 5_000 + "x")
    assert is_ours("/* a */ -- b\n/**/" * 100 + "VACUUM t")
    with pytest.raises(ParseError):
        parse_statement("/**/" * 1_000 + "x")


def test_a_manifest_with_numbers_or_nesting_that_cannot_be_is_refused():
    for data in (DEEP, b'{"files":[{"key":"k","size":1e400,"MD5checksum":"x"}]}'):
        with pytest.raises(InvalidArgumentError, match="not a manifest"):
            decode_manifest(data, source="m")


def test_texts_of_an_inventory_that_are_not_utf8_are_refused(tmp_path):
    names = {"bucket": "b", "key": b"\xff\xfe", "size": 1, "last_modified_date": 1}
    raw = pa.table({name: [value] for name, value in names.items()})
    broken = pa.StringArray.from_buffers(1, *pa.array([b"\xff\xfe"]).buffers()[1:])
    pq.write_table(raw.set_column(1, "key", broken), tmp_path / "x")
    manifest = InventoryManifest.of(
        source_bucket="b", destination_bucket="d", created_ms=0, file_format="Parquet", files=()
    )
    with pytest.raises(InvalidArgumentError, match="cannot be read as Parquet"):
        list(raw_frames(tmp_path / "x", manifest, source="x"))
    good = raw.set_column(1, "key", pa.array(["k"])).replace_schema_metadata({b"\xff": b"\xff"})
    pq.write_table(good, tmp_path / "x")
    assert pl.concat(raw_frames(tmp_path / "x", manifest, source="x"))["key"].to_list() == ["k"]


@pytest.mark.parametrize("place", ["footer", "page"])
def test_a_data_file_that_is_damaged_anywhere_is_named(place):
    store = MemoryStore(f"memory://hostile{next(_NUMBERS)}/t")
    table = TableBuilder(store, columns={"x": "long"})
    add = table.file(pa.table({"x": range(100)}))
    table.commit(add)
    data = bytearray(store.read(add.path))
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little") if place == "footer" else 4
    data[start : start + 8] = b"\x0f" * 8
    store.put(add.path, bytes(data))
    with pytest.raises(StorageError, match=rf"The data file {add.path} cannot be read"):
        LocalTable(DeltaLog(store)).scan()


@pytest.mark.parametrize(
    ("add", "why"),
    [
        ({"path": "x", "size": 1}, "add has no field modificationTime"),
        ({"path": "x", "size": "1", "modificationTime": 1}, "add.size is string, not a whole number"),
        ({"path": "x", "size": 1, "modificationTime": 1, "partitionValues": ["a"]}, "partitionValues is list"),
        ({"path": "x", "size": 1, "modificationTime": 1, "deletionVector": {"offset": 1}}, "no field storageType"),
    ],
)
def test_a_checkpoint_whose_fields_have_other_types_is_refused(add, why):
    with pytest.raises(LogCorruptedError, match=why):
        parquet(pa.Table.from_pylist([{"add": add}]))


def test_texts_of_a_checkpoint_that_are_not_utf8_are_refused():
    broken = pa.StringArray.from_buffers(1, *pa.array([b"\xff\xfe"]).buffers()[1:])
    ones = pa.array([1], pa.int64())
    add = pa.StructArray.from_arrays([broken, ones, ones], ["path", "size", "modificationTime"])
    rows = parquet(pa.table({"add": add}))
    with pytest.raises(LogCorruptedError, match="not a readable checkpoint file"):
        list(rows.structs("add", ["path"]))


def adds(rows: int, width: int) -> pa.Table:
    paths = pa.array(["x" * width]).take(pa.repeat(pa.scalar(0, pa.int32()), rows))
    ones = pa.repeat(pa.scalar(1, pa.int64()), rows)
    return pa.table({"add": pa.StructArray.from_arrays([paths, ones, ones], ["path", "size", "modificationTime"])})


def test_more_rows_than_bytes_are_not_unpacked():
    with pytest.raises(LogCorruptedError, match=r"claims to hold 1,000,000 rows in [0-9,]+ bytes"):
        parquet(adds(1_000_000, 10), compression="zstd")


def test_a_long_text_that_repeats_is_not_unpacked():
    rows = parquet(adds(2_000, 200_000), compression="zstd")  # 400 MB in some kilobytes
    with pytest.raises(LogCorruptedError, match=r"claims to hold 400,000,000 bytes of text in add.path"):
        list(rows.structs("add", ["path"]))


def test_equal_texts_of_usual_length_are_read():
    rows = parquet(adds(10_000, 100), compression="none", use_dictionary=False)
    assert sum(len(found) for found, _ in rows.structs("add", ["path"])) == 10_000


def bitmap(containers: int) -> bytes:
    """Containers of 65,536 rows in ten bytes each."""
    head = struct.pack("<iqII", 1681511377, 1, 0, 12347 | (containers - 1) << 16) + b"\xff" * ((containers + 7) // 8)
    keys = b"".join(struct.pack("<HH", key, 0xFFFF) for key in range(containers))
    return head + keys + bytes(4 * containers) + struct.pack("<HHH", 1, 0, 0xFFFF) * containers


def test_a_bitmap_of_more_rows_than_a_file_has_is_not_unpacked():
    assert len(decode_bitmap(bitmap(8))) == 8 * 65_536
    with pytest.raises(LogCorruptedError, match="more rows than the log says, or than a file can have"):
        decode_bitmap(bitmap(4_096))


def test_a_bitmap_of_more_rows_than_the_log_says_is_not_unpacked():
    vector = inline_vector(np.arange(200_000, dtype=np.uint64))
    assert len(deleted_rows(vector)) == 200_000
    with pytest.raises(LogCorruptedError, match="more rows than the log says"):
        deleted_rows(vector.replace(cardinality=199_999))
    with pytest.raises(LogCorruptedError, match="a container holds 65536 positions and claims 1"):
        decode_bitmap(struct.pack("<iqIIBHHHHH", 1681511377, 1, 0, 12347, 1, 0, 0, 1, 0, 0xFFFF))
    assert len(decode_bitmap(encode_bitmap(range(10)), most=10)) == 10
