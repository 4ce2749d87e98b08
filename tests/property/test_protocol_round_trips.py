"""What is written in the log's spelling is read back as it was."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from pydelta.protocol.actions import (
    AddFile,
    CommitInfo,
    Metadata,
    RemoveFile,
    SetTransaction,
    decode_commit,
    encode_commit,
)
from pydelta.protocol.partitions import (
    hive_escape,
    hive_unescape,
    parse_partition_value,
    serialize_partition_value,
    typed_frame,
)
from pydelta.protocol.paths import decode_log_path, encode_log_path, is_absolute_path, resolve_data_path
from pydelta.protocol.schema import (
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    leaf_paths,
    merge_schemas,
    parse_schema,
    to_arrow,
)

NAMES = st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)
FLAT = st.sampled_from(
    ["string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp",
     "timestamp_ntz"]
).map(PrimitiveType)  # fmt: skip
DECIMALS = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: DecimalType(p, s)))


def _structs(inner):
    field = st.builds(
        StructField, NAMES, inner, st.booleans(), st.dictionaries(NAMES, st.integers() | NAMES | st.none(), max_size=2)
    )
    return st.lists(field, min_size=1, max_size=4, unique_by=lambda f: f.name.lower()).map(
        lambda f: StructType(tuple(f))
    )


TYPES = st.recursive(
    FLAT | DECIMALS,
    lambda inner: st.one_of(
        st.builds(ArrayType, inner, st.booleans()), st.builds(MapType, inner, inner, st.booleans()), _structs(inner)
    ),
    max_leaves=8,
)
SCHEMAS = _structs(TYPES)

PARTITION_VALUES = {
    PrimitiveType("integer"): st.integers(-(2**31), 2**31 - 1),
    PrimitiveType("long"): st.integers(-(2**63), 2**63 - 1),
    PrimitiveType("string"): st.text(alphabet=st.characters(exclude_categories=("Cs",)), min_size=1),
    PrimitiveType("boolean"): st.booleans(),
    PrimitiveType("date"): st.dates(),
    PrimitiveType("timestamp"): st.datetimes(timezones=st.just(dt.UTC)),
    PrimitiveType("timestamp_ntz"): st.datetimes(),
    PrimitiveType("double"): st.floats(),
    PrimitiveType("binary"): st.text(alphabet=st.characters(exclude_categories=("Cs",)), min_size=1).map(str.encode),
    DecimalType(20, 4): st.decimals(-(10**15), 10**15, places=4),
}


@settings(max_examples=200, deadline=None)
@given(SCHEMAS)
def test_a_schema_survives_its_json(schema):
    assert parse_schema(schema.to_json()) == schema
    assert json.loads(parse_schema(schema.to_json()).to_json()) == json.loads(schema.to_json())


@settings(max_examples=100, deadline=None)
@given(SCHEMAS)
def test_a_schema_has_an_arrow_form_with_its_names_and_merging_with_itself_changes_nothing(schema):
    assert tuple(to_arrow(schema).names) == schema.names
    assert merge_schemas(schema, schema) == schema
    assert len(list(leaf_paths(schema))) >= len(schema)


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_a_partition_value_survives_its_text_alone_and_in_a_column(data):
    kind = data.draw(st.sampled_from(list(PARTITION_VALUES)))
    value = data.draw(PARTITION_VALUES[kind])
    text = serialize_partition_value(value, kind)
    back = parse_partition_value(text, kind, time_zone="America/New_York")
    same = back == value or (isinstance(value, float) and math.isnan(value) and math.isnan(back))
    assert same, text
    column = typed_frame(pl.DataFrame({"p": [text, None, text]}), StructType((StructField("p", kind),)))["p"]
    assert column.to_list()[1] is None
    assert str(column[0]) == str(column[2])
    assert column[0] == value or (isinstance(value, float) and math.isnan(column[0]))


def test_null_and_the_empty_string_are_null_for_every_type():
    for kind in PARTITION_VALUES:
        assert serialize_partition_value(None, kind) is None
        assert parse_partition_value(None, kind) is None
        assert parse_partition_value("", kind) is None
    assert serialize_partition_value("", PrimitiveType("string")) is None


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=("Cs",))))
def test_a_partition_directory_name_survives_its_escape(text):
    escaped = hive_escape(text)
    assert hive_unescape(escaped) == text
    assert "/" not in escaped
    assert "=" not in escaped


@settings(max_examples=300, deadline=None)
@given(st.lists(NAMES.filter(lambda n: n not in (".", "..") and "/" not in n), min_size=1, max_size=3))
def test_a_path_survives_the_log_s_encoding_and_stays_under_the_root(parts):
    path = "/".join(parts)
    encoded = encode_log_path(path)
    assert decode_log_path(encoded).text == path
    assert not is_absolute_path(encoded)
    assert resolve_data_path("s3a://bucket/t", encoded) == f"s3a://bucket/t/{path}"


STRINGS = st.text(max_size=10)
ADDS = st.builds(
    AddFile,
    path=STRINGS,
    partition_values=st.dictionaries(STRINGS, st.none() | STRINGS, max_size=2),
    size=st.integers(0, 2**60),
    modification_time=st.integers(0, 2**50),
    data_change=st.booleans(),
    stats=st.none() | STRINGS,
    tags=st.none() | st.dictionaries(STRINGS, STRINGS, max_size=2),
)
ACTIONS = st.one_of(
    ADDS,
    st.builds(lambda a, t: a.remove(deletion_timestamp=t), ADDS, st.integers(0, 2**50)),
    st.builds(
        SetTransaction, app_id=STRINGS, version=st.integers(-(2**62), 2**62),
        last_updated=st.none() | st.integers(0, 2**63 - 1),
    ),
    st.builds(
        Metadata, id=STRINGS, schema_string=STRINGS, configuration=st.dictionaries(STRINGS, STRINGS, max_size=2),
        partition_columns=st.lists(STRINGS, max_size=2).map(tuple), created_time=st.none() | st.integers(0, 2**50),
    ),
    st.builds(CommitInfo, st.dictionaries(STRINGS, STRINGS | st.integers(-(2**53), 2**53) | st.booleans(), max_size=3)),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(ACTIONS, max_size=5))
def test_actions_survive_a_commit_file(actions):
    data = encode_commit(actions)
    assert decode_commit(data, source="0.json") == tuple(actions)
    assert data.count(b"\n") == len(actions)


def test_a_tombstone_keeps_the_key_of_its_file():
    add = AddFile(path="a b", partition_values={}, size=1, modification_time=0, data_change=True)
    removed = add.remove(deletion_timestamp=5)
    assert isinstance(removed, RemoveFile)
    assert removed.key == add.key


def test_decimals_are_written_without_an_exponent():
    assert serialize_partition_value(Decimal("1E+3"), DecimalType(10, 0)) == "1000"
