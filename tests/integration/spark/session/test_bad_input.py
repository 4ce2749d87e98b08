"""What a user sees when something is wrong: the cause by name, and nothing changed."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, ParseException

from pydelta.errors import (
    DeltaError,
    InvalidArgumentError,
    LogCorruptedError,
    LogGapError,
    SchemaMismatchError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = [pytest.mark.spark, pytest.mark.damages_tables]


@pytest.fixture
def path(spark, tmp_path):
    """Thirteen versions: a checkpoint at 10, commits to 12."""
    location = str(tmp_path / "t")
    for number in range(13):
        spark.range(number, number + 1).coalesce(1).write.format("delta").mode("append").save(location)
    DeltaLog.clear_cache()
    return location


def _commit(path: str, version: int) -> Path:
    return Path(path) / "_delta_log" / f"{version:020d}.json"


def _checkpoint(path: str, version: int) -> Path:
    return Path(path) / "_delta_log" / f"{version:020d}.checkpoint.parquet"


def _read(spark, path, **options):
    return spark.read.format("delta").options(**options).load(path)


def _raises(kind, run, *words):
    with pytest.raises(kind) as caught:
        run()
    assert isinstance(caught.value, DeltaError)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert caught.value.hint
    return caught.value


def test_a_path_that_does_not_exist_and_one_that_is_no_table(spark, tmp_path):
    plain = tmp_path / "plain"
    spark.range(3).write.parquet(str(plain))
    for location in (str(tmp_path / "nothing"), str(plain)):
        for run in (partial(_read, spark, location), partial(DeltaTable.forPath, spark, location)):
            error = _raises(TableNotFoundError, run, location)
            assert isinstance(error, AnalysisException)
        assert not DeltaTable.isDeltaTable(spark, location)
    assert not (plain / "_delta_log").exists()


def test_a_hole_in_the_log_names_the_missing_version(spark, path):
    _commit(path, 11).unlink()
    error = _raises(LogGapError, lambda: _read(spark, path), "11")
    assert error.missing_versions == (11,)
    DeltaLog.clear_cache()
    assert _read(spark, path, versionAsOf=10).count() == 11


def test_a_truncated_commit_names_the_file_and_the_line(spark, path):
    text = _commit(path, 12).read_bytes()
    _commit(path, 12).write_bytes(text[: len(text) // 2])
    _raises(LogCorruptedError, lambda: _read(spark, path), f"{12:020d}.json")


def test_a_truncated_checkpoint_is_bypassed_while_the_log_reaches_back(spark, path):
    data = _checkpoint(path, 10).read_bytes()
    _checkpoint(path, 10).write_bytes(data[: len(data) // 2])
    assert _read(spark, path).count() == 13
    for version in range(3):
        _commit(path, version).unlink()
    DeltaLog.clear_cache()
    with pytest.raises(DeltaError) as caught:
        _read(spark, path)
    assert "checkpoint" in str(caught.value)


@pytest.mark.parametrize("hint", [b"", b"{", b'{"version":99,"size":1}', b'{"version":10,"size":1', b"[]"])
def test_a_hint_that_is_wrong_changes_nothing(spark, path, hint):
    (Path(path) / "_delta_log" / "_last_checkpoint").write_bytes(hint)
    assert _read(spark, path).count() == 13


def _add_protocol(path: str, **protocol) -> None:
    _commit(path, 13).write_text(json.dumps({"protocol": protocol}) + "\n")


def test_an_unknown_reader_feature_is_named(spark, path):
    features = ["deletionVectors", "someFutureThing", "anotherOne"]
    _add_protocol(path, minReaderVersion=3, minWriterVersion=7, readerFeatures=features, writerFeatures=features)
    _raises(UnsupportedFeatureError, lambda: _read(spark, path), "anotherOne, someFutureThing", "read")


def test_an_unknown_writer_feature_lets_read_and_refuses_to_write(spark, path):
    _add_protocol(path, minReaderVersion=1, minWriterVersion=7, writerFeatures=["someFutureThing"])
    assert _read(spark, path).count() == 13
    before = sorted(Path(path).rglob("*"))
    append = spark.range(1).write.format("delta").mode("append").save
    _raises(UnsupportedFeatureError, lambda: append(path), "someFutureThing", "write")
    _raises(UnsupportedFeatureError, lambda: DeltaTable.forPath(spark, path).delete("id = 1"), "someFutureThing")
    assert sorted(Path(path).rglob("*")) == before


def test_a_version_outside_of_the_log_names_the_range(spark, path):
    for version in range(3):
        _commit(path, version).unlink()
    _raises(VersionNotFoundError, lambda: _read(spark, path, versionAsOf=2), "10", "12")
    _raises(VersionNotFoundError, lambda: _read(spark, path, versionAsOf=99), "12")
    _raises(VersionNotFoundError, lambda: _read(spark, path, timestampAsOf="1999-01-01"), "before")
    _raises(VersionNotFoundError, lambda: _read(spark, path, timestampAsOf="2999-01-01"), "after")
    _raises(VersionNotFoundError, lambda: DeltaTable.forPath(spark, path).restoreToVersion(2))


def test_a_schema_that_does_not_fit_shows_both_and_the_column(spark, path):
    version = DeltaLog.for_table(path).update().version
    frame = spark.range(1).selectExpr("cast(id as string) as id", "id as more")
    append = frame.write.format("delta").mode("append").save
    error = _raises(SchemaMismatchError, lambda: append(path), "'more'", "Table schema", "Data schema", "mergeSchema")
    assert isinstance(error, AnalysisException)
    assert DeltaLog.for_table(path).update().version == version


def test_no_message_shows_a_stack_of_java(spark, tmp_path, path):
    for run in (
        lambda: _read(spark, str(tmp_path / "nothing")),
        lambda: DeltaTable.forPath(spark, path).delete("nope = 1"),
        lambda: DeltaTable.forPath(spark, path).delete("id = "),
        lambda: _read(spark, path, versionAsOf=99),
    ):
        with pytest.raises(DeltaError) as caught:
            run()
        assert "\tat " not in str(caught.value)
        assert "JVM stacktrace" not in str(caught.value)


@pytest.mark.parametrize("versions", [("1", 4), (1, "4"), (1.0, 4), (True, 4)])
def test_a_version_of_the_protocol_is_a_whole_number(spark, tmp_path, versions):
    path = str(tmp_path / "t")
    spark.range(1).write.format("delta").save(path)
    with pytest.raises(InvalidArgumentError, match=r"Version (is .* whole number|needs to be an int)"):
        DeltaTable.forPath(spark, path).upgradeTableProtocol(*versions)


def test_a_column_of_a_type_that_there_is_not_is_what_spark_calls_it(spark):
    with pytest.raises(ParseException, match="'nope' of column 'id' is not an SQL type") as caught:
        DeltaTable.create(spark).tableName("none").addColumn("id", "nope")
    assert caught.value.getCondition() == "UNSUPPORTED_DATATYPE"
