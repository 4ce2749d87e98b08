"""Identity columns: values of their own for all rows, by every route, and under writers at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from pydelta.errors import ConstraintViolatedError, UnsafeOperationError
from pydelta.log import DeltaLog
from pydelta.protocol.identity import identities
from pydelta.tables import DeltaTable, IdentityGenerator

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark, tmp_path):
    builder = DeltaTable.create(spark).location(str(tmp_path / "t")).property("delta.enableChangeDataFeed", "true")
    builder.addColumn("key", "bigint", generatedAlwaysAs=IdentityGenerator())
    builder.addColumn("other", "bigint", generatedByDefaultAs=IdentityGenerator(start=-10, step=-5))
    return builder.addColumn("v", "string").execute()


def _append(frame, table):
    frame.write.format("delta").mode("append").save(str(table.detail().first()["location"]))


def _mark(table, column=0):
    return identities(DeltaLog.for_table(table.detail().first()["location"]).update().schema)[column].mark


def test_values_by_appends_of_one_and_of_many_partitions(spark, table):
    _append(spark.sql("SELECT * FROM VALUES ('a'), ('b'), ('c') AS t(v)"), table)
    rows = sorted(tuple(row) for row in table.toDF().collect())
    assert rows == [(1, -10, "a"), (2, -15, "b"), (3, -20, "c")]
    _append(spark.range(100).repartition(3).selectExpr("concat('r', id) as v"), table)
    rows = table.toDF().collect()
    for column, mark in ((0, max(row[0] for row in rows)), (1, min(row[1] for row in rows))):
        assert len({row[column] for row in rows}) == 103
        assert _mark(table, column) == mark
    assert all(row["other"] % 5 == 0 for row in rows)
    _append(spark.createDataFrame([(7, "own")], "other long, v string"), table)
    own = table.toDF().filter("v = 'own'").first()
    assert own["other"] == 7
    assert own["key"] > max(row["key"] for row in rows)
    with pytest.raises(UnsafeOperationError, match="GENERATED ALWAYS"):
        _append(spark.createDataFrame([(7, "x")], "key long, v string"), table)


def test_values_by_merge_and_none_changed_by_update(spark, table):
    _append(spark.createDataFrame([("a",), ("b",)], "v string"), table)
    source = spark.createDataFrame([("b", 1), ("c", 2), ("d", 3)], "v string, n int").alias("s")
    merge = table.alias("t").merge(source, "t.v = s.v")
    merge = merge.whenMatchedUpdate(set={"v": "concat(s.v, '!')"})
    merge = merge.whenNotMatchedInsert("s.n = 2", {"v": source["v"], "other": "s.n"})
    merge.whenNotMatchedInsert(values={"v": "s.v"}).execute()
    rows = {row["v"]: row for row in table.toDF().collect()}
    assert (rows["a"]["key"], rows["b!"]["key"]) == (1, 2)
    assert rows["c"]["other"] == 2
    assert len({row["key"] for row in rows.values()}) == 4
    assert _mark(table) == max(row["key"] for row in rows.values())
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 2)
    changes = feed.load(table.detail().first()["location"]).filter("_change_type = 'insert'").collect()
    assert {row["key"] for row in changes} == {rows["c"]["key"], rows["d"]["key"]}
    with pytest.raises(UnsafeOperationError, match="GENERATED ALWAYS"):
        table.update(set={"key": "7"})
    with pytest.raises(UnsafeOperationError, match="BY DEFAULT"):
        table.update(set={"other": "7"})
    with pytest.raises(UnsafeOperationError, match="by an insert"):
        table.alias("t").merge(source, "t.v = s.v").whenNotMatchedInsert(values={"key": "s.n"}).execute()
    table.restoreToVersion(1)
    _append(spark.createDataFrame([("after",)], "v string"), table)
    assert table.toDF().filter("v = 'after'").first()["key"] > max(row["key"] for row in rows.values())


def test_values_of_writers_at_the_same_time_are_never_shared(spark, table):
    def write(number):
        _append(spark.range(5).selectExpr(f"concat('{number}-', id) as v"), table)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(8)))
    rows = table.toDF().collect()
    assert len(rows) == len({row["key"] for row in rows}) == len({row["other"] for row in rows}) == 40


def test_values_are_used_up(spark, tmp_path):
    builder = DeltaTable.create(spark).location(str(tmp_path / "full"))
    builder.addColumn("key", "bigint", generatedAlwaysAs=IdentityGenerator(start=2**63 - 2)).addColumn("v", "long")
    table = builder.execute()
    with pytest.raises(ConstraintViolatedError, match="used up"):
        _append(spark.range(3).selectExpr("id as v"), table)
    assert table.toDF().count() == 0
