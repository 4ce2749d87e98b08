"""Tables of other engines whose texts have a collation: compared as it says, and not written to."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pydelta
from pydelta.errors import UnsupportedFeatureError
from pydelta.protocol.paths import LOG_DIR


def field(name, kind, metadata=None):
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata or {}}


@pytest.fixture
def folder(tmp_path):
    """Three files of one row, as a writer of the preview keeps them: bounds are those of bytes."""
    table = tmp_path / "t"
    (table / LOG_DIR).mkdir(parents=True)
    fields = [field("id", "long"), field("name", "string", {"__COLLATIONS": {"name": "spark.UTF8_LCASE"}})]
    features = ["domainMetadata", "collations-preview", "appendOnly", "invariants"]
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}},
        {
            "metaData": {
                "id": "8e1b9c1c-3c1e-4b3e-9d3c-0c5d1f7a2b6e",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": {},
            }
        },
    ]
    for number, name in enumerate(["Ada", "ADA", "Grace"]):
        pq.write_table(pa.table({"id": [number], "name": [name]}), table / f"{number}.parquet")
        stats = {
            "numRecords": 1, "nullCount": {"id": 0, "name": 0},
            "minValues": {"id": number, "name": name}, "maxValues": {"id": number, "name": name},
        }  # fmt: skip
        size = (table / f"{number}.parquet").stat().st_size
        add = {
            "path": f"{number}.parquet",
            "partitionValues": {},
            "size": size,
            "modificationTime": 1,
            "dataChange": True,
        }
        actions.append({"add": add | {"stats": json.dumps(stats)}})
    (table / LOG_DIR / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    return str(table)


def test_spark_compares_as_the_collation_says(spark, folder):
    frame = spark.read.format("delta").load(folder)
    assert frame.schema["name"].dataType.collation == "UTF8_LCASE"
    assert sorted(row.id for row in frame.where("name = 'ada'").collect()) == [0, 1]
    assert frame.where("name <= 'ada'").count() == 2
    assert frame.groupBy("name").count().count() == 2
    assert spark.sql(f"SELECT min(name), count(DISTINCT name) FROM delta.`{folder}`").first()[1] == 2
    assert spark.sql(f"SELECT count(*) FROM delta.`{folder}` WHERE name IN ('ADA', 'grace')").first()[0] == 3


def test_what_compares_bytes_alone_does_not_read_them(folder):
    with pytest.raises(UnsupportedFeatureError, match="a table with a collation"):
        pydelta.open(folder).scan("name = 'ada'")


@pytest.mark.parametrize("change", ["INSERT INTO {0} VALUES (4, 'x')", "DELETE FROM {0} WHERE id = 1"])
def test_such_a_table_is_not_written_to(spark, folder, change):
    with pytest.raises(UnsupportedFeatureError, match="collations-preview"):
        spark.sql(change.format(f"delta.`{folder}`"))
    assert spark.read.format("delta").load(folder).count() == 3
