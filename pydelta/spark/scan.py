"""A snapshot in, a DataFrame over Spark's own Parquet scan out.

::

    Snapshot --physical schema--> HadoopFsRelation(DeltaFileIndex, ParquetFileFormat)
                                    `--projection--> logical names, hidden columns dropped

The projection is there only when it does something: column mapping, void columns or hidden columns.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pydelta.errors import UnsupportedFeatureError
from pydelta.log.pruning import prune_by_statistics
from pydelta.log.row_ids import with_row_ids
from pydelta.predicate import rename_columns
from pydelta.protocol.evolution import can_widen
from pydelta.protocol.schema import logical_to_physical, physical_name
from pydelta.protocol.types import ArrayType, DataType, MapType, StructField, StructType, parse_type
from pydelta.spark.index import DeltaFileIndex, HiddenColumn, IndexIdentity, Pruner, ScanFiles
from pydelta.spark.jvm import Jvm
from pydelta.spark.row_tracking import TRACKING_HIDDEN, tracked_fields, tracking_columns

if TYPE_CHECKING:
    from pydelta.log import Snapshot

__all__ = ["FILE_ROW_COLUMN", "make_relation", "scan_dataframe"]

FILE_ROW_COLUMN: Final = "__pydelta_file_row"
"""Column that ``with_file_identity`` adds: the file's position in the frame that was given."""

_DROPPED_METADATA: Final = ("delta.", "EXISTS_DEFAULT")
_FIELD_ID: Final = "parquet.field.id"


def scan_dataframe(
    spark: SparkSession,
    snapshot: Snapshot,
    *,
    pinned: bool,
    files: pl.DataFrame | None = None,
    with_file_identity: bool = False,
    with_row_tracking: bool = False,
) -> DataFrame:
    """The rows of a snapshot, read by the JVM.

    Args:
        spark: A classic session.
        snapshot: What to read. The DataFrame stays at this version, whatever is committed later.
        pinned: The user named the version: caches over it are never rebuilt.
        files: Rows of ``snapshot.files.core``: scan these files alone; None for all.
        with_file_identity: Add ``FILE_ROW_COLUMN`` (bigint): the position in ``files`` of the row's file.
        with_row_tracking: Add ``ROW_ID_COLUMN`` and ``ROW_VERSION_COLUMN`` (bigint); null for a row that has none.

    Returns:
        A DataFrame with the table's columns in the table's order; ``_metadata`` can be selected.

    Raises:
        UnsupportedFeatureError: A file to be read has a deletion vector; its rows would come back.

    Protocol: "Reader Requirements for Column Mapping", "Reader Requirement for Deletion Vectors".
    """
    frame = snapshot.files.core if files is None else files
    hidden: tuple[HiddenColumn, ...] = ()
    subset = "" if files is None else _subset_text(frame)
    if with_file_identity:
        frame = frame.with_row_index(FILE_ROW_COLUMN)
        hidden = (HiddenColumn(name=FILE_ROW_COLUMN, spark_type="long", column=FILE_ROW_COLUMN),)
        subset += "+file"
    tracked: tuple[StructField, ...] = ()
    shown = hidden
    if with_row_tracking:
        frame = with_row_ids(snapshot.files, frame)
        tracked, hidden = tracked_fields(snapshot.properties), (*hidden, *TRACKING_HIDDEN)
        subset += "+rows"
    relation = make_relation(spark, snapshot, pinned=pinned, frame=frame, hidden=hidden, subset=subset, tracked=tracked)
    jvm = Jvm.of(spark)
    scanned = DataFrame(jvm.session.baseRelationToDataFrame(relation), spark)
    extra = tracking_columns(scanned, snapshot.properties) if with_row_tracking else ()
    return _project(scanned, snapshot.schema, snapshot.column_mapping_mode, shown, extra)


def make_relation(
    spark: SparkSession,
    snapshot: Snapshot,
    *,
    pinned: bool,
    frame: pl.DataFrame | None = None,
    hidden: tuple[HiddenColumn, ...] = (),
    subset: str = "",
    tracked: tuple[StructField, ...] = (),
) -> Any:
    """The ``HadoopFsRelation`` of a snapshot, with physical names; ``tracked`` are data columns beside the table's."""
    jvm = Jvm.of(spark)
    mode = snapshot.column_mapping_mode
    assert snapshot.metadata is not None, "a table that does not exist has nothing to scan"
    if frame is None:
        frame = snapshot.files.core
    _refuse_live_vectors(snapshot, frame)
    _refuse_unknown_widening(snapshot, snapshot.schema)
    physical = _readable(logical_to_physical(snapshot.schema, mode), keep_ids=mode == "id")
    logical_names = {name.lower() for name in snapshot.partition_columns}
    by_name = {
        logical.name.lower(): field for logical, field in zip(_kept(snapshot.schema), physical.fields, strict=True)
    }
    partition_fields = tuple(by_name[name.lower()] for name in snapshot.partition_columns)
    assert len(partition_fields) == len(logical_names)
    extra = tuple({"name": item.name, "type": item.spark_type, "nullable": True, "metadata": {}} for item in hidden)
    identity = IndexIdentity(
        table_id=snapshot.metadata.id, location=snapshot.table_uri, version=snapshot.version, subset=subset
    )
    partition_schema = jvm.struct(_schema_json(partition_fields, extra))
    index = DeltaFileIndex(
        jvm,
        ScanFiles(
            identity=identity,
            frame=frame,
            partition_types={field.name: str(field.data_type) for field in partition_fields},
            hidden=hidden,
            size_bytes=int(frame["size"].sum() or 0),
            pinned=pinned,
            prune=_pruner(jvm, snapshot, mode),
        ),
        partition_schema,
    )
    options = {"spark.sql.parquet.fieldId.read.enabled": "true"} if mode == "id" else {}
    # All columns are data columns to Spark, partition columns too: it then keeps the table's order.
    data_schema = jvm.struct(_schema_json((*physical.fields, *tracked), ()))
    return jvm.file_relation(index, partition_schema=partition_schema, data_schema=data_schema, options=options)


def _pruner(jvm: Jvm, snapshot: Snapshot, mode: str) -> Pruner:
    """Skipping by statistics, for filters over the scan's physical names."""
    names = {} if mode == "none" else dict(_logical_paths(snapshot.schema, (), ()))

    def prune(files: pl.DataFrame, filters: Sequence[Any]) -> pl.DataFrame:
        logical = [rename_columns(expr, names) for expr in filters] if names else list(filters)
        return prune_by_statistics(snapshot.files, files, logical, time_zone=jvm.time_zone())

    return prune


def _logical_paths(
    schema: StructType, physical: tuple[str, ...], logical: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    for field in schema.fields:
        paths = (*physical, physical_name(field)), (*logical, field.name)
        yield paths
        if isinstance(field.data_type, StructType):
            yield from _logical_paths(field.data_type, *paths)


def _refuse_live_vectors(snapshot: Snapshot, frame: pl.DataFrame) -> None:
    """Until vectors are applied, a file that has one is not read at all."""
    if frame["dv_id"].null_count() == frame.height:
        return
    path = frame.filter(pl.col("dv_id").is_not_null())["path"][0]
    raise UnsupportedFeatureError(
        f"The file {path!r} has a deletion vector, and this version of the engine does not read deletionVectors.",
        features=("deletionVectors",),
        hint="Rewrite the table without deletion vectors (REORG TABLE … APPLY (PURGE) in the engine that wrote them), "
        "or read an older version with versionAsOf.",
        table=snapshot.table_uri,
        version=snapshot.version,
    )


def _refuse_unknown_widening(snapshot: Snapshot, data_type: DataType) -> None:
    """A column whose type changed in a way that Spark's reader may not follow would be read wrong."""
    if isinstance(data_type, StructType):
        for field in data_type.fields:
            for change in field.metadata.get("delta.typeChanges", ()):
                old, new = parse_type(change["fromType"]), parse_type(change["toType"])
                if not can_widen(old, new):
                    raise UnsupportedFeatureError(
                        f"The column {field.name!r} was changed from {old} to {new}, which widening does not allow.",
                        features=("typeWidening",),
                        hint="Read the table with the engine that made the change, and rewrite it there.",
                        table=snapshot.table_uri,
                        version=snapshot.version,
                    )
            _refuse_unknown_widening(snapshot, field.data_type)
    elif isinstance(data_type, ArrayType):
        _refuse_unknown_widening(snapshot, data_type.element_type)
    elif isinstance(data_type, MapType):
        _refuse_unknown_widening(snapshot, data_type.key_type)
        _refuse_unknown_widening(snapshot, data_type.value_type)


def _subset_text(frame: pl.DataFrame) -> str:
    """A digest of which files, in which order."""
    digest = hashlib.sha256()
    for column in ("path", "dv_id"):
        digest.update(frame[column].hash(seed=1).to_numpy().tobytes())
    return f"files={frame.height}:{digest.hexdigest()[:32]}"


# --- schemas -----------------------------------------------------------------------------------------------


def _kept(schema: StructType) -> tuple[StructField, ...]:
    return tuple(field for field in schema.fields if str(field.data_type) != "void")


def _readable(schema: StructType, *, keep_ids: bool) -> StructType:
    """The schema without top-level void columns, which no Parquet file holds, and without the log's own metadata.

    Field ids stay only where columns are found by them: Spark refuses files without ids for a schema that has some.
    """
    dropped = _DROPPED_METADATA if keep_ids else (*_DROPPED_METADATA, _FIELD_ID)
    return StructType(tuple(_clean(field, dropped) for field in _kept(schema)))


def _clean(field: StructField, dropped: tuple[str, ...]) -> StructField:
    metadata = {name: value for name, value in field.metadata.items() if not name.startswith(dropped)}
    return field.replace(data_type=_clean_type(field.data_type, dropped), metadata=metadata)


def _clean_type(data_type: DataType, dropped: tuple[str, ...]) -> DataType:
    if isinstance(data_type, StructType):
        return StructType(tuple(_clean(field, dropped) for field in data_type.fields))
    if isinstance(data_type, ArrayType):
        return ArrayType(_clean_type(data_type.element_type, dropped), data_type.contains_null)
    if isinstance(data_type, MapType):
        return MapType(
            _clean_type(data_type.key_type, dropped),
            _clean_type(data_type.value_type, dropped),
            data_type.value_contains_null,
        )
    return data_type


def _schema_json(fields: Sequence[StructField], extra: Sequence[dict[str, Any]]) -> str:
    return json.dumps({"type": "struct", "fields": [*(field.to_dict() for field in fields), *extra]})


# --- physical rows -> logical rows -------------------------------------------------------------------------


def _project(
    frame: DataFrame, schema: StructType, mode: str, hidden: tuple[HiddenColumn, ...], extra: Sequence[Column] = ()
) -> DataFrame:
    """Give the columns their logical names; frames that have them already stay as they are."""
    if mode == "none" and not hidden and not extra and len(_kept(schema)) == len(schema.fields):
        return frame
    columns = []
    for field in schema.fields:
        if str(field.data_type) == "void":
            columns.append(F.lit(None).alias(field.name))
            continue
        source = physical_name(field) if mode != "none" else field.name
        value = frame[_quoted(source)]
        if mode != "none":
            value = _rename(value, field.data_type)
        columns.append(value.alias(field.name, metadata=_user_metadata(field)))
    columns.extend(frame[item.name] for item in hidden)
    columns.extend(extra)
    return frame.select(*columns)


def _user_metadata(field: StructField) -> dict[str, Any]:
    return {
        name: value
        for name, value in field.metadata.items()
        if not name.startswith(_DROPPED_METADATA) and name != _FIELD_ID
    }


def _renamed_inside(data_type: DataType) -> bool:
    if isinstance(data_type, StructType):
        return any(physical_name(f) != f.name or _renamed_inside(f.data_type) for f in data_type.fields)
    if isinstance(data_type, ArrayType):
        return _renamed_inside(data_type.element_type)
    if isinstance(data_type, MapType):
        return _renamed_inside(data_type.key_type) or _renamed_inside(data_type.value_type)
    return False


def _rename(value: Column, data_type: DataType) -> Column:
    """A value with physical field names inside -> the same with logical names; null stays null.

    A rebuilt struct keeps nested column pruning, which a cast to the logical type would lose.
    """
    if not _renamed_inside(data_type):
        return value
    if isinstance(data_type, StructType):
        parts = [
            _rename(value.getField(physical_name(field)), field.data_type).alias(field.name)
            for field in data_type.fields
        ]
        return F.when(value.isNotNull(), F.struct(*parts))
    if isinstance(data_type, ArrayType):
        element = data_type.element_type
        return F.transform(value, lambda item: _rename(item, element))
    if isinstance(data_type, MapType):
        key_type, value_type = data_type.key_type, data_type.value_type
        if _renamed_inside(key_type):
            value = F.transform_keys(value, lambda key, _: _rename(key, key_type))
        if _renamed_inside(value_type):
            value = F.transform_values(value, lambda _, item: _rename(item, value_type))
    return value


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
