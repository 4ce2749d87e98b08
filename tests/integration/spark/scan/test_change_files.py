"""Change files of the change data feed: when a commit gets some, where they are, and what they hold."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pydelta.errors import ConstraintViolatedError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark


@pytest.fixture
def fed(spark, tmp_path):
    """Ids 0-19 in two files of partitions p=0 and p=1, with a feed."""
    path = str(tmp_path / "t")
    frame = spark.range(20).selectExpr("id", "cast(id % 2 as int) as p", "'v' || id as v")
    frame.repartition(1).write.format("delta").option("delta.enableChangeDataFeed", "true").partitionBy("p").save(path)
    return path


def _actions(path, kind):
    log = DeltaLog.for_table(path)
    return [action for action in log.actions(log.update().version) if action.kind == kind]


def _changes(path):
    """(partition value, kind of change, id) of each row in the newest version's change files."""
    found = []
    for action in _actions(path, "cdc"):
        table = pq.ParquetFile(Path(path) / action.path).read()
        assert table.column_names == ["id", "v", "_change_type"]
        kinds, ids = table.column("_change_type").to_pylist(), table.column("id").to_pylist()
        found += [(action.partition_values["p"], kind, row) for kind, row in zip(kinds, ids, strict=True)]
    return sorted(found)


def test_a_new_table_with_a_feed_takes_the_legacy_protocol(fed):
    protocol = DeltaLog.for_table(fed).update().protocol
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 4)
    assert _actions(fed, "cdc") == []


def test_delete_of_rows_records_them(spark, fed):
    result = DeltaTable.forPath(spark, fed).delete("id in (4, 6, 7)")
    assert result.num_deleted_rows == 3
    assert _changes(fed) == [("0", "delete", 4), ("0", "delete", 6), ("1", "delete", 7)]
    for action in _actions(fed, "cdc"):
        assert action.path.startswith(f"_change_data/p={action.partition_values['p']}/cdc-")
        assert action.size == (Path(fed) / action.path).stat().st_size
        assert action.data_change is False
    metrics = DeltaLog.for_table(fed).history(1)[0].commit_info.fields["operationMetrics"]
    assert metrics["numAddedChangeFiles"] == "2"
    assert metrics["numCopiedRows"] == "17"
    assert spark.read.format("delta").load(fed).count() == 17


@pytest.mark.parametrize("condition", [None, "p = 1"])
def test_whole_files_that_go_need_no_change_files(spark, fed, condition):
    DeltaTable.forPath(spark, fed).delete(condition)
    assert _actions(fed, "cdc") == []
    assert _actions(fed, "remove")


@pytest.mark.parametrize(
    "options",
    [{}, {"replaceWhere": "p = 1"}, {"partitionOverwriteMode": "dynamic"}],
    ids=["overwrite", "partition", "dynamic"],
)
def test_writes_of_whole_files_need_no_change_files(spark, fed, options):
    rows = spark.range(1, 4, 2).selectExpr("id", "1 as p", "'new' as v")
    rows.write.format("delta").mode("overwrite").options(**options).save(fed)
    assert _actions(fed, "cdc") == []


def test_replacewhere_over_data_records_what_goes_and_what_comes(spark, fed):
    rows = spark.range(16, 19).selectExpr("id", "cast(id % 2 as int) as p", "'new' as v")
    rows.write.format("delta").mode("overwrite").option("replaceWhere", "id >= 16").save(fed)
    assert _changes(fed) == [
        ("0", "delete", 16), ("0", "delete", 18), ("0", "insert", 16), ("0", "insert", 18),
        ("1", "delete", 17), ("1", "delete", 19), ("1", "insert", 17),
    ]  # fmt: skip
    assert spark.read.format("delta").load(fed).count() == 19


def test_a_replacewhere_that_fails_leaves_neither_files_nor_a_version(spark, fed):
    before = {str(path) for path in Path(fed).rglob("*.parquet")}
    rows = spark.range(15, 19, 1, 1).selectExpr("id", "cast(id % 2 as int) as p", "'new' as v")
    with pytest.raises(ConstraintViolatedError, match="replaceWhere"):
        rows.write.format("delta").mode("overwrite").option("replaceWhere", "id >= 16").save(fed)
    assert {str(path) for path in Path(fed).rglob("*.parquet")} == before
    assert DeltaLog.for_table(fed).update().version == 0


def test_datachange_false_records_nothing(spark, fed):
    rows = spark.read.format("delta").load(fed).where("id >= 16")
    rows.write.format("delta").mode("overwrite").option("replaceWhere", "id >= 16").option("dataChange", "false").save(
        fed
    )
    assert _actions(fed, "cdc") == []
    assert {json.dumps(action.data_change) for action in _actions(fed, "add")} == {"false"}
