"""What a session's settings and the columns of a DataFrame do to a write: honoured, or refused with what to do."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from pyspark.errors import AnalysisException

import pydelta
from pydelta.errors import (
    ConstraintViolatedError,
    DeltaError,
    InvalidArgumentError,
    SchemaError,
    SchemaMismatchError,
    UnknownSettingError,
)
from pydelta.log import DeltaLog

pytestmark = pytest.mark.spark

DELTA = "spark.databricks.delta."
TXN = DELTA + "write.txn"


@contextmanager
def settings(spark, **given):
    """Session settings of the reference, by name with ``__`` for ``.``; what was there comes back."""
    keys = {DELTA + name.replace("__", "."): value for name, value in given.items()}
    before = {key: spark.conf.get(key, None) for key in keys}
    for key, value in keys.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)


def load(spark, path):
    return sorted(tuple(row) for row in spark.read.format("delta").load(path).collect())


def version_of(path):
    return DeltaLog.for_table(path).update().version


@pytest.fixture
def path(spark, tmp_path):
    location = str(tmp_path / "t")
    rows = [(1, "a"), (2, "a"), (3, "b")]
    spark.createDataFrame(rows, "id int, p string").write.format("delta").partitionBy("p").save(location)
    return location


def one(spark, number, part="a"):
    return spark.createDataFrame([(number, part)], "id int, p string")


# --- the session's transaction --------------------------------------------------------------------------------


def test_a_session_commits_each_version_of_its_application_once(spark, path):
    with settings(spark, write__txnAppId="job", write__txnVersion="7"):
        for number in (10, 11):
            one(spark, number).write.format("delta").mode("append").save(path)
        assert version_of(path) == 1
        spark.conf.set(TXN + "Version", "8")
        spark.sql(f"INSERT INTO delta.`{path}` VALUES (12, 'a')")
        spark.sql(f"INSERT OVERWRITE delta.`{path}` VALUES (13, 'a')")
        spark.conf.set(TXN + "Version", "6")
        one(spark, 14).writeTo(f"delta.`{path}`").append()
        assert load(spark, path) == [(1, "a"), (2, "a"), (3, "b"), (10, "a"), (12, "a")]
        assert DeltaLog.for_table(path).update().set_transactions["job"].version == 8
        one(spark, 15).write.format("delta").mode("append").option("txnAppId", "own").option("txnVersion", 1).save(path)
    one(spark, 16).write.format("delta").mode("append").save(path)
    assert {row[0] for row in load(spark, path)} == {1, 2, 3, 10, 12, 15, 16}
    found = DeltaLog.for_table(path).update().set_transactions
    assert {name: item.version for name, item in found.items()} == {"job": 8, "own": 1}


def test_a_version_is_unset_after_each_commit_where_the_session_says_so(spark, path):
    with settings(spark, write__txnAppId="job", write__txnVersion="7", write__txnVersion__autoReset__enabled="true"):
        one(spark, 10).write.format("delta").mode("append").save(path)
        assert spark.conf.get(TXN + "Version", "unset") == "unset"
        with pytest.raises(InvalidArgumentError, match="belong together"):
            one(spark, 11).write.format("delta").mode("append").save(path)
    assert version_of(path) == 1


@pytest.mark.parametrize("given", [{"write__txnAppId": "job"}, {"write__txnVersion": "7"}])
def test_half_a_transaction_in_the_session_is_refused(spark, path, given):
    with settings(spark, **given), pytest.raises(InvalidArgumentError, match="belong together"):
        one(spark, 10).write.format("delta").mode("append").save(path)
    assert version_of(path) == 0


# --- replaceWhere ---------------------------------------------------------------------------------------------


def replace(spark, path, condition, *rows):
    frame = spark.createDataFrame(list(rows), "id int, p string")
    frame.write.format("delta").mode("overwrite").option("replaceWhere", condition).save(path)


def test_replace_where_over_data_columns_can_be_forbidden(spark, path):
    with settings(spark, replaceWhere__dataColumns__enabled="false"):
        with pytest.raises(InvalidArgumentError, match=r"replaceWhere names id, and the table is partitioned by p"):
            replace(spark, path, "id = 1", (1, "a"))
        assert version_of(path) == 0
        replace(spark, path, "p = 'b'", (30, "b"))
    assert load(spark, path) == [(1, "a"), (2, "a"), (30, "b")]
    replace(spark, path, "id = 1", (1, "z"))
    assert load(spark, path) == [(1, "z"), (2, "a"), (30, "b")]


def test_rows_outside_of_replace_where_are_taken_where_the_session_says_so(spark, path):
    with pytest.raises(ConstraintViolatedError):
        replace(spark, path, "p = 'b'", (30, "b"), (31, "a"))
    assert version_of(path) == 0
    with settings(spark, replaceWhere__constraintCheck__enabled="false"):
        replace(spark, path, "p = 'b'", (30, "b"), (31, "a"))
    assert load(spark, path) == [(1, "a"), (2, "a"), (30, "b"), (31, "a")]


# --- settings that are not supported ----------------------------------------------------------------------------


def test_a_setting_that_would_change_what_is_written_is_refused_at_each_command_and_when_enabled(spark, path):
    with settings(spark, write__dataFilesToSubdir="true"):
        for run in (
            lambda: one(spark, 10).write.format("delta").mode("append").save(path),
            lambda: spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 1"),
            lambda: pydelta.enable(spark),
        ):
            with pytest.raises(InvalidArgumentError, match=r"dataFilesToSubdir is 'true'") as caught:
                run()
            assert "spark.conf.unset" in caught.value.hint
    with settings(spark, write__txnAppid="x"), pytest.raises(UnknownSettingError, match="txnAppId"):
        one(spark, 10).write.format("delta").mode("append").save(path)
    assert version_of(path) == 0
    assert load(spark, path) == [(1, "a"), (2, "a"), (3, "b")]


def test_an_unknown_option_of_a_writer_is_an_error_on_every_way_to_write(spark, path):
    name = f"delta.`{path}`"
    frame = one(spark, 10)
    for run in (
        lambda: frame.write.format("delta").mode("append").option("frobnicate", "1").save(path),
        lambda: frame.write.format("delta").mode("append").save(path, frobnicate="1"),
        lambda: frame.write.option("frobnicate", "1").insertInto(name),
        lambda: frame.writeTo(name).option("frobnicate", "1").append(),
    ):
        with pytest.raises(InvalidArgumentError, match="Unknown write option 'frobnicate'"):
            run()
    assert version_of(path) == 0
    frame.write.format("delta").mode("append").option("parquet.block.size", "1000").save(path)
    assert version_of(path) == 1


# --- columns ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["1 AS id, 2 AS id, 'a' AS p", "1 AS id, 2 AS ID, 'a' AS p"])
@pytest.mark.parametrize("options", [{}, {"mergeSchema": "true"}, {"overwriteSchema": "true"}])
def test_a_column_twice_in_the_data_is_refused_by_name(spark, path, tmp_path, text, options):
    frame = spark.sql(f"SELECT {text}")
    mode = "overwrite" if "overwriteSchema" in options else "append"
    for location in (path, str(tmp_path / "new")):
        with pytest.raises(SchemaError, match=r"'(id|ID)'") as caught:
            frame.write.format("delta").mode(mode).options(**options).save(location)
        assert "twice" in str(caught.value) or "same name" in str(caught.value)
        assert isinstance(caught.value, AnalysisException)
    assert version_of(path) == 0
    assert not (tmp_path / "new" / "_delta_log").exists()


@pytest.mark.parametrize("text", ["1", "1, 'a', 3", "1 AS id, 'a' AS p, 'b' AS p"])
def test_too_few_or_too_many_columns_by_position_are_refused_with_both_schemas(spark, path, text):
    name = f"delta.`{path}`"
    frame = spark.sql(f"SELECT {text}")
    count = len(frame.columns)
    for run in (lambda: frame.write.insertInto(name), lambda: spark.sql(f"INSERT INTO {name} SELECT {text}")):
        with pytest.raises(SchemaMismatchError, match=f"The table has 2 columns and the data has {count}") as caught:
            run()
        assert "Table schema:" in str(caught.value)
        assert "Data schema:" in str(caught.value)
        assert isinstance(caught.value, DeltaError)
    assert version_of(path) == 0
