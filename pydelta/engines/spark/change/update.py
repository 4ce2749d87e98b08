"""Write the new files of an UPDATE: the rows that it changes, and the copied rows of their files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from pydelta.commands.engine import RewriteOutput
from pydelta.engines.arrow.layout import TableShape
from pydelta.engines.spark.change.assignments import BoundAssignments
from pydelta.engines.spark.change.binding import Moment, bind_values
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.scan.scan import MATCHED_COLUMN
from pydelta.engines.spark.write.columns import Brought, Generated, conform, name
from pydelta.engines.spark.write.table_expressions import table_expression
from pydelta.engines.spark.write.writer import CHANGE_COLUMN, write_files
from pydelta.protocol.row_tracking import ROW_ID_COLUMN, ROW_VERSION_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pydelta.log import Snapshot

__all__ = ["recomputed", "write_updated"]

_NEW = "__pydelta_new"
_COPIED = "__pydelta_copied"
_PRE, _POST = "update_preimage", "update_postimage"
_GENERATION = "delta.generationExpression"


def write_updated(
    spark: SparkSession, snapshot: Snapshot, rows: DataFrame, assignments: BoundAssignments, moment: Moment
) -> RewriteOutput:
    """See ``Engine.write_updated``.

    Args:
        spark: The session.
        snapshot: The table.
        rows: Rows of the touched files, with ``MATCHED_COLUMN``: rows for which it is true change, the others are
            copied. With ids and versions if the table tracks rows.
        assignments: The new values, over the columns of ``rows``.
        moment: Clock, zone and user of the command. Defaults, generated columns and checks use them too.
    """
    schema, properties = snapshot.schema, snapshot.properties
    old = {field.name: name(field.name) for field in schema.fields}
    # Compute the new values once per row, before a row becomes several.
    new = [
        value.alias(column) for column, value in assignments.apply(schema, old).items() if column in assignments.columns
    ]
    computed = rows.withColumns({_NEW: F.when(name(MATCHED_COLUMN), F.struct(*new))})
    feed = properties.enable_change_data_feed
    changed = name(MATCHED_COLUMN)
    if feed:
        kinds = F.array(F.lit(None).cast("string"), F.lit(_PRE), F.lit(_POST))
        nothing = F.array(F.lit(None).cast("string"))
        computed = computed.withColumn(CHANGE_COLUMN, F.explode(F.when(changed, kinds).otherwise(nothing)))
        changed = changed & ~name(CHANGE_COLUMN).eqNullSafe(F.lit(_PRE))
    columns = [
        F.when(changed, name(_NEW).getField(field.name)).otherwise(name(field.name)).alias(field.name)
        if field.name in assignments.columns
        else name(field.name)
        for field in schema.fields
    ]
    carried = [CHANGE_COLUMN] if feed else []
    extra: list[Column] = [name(column) for column in carried]
    if properties.enable_row_tracking:
        carried += [ROW_ID_COLUMN, ROW_VERSION_COLUMN]
        version = F.when(~name(MATCHED_COLUMN), name(ROW_VERSION_COLUMN)).alias(ROW_VERSION_COLUMN)
        extra += [name(ROW_ID_COLUMN), version]
    assert snapshot.metadata is not None
    anew = recomputed(moment, snapshot, rows, assignments.columns)
    generated = {
        field.name: Generated(
            anew=F.lit(True) if field.name in anew else None,
            given=F.lit(True) if field.name in assignments.columns else None,
        )
        for field in schema.fields
        if _GENERATION in field.metadata
    }
    shaped = conform(
        computed.select(*columns, *extra, (~changed).alias(_COPIED)),
        schema=schema,
        configuration=snapshot.metadata.configuration,
        partition_columns=snapshot.partition_columns,
        brought=Brought(carried=carried, copied=_COPIED, generated=generated),
    )
    shape = TableShape.of(snapshot)
    return write_files(spark, moment.frame(shaped), shape, change_column=CHANGE_COLUMN if feed else None)


def recomputed(moment: Moment, snapshot: Snapshot, rows: DataFrame, changed: frozenset[str]) -> frozenset[str]:
    """Find the generated columns to compute again: those that read a changed column and are not set themselves.

    The others keep their values: computed in another time zone, they might differ.
    """
    generated = {
        field.name: str(field.metadata[_GENERATION])
        for field in snapshot.schema.fields
        if _GENERATION in field.metadata and field.name not in changed
    }
    if not generated:
        return frozenset()
    jvm, lower = Jvm.of(rows.sparkSession), {column.lower() for column in changed}
    values = bind_values(moment, rows, [table_expression(text, "generation expression") for text in generated.values()])
    return frozenset(
        column
        for column, value in zip(generated, values, strict=True)
        if lower & {item.lower() for item in jvm.reference_names(value.expression)}
    )
