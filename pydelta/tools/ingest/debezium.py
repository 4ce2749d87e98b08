"""Decode Debezium change events into rows with an operation, ordered by their position in the source.

::

    {"op": "c" | "r" | "u" | "d", "before": {…}, "after": {…}, "source": {…}}    alone, or as "payload" next to "schema"
        --> row (after, or before of a "d"), deleted, position, reason
    no value (it follows a delete in Kafka, so that the topic can forget the key)  --> tombstone
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from pydelta.tools.ingest.records import ORIGIN, RecordFormat, decode, struct_of

__all__ = ["decode_debezium"]

_TEXTS: Final = ("commit_lsn", "change_lsn", "file", "ord")
_NUMBERS: Final = ("lsn", "scn", "event_serial_no", "pos", "row")
_ORDER: Final = ("lsn", "commit_lsn", "change_lsn", "event_serial_no", "scn", "file", "pos", "row", "ord")
_OPERATIONS: Final = ("c", "r", "u", "d")
_LEFT_OUT: Final = "__debezium_unavailable_value"


def decode_debezium(records: DataFrame, how: RecordFormat) -> DataFrame:
    """Decode change events.

    Args:
        records: Records with the columns ``ORIGIN``.
        how: JSON format, with the columns of the changed table.

    Returns:
        ``row``, ``reason``, ``deleted``, ``position``, ``tombstone`` and ``ORIGIN``.
    """
    place = StructType([StructField(name, StringType()) for name in (*_TEXTS, *_NUMBERS)])
    event = StructType(
        [
            StructField("op", StringType()),
            StructField("before", how.schema),
            StructField("after", how.schema),
            StructField("source", place),
        ]
    )
    envelope = StructType([*event.fields, StructField("payload", event)])
    parsed = decode(records, RecordFormat(name="json", schema=envelope, options=how.options))
    payload = F.col("row").getField("payload")
    bare = struct_of(event.names, "row")
    events = parsed.select(
        F.when(payload.isNotNull(), payload).otherwise(bare).alias("event"), "reason", *ORIGIN
    ).withColumn("tombstone", F.col("value").isNull())
    op, deleted = F.col("event.op"), F.col("event.op").eqNullSafe("d")
    events = events.withColumn("deleted", deleted).withColumn(
        "row", F.when(deleted, F.col("event.before")).otherwise(F.col("event.after"))
    )
    reason = (
        F.when(F.col("tombstone"), F.lit(None).cast("string"))
        .when(F.col("reason").isNotNull(), F.col("reason"))
        .when(op.isNull(), "The record is not a Debezium event: it has no op.")
        .when(~op.isin(*_OPERATIONS), F.concat(F.lit("The operation "), op, F.lit(" is not one of c, r, u and d.")))
        .when(deleted & F.col("event.before").isNull(), "The delete does not say which row: before is missing.")
        .when(F.col("row").isNull(), "The event has no row: after is missing.")
    )
    partial = _left_out(how.schema)
    if partial is not None:
        reason = reason.when(~deleted & partial, "The event leaves out a large value that did not change.")
    return events.select("row", reason.alias("reason"), "deleted", _position().alias("position"), "tombstone", *ORIGIN)


def _position() -> Column:
    """Return the position of the change in the source's log. Fields that its connector lacks are null in all events."""
    source = F.col("event.source")
    parts = [
        source.getField(name).alias(name)
        if name in _TEXTS
        else source.getField(name).try_cast("decimal(38,0)").alias(name)
        for name in _ORDER
    ]
    return F.struct(*parts)


def _left_out(schema: StructType) -> Column | None:
    """Build a condition for Debezium's placeholder of a large value that an UPDATE did not change."""
    texts = [field.name for field in schema.fields if isinstance(field.dataType, StringType)]
    found = [F.col("row").getField(name).eqNullSafe(_LEFT_OUT) for name in texts]
    return reduce(lambda one, other: one | other, found) if found else None
