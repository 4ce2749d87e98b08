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


VECTORS = "delta.enableDeletionVectors"
COMMANDS = {
    "delete": "DELETE FROM {t} WHERE id < {n}",
    "delete of a partition": "DELETE FROM {t} WHERE p = 'a' AND {n} > 0",
    "truncate": "TRUNCATE TABLE {t}",
    "update": "UPDATE {t} SET id = id + 100 WHERE id < {n}",
    "merge": "MERGE INTO {t} t USING (SELECT 1 AS id, 'a' AS p UNION ALL SELECT {n}, 'c') s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET id = t.id + 100 WHEN NOT MATCHED THEN INSERT *",
}


@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_committed_once_for_a_version(spark, path, command, vectors):
    name = f"delta.`{path}`"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{VECTORS}' = '{vectors}')")
    with settings(spark, write__txnAppId="job", write__txnVersion="7"):
        assert len(spark.sql(COMMANDS[command].format(t=name, n=3)).collect()) == (command != "truncate")
        after = load(spark, path)
        assert after != [(1, "a"), (2, "a"), (3, "b")]
        spark.sql(f"INSERT INTO {name} VALUES (0, 'a')")  # the same version: nothing
        for version in ("7", "6"):
            spark.conf.set(TXN + "Version", version)
            assert spark.sql(COMMANDS[command].format(t=name, n=1000)).collect() == []
        assert version_of(path) == 2
        assert load(spark, path) == after
        assert DeltaLog.for_table(path).update().set_transactions["job"].version == 7
        spark.conf.set(TXN + "Version", "8")
        spark.sql(f"INSERT INTO {name} VALUES (0, 'a')")
        spark.conf.set(TXN + "Version", "9")
        spark.sql(COMMANDS[command].format(t=name, n=2000))
        assert version_of(path) == 4
    assert DeltaLog.for_table(path).update().set_transactions["job"].version == 9


def test_commands_of_the_python_api_say_that_they_were_skipped(spark, path):
    table = pydelta.DeltaTable.forPath(spark, path)
    with settings(spark, write__txnAppId="job", write__txnVersion="7"):
        first = table.update("id = 1", {"id": "10"})
        assert (first.version, first.skipped) == (1, False)
        deleted, updated = table.delete("id = 2"), table.update(None, {"id": "0"})
        merging = table.alias("t").merge(one(spark, 3).alias("s"), "t.id = s.id").whenMatchedDelete()
        merged = merging.run()
        for result in (deleted, updated, merged):
            assert (result.version, result.skipped) == (None, True)
        assert (deleted.num_deleted_rows, updated.num_updated_rows, merged.num_deleted_rows) == (0, 0, 0)
        assert merging.execute().collect() == []
    assert version_of(path) == 1
    assert not table.delete("id = 2").skipped
    assert load(spark, path) == [(3, "b"), (10, "a")]


def test_commands_that_change_nothing_use_a_version_up_as_the_reference_does(spark, path):
    name = f"delta.`{path}`"
    with settings(spark, write__txnAppId="job", write__txnVersion="7"):
        assert spark.sql(f"DELETE FROM {name} WHERE id = 99").first()[0] == 0
        assert version_of(path) == 0
        assert spark.sql(f"UPDATE {name} SET id = 0 WHERE id = 99").first()[0] == 0
        assert version_of(path) == 1
        spark.conf.set(TXN + "Version", "8")
        merge = f"MERGE INTO {name} t USING (SELECT 99 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"
        assert spark.sql(merge).first()[0] == 0
        assert version_of(path) == 2
        assert spark.sql(merge).collect() == []
    assert DeltaLog.for_table(path).update().set_transactions["job"].version == 8
    assert load(spark, path) == [(1, "a"), (2, "a"), (3, "b")]


def test_a_version_is_unset_after_each_command_that_used_it(spark, path):
    name = f"delta.`{path}`"
    with settings(spark, write__txnAppId="job", write__txnVersion__autoReset__enabled="true"):
        for number, text in enumerate(
            (f"DELETE FROM {name} WHERE id = 1", f"UPDATE {name} SET id = 9 WHERE id = 2", f"TRUNCATE TABLE {name}")
        ):
            for _ in range(2):  # committed, then skipped
                spark.conf.set(TXN + "Version", str(number))
                spark.sql(text)
                assert spark.conf.get(TXN + "Version", "unset") == "unset"
            with pytest.raises(InvalidArgumentError, match="belong together"):
                spark.sql(text)
    assert version_of(path) == 3


# --- replaceWhere ---------------------------------------------------------------------------------------------


def replace(spark, path, condition, *rows):
    frame = spark.createDataFrame(list(rows), "id int, p string")
    frame.write.format("delta").mode("overwrite").option("replaceWhere", condition).save(path)


def test_replace_where_over_data_columns_can_be_forbidden(spark, path):
    with settings(spark, replaceWhere__dataColumns__enabled="false"):
        with pytest.raises(InvalidArgumentError, match=r"replaceWhere names id, but the table is partitioned by p"):
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


def test_an_unknown_option_is_a_warning_and_a_misspelt_one_an_error_on_every_way_to_write(spark, path):
    name = f"delta.`{path}`"
    frame = one(spark, 10)
    for option, seen in (
        ("frobnicate", pytest.warns(UserWarning, match="write option 'frobnicate' is ignored")),
        ("mergeShcema", pytest.raises(InvalidArgumentError, match="Did you mean 'mergeSchema'")),
    ):
        before = version_of(path)
        for run in (
            lambda option=option: frame.write.format("delta").mode("append").option(option, "1").save(path),
            lambda option=option: frame.write.format("delta").mode("append").save(path, **{option: "1"}),
            lambda option=option: frame.write.option(option, "1").insertInto(name),
            lambda option=option: frame.writeTo(name).option(option, "1").append(),
        ):
            with seen:
                run()
        assert version_of(path) == before + (4 if option == "frobnicate" else 0)
    frame.write.format("delta").mode("append").option("parquet.block.size", "1000").save(path)


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
