"""Odd names through a session: files, folders and values keep their rows, and names that fail leave nothing."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

import pydelta
from pydelta.engines.spark.catalog import entries as catalog_entries
from pydelta.errors import DeltaEnvironmentError, DeltaError, InvalidArgumentError, SchemaError, TableNotFoundError
from pydelta.log import DeltaLog
from pydelta.protocol.actions import AddFile
from pydelta.protocol.paths import encode_log_path, is_absolute_path
from pydelta.tables import DeltaTable
from pydelta.testing.commands import fsck
from pydelta.txn import Operation, start_transaction

pytestmark = pytest.mark.spark
_numbers = itertools.count()

COLONS = ("export-2024-01-01T10:00:00.parquet", "C:x.parquet", "file:x.parquet", "s3:b.parquet", "a b:c%.parquet")
FILES = (
    "C:/x", "p%25q/a%20b", "x#y?z", "\u00e9 e\u0301", "back\\slash", "n=1", "a+b&c", "[x]*{y}^", "_x", "..x", "%2F",
    "it's \"`",
)  # fmt: skip


@pytest.fixture
def without_retention(spark):
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    yield
    spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")


def ids(spark, path) -> list[int]:
    return sorted(row.id for row in spark.read.format("delta").load(str(path)).select("id").collect())


def with_foreign_files(spark, path: Path, names: tuple[str, ...]) -> set[int]:
    """A table of files that another writer has named, each with one row; some as it spells them: with a bare colon."""
    DeltaTable.create(spark).location(str(path)).addColumn("id", "bigint").addColumn("v", "string").property(
        "delta.enableDeletionVectors", "true"
    ).property("delta.enableChangeDataFeed", "true").execute()
    adds = []
    for number, name in enumerate(names):
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": [2 * number, 2 * number + 1], "v": ["a", "b"]}), str(file))
        bare = name.replace("%", "%25")
        spelt = bare if ":" in name and not is_absolute_path(bare) else encode_log_path(name)
        size = file.stat().st_size
        adds.append(AddFile(path=spelt, partition_values={}, size=size, modification_time=1, data_change=True))
    start_transaction(DeltaLog.for_table(str(path))).commit(adds, Operation(name="WRITE"))
    return set(range(2 * len(names)))


@pytest.mark.damages_tables  # delta-rs takes a bare colon for a scheme, and Hadoop reads no name with one on a disk
def test_files_with_a_colon_in_their_names_outlive_every_vacuum(spark, tmp_path, without_retention):
    path = tmp_path / "t"
    rows = with_foreign_files(spark, path, COLONS)
    stray = path / "D:stray.parquet"
    stray.write_bytes(b"x")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id < 0")
    inventory = spark.createDataFrame(
        [(str(file), file.stat().st_size, False, 1_600_000_000_000) for file in path.glob("*.parquet")],
        "path STRING, length BIGINT, isDir BOOLEAN, modificationTime BIGINT",
    )
    inventory.createOrReplaceTempView("odd_inventory")
    for how in ("LITE", "USING INVENTORY odd_inventory", ""):
        spark.sql(f"VACUUM delta.`{path}` {how} RETAIN 0 HOURS")
        assert set(pydelta.open(str(path)).scan()["id"].to_pylist()) == rows, how
    assert not stray.exists()
    assert fsck(DeltaLog.for_table(str(path))).ok


@pytest.mark.damages_tables  # some of the files have no statistics, and delta-rs lists other spellings
def test_files_of_another_writer_keep_their_rows_through_every_command(spark, tmp_path, without_retention):
    path, clone = tmp_path / "p%25q" / "t", tmp_path / "a b%20" / "clone"
    quoted = f"delta.`{path}`"
    rows = with_foreign_files(spark, path, FILES)
    assert set(ids(spark, path)) == rows
    assert set(pydelta.open(str(path)).scan()["id"].to_pylist()) == rows
    spark.sql(f"VACUUM {quoted} RETAIN 0 HOURS")
    assert set(ids(spark, path)) == rows
    spark.sql(f"DELETE FROM {quoted} WHERE id % 4 = 1")
    spark.sql(f"UPDATE {quoted} SET id = id + 100 WHERE id % 4 = 3")
    rows = {number + 100 if number % 4 == 3 else number for number in rows if number % 4 != 1}
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 2).load(str(path))
    assert feed.where("_change_type = 'delete'").count() == len(FILES) // 2
    for name in ("clone", "again"):
        source = quoted if name == "clone" else f"delta.`{clone}`"
        spark.sql(f"CREATE TABLE delta.`{clone.parent / name}` SHALLOW CLONE {source}")
        assert set(ids(spark, clone.parent / name)) == rows
    log = DeltaLog.for_table(str(clone))
    assert fsck(log).ok
    for text in (f"VACUUM {quoted} RETAIN 0 HOURS", f"VACUUM delta.`{clone}` RETAIN 0 HOURS"):
        spark.sql(text)
        assert set(ids(spark, path)) == set(ids(spark, clone)) == rows
    spark.sql(f"DELETE FROM delta.`{clone}` WHERE id = 0")
    spark.sql(f"OPTIMIZE delta.`{clone}`")
    spark.sql(f"VACUUM delta.`{clone}` RETAIN 0 HOURS")
    assert set(ids(spark, clone)) == rows - {0}
    assert set(ids(spark, path)) == rows
    spark.sql(f"OPTIMIZE {quoted}")
    spark.sql(f"VACUUM {quoted} LITE RETAIN 0 HOURS")
    assert set(ids(spark, path)) == set(ids(spark, clone.parent / "again")) == rows
    assert fsck(DeltaLog.for_table(str(path))).ok


VALUES = (
    "a b", "50%", "%25", "a/b", "x=y", "q?r#s", "10:00", "C:", "a://b", "\u00e9", "e\u0301", "back\\slash", "_x", ".x",
    "..", "new\nline", "{a}[b]^", "it's", "__HIVE_DEFAULT_PARTITION__", None,
)  # fmt: skip


def test_partition_values_keep_their_rows_and_their_readers(spark, tmp_path, without_retention):
    path = str(tmp_path / "p%25q")
    frame = spark.createDataFrame(list(enumerate(VALUES)), "id BIGINT, `10:00` STRING").coalesce(1)
    frame.write.format("delta").partitionBy("10:00").save(path)
    rows = dict(enumerate(VALUES))

    def read(version=None):
        reader = spark.read.format("delta")
        found = (reader if version is None else reader.option("versionAsOf", version)).load(path).collect()
        return {row["id"]: row["10:00"] for row in found}

    assert read() == rows
    table = pydelta.open(path).scan()
    assert dict(zip(*(table[name].to_pylist() for name in ("id", "10:00")), strict=True)) == rows
    for number, value in rows.items():
        found = spark.read.format("delta").load(path).where(F.col("10:00").eqNullSafe(F.lit(value))).collect()
        assert [row.id for row in found] == [number]
    pydelta.open(path).append(pa.table({"id": [30], "10:00": pa.array(["10:00"])}))
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id IN (1, 3)")
    spark.sql(f"UPDATE delta.`{path}` SET id = 31 WHERE id = 6")
    rows = {number: value for number, value in rows.items() if number not in (1, 3, 6)} | {30: "10:00", 31: "10:00"}
    assert read() == rows
    spark.sql(f"OPTIMIZE delta.`{path}`")
    spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    assert read() == rows
    with pytest.raises(SchemaError, match="__HIVE_DEFAULT_PARTITION__"):
        DeltaTable.forPath(spark, path).generate("symlink_format_manifest")
    assert not (tmp_path / "p%25q" / "_symlink_format_manifest").exists()
    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {pydelta.open(path).version}")
    assert read() == rows


@pytest.mark.parametrize("name", ["no such", "not%here", "a.b", "10:00", "/no/such", "`tick`", "\u00e9?#", "a://b"])
def test_a_table_at_a_quoted_path_that_is_not_there_is_said_to_be_missing(spark, name):
    spelt = f"delta.`{name.replace('`', '``')}`"
    for text in (
        f"VACUUM '{name}'", f"VACUUM '{name}' DRY RUN", f"DESCRIBE DETAIL '{name}'", f"DESCRIBE HISTORY '{name}'",
        f"OPTIMIZE '{name}'", f"VACUUM {spelt}", f"RESTORE TABLE {spelt} TO VERSION AS OF 0",
        f"GENERATE symlink_format_manifest FOR TABLE {spelt}", f"REORG TABLE {spelt} APPLY (PURGE)",
        f"FSCK REPAIR TABLE {spelt}", f"CREATE TABLE odd_target SHALLOW CLONE {spelt}",
    ):  # fmt: skip
        if name.startswith("a://"):
            with pytest.raises(DeltaError):
                spark.sql(text)
            continue
        with pytest.raises(TableNotFoundError) as caught:
            spark.sql(text)
        expected = {"DELTA_MISSING_DELTA_TABLE", "TABLE_OR_VIEW_NOT_FOUND"}
        if text.startswith(("VACUUM '", "OPTIMIZE '", "DESCRIBE HISTORY '")):
            expected = {"DELTA_TABLE_ONLY_OPERATION"}
        elif text.startswith("REORG"):
            expected = {"DELTA_ONLY_OPERATION", "TABLE_OR_VIEW_NOT_FOUND"}
        assert caught.value.getCondition() in expected, text


@pytest.fixture
def database(spark, tmp_path):
    name = f"odd_{next(_numbers)}"
    spark.sql(f"CREATE DATABASE {name} LOCATION '{tmp_path / name}'")
    yield name
    spark.sql(f"DROP DATABASE {name} CASCADE")


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("name", ["odd name", "a-b", "50%", "\u00e9", "x=1", "10:00", "a/b", ""])
def test_a_name_that_the_catalog_refuses_leaves_nothing_behind(spark, tmp_path, database, name):
    spark.sql(f"CREATE TABLE {database}.source (id BIGINT) USING delta")
    before = everything(tmp_path)
    odd = f"{database}.`{name}`"
    for text in (
        f"CREATE TABLE {odd} (id BIGINT) USING delta", f"CREATE TABLE {odd} USING delta AS SELECT 1 AS id",
        f"CREATE OR REPLACE TABLE {odd} USING delta AS SELECT 1 AS id",
        f"CREATE TABLE IF NOT EXISTS {odd} (id INT) USING delta",
        f"CREATE TABLE {odd} (id BIGINT) USING delta LOCATION '{tmp_path}/elsewhere'",
        f"CREATE TABLE {odd} LIKE {database}.source",
        f"CREATE TABLE {odd} SHALLOW CLONE {database}.source", f"ALTER TABLE {database}.source RENAME TO {odd}",
    ):  # fmt: skip
        with pytest.raises(Exception) as caught:
            spark.sql(text)
        if name:
            assert isinstance(caught.value, InvalidArgumentError), text
            assert caught.value.getCondition() == "INVALID_SCHEMA_OR_RELATION_NAME"
    if name:
        for run in (
            lambda: spark.range(1).write.format("delta").saveAsTable(odd),
            lambda: spark.range(1).writeTo(odd).using("delta").create(),
            lambda: DeltaTable.create(spark).tableName(odd).addColumn("id", "bigint").execute(),
            lambda: DeltaTable.forName(spark, f"{database}.source").clone(odd, isShallow=True),
        ):
            with pytest.raises(InvalidArgumentError):
                run()
    assert everything(tmp_path) == before


def test_a_database_that_is_not_there_leaves_nothing_behind(spark, tmp_path):
    with pytest.raises(TableNotFoundError):
        spark.sql(f"CREATE TABLE no_such_db.t (id BIGINT) USING delta LOCATION '{tmp_path}/t'")
    assert everything(tmp_path) == set()


@pytest.mark.parametrize("answers", [True, False])
def test_a_refused_entry_of_a_table_without_rows_takes_the_table_with_it(
    spark, tmp_path, database, monkeypatch, answers
):
    def refuses(*_, **__):
        raise AnalysisException("Table name is too long", messageParameters={})

    before = everything(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(catalog_entries, "session_table", refuses)
        if not answers:
            patched.setattr("pydelta.engines.spark.catalog.define._is_surely_without_entry", lambda *_: False)
        with pytest.raises(
            DeltaEnvironmentError, match="no table was created" if answers else "The table was created at"
        ):
            spark.sql(f"CREATE TABLE {database}.t (id BIGINT) USING delta")
    assert (everything(tmp_path) == before) is answers
    shutil.rmtree(tmp_path / database / "t", ignore_errors=True)


def test_a_hint_names_the_table(spark, tmp_path):
    path = str(tmp_path / "a b%")
    spark.range(1).write.format("delta").save(path)
    with pytest.raises(DeltaError) as caught:
        spark.sql(f"ALTER TABLE delta.`{path}` DROP COLUMN id")
    shown = str(caught.value)
    assert f"ALTER TABLE delta.`file://{path}` SET TBLPROPERTIES" in shown
    assert "TABLE …" not in shown
    statement = f"ALTER TABLE delta.`file://{path}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    assert statement in shown
    spark.sql(statement)
    assert pydelta.open(path).version == 1
