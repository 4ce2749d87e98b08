"""MERGE in a session with a record index: where this process does the row work, files without the keys are left out."""

from __future__ import annotations

import pyarrow as pa
import pytest
from both_ways import LIMIT, session

import pydelta
from pydelta.commands.records.index import FEWEST_FILES
from pydelta.engines.spark.change.merge import SparkMerge
from pydelta.tables import DeltaTable

__all__ = ["session"]

pytestmark = pytest.mark.spark
FILES = FEWEST_FILES + 4


def made(path):
    """A table of files whose smallest and largest keys enclose all others."""
    table = pydelta.LocalTable.create(path, {"id": "int", "v": "string"})
    for number in range(FILES):
        table.append(pa.table({"id": pa.array([-9, number, 100 + number, 999], pa.int32()), "v": ["old"] * 4}))
    table.index_records("id")
    return table


@pytest.mark.parametrize("kind", ["int", "long"])
@pytest.mark.parametrize("most", ["0", None], ids=["by Spark", "in this process"])
def test_a_merge_by_an_indexed_key_changes_the_same_rows(session, tmp_path, monkeypatch, most, kind):
    searched, find = [], SparkMerge.find
    monkeypatch.setattr(SparkMerge, "find", lambda self, files: (searched.append(files.height), find(self, files))[1])
    path = str(tmp_path / "t")
    made(path)
    if most is not None:
        session.conf.set(LIMIT, most)
    source = session.createDataFrame([(7, "new"), (5000, "new")], f"id {kind}, v string")
    merge = DeltaTable.forPath(session, path).alias("t").merge(source.alias("s"), "t.id = s.id AND t.v <> s.v")
    merge = merge.whenMatchedUpdate(set={"v": "s.v"})
    if kind == "int":
        merge = merge.whenNotMatchedInsertAll()
    result = merge.execute().first()
    assert (result.num_updated_rows, result.num_inserted_rows) == (1, int(kind == "int"))
    assert searched == [FILES if most == "0" else 1]
    rows = session.read.format("delta").load(path).where("v = 'new'").select("id").collect()
    assert sorted(row.id for row in rows) == ([7, 5000] if kind == "int" else [7])
    assert session.read.format("delta").load(path).count() == FILES * 4 + int(kind == "int")
