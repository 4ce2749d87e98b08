"""``jobs/ingest.py``: files in, a table out, one line of JSON, an exit code."""

from __future__ import annotations

import json
import socket

import pytest
from pyspark.errors import AnalysisException

from jobs import ingest
from pydelta.errors import ConcurrentAppendException, InvalidArgumentError, StorageError
from pydelta.log import DeltaLog

pytestmark = pytest.mark.spark


@pytest.fixture
def csv(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("id,day,amount\n1,2024-01-01,1.5\n2,2024-01-02,NA\n")
    return str(file)


def arguments(csv, table, *more):
    return ["--input", csv, "--format", "csv", "--table", table, "--option", "header=true",
            "--option", "nullValue=NA", *more]  # fmt: skip


def test_a_csv_becomes_a_partitioned_table_with_the_types_asked_for(spark, csv, tmp_path):
    table = str(tmp_path / "t")
    result = ingest.run(
        spark, arguments(csv, table, "--cast", "id:bigint", "--cast", "amount:decimal(9,2)", "--partition-by", "day")
    )
    assert (result.version, result.rows, result.skipped) == (0, 2, False)
    snapshot = DeltaLog.for_table(table).update()
    assert str(snapshot.schema) == "struct<id:long,day:string,amount:decimal(9,2)>"
    assert snapshot.partition_columns == ("day",)
    assert spark.read.format("delta").load(table).where("amount is null").count() == 1


def test_a_batch_counts_once(spark, csv, tmp_path):
    table = str(tmp_path / "t")
    first, again, next_one = (
        ingest.run(spark, arguments(csv, table, "--batch-id", f"nightly:{number}")) for number in (1, 1, 2)
    )
    assert (first.version, again.version, next_one.version) == (0, None, 1)
    assert again.skipped
    assert spark.read.format("delta").load(table).count() == 4


def test_json_and_parquet_and_a_name_in_the_catalog(spark, tmp_path):
    spark.range(3).write.json(str(tmp_path / "j"))
    spark.range(3, 5).write.parquet(str(tmp_path / "p"))
    try:
        for source, form in (("j", "json"), ("p", "parquet")):
            ingest.run(spark, ["--input", str(tmp_path / source), "--format", form, "--table", "ingested"])
        assert sorted(row[0] for row in spark.table("ingested").collect()) == [0, 1, 2, 3, 4]
    finally:
        spark.sql("DROP TABLE IF EXISTS ingested")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--batch-id", "17"], "batch-id"),
        (["--cast", "nope:int"], "nope"),
        (["--cast", "id:integerish"], "cannot be read"),
        (["--mode", "upsert"], "upsert"),
        (["--option", "header"], "name=value"),
        (["--unheard-of"], "--help"),
    ],
)
def test_arguments_that_cannot_be_right_are_named(spark, csv, tmp_path, more, said):
    with pytest.raises(InvalidArgumentError) as caught:
        ingest.run(spark, arguments(csv, str(tmp_path / "t"), *more))
    assert said in str(caught.value)
    assert not (tmp_path / "t").exists()


def test_main_prints_one_line_and_gives_an_exit_code(spark, csv, tmp_path, capsys):
    table = str(tmp_path / "t")
    assert ingest.main(arguments(csv, table)) == 0
    assert json.loads(capsys.readouterr().out) == {
        "table": table, "version": 0, "skipped": False, "files": 1, "rows": 2,
        "bytes": DeltaLog.for_table(table).update().size_bytes,
    }  # fmt: skip
    assert ingest.main(arguments(csv, table, "--mode", "errorifexists")) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["error"] == "DELTA_PATH_EXISTS"
    assert ingest.main(["--format", "csv"]) == 1
    assert ingest.main(["--help"]) == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConcurrentAppendException("lost"), 2), (StorageError("busy", retryable=True), 2), (StorageError("gone"), 1)],
)
def test_exit_codes_tell_what_may_be_run_again(spark, csv, tmp_path, monkeypatch, capsys, error, code):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(ingest, "_write", fail)
    assert ingest.main(arguments(csv, str(tmp_path / "t"))) == code
    assert json.loads(capsys.readouterr().out)["exit_code"] == code


def test_errors_are_what_spark_users_catch(spark, tmp_path):
    with pytest.raises(AnalysisException):
        spark.read.format("delta").load(str(tmp_path / "none"))


def test_a_store_that_is_away_is_one_line_and_worth_another_try(spark, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    quick = ["--option", "ipc.client.connect.max.retries=0", "--option", "ipc.client.connect.timeout=2000"]
    where = ["--input", f"hdfs://127.0.0.1:{port}/day.csv", "--format", "csv", "--table", str(tmp_path / "t"), *quick]
    with pytest.raises(StorageError, match="The input cannot be read, since the store does not answer") as caught:
        ingest.run(spark, where)
    assert caught.value.exit_code == 2
    assert "Connection refused" in str(caught.value)
    assert "\tat " not in str(caught.value)
    assert not (tmp_path / "t").exists()
