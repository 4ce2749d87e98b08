"""``jobs/ingest_stream.py`` over files and rate, and ``jobs/stream_copy.py``. Kafka is in tests/kafka."""

from __future__ import annotations

import json
import os
import signal
import threading

import pytest

from jobs import ingest_stream, stream_copy
from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError, RowsDoNotAddUpError, StreamStoppedError
from pydelta.log import DeltaLog
from pydelta.tools.ingest import apply

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def read(spark, path):
    return sorted(map(tuple, spark.read.format("delta").load(str(path)).collect()))


def files(tmp_path, form, *more):
    return ["--source", "files", "--input", str(tmp_path / "in"), "--format", form, "--table", str(tmp_path / "t"),
            "--checkpoint", str(tmp_path / "c"), *more]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    found = tmp_path / "in"
    found.mkdir()
    return found


def test_lines_of_json_are_rows_or_bad_records_with_their_file(spark, folder, tmp_path):
    (folder / "a.json").write_text('{"id": 1}\n\n{"id": 2}{"id": 3}\n{"id": "x"}\n')
    lines = []
    how = files(tmp_path, "json", "--schema", "id BIGINT", "--bad-records", "bad_lines")
    done = ingest_stream.run(spark, how, tell=lines.append)
    assert (done["rows"], done["written"], done["bad"]) == (3, 1, 2)
    assert [(line["batch"], line["version"]) for line in lines] == [(0, 1)]
    assert read(spark, tmp_path / "t") == [(1,)]
    bad = spark.table("bad_lines").selectExpr("CAST(value AS STRING)", "source").collect()
    spark.sql("DROP TABLE bad_lines")
    assert sorted(row.value for row in bad) == ['{"id": "x"}', '{"id": 2}{"id": 3}']
    assert {row.source.rsplit("/", 1)[-1] for row in bad} == {"a.json"}


def test_csv_with_columns_in_another_order_stops_the_job(spark, folder, tmp_path):
    (folder / "a.csv").write_text('id,v\n1,"x\n""y"\n2\n')
    how = files(tmp_path, "csv", "--option", "header=true", "--bad-records", str(tmp_path / "bad"))
    done = ingest_stream.run(spark, [*how, "--schema", "id BIGINT, v STRING"])
    assert (done["rows"], done["written"], done["bad"]) == (2, 1, 1)
    (folder / "b.csv").write_text("v,id\nx,1\n")
    with pytest.raises(StreamStoppedError, match="header does not conform"):
        ingest_stream.run(spark, how)
    assert read(spark, tmp_path / "t") == [(1, 'x\n"y')]


def test_rows_that_do_not_add_up_are_not_committed(spark, folder, tmp_path, monkeypatch):
    (folder / "a.json").write_text('{"id": 1}\n{"id": 2}\n')
    check = apply._check
    monkeypatch.setattr(apply, "_check", lambda metric, operation, rows: check(metric, operation, rows + 1))
    with pytest.raises(RowsDoNotAddUpError, match="has 3 rows for the table, but 2 arrived"):
        ingest_stream.run(spark, files(tmp_path, "json", "--schema", "id BIGINT"))
    assert DeltaLog.for_table(str(tmp_path / "t")).update().version == 0
    upsert = ["--source", "files", "--input", str(folder), "--table", str(tmp_path / "m"), "--checkpoint",
              str(tmp_path / "cm"), "--schema", "id BIGINT", "--merge-key", "id", "--order-by", "id"]  # fmt: skip
    with pytest.raises(RowsDoNotAddUpError, match="has 3 rows for the table, but 2 arrived"):
        ingest_stream.run(spark, upsert)
    assert DeltaLog.for_table(str(tmp_path / "m")).update().version == 0


def test_sigterm_ends_a_rate_after_a_batch(spark, tmp_path):
    lines = []

    def tell(line):
        lines.append(line)
        if line["rows"]:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    given = ["--source", "rate", "--option", "rowsPerSecond=20", "--table", str(tmp_path / "t"), "--checkpoint",
             str(tmp_path / "c"), "--trigger", "0.2"]  # fmt: skip
    limit = threading.Timer(120, os.kill, (os.getpid(), signal.SIGTERM))
    limit.start()
    done = ingest_stream.run(spark, given, tell=tell)
    limit.cancel()
    assert done["stopped"]
    assert signal.getsignal(signal.SIGTERM) is before
    assert done["rows"] == done["written"] == len(read(spark, tmp_path / "t")) > 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--topic", "a"], "does not take --topic"),
        (["--order-by", "id"], "--order-by needs --merge-key"),
        (["--changes", "debezium"], "--changes needs --merge-key"),
        (["--merge-key", "id"], "Give --order-by"),
        (["--max-per-trigger", "0"], "--max-per-trigger is 0"),
        (["--schema", "missing.json"], "missing.json cannot be read"),
        (["--schema", '{"type": "struct"}'], "cannot be read"),
        (["--partition-by", "nope", "--schema", "id INT"], "'nope'"),
        ([], "No columns can be inferred"),
    ],
)
def test_arguments_that_cannot_be_right_make_nothing(spark, folder, tmp_path, more, said):
    with pytest.raises(InvalidArgumentError) as caught:
        ingest_stream.run(spark, files(tmp_path, "json", *more))
    assert said in str(caught.value)
    assert not (tmp_path / "t").exists()
    assert not (tmp_path / "c").exists()


def test_a_missing_package_is_named_with_what_to_pass(spark, tmp_path):
    given = ["--source", "kafka", "--brokers", "127.0.0.1:9", "--topic", "a", "--table", str(tmp_path / "t"),
             "--checkpoint", str(tmp_path / "c")]  # fmt: skip
    with pytest.raises(DeltaEnvironmentError) as caught:
        ingest_stream.run(spark, given)
    assert f"--packages org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}" in str(caught.value)


def test_changes_of_a_table_are_applied_by_key(spark, tmp_path):
    source, copy = tmp_path / "s", tmp_path / "t"
    table = f"delta.`{source}`"
    spark.sql(f"CREATE TABLE {table} (id BIGINT, v STRING, deleted INT) USING delta "
              "TBLPROPERTIES (delta.enableChangeDataFeed = true)")  # fmt: skip
    spark.sql(f"INSERT INTO {table} SELECT id, 'a', 0 FROM range(5)")
    given = [
        "--from",
        str(source),
        "--table",
        str(copy),
        "--checkpoint",
        str(tmp_path / "c"),
        "--changes",
        "--merge-key",
        "id",
    ]
    assert stream_copy.run(spark, given)["written"] == 5
    spark.sql(f"UPDATE {table} SET id = 10, v = 'b' WHERE id = 1")
    spark.sql(f"DELETE FROM {table} WHERE id = 2")
    spark.sql(f"UPDATE {table} SET v = 'c' WHERE id = 3")
    lines = []
    done = stream_copy.run(spark, given, tell=lines.append)
    assert (done["rows"], done["written"], done["superseded"]) == (5, 4, 1)
    assert [lines[0][name] for name in ("inserted", "updated", "deleted")] == [1, 1, 2]
    assert 0 <= lines[0]["latency"] < 600
    assert read(spark, copy) == read(spark, source)
    spark.sql(f"INSERT INTO {table} VALUES (7, 'x', 0), (7, 'y', 0)")
    with pytest.raises(InvalidArgumentError, match="several rows with the key id = 7"):
        stream_copy.run(spark, given)


def test_a_table_is_copied_as_it_grows_and_batches_count_once(spark, tmp_path, capsys):
    source, copy = str(tmp_path / "s"), str(tmp_path / "t")
    spark.range(3).write.format("delta").save(source)
    given = ["--from", source, "--table", copy, "--checkpoint", str(tmp_path / "c")]
    assert stream_copy.main(given) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["rows"] for line in lines] == [3, 3]
    spark.range(3, 5).write.format("delta").mode("append").save(source)
    assert stream_copy.run(spark, given)["rows"] == 2
    assert read(spark, copy) == [(number,) for number in range(5)]
    for wrong, said in (
        (["--changes"], "belong together"),
        (["--merge-key", "id"], "belong together"),
        (["--changes", "--merge-key", "id", "--write-option", "mergeSchema=true"], "for appends"),
        (["--max-per-trigger", "0"], "--max-per-trigger"),
    ):
        with pytest.raises(InvalidArgumentError, match=said):
            stream_copy.run(spark, [*given, *wrong])
    assert stream_copy.main(["--from", str(tmp_path / "none"), *given[2:]]) == 1
