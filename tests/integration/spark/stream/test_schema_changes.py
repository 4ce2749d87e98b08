"""Streams that follow renamed, dropped and widened columns by their schema log."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from stream_queries import Query, all_of, stream

from pydelta.commands.stream.errors import (
    SchemaLocationConflictError,
    SchemaLocationOutsideError,
    SourceDefinitionChangedError,
    SourceEvolutionBlockedError,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def table(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id long, v string) USING delta TBLPROPERTIES "
        "('delta.columnMapping.mode'='name', 'delta.enableTypeWidening'='true')"
    )
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'a')")
    return path


def test_renamed_widened_and_dropped_columns_are_followed_row_by_row(spark, table, tmp_path):
    query = Query(tmp_path / "c")
    seen = []

    def run(**options):
        frame = stream(spark, table, schemaTrackingLocation=str(tmp_path / "c" / "schemas"), **options)
        columns = frame.columns
        try:
            query.run(frame.selectExpr(f"struct({', '.join(columns)}) AS row"))
        finally:
            seen.extend((columns, tuple(row)) for row in all_of(query.batches))

    def stops(kind, words, **options):
        with pytest.raises(kind, match=words) as caught:
            run(**options)
        assert isinstance(caught.value, StreamingQueryException)

    run()
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (2, 'b')")
    spark.sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN v TO w")
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (3, 'c')")
    stops(SourceDefinitionChangedError, "Version 3 changes")
    stops(SourceEvolutionBlockedError, "column v was renamed to w")
    run(allowSourceColumnRename="3")
    spark.sql(f"ALTER TABLE delta.`{table}` ADD COLUMN x int")
    spark.sql(f"ALTER TABLE delta.`{table}` ALTER COLUMN x TYPE long")
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (4, 'd', 5000000000)")
    stops(SourceDefinitionChangedError, "Version 5 changes", allowSourceColumnRename="always")
    run()  # a new column that is widened before it has a row is a new column
    spark.sql(f"ALTER TABLE delta.`{table}` DROP COLUMN w")
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (5, 6)")
    stops(SourceDefinitionChangedError, "Version 8 changes")
    stops(SourceEvolutionBlockedError, "column w was dropped", allowSourceColumnDrop="7")
    spark.conf.set("spark.databricks.delta.streaming.allowSourceColumnRenameAndDrop", "always")
    try:
        run()
    finally:
        spark.conf.unset("spark.databricks.delta.streaming.allowSourceColumnRenameAndDrop")
    assert seen == [
        (["id", "v"], (1, "a")),
        (["id", "v"], (2, "b")),
        (["id", "w"], (3, "c")),
        (["id", "w", "x"], (4, "d", 5000000000)),
        (["id", "x"], (5, 6)),
    ]
    assert query.offsets()[:4] == [(2, -1, False), (3, -20, False), (3, -19, False), (5, -1, False)]


def test_where_schemas_may_be_kept(spark, table, tmp_path):
    with pytest.raises(SchemaLocationOutsideError, match="not below") as caught:
        Query(tmp_path / "c").run(stream(spark, table, schemaTrackingLocation=str(tmp_path / "elsewhere")))
    assert isinstance(caught.value, AnalysisException)
    spark.conf.set("spark.databricks.delta.streaming.allowSchemaLocationOutsideCheckpointLocation", "true")
    try:
        elsewhere = Query(tmp_path / "d")
        assert elsewhere.run(stream(spark, table, schemaTrackingLocation=str(tmp_path / "elsewhere"))) == [[1]]
    finally:
        spark.conf.unset("spark.databricks.delta.streaming.allowSchemaLocationOutsideCheckpointLocation")
    inside = str(tmp_path / "e" / "schemas")
    frame = stream(spark, table, schemaTrackingLocation=inside)
    with pytest.raises(SchemaLocationConflictError, match="streamingSourceTrackingId"):
        Query(tmp_path / "e").run(frame.union(stream(spark, table, schemaTrackingLocation=inside)))
    other = stream(spark, table, schemaTrackingLocation=inside, streamingSourceTrackingId="second")
    assert Query(tmp_path / "e").run(frame.union(other)) == [[1, 1]]
    folders = sorted(path.name for path in (tmp_path / "e" / "schemas").iterdir())
    assert len(folders) == 2
    assert folders[1] == f"{folders[0]}_second"
    texts = [(tmp_path / "e" / "schemas" / name / "0").read_text() for name in folders]
    assert ["/e/sources/0" in texts[0], "/e/sources/1" in texts[1]] == [True, True]
