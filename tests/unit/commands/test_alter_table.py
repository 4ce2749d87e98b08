"""ALTER TABLE on the log alone: a table of changes, what each makes of the definition, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pydelta.commands.alter.command import AlterResult
from pydelta.commands.alter.requests import (
    AddColumns,
    AddConstraint,
    After,
    Change,
    ChangeColumn,
    ChangeColumns,
    ClusterBy,
    DropColumns,
    DropConstraint,
    First,
    NewColumn,
    RenameColumn,
    ReplaceColumns,
    SetComment,
    SetProperties,
    UnsetProperties,
)
from pydelta.commands.engine import RefusingEngine
from pydelta.errors import (
    BindError,
    ConstraintViolatedError,
    DeltaError,
    InvalidArgumentError,
    SchemaError,
    TableNotFoundError,
    UnknownSettingError,
    UnsafeOperationError,
    UnsupportedFeatureError,
)
from pydelta.log import DeltaLog, Snapshot
from pydelta.protocol.actions import AddFile, Metadata, Protocol
from pydelta.protocol.features import required_protocol, supports
from pydelta.protocol.types import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType
from pydelta.storage import MemoryStore
from pydelta.testing.commands import alter_table
from pydelta.txn import Operation, OptimisticTransaction, start_transaction

LONG, INT, STRING, DATE = (PrimitiveType(name) for name in ("long", "integer", "string", "date"))
POINT = StructType((StructField("x", INT), StructField("y", INT, True, {"comment": "up"})))
SCHEMA = StructType(
    (
        StructField("id", LONG, False),
        StructField("Name", STRING, True, {"comment": "who"}),
        StructField("at", POINT),
        StructField("tags", ArrayType(POINT)),
        StructField("by", MapType(STRING, INT)),
        StructField("ts", PrimitiveType("timestamp")),
        StructField("day", DATE, True, {"delta.generationExpression": "CAST(ts AS DATE)"}),
        StructField("part", STRING),
    )
)
NAMES = iter(range(10_000))


class Rows(RefusingEngine):
    """Stands in for the engine: so many rows break whatever they are asked, and names resolve."""

    def __init__(self, broken: int = 0) -> None:
        self.broken = broken
        self.asked: list[str] = []
        self.seen: list[int] = []

    def check_condition(self, snapshot: Snapshot, expression: str) -> None:
        self.asked.append(f"condition {expression}")

    def check_default(self, expression: str, data_type: DataType) -> None:
        self.asked.append(f"default {expression} {data_type}")

    def rows_against(self, snapshot: Snapshot, expression: str) -> tuple[int, str | None]:
        self.asked.append(f"rows {expression}")
        return self.broken, '{"id":7}'

    def committed(self, snapshot: Snapshot) -> None:
        self.seen.append(snapshot.version)


def table(**configuration: str) -> DeltaLog:
    log = DeltaLog.for_table("", store=MemoryStore(f"memory://alter/{next(NAMES)}"))
    properties = {f"delta.{key}": value for key, value in configuration.items()}
    metadata = Metadata(
        id="t", schema_string=SCHEMA.to_json(), partition_columns=("part",), configuration=properties, created_time=1
    )
    txn = start_transaction(log)
    txn.update_metadata(metadata)
    txn.update_protocol(required_protocol(metadata))
    add = AddFile(
        path="part=a/0.parquet",
        partition_values={"part": "a"},
        size=1,
        modification_time=1,
        data_change=True,
        stats='{"numRecords":1}',
    )
    txn.commit([add], Operation(name="CREATE TABLE"))
    return log


def mapped(**configuration: str) -> DeltaLog:
    log = table(**configuration)
    alter_table(log, SetProperties(properties={"delta.columnMapping.mode": "name"}))
    return log


def new(name: str, data_type: DataType = INT, **others: Any) -> NewColumn:
    return NewColumn(path=tuple(name.split(".")), data_type=data_type, **others)


def at(snapshot: Snapshot, path: str) -> StructField:
    level: Any = snapshot.schema
    field: StructField | None = None
    for part in path.split("."):
        if isinstance(level, ArrayType):
            level = level.element_type
        elif isinstance(level, MapType):
            level = level.key_type if part == "key" else level.value_type
        else:
            field = level.field(part)
            assert field is not None, f"{part} of {path}"
            level = field.data_type
    assert field is not None
    return field


def last_operation(log: DeltaLog) -> tuple[str, dict[str, str]]:
    info = log.update().commit_info
    assert info is not None
    return str(info.get("operation")), dict(info.get("operationParameters") or {})


def done(log: DeltaLog, change: Change, engine: Rows | None = None) -> AlterResult:
    before = log.update()
    result = alter_table(log, change, engine=engine)
    assert result.version == before.version + 1
    assert log.update().metadata == result.snapshot.metadata
    assert before.metadata is not None
    assert result.snapshot.metadata is not None
    assert result.snapshot.metadata.id == before.metadata.id
    return result


def names(snapshot: Snapshot) -> str:
    return " ".join(snapshot.schema.names)


COLUMNS: list[tuple[Change, str, str]] = [
    (AddColumns(columns=(new("n"),)), "ADD COLUMNS", "id Name at tags by ts day part n"),
    (AddColumns(columns=(new("n", position=First()),)), "ADD COLUMNS", "n id Name at tags by ts day part"),
    (AddColumns(columns=(new("n", position=After("NAME")),)), "ADD COLUMNS", "id Name n at tags by ts day part"),
    (AddColumns(columns=(new("a"), new("b"))), "ADD COLUMNS", "id Name at tags by ts day part a b"),
    (ChangeColumn(path=("part",), position=First()), "CHANGE COLUMN", "part id Name at tags by ts day"),
    (ChangeColumn(path=("id",), position=After("at")), "CHANGE COLUMN", "Name at id tags by ts day part"),
]


@pytest.mark.parametrize(("change", "operation", "expected"), COLUMNS)
def test_columns_in_their_places(change: Change, operation: str, expected: str) -> None:
    log = table()
    result = done(log, change)
    assert names(result.snapshot) == expected
    assert last_operation(log)[0] == operation


def test_nested_columns_are_added_through_structs_arrays_and_maps() -> None:
    log = table()
    change = AddColumns(
        columns=(new("at.z", position=After("x")), new("tags.element.z", comment="deep"), new("AT.w", position=First()))
    )
    snapshot = done(log, change).snapshot
    assert [field.name for field in at(snapshot, "at").data_type] == ["w", "x", "z", "y"]  # type: ignore[union-attr]
    assert at(snapshot, "tags.element.z").metadata == {"comment": "deep"}
    columns = json.loads(last_operation(log)[1]["columns"])
    assert columns[0] == {
        "column": {"name": "at.z", "type": "integer", "nullable": True, "metadata": {}},
        "position": "AFTER x",
    }
    assert columns[1]["column"]["name"] == "tags.element.z"


def test_columns_that_change_together_make_one_version_or_none() -> None:
    log, engine = table(), Rows()
    change = ChangeColumns(
        changes=(
            ChangeColumn(path=("NAME",), comment="whom", default="'nobody'"),
            ChangeColumn(path=("part",), position=First()),
            ChangeColumn(path=("at", "x"), nullable=False),
        )
    )
    snapshot = done(log, change, engine).snapshot
    assert names(snapshot) == "part id Name at tags by ts day"
    assert at(snapshot, "Name").metadata == {"comment": "whom", "CURRENT_DEFAULT": "'nobody'"}
    assert engine.asked == ["default 'nobody' string", "rows at IS NULL OR at.x IS NOT NULL"]
    operation, parameters = last_operation(log)
    assert operation == "CHANGE COLUMNS"
    assert [column["name"] for column in json.loads(parameters["columns"])] == ["Name", "part", "at.x"]
    assert alter_table(log, ChangeColumns(changes=(ChangeColumn(path=("Name",), comment="whom"),))).version is None
    wrong = ChangeColumns(changes=(ChangeColumn(path=("id",), comment="k"), ChangeColumn(path=("nope",), comment="n")))
    with pytest.raises(BindError, match="nope"):
        alter_table(log, wrong)
    assert "comment" not in at(log.update(), "id").metadata


def test_properties_are_set_and_unset_by_their_names_in_any_case() -> None:
    log = table()
    snapshot = done(log, SetProperties(properties={"DELTA.appendonly": "true", "Own": "1"})).snapshot
    assert snapshot.properties.append_only
    assert snapshot.metadata is not None
    assert {"delta.appendOnly": "true", "Own": "1"}.items() <= snapshot.metadata.configuration.items()
    assert json.loads(last_operation(log)[1]["properties"]) == {"delta.appendOnly": "true", "Own": "1"}
    left = done(log, UnsetProperties(names=("delta.APPENDONLY",))).snapshot
    assert left.metadata is not None
    assert "delta.appendOnly" not in left.metadata.configuration
    with pytest.raises(InvalidArgumentError, match="managed by"):
        alter_table(log, SetProperties(properties={"delta.columnmapping.MAXCOLUMNID": "99"}))


def test_a_comment_a_default_and_nullability_of_a_column() -> None:
    log, engine = table(), Rows()
    snapshot = done(log, ChangeColumn(path=("NAME",), comment="whom")).snapshot
    assert at(snapshot, "Name").metadata == {"comment": "whom"}
    snapshot = done(log, ChangeColumn(path=("Name",), default="'nobody'"), engine).snapshot
    assert at(snapshot, "Name").metadata["CURRENT_DEFAULT"] == "'nobody'"
    assert snapshot.protocol is not None
    assert supports(snapshot.protocol, "allowColumnDefaults")
    snapshot = done(log, ChangeColumn(path=("Name",), drop_default=True)).snapshot
    assert at(snapshot, "Name").metadata == {"comment": "whom"}
    assert at(done(log, ChangeColumn(path=("id",), nullable=True)).snapshot, "id").nullable
    assert not at(done(log, ChangeColumn(path=("at", "x"), nullable=False), engine).snapshot, "at.x").nullable
    assert engine.asked == ["default 'nobody' string", "rows at IS NULL OR at.x IS NOT NULL"]
    assert engine.seen == [2, 5]


def test_rows_that_break_not_null_are_counted_and_one_is_shown() -> None:
    log = table()
    with pytest.raises(ConstraintViolatedError, match=r'3 rows .*NOT NULL of Name; one of them is \{"id":7\}'):
        alter_table(log, ChangeColumn(path=("Name",), nullable=False), engine=Rows(3))
    assert log.update().version == 0


def test_what_is_so_already_makes_no_version() -> None:
    log = mapped()
    version = log.update().version
    for change in (
        ChangeColumn(path=("Name",), comment="who"),
        ChangeColumn(path=("id",), data_type=LONG, nullable=False),
        RenameColumn(path=("id",), name="id"),
        DropColumns(paths=(("nope",),), if_exists=True),
        DropConstraint(name="nope", if_exists=True),
        SetProperties(properties={"delta.columnMapping.mode": "name"}),
        UnsetProperties(names=("nope",), if_exists=True),
        SetComment(text=None),
        ClusterBy(columns=None),
    ):
        assert alter_table(log, change).version is None, change
    assert log.update().version == version


def test_rename_keeps_the_physical_name_and_what_goes_by_it() -> None:
    log = mapped(dataSkippingStatsColumns="id,at.x,`Name`")
    before = log.update()
    snapshot = done(log, RenameColumn(path=("AT",), name="place of it")).snapshot
    assert snapshot.schema.field("place of it").metadata == before.schema.field("at").metadata  # type: ignore[union-attr]
    assert snapshot.metadata is not None
    assert snapshot.metadata.configuration["delta.dataSkippingStatsColumns"] == "id,`place of it`.x,Name"
    assert last_operation(log) == ("RENAME COLUMN", {"oldColumnPath": "at", "newColumnPath": "place of it"})
    snapshot = done(log, RenameColumn(path=("part",), name="Bucket")).snapshot
    assert snapshot.partition_columns == ("Bucket",)
    assert snapshot.files.core["pv:part"].to_list() == ["a"]
    snapshot = done(log, RenameColumn(path=("tags", "element", "x"), name="east")).snapshot
    assert at(snapshot, "tags.element.east").metadata["delta.columnMapping.physicalName"] == "x"
    snapshot = done(log, RenameColumn(path=("Name",), name="NAME")).snapshot
    assert "NAME" in snapshot.schema.names


def test_drop_and_add_again_is_another_column() -> None:
    log = mapped(dataSkippingStatsColumns="id,Name")
    before = at(log.update(), "Name").metadata
    snapshot = done(log, DropColumns(paths=(("name",), ("at", "y"), ("tags", "element", "x")))).snapshot
    assert names(snapshot) == "id at tags by ts day part"
    assert snapshot.metadata is not None
    assert snapshot.metadata.configuration["delta.dataSkippingStatsColumns"] == "id"
    assert json.loads(last_operation(log)[1]["columns"]) == ["Name", "at.y", "tags.element.x"]
    highest = int(snapshot.metadata.configuration["delta.columnMapping.maxColumnId"])
    snapshot = done(log, AddColumns(columns=(new("Name", STRING),))).snapshot
    again = at(snapshot, "Name").metadata
    assert again["delta.columnMapping.id"] == highest + 1
    assert again["delta.columnMapping.physicalName"] != before["delta.columnMapping.physicalName"]


def test_the_upgrade_gives_ids_to_every_field_and_its_name_as_physical_name() -> None:
    log = table()
    snapshot = done(log, SetProperties(properties={"delta.columnMapping.mode": "name"})).snapshot
    assert snapshot.column_mapping_mode == "name"
    assert snapshot.protocol == Protocol(min_reader_version=2, min_writer_version=5)
    text = json.dumps(json.loads(snapshot.metadata.schema_string)) if snapshot.metadata else ""
    ids = sorted(int(part.split(",")[0]) for part in text.split('"delta.columnMapping.id": ')[1:])
    assert ids == list(range(1, 13))
    assert at(snapshot, "tags.element.x").metadata["delta.columnMapping.physicalName"] == "x"
    assert snapshot.metadata is not None
    assert snapshot.metadata.configuration["delta.columnMapping.maxColumnId"] == "12"


WIDER: list[tuple[tuple[str, ...], DataType, str, list[dict[str, str]]]] = [
    (("at", "x"), LONG, "at.x", [{"toType": "long", "fromType": "integer"}]),
    (("by", "value"), LONG, "by", [{"toType": "long", "fromType": "integer", "fieldPath": "value"}]),
    (("tags", "element", "y"), LONG, "tags.element.y", [{"toType": "long", "fromType": "integer"}]),
    (("by",), MapType(STRING, LONG), "by", [{"toType": "long", "fromType": "integer", "fieldPath": "value"}]),
]


@pytest.mark.parametrize(("path", "data_type", "field", "changes"), WIDER)
def test_a_wider_type_is_recorded(path: tuple[str, ...], data_type: DataType, field: str, changes: Any) -> None:
    log = table(enableTypeWidening="true")
    snapshot = done(log, ChangeColumn(path=path, data_type=data_type)).snapshot
    assert at(snapshot, field).metadata["delta.typeChanges"] == changes
    snapshot = done(log, ChangeColumn(path=("at", "y"), comment=None, data_type=PrimitiveType("double"))).snapshot
    assert at(snapshot, field).metadata["delta.typeChanges"] == changes


def test_texts_of_limited_length() -> None:
    log = table()
    snapshot = done(log, AddColumns(columns=(new("code", PrimitiveType("varchar(5)")),))).snapshot
    assert at(snapshot, "code") == StructField("code", STRING, True, {"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"})
    snapshot = done(log, ChangeColumn(path=("code",), data_type=PrimitiveType("varchar(9)"))).snapshot
    assert at(snapshot, "code").metadata["__CHAR_VARCHAR_TYPE_STRING"] == "varchar(9)"
    with pytest.raises(SchemaError, match="only be raised"):
        alter_table(log, ChangeColumn(path=("code",), data_type=PrimitiveType("varchar(3)")))
    assert at(done(log, ChangeColumn(path=("code",), data_type=STRING)).snapshot, "code").metadata == {}


def test_columns_replaced_as_a_whole() -> None:
    log = mapped()
    kept = at(log.update(), "Name").metadata
    columns = (
        new("name", STRING, comment="new"),
        new("id", LONG, nullable=False),
        new("ts", PrimitiveType("timestamp")),
        new("day", DATE),
        new("part", STRING),
    )
    snapshot = done(log, ReplaceColumns(columns=columns)).snapshot
    assert names(snapshot) == "Name id ts day part"
    assert at(snapshot, "Name").metadata == {**kept, "comment": "new"}
    assert "delta.generationExpression" in at(snapshot, "day").metadata
    more = ReplaceColumns(columns=(new("extra", STRING), *columns))
    assert names(done(log, more).snapshot) == "extra Name id ts day part"


def test_properties_and_the_description() -> None:
    log = table()
    snapshot = done(log, SetProperties(properties={"delta.appendOnly": "true", "owner": "me"})).snapshot
    assert snapshot.properties.append_only
    assert last_operation(log) == (
        "SET TBLPROPERTIES",
        {"properties": '{"delta.appendOnly":"true","owner":"me"}'},
    )
    snapshot = done(log, UnsetProperties(names=("delta.appendOnly", "nope"), if_exists=True)).snapshot
    assert snapshot.metadata is not None
    assert snapshot.metadata.configuration == {"owner": "me"}
    snapshot = done(log, SetComment(text="hello")).snapshot
    assert snapshot.metadata is not None
    assert snapshot.metadata.description == "hello"
    snapshot = done(log, SetProperties(properties={"delta.feature.deletionVectors": "supported"})).snapshot
    assert snapshot.protocol is not None
    assert supports(snapshot.protocol, "deletionVectors")
    assert "delta.feature.deletionVectors" not in snapshot.metadata.configuration  # type: ignore[union-attr]
    snapshot = done(log, SetProperties(properties={"delta.enableRowTracking": "true"})).snapshot
    assert snapshot.files.adds(snapshot.files.core)[0].base_row_id == 0


def test_a_constraint_is_checked_added_and_dropped() -> None:
    log, engine = table(), Rows()
    snapshot = done(log, AddConstraint(name="Positive", expression="id > 0"), engine).snapshot
    assert snapshot.metadata is not None
    assert snapshot.metadata.configuration == {"delta.constraints.positive": "id > 0"}
    assert snapshot.protocol is not None
    assert supports(snapshot.protocol, "checkConstraints")
    assert engine.asked == ["condition id > 0", "rows id > 0"]
    with pytest.raises(InvalidArgumentError, match="already"):
        alter_table(log, AddConstraint(name="POSITIVE", expression="id > 1"), engine=engine)
    with pytest.raises(InvalidArgumentError, match="Did you mean 'positive'") as caught:
        alter_table(log, DropConstraint(name="positiv"))
    assert caught.value.hint is None or "constraints are: positive" in caught.value.hint
    done(log, DropConstraint(name="POSITIVE"))
    assert last_operation(log)[0] == "DROP CONSTRAINT"


def test_a_constraint_that_rows_break_is_not_added() -> None:
    log = table()
    with pytest.raises(ConstraintViolatedError, match=r"1 row .*'few' \(id < 3\); it is \{") as caught:
        alter_table(log, AddConstraint(name="few", expression="id < 3"), engine=Rows(1))
    assert "nothing was changed" in str(caught.value.hint)
    assert log.update().version == 0


def test_other_columns_to_order_rows_by() -> None:
    log = table()
    metadata = log.update().metadata
    assert metadata is not None
    with pytest.raises(InvalidArgumentError, match="partitioned"):
        alter_table(log, ClusterBy(columns=("id",)))
    flat = StructType(SCHEMA.fields[:3])
    store = MemoryStore(f"memory://alter/{next(NAMES)}")
    log = DeltaLog.for_table("", store=store)
    txn = start_transaction(log)
    txn.update_metadata(Metadata(id="c", schema_string=flat.to_json(), created_time=1))
    txn.commit([], Operation(name="CREATE TABLE"))
    assert done(log, ClusterBy(columns=("id", "at.x"))).snapshot.clustering_columns == ("id", "at.x")
    assert last_operation(log)[1]["newClusteringColumns"] == "id,at.x"
    alter_table(log, SetProperties(properties={"delta.columnMapping.mode": "name"}))
    with pytest.raises(UnsafeOperationError, match=r"clustering by at\.x"):
        alter_table(log, DropColumns(paths=(("at",),)))
    done(log, RenameColumn(path=("at",), name="place"))
    assert done(log, ClusterBy(columns=None)).snapshot.clustering_columns == ()


REFUSED: list[tuple[Change, type[DeltaError], str]] = [
    (AddColumns(columns=(new("NAME"),)), SchemaError, "column Name already exists"),
    (AddColumns(columns=(new("n", nullable=False),)), SchemaError, "SET NOT NULL"),
    (AddColumns(columns=(new("n", default="1"),)), UnsupportedFeatureError, "SET DEFAULT"),
    (AddColumns(columns=(new("nme.x"),)), BindError, "Did you mean 'Name'"),
    (AddColumns(columns=(new("id.x"),)), SchemaError, "which has no fields"),
    (AddColumns(columns=(new("n", position=After("nme")),)), BindError, "Did you mean 'Name'"),
    (AddColumns(columns=(new("n", PrimitiveType("interval day")),)), UnsupportedFeatureError, "interval day"),
    (AddColumns(columns=(new("tags.elemnt.z"),)), BindError, "only element"),
    (DropColumns(paths=(("nam",),)), BindError, "Did you mean 'Name'"),
    (DropColumns(paths=(("ts",),)), UnsafeOperationError, r"generated column day \(CAST\(ts AS DATE\)\)"),
    (DropColumns(paths=(("part",),)), UnsafeOperationError, r"the partitioning \(part\)"),
    (DropColumns(paths=(("at",),)), UnsafeOperationError, "CHECK constraint far"),
    (DropColumns(paths=(("at", "x"),)), UnsafeOperationError, "CHECK constraint far"),
    (DropColumns(paths=(("tags", "element"),)), SchemaError, "part of tags"),
    (DropColumns(paths=(("tags", "element", "x"), ("tags", "element", "y"))), SchemaError, "last column of the struct"),
    (RenameColumn(path=("ts",), name="t"), UnsafeOperationError, "generated column day"),
    (RenameColumn(path=("id",), name="PART"), SchemaError, "already such a column"),
    (RenameColumn(path=("by", "value"), name="v"), SchemaError, "part of by"),
    (ChangeColumn(path=("at", "x"), data_type=LONG), SchemaError, "enableTypeWidening"),
    (ChangeColumn(path=("Name",), data_type=INT), SchemaError, "cannot become integer"),
    (ChangeColumn(path=("at",), data_type=StructType((StructField("x", INT),))), SchemaError, "DROP COLUMN at.y"),
    (
        ChangeColumn(
            path=("at",), data_type=StructType((StructField("x", INT, nullable=False), StructField("y", INT)))
        ),
        SchemaError,
        "makes x NOT NULL",
    ),
    (ChangeColumn(path=("by", "value"), nullable=False), SchemaError, "inside an array or map"),
    (ChangeColumn(path=("by", "key"), nullable=True), SchemaError, "cannot be made nullable"),
    (ChangeColumn(path=("by", "value"), comment="c"), SchemaError, "part of by"),
    (ChangeColumn(path=("tags", "element", "x"), nullable=False), SchemaError, "inside an array"),
    (ChangeColumn(path=("at", "x"), default="1"), SchemaError, "only whole columns"),
    (ChangeColumn(path=("day",), default="1"), SchemaError, "generated"),
    (ReplaceColumns(columns=(new("Name", STRING),)), UnsafeOperationError, "CHECK constraint far"),
    (ReplaceColumns(columns=(new("id", LONG), new("who", STRING))), SchemaError, "leaves out Name, .* and adds who"),
    (SetProperties(properties={"delta.apendOnly": "true"}), UnknownSettingError, "Did you mean 'delta.appendOnly'"),
    (SetProperties(properties={"delta.appendOnly": "ja"}), InvalidArgumentError, "true or false"),
    (SetProperties(properties={"delta.feature.clustering": "supported"}), InvalidArgumentError, "CLUSTER BY"),
    (SetProperties(properties={"delta.dataSkippingStatsColumns": "part"}), InvalidArgumentError, "partition column"),
    (SetProperties(properties={"delta.constraints.c": "id > 0"}), InvalidArgumentError, "ADD CONSTRAINT c"),
    (SetProperties(properties={"delta.columnMapping.mode": "id"}), UnsupportedFeatureError, "from 'name' to 'id'"),
    (
        SetProperties(properties={"delta.columnMapping.maxColumnId": "99"}),
        InvalidArgumentError,
        "managed by",
    ),
    (SetProperties(properties={"delta.feature.nope": "supported"}), UnsupportedFeatureError, "nope"),
    (AddConstraint(name="c", expression="id > 0"), InvalidArgumentError, "Spark session"),
]


@pytest.mark.parametrize(("change", "error", "message"), REFUSED)
def test_what_is_refused(change: Change, error: type[DeltaError], message: str) -> None:
    log = mapped(**{"constraints.far": "at.x > 10"})
    version = log.update().version
    with pytest.raises(error, match=message) as caught:
        alter_table(log, change)
    assert caught.value.hint
    assert log.update().version == version


@pytest.mark.parametrize(
    "change",
    [
        SetProperties(properties={"delta.columnMapping.mode": "none"}),
        UnsetProperties(names=("delta.columnMapping.mode",)),
    ],
)
def test_mapping_that_was_turned_on_later_is_taken_off_without_a_look_at_the_files(change: Change) -> None:
    log = mapped()
    before = log.update()
    after = done(log, change).snapshot
    assert last_operation(log)[0] == "REMOVE COLUMN MAPPING"
    assert after.metadata is not None
    assert "columnMapping.physicalName" not in after.metadata.schema_string
    assert not {"delta.columnMapping.maxColumnId"} & after.metadata.configuration.keys()
    assert (after.column_mapping_mode, after.num_files) == ("none", before.num_files)


@pytest.mark.parametrize(
    ("path", "nullable"),
    [(("by", "key"), False), (("by", "value"), True), (("tags", "element"), True), (("tags", "element", "x"), True)],
)
def test_a_part_of_a_map_or_array_takes_the_nullability_that_it_has_and_makes_no_version(
    path: tuple[str, ...], nullable: bool
) -> None:
    log = table()
    version = log.update().version
    assert alter_table(log, ChangeColumn(path=path, nullable=nullable)).version is None
    assert log.update().version == version


@pytest.mark.parametrize(
    ("path", "nullable"), [(("by", "key"), True), (("by", "value"), False), (("tags", "element", "x"), False)]
)
def test_a_part_of_a_map_or_array_keeps_its_nullability_by_the_condition_for_changes(
    path: tuple[str, ...], nullable: bool
) -> None:
    with pytest.raises(SchemaError) as caught:
        alter_table(table(), ChangeColumn(path=path, nullable=nullable))
    assert caught.value.code == "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"


UNMAPPED: list[Change] = [
    DropColumns(paths=(("Name",),)),
    RenameColumn(path=("Name",), name="who"),
    ReplaceColumns(columns=(new("id", LONG, nullable=False),)),
]


@pytest.mark.parametrize("change", UNMAPPED)
def test_without_column_mapping_nothing_is_renamed_or_dropped(change: Change) -> None:
    log = table()
    with pytest.raises(UnsupportedFeatureError, match="column mapping") as caught:
        alter_table(log, change)
    assert "'delta.columnMapping.mode' = 'name'" in str(caught.value.hint)


def test_no_table() -> None:
    with pytest.raises(TableNotFoundError):
        alter_table(DeltaLog.for_table("", store=MemoryStore("memory://alter/none")), SetComment(text="x"))


def racing(log: DeltaLog, meanwhile: Callable[[], object]) -> Callable[[DeltaLog], OptimisticTransaction]:
    """A beginning of transactions: once one has read, something else happens; only the first time."""
    left = [meanwhile]

    def begin(of: DeltaLog) -> OptimisticTransaction:
        txn = start_transaction(of)
        if left:
            left.pop()()
        return txn

    return begin


def test_a_change_that_lost_a_race_is_planned_anew() -> None:
    log = table()
    begin = racing(log, lambda: alter_table(log, AddColumns(columns=(new("theirs"),))))
    result = alter_table(log, AddColumns(columns=(new("ours"),)), begin=begin)
    assert result.version == 2
    assert names(result.snapshot).endswith("theirs ours")


def test_a_change_that_another_made_impossible_says_so() -> None:
    log = mapped()
    begin = racing(log, lambda: alter_table(log, RenameColumn(path=("Name",), name="title")))
    with pytest.raises(BindError):
        alter_table(log, RenameColumn(path=("Name",), name="heading"), begin=begin)


def test_rows_that_came_meanwhile_are_checked_too() -> None:
    log, engine = table(), Rows()

    def append() -> None:
        txn = start_transaction(log)
        add = txn.snapshot.files.adds(txn.snapshot.files.core)[0].replace(path="part=a/new.parquet")
        txn.commit([add], Operation(name="WRITE"))

    result = alter_table(log, AddConstraint(name="c", expression="id > 0"), engine=engine, begin=racing(log, append))
    assert result.version == 2
    assert engine.asked.count("rows id > 0") == 2
