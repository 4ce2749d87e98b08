"""Register the Python data source ``delta``: the last resort for routes that ``enable`` does not cover.

It reads whole rows through Python workers without column pruning, so it is correct but slow. Its driver-side methods
run in a separate Python process without the JVM, and see only the options.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pydelta.errors import InvalidArgumentError, TableNotFoundError, UnsupportedFeatureError

if TYPE_CHECKING:
    import pyarrow as pa

    from pydelta.log import Snapshot
    from pydelta.protocol.actions import DeletionVectorDescriptor

    _File: TypeAlias = tuple[str, tuple[tuple[str, str | None], ...], DeletionVectorDescriptor | None]

__all__ = ["NOT_ROUTED", "DeltaDataSource"]

_FILES_PER_PARTITION: Final = 16
NOT_ROUTED: Final = "A Delta table was looked up by name without this engine"
"""Start of the error that Spark's fallback to the Python data source raises when the engine is not enabled."""


class DeltaDataSource(DataSource):
    """``delta`` for Spark's Python data source API."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "delta"

    def schema(self) -> StructType:
        """Return the table's schema at the requested version."""
        from pydelta.engines.spark.types import to_spark_schema

        return to_spark_schema(_snapshot(self.options).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the whole table."""
        return _Reader(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return a writer that appends or replaces all rows in one commit."""
        from pydelta.api.routing.datasource_writer import DeltaArrowWriter

        return DeltaArrowWriter(self.options, schema, overwrite=overwrite)


@dataclass
class _Files(InputPartition):
    """Some of the table's files: (path as the log spells it, partition values by physical name, deletion vector)."""

    files: tuple[_File, ...]

    def __init__(self, files: tuple[_File, ...]) -> None:
        super().__init__(None)
        self.files = files


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """List the files, a few per partition."""
        snapshot = _snapshot(self._options)
        core = snapshot.files.core
        paths = core["path"].to_list()
        names = snapshot.files.spec.physical_names
        rows = core.select(snapshot.files.spec.keys).rows() if names else [()] * len(paths)
        marked = core.filter(core["dv_id"].is_not_null())
        vectors = {add.path: add.deletion_vector for add in snapshot.files.adds(marked)}
        files = [
            (path, tuple(zip(names, row, strict=True)), vectors.get(path))
            for path, row in zip(paths, rows, strict=True)
        ]
        return [
            _Files(tuple(files[start : start + _FILES_PER_PARTITION]))
            for start in range(0, len(files), _FILES_PER_PARTITION)
        ] or [_Files(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield Arrow batches of the files, with partition columns filled in and hidden rows removed."""
        from pydelta.api.routing.datasource_read import read_file

        assert isinstance(partition, _Files)
        snapshot = _snapshot(self._options)
        for path, values, vector in partition.files:
            yield from read_file(snapshot, path, dict(values), self._options, vector)


def _snapshot(options: Mapping[str, str]) -> Snapshot:
    from pydelta.log import DeltaLog

    lower = {name.lower(): value for name, value in options.items()}
    path = lower.get("path")
    if not path:
        raise InvalidArgumentError(
            f"{NOT_ROUTED}: in a session that is not enabled, in the body of a SQL function, or in a metric view.",
            hint="Call pydelta.enable(spark), or give the location: CREATE TABLE … USING delta LOCATION '…'. "
            "Make a view of the function's query, and join it or filter it where the function is called.",
        )
    if str(lower.get("readchangefeed", lower.get("readchangedata"))).lower() == "true":
        raise UnsupportedFeatureError(
            "The change data feed is read by the engine in the session, and it is not enabled there.",
            features=("changeDataFeed",),
            hint="Call pydelta.enable(spark) first.",
        )
    log = DeltaLog.for_table(path, options={k: v for k, v in options.items() if k.lower() != "path"})
    if not log.table_exists():
        raise TableNotFoundError.at(path)
    if lower.get("versionasof") is not None:
        return log.snapshot(version=int(lower["versionasof"]))
    if lower.get("timestampasof") is not None:
        moment = dt.datetime.fromisoformat(lower["timestampasof"])
        moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
        return log.snapshot(timestamp_ms=int(moment.timestamp() * 1000))
    return log.update()
