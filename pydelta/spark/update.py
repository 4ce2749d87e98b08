"""Rows that an UPDATE changes, and those beside them, in; new files out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from pydelta.commands.engine import BoundCondition, RewriteOutput
from pydelta.protocol.row_tracking import ROW_ID_COLUMN, ROW_VERSION_COLUMN
from pydelta.spark.assignments import BoundAssignments
from pydelta.spark.write_columns import conform, name
from pydelta.spark.writer import CHANGE_COLUMN, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pydelta.log import Snapshot

__all__ = ["recomputed", "write_updated"]

_MATCHES = "__pydelta_matches"
_NEW = "__pydelta_new"
_PRE, _POST = "update_preimage", "update_postimage"
_GENERATION = "delta.generationExpression"


def write_updated(
    spark: SparkSession,
    snapshot: Snapshot,
    rows: DataFrame,
    condition: BoundCondition | None,
    assignments: BoundAssignments,
    *,
    copy_others: bool,
) -> RewriteOutput:
    """See ``UpdatingEngine.write_updated``.

    Args:
        spark: The session.
        snapshot: The table.
        rows: Its rows, of the files touched; with ids and versions where the table tracks rows.
        condition: Which rows change; None for all.
        assignments: To what.
        copy_others: Whether the other rows are written as well.
    """
    schema, properties = snapshot.schema, snapshot.properties
    matches = F.lit(True) if condition is None else condition.native.eqNullSafe(F.lit(True))
    old = {field.name: name(field.name) for field in schema.fields}
    # both the condition and the new values are computed once a row, before a row becomes several
    new = [value.alias(column) for column, value in assignments.apply(schema, old).items()]
    computed = rows.withColumns({_MATCHES: matches, _NEW: F.when(matches, F.struct(*new))})
    if not copy_others:
        computed = computed.filter(name(_MATCHES))
    feed = properties.enable_change_data_feed
    if feed:
        kinds = F.array(F.lit(None).cast("string"), F.lit(_PRE), F.lit(_POST))
        nothing = F.array(F.lit(None).cast("string"))
        computed = computed.withColumn(CHANGE_COLUMN, F.explode(F.when(name(_MATCHES), kinds).otherwise(nothing)))
    changed = name(_MATCHES)
    if feed:
        changed = changed & ~name(CHANGE_COLUMN).eqNullSafe(F.lit(_PRE))
    left_out = recomputed(snapshot, assignments)
    columns = [
        F.when(changed, name(_NEW).getField(field.name)).otherwise(name(field.name)).alias(field.name)
        if field.name in assignments.columns
        else name(field.name)
        for field in schema.fields
        if field.name not in left_out
    ]
    carried = [CHANGE_COLUMN] if feed else []
    extra: list[Column] = [name(column) for column in carried]
    if properties.enable_row_tracking:
        carried += [ROW_ID_COLUMN, ROW_VERSION_COLUMN]
        extra += [name(ROW_ID_COLUMN), F.when(~name(_MATCHES), name(ROW_VERSION_COLUMN)).alias(ROW_VERSION_COLUMN)]
    assert snapshot.metadata is not None
    shaped = conform(
        computed.select(*columns, *extra),
        schema=schema,
        configuration=snapshot.metadata.configuration,
        carried=carried,
    )
    return write_files(
        spark,
        shaped,
        change_column=CHANGE_COLUMN if feed else None,
        table_uri=snapshot.table_uri,
        schema=schema,
        partition_columns=snapshot.partition_columns,
        properties=properties,
    )


def recomputed(snapshot: Snapshot, assignments: BoundAssignments) -> frozenset[str]:
    """Generated columns that are not set: what they are made of may change, so that they are made anew."""
    generated = {field.name for field in snapshot.schema.fields if _GENERATION in field.metadata}
    return frozenset(generated - assignments.columns)
