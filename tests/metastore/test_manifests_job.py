"""``jobs/manifests.py``: what readers of manifests cannot take is rewritten first, on request."""

from __future__ import annotations

import pytest

from catalog_sync.names import TableName
from jobs import manifests
from pydelta.errors import InvalidArgumentError
from pydelta.log import DeltaLog
from pydelta.manifests import verify_manifests

pytestmark = pytest.mark.spark


@pytest.fixture
def arguments(tmp_path, metastore, metastore_server, database):
    metastore.create_database(f"{database}_symlink", f"file://{metastore_server.warehouse}/{database}_symlink.db")
    yield ["--location", str(tmp_path / "t"), "--entry", f"{database}.t", "--metastore", metastore_server.uri]
    DeltaLog.clear_cache()


def write(frame, path, **options):
    frame.coalesce(1).write.format("delta").partitionBy("day", "who").mode("append").options(**options).save(path)


def files_of(path):
    core = DeltaLog.for_table(path).update().files.core
    return {tuple(row[:2]): row[2] for row in core.group_by("pv:day", "pv:who").len().iter_rows()}


def test_partitions_of_many_files_are_compacted_and_no_others(spark, arguments, tmp_path):
    path = str(tmp_path / "t")
    odd = "o'b\\r"
    rows = spark.createDataFrame([(1, "2024-01-01", odd), (2, "2024-01-02", None)], "id int, day string, who string")
    rows = rows.selectExpr("id", "CAST(day AS date) AS day", "who")
    for _ in range(3):
        write(rows, path)
    write(rows.selectExpr("id", "day", "'few' AS who"), path)
    before = sorted(map(str, spark.read.format("delta").load(path).collect()))
    (result,) = manifests.run({}, [*arguments, "--compact-first", "2"], spark)
    assert result["compacted_files"] == 6
    assert files_of(path) == {
        ("2024-01-01", odd): 1,
        ("2024-01-02", None): 1,
        ("2024-01-01", "few"): 1,
        ("2024-01-02", "few"): 1,
    }
    assert sorted(map(str, spark.read.format("delta").load(path).collect())) == before
    assert result["manifests"] == 4
    assert verify_manifests(DeltaLog.for_table(path)).ok
    (again,) = manifests.run({}, [*arguments, "--compact-first", "2"], spark)
    assert (again["compacted_files"], again["version"]) == (0, result["version"])


def test_files_with_deletion_vectors_are_purged_on_request_and_refused_without(spark, arguments, tmp_path, metastore):
    from pydelta.tables import DeltaTable

    path = str(tmp_path / "t")
    rows = spark.range(20).selectExpr("id", "date'2024-01-01' AS day", "'a' AS who")
    write(rows, path, **{"delta.enableDeletionVectors": "true"})
    log = DeltaLog.for_table(path)
    (result,) = manifests.run({}, arguments, spark)
    DeltaTable.forPath(spark, path).delete("id = 3")
    assert log.update().files.has_live_vectors(), "the case that this test is about"
    (refused,) = manifests.run({}, arguments, spark)
    assert (refused["exit_code"], refused["error"]) == (1, "DELTA_UNSUPPORTED_GENERATE_WITH_DELETION_VECTORS")
    assert "PURGE" in refused["message"]
    assert verify_manifests(DeltaLog.for_table(path)).version == result["version"], "nothing was published"
    (purged,) = manifests.run({}, [*arguments, "--purge", "--atomic"], spark)
    assert purged["purged_files"] == 1
    assert spark.read.format("delta").load(path).count() == 19
    twin = TableName.parse(purged["twin"])
    assert metastore.table(twin.database, twin.name).parameters["pydelta.sync.atomic"] == "true"
    assert verify_manifests(DeltaLog.for_table(path)).ok


def test_rewriting_without_a_session_is_refused(arguments):
    for flag in ("--purge", "--compact-first"):
        with pytest.raises(InvalidArgumentError, match="no Spark session"):
            manifests.run({}, [*arguments, flag])
