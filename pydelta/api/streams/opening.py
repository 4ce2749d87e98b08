"""Open a table as a streaming DataFrame, for ``readStream`` and for ``STREAM t`` in SQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydelta.api.streams.connections import close_ended
from pydelta.api.streams.source import DeltaSource, stream_frame
from pydelta.commands.stream.options import SourceOptions
from pydelta.commands.stream.schema_log import SchemaLog, folder_name
from pydelta.commands.stream.tracking import open_tracking
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.scan.travel import TimeTravel, epoch_ms, open_snapshot
from pydelta.errors import error_context
from pydelta.storage import normalize_uri, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pydelta.log import DeltaLog

__all__ = ["open_stream"]


def open_stream(
    spark: SparkSession, log: DeltaLog, given: Mapping[str, str], *, shown: str, name: str | None = None
) -> DataFrame:
    """Return the streaming DataFrame of a table.

    Args:
        spark: A classic session.
        log: The table.
        given: The reader's options.
        shown: The table as the user named it.
        name: The source's name in checkpoints, if it has one.

    Raises:
        InvalidArgumentError, UnsupportedFeatureError: See ``SourceOptions.parse`` and ``stream_frame``.
        TableNotFoundError: The table does not exist.
        StreamStoppedError: Its schema log cannot be used.
    """
    close_ended(spark)
    with error_context(table=shown):
        options = SourceOptions.parse(given)
        starting_ms = None
        if options.starting_timestamp is not None:
            starting_ms = epoch_ms(spark, TimeTravel(timestamp=options.starting_timestamp))
        open_snapshot(spark, log.uri, None)
        read, tracking = log.update(), None
        if options.schema_location is not None:
            assert read.metadata is not None, "the table was opened"
            folder = folder_name(read.metadata.id, options.tracking_id)
            location = f"{Jvm.of(spark).qualify(options.schema_location).rstrip('/')}/{folder}"
            store = open_store(normalize_uri(location), log.options)
            tracking, read = open_tracking(log, SchemaLog(store), read)
        source = DeltaSource(spark, log, options, read, starting_timestamp_ms=starting_ms, tracking=tracking)
        return stream_frame(spark, source, name)
