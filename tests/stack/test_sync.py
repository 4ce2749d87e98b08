"""Symlink twins: after every step of a random history Trino's hive connector gives the rows that Spark gives."""

from __future__ import annotations

import contextlib
import random
import time
from typing import Any

import pytest
from conftest import DATABASE, ROOT, STORE_OPTIONS

from catalog_sync.inspect import SyncState, sync_status
from catalog_sync.names import TableName, twin_name
from catalog_sync.native import sync_native
from catalog_sync.sync import SyncOptions, sync_table
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from pydelta.errors import UnsupportedFeatureError
from pydelta.log import DeltaLog

pytestmark = [pytest.mark.before_submit, pytest.mark.spark, pytest.mark.slow]

STEPS = 14
PARTITIONS = ["a", "b c", "50%", "x=y", "a/b", "é中", None]


@pytest.fixture(scope="module")
def spark():
    import pydelta

    session = pydelta.session(
        "sync-tests", conf={"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def client():
    with Metastore(MetastoreAddress.parse(None)) as metastore:
        yield metastore


def columns_of(step: int) -> list[str]:
    """SQL of each column but the partition column, ``n`` being the row's number; a later step has one more."""
    found = [
        "n AS id",
        "concat('v', n) AS text",
        "CAST(n / 7 AS decimal(12,3)) AS amount",
        "CAST(n AS double) / 3 AS ratio",
        "n % 2 = 0 AS even",
        "date_add(DATE'2024-01-01', CAST(n % 400 AS int)) AS day",
        "timestamp_millis(1700000000000 + n * 1234567) AS at",
        "array(CAST(n AS int), null, 3) AS numbers",
        "named_struct('a', CAST(n AS int), 'b', concat('s', n)) AS pair",
        "map(concat('k', n % 3), n) AS counts",
        "CAST(concat('b', n) AS binary) AS raw",
        "CASE WHEN n % 5 = 0 THEN NULL ELSE CAST(n AS smallint) END AS maybe",
    ]
    return [*found, "concat('new', n) AS added"] if step > STEPS // 2 else found


def normal(value: Any) -> Any:
    """A value as both engines' clients give it, in one form."""
    if isinstance(value, bytearray | bytes):
        return bytes(value).hex()
    if hasattr(value, "asDict"):
        return tuple(normal(item) for item in value)
    if isinstance(value, list | tuple):
        return tuple(normal(item) for item in value)
    if isinstance(value, dict):
        return tuple(sorted((key, normal(item)) for key, item in value.items()))
    if hasattr(value, "isoformat"):
        return value.isoformat(sep=" ") if hasattr(value, "hour") else value.isoformat()
    if isinstance(value, float):
        return repr(value)
    return str(value) if value is not None and not isinstance(value, bool | int) else value


def as_table(rows) -> list[tuple[Any, ...]]:
    return sorted((tuple(normal(item) for item in row) for row in rows), key=repr)


@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "flat"])
def test_trino_reads_what_spark_reads_after_every_step(spark, client, sql, partitioned):
    from pydelta.tables import DeltaTable

    chance = random.Random(20241121 + partitioned)
    name = TableName(database=DATABASE, name=f"history_{'p' if partitioned else 'f'}")
    twin = twin_name(name)
    location = f"{ROOT}/{name.name}"
    log = DeltaLog.for_table(location, options=STORE_OPTIONS)
    seen = set()
    for step in range(STEPS):
        kinds = ["append", "append", "replace", "delete", "drop", "all"]
        kind = "append" if step in (0, STEPS // 2 + 1) else chance.choice(kinds)
        seen.add(kind)
        start, count = step * 1000, chance.randrange(1, 60)
        values = ", ".join("NULL" if p is None else "'" + p.replace("'", "''") + "'" for p in PARTITIONS)
        part = f"element_at(array({values}), CAST(n % {len(PARTITIONS)} AS int) + 1) AS `Part`"
        rows = spark.range(start, start + count).withColumnRenamed("id", "n").selectExpr(*columns_of(step), part)
        writer = rows.write.format("delta").option("mergeSchema", "true")
        if kind == "append":
            (writer.partitionBy("Part") if partitioned else writer).mode("append").save(location)
        elif kind == "replace":
            only = rows.where("`Part` = 'b c'")
            only.write.format("delta").mode("overwrite").option("mergeSchema", "true").option(
                "replaceWhere", "`Part` = 'b c'"
            ).save(location)
        elif kind == "delete":
            DeltaTable.forPath(spark, location).delete("id % 3 = 1")
        elif kind == "drop":
            value = chance.choice(PARTITIONS)
            DeltaTable.forPath(spark, location).delete("`Part` IS NULL" if value is None else f"`Part` = '{value}'")
        else:
            DeltaTable.forPath(spark, location).delete("id >= 0" if chance.random() < 0.5 else None)
        result = sync_table(log, client, twin)
        assert result.version == log.update().version
        frame = spark.read.format("delta").load(location)
        shown = [item.lower() for item in frame.columns]
        quoted = ", ".join(f'"{item}"' for item in shown)
        expected = as_table(frame.selectExpr(*(f"`{item}`" for item in shown)).collect())
        found = as_table(sql(f"SELECT {quoted} FROM hive.{twin}"))
        assert found == expected, f"step {step}, {kind}"
    assert len(seen) >= 4
    plan = "\n".join(row[0] for row in sql(f"EXPLAIN SELECT * FROM hive.{twin}"))
    assert f"hive:{twin.database}:{twin.name}" in plan
    sync_native(client, name, log.update())
    assert sql(f"SELECT count(*) FROM delta.{name}") == [[len(expected)]]


def test_a_sync_without_news_touches_nothing(client, sql):
    name = TableName(database=DATABASE, name="history_p")
    log = DeltaLog.for_table(f"{ROOT}/{name.name}", options=STORE_OPTIONS)
    assert sync_table(log, client, twin_name(name)).calls == 1


@pytest.mark.in_turn
def test_a_crash_after_each_call_shows_rows_of_before_or_after(spark, client, sql):
    """The process dies after its n-th Thrift call; Trino then sees each partition as of one version or the other."""
    from pydelta.tables import DeltaTable

    name = TableName(database=DATABASE, name="crashing")
    twin, location = twin_name(name), f"{ROOT}/{name.name}"
    log = DeltaLog.for_table(location, options=STORE_OPTIONS)

    class _Dies(Metastore):
        limit = 10**6

        def _call(self, verb, *arguments, **how):
            found = super()._call(verb, *arguments, **how)
            if len(self.calls) >= self.limit:
                raise KeyboardInterrupt
            return found

    def counts():
        return {row[0]: row[1] for row in sql(f"SELECT p, count(*) FROM hive.{twin} GROUP BY p")}

    rows = spark.range(30).selectExpr("id", "concat('p', id % 3) AS p")
    rows.write.format("delta").partitionBy("p").mode("overwrite").save(location)
    sync_table(log, client, twin)
    before = counts()
    for limit in range(1, 6):
        more = spark.range(4).selectExpr("id", f"concat('p', {limit}) AS p")
        more.write.format("delta").mode("append").save(location)
        doomed = f"p{limit - 1}"
        DeltaTable.forPath(spark, location).delete(f"p = '{doomed}'")
        after = {row[0]: row[1] for row in spark.read.format("delta").load(location).groupBy("p").count().collect()}
        with _Dies(MetastoreAddress.parse(None)) as dying:
            dying.limit = limit
            with contextlib.suppress(KeyboardInterrupt):
                sync_table(log, dying, twin)
        for partition, count in counts().items():
            assert count in (before.get(partition), after.get(partition)), partition
        sync_table(log, client, twin)
        assert counts() == after
        before = after


@pytest.mark.in_turn
def test_the_scheduler_syncs_what_is_registered_in_lake(spark, client, sql):
    """A table that is registered in ``lake`` has its twin within a turn of the scheduler, and so has each commit."""
    name = TableName(database="lake", name="stack_tests_scheduled")
    location = f"{ROOT}/{name.name}"
    spark.range(5).write.format("delta").mode("overwrite").save(location)
    log = DeltaLog.for_table(location, options=STORE_OPTIONS)
    try:
        sync_native(client, name, log.update())
        twin = twin_name(name)
        _until(lambda: client.table(twin.database, twin.name) is not None and _rows(sql, twin) == 5)
        spark.range(7).write.format("delta").mode("append").save(location)
        _until(lambda: _rows(sql, twin) == 12)
    finally:
        client.drop(name.database, name.name)
        client.drop("lake_symlink", name.name)


def _rename_and_delete(spark, location):
    """A column gets another name than in the files, and rows go: no manifest can say that any more."""
    spark.sql(
        f"ALTER TABLE delta.`{location}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
        "'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5')"
    )
    spark.sql(f"ALTER TABLE delta.`{location}` RENAME COLUMN text TO words")
    spark.sql(f"DELETE FROM delta.`{location}` WHERE id < 5")


def test_a_twin_that_cannot_follow_gives_an_error_and_no_deleted_rows(spark, client, sql):
    name = TableName(database=DATABASE, name="renamed")
    twin, location = twin_name(name), f"{ROOT}/{name.name}"
    log = DeltaLog.for_table(location, options=STORE_OPTIONS)
    spark.range(10).selectExpr("id", "'x' AS text", "id % 2 AS part").write.format("delta").partitionBy("part").save(
        location
    )
    sync_table(log, client, twin)
    assert _rows(sql, twin) == 10
    _rename_and_delete(spark, location)
    with pytest.raises(UnsupportedFeatureError):
        sync_table(log, client, twin)
    for statement in ("SELECT * FROM hive.{}", "SELECT count(*) FROM hive.{}", "SELECT id FROM hive.{} WHERE part = 1"):
        with pytest.raises(Exception, match=r"not readable.*cannot be published"):
            sql(statement.format(twin))
    sync_native(client, name, log.update())
    assert sql(f"SELECT count(words) FROM delta.{name}") == [[5]]


def test_a_table_of_the_schedule_that_cannot_be_published(spark, client, sql):
    """Left behind for scripts/test-stack, which waits until ``make status`` names it."""
    name = TableName(database="lake", name="stack_tests_blocked")
    location = f"{ROOT}/{name.name}"
    spark.range(10).selectExpr("id", "'x' AS text").write.format("delta").save(location)
    log = DeltaLog.for_table(location, options=STORE_OPTIONS)
    sync_table(log, client, twin_name(name))
    sync_native(client, name, log.update())
    _rename_and_delete(spark, location)
    assert sync_status(log, client, twin_name(name), now_ms=0).state is SyncState.BLOCKED


def _rows(sql, twin):
    return sql(f"SELECT count(*) FROM hive.{twin}")[0][0]


def _until(holds):
    give_up = time.monotonic() + 3600  # only for a scheduler that does nothing at all
    while not holds():
        assert time.monotonic() < give_up, "the scheduler did not do it"
        time.sleep(2)


def test_the_job_syncs_tables_by_name(spark, client, submit, sql):
    name = TableName(database=DATABASE, name="by_job")
    location = f"{ROOT}/{name.name}"
    spark.range(9).write.format("delta").mode("overwrite").save(location)
    sync_native(client, name, DeltaLog.for_table(location, options=STORE_OPTIONS).update())
    done = submit("manifests", str(name))
    assert done.code == 0, done.errors
    assert done.result["tables"][0]["version"] == 0
    assert _rows(sql, twin_name(name)) == 9
    assert submit("manifests", str(name)).code == 0
    wrong = submit("manifests", "no.such")
    assert (wrong.code, "no Delta table" in wrong.result["message"]) == (1, True)


def test_options_of_the_session_reach_a_full_sync(client):
    name = TableName(database=DATABASE, name="by_job")
    log = DeltaLog.for_table(f"{ROOT}/{name.name}", options=STORE_OPTIONS)
    assert sync_table(log, client, twin_name(name), SyncOptions(full=True)).plan.full
