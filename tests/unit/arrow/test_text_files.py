"""Files of text on executors: one that cannot be read is reported as such, whatever reading it raises."""

from __future__ import annotations

import bz2
import gzip
import random

import pyarrow as pa
import pytest

from pydelta.engines.arrow.tasks.csv_rows import CsvShape
from pydelta.engines.arrow.tasks.text_files import TextFiles
from pydelta.engines.arrow.tasks.text_values import TextRules
from pydelta.protocol.types import PrimitiveType, StructField, StructType

SCHEMA = StructType((StructField("id", PrimitiveType("long")), StructField("s", PrimitiveType("string"))))
ROWS = "".join(f"{number},{random.Random(number).random()}\n" for number in range(5000))


def read(path, *, schema=SCHEMA):
    files = TextFiles(
        form="csv",
        schema=None if schema is None else schema.to_json(),
        shape=CsvShape(),
        rules=TextRules(),
        options={},
        kept=pa.schema([]),
    )
    return [row for batch in files(iter([pa.record_batch({"path": [f"file:{path}"]})])) for row in batch.to_pylist()]


@pytest.mark.parametrize("ending", ["gz", "bz2"])
def test_compressed_files_are_opened(tmp_path, ending):
    path = tmp_path / f"rows.csv.{ending}"
    path.write_bytes({"gz": gzip, "bz2": bz2}[ending].compress(f"id,s\n{ROWS}".encode()))
    assert len(read(path)) == 5000


@pytest.mark.parametrize("ending", ["gz", "bz2"])
@pytest.mark.parametrize("damage", ["cut", "changed", "other"])
@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["rows", "header"])
def test_a_compressed_file_that_is_cut_off_or_damaged_cannot_be_read(tmp_path, ending, damage, schema):
    data = bytearray({"gz": gzip, "bz2": bz2}[ending].compress(f"id,s\n{ROWS}".encode()))
    data = data[:30] if damage == "cut" else data if damage == "changed" else bytearray(b"id,s\n1,a\n")
    if damage == "changed":
        data[20:60] = b"\xff" * 40
    path = tmp_path / f"rows.csv.{ending}"
    path.write_bytes(bytes(data))
    found = read(path, schema=schema)
    path.unlink()  # The session looks into all archives that tests leave.
    (bad,) = [row for row in found if row.get("__reason") is not None]
    assert bad["__whole_file"] and "cannot be read" in bad["__reason"]
