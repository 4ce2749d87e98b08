"""Follow the topic of a table: add each new column, and merge the changes by ``jobs/ingest_stream.py``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from jobs import ingest_stream
from jobs.changes.columns import Changed, Columns, changed_columns, columns_of, key_of, struct_of
from pydelta.errors import InvalidArgumentError, StreamStoppedError
from pydelta.protocol.names import quoted
from pydelta.storage import Store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["Followed", "Known", "follow"]

_ISOLATION: Final = {"kafka.isolation.level": "read_committed"}
"""Kafka Connect writes changes in transactions, and those that it gave up are not read."""
_DATES: Final = "dateFormat=yyyy-MM-dd'Z'"
_FILE: Final = "changes/known.json"
_UNKNOWN: Final = "The columns of the change are not known: "
_HINT: Final = (
    "docs/guides/cdc.md says which changes cannot be merged, and what to do. Kafka keeps them; the job tries again."
)
_WAIT_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """A table that is followed.

    Args:
        topic: Topic of its changes.
        table: Name of the Delta table.
        brokers: Kafka brokers.
        checkpoint: Location of the stream's progress.
        trigger: Seconds between two batches, or ``available-now``.
        limit: Maximum number of changes per batch.
    """

    topic: str
    table: str
    brokers: str
    checkpoint: str
    trigger: str
    limit: int

    def arguments(self, known: Known) -> list[str]:
        """Build the arguments of the job that merges changes with these columns and this key."""
        schema = json.dumps(struct_of(known.columns).jsonValue())
        given = ["--source", "kafka", "--brokers", self.brokers, "--topic", self.topic, "--schema", schema]
        given += ["--changes", "debezium", "--merge-key", ",".join(known.keys), "--record-option", _DATES]
        given += [word for name, value in _ISOLATION.items() for word in ("--option", f"{name}={value}")]
        given += ["--table", self.table, "--checkpoint", self.checkpoint]
        return [*given, "--trigger", self.trigger, "--max-per-trigger", str(self.limit)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a table. It is kept with the checkpoint.

    Args:
        columns: The columns of all changes so far.
        keys: The columns of its key.
        key_schema: The schema of its key, as text.
        schemas: The schemas of these changes, as text.
    """

    columns: Columns
    keys: Sequence[str]
    key_schema: str
    schemas: Sequence[str]

    @classmethod
    def kept_in(cls, store: Store) -> Known | None:
        """Read what is kept with a checkpoint; None at the first start."""
        from pyspark.sql.types import StructType

        if store.head(_FILE) is None:
            return None
        found = json.loads(store.read(_FILE))
        columns = {field.name: field.dataType for field in StructType.fromJson(found["columns"]).fields}
        return cls(columns=columns, **{name: found[name] for name in ("keys", "key_schema", "schemas")})

    def keep_in(self, store: Store) -> None:
        """Write it to the checkpoint's folder."""
        found = {"columns": struct_of(self.columns).jsonValue(), "keys": self.keys}
        found |= {"key_schema": self.key_schema, "schemas": self.schemas}
        store.put(_FILE, json.dumps(found).encode())

    def with_changes(self, changed: Changed, schema: str) -> Known:
        """Return it with the columns that changes of a schema have, too."""
        columns = {**self.columns, **changed.retyped, **changed.added}
        return replace(self, columns=columns, schemas=[*self.schemas, schema])


def follow(
    spark: SparkSession, it: Followed, *, tell: Callable[[dict[str, Any]], None], stopping: Callable[[], bool]
) -> None:
    """Follow a table until the job is asked to stop.

    Args:
        spark: An enabled session.
        it: The table.
        tell: Receives the report of each batch.
        stopping: Returns whether the job was asked to stop while there was nothing to follow.

    Raises:
        DeltaError: The reason why changes cannot be merged. Nothing of the batch in question was written.
    """
    from pydelta.tools.ingest.targets import open_checkpoint

    _, store = open_checkpoint(spark, it.checkpoint)
    known = Known.kept_in(store) or _first(spark, it, stopping)
    while known is not None:
        known.keep_in(store)
        unknown = _merge(spark, it, known, tell)
        if unknown is None:
            return
        known = _adopt(spark, it, known, unknown)


def _merge(spark: SparkSession, it: Followed, known: Known, tell: Callable[[dict[str, Any]], None]) -> str | None:
    """Merge batches until the job stops, or until a change has a schema that is not known.

    Returns:
        That schema; nothing of its batch was written.
    """
    from pyspark.sql import functions as F

    def mark(rows: DataFrame) -> DataFrame:
        changed = F.col("value").isNotNull()
        other_key = changed & (_schema("key") != known.key_schema)
        unknown = changed & ~_schema("value").isin(*known.schemas)
        reason = F.when(other_key, "The primary key of the table was changed.")
        reason = reason.when(unknown, F.concat(F.lit(_UNKNOWN), _schema("value")))
        return rows.withColumn("reason", reason.otherwise(F.col("reason")))

    try:
        ingest_stream.run(spark, it.arguments(known), tell=tell, mark=mark)
    except StreamStoppedError as error:
        _, found, schema = error.message.partition(_UNKNOWN)
        if not found:
            raise StreamStoppedError(error.message, hint=_HINT) from None
        return schema
    return None


def _schema(column: str) -> Column:
    """Return the schema in a record's key or value, as text; empty if it has none."""
    from pyspark.sql import functions as F

    return F.coalesce(F.get_json_object(F.col(column).cast("string"), "$.schema"), F.lit(""))


def _first(spark: SparkSession, it: Followed, stopping: Callable[[], bool]) -> Known | None:
    """Wait for the first change of a table, and learn its columns and its key from it. None if asked to stop."""
    from pydelta.tools.ingest.kafka import KafkaEnds
    from pydelta.tools.ingest.sources import RecordSource, open_records

    source = RecordSource(kind="kafka", name=it.topic, brokers=it.brokers, options=_ISOLATION)
    while not stopping():
        try:
            KafkaEnds(spark, source).close()
        except InvalidArgumentError:  # The table has no change yet, and so no topic.
            time.sleep(_WAIT_SECONDS)
            continue
        records = open_records(spark, source, stream=False).where("value IS NOT NULL")
        found = records.select(_schema("value"), _schema("key")).take(1)
        if found:
            schema, key_schema = found[0]
            return Known(columns=columns_of(schema), keys=key_of(key_schema), key_schema=key_schema, schemas=[schema])
        time.sleep(_WAIT_SECONDS)
    return None


def _adopt(spark: SparkSession, it: Followed, known: Known, schema: str) -> Known:
    """Give a table the columns that changes of a schema have, too.

    Raises:
        InvalidArgumentError: A column has another type than in the table, or the schema is not that of a change.
    """
    found = changed_columns(known.columns, schema)
    there = {field.name.lower(): field.dataType for field in spark.table(it.table).schema.fields}
    for name, kind in {**found.added, **found.retyped}.items():
        held = there.get(name.lower())
        if held is not None and held != kind:
            raise InvalidArgumentError(
                f"The column {quoted(name)} of {it.topic} is now {kind.simpleString().upper()}, but "
                f"{it.table} has it as {held.simpleString().upper()}.",
                hint="Widen the column of the table (docs/guides/schemas.md), or start again under another CDC_NAME "
                "(docs/guides/cdc.md). The job tries again by itself.",
            )
    missing = [
        f"{quoted(name)} {kind.simpleString()}" for name, kind in found.added.items() if name.lower() not in there
    ]
    if missing:
        spark.sql(f"ALTER TABLE {it.table} ADD COLUMNS ({', '.join(missing)})")
    return known.with_changes(found, schema)
