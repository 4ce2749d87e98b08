"""What a write decides and commits, with rows that a stand-in claims to have written: no Spark."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from pydelta.commands.alter.requests import SetProperties
from pydelta.commands.create import CreateMode, TableDefinition, plan_create
from pydelta.commands.engine import RefusingEngine, RewriteOutput
from pydelta.commands.write.command import WriteMode, WriteOptions, plan_write
from pydelta.commands.write.plan import WriteKind, stored_schema
from pydelta.errors import (
    CommitStateUnknownError,
    DeltaConcurrentModificationException,
    InvalidArgumentError,
    SchemaError,
    SchemaMismatchError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnknownSettingError,
    UnsafeOperationError,
    UnsupportedFeatureError,
)
from pydelta.log import DeltaLog
from pydelta.protocol.actions import AddFile
from pydelta.protocol.schema import PrimitiveType, StructField, StructType
from pydelta.protocol.types import ArrayType, MapType
from pydelta.settings import Settings
from pydelta.storage.memory import MemoryStore
from pydelta.testing.commands import alter_table, create_table, write_table
from pydelta.txn import Operation, OptimisticTransaction, start_transaction

LONG, STRING, DATE = PrimitiveType("long"), PrimitiveType("string"), PrimitiveType("date")
SCHEMA = StructType((StructField("id", LONG), StructField("p", STRING)))
_names = itertools.count()


@pytest.fixture
def log():
    uri = f"memory://writes/{next(_names)}"
    return DeltaLog.for_table(uri, store=MemoryStore(uri))


class Rows:
    """Claims to have written one file for each partition value."""

    def __init__(self, *values, schema=SCHEMA, partitioned=True):
        self.schema, self._values, self._partitioned = schema, values, partitioned
        self.targets = []

    def write(self, target):
        self.targets.append(target)
        adds = tuple(
            AddFile(
                path=f"f{next(_names)}",
                partition_values={"p": value} if self._partitioned else {},
                size=10,
                modification_time=1,
                data_change=True,
                stats='{"numRecords":3}',
            )
            for value in self._values
        )
        return RewriteOutput(adds=adds, num_rows=3 * len(adds))


class Engine(RefusingEngine):
    """Takes note of what is discarded and committed."""

    def __init__(self):
        self.discarded, self.snapshots = [], []

    def time_zone(self):
        return "UTC"

    def discard(self, snapshot, adds):
        self.discarded += [add.path for add in adds]

    def committed(self, snapshot):
        self.snapshots.append(snapshot)


def options(mode=WriteMode.APPEND, **given):
    more = {key: given.pop(key) for key in ("partition_by", "properties", "description") if key in given}
    return WriteOptions.parse(given, mode=mode, settings=Settings(), **more)


def write(log, rows, how=None, engine=None):
    return write_table(log, rows, how or options(partition_by=["p"]), engine or Engine(), Settings())


def live(log):
    snapshot = log.update()
    return sorted((a.partition_values["p"] or "null") for a in snapshot.files.adds(snapshot.files.core))


def plan(log, data=SCHEMA, how=None):
    return plan_write(log.update(), data, how or options(), Settings())


# --- options ---------------------------------------------------------------------------------------------------


def test_option_names_ignore_case_and_table_properties_and_storage_settings_are_told_apart():
    parsed = options(
        MERGESCHEMA="TRUE", maxrecordsperfile="5", **{"delta.appendOnly": "true", "fs.s3a.secret.key": "x"}
    )
    assert parsed.merge_schema is True
    assert parsed.max_records_per_file == 5
    assert parsed.properties == {"delta.appendOnly": "true"}
    assert parsed.storage == {"fs.s3a.secret.key": "x"}
    assert "'x'" not in repr(parsed)


@pytest.mark.parametrize(
    ("mode", "given", "said"),
    [
        (WriteMode.OVERWRITE, {"replaceWhere": "p = 1", "overwriteSchema": "true"}, "overwriteSchema"),
        (WriteMode.OVERWRITE, {"replaceWhere": "p = 1", "partitionOverwriteMode": "dynamic"}, "both select"),
        (WriteMode.OVERWRITE, {"partitionOverwriteMode": "dynamic", "overwriteSchema": "true"}, "dynamic partition"),
        (WriteMode.OVERWRITE, {"partitionOverwriteMode": "sometimes"}, "static or dynamic"),
        (WriteMode.APPEND, {"txnVersion": "1"}, "txnAppId"),
        (WriteMode.APPEND, {"txnAppId": "a", "txnVersion": "one"}, "whole number"),
        (WriteMode.APPEND, {"overwriteSchemas": "true"}, "overwriteSchema"),
    ],
)
def test_options_that_contradict_are_refused(mode, given, said):
    with pytest.raises(InvalidArgumentError) as caught:
        options(mode, **given)
    assert said in str(caught.value)


def test_a_dynamic_session_gives_way_to_replacewhere_and_overwriteschema():
    session = Settings(partition_overwrite_mode="dynamic")

    def dynamic(**given):
        return WriteOptions.parse(given, mode=WriteMode.OVERWRITE, settings=session).dynamic

    assert dynamic() is True
    assert dynamic(replaceWhere="p = 1") is False
    assert dynamic(overwriteSchema="true") is False
    assert dynamic(partitionOverwriteMode="STATIC") is False


@pytest.mark.parametrize("text", ["append", "Overwrite", "ERROR", "errorifexists", "default", "ignore"])
def test_sparks_mode_names_are_known(text):
    assert WriteMode.parse(text) in WriteMode


def test_another_mode_is_refused():
    with pytest.raises(InvalidArgumentError, match="upsert"):
        WriteMode.parse("upsert")


# --- plans -----------------------------------------------------------------------------------------------------


def test_a_new_table_takes_the_datas_schema_as_nullable_and_drops_what_others_left_on_its_fields(log):
    data = StructType(
        (
            StructField("id", LONG, False, {"comment": "key", "delta.columnMapping.id": 3, "__qualified": True}),
            StructField("s", StructType((StructField("x", LONG, False),)), False),
        )
    )
    fields = plan(log, data).schema.fields
    assert fields[0] == StructField("id", LONG, True, {"comment": "key"})
    assert fields[1].data_type.fields[0].nullable is True


@pytest.mark.parametrize(
    ("mode", "exists", "kind"),
    [
        (WriteMode.APPEND, False, WriteKind.APPEND),
        (WriteMode.ERROR_IF_EXISTS, False, WriteKind.APPEND),
        (WriteMode.IGNORE, False, WriteKind.APPEND),
        (WriteMode.OVERWRITE, False, WriteKind.APPEND),
        (WriteMode.CREATE_OR_REPLACE, False, WriteKind.APPEND),
        (WriteMode.REPLACE, False, TableNotFoundError),
        (WriteMode.APPEND, True, WriteKind.APPEND),
        (WriteMode.OVERWRITE, True, WriteKind.OVERWRITE),
        (WriteMode.IGNORE, True, WriteKind.SKIP),
        (WriteMode.ERROR_IF_EXISTS, True, TableAlreadyExistsError),
        (WriteMode.CREATE, True, TableAlreadyExistsError),
        (WriteMode.REPLACE, True, WriteKind.OVERWRITE),
        (WriteMode.CREATE_OR_REPLACE, True, WriteKind.OVERWRITE),
    ],
)
def test_a_mode_decides_by_whether_a_table_is_there(log, mode, exists, kind):
    if exists:
        write(log, Rows("a"))
    if isinstance(kind, WriteKind):
        assert plan(log, how=options(mode)).kind is kind
    else:
        with pytest.raises(kind):
            plan(log, how=options(mode))


@pytest.mark.parametrize(
    ("columns", "error"),
    [(["nope"], "'nope' is not among"), (["id", "p"], "Every column"), (["p", "P"], "named twice")],
)
def test_partition_columns_that_cannot_be_are_refused(log, columns, error):
    with pytest.raises(SchemaError, match=error):
        plan(log, how=options(partition_by=columns))


def test_partition_columns_keep_the_schemas_spelling(log):
    assert plan(log, how=options(partition_by=["P"])).partition_columns == ("p",)


def test_a_type_that_the_format_has_not_is_named_with_its_column():
    with pytest.raises(UnsupportedFeatureError, match=r"'gap'.*interval"):
        stored_schema(StructType((StructField("gap", PrimitiveType("interval day to second")),)))


def test_mergeschema_changes_the_definition_only_when_there_is_something_new(log):
    write(log, Rows("a"))
    assert plan(log, how=options(mergeSchema="true")).metadata is None
    wider = StructType((*SCHEMA.fields, StructField("new", DATE)))
    merged = plan(log, wider, options(mergeSchema="true"))
    assert merged.schema.names == ("id", "p", "new")
    assert merged.metadata.id == log.update().metadata.id
    assert merged.parameters["canMergeSchema"] is True
    with pytest.raises(SchemaMismatchError, match="'new'"):
        plan(log, wider)


def test_overwriteschema_of_a_writer_has_the_partitioning_that_it_names(log):
    write(log, Rows("a"))
    given = StructType((StructField("x", LONG), StructField("P", STRING)))
    assert plan(log, given, options(WriteMode.OVERWRITE, overwriteSchema="true")).partition_columns == ()
    named = options(WriteMode.OVERWRITE, partition_by=["P"], overwriteSchema="true")
    assert plan(log, given, named).partition_columns == ("P",)
    assert plan(log, SCHEMA, options(WriteMode.OVERWRITE, overwriteSchema="false")).partition_columns == ("p",)


def test_a_replaced_table_keeps_its_id_and_not_its_properties(log):
    write(log, Rows("a"), options(partition_by=["p"], properties={"delta.checkpointInterval": "5"}))
    replaced = plan(log, how=options(WriteMode.REPLACE)).metadata
    assert replaced.id == log.update().metadata.id
    assert replaced.configuration == {}
    assert replaced.partition_columns == ()


# --- commits ---------------------------------------------------------------------------------------------------


BY_TABLE = [
    (WriteMode.APPEND, False, {}, "CREATE TABLE AS SELECT", set()),
    (WriteMode.APPEND, True, {}, "WRITE", {"mode"}),
    (WriteMode.OVERWRITE, False, {}, "CREATE OR REPLACE TABLE AS SELECT", {"isV1SaveAsTableOverwrite"}),
    (
        WriteMode.OVERWRITE,
        True,
        {"overwriteSchema": "true"},
        "CREATE OR REPLACE TABLE AS SELECT",
        {"isV1SaveAsTableOverwrite", "canOverwriteSchema"},
    ),
    (
        WriteMode.OVERWRITE,
        True,
        {"partitionOverwriteMode": "dynamic"},
        "CREATE OR REPLACE TABLE AS SELECT",
        {"isV1SaveAsTableOverwrite", "isDynamicPartitionOverwrite"},
    ),
    (WriteMode.OVERWRITE, True, {"replaceWhere": "p = 'a'"}, "WRITE", {"mode", "predicate"}),
]


@pytest.mark.parametrize(("mode", "exists", "given", "operation", "says"), BY_TABLE)
def test_what_the_history_says_of_saveastable(log, mode, exists, given, operation, says):
    if exists:
        write(log, Rows("a"))
    made = plan(log, how=replace(options(mode, **given), managed=True, by_save_as_table=True))
    assert made.operation == operation
    definition = {"isManaged", "description", "partitionBy", "clusterBy", "properties"}
    assert set(made.parameters) == (says | {"partitionBy"} if operation == "WRITE" else says | definition)
    assert made.parameters.get("isManaged", True) is True


@pytest.mark.parametrize("mode", [WriteMode.OVERWRITE, WriteMode.CREATE_OR_REPLACE])
def test_an_overwrite_that_makes_the_table_removes_nothing_and_says_so(log, mode):
    write(log, Rows("a"), options(mode, partition_by=["p"]))
    info = log.history(1)[0].commit_info.fields
    assert info["operationMetrics"]["numRemovedFiles"] == "0"
    assert info["isBlindAppend"] is False


@pytest.mark.parametrize("mode", [WriteMode.APPEND, WriteMode.OVERWRITE])
@pytest.mark.parametrize("exists", [False, True])
def test_data_without_columns_is_refused(log, mode, exists):
    if exists:
        write(log, Rows("a"))
    with pytest.raises(SchemaError, match="no columns") as caught:
        plan(log, StructType(()), options(mode))
    assert caught.value.code == "DELTA_EMPTY_DATA"


def test_a_write_creates_appends_and_overwrites(log):
    engine = Engine()
    assert write(log, Rows("a", "b"), engine=engine).version == 0
    result = write(log, Rows("c"), engine=engine)
    assert (result.version, result.num_files, result.num_rows, result.num_bytes) == (1, 1, 3, 10)
    assert live(log) == ["a", "b", "c"]
    result = write(log, Rows("z"), options(WriteMode.OVERWRITE), engine=engine)
    assert result.num_removed_files == 3
    assert live(log) == ["z"]
    assert [snapshot.version for snapshot in engine.snapshots] == [0, 1, 2]
    info = log.history(1)[0].commit_info.fields
    assert info["operationMetrics"]["numRemovedFiles"] == "3"
    assert info["isBlindAppend"] is False


def test_dynamic_overwrite_replaces_the_partitions_it_writes_null_included(log):
    write(log, Rows("a", None, "b", None))
    how = options(WriteMode.OVERWRITE, partitionOverwriteMode="dynamic")
    result = write(log, Rows(None, "c"), how)
    assert result.num_removed_files == 2
    assert live(log) == ["a", "b", "c", "null"]
    assert write(log, Rows(), how).num_removed_files == 0


@pytest.mark.parametrize("given", [{"replaceUsing": "id"}, {"replaceOn": "t.id = s.id", "targetAlias": "t"}])
def test_what_would_replace_only_some_rows_never_replaces_all(log, given):
    write(log, Rows("1", "2"))
    before = live(log)
    with pytest.raises(UnsupportedFeatureError, match="need the engine"):  # these rows cannot tell what they match
        write(log, Rows("1"), options(WriteMode.OVERWRITE, **given))
    assert live(log) == before
    assert log.update().version == 0


def test_dynamic_overwrites_of_different_partitions_do_not_conflict_and_of_the_same_do(log):
    how = options(WriteMode.OVERWRITE, partitionOverwriteMode="dynamic")

    class Racing(Rows):
        def __init__(self, own, other):
            super().__init__(own)
            self._other = other

        def write(self, target):
            write(log, Rows(self._other), how)
            return super().write(target)

    write(log, Rows("a", "b", None))
    write(log, Racing("a", "b"), how)
    assert live(log) == ["a", "b", "null"]
    with pytest.raises(DeltaConcurrentModificationException):
        write(log, Racing("a", "a"), how)


def test_a_dynamic_overwrite_of_very_many_partitions(log):
    values = [f"{number:03d}" for number in range(150)]
    write(log, Rows(*values))
    how = options(WriteMode.OVERWRITE, partitionOverwriteMode="dynamic")
    assert write(log, Rows(*values[:120]), how).num_removed_files == 120
    assert live(log) == values


def test_a_txnversion_that_landed_is_skipped_before_anything_is_written(log):
    how = options(partition_by=["p"], txnAppId="job", txnVersion="7")
    write(log, Rows("a"), how)
    again = Rows("a")
    result = write(log, again, how)
    assert result.skipped
    assert again.targets == []
    assert log.update().version == 0


def test_an_append_only_table_refuses_an_overwrite_before_anything_is_written(log):
    write(log, Rows("a"), options(partition_by=["p"], properties={"delta.appendOnly": "true"}))
    rows = Rows("b")
    with pytest.raises(UnsafeOperationError, match="append-only"):
        write(log, rows, options(WriteMode.OVERWRITE))
    assert rows.targets == []


def test_a_failed_commit_discards_what_was_staged_and_counts_it(log):
    write(log, Rows("a"))
    engine = Engine()

    class Racing(Rows):
        def write(self, target):
            written = super().write(target)
            write(
                log, Rows("w", schema=StructType((*SCHEMA.fields, StructField("n", DATE)))), options(mergeSchema="true")
            )
            return written

    with pytest.raises(Exception, match="2 files were staged") as caught:
        write(log, Racing("x", "y"), engine=engine)
    assert caught.value.retryable
    assert len(engine.discarded) == 2
    assert live(log) == ["a", "w"]


def test_an_unknown_outcome_keeps_what_was_staged(log, monkeypatch):
    write(log, Rows("a"))
    engine = Engine()

    def lost(self, *args, **kwargs):
        raise CommitStateUnknownError("the reply was lost", txn_id="t", hint="Look for t.")

    monkeypatch.setattr(OptimisticTransaction, "commit", lost)
    with pytest.raises(CommitStateUnknownError, match="1 file was written for it and kept"):
        write(log, Rows("x"), engine=engine)
    assert engine.discarded == []


def test_datachange_false_marks_adds_and_removes(log):
    write(log, Rows("a"))
    write(log, Rows("b"), options(WriteMode.OVERWRITE, dataChange="false"))
    assert {a.data_change for a in log.actions(1) if a.kind in ("add", "remove")} == {False}


# --- create ----------------------------------------------------------------------------------------------------


def create(log, mode=CreateMode.CREATE, **more):
    return create_table(log, TableDefinition(**{"schema": SCHEMA, **more}), mode=mode, settings=Settings())


def test_create_makes_version_zero_and_says_so(log):
    result = create(log, partition_columns=["P"], properties={"delta.appendOnly": "true"}, description="flights")
    snapshot = log.update()
    assert result.version == 0
    assert snapshot.partition_columns == ("p",)
    assert snapshot.metadata.description == "flights"
    assert snapshot.schema == SCHEMA
    info = log.history(1)[0].commit_info.fields
    assert info["operation"] == "CREATE TABLE"
    assert json.loads(info["operationParameters"]["properties"]) == {"delta.appendOnly": "true"}
    assert info["operationParameters"]["partitionBy"] == '["p"]'


def test_create_modes(log):
    with pytest.raises(TableNotFoundError):
        create(log, CreateMode.REPLACE)
    assert create(log, CreateMode.CREATE_IF_NOT_EXISTS).version == 0
    assert create(log, CreateMode.CREATE_IF_NOT_EXISTS).version is None
    with pytest.raises(TableAlreadyExistsError):
        create(log)
    write(log, Rows("x", partitioned=False), options())
    result = create(log, CreateMode.REPLACE, partition_columns=["p"])
    assert (result.version, result.num_removed_files) == (2, 1)
    assert log.update().num_files == 0
    assert create(log, CreateMode.CREATE_OR_REPLACE).version == 3
    assert log.history(1)[0].commit_info.operation == "CREATE OR REPLACE TABLE"


def test_create_refuses_a_place_with_other_files(log):
    log.store.put("old/part-0.parquet", b"x")
    with pytest.raises(TableAlreadyExistsError, match="part-0"):
        create(log)


def test_create_takes_defaults_from_the_session_and_options_over_them(log):
    settings = Settings(default_properties={"delta.appendOnly": "true", "delta.checkpointInterval": "3"})
    create_table(
        log,
        TableDefinition(schema=SCHEMA, properties={"delta.checkpointInterval": "7"}),
        mode=CreateMode.CREATE,
        settings=settings,
    )
    assert log.update().metadata.configuration == {"delta.appendOnly": "true", "delta.checkpointInterval": "7"}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"schema": StructType((StructField("a b", LONG),))}, SchemaError),
        ({"schema": StructType((StructField("a", LONG), StructField("A", LONG)))}, SchemaError),
        ({"schema": StructType((StructField("a", PrimitiveType("interval year")),))}, UnsupportedFeatureError),
        ({"properties": {"delta.appendOnyl": "true"}}, UnknownSettingError),
        ({"properties": {"delta.columnMapping.mode": "nmae"}}, InvalidArgumentError),
        ({"partition_columns": ["zip"]}, SchemaError),
    ],
)
def test_definitions_that_cannot_be_are_refused(log, change, error):
    with pytest.raises(error):
        plan_create(
            log.update(),
            TableDefinition(**{"schema": SCHEMA, **change}),
            mode=CreateMode.CREATE,
            settings=Settings(),
        )


def test_a_replace_of_an_append_only_table_is_refused(log):
    create(log, properties={"delta.appendOnly": "true"})
    with pytest.raises(UnsafeOperationError, match="append-only"):
        create(log, CreateMode.REPLACE)


def test_overwriteschema_keeps_the_ids_of_columns_that_stay_and_gives_new_ones_to_others(log):
    create(log, properties={"delta.columnMapping.mode": "name"})
    before = log.update()
    kept, given = SCHEMA.fields[0].name, StructType((SCHEMA.fields[0], StructField("other", LONG)))
    made = plan(log, given, options(WriteMode.OVERWRITE, overwriteSchema="true"))
    assert made.schema.field(kept).metadata == before.schema.field(kept).metadata
    highest = int(before.properties.column_mapping_max_id)
    assert made.schema.field("other").metadata["delta.columnMapping.id"] == highest + 1
    assert made.schema.field("other").metadata["delta.columnMapping.physicalName"].startswith("col-")
    assert made.configuration["delta.columnMapping.maxColumnId"] == str(highest + 1)


def test_a_new_table_with_column_mapping_takes_any_name(log):
    create(log, properties={"delta.columnMapping.mode": "id"}, schema=StructType((StructField("a b,(c)", LONG),)))
    snapshot = log.update()
    assert snapshot.column_mapping_mode == "id"
    assert snapshot.schema.fields[0].metadata["delta.columnMapping.id"] == 1
    assert (snapshot.protocol.min_reader_version, snapshot.protocol.min_writer_version) == (2, 5)


def _constrain(log, condition):
    alter_table(log, SetProperties(properties={"delta.feature.checkConstraints": "supported"}))
    metadata, txn = log.update().metadata, start_transaction(log)
    txn.update_metadata(metadata.replace(configuration={**metadata.configuration, "delta.constraints.c": condition}))
    txn.commit([], Operation(name="ADD CONSTRAINT"))


def test_a_wider_column_is_widened_by_the_data_only_where_the_table_allows_it(log):
    small = StructType((StructField("n", PrimitiveType("integer")), StructField("f", PrimitiveType("float"))))
    wide = StructType((StructField("n", LONG), StructField("f", PrimitiveType("double"))))
    create(log, schema=small)
    merging = options(WriteMode.APPEND, mergeSchema="true")
    with pytest.raises(SchemaMismatchError):
        plan(log, wide, merging)
    alter_table(log, SetProperties(properties={"delta.enableTypeWidening": "true"}))
    made = plan(log, wide, merging)
    assert [field.metadata["delta.typeChanges"] for field in made.schema.fields] == [
        [{"toType": "long", "fromType": "integer"}],
        [{"toType": "double", "fromType": "float"}],
    ]
    with pytest.raises(SchemaMismatchError):  # only ALTER TABLE makes another kind of number of it
        plan(log, StructType((StructField("n", PrimitiveType("double")),)), merging)
    _constrain(log, "n > 0")
    with pytest.raises(UnsafeOperationError, match="CHECK constraint c"):
        plan(log, wide, merging)


def test_a_constraint_keeps_the_type_of_the_fields_that_it_reads_and_of_no_others(log):
    def table(x, y):
        inner = StructType((StructField("x", PrimitiveType(x)), StructField("y", PrimitiveType(y))))
        return StructType((StructField("s", ArrayType(inner, True)), StructField("t", inner)))

    create(log, schema=table("byte", "byte"), properties={"delta.enableTypeWidening": "true"})
    _constrain(log, "t.x > 0")
    merging = options(WriteMode.APPEND, mergeSchema="true")
    made = plan(log, StructType((table("long", "long").fields[0], table("byte", "long").fields[1])), merging)
    parts = made.schema.field("t").data_type, made.schema.field("s").data_type.element_type
    assert [[field.data_type.name for field in part.fields] for part in parts] == [["byte", "long"], ["long", "long"]]
    with pytest.raises(UnsafeOperationError, match=r"t\.x cannot be of another type: .* constraint c"):
        plan(log, table("long", "byte"), merging)


def test_a_write_that_only_rearranges_rows_makes_no_table_and_changes_no_schema(log):
    wider = StructType((*SCHEMA.fields, StructField("extra", PrimitiveType("long"))))
    made = options(dataChange="false")
    with pytest.raises(InvalidArgumentError, match="create the table") as new:
        plan(log, how=made)
    write(log, Rows("a"))
    with pytest.raises(InvalidArgumentError, match="change the table's schema") as changed:
        plan(log, data=wider, how=options(dataChange="false", mergeSchema="true"))
    assert {new.value.code, changed.value.code} == {"DELTA_DATA_CHANGE_FALSE"}
    assert plan(log, how=made).metadata is None


@pytest.mark.parametrize("mode", [CreateMode.REPLACE, CreateMode.CREATE_OR_REPLACE])
def test_a_table_is_not_replaced_by_one_without_columns_and_keeps_its_rows(log, mode):
    write(log, Rows("a"))
    with pytest.raises(SchemaError) as refused:
        create_table(log, TableDefinition(schema=StructType(())), mode=mode, settings=Settings())
    assert refused.value.code == "DELTA_SCHEMA_NOT_PROVIDED"
    assert log.update().version == 0 and live(log) == ["a"]


@pytest.mark.parametrize(
    "inside",
    [
        lambda point: ArrayType(point, True),
        lambda point: MapType(STRING, point, True),
        lambda point: StructType((StructField("a", ArrayType(MapType(point, LONG, True), True)),)),
    ],
)
def test_not_null_within_an_array_or_map_is_refused_when_a_table_is_made_since_nothing_would_check_it(log, inside):
    def make(nullable):
        column = StructField("c", inside(StructType((StructField("x", LONG, nullable),))))
        return plan_create(
            log.update(), TableDefinition(schema=StructType((column,))), mode=CreateMode.CREATE, settings=Settings()
        )

    with pytest.raises(SchemaError, match="NOT NULL within an array or map") as refused:
        make(False)
    assert refused.value.code == "DELTA_NESTED_NOT_NULL_CONSTRAINT"
    assert make(True).metadata is not None
