"""Scan a snapshot as a DataFrame over Spark's own Parquet scan.

::

    Snapshot --physical schema--> HadoopFsRelation(DeltaFileIndex, ParquetFileFormat)
                                    `--deletion vectors, if any--> deleted_rows.vector_scan
                                    `--projection--> logical names, hidden columns dropped

There is a projection only if it has an effect: with column mapping, void columns or hidden columns.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.scan.deleted_rows import SnapshotVectors, bitmap_columns, in_bitmap, make_bitmap, vector_scan
from pydelta.engines.spark.scan.index import (
    MATCH_COLUMNS,
    TABLE_SCAN,
    VECTOR_COLUMNS,
    DeltaFileIndex,
    HiddenColumn,
    IndexIdentity,
    Pruner,
    ScanFiles,
    VectorReader,
    find_index,
)
from pydelta.engines.spark.scan.tracked_rows import TRACKING_HIDDEN, tracked_fields, tracking_columns
from pydelta.errors import SchemaError, UnsupportedFeatureError
from pydelta.errors.conditions import Condition
from pydelta.log import FileTable
from pydelta.log.pruning import prune_by_generated, prune_by_statistics
from pydelta.log.row_ids import with_row_ids
from pydelta.predicate import Expr, rename_columns
from pydelta.protocol.evolution import can_widen
from pydelta.protocol.names import quoted
from pydelta.protocol.row_sets import RowSet
from pydelta.protocol.schema import (
    EXISTENCE_DEFAULT,
    logical_to_physical,
    physical_name,
    physical_partition_columns,
)
from pydelta.protocol.types import ArrayType, DataType, MapType, StructField, StructType, parse_type, plain_type

if TYPE_CHECKING:
    from pydelta.log import Snapshot

__all__ = [
    "FILE_ROW_COLUMN",
    "MATCHED_COLUMN",
    "ROW_INDEX_COLUMN",
    "Extra",
    "Reading",
    "make_relation",
    "matching_partitions",
    "physical_scan",
    "project",
    "scan_dataframe",
    "scan_matched",
]

FILE_ROW_COLUMN: Final = "__pydelta_file_row"
"""Column of ``Extra.FILE``: the file's position in the given frame."""

ROW_INDEX_COLUMN: Final = "__pydelta_row_index"
"""Column of ``Extra.ROW``: the row's position in its file, counting deleted rows."""

MATCHED_COLUMN: Final = "__pydelta_matched"
"""Column of ``scan_matched`` (boolean, never null): whether the row is one of the given rows."""

_DROPPED_METADATA: Final = ("delta.",)
_PLACE: Final = "__pydelta_place"
_SERIALS: Final = itertools.count(1)
_FIELD_ID: Final = "parquet.field.id"


class Extra(enum.Flag):
    """Columns that a scan adds to the table's.

    ``FILE`` is ``FILE_ROW_COLUMN`` (bigint): the position of the row's file among the scanned files. ``ROW`` is
    ``ROW_INDEX_COLUMN`` (bigint): the position of the row in its file. ``TRACKING`` is ``ROW_ID_COLUMN`` and
    ``ROW_VERSION_COLUMN`` (bigint), null for a row without them.
    """

    NONE = 0
    FILE = enum.auto()
    ROW = enum.auto()
    TRACKING = enum.auto()
    PLACE = FILE | ROW


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Files that a scan reads, and additional columns of their rows.

    Args:
        files: Rows of ``snapshot.files.core``, or all files of a log that is read in parts and has no vectors.
        pinned: Whether the user named the version. Caches over it are never rebuilt.
        hidden: Columns of ``files`` to add, one value per file.
        subset: Text that distinguishes the scan from others of the version, empty for a plain one of all files.
        tracked: Data columns in addition to the table's.
        bitmaps: See ``ScanFiles``. Those of deletion vectors are added.
        shared: See ``ScanFiles``.
        prune: Function that narrows files by statistics, or None for the snapshot's own.
        fixed: See ``ScanFiles``.
        schema: Columns of the table to read, as an older version had them, or None for all.
        storage: See ``ScanFiles``.
    """

    files: pl.DataFrame | FileTable
    pinned: bool = True
    hidden: tuple[HiddenColumn, ...] = ()
    subset: str = ""
    tracked: tuple[StructField, ...] = ()
    bitmaps: Mapping[tuple[str, ...], VectorReader] = dataclasses.field(default_factory=dict)
    shared: bool = False
    prune: Pruner | None = None
    fixed: bool = False
    schema: StructType | None = None
    storage: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def whole(cls, snapshot: Snapshot, *, pinned: bool = False) -> Reading:
        """Read all files of a version."""
        protocol = snapshot.protocol
        vectors = protocol is None or "deletionVectors" in (protocol.reader_features or ())
        in_parts = snapshot.files.in_parts and not vectors
        return cls(files=snapshot.files if in_parts else snapshot.files.core, pinned=pinned)


def scan_dataframe(
    spark: SparkSession,
    snapshot: Snapshot,
    *,
    pinned: bool,
    files: pl.DataFrame | None = None,
    extra: Extra = Extra.NONE,
    storage: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read the rows of a snapshot in the JVM.

    Args:
        spark: A classic session.
        snapshot: The snapshot to read. The DataFrame stays at this version, whatever is committed later.
        pinned: Whether the user named the version. Caches over it are never rebuilt.
        files: Rows of ``snapshot.files.core`` to scan, or None for all.
        extra: Columns to add.
        storage: Options for the store. Used only without ``files`` and ``extra``.

    Returns:
        A DataFrame with the table's columns in the table's order, without the rows that deletion vectors delete.
        ``_metadata`` can be selected.

    Raises:
        SchemaError: The table was created without columns.
        UnsupportedFeatureError: A column's type was changed in a way that Spark's reader does not support.

    Protocol: "Reader Requirements for Column Mapping", "Reader Requirement for Deletion Vectors".
    """
    if not snapshot.schema.fields:
        raise SchemaError(
            f"The table at {snapshot.table_uri} has no columns yet.",
            hint="Write rows with the option mergeSchema=true, or add columns: ALTER TABLE … ADD COLUMNS.",
            condition=Condition.of("DELTA_READ_TABLE_WITHOUT_COLUMNS", tableName=snapshot.table_uri),
        )
    if files is None and extra is Extra.NONE:
        reading = replace(Reading.whole(snapshot, pinned=pinned), storage=storage or {})
        scanned = physical_scan(spark, snapshot, reading)
        return project(scanned, snapshot.schema, snapshot.column_mapping_mode, ())
    frame = snapshot.files.core if files is None else files
    hidden: tuple[HiddenColumn, ...] = ()
    subset = "" if files is None else _subset_text(frame)
    if Extra.FILE in extra:
        frame = frame.with_row_index(FILE_ROW_COLUMN)
        hidden = (HiddenColumn(name=FILE_ROW_COLUMN, spark_type="long", column=FILE_ROW_COLUMN),)
        subset += "+file"
    tracked: tuple[StructField, ...] = ()
    shown = hidden
    if Extra.TRACKING in extra:
        frame = with_row_ids(snapshot.files, frame)
        tracked, hidden = tracked_fields(snapshot.row_tracking), (*hidden, *TRACKING_HIDDEN)
        subset += "+rows"
    reading = Reading(files=frame, pinned=pinned, hidden=hidden, subset=subset, tracked=tracked)
    scanned = physical_scan(spark, snapshot, reading)
    added = tracking_columns(scanned, snapshot.row_tracking) if Extra.TRACKING in extra else ()
    if Extra.ROW in extra:
        added = (scanned.metadataColumn("_metadata").getField("row_index").alias(ROW_INDEX_COLUMN), *added)
    return project(scanned, snapshot.schema, snapshot.column_mapping_mode, shown, added)


def scan_matched(
    spark: SparkSession,
    snapshot: Snapshot,
    files: pl.DataFrame,
    rows: Mapping[int, RowSet],
    *,
    with_row_tracking: bool = False,
) -> DataFrame:
    """Read the live rows of files, and mark the given rows.

    Args:
        spark: A classic session.
        snapshot: The table.
        files: Rows of ``snapshot.files.core``.
        rows: The rows to mark, by position in ``files``. Every position must be present.
        with_row_tracking: Whether to add the columns of ``Extra.TRACKING``.

    Returns:
        The table's columns, ``MATCHED_COLUMN``, and those of ``with_row_tracking``.
    """
    numbered = files.with_row_index(_PLACE)
    if with_row_tracking:
        numbered = with_row_ids(snapshot.files, numbered)
    has_vector = numbered["dv_id"].is_not_null()
    parts = [part for part in (numbered.filter(~has_vector), numbered.filter(has_vector)) if part.height]
    found = [_scan_matched(spark, snapshot, part, rows, with_row_tracking=with_row_tracking) for part in parts]
    return reduce(DataFrame.union, found)  # Unite finished columns: above the union, bitmaps would be copied per row.


def _scan_matched(
    spark: SparkSession, snapshot: Snapshot, files: pl.DataFrame, rows: Mapping[int, RowSet], *, with_row_tracking: bool
) -> DataFrame:
    """See ``scan_matched``. Either all files have a deletion vector, or none has."""

    def read(files: pl.DataFrame) -> pa.Table:
        return bitmap_columns([make_bitmap(rows[place]) for place in files[_PLACE]])

    scanned = physical_scan(
        spark,
        snapshot,
        Reading(
            files=files,
            hidden=TRACKING_HIDDEN if with_row_tracking else (),
            subset=f"{_subset_text(files)}+matched={next(_SERIALS)}",
            tracked=tracked_fields(snapshot.row_tracking) if with_row_tracking else (),
            bitmaps={MATCH_COLUMNS: read},
        ),
    )
    matched = in_bitmap(Jvm.of(spark), scanned).alias(MATCHED_COLUMN)
    extra = tracking_columns(scanned, snapshot.row_tracking) if with_row_tracking else ()
    return project(scanned, snapshot.schema, snapshot.column_mapping_mode, (), (matched, *extra))


def matching_partitions(spark: SparkSession, snapshot: Snapshot, files: pl.DataFrame, condition: Any) -> pl.DataFrame:
    """Find the files whose partition values make a condition true, as evaluated by Spark.

    Args:
        spark: A classic session.
        snapshot: The table.
        files: Rows of ``snapshot.files.core``.
        condition: A Catalyst expression over partition columns, by their logical names.
    """
    relation = make_relation(Jvm.of(spark), snapshot, Reading(files=files, subset=_subset_text(files)))
    index = find_index(relation.location())
    assert index is not None
    logical = [field.name for name in snapshot.partition_columns if (field := snapshot.schema.field(name)) is not None]
    physical = physical_partition_columns(snapshot.schema, logical, snapshot.column_mapping_mode)
    return index.partition_matches([condition], dict(zip(logical, physical, strict=True)))


def physical_scan(
    spark: SparkSession, snapshot: Snapshot, reading: Reading, *, ids: dict[str, Any] | None = None
) -> DataFrame:
    """Read the live rows of files, with physical names.

    Files without a deletion vector keep the plain scan. Those with one are a separate relation.

    Args:
        spark: A classic session.
        snapshot: The table.
        reading: The files and columns to read.
        ids: Ids of the columns, by name, used if there are vectors.
    """
    jvm = Jvm.of(spark)
    reading = replace(reading, shared=not reading.subset)
    files = reading.files
    if not isinstance(files, pl.DataFrame) or not (has_vector := files["dv_id"].is_not_null()).any():
        return DataFrame(jvm.session.baseRelationToDataFrame(make_relation(jvm, snapshot, reading)), spark)
    with_vectors = replace(
        reading,
        files=files.filter(has_vector),
        subset=f"{reading.subset}+vectors",
        bitmaps={**reading.bitmaps, VECTOR_COLUMNS: SnapshotVectors(jvm, snapshot)},
    )
    marked = make_relation(jvm, snapshot, with_vectors)
    if has_vector.all():
        return vector_scan(jvm, plain=None, marked=marked, ids=ids)
    without = replace(reading, files=files.filter(~has_vector), subset=f"{reading.subset}-vectors")
    return vector_scan(jvm, plain=make_relation(jvm, snapshot, without), marked=marked, ids=ids)


def make_relation(jvm: Jvm, snapshot: Snapshot, reading: Reading) -> Any:
    """Make a ``HadoopFsRelation`` over files of a snapshot, with the columns of ``reading.bitmaps`` last.

    Files that are not the snapshot's own need their own ``prune``.
    """
    mode = snapshot.column_mapping_mode
    assert snapshot.metadata is not None, "a table that does not exist has nothing to scan"
    _refuse_unknown_widening(snapshot, snapshot.schema)
    schema = reading.schema or snapshot.schema
    physical = _readable(jvm, logical_to_physical(schema, mode), keep_ids=mode == "id")
    by_name = {logical.name.lower(): field for logical, field in zip(_kept(schema), physical.fields, strict=True)}
    named = [name.lower() for name in snapshot.partition_columns]
    assert reading.schema is not None or by_name.keys() >= set(named)
    partition_fields = tuple(by_name[name] for name in named if name in by_name)
    beside = [(item.name, item.spark_type, True) for item in reading.hidden]
    for bits, *places in reading.bitmaps:  # Every file of the scan has them.
        beside += [(bits, "binary", False), *((name, "long", False) for name in places)]
    extra = tuple({"name": name, "type": kind, "nullable": null, "metadata": {}} for name, kind, null in beside)
    identity = IndexIdentity(
        table_id=snapshot.metadata.id, location=snapshot.table_uri, version=snapshot.version, subset=reading.subset
    )
    partition_schema = jvm.struct(_schema_json(partition_fields, extra))
    index = DeltaFileIndex(
        jvm,
        ScanFiles(
            identity=identity,
            listed=reading.files,
            partition_types={field.name: str(field.data_type) for field in partition_fields},
            hidden=reading.hidden,
            size_bytes=_bytes_of(snapshot, reading.files),
            pinned=reading.pinned,
            prune=reading.prune or _pruner(jvm, snapshot, mode),
            bitmaps=reading.bitmaps,
            shared=reading.shared,
            snapshot=snapshot,
            fixed=reading.fixed,
            storage=reading.storage,
            schema=reading.schema,
        ),
        partition_schema,
    )
    options = dict(reading.storage) | ({"spark.sql.parquet.fieldId.read.enabled": "true"} if mode == "id" else {})
    # To Spark all columns are data columns, including partition columns, so that it keeps the table's order.
    data_schema = jvm.struct(_schema_json((*physical.fields, *reading.tracked), ()))
    made = jvm.calls.file_index(index)
    return jvm.file_relation(made, partition_schema=partition_schema, data_schema=data_schema, options=options)


def _bytes_of(snapshot: Snapshot, files: pl.DataFrame | FileTable) -> int:
    return int(files["size"].sum() or 0) if isinstance(files, pl.DataFrame) else snapshot.size_bytes


def _pruner(jvm: Jvm, snapshot: Snapshot, mode: str) -> Pruner:
    """Return the pruner by statistics for filters over the scan's physical names."""
    names = {} if mode == "none" else dict(_logical_paths(snapshot.schema, (), ()))

    def prune(filters: Sequence[Expr]) -> Callable[[pl.DataFrame], pl.DataFrame]:
        logical = [rename_columns(expr, names) for expr in filters] if names else list(filters)
        zone = jvm.time_zone() if snapshot.partition_columns else "UTC"  # Only partition values depend on it.

        def narrow(files: pl.DataFrame) -> pl.DataFrame:
            files = prune_by_generated(snapshot.files, files, logical, time_zone=zone)
            return prune_by_statistics(snapshot.files, files, logical, time_zone=zone)

        return narrow

    return prune


def _logical_paths(
    schema: StructType, physical: tuple[str, ...], logical: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    for field in schema.fields:
        paths = (*physical, physical_name(field)), (*logical, field.name)
        yield paths
        if isinstance(field.data_type, StructType):
            yield from _logical_paths(field.data_type, *paths)


def _refuse_unknown_widening(snapshot: Snapshot, data_type: DataType) -> None:
    """Refuse columns with a type change that Spark's reader does not support, since they would be read wrong."""
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
                        condition=Condition.of(
                            "DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA", fieldName=field.name, fromType=old, toType=new
                        ),
                    )
            _refuse_unknown_widening(snapshot, field.data_type)
    elif isinstance(data_type, ArrayType):
        _refuse_unknown_widening(snapshot, data_type.element_type)
    elif isinstance(data_type, MapType):
        _refuse_unknown_widening(snapshot, data_type.key_type)
        _refuse_unknown_widening(snapshot, data_type.value_type)


def _subset_text(frame: pl.DataFrame) -> str:
    """Compute a digest of the files and their order."""
    digest = hashlib.sha256()
    for column in ("path", "dv_id"):
        digest.update(frame[column].hash(seed=1).to_numpy().tobytes())
    return f"files={frame.height}:{digest.hexdigest()[:32]}"


# --- schemas -----------------------------------------------------------------------------------------------


def _kept(schema: StructType) -> tuple[StructField, ...]:
    return tuple(field for field in schema.fields if str(field.data_type) != "void")


def _readable(jvm: Jvm, schema: StructType, *, keep_ids: bool) -> StructType:
    """Remove top-level void columns, which no Parquet file holds, and the log's own metadata from a schema.

    Field ids stay only if columns are found by them: Spark refuses files without ids if the schema has some.
    User-defined types stay if the JVM has their class. A type of Python alone would be unpickled from the log.
    """
    dropped = _DROPPED_METADATA if keep_ids else (*_DROPPED_METADATA, _FIELD_ID)
    cleaned = StructType(tuple(_clean(field, dropped) for field in _kept(schema)))
    plain = plain_type(cleaned, lambda user: jvm.is_user_type(user.get("class")))
    assert isinstance(plain, StructType), "a schema is a struct"
    return plain


def _clean(field: StructField, dropped: tuple[str, ...]) -> StructField:
    metadata = {name: value for name, value in field.metadata.items() if not name.startswith(dropped)}
    return field.replace(data_type=_clean_type(field.data_type, dropped), metadata=metadata)


def _clean_type(data_type: DataType, dropped: tuple[str, ...]) -> DataType:
    if data_type.user is not None:
        return data_type
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


# --- from physical to logical rows ---------------------------------------------------------------------------


def project(
    frame: DataFrame, schema: StructType, mode: str, hidden: tuple[HiddenColumn, ...], extra: Sequence[Column] = ()
) -> DataFrame:
    """Give the columns their logical names. A frame that already has them is returned unchanged."""
    if mode == "none" and not hidden and not extra and len(_kept(schema)) == len(schema.fields):
        return frame
    columns = []
    for field in schema.fields:
        if str(field.data_type) == "void":
            columns.append(F.lit(None).alias(field.name))
            continue
        source = physical_name(field) if mode != "none" else field.name
        value = frame[quoted(source)]
        if mode != "none":
            value = _rename(value, field.data_type)
        columns.append(value.alias(field.name, metadata=_user_metadata(field)))
    columns.extend(frame[item.name] for item in hidden)
    columns.extend(extra)
    projected = frame.select(*columns)
    if not hidden and not extra:
        projected._jdf.queryExecution().analyzed().setTagValue(Jvm.of(frame.sparkSession).tag(TABLE_SCAN), True)
    return projected


def _user_metadata(field: StructField) -> dict[str, Any]:
    return {
        name: value
        for name, value in field.metadata.items()
        if not name.startswith(_DROPPED_METADATA) and name not in (_FIELD_ID, EXISTENCE_DEFAULT)
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
    """Rename the fields inside a value from physical to logical names. Null stays null.

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
