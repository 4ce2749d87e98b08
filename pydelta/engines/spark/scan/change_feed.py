"""Read a change data feed as a DataFrame over Spark's own Parquet scan, from its plan.

::

    cdc files ------------------------------ _change_type is a column of theirs ---+
    files added or removed whole ----------- one value per file -------------------+--> one union
    files with a deletion vector ----------- the same, without the rows it deletes +
    files whose vector changed ------------- only the rows by which vectors differ +

The kind, version and time of a commit are read as partition values, so filters over them choose files.

Protocol: "Reader Requirements for AddCDCFile", "Deletion Vectors".
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pydelta.commands.change_feed import CHANGE_COLUMNS, ChangedFile, ChangeRange, plan_changes
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.scan.deleted_rows import bitmap_columns, in_bitmap, make_bitmap
from pydelta.engines.spark.scan.index import MATCH_COLUMNS, HiddenColumn
from pydelta.engines.spark.scan.scan import Reading, make_relation, project
from pydelta.engines.spark.scan.travel import TimeTravel, epoch_ms
from pydelta.errors import InvalidArgumentError
from pydelta.errors.conditions import Condition
from pydelta.log.columns import PV_PREFIX
from pydelta.log.vector_files import read_deleted_rows
from pydelta.predicate import Expr
from pydelta.protocol.names import quoted
from pydelta.protocol.schema import physical_partition_columns
from pydelta.protocol.types import PrimitiveType, StructField
from pydelta.settings import parse_bool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydelta.log import DeltaLog, Snapshot
    from pydelta.protocol.roaring import Positions
from pydelta.protocol.row_sets import RowSet

__all__ = ["changes_from_options", "read_changes", "scan_changed_files"]

_TYPE, _VERSION, _TIME = CHANGE_COLUMNS
_MICROS: Final = "__pydelta_commit_micros"
_NUMBER: Final = "__pydelta_file"
_VERSION_HIDDEN: Final = HiddenColumn(name=_VERSION, spark_type="long", column=_VERSION)
_TIME_HIDDEN: Final = HiddenColumn(name=_MICROS, spark_type="long", column=_MICROS)
_TYPE_HIDDEN: Final = HiddenColumn(name=_TYPE, spark_type="string", column=_TYPE)


class _Kind(enum.Enum):
    """The ways to read the rows of a file."""

    RECORDED = "cdc"
    WHOLE = "whole"
    WITHOUT = "without"
    ONLY = "only"

    @classmethod
    def of(cls, file: ChangedFile) -> _Kind:
        """Return the kind of a file."""
        if file.change_type is None:
            return cls.RECORDED
        if file.only is not None:
            return cls.ONLY
        return cls.WITHOUT if file.hides is not None else cls.WHOLE


def changes_from_options(spark: SparkSession, options: Mapping[str, str]) -> ChangeRange | None:
    """Read a range from reader options (any case). None unless ``readChangeFeed`` or ``readChangeData`` is true.

    Raises:
        InvalidArgumentError: The version is not a whole number, the time is not a time, or time travel was requested
            too.
    """
    lower = {name.lower(): value for name, value in options.items()}
    asked = lower.get("readchangefeed", lower.get("readchangedata"))
    if asked is None or not parse_bool(asked, name="readChangeFeed"):
        return None
    if "versionasof" in lower or "timestampasof" in lower:
        raise InvalidArgumentError(
            "Both a change data feed and a version to travel to were asked for.",
            hint="Give startingVersion and endingVersion (or times) instead of versionAsOf or timestampAsOf.",
            condition=Condition.of("DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS"),
        )
    return ChangeRange(
        starting_version=_version(lower, "startingVersion"),
        starting_timestamp_ms=_time(spark, lower, "startingTimestamp"),
        ending_version=_version(lower, "endingVersion"),
        ending_timestamp_ms=_time(spark, lower, "endingTimestamp"),
    )


def _version(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdigit():
        raise InvalidArgumentError(
            f"{name} is {text!r}.",
            hint="Versions are whole numbers from 0; see DeltaTable.history().",
            condition=Condition.of("DELTA_VERSION_INVALID", version=text),
        )
    return int(text)


def _time(spark: SparkSession, options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    return None if text is None else epoch_ms(spark, TimeTravel(timestamp=text))


def read_changes(spark: SparkSession, log: DeltaLog, asked: ChangeRange) -> DataFrame:
    """Return the rows that a range of versions inserted, updated and deleted.

    Args:
        spark: A classic session.
        log: The table.
        asked: The range, including both ends.

    Returns:
        The table's columns, then ``_change_type`` (``insert``, ``delete``, ``update_preimage``,
        ``update_postimage``), ``_commit_version`` (bigint) and ``_commit_timestamp`` (timestamp).

    Raises:
        InvalidArgumentError, VersionNotFoundError, ChangeDataNotRecordedError, SchemaMismatchError: See
            ``commands.changes.plan_changes``.

    Protocol: "Reader Requirements for AddCDCFile".
    """
    plan = plan_changes(log, asked)
    return scan_changed_files(spark, log, plan.snapshot, plan.files, subset=f"changes={plan.first}-{plan.last}")


def scan_changed_files(
    spark: SparkSession,
    log: DeltaLog,
    snapshot: Snapshot,
    changed: Sequence[ChangedFile],
    *,
    subset: str,
    change_columns: bool = True,
) -> DataFrame:
    """Read the rows of files of a feed, whether the files are live or not.

    Args:
        spark: A classic session.
        log: The table.
        snapshot: Snapshot that defines the columns of the result.
        changed: The files.
        subset: Text that distinguishes the scan from others of the version.
        change_columns: Whether to add the feed's own columns, which recorded changes need.

    Returns:
        The columns of ``read_changes``.
    """
    groups: dict[_Kind, list[ChangedFile]] = {}
    for file in changed:
        groups.setdefault(_Kind.of(file), []).append(file)
    parts = [
        _scan(spark, log, snapshot, files, subset=subset, change_columns=change_columns)
        for files in (groups.values() or [[]])
    ]
    return reduce(DataFrame.union, parts)


def _scan(
    spark: SparkSession,
    log: DeltaLog,
    snapshot: Snapshot,
    files: Sequence[ChangedFile],
    *,
    subset: str,
    change_columns: bool,
) -> DataFrame:
    """Read the rows of files that are all of one kind."""
    jvm = Jvm.of(spark)
    kind = _Kind.of(files[0]) if files else _Kind.WHOLE
    hidden = [_VERSION_HIDDEN, _TIME_HIDDEN] if change_columns else []
    tracked: tuple[StructField, ...] = ()
    if not change_columns:
        assert kind is not _Kind.RECORDED, "recorded changes are told apart by a column"
    elif kind is _Kind.RECORDED:
        tracked = (StructField(_TYPE, PrimitiveType("string")),)
    else:
        hidden.append(_TYPE_HIDDEN)
    relation = make_relation(
        jvm,
        snapshot,
        Reading(
            files=_frame(snapshot, files),
            hidden=tuple(hidden),
            subset=f"{subset}+{kind.value}",
            tracked=tracked,
            bitmaps={MATCH_COLUMNS: _Vectors(log, files)} if kind in (_Kind.WITHOUT, _Kind.ONLY) else {},
            prune=_keep_all,
        ),
    )
    scanned = DataFrame(jvm.session.baseRelationToDataFrame(relation), spark)
    if kind in (_Kind.WITHOUT, _Kind.ONLY):
        inside = in_bitmap(jvm, scanned)
        scanned = scanned.filter(inside if kind is _Kind.ONLY else ~inside)
    if not change_columns:
        rows = project(scanned, snapshot.schema, snapshot.column_mapping_mode, ())
        return rows.select(*[rows[quoted(field.name)] for field in snapshot.schema.fields])
    extra = (
        F.col(_TYPE),
        F.col(_VERSION),
        F.timestamp_micros(F.col(_MICROS)).alias(_TIME),
    )
    return project(scanned, snapshot.schema, snapshot.column_mapping_mode, (), extra)


def _keep_all(filters: Sequence[Expr]) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Keep all files. Actions of removed files need not carry statistics, so none are used."""
    del filters
    return lambda files: files


def _frame(snapshot: Snapshot, files: Sequence[ChangedFile]) -> pl.DataFrame:
    """Build the frame of a scan's index, with the hidden columns."""
    keys = physical_partition_columns(snapshot.schema, snapshot.partition_columns, snapshot.column_mapping_mode)
    columns: dict[str, Any] = {
        "path": [file.path for file in files],
        "dv_id": [None] * len(files),
        "size": [file.size for file in files],
        "modification_time": [file.timestamp_ms for file in files],
        **{PV_PREFIX + key: [file.partition_values.get(key) or None for file in files] for key in keys},
        _VERSION: [file.version for file in files],
        _MICROS: [file.timestamp_ms * 1000 for file in files],
        _TYPE: [file.change_type for file in files],
        _NUMBER: list(range(len(files))),
    }
    texts = {"path", "dv_id", _TYPE, *(PV_PREFIX + key for key in keys)}
    return pl.DataFrame(columns, schema={name: pl.String if name in texts else pl.Int64 for name in columns})


class _Vectors:
    """Reads bitmaps of the rows that a file's vectors select, when Spark plans, for the files that the query reads."""

    def __init__(self, log: DeltaLog, files: Sequence[ChangedFile]) -> None:
        self._log = log
        self._files = files

    def __call__(self, files: pl.DataFrame) -> pa.Table:
        """See ``VectorReader``."""
        rows = self._rows([self._files[number] for number in files[_NUMBER]])
        return bitmap_columns([make_bitmap(RowSet.of(item)) for item in rows])

    def _rows(self, files: Sequence[ChangedFile]) -> list[Positions]:
        pairs = [file.only or (file.hides, None) for file in files]
        wanted = {vector.unique_id: vector for pair in pairs for vector in pair if vector is not None}
        log = self._log
        read = read_deleted_rows(list(wanted.values()), store=log.store, root=log.uri, options=log.options)
        found = dict(zip(wanted, read, strict=True))
        rows = []
        for more, less in pairs:
            assert more is not None
            mine = found[more.unique_id]
            rows.append(mine if less is None else np.setdiff1d(mine, found[less.unique_id], assume_unique=True))
        return rows
