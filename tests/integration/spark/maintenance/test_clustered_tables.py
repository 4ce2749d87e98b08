"""Clustered tables: made, put in order step by step, kept in order."""

from __future__ import annotations

import itertools
import json

import pytest
from optimize_tables import adds, last_commit, rows, skipped

from pydelta.errors import InvalidArgumentError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark


@pytest.fixture
def clustered(spark, tmp_path):
    """A table clustered by two columns, with 20,000 rows in five files that are in no order."""
    path = str(tmp_path / "t")
    builder = DeltaTable.create(spark).location(path).addColumn("x", "int").addColumn("y", "string")
    builder.addColumn("id", "bigint").clusterBy("x", "y").execute()
    append_points(spark, path, 0, 20_000, 5)
    return path


def append_points(spark, path, first, last, files):
    spark.range(first, last, numPartitions=files).selectExpr(
        "cast(pmod(xxhash64(id), 200) as int) as x", "concat('n', 1000 + pmod(xxhash64(id, 1), 200)) as y", "id"
    ).write.format("delta").mode("append").save(path)  # fmt: skip


@pytest.fixture
def small_target(spark):
    spark.conf.set("spark.pydelta.optimize.maxFileSize", "20kb")
    yield
    spark.conf.unset("spark.pydelta.optimize.maxFileSize")


def test_optimize_puts_a_clustered_table_in_order_and_says_who_did(spark, clustered, small_target):
    before = rows(spark, clustered)
    metrics = DeltaTable.forPath(spark, clustered).optimize().executeCompaction().first()["metrics"]
    assert rows(spark, clustered) == before
    files = metrics["numFilesAdded"]
    assert files >= 8
    assert metrics["clusteringStats"]["inputOtherFiles"]["numFiles"] == 5
    assert metrics["zOrderStats"] is None
    new = adds(clustered)
    assert {add.clustering_provider for add in new} == {"liquid"}
    assert {add.tags["ZCUBE_ZORDER_BY"] for add in new} == {'["x", "y"]'}
    assert len({add.tags["ZCUBE_ID"] for add in new}) == 1
    for column, values in (("x", range(5, 200, 10)), ("y", [f"n{1000 + n}" for n in range(5, 200, 10)])):
        assert sum(skipped(clustered, column, value) for value in values) >= 0.5 * files * len(values)
    parameters = last_commit(clustered)["operationParameters"]
    assert (parameters["clusterBy"], parameters["zOrderBy"], parameters["isFull"]) == ('["x","y"]', "[]", "false")
    assert DeltaTable.forPath(spark, clustered).detail().first()["clusteringColumns"] == ["x", "y"]


def test_only_new_files_are_put_in_order_and_full_takes_all(spark, clustered, small_target):
    table = DeltaTable.forPath(spark, clustered)
    table.optimize().executeCompaction()
    first = {add.path for add in adds(clustered)}
    assert table.optimize().executeCompaction().first()["metrics"]["numFilesAdded"] == 0
    append_points(spark, clustered, 20_000, 24_000, 3)
    before = rows(spark, clustered)
    metrics = table.optimize().executeCompaction().first()["metrics"]
    after = {add.path for add in adds(clustered)}
    assert metrics["clusteringStats"]["inputOtherFiles"]["numFiles"] == 3
    assert len(first & after) >= len(first) // 2
    assert rows(spark, clustered) == before
    assert table.optimize().executeCompaction(full=True).first()["metrics"]["numFilesRemoved"] == len(after)
    assert rows(spark, clustered) == before
    assert last_commit(clustered)["operationParameters"]["isFull"] == "true"


def test_a_small_clustered_table_comes_to_rest(spark, clustered):
    table = DeltaTable.forPath(spark, clustered)
    assert table.optimize().executeCompaction().first()["metrics"]["numFilesAdded"] == 1
    assert table.optimize().executeCompaction().first()["metrics"]["numFilesAdded"] == 0
    append_points(spark, clustered, 0, 10, 1)
    assert table.optimize().executeCompaction().first()["metrics"]["numFilesRemoved"] == 2


def test_files_that_another_implementation_ordered_are_left_to_it(spark, clustered):
    from pydelta.txn import Operation, start_transaction

    log = DeltaLog.for_table(clustered)
    txn = start_transaction(log)
    foreign = adds(clustered)[0]
    txn.commit([foreign.replace(data_change=False, clustering_provider="theirs")], Operation(name="OPTIMIZE"))
    table = DeltaTable.forPath(spark, clustered)
    assert table.optimize().executeCompaction().first()["metrics"]["numFilesRemoved"] == 4
    assert foreign.path in {add.path for add in adds(clustered)}
    table.optimize().executeCompaction(full=True)
    assert foreign.path not in {add.path for add in adds(clustered)}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda builder: builder.executeZOrderBy("x"), "clustered"),
        (lambda builder: builder.where("x = 1").executeCompaction(), "Leave where"),
    ],
)
def test_a_clustered_table_takes_no_zorder_and_no_condition(spark, clustered, call, said):
    with pytest.raises(InvalidArgumentError, match=said):
        call(DeltaTable.forPath(spark, clustered).optimize())


def test_one_clustering_column_is_a_plain_order(spark, tmp_path, small_target):
    path = str(tmp_path / "t")
    builder = DeltaTable.create(spark).location(path).addColumn("x", "int").addColumn("y", "string")
    builder.addColumn("id", "bigint").clusterBy(["y"]).execute()
    append_points(spark, path, 0, 10_000, 4)
    DeltaTable.forPath(spark, path).optimize().executeCompaction()
    bounds = sorted((stats["minValues"]["y"], stats["maxValues"]["y"]) for add in adds(path)
                    if (stats := json.loads(add.stats)))  # fmt: skip
    assert len(bounds) > 3
    assert all(high <= low for (_, high), (low, _) in itertools.pairwise(bounds))


def test_writers_make_clustered_tables(spark, tmp_path):
    frame = spark.range(10).selectExpr("id", "struct(cast(id as string) as a) as st", "id % 2 as p")
    paths = {name: str(tmp_path / name) for name in ("save", "option", "v2")}
    frame.write.format("delta").clusterBy("id", "st.a").save(paths["save"])
    frame.write.format("delta").option("clusterBy", "id, st.a").save(paths["option"])
    frame.writeTo(f"delta.`{paths['v2']}`").using("delta").clusterBy("id", "st.a").create()
    for path in paths.values():
        frame.write.format("delta").mode("append").save(path)
        assert DeltaLog.for_table(path).update().clustering_columns == ("id", "st.a")
        DeltaTable.forPath(spark, path).optimize().executeCompaction()
        assert {add.clustering_provider for add in adds(path)} == {"liquid"}
    frame.write.format("delta").clusterBy("ID", "st.a").mode("append").save(paths["save"])
    with pytest.raises(InvalidArgumentError, match=r"is clustered by id, st\.a"):
        frame.write.format("delta").clusterBy("id").mode("append").save(paths["save"])
    with pytest.raises(InvalidArgumentError, match="so it cannot be clustered too"):
        frame.write.format("delta").option("clusterBy", "id").partitionBy("p").save(str(tmp_path / "both"))
    over = frame.drop("id").write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    over.clusterBy("p").save(paths["option"])
    assert DeltaLog.for_table(paths["option"]).update().clustering_columns == ("p",)
    frame.drop("id").write.format("delta").mode("overwrite").save(paths["option"])
    assert DeltaLog.for_table(paths["option"]).update().clustering_columns == ("p",)
    frame.drop("id").write.format("delta").mode("overwrite").clusterBy("st.a").save(paths["option"])
    assert DeltaLog.for_table(paths["option"]).update().clustering_columns == ("st.a",)
    over = frame.drop("id").write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    over.save(paths["option"])  # says again what the table is, and nothing of clustering
    assert DeltaLog.for_table(paths["option"]).update().clustering_columns == ()
    frame.drop("id").writeTo(f"delta.`{paths['v2']}`").using("delta").replace()
    assert DeltaLog.for_table(paths["v2"]).update().clustering_columns == ()
    DeltaTable.forPath(spark, paths["v2"]).optimize().executeZOrderBy("p")


@pytest.mark.parametrize("first", ["CLUSTER BY (id)", "none any more"])
def test_a_clustered_table_is_not_replaced_by_a_partitioned_one(spark, tmp_path, first):
    name = f"delta.`{tmp_path / 't'}`"
    spark.sql(f"CREATE TABLE {name} (id BIGINT, p STRING) USING delta CLUSTER BY (id)")
    if first != "CLUSTER BY (id)":
        spark.sql(f"ALTER TABLE {name} CLUSTER BY NONE")
    rows = spark.sql("SELECT 1L AS id, 'a' AS p")
    version = DeltaLog.for_table(str(tmp_path / "t")).update().version
    for run in (
        lambda: spark.sql(f"CREATE OR REPLACE TABLE {name} (id BIGINT, p STRING) USING delta PARTITIONED BY (p)"),
        lambda: spark.sql(f"REPLACE TABLE {name} USING delta PARTITIONED BY (p) AS SELECT 1L AS id, 'a' AS p"),
        lambda: rows.writeTo(name).using("delta").partitionedBy(rows["p"]).createOrReplace(),
        lambda: (
            DeltaTable.replace(spark).location(str(tmp_path / "t")).addColumns(rows.schema).partitionedBy("p").execute()
        ),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            run()
        assert caught.value.code == "DELTA_CLUSTERING_REPLACE_TABLE_WITH_PARTITIONED_TABLE"
    assert DeltaLog.for_table(str(tmp_path / "t")).update().version == version
    spark.sql(f"CREATE OR REPLACE TABLE {name} (id BIGINT, p STRING) USING delta CLUSTER BY (p)")
