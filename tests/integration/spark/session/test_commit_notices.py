"""The session follows each commit once, whatever the verb and the interface."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from pyspark.sql import functions as F

from pydelta.engines.spark.engine import SparkEngine
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable


@pytest.fixture
def noticed(monkeypatch):
    """Versions that the session was told of, by table."""
    seen = []
    follow = SparkEngine.committed

    def committed(self, snapshot):
        seen.append((snapshot.table_uri.rstrip("/"), snapshot.version))
        follow(self, snapshot)

    monkeypatch.setattr(SparkEngine, "committed", committed)
    return seen


def versions_of(path):
    log = DeltaLog.for_table(str(path))
    return [(log.uri.rstrip("/"), record.version) for record in log.history()]


def table_at(spark, path, **properties):
    frame = spark.range(0, 6, 1, 3).select("id", (F.col("id") % 2).alias("p"), F.lit("a").alias("v"))
    frame.write.format("delta").partitionBy("p").save(str(path))
    table = DeltaTable.forPath(spark, str(path))
    for name, value in properties.items():
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.{name}' = '{value}')")
    return table


def merged(table, spark):
    source = spark.createDataFrame([(0, 0, "m"), (9, 1, "n")], "id long, p long, v string").alias("s")
    into = table.alias("t").merge(source, "t.id = s.id")
    return into.whenMatchedUpdateAll().whenNotMatchedInsertAll()


def lose_a_file(path):
    """Delete a data file of the newest version, whatever an action of the log says."""
    snapshot = DeltaLog.for_table(path).update()
    os.remove(os.path.join(path, snapshot.files.adds(snapshot.files.core)[0].path))


VERBS = {
    "append": lambda spark, table, path: (
        spark.createDataFrame([(7, 1, "x")], "id long, p long, v string")
        .write.format("delta")
        .mode("append")
        .save(path)
    ),
    "delete": lambda spark, table, path: table.delete("id = 1"),
    "delete a partition": lambda spark, table, path: table.delete("p = 1"),
    "update": lambda spark, table, path: table.update("id = 2", {"v": F.lit("u")}),
    "merge": lambda spark, table, path: merged(table, spark).execute(),
    "optimize": lambda spark, table, path: table.optimize().executeCompaction(),
    "zorder": lambda spark, table, path: table.optimize().executeZOrderBy("id"),
    "restore": lambda spark, table, path: (table.delete("id = 3"), table.restoreToVersion(0)),
    "row tracking": lambda spark, table, path: table.enableRowTracking(),
    "protocol": lambda spark, table, path: table.upgradeTableProtocol(1, 4),
    "feature": lambda spark, table, path: table.addFeatureSupport("deletionVectors"),
    "drop a feature": lambda spark, table, path: (
        table.addFeatureSupport("deletionVectors"),
        table.dropFeatureSupport("deletionVectors"),
    ),
    "vacuum": lambda spark, table, path: (table.delete("id = 4"), table.vacuum()),
    "repair": lambda spark, table, path: (lose_a_file(path), table.fsck(repair=True)),
    "maintain the log": lambda spark, table, path: (table.delete("id = 5"), table.checkpoint(), table.cleanup()),
}
STATEMENTS = {
    "insert": ["INSERT INTO {t} VALUES (8, 0, 'i')"],
    "overwrite": ["INSERT OVERWRITE {t} SELECT id, id % 2, 'o' FROM range(8)"],
    "delete": ["DELETE FROM {t} WHERE id = 1"],
    "update": ["UPDATE {t} SET v = 'u' WHERE id = 2"],
    "merge": ["MERGE INTO {t} USING (SELECT 0L AS id) s ON {t}.id = s.id WHEN MATCHED THEN UPDATE SET v = 'm'"],
    "optimize": ["INSERT INTO {t} VALUES (10, 0, 'z')", "OPTIMIZE {t}"],
    "alter": ["ALTER TABLE {t} ADD COLUMN extra INT", "ALTER TABLE {t} SET TBLPROPERTIES ('k' = 'v')"],
    "constraint": ["ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id >= 0)"],
    "restore": ["DELETE FROM {t} WHERE id = 3", "RESTORE TABLE {t} TO VERSION AS OF 0"],
    "feature": ["ALTER TABLE {t} SET TBLPROPERTIES ('delta.feature.deletionVectors' = 'supported')",
                "ALTER TABLE {t} DROP FEATURE deletionVectors"],
    "purge": ["ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
              "DELETE FROM {t} WHERE id = 1", "REORG TABLE {t} APPLY (PURGE)"],
    "vacuum": ["DELETE FROM {t} WHERE id = 4", "VACUUM {t}"],
    "repair": [lose_a_file, "FSCK REPAIR TABLE {t}"],
}  # fmt: skip


def test_the_session_follows_each_commit_of_the_api_once(spark, tmp_path, noticed):
    path = str(tmp_path / "t")
    table, before = table_at(spark, path), 1
    for verb, run in VERBS.items():
        run(spark, table, path)
        made = versions_of(path)
        assert len(made) > before, verb
        assert Counter(noticed) == Counter(made), verb
        before = len(made)


def test_the_session_follows_each_commit_of_sql_once(spark, tmp_path, noticed):
    path = str(tmp_path / "t")
    table_at(spark, path)
    before = 1
    for verb, statements in STATEMENTS.items():
        for text in statements:
            text(path) if callable(text) else spark.sql(text.format(t=f"delta.`{path}`"))
        made = versions_of(path)
        assert len(made) > before, verb
        assert Counter(noticed) == Counter(made), verb
        before = len(made)


def test_the_session_follows_tables_that_are_made_of_others_once(spark, tmp_path, noticed):
    table = table_at(spark, tmp_path / "t")
    table.clone(str(tmp_path / "api"), isShallow=True)
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/sql` SHALLOW CLONE delta.`{tmp_path}/t`")
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/new` (id INT) USING delta")
    DeltaTable.create(spark).location(str(tmp_path / "built")).addColumn("id", "INT").execute()
    spark.range(2).write.parquet(str(tmp_path / "folder"))
    DeltaTable.convertToDelta(spark, f"parquet.`{tmp_path}/folder`")
    made = [item for name in ("t", "api", "sql", "new", "built", "folder") for item in versions_of(tmp_path / name)]
    assert len(made) == 6
    assert Counter(noticed) == Counter(made)


def test_the_session_follows_each_batch_of_a_stream_once(spark, tmp_path, noticed):
    table_at(spark, tmp_path / "from")
    rows = spark.readStream.format("delta").load(str(tmp_path / "from"))
    query = (
        rows.writeStream.format("delta").trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "to"))
    )  # fmt: skip
    query.awaitTermination(120)
    made = [*versions_of(tmp_path / "from"), *versions_of(tmp_path / "to")]
    assert len(made) == 2
    assert Counter(noticed) == Counter(made)
