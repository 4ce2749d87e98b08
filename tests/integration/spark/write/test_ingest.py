"""``jobs/ingest.py``: files in, a table out, one line of JSON, an exit code."""

from __future__ import annotations

import csv as csv_module
import gzip
import io
import json
import random
import shutil
import socket
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException

from jobs import ingest
from pydelta.errors import ConcurrentAppendException, InvalidArgumentError, SchemaMismatchError, StorageError
from pydelta.log import DeltaLog
from pydelta.tools.lineage import job_run

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


def test_lineage_names_each_input_and_the_table(spark, csv, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENLINEAGE_URL", (tmp_path / "events").as_uri())
    other = Path(shutil.copy(csv, tmp_path / "more.csv"))
    with job_run("ingest", lambda: None):
        ingest.run(spark, ["--input", csv, str(other), *arguments(csv, str(tmp_path / "t"))[2:]])
    lines = [line for file in (tmp_path / "events").iterdir() for line in file.read_text().splitlines()]
    last = next(event for event in map(json.loads, lines) if event["eventType"] == "COMPLETE")
    assert sorted(item["name"] for item in last["inputs"]) == sorted([csv, str(other)])
    assert [item["name"] for item in last["outputs"]] == [str(tmp_path / "t")]


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
        "table": table, "version": 0, "skipped": False, "files": 1, "rows": 2, "bad": 0, "suppressed": 0,
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


MESSY = '\ufeffid,name,note\r\n1,"Zürich","two\r\nlines"\r\n2,"quote ""here""",""\r\n\r\n3,"東京",\r\n'
BAD = "id,name,at\n1,a,2024-01-01 10:00:00\nx,b,\n3\n"
TYPES = ("--schema", "id BIGINT, name STRING, at TIMESTAMP")


def file(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text.encode())
    return str(path)


def rows(spark, table):
    return sorted(tuple(row) for row in spark.read.format("delta").load(table).collect())


def load(spark, table, path, *more, form="csv"):
    header = ["--option", "header=true"] if form == "csv" else []
    return ingest.run(spark, ["--input", path, "--format", form, "--table", table, *header, *more])


def test_values_in_quotes_keep_their_line_breaks_commas_and_quotes(spark, tmp_path):
    table = str(tmp_path / "t")
    assert load(spark, table, file(tmp_path, "m.csv", MESSY)).rows == 3
    assert sorted(map(tuple, spark.read.format("delta").load(table).collect()), key=lambda row: row[0]) == [
        ("1", "Zürich", "two\r\nlines"), ("2", 'quote "here"', ""), ("3", "東京", None),
    ]  # fmt: skip


def test_generated_files_of_one_folder_have_the_rows_of_the_csv_module(spark, tmp_path):
    (tmp_path / "in").mkdir()
    wanted = []
    for seed in (7, 1204, *range(30_000, 30_040)):
        chosen = random.Random(seed)
        names = chosen.sample(["a", "b", "c"], k=3)
        found = [["".join(chosen.choices('ab",\n\r é東', k=chosen.randint(0, 5))) for _ in names]
                 for _ in range(chosen.randint(0, 8))]  # fmt: skip
        text = io.StringIO(newline="")
        csv_module.writer(
            text, quoting=csv_module.QUOTE_ALL, lineterminator=chosen.choice(["\n", "\r\n", "\r"])
        ).writerows([names, *found])
        file(tmp_path, f"in/{seed}.csv", text.getvalue())
        wanted += [
            (row["a"], row["b"], row["c"]) for row in csv_module.DictReader(io.StringIO(text.getvalue(), newline=""))
        ]
    table = str(tmp_path / "t")
    load(spark, table, str(tmp_path / "in"), "--schema", "a STRING, b STRING, c STRING")
    assert rows(spark, table) == sorted(wanted)


def test_rows_that_do_not_fit_are_counted_and_fail_the_job(spark, tmp_path):
    path = file(tmp_path, "b.csv", BAD)
    with pytest.raises(SchemaMismatchError) as caught:
        load(spark, str(tmp_path / "t"), path, *TYPES)
    assert "2 of 3 rows do not fit, so nothing was written. One of them: file:" in str(caught.value)
    assert "b.csv, line 3, column id: 'x' is not a whole number of type long." in str(caught.value)
    assert not (tmp_path / "t").exists()


def test_rows_that_do_not_fit_go_to_a_table_by_place_or_by_name_once_per_batch(spark, tmp_path):
    path = file(tmp_path, "b.csv", BAD)
    wanted = [(3, "id", b"x,b,"), (4, "name", b"3")]
    place = str(tmp_path / "bad")
    result = load(spark, str(tmp_path / "t"), path, *TYPES, "--bad-records", place)
    assert (result.rows, result.bad) == (1, 2)
    assert [
        (r.line, r.column, bytes(r.value)) for r in spark.read.load(place, "delta").orderBy("line").collect()
    ] == wanted
    try:
        for _ in range(2):
            load(spark, "kept_rows", path, *TYPES, "--bad-records", "bad_rows", "--batch-id", "nightly:1")
        assert spark.table("kept_rows").count() == 1
        found = spark.table("bad_rows").orderBy("line").collect()
        assert [(row.line, row.column, bytes(row.value)) for row in found] == wanted
        with pytest.raises(InvalidArgumentError, match="the table itself"):
            load(spark, "kept_rows", path, *TYPES, "--bad-records", "kept_rows")
    finally:
        spark.sql("DROP TABLE IF EXISTS kept_rows")
        spark.sql("DROP TABLE IF EXISTS bad_rows")


def test_options_that_only_spark_reads_count_what_does_not_fit_too(spark, tmp_path):
    path = file(tmp_path, "b.csv", "id;name;at\n1;a;01.02.2024 10:00\nx;'b\n;c';\n3\n")
    how = ("--option", "sep=;", "--option", "quote='", "--option", "timestampFormat=dd.MM.yyyy HH:mm")
    with pytest.raises(SchemaMismatchError, match="2 of 3 rows do not fit"):
        load(spark, str(tmp_path / "t"), path, *TYPES, *how)
    result = load(spark, str(tmp_path / "t"), path, *TYPES, *how, "--bad-records", str(tmp_path / "bad"))
    assert (result.rows, result.bad) == (1, 2)
    assert rows(spark, str(tmp_path / "t"))[0][:2] == (1, "a")


def test_files_whose_header_is_another_are_refused_with_their_name(spark, tmp_path):
    (tmp_path / "in").mkdir()
    file(tmp_path, "in/a.csv", "id,name\n1,a\n")
    file(tmp_path, "in/b.csv", "id,nom\n2,b\n")
    for more in ((), ("--bad-records", str(tmp_path / "bad"))):
        with pytest.raises(SchemaMismatchError, match=r"in/b\.csv, line 1: the header is id, nom, but the columns are"):
            load(spark, str(tmp_path / "t"), str(tmp_path / "in"), *more)
    assert not (tmp_path / "t").exists() and not (tmp_path / "bad").exists()


def test_lines_of_json_that_do_not_fit_are_told_and_numbers_keep_their_digits(spark, tmp_path):
    path = file(tmp_path, "j.json", '{"id": 9007199254740993}\n{"id": 1, "z": 2}\nnonsense\n{"id": 2, "id": 3}\n')
    with pytest.raises(SchemaMismatchError, match="3 of 4 rows do not fit"):
        load(spark, str(tmp_path / "t"), path, "--schema", "id BIGINT", form="json")
    bad = str(tmp_path / "bad")
    result = load(spark, str(tmp_path / "t"), path, "--schema", "id BIGINT", "--bad-records", bad, form="json")
    assert (result.rows, result.bad) == (1, 3)
    assert rows(spark, str(tmp_path / "t")) == [(9007199254740993,)]


def test_folders_name_columns_and_empty_or_packed_files_are_read(spark, tmp_path):
    for day, text in (("2024-01-01", "id\n1\n"), ("2024-01-02", "")):
        (tmp_path / "in" / f"day={day}").mkdir(parents=True)
        file(tmp_path, f"in/day={day}/x.csv", text)
    (tmp_path / "in/day=2024-01-02/y.csv.gz").write_bytes(gzip.compress(b"id\n2\n"))
    load(spark, str(tmp_path / "t"), str(tmp_path / "in"))
    assert [(row[0], str(row[1])) for row in rows(spark, str(tmp_path / "t"))] == [
        ("1", "2024-01-01"),
        ("2", "2024-01-02"),
    ]
