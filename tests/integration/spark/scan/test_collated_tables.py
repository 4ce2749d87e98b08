"""Tables of other engines whose texts have a collation: compared as it says, and not written to."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import pydelta
from pydelta.errors import UnsupportedFeatureError
from pydelta.protocol.actions import Protocol
from pydelta.storage import open_store
from pydelta.testing.tables import TableBuilder

FEATURES = ("domainMetadata", "collations-preview", "appendOnly", "invariants")


@pytest.fixture
def folder(tmp_path):
    """Three files of one row, as a writer of the preview keeps them: bounds are those of bytes."""
    table = TableBuilder(
        open_store(str(tmp_path / "t")),
        columns={"id": "long", "name": "string"},
        protocol=Protocol(min_reader_version=1, min_writer_version=7, writer_features=FEATURES),
    )
    schema = json.loads(table.metadata.schema_string)
    schema["fields"][1]["metadata"] = {"__COLLATIONS": {"name": "spark.UTF8_LCASE"}}
    table.metadata = table.metadata.replace(schema_string=json.dumps(schema))
    adds = []
    for number, name in enumerate(["Ada", "ADA", "Grace"]):
        values = {"id": number, "name": name}
        stats = {"numRecords": 1, "nullCount": {"id": 0, "name": 0}, "minValues": values, "maxValues": values}
        adds.append(table.file(pa.table({"id": [number], "name": [name]})).replace(stats=json.dumps(stats)))
    table.commit(*adds)
    return str(tmp_path / "t")


def test_spark_compares_as_the_collation_says(spark, folder):
    frame = spark.read.format("delta").load(folder)
    assert frame.schema["name"].dataType.collation == "UTF8_LCASE"
    assert sorted(row.id for row in frame.where("name = 'ada'").collect()) == [0, 1]
    assert frame.where("name <= 'ada'").count() == 2
    assert frame.groupBy("name").count().count() == 2
    assert spark.sql(f"SELECT min(name), count(DISTINCT name) FROM delta.`{folder}`").first()[1] == 2
    assert spark.sql(f"SELECT count(*) FROM delta.`{folder}` WHERE name IN ('ADA', 'grace')").first()[0] == 3


def test_what_compares_bytes_alone_does_not_read_them(folder):
    with pytest.raises(UnsupportedFeatureError, match="whose strings Spark does not compare by their bytes"):
        pydelta.open(folder).scan("name = 'ada'")


@pytest.mark.parametrize("change", ["INSERT INTO {0} VALUES (4, 'x')", "DELETE FROM {0} WHERE id = 1"])
def test_such_a_table_is_not_written_to(spark, folder, change):
    with pytest.raises(UnsupportedFeatureError, match="collations-preview"):
        spark.sql(change.format(f"delta.`{folder}`"))
    assert spark.read.format("delta").load(folder).count() == 3
