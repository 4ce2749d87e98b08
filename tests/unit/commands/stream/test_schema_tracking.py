"""A stream's schema log: what is in it, when a batch ends before a change, and what may pass."""

from __future__ import annotations

import json
import uuid

import pytest
from stream_table import Table

from pydelta.commands.stream.admission import AdmissionBudget
from pydelta.commands.stream.errors import (
    SchemaLocationConflictError,
    SchemaLogBeginningError,
    SchemaLogDamagedError,
    SchemaLogOfTableError,
    SourceColumnsRenamedError,
    SourceDefinitionChangedError,
    SourceEvolutionBlockedError,
    SourceFrameOutdatedError,
)
from pydelta.commands.stream.evolution import Allowed, ChangeKind, breaking_changes, java_hash
from pydelta.commands.stream.offsets import SCHEMA_CHANGE, SCHEMA_CHANGED
from pydelta.commands.stream.options import SourceOptions
from pydelta.commands.stream.schema_log import SchemaLog, TrackedSchema, folder_name
from pydelta.commands.stream.source import TableStream
from pydelta.commands.stream.tracking import check_separate, open_tracking
from pydelta.protocol.actions import Protocol, encode_json
from pydelta.protocol.types import StructType, parse_type
from pydelta.storage import MemoryStore

PATH = "file:/c/sources/0"
NOTHING = Allowed(options={}, conf={})


def schema_text(**columns):
    fields = [
        {
            "name": name,
            "type": kind,
            "nullable": True,
            "metadata": {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": number},
        }
        for number, (name, (physical, kind)) in enumerate(columns.items(), 1)
    ]
    return encode_json({"type": "struct", "fields": fields})


class Tracked(Table):
    """A table whose one column is mapped, and a schema log beside it."""

    def __init__(self):
        super().__init__(**{"columnMapping.mode": "name"})
        self.schema_log = SchemaLog(MemoryStore(f"memory://{uuid.uuid4().hex}/s"))
        self.builder.protocol = Protocol(min_reader_version=2, min_writer_version=5)
        self.builder.metadata = self.builder.metadata.replace(schema_string=schema_text(x=("c1", "long")))
        self.append("a", "b")

    def define(self, *actions, **columns):
        metadata = self.builder.metadata.replace(schema_string=schema_text(**columns))
        self.builder.metadata = metadata
        self.builder.commit(metadata, *actions)

    def open(self, allowed=NOTHING, path=PATH, **options):
        tracking, read = open_tracking(self.log, self.schema_log, self.log.update())
        tracking.begin(path, allowed)
        given = SourceOptions.parse({name: str(value) for name, value in options.items()})
        return TableStream(self.log, given, read, tracking=tracking)


@pytest.fixture
def table():
    return Tracked()


def test_the_log_begins_with_the_definition_of_the_first_batch(table):
    stream = table.open()
    end = stream.latest(None, AdmissionBudget())
    number, entry = table.schema_log.newest()
    assert (number, entry.version, entry.source_path, entry.previous) == (0, 0, PATH, None)
    version, text = table.schema_log.store.read("0").decode().split("\n")
    assert version == "v1"
    fields = json.loads(text)
    assert json.loads(fields["dataSchemaJson"]) == json.loads(schema_text(x=("c1", "long")))
    assert json.loads(fields["partitionSchemaJson"]) == {"type": "struct", "fields": []}
    assert fields["tableConfigurations"] == {"delta.columnMapping.mode": "name"}
    assert "minReaderVersion" in json.loads(fields["protocolJson"])["protocol"]
    assert TrackedSchema.parse(entry.to_bytes(), location="x") == entry
    assert table.batch(stream, None, end) == "ab"


def _to_the_change(table, stream, start):
    """The batches up to a change of the definition, whose commit then stops the query."""
    barrier = stream.latest(start, AdmissionBudget())
    assert barrier.index == SCHEMA_CHANGE
    names = table.batch(stream, start, barrier)
    behind = stream.latest(barrier, AdmissionBudget())
    assert behind.index == SCHEMA_CHANGED
    assert table.batch(stream, barrier, behind) == ""
    with pytest.raises(SourceDefinitionChangedError, match="Start the query again"):
        stream.finish(barrier)
    return names, behind


def test_a_batch_ends_before_a_change_and_a_restart_reads_on_with_the_new_definition(table):
    first = table.open()
    start = first.latest(None, AdmissionBudget())
    table.append("c")
    table.define(y=("c1", "long"))
    table.append("d")
    names, behind = _to_the_change(table, first, start)
    assert names == "c"
    with pytest.raises(SourceEvolutionBlockedError, match="column x was renamed to y") as caught:
        table.open()
    parameters = caught.value.getMessageParameters()
    assert parameters["opType"] == "RENAME COLUMN"
    assert parameters["currentSchemaChangeVersion"] == "2"
    assert parameters["unblockChangeConfs"] == (
        f"SET spark.databricks.delta.streaming.allowSourceColumnRename.ckpt_{java_hash(PATH)} = 2;"
    )
    again = table.open(Allowed(options={"allowSourceColumnRename": "2"}, conf={}))
    assert again.read.schema.names == ("y",)
    again.finish(behind)  # the log has it: nothing is stopped twice
    assert table.batch(again, behind, again.latest(behind, AdmissionBudget())) == "d"


def test_a_query_that_died_before_it_noted_a_change_notes_it_when_it_is_started_again(table):
    first = table.open()
    start = first.latest(None, AdmissionBudget())
    table.define(x=("c1", "long"), y=("c2", "date"))
    table.append("d")
    barrier = first.latest(start, AdmissionBudget())
    behind = first.latest(barrier, AdmissionBudget())  # Spark has both offsets, and the process ends
    again = table.open()
    assert table.batch(again, barrier, behind) == ""
    with pytest.raises(SourceDefinitionChangedError, match="Version 1"):
        again.latest(behind, AdmissionBudget())
    third = table.open()
    assert third.read.schema.names == ("x", "y")
    assert table.batch(third, behind, third.latest(behind, AdmissionBudget())) == "d"


@pytest.mark.parametrize(
    ("options", "conf", "passes"),
    [
        ({"allowSourceColumnDrop": "always"}, {}, True),
        ({"allowSourceColumnDrop": "3"}, {}, True),
        ({"allowSourceColumnDrop": "4"}, {}, False),
        ({"allowSourceColumnRename": "always"}, {}, False),
        ({}, {"allowSourceColumnDrop": "always"}, True),
        ({}, {"allowSourceColumnDrop": "3"}, False),
        ({}, {f"allowSourceColumnDrop.ckpt_{java_hash(PATH)}": "3"}, True),
        ({}, {f"allowSourceColumnDrop.ckpt_{java_hash(PATH)}": "2"}, False),
        ({}, {"allowSourceColumnDrop.ckpt_1": "always"}, False),
        ({}, {"allowSourceColumnRenameAndDrop": "always"}, True),
        ({}, {f"allowSourceColumnRenameAndDrop.ckpt_{java_hash(PATH)}": "ALWAYS"}, True),
        ({}, {"allowSourceColumnTypeChange": "always"}, False),
    ],
)
def test_who_says_so_follows_a_change(options, conf, passes):
    conf = {f"spark.databricks.delta.streaming.{name}": value for name, value in conf.items()}
    assert Allowed(options=options, conf=conf).passes(ChangeKind.DROP, 3, PATH) == passes


def test_changes_are_found_by_physical_names_in_every_depth():
    def struct(**columns):
        return parse_type(json.loads(schema_text(**columns)))

    inner = json.loads(schema_text(a=("i1", "integer"), b=("i2", "string")))
    other = json.loads(schema_text(a=("i1", "long"), c=("i2", "string")))
    old = struct(s=("c1", {"type": "array", "elementType": inner, "containsNull": True}), t=("c2", "date"))
    new = struct(s=("c1", {"type": "array", "elementType": other, "containsNull": True}), u=("c3", "date"))
    assert [(change.kind, change.told) for change in breaking_changes(old, new)] == [
        (ChangeKind.TYPE, "column s.element.a was integer and is long"),
        (ChangeKind.RENAME, "column s.element.b was renamed to s.element.c"),
        (ChangeKind.DROP, "column t was dropped"),
    ]
    assert breaking_changes(StructType(), new) == []


def test_changes_that_follow_each_other_without_rows_are_taken_as_one(table):
    first = table.open()
    start = first.latest(None, AdmissionBudget())
    table.define(x=("c1", "long"), y=("c2", "integer"))
    table.define(x=("c1", "long"), z=("c2", "integer"))
    table.builder.commit(Protocol(min_reader_version=2, min_writer_version=6))
    table.append("d")
    _, behind = _to_the_change(table, first, start)
    assert behind.version == 1
    again = table.open()
    number, entry = table.schema_log.newest()
    assert (number, entry.version, entry.previous) == (2, 3, 0)
    assert again.read.schema.names == ("x", "z")
    assert entry.protocol(None).min_writer_version == 6
    assert table.batch(again, behind, again.latest(behind, AdmissionBudget())) == "d"


def test_a_change_of_properties_ends_a_batch_and_one_of_a_name_or_comment_does_not(table):
    stream = table.open()
    start = stream.latest(None, AdmissionBudget())
    plain = table.builder.metadata
    table.builder.commit(plain.replace(name="n", configuration={**plain.configuration, "owner": "me"}))
    table.append("c")
    assert stream.latest(start, AdmissionBudget()) == table.offset(3)
    properties = {**plain.configuration, "delta.appendOnly": "true"}
    table.builder.commit(plain.replace(configuration=properties))
    assert stream.latest(table.offset(3), AdmissionBudget()).index == SCHEMA_CHANGE


def test_a_schema_log_is_of_one_source_and_one_table(table):
    table.open().latest(None, AdmissionBudget())
    with pytest.raises(SchemaLocationConflictError, match="belongs to another stream"):
        table.open(path="file:/other/sources/0")
    other = Tracked()
    with pytest.raises(SchemaLogOfTableError):
        open_tracking(other.log, table.schema_log, other.log.update())
    check_separate(["a", "b"], "t")
    with pytest.raises(SchemaLocationConflictError):
        check_separate(["a", "b", "a"], "t")
    assert folder_name("t", None) == "_schema_log_t"
    assert folder_name("t", "x") == "_schema_log_t_x"


def test_of_two_queries_that_write_to_one_log_the_second_stops(table):
    first, second = table.open(), table.open()
    first.latest(None, AdmissionBudget())
    with pytest.raises(SchemaLocationConflictError):
        second.latest(None, AdmissionBudget())


def test_a_frame_from_before_a_change_is_refused(table):
    tracking, _ = open_tracking(table.log, table.schema_log, table.log.update())
    table.open().latest(None, AdmissionBudget())
    tracking.begin(PATH, NOTHING)  # the same definition
    _, entry = table.schema_log.newest()
    fields = json.loads(entry.to_bytes().decode().split("\n")[1])
    fields |= {"dataSchemaJson": schema_text(x=("c1", "long"), n=("c9", "date")), "deltaCommitVersion": 9}
    table.schema_log.store.put("1", ("v1\n" + json.dumps(fields)).encode())
    with pytest.raises(SourceFrameOutdatedError, match=r"spark\.readStream"):
        tracking.begin(PATH, NOTHING)


@pytest.mark.parametrize("text", [b"", b"v2\n{}", b"v1\n", b"v1\n{}", b'v1\n{"tableId": "t"}', b"\xff\xfe"])
def test_a_damaged_file_is_refused_by_its_name(table, text):
    table.schema_log.store.put("3", text)
    with pytest.raises(SchemaLogDamagedError, match=r"/3 .*cannot be read"):
        table.open()


def test_a_batch_planned_without_a_log_begins_it_with_a_definition_that_reads_all_of_it(table):
    start, end = table.offset(0), table.offset(2, 0)
    table.define(x=("c1", "long"), y=("c2", "long"))
    table.append("c")
    assert table.batch(table.open(), start, end) == "abc"
    assert table.schema_log.newest()[1].version == 2


def test_a_batch_planned_without_a_log_over_a_rename_is_refused(table):
    table.define(y=("c1", "long"))
    table.append("c")
    with pytest.raises(SchemaLogBeginningError, match="version 1"):
        table.open().batch(table.offset(0), table.offset(2, 0))
    with pytest.raises(SourceDefinitionChangedError, match="begins with version 0"):  # the change is behind its end
        table.open().batch(table.offset(0), table.offset(1))
    with pytest.raises(SchemaLogBeginningError, match="version 1"):
        table.open().batch(table.offset(0), table.offset(3))  # and in the middle of one planned meanwhile


def test_without_a_log_a_rename_stops_the_stream_and_says_what_follows_it(table):
    stream = table.stream(startingVersion=0)
    end = stream.latest(None, AdmissionBudget())
    table.define(y=("c1", "long"))
    with pytest.raises(SourceColumnsRenamedError) as caught:
        stream.latest(end, AdmissionBudget())
    assert "schemaTrackingLocation" in caught.value.hint
