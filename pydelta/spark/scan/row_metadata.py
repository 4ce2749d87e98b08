"""Show each row's id and version in ``_metadata``, next to what Spark has there.

::

    physical scan, tracked columns, values a file
      -> the table's columns, and ``_metadata`` made anew: Spark's fields, row_id, row_commit_version and their bases
      -> the table's columns; ``_metadata`` is hidden and can be selected

Spark asks for ``_metadata`` when it analyses a query, so such a scan is made for statements that name it, over tables
that track their rows. Protocol: "Row Tracking".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from pydelta.log.row_ids import BASE_ROW_ID, DEFAULT_ROW_VERSION, with_row_ids
from pydelta.spark.jvm import Jvm
from pydelta.spark.scan.refresh import transform
from pydelta.spark.scan.scan import Reading, physical_scan, project
from pydelta.spark.scan.tracked_rows import TRACKING_HIDDEN, tracked_fields, tracking_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from pydelta.log import Snapshot

__all__ = ["names_metadata", "scan_with_row_metadata"]

_METADATA: Final = "_metadata"
_HIDDEN_MARK: Final = {"__metadata_col": _METADATA}
_ROW_ID: Final = ("row_id", {"__row_id_metadata_col": True})
_BASE_ID: Final = ("base_row_id", {"__base_row_id_metadata_col": True})
_DEFAULT_VERSION: Final = ("default_row_commit_version", {"__default_row_version_metadata_col": True})
_ROW_VERSION: Final = ("row_commit_version", {"__row_commit_version_metadata_col": True})


def names_metadata(jvm: Jvm, plan: Any | None) -> bool:
    """Tell whether a parsed statement names ``_metadata``, in subqueries too; a name alone, which is None, does not."""
    if plan is None:
        return False
    found = False

    def visit(node: Any, _: str) -> None:
        nonlocal found
        for expression in [] if found else jvm.to_list(node.expressions()):
            leaves = (expression, *jvm.to_list(expression.collectLeaves()))
            found = found or any(_METADATA in str(leaf.toString()).lower() for leaf in leaves)

    transform(plan, visit)
    return found


def scan_with_row_metadata(spark: SparkSession, snapshot: Snapshot, *, pinned: bool) -> DataFrame:
    """Scan a version of a table that tracks its rows; arguments as ``scan_dataframe``.

    Returns:
        The table's columns. ``_metadata`` can be selected, with ``row_id``, ``row_commit_version`` and what they are
        made of, ``base_row_id`` and ``default_row_commit_version`` (bigint).
    """
    jvm = Jvm.of(spark)
    files = with_row_ids(snapshot.files, snapshot.files.core)
    reading = Reading(
        files=files,
        pinned=pinned,
        hidden=TRACKING_HIDDEN,
        subset="+row metadata",
        tracked=tracked_fields(snapshot.properties),
    )
    scanned = physical_scan(spark, snapshot, reading)
    own = scanned.metadataColumn(_METADATA)
    fields = scanned.select(own.alias(_METADATA)).select(f"{_METADATA}.*").columns
    complete = not files[BASE_ROW_ID].null_count() and not files[DEFAULT_ROW_VERSION].null_count()
    row_id, version = tracking_columns(scanned, snapshot.properties)
    base, default = (scanned[item.name] for item in TRACKING_HIDDEN)
    values = ((row_id, _ROW_ID), (base, _BASE_ID), (default, _DEFAULT_VERSION), (version, _ROW_VERSION))
    tracked = [
        (_never_null(jvm, value) if complete else value).alias(name, metadata=mark) for value, (name, mark) in values
    ]
    whole = F.struct(*(own.getField(name).alias(name) for name in fields), *tracked)
    shown = project(
        scanned, snapshot.schema, snapshot.column_mapping_mode, (), (whole.alias(_METADATA, metadata=_HIDDEN_MARK),)
    )
    inner = shown._jdf.queryExecution().analyzed()
    *columns, hidden = jvm.to_list(inner.output())
    outer = jvm.project(jvm.seq(columns), inner)
    jvm.hide_column(outer, hidden)
    return jvm.frame(outer)


def _never_null(jvm: Jvm, value: Column) -> Column:
    """A value that Spark may take for one that is never null, which the files of the scan guarantee."""
    known: Any = jvm.view.org.apache.spark.sql.catalyst.expressions.KnownNotNull(jvm.expression(value))
    column: Column = ClassicColumn(jvm.column_of(known))
    return column
