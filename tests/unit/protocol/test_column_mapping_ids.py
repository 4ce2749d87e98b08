"""Ids and physical names of columns: given once, at every depth, and kept by whatever comes after."""

from __future__ import annotations

import pytest

from pydelta.errors import BindError, InvalidArgumentError, UnsupportedFeatureError
from pydelta.protocol.actions import Metadata
from pydelta.protocol.column_mapping import check_mode_change, mapped_metadata, mode_of, without_mapping
from pydelta.protocol.schema_edits import all_paths, name_of, parse_path
from pydelta.protocol.types import ArrayType, MapType, PrimitiveType, StructField, StructType, parse_schema

LONG, STRING = PrimitiveType("long"), PrimitiveType("string")
INNER = StructType((StructField("x", LONG), StructField("y", STRING)))
SCHEMA = StructType(
    (
        StructField("id", LONG),
        StructField("s", INNER),
        StructField("a", ArrayType(MapType(STRING, INNER))),
        StructField("m", MapType(INNER, ArrayType(INNER))),
    )
)
ID, NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"


def definition(schema, mode=None, **more):
    configuration = {**({"delta.columnMapping.mode": mode} if mode else {}), **more}
    return Metadata(id="t", schema_string=schema.to_json(), configuration=configuration)


def marks(metadata):
    schema = parse_schema(metadata.schema_string)
    return {path: (field.metadata.get(ID), field.metadata.get(NAME)) for path, field in all_paths(schema)}


@pytest.mark.parametrize("mode", ["name", "id"])
def test_a_new_table(mode):
    made = mapped_metadata(definition(SCHEMA, mode), None)
    found = marks(made)
    assert sorted(number for number, _ in found.values()) == list(range(1, 13))
    assert len({name for _, name in found.values()}) == 12
    assert all(name.startswith("col-") for _, name in found.values())
    assert made.configuration["delta.columnMapping.maxColumnId"] == "12"
    assert without_mapping(parse_schema(made.schema_string)) == SCHEMA
    assert mapped_metadata(made, made) == made


def test_marks_of_another_table_are_not_taken_over():
    other = mapped_metadata(definition(SCHEMA, "name"), None)
    schema = parse_schema(other.schema_string)
    made = mapped_metadata(definition(schema, "name"), None)
    assert not {name for _, name in marks(made).values()} & {name for _, name in marks(other).values()}
    assert mapped_metadata(definition(schema), None).schema_string == SCHEMA.to_json()


def test_an_upgrade_keeps_the_names_that_files_have():
    old = definition(SCHEMA)
    made = mapped_metadata(definition(SCHEMA, "name"), old)
    assert all(name == path[-1] for path, (_, name) in marks(made).items())
    again = StructType((*parse_schema(made.schema_string).fields, StructField("new", INNER)))
    grown = mapped_metadata(made.replace(schema_string=again.to_json()), made)
    assert marks(grown)["new",][0] == 13
    assert marks(grown)["new", "y"][0] == 15
    assert marks(grown)["new", "y"][1].startswith("col-")
    assert {path: mark for path, mark in marks(grown).items() if path[0] != "new"} == marks(made)


def test_a_number_is_never_given_again():
    made = mapped_metadata(definition(SCHEMA, "name"), None)
    less = StructType(parse_schema(made.schema_string).fields[:1])
    fewer = mapped_metadata(made.replace(schema_string=less.to_json()), made)
    assert fewer.configuration["delta.columnMapping.maxColumnId"] == "12"
    more = StructType((*less.fields, StructField("s", INNER)))
    grown = mapped_metadata(fewer.replace(schema_string=more.to_json()), fewer)
    assert marks(grown)["s",][0] == 13
    lost = {key: value for key, value in fewer.configuration.items() if key != "delta.columnMapping.maxColumnId"}
    kept = mapped_metadata(fewer.replace(configuration=lost, schema_string=more.to_json()), fewer)
    assert marks(kept)["s",][0] == 13


def test_a_schema_in_the_place_of_another_keeps_columns_of_one_name_and_kind():
    old = mapped_metadata(definition(SCHEMA, "name"), None)
    inner = StructType((StructField("y", STRING), StructField("z", LONG), StructField("x", STRING)))
    new = StructType((StructField("ID", LONG), StructField("s", inner), StructField("a", LONG)))
    made = mapped_metadata(definition(new, "name"), old, fresh=True)
    before, after = marks(old), marks(made)
    assert after["ID",] == before["id",]
    assert after["s",] == before["s",]
    assert after["s", "y"] == before["s", "y"]
    assert after["s", "x"] != before["s", "x"]
    assert sorted(number for path, (number, _) in after.items() if number > 12) == [13, 14, 15]
    plain = mapped_metadata(definition(new), old, fresh=True)
    assert plain.schema_string == new.to_json()


def test_modes():
    assert mode_of({}) == "none"
    assert mode_of({"delta.columnMapping.mode": " Name "}) == "name"
    with pytest.raises(InvalidArgumentError):
        mode_of({"delta.columnMapping.mode": "names"})
    check_mode_change("none", "name")
    check_mode_change("id", "id")
    for old, new in (("none", "id"), ("name", "id"), ("id", "name"), ("name", "none"), ("id", "none")):
        with pytest.raises(UnsupportedFeatureError):
            check_mode_change(old, new)


@pytest.mark.parametrize(
    ("text", "path"),
    [("a", ("a",)), ("a.b", ("a", "b")), ("`a.b`.c", ("a.b", "c")), ("`a``b`", ("a`b",)), ("a . `b c`", ("a", "b c"))],
)
def test_names_as_text(text, path):
    assert parse_path(text) == path
    assert parse_path(name_of(path)) == path


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "`a", "a..b"])
def test_no_names(text):
    with pytest.raises(BindError):
        parse_path(text)
