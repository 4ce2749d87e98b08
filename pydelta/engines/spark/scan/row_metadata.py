"""Show each row's id and version in ``_metadata``, next to Spark's own fields.

::

    physical scan, tracked columns, values per file
      -> the table's columns, and our own ``_metadata``: Spark's fields, row_id, row_commit_version and their bases
      -> the table's columns; ``_metadata`` is hidden and can be selected

Spark resolves ``_metadata`` while it analyses a query, so a table that tracks its rows is scanned like this everywhere.
A query that does not read it is planned over the plain scan (``lowered``), whose files share partition rows.

Protocol: "Row Tracking".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.scan.index import TABLE_SCAN, DeltaFileIndex
from pydelta.engines.spark.scan.scan import Reading, physical_scan, project, scan_dataframe
from pydelta.engines.spark.scan.tracked_rows import TRACKING_HIDDEN, tracked_fields, tracking_columns
from pydelta.log.row_ids import BASE_ROW_ID, DEFAULT_ROW_VERSION, with_row_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from pydelta.log import Snapshot

__all__ = ["ROW_METADATA", "is_tracked_scan", "moved_scan", "plain_scan", "scan_table", "scan_with_row_metadata"]

ROW_METADATA: Final = "+row metadata"
"""Subset of the scans below a tracked one."""

_MARK: Final = "pydelta.tracked"
_METADATA: Final = "_metadata"
_HIDDEN_MARK: Final = {"__metadata_col": _METADATA}
_ROW_ID: Final = ("row_id", {"__row_id_metadata_col": True})
_BASE_ID: Final = ("base_row_id", {"__base_row_id_metadata_col": True})
_DEFAULT_VERSION: Final = ("default_row_commit_version", {"__default_row_version_metadata_col": True})
_ROW_VERSION: Final = ("row_commit_version", {"__row_commit_version_metadata_col": True})


def scan_table(
    spark: SparkSession,
    snapshot: Snapshot,
    *,
    pinned: bool,
    storage: Mapping[str, str] | None = None,
    names_metadata: Callable[[], bool] = lambda: False,
) -> DataFrame:
    """Scan a version for any query with ``scan_dataframe``, or with ``scan_with_row_metadata`` if it tracks rows.

    For a log that is read in parts, only a statement that names ``_metadata`` gets it, because it has to list all
    files.

    Args:
        spark: The session.
        snapshot: The version.
        pinned: See ``scan_dataframe``.
        storage: See ``scan_dataframe``.
        names_metadata: Returns whether the statement names ``_metadata``.
    """
    tracked = snapshot.row_tracking.enable_row_tracking
    if not snapshot.schema.fields or snapshot.schema.field(_METADATA) is not None:
        tracked = False
    if tracked and snapshot.files.in_parts:
        tracked = names_metadata()
    return (scan_with_row_metadata if tracked else scan_dataframe)(spark, snapshot, pinned=pinned, storage=storage)


def scan_with_row_metadata(
    spark: SparkSession, snapshot: Snapshot, *, pinned: bool, storage: Mapping[str, str] | None = None
) -> DataFrame:
    """Scan a version of a table that tracks its rows. The arguments are those of ``scan_dataframe``.

    Returns:
        The table's columns. ``_metadata`` can be selected, with ``row_id``, ``row_commit_version`` and the values that
        they are computed from, ``base_row_id`` and ``default_row_commit_version`` (bigint).
    """
    whole = replace(Reading.whole(snapshot, pinned=pinned), storage=storage or {})
    return Jvm.of(spark).frame(_tracked(spark, snapshot, whole, {}))


def is_tracked_scan(jvm: Jvm, node: Any) -> bool:
    """Return whether a node of an analysed plan is the top of a scan with our own ``_metadata``."""
    return bool(node.getTagValue(jvm.tag(_MARK)).isDefined())


def moved_scan(jvm: Jvm, node: Any, snapshot: Snapshot, reading: Reading) -> Any | None:
    """Return the tracked scan of a version to replace an older one, with the same columns and ids.

    Args:
        jvm: The session's bindings.
        node: See ``is_tracked_scan``.
        snapshot: The version.
        reading: Options of the scan.

    Returns:
        The scan, or None if it lacks columns of the older one.
    """
    output = {str(item.name()): item for item in jvm.to_list(node.output())}
    top = _tracked(jvm.spark, snapshot, reading, {name: item.exprId() for name, item in output.items()})
    columns = {str(item.name()): item for item in jvm.to_list(top.output())}
    for name, old in output.items():
        new = columns.get(name)
        if new is None or not new.dataType().equals(old.dataType()) or (new.nullable() and not old.nullable()):
            return None
    return top


def plain_scan(jvm: Jvm, node: Any, index: DeltaFileIndex) -> Any | None:
    """Return the scan without ``_metadata`` that has the columns of a tracked one, or None if ``_metadata`` is read.

    Args:
        jvm: The session's bindings.
        node: See ``is_tracked_scan``.
        index: Any of the node's scans.
    """
    output = jvm.to_list(node.output())
    if str(output[-1].name()) == _METADATA:
        return None
    files = index.files
    reading = replace(
        Reading.whole(files.snapshot, pinned=files.pinned),
        schema=files.schema,
        fixed=files.fixed,
        storage=files.storage,
    )
    schema, mode = files.schema or files.snapshot.schema, files.snapshot.column_mapping_mode
    below = project(physical_scan(jvm.spark, files.snapshot, reading), schema, mode, ())
    plan = below._jdf.queryExecution().analyzed()
    columns = zip(jvm.to_list(plan.output()), output, strict=True)
    plain = jvm.project(jvm.seq([jvm.alias(column, old.exprId()) for column, old in columns]), plan)
    plain.setTagValue(jvm.tag(TABLE_SCAN), True)  # Spark copies marks from the replaced node to a node without any.
    return plain


def _tracked(spark: SparkSession, snapshot: Snapshot, whole: Reading, ids: dict[str, Any]) -> Any:
    """Build the plan of a tracked scan. Its columns have ``ids``, by name, and ``_metadata`` is shown if it has one."""
    jvm = Jvm.of(spark)
    files = with_row_ids(snapshot.files, snapshot.files.core)
    tracked = tracked_fields(snapshot.row_tracking)
    reading = replace(whole, files=files, hidden=TRACKING_HIDDEN, subset=ROW_METADATA, tracked=tracked)
    scanned = physical_scan(spark, snapshot, reading)
    schema = whole.schema or snapshot.schema
    metadata = _row_metadata(jvm, scanned, snapshot, complete=_all_have_ids(files))
    shown = project(scanned, schema, snapshot.column_mapping_mode, (), (metadata,))
    inner = shown._jdf.queryExecution().analyzed()
    *columns, hidden = jvm.to_list(inner.output())
    listed = [*columns, hidden] if _METADATA in ids else columns
    top = jvm.project(jvm.seq([jvm.alias(item, ids.get(str(item.name()))) for item in listed]), inner)
    if listed is columns:
        jvm.hide_column(top, hidden)
    top.setTagValue(jvm.tag(_MARK), True)
    return top


def _all_have_ids(files: Any) -> bool:
    return not files[BASE_ROW_ID].null_count() and not files[DEFAULT_ROW_VERSION].null_count()


def _row_metadata(jvm: Jvm, scanned: DataFrame, snapshot: Snapshot, *, complete: bool) -> Column:
    """Build ``_metadata`` over a scan with ``TRACKING_HIDDEN``. If ``complete``, no value in it is null."""
    own = scanned.metadataColumn(_METADATA)
    fields = scanned.select(own.alias(_METADATA)).select(f"{_METADATA}.*").columns
    row_id, version = tracking_columns(scanned, snapshot.row_tracking)
    base, default = (scanned[item.name] for item in TRACKING_HIDDEN)
    values = ((row_id, _ROW_ID), (base, _BASE_ID), (default, _DEFAULT_VERSION), (version, _ROW_VERSION))
    tracked = [
        (_never_null(jvm, value) if complete else value).alias(name, metadata=mark) for value, (name, mark) in values
    ]
    whole = F.struct(*(own.getField(name).alias(name) for name in fields), *tracked)
    return whole.alias(_METADATA, metadata=_HIDDEN_MARK)


def _never_null(jvm: Jvm, value: Column) -> Column:
    """Declare a value as never null to Spark, which the files of the scan guarantee."""
    known: Any = jvm.view.org.apache.spark.sql.catalyst.expressions.KnownNotNull(jvm.expression(value))
    column: Column = ClassicColumn(jvm.column_of(known))
    return column
