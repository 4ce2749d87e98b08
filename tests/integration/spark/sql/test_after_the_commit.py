"""Spark ends between a statement's commit and its result: what is said then, and what is in the table."""

from __future__ import annotations

import pytest

from pydelta.api.sql import change
from pydelta.engines.spark import engine
from pydelta.errors import CommittedError
from pydelta.log import DeltaLog

pytestmark = pytest.mark.spark


def _gone(*_):
    raise ConnectionRefusedError("the session has ended")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM delta.`{}` WHERE id = 1",
        "UPDATE delta.`{}` SET id = 9 WHERE id = 1",
        "MERGE INTO delta.`{}` t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    ],
)
def test_a_statement_that_has_committed_does_not_say_that_it_failed(spark, tmp_path, monkeypatch, statement):
    path = str(tmp_path / "t")
    spark.range(3).write.format("delta").save(path)
    monkeypatch.setattr(change, "counts_frame", _gone)
    with pytest.raises(CommittedError, match=r"Version 1 was committed.*the session has ended"):
        spark.sql(statement.format(path)).collect()
    assert DeltaLog.for_table(path).update().version == 1
    assert spark.read.format("delta").load(path).where("id = 1").count() == 0


def test_a_write_is_done_though_its_caches_could_not_be_renewed(spark, tmp_path, monkeypatch, caplog):
    path = str(tmp_path / "t")
    spark.range(3).write.format("delta").save(path)
    monkeypatch.setattr(engine, "refresh_caches", _gone)
    spark.range(3, 5).write.format("delta").mode("append").save(path)
    monkeypatch.undo()
    assert spark.read.format("delta").load(path).count() == 5
    assert "Version 1 was committed, but Spark could not be notified: the session has ended" in caplog.text
