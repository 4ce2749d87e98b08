"""CONVERT without Spark: which files count, what their folders' names say, what the commit holds."""

from __future__ import annotations

import itertools
import json

import pytest

from pydelta.commands.convert import (
    FileStatistics,
    data_files,
    merged_schema,
    partition_values,
)
from pydelta.errors import InvalidArgumentError, SchemaError, TableNotFoundError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.protocol.schema import parse_schema
from pydelta.storage.interface import ObjectInfo
from pydelta.storage.memory import MemoryStore
from pydelta.testing.commands import convert_to_delta

_NAMES = itertools.count()


def schema(**types):
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    return parse_schema(json.dumps({"type": "struct", "fields": fields}))


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("part-0.parquet", True),
        ("p=1/part-0.parquet", True),
        ("_p=1/part-0.parquet", True),
        ("deep/down/x", True),
        ("_SUCCESS", False),
        (".part-0.parquet.crc", False),
        ("p=1/_temporary/0/part-0.parquet", False),
        ("_delta_log/00000000000000000000.json", False),
        (".hive-staging/p=1/part-0.parquet", False),
    ],
)
def test_hidden_names_do_not_count(path, counts):
    item = ObjectInfo(path=path, size=1, modification_time_ms=1)
    assert data_files([item]) == ([item] if counts else [])


def test_the_output_of_a_stream_is_refused():
    with pytest.raises(UnsupportedFeatureError, match="_spark_metadata"):
        data_files([ObjectInfo(path="_spark_metadata/0", size=1, modification_time_ms=1)])


@pytest.mark.parametrize(
    ("folder", "types", "expected"),
    [
        ("", {}, {}),
        ("any/where", {}, {}),
        ("p=1", {"p": "integer"}, {"p": "1"}),
        ("p=01", {"p": "integer"}, {"p": "1"}),
        ("p=01", {"p": "string"}, {"p": "01"}),
        ("P=1", {"p": "integer"}, {"p": "1"}),
        ("p=__HIVE_DEFAULT_PARTITION__", {"p": "integer"}, {"p": None}),
        ("p=", {"p": "string"}, {"p": None}),
        ("day=2024-01-02/n=a%2Fb%3D50%25", {"day": "date", "n": "string"}, {"day": "2024-01-02", "n": "a/b=50%"}),
        ("at=2024-01-01 00%3A00%3A00", {"at": "timestamp"}, {"at": "2024-01-01T05:00:00.000000Z"}),
        ("d=1.50", {"d": "decimal(5,2)"}, {"d": "1.50"}),
    ],
)  # fmt: skip
def test_values_in_folders_names(folder, types, expected):
    path = f"{folder}/part-0.parquet" if folder else "part-0.parquet"
    assert partition_values([path, path], schema(**types), time_zone="America/New_York") == [expected, expected]


@pytest.mark.parametrize(
    ("folder", "types", "error", "said"),
    [
        ("p=1", {}, InvalidArgumentError, "columns p, but expected were none"),
        ("", {"p": "integer"}, InvalidArgumentError, "columns none, but expected were p integer"),
        ("q=1", {"p": "integer"}, InvalidArgumentError, "columns q"),
        ("q=1/p=2", {"p": "integer", "q": "integer"}, InvalidArgumentError, "columns q, p"),
        ("p=one", {"p": "integer"}, SchemaError, "'one'"),
        ("p=2024-13-01", {"p": "date"}, SchemaError, "not a valid date"),
    ],
)
def test_names_that_do_not_fit(folder, types, error, said):
    with pytest.raises(error, match=said) as caught:
        partition_values([f"{folder}/x" if folder else "x"], schema(**types))
    assert caught.value.hint


def test_folders_of_more_columns_and_of_others_have_conditions_of_their_own():
    for folder, types, condition in (
        ("p=1", {}, "DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME"),
        ("q=1", {"p": "integer"}, "DELTA_UNEXPECTED_PARTITION_COLUMN_FROM_FILE_NAME"),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            partition_values([f"{folder}/x"], schema(**types))
        assert caught.value.code == condition


def test_partition_columns_come_last_unless_files_hold_them():
    data, partitions = schema(p="string", a="long"), schema(p="integer", q="date")
    assert [(f.name, str(f.data_type)) for f in merged_schema(data, partitions).fields] == [
        ("p", "integer"), ("a", "long"), ("q", "date"),
    ]  # fmt: skip


class Footers:
    """Says that each file has three rows."""

    def __init__(self):
        self.asked = []

    def schema(self, log):
        return schema(a="long")

    def statistics(self, log, files, schema, properties):
        self.asked.append(schema.names)
        return [FileStatistics(path=item.path, stats='{"numRecords":3}') for item in files]


def test_the_first_version_names_every_file_and_a_second_run_changes_nothing():
    log = DeltaLog(MemoryStore(f"memory://converts{next(_NAMES)}/t"))
    for path in ("p=1/a b.parquet", "p=2/c.parquet", "_SUCCESS"):
        log.store.put(path, b"12345")
    footers = Footers()
    result = convert_to_delta(log, footers, partition_schema=schema(p="integer"))
    assert (result.version, result.num_converted_files) == (0, 2)
    snapshot = log.update()
    assert snapshot.partition_columns == ("p",)
    assert list(snapshot.schema.names) == ["a", "p"]
    adds = {add.path: add for add in snapshot.files.adds(snapshot.files.core)}
    assert set(adds) == {"p=1/a%20b.parquet", "p=2/c.parquet"}
    assert adds["p=2/c.parquet"].partition_values == {"p": "2"}
    assert adds["p=2/c.parquet"].stats == '{"numRecords":3}'
    assert {add.size for add in adds.values()} == {5}
    assert [list(names) for names in footers.asked] == [["a"]]
    info = log.history(1)[0].commit_info.fields
    assert info["operation"] == "CONVERT"
    assert info["operationParameters"] == {
        "numFiles": "2", "partitionedBy": '["p"]', "collectStats": "true", "sourceFormat": "parquet",
    }  # fmt: skip
    assert info["operationMetrics"] == {"numConvertedFiles": "2"}
    assert convert_to_delta(log, footers).version is None
    assert log.update().version == 0


def test_without_statistics_no_footer_is_read_for_them():
    log = DeltaLog(MemoryStore(f"memory://converts{next(_NAMES)}/t"))
    log.store.put("a.parquet", b"12345")
    footers = Footers()
    convert_to_delta(log, footers, collect_statistics=False)
    assert footers.asked == []


def test_an_empty_folder_is_no_table():
    log = DeltaLog(MemoryStore(f"memory://converts{next(_NAMES)}/t"))
    log.store.put("_SUCCESS", b"")
    with pytest.raises(TableNotFoundError):
        convert_to_delta(log, Footers())
    assert log.update().version == -1
