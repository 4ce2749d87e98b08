"""In a session, too, no statement turns on a table feature that nobody asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from pydelta.protocol.actions import Protocol
from pydelta.storage import LocalStore
from pydelta.testing.tables import TableBuilder

pytestmark = pytest.mark.spark

OLDEST = Protocol(min_reader_version=1, min_writer_version=2)
LISTED = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("appendOnly", "invariants"))
STATEMENTS = (
    "INSERT INTO {t} VALUES (4, 'd')",
    "INSERT OVERWRITE {t} VALUES (5, 'e'), (6, 'f')",
    "UPDATE {t} SET s = upper(s) WHERE id = 5",
    "DELETE FROM {t} WHERE id = 6",
    "MERGE INTO {t} t USING (SELECT 5 AS id, 'm' AS s) u ON t.id = u.id WHEN MATCHED THEN UPDATE SET * "
    "WHEN NOT MATCHED THEN INSERT *",
    "OPTIMIZE {t}",
    "OPTIMIZE {t} ZORDER BY (id)",
    "REORG TABLE {t} APPLY (PURGE)",
    "VACUUM {t}",
    "RESTORE TABLE {t} TO VERSION AS OF 0",
    "TRUNCATE TABLE {t}",
    "FSCK REPAIR TABLE {t}",
)


def definitions(folder):
    """The protocol and metadata actions of the log."""
    found = []
    for path in sorted(Path(folder, "_delta_log").glob("*.json")):
        found += [
            line for line in map(json.loads, path.read_text().splitlines()) if {"protocol", "metaData"} & set(line)
        ]
    return found


@pytest.mark.parametrize("protocol", [OLDEST, LISTED], ids=["the oldest", "lists of features"])
def test_statements_and_writes_leave_protocol_and_definition_as_they_are(spark, tmp_path, protocol):
    folder = tmp_path / "t"
    builder = TableBuilder(LocalStore(f"file://{folder}"), columns={"id": "long", "s": "string"}, protocol=protocol)
    builder.commit(builder.file(pa.table({"id": pa.array([1, 2, 3], pa.int64()), "s": ["a", "b", "c"]})))
    before = definitions(folder)
    assert len(before) == 2
    for statement in STATEMENTS:
        spark.sql(statement.format(t=f"delta.`{folder}`"))
        assert definitions(folder) == before, statement
    rows = spark.createDataFrame([(7, "g")], "id LONG, s STRING")
    rows.write.format("delta").mode("append").save(str(folder))
    rows.write.format("delta").mode("overwrite").option("replaceWhere", "id = 7").save(str(folder))
    rows.writeTo(f"delta.`{folder}`").append()
    assert definitions(folder) == before
    assert sorted(row["id"] for row in spark.read.format("delta").load(str(folder)).collect()) == [7, 7]
