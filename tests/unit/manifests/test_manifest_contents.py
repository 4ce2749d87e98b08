"""What a manifest says of the files of a snapshot, and which partitions commits touched: no publishing."""

from __future__ import annotations

import itertools
import json
import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_sync.thrift.client import hive_name
from pydelta.errors import LogCorruptedError, SchemaError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.log.columns import PV_PREFIX
from pydelta.log.pruning import PartitionSpec
from pydelta.manifests.changes import changed_partitions, partition_types
from pydelta.manifests.contents import (
    check_publishable,
    hive_values,
    manifest_lines,
    manifest_path,
    manifests_of,
    values_of_directory,
    with_scheme,
)
from pydelta.protocol.actions import (
    AddFile,
    CommitInfo,
    DeletionVectorDescriptor,
    Metadata,
    Protocol,
    RemoveFile,
    encode_commit,
)
from pydelta.protocol.partitions import HIVE_NULL
from pydelta.protocol.types import parse_schema, parse_type
from pydelta.storage.memory import MemoryStore

_PLACES = itertools.count()


def field(name, kind, **metadata):
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def metadata(*fields, partitioned_by=("p",), **configuration):
    text = json.dumps({"type": "struct", "fields": list(fields)})
    return Metadata(id="t", schema_string=text, partition_columns=partitioned_by, configuration=configuration)


def add(path, vector=None, **values):
    return AddFile(
        path=path, partition_values=values, size=1, modification_time=1, data_change=True, deletion_vector=vector
    )


P, X = field("p", "integer"), field("x", "long")


def snapshot(table, *files, root=None):
    store = MemoryStore(root or f"memory://contents{next(_PLACES)}/t")
    protocol = Protocol(min_reader_version=2, min_writer_version=5)
    if any(file.deletion_vector for file in files):
        features = ("deletionVectors",)
        protocol = Protocol(
            min_reader_version=3, min_writer_version=7, reader_features=features, writer_features=features
        )
    store.put("_delta_log/00000000000000000000.json", encode_commit([protocol, table, *files]))
    return DeltaLog.for_table(store.root, store=store).update()


def rendered(found, **how):
    return manifests_of(found, found.files.core, **how)


def test_a_manifest_names_each_file_once_in_order_and_each_partition_has_one():
    days = [add(f"f{number}", p=str(number)) for number in range(50, 0, -1)]
    twice = [add("s3a://o/y", p="7"), add("s3n://o/y", p="7")]  # one file to those who read the manifest
    sevens = [add(f"e{number}", p="007") for number in range(9, 0, -1)]
    found = snapshot(metadata(P, X), *sevens, *twice, add("n", p=None), *days)
    manifests = rendered(found)
    root = found.table_uri
    seven = manifests["p=7"]
    lines = [*(f"{root}/e{number}" for number in range(1, 10)), f"{root}/f7", "s3://o/y"]
    assert (seven.directory, seven.values, seven.num_files) == ("p=7", ("7",), len(lines))
    assert seven.text.decode() == "".join(f"{line}\n" for line in lines)
    assert manifests["p=__HIVE_DEFAULT_PARTITION__"].values == (None,)
    assert len(manifests) == 51
    in_order = dict.fromkeys(int(text) if text else None for text in found.files.core[PV_PREFIX + "p"].to_list())
    assert [values[0] and int(values[0]) for values in (one.values for one in manifests.values())] == list(in_order)


def test_a_table_without_partitions_has_one_manifest_and_without_files_none():
    plain = metadata(X, partitioned_by=())
    found = snapshot(plain, add("b"), add("a%20"), add("c"))
    (only,) = rendered(found).values()
    root = found.table_uri
    assert (only.directory, only.values, only.num_files) == ("", (), 3)
    assert only.text.decode() == f"{root}/a \n{root}/b\n{root}/c\n"
    assert rendered(snapshot(plain, add("s3a://o/y"), add("s3n://o/y")))[""].text == b"s3://o/y\n"
    assert rendered(snapshot(plain)) == {}


def test_locations_are_spelt_as_readers_take_them():
    files = ["x", "a%20b", "s3a://o/y", "s3n://o/z", "gs://o/w", "/abs/v", "file:/abs/w", "s3a://o/a://b", "..hidden"]
    found = snapshot(metadata(X, partitioned_by=()), *map(add, files))
    root = found.table_uri
    relative = [f"{root}/x", f"{root}/a b", f"{root}/..hidden"]
    text = rendered(found)[""].text.decode()
    absolute = ["s3://o/y", "s3://o/z", "gs://o/w", f"{root.removesuffix('/t')}/abs/v", "file:///abs/w", "s3://o/a://b"]
    assert sorted(text.splitlines()) == sorted([*relative, *absolute])
    kept = rendered(found, schemes={"memory": "mem"})[""].text.decode()
    assert f"mem{root.removeprefix('memory')}/x\n" in kept
    assert "s3a://o/y\n" in kept
    with pytest.raises(LogCorruptedError, match="outside the table"):
        rendered(snapshot(metadata(X, partitioned_by=()), add("../y")))


@pytest.mark.parametrize(
    ("uri", "expected"),
    [("s3a://b/t", "s3://b/t"), ("hdfs://n/t", "hdfs://n/t"), ("/lake/t", "/lake/t"), ("s3a:/b", "s3a:/b")],
)
def test_only_the_scheme_of_a_location_is_replaced(uri, expected):
    assert with_scheme(uri, {"s3a": "s3"}) == expected


@pytest.mark.parametrize("escape", ["%0A", "%0D"])
def test_a_name_that_breaks_lines_is_refused_and_the_first_is_named(escape):
    found = snapshot(metadata(X, partitioned_by=()), add("x"), add(f"a{escape}b"), add(f"c{escape}d"))
    first = found.files.core["path"].to_list()
    first = next(path for path in first if "%" in path)[0]
    with pytest.raises(SchemaError, match=f"/{first}.*line break"):
        rendered(found)


@pytest.mark.parametrize("beside", [[], [None], [""], ["a"]])
def test_hives_name_for_null_as_a_value_is_refused_by_name(beside):
    table = metadata(field("p", "string"), X)
    found = snapshot(table, add("x", p=HIVE_NULL), *(add(f"f{at}", p=value) for at, value in enumerate(beside)))
    others = found.files.core.filter(pl.col(f"{PV_PREFIX}p").ne_missing(HIVE_NULL))
    for frame in (found.files.core, others):
        with pytest.raises(SchemaError, match=rf"'p' has the value '{HIVE_NULL}'") as caught:
            manifests_of(found, frame)
    assert f"`p` = '{HIVE_NULL}'" in caught.value.hint


@given(st.sets(st.none() | st.text(alphabet="aA%2Fé/=:é ._\\\n\x7f\u2028", max_size=4), min_size=1, max_size=6))
def test_each_value_has_a_folder_of_its_own_which_says_the_value(values):
    table = metadata(field("p", "string"), X)
    folders = rendered(snapshot(table, *(add(f"f{at}", p=value) for at, value in enumerate(values))))
    distinct = {value or None for value in values}
    assert {values_of_directory(directory)["p"] for directory in folders} == distinct
    assert len({hive_name(directory) for directory in folders}) == len(distinct)
    assert sum(manifest.num_files for manifest in folders.values()) == len(values)


def test_files_with_vectors_are_refused_and_the_first_is_named():
    vector = DeletionVectorDescriptor(storage_type="i", path_or_inline_dv="wi5b", size_in_bytes=1, cardinality=1)
    files = [add("x"), add("y", vector), add("z", vector)]
    found = snapshot(metadata(X, partitioned_by=()), *files)
    first = next(path for path in found.files.core["path"].to_list() if path in "yz")
    with pytest.raises(UnsupportedFeatureError, match=f"2 files have deletion vectors, '{first}'"):
        rendered(found)


def test_lines_end_where_readers_of_manifests_say():
    assert manifest_lines(b"a\nb\r\nc\rd\n\n", source="m") == ["a", "b", "c", "d"]
    assert manifest_lines("a\u2028b\x85\n".encode(), source="m") == ["a\u2028b\x85"]
    with pytest.raises(LogCorruptedError, match="m/x is not a manifest: its byte 2"):
        manifest_lines(b"ab\xff", source="m/x")
    assert manifest_path("") == "_symlink_format_manifest/manifest"
    assert manifest_path("p=1/q=2") == "_symlink_format_manifest/p=1/q=2/manifest"


@pytest.mark.parametrize(
    ("text", "kind", "spelt"),
    [
        ("2024-05-31T12:00:00.000000Z", "timestamp", "2024-05-31 12:00:00"),
        ("2024-05-31 12:00:00.5", "timestamp", "2024-05-31 12:00:00.5"),
        ("2024-05-31 12:00:00.00012", "timestamp_ntz", "2024-05-31 12:00:00.00012"),
        ("0033-04-03 00:00:00", "timestamp_ntz", "0033-04-03 00:00:00"),
        ("2024-05-31", "date", "2024-05-31"),
        ("007", "integer", "7"),
        ("TRUE", "boolean", "true"),
        ("FALSE", "boolean", "false"),
        ("1.50", "decimal(10,2)", "1.50"),
        ("1.0E10", "double", "1.0E10"),
        ("1.50", "float", "1.50"),
        ("007", "string", "007"),
        ("\u00e9", "binary", "\u00e9"),
        (None, "date", None),
        (None, "string", None),
        ("", "string", None),
        ("", "integer", None),
    ],
)
def test_values_are_spelt_as_hive_spells_them(text, kind, spelt):
    assert hive_values([text], [parse_type(kind)]) == (spelt,)


def test_a_directory_says_which_values_it_stands_for():
    assert values_of_directory("") == {}
    assert values_of_directory("a%2Fb=x%3Dy/n=__HIVE_DEFAULT_PARTITION__/e=") == {"a/b": "x=y", "n": None, "e": ""}
    assert values_of_directory("a=b=c") == {"a": "b=c"}


def named(name, kind, physical):
    return field(name, kind, **{"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": 1})


INNER = {"type": "struct", "fields": [named("i", "long", "other")]}
KEPT = {"type": "struct", "fields": [named("i", "long", "i")]}


def listed(kind):
    return {"type": "array", "elementType": kind, "containsNull": True}


def mapped(key, value):
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


@pytest.mark.parametrize(
    ("column", "name"),
    [
        (named("x", "long", "col-1"), "x"),
        (named("s", INNER, "s"), "s.i"),
        (named("l", listed(INNER), "l"), "l.i"),
        (named("m", mapped(INNER, "long"), "m"), "m.i"),
        (named("m", mapped("long", listed(INNER)), "m"), "m.i"),
        (named("s", {"type": "struct", "fields": [named("t", INNER, "t")]}, "s"), "s.t.i"),
    ],
)
def test_a_table_whose_files_call_a_column_otherwise_is_refused(column, name):
    first = named("p", "integer", "p")
    mode = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}
    with pytest.raises(UnsupportedFeatureError, match=f"column '{re.escape(name)}' is called"):
        check_publishable(snapshot(metadata(first, column, **mode)))
    check_publishable(snapshot(metadata(first, column)))  # without a mode, names in the files are the columns' own
    everything = named("a", mapped(listed(KEPT), KEPT), "a")
    check_publishable(snapshot(metadata(first, everything, **mode)))


# -- which partitions commits touched ---------------------------------------------------------------------------------

TABLE = metadata(P, field("q", "string"), X, partitioned_by=("q", "p"))


def spec_of(table):
    return PartitionSpec.of(parse_schema(table.schema_string), table.partition_columns, "none")


def changed(*commits, table=TABLE):
    return changed_partitions(enumerate(commits, 5), spec_of(table))


def gone(values):
    return RemoveFile(path="r", data_change=True, deletion_timestamp=1, partition_values=values)


def test_partitions_that_gain_or_lose_a_file_are_told_in_the_order_of_the_columns():
    info = CommitInfo({"timestamp": 1})
    found = changed([info, add("a", p="1", q="x"), gone({"p": "", "q": "y"})], [add("b", p=None, q="z"), info])
    assert found.values == {("x", "1"), ("y", None), ("z", None)}
    assert found.unknown is None
    assert isinstance(found.values, frozenset)
    assert changed().values == frozenset()
    assert partition_types(spec_of(TABLE)) == ("string", "integer")


def test_metadata_that_leave_the_partition_columns_alone_change_nothing():
    wider = metadata(P, field("q", "string"), field("x", "double"), X, partitioned_by=("q", "p"))
    assert changed([wider, add("a", p="1", q="x")]).values == {("x", "1")}


@pytest.mark.parametrize(
    ("commit", "why"),
    [
        ([metadata(P, field("q", "string"), X)], "version 6 changes the partition columns"),
        ([metadata(P, field("q", "string"), X, partitioned_by=("p", "q"))], "version 6 changes the partition columns"),
        ([metadata(P, field("q", "date"), X, partitioned_by=("q", "p"))], "version 6 changes the partition columns"),
        ([gone(None)], "version 6 removes a file without naming its partition"),
        ([add("a", p="1")], "version 6 has a file of other partition columns"),
        ([add("a", p="1", q="x", r="z")], "version 6 has a file of other partition columns"),
    ],
)
def test_what_makes_the_partitions_unknown_is_told(commit, why):
    found = changed([add("a", p="1", q="x")], [*commit, add("b", p="2", q="x")], [add("c", p="3", q="x")])
    assert (found.values, found.unknown) == (frozenset(), why)


def test_columns_of_one_type_that_change_places_are_other_partitions():
    fields = field("a", "string"), field("b", "string"), X
    before, after = (metadata(*fields, partitioned_by=order) for order in (("a", "b"), ("b", "a")))
    assert changed([before, add("f", a="1", b="2")], table=before).unknown is None
    assert changed([after, add("f", a="1", b="2")], table=before).unknown == "version 5 changes the partition columns"


def test_a_table_without_partition_columns_has_one_partition():
    plain = metadata(X, partitioned_by=())
    assert changed([gone(None)], table=plain).values == {()}
    assert changed([gone(None), add("a")], [add("b")], table=plain).unknown is None
    assert "other partition columns" in changed([add("a", p="1")], table=plain).unknown
