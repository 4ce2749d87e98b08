"""What ``pydelta.LocalTable`` passes on: options, settings, time zone, text files, old names; the table in errors."""

from __future__ import annotations

import os
import re
import warnings

import polars as pl
import pyarrow as pa
import pytest

import pydelta
from pydelta.deprecation import DeltaDeprecationWarning
from pydelta.engines.arrow.text_source import TextFile
from pydelta.errors import InvalidArgumentError, SchemaMismatchError, UnsafeOperationError
from pydelta.log import DeltaLog
from pydelta.settings import Settings
from pydelta.storage.memory import MemoryStore

ROWS = pl.DataFrame({"id": [1, 2], "s": ["a", "b"]})
WRONG = {"fs.s3a.path.style.access": "perhaps"}
UNCHECKED = Settings.resolve({"spark.databricks.delta.retentionDurationCheck.enabled": "false"})


@pytest.fixture
def place(tmp_path):
    yield lambda name: str(tmp_path / name)
    DeltaLog.clear_cache()


@pytest.fixture
def table(place):
    return pydelta.LocalTable.create(place("t"), ROWS)


def rows(table, *columns):
    return sorted(pl.from_arrow(table.scan(columns=columns or None)).rows())


def test_storage_options_reach_the_store_of_each_table():
    remembered = pydelta.LocalTable(DeltaLog(MemoryStore("memory://passedon/t"), options=WRONG))
    for call in (
        lambda: pydelta.open("s3a://doors/t", options=WRONG),
        lambda: pydelta.LocalTable.create("s3a://doors/t", ROWS, options=WRONG),
        lambda: remembered.clone("s3a://doors/t"),
    ):
        with pytest.raises(InvalidArgumentError, match="is 'perhaps'"):
            call()


def test_settings_are_those_that_were_given_also_in_a_clone(table, place):
    with pytest.raises(UnsafeOperationError):
        table.vacuum(0)
    opened = pydelta.open(place("t"), settings=UNCHECKED)
    assert opened.vacuum(0).deleted == 0
    assert opened.clone(place("c")).vacuum(0).deleted == 0


def test_a_table_is_cloned_as_of_a_time_in_the_zone_it_was_opened_with(table, place):
    table.append(ROWS)
    first = table.history()[1]["timestamp"]
    assert len(rows(table.clone(place("a"), timestamp=first))) == 2
    zoned = pydelta.open(place("t"), time_zone="UTC")
    clone = zoned.clone(place("b"), timestamp=first.replace(tzinfo=None))
    assert len(rows(clone)) == 2
    made = clone.history()[0]["timestamp"]
    assert clone.restore(timestamp=made.replace(tzinfo=None)).version is None


def test_manifests_that_are_up_to_date_are_left_and_all_are_written_on_request(place):
    table = pydelta.LocalTable.create(place("t"), ROWS, partition_by="s")
    assert [len(table.generate(full=full).written) for full in (False, False, True)] == [2, 0, 2]
    assert not table.generate().written
    table.append(ROWS)
    assert len(table.generate("s = 'a'").written) == 1


def test_manifests_of_a_time_are_those_of_the_table_s_zone(place):
    at = pa.array([1_704_456_000_000_000], pa.timestamp("us", tz="UTC"))
    pydelta.LocalTable.create(place("t"), pa.table({"id": [1], "at": at}), partition_by="at")
    zoned = pydelta.open(place("t"), time_zone="Europe/Berlin")
    assert len(zoned.generate("at = '2024-01-05 13:00:00'").written) == 1


def test_an_error_names_the_table(table, place):
    twice = pa.table([[1], [2]], names=["x", "X"])
    for call in (
        lambda: pydelta.LocalTable.create(place("n"), twice),
        lambda: table.scan(columns=["s", "id", "ID"]),
        lambda: table.append(pl.DataFrame({"other": [1]})),
        lambda: table.merge(ROWS, on=5),
    ):
        with pytest.raises((InvalidArgumentError, SchemaMismatchError)) as refused:
            call()
        assert refused.value.table in (f"file://{place('n')}", f"file://{place('t')}")
    with pytest.raises(InvalidArgumentError, match="'id' is named twice"):
        table.scan(columns=["s", "id", "ID"])


def test_a_scan_opens_the_files_that_may_hold_its_rows(table, place):
    first = {name for name in os.listdir(place("t")) if name.endswith(".parquet")}
    table.append(pl.DataFrame({"id": [9], "s": ["z"]}))
    for name in first:
        os.remove(os.path.join(place("t"), name))
    assert table.scan("id = 9").num_rows == 1


def test_rows_of_a_file_of_text_come_in_and_define_no_columns(table, tmp_path):
    (tmp_path / "rows.csv").write_text("id,s\n2,B\n7,c\n")
    given = TextFile(str(tmp_path / "rows.csv"), "csv")
    assert table.merge(given, on="id").num_updated_rows == 1
    assert rows(table) == [(1, "a"), (2, "B"), (7, "c")]
    table.append(given)
    assert len(rows(table)) == 5
    with pytest.raises(InvalidArgumentError, match="cannot define the columns"):
        table.overwrite(given, overwrite_schema=True)
    with pytest.raises(InvalidArgumentError, match="overwrite_schema must be True or False"):
        table.overwrite(ROWS, overwrite_schema="yes")
    with pytest.raises(InvalidArgumentError, match="repair must be True or False"):
        table.fsck(repair="yes")
    table.overwrite(given)
    assert rows(table) == [(2, "B"), (7, "c")]


def test_rows_of_a_file_of_text_that_do_not_fit_go_to_a_table_of_their_own(table, tmp_path, place):
    (tmp_path / "rows.csv").write_text("id,s\nx,B\n7,c\n")
    table.append(TextFile(str(tmp_path / "rows.csv"), "csv", bad_records=place("bad")))
    assert rows(table, "id") == [(1,), (2,), (7,)]
    assert rows(pydelta.open(place("bad")), "line") == [(2,)]
    with pytest.raises(InvalidArgumentError, match="are nested"):
        table.append(TextFile(str(tmp_path / "rows.csv"), "csv", bad_records=place("t/bad")))


def test_the_condition_of_a_purge_has_two_names(place):
    four = pl.DataFrame({"id": [1, 2, 3, 4], "s": ["a", "a", "b", "b"]})
    vectors = {"delta.enableDeletionVectors": "true"}
    table = pydelta.LocalTable.create(place("t"), four, partition_by="s", properties=vectors)
    table.delete("id IN (1, 3)")
    with pytest.warns(DeltaDeprecationWarning):
        assert table.purge(where="s = 'a'").num_deletion_vectors_removed == 1
        assert table.purge("s = 'b'", where="s = 'a'").num_deletion_vectors_removed == 1
    assert rows(table) == [(2, "a"), (4, "b")]


def test_former_names_of_arguments_work_and_warn(table):
    for call, said in (
        (
            lambda: table.update(set={"s": "'y'"}, where="id = 2"),
            "Write update(condition=…) instead of update(where=…), which",
        ),
        (lambda: table.delete(where="s = 'a'"), "Write delete(condition=…) instead of delete(where=…), which"),
        (
            lambda: table.update({"s": "'z'"}, "id = 7"),
            "update(condition, {…}) instead of update({…}, condition), which",
        ),
        (lambda: table.update({"s": "'z'"}, where="id = 7"), "instead of update({…}, condition), which"),
        (lambda: table.purge(where="true"), "Write purge(condition=…) instead of purge(where=…), which"),
    ):
        with pytest.warns(DeltaDeprecationWarning, match=re.escape(said)):
            call()
    assert rows(table) == [(2, "y")]
    with pytest.warns(DeltaDeprecationWarning):  # The new name counts where both are given.
        table.update("id = 2", {"s": "'n'"}, where="id = 7")
        assert table.delete("id = 7", where="id = 2").num_deleted_rows == 0
    assert rows(table) == [(2, "n")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.update("id = 2", {"s": "'c'"})
        table.purge("true")
        table.delete("id = 5")
    assert rows(table) == [(2, "c")]
    table.delete()
    assert table.history(1)[0]["operationParameters"] == {"predicate": '["true"]'}
