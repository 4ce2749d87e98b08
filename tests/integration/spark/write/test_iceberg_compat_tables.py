"""``icebergCompatV1`` and ``icebergCompatV2``: what every file of such a table has, whoever wrote it."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

import pydelta
from pydelta.errors import UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

V2 = "'delta.enableIcebergCompatV2' = 'true'"
COLUMNS = "id BIGINT, at TIMESTAMP, tags ARRAY<STRING>, p INT"


@pytest.fixture
def path(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.sql(f"CREATE TABLE delta.`{path}` ({COLUMNS}) USING delta PARTITIONED BY (p) TBLPROPERTIES ({V2})")
    return path


def rows(first, last):
    return (
        "SELECT id, TIMESTAMP '1901-02-03 04:05:06.789012Z' AS at, array('a', CAST(id AS STRING)) AS tags, "
        "CAST(id % 2 AS INT) AS p "
        f"FROM range({first}, {last}, 1, 1)"
    )


def check_files(path):
    """Compare every live file with what the feature promises; the number of files."""
    snapshot = DeltaLog.for_table(path).update()
    ids = {field.metadata["delta.columnMapping.physicalName"]: field for field in snapshot.schema.fields}
    names = [field.metadata["delta.columnMapping.physicalName"] for field in snapshot.schema.fields]
    adds = list(snapshot.files.adds(snapshot.files.core))
    for add in adds:
        file = pq.ParquetFile(Path(path, unquote(add.path)))
        columns = file.schema_arrow
        assert columns.names == names  # the partition column is the last
        for column in columns:
            assert int(column.metadata[b"PARQUET:field_id"]) == ids[column.name].metadata["delta.columnMapping.id"]
        tags = columns.field(names[2])
        nested = ids[names[2]].metadata["delta.columnMapping.nested.ids"]
        assert int(tags.type.value_field.metadata[b"PARQUET:field_id"]) == nested[f"{names[2]}.element"]
        kinds = {file.schema.column(at).path: file.schema.column(at) for at in range(len(file.schema))}
        assert kinds[names[1]].physical_type == "INT64"
        assert json.loads(kinds[names[1]].logical_type.to_json())["timeUnit"] == "microseconds"
        assert json.loads(add.stats)["numRecords"] == file.metadata.num_rows
        assert names[3] not in json.loads(add.stats)["minValues"]
        value = add.partition_values[names[3]]
        assert file.read([names[3]]).column(0).to_pylist() == [int(value)] * file.metadata.num_rows
        assert add.deletion_vector is None
        assert add.tags["ICEBERG_COMPAT_VERSION"] == "2"
    return len(adds)


def test_every_way_to_write_files(spark, path):
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    spark.sql(f"INSERT INTO delta.`{path}` {rows(0, 10)}")
    assert check_files(path) == 2
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 3")
    spark.sql(f"UPDATE delta.`{path}` SET tags = array('new') WHERE id = 4")
    source = f"({rows(8, 14)}) s"
    spark.sql(
        f"MERGE INTO delta.`{path}` t USING {source} ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    opened = pydelta.open(path)
    opened.append(opened.scan().slice(0, 1))
    opened.delete("id = 5")
    check_files(path)
    DeltaTable.forPath(spark, path).optimize().executeCompaction()
    assert check_files(path) == 2
    found = spark.sql(f"SELECT id, at, tags FROM delta.`{path}`").collect()
    expected = {0, 1, 2, 4, 6, 7, 8, 9, 10, 11, 12, 13}
    assert {row["id"] for row in found} == expected
    assert len(found) == len(expected) + 1
    assert {row["at"] for row in found} == {found[0]["at"]}
    assert next(row["tags"] for row in found if row["id"] == 4) == ["new"]
    features = DeltaLog.for_table(path).update().protocol.writer_features
    assert {"icebergCompatV2", "columnMapping"} <= set(features)


def test_columns_that_come_later_have_ids_too(spark, path):
    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN (m MAP<STRING, ARRAY<INT>>)")
    column = DeltaLog.for_table(path).update().schema.field("m")
    assert len(column.metadata["delta.columnMapping.nested.ids"]) == 3
    assert int(DeltaLog.for_table(path).update().metadata.configuration["delta.columnMapping.maxColumnId"]) == 9


def test_a_version_restored_and_a_clone_stay_compatible(spark, path, tmp_path):
    spark.sql(f"INSERT INTO delta.`{path}` {rows(0, 4)}")
    spark.sql(f"ALTER TABLE delta.`{path}` UNSET TBLPROPERTIES ('delta.enableIcebergCompatV2')")
    spark.sql(f"INSERT INTO delta.`{path}` {rows(4, 8)}")
    with pytest.raises(UnsupportedFeatureError, match="files of the table were not written for it"):
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({V2})")
    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 1")
    assert check_files(path) == 2
    clone = str(tmp_path / "clone")
    spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{path}`")
    assert spark.sql(f"SELECT count(*) FROM delta.`{clone}`").first()[0] == 4


@pytest.mark.parametrize(
    ("columns", "properties", "message"),
    [
        ("id INT, a ARRAY<INT>", "'delta.enableIcebergCompatV1' = 'true'", "Use icebergCompatV2"),
        ("id INT, v VARIANT", V2, "column v is variant"),
        ("id INT", f"{V2}, 'delta.enableDeletionVectors' = 'true'", "deletion vectors are turned on"),
        ("id INT", f"{V2}, 'delta.columnMapping.mode' = 'none'", "columnMapping.mode is 'none'"),
        ("id INT", "'delta.enableIcebergCompatV3' = 'true'", "enableIcebergCompatV3"),
    ],
)
def test_a_table_that_cannot_keep_it_is_not_made(spark, tmp_path, columns, properties, message):
    path = tmp_path / "t"
    with pytest.raises(UnsupportedFeatureError, match=message):
        spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta TBLPROPERTIES ({properties})")
    assert not (path / "_delta_log").exists()


def test_vectors_cannot_be_turned_on_later(spark, path):
    with pytest.raises(UnsupportedFeatureError, match="deletion vectors are turned on"):
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    with pytest.raises(UnsupportedFeatureError, match="columnMapping"):
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')")


def test_an_empty_table_can_turn_it_on(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.sql(f"CREATE TABLE delta.`{path}` ({COLUMNS}) USING delta PARTITIONED BY (p)")
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({V2}, 'delta.columnMapping.mode' = 'name')")
    spark.sql(f"INSERT INTO delta.`{path}` {rows(0, 4)}")
    assert check_files(path) == 2
