"""Find the snapshot of the version that a user named: options, ``path@v12``, ``VERSION AS OF``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import SessionSettings, absent_path, log_for_path, moment_ms
from pydelta.errors import InvalidArgumentError, TableNotFoundError
from pydelta.errors.conditions import Condition

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from pydelta.log import Snapshot

__all__ = ["TimeTravel", "epoch_ms", "open_snapshot", "split_name_version", "split_path_version", "travel_from_options"]

_AT_VERSION: Final = re.compile(r"^(?P<path>.+)@[vV](?P<version>\d+)$", re.DOTALL)
_AT_TIME: Final = re.compile(r"^(?P<path>.+)@(?P<time>\d{17})$", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTravel:
    """A version, a time as text, or a time as an expression.

    Args:
        version: A version number as written.
        timestamp: A date or timestamp. Without a zone it is in the session's.
        moment: An expression that gives a timestamp, as Spark parsed it.
    """

    version: str | None = None
    timestamp: str | None = None
    moment: Column | None = None


def travel_from_options(options: Mapping[str, str]) -> TimeTravel | None:
    """Read ``versionAsOf`` or ``timestampAsOf`` from reader options (any case), or return None without either.

    Raises:
        InvalidArgumentError: Both are given.
    """
    lower = {name.lower(): value for name, value in options.items()}
    version, timestamp = lower.get("versionasof"), lower.get("timestampasof")
    if version is not None and timestamp is not None:
        raise InvalidArgumentError(
            f"versionAsOf ({version}) and timestampAsOf ({timestamp}) were both given.",
            hint="Give one of the two.",
            condition=Condition.of("DELTA_ONEOF_IN_TIMETRAVEL"),
        )
    if version is None and timestamp is None:
        return None
    return TimeTravel(version=version, timestamp=timestamp)


def split_path_version(
    spark: SparkSession, path: str, hadoop_conf: Mapping[str, str] | None = None
) -> tuple[str, TimeTravel | None]:
    """Split ``path@v12`` or ``path@yyyyMMddHHmmssSSS`` into path and version, unless a table has that very name."""
    before, travel = _split(path)
    if travel is None or log_for_path(spark, path, hadoop_conf).table_exists():
        return path, None
    return before, travel


def split_name_version(parts: tuple[str, ...]) -> tuple[tuple[str, ...], TimeTravel | None]:
    """Split a name that ends in ``table@v12`` or ``table@yyyyMMddHHmmssSSS`` into name and version.

    Example:
        >>> split_name_version(("lake", "events@v12"))[0]
        ('lake', 'events')
    """
    before, travel = _split(parts[-1])
    return (*parts[:-1], before), travel


def _split(text: str) -> tuple[str, TimeTravel | None]:
    by_version, by_time = _AT_VERSION.match(text), _AT_TIME.match(text)
    if by_version is not None:
        return by_version["path"], TimeTravel(version=by_version["version"])
    if by_time is None:
        return text, None
    digits = by_time["time"]
    day, clock = f"{digits[:4]}-{digits[4:6]}-{digits[6:8]}", f"{digits[8:10]}:{digits[10:12]}:{digits[12:14]}"
    return by_time["path"], TimeTravel(timestamp=f"{day} {clock}.{digits[14:]}")


def open_snapshot(
    spark: SparkSession,
    path: str,
    travel: TimeTravel | None,
    hadoop_conf: Mapping[str, str] | None = None,
    *,
    session: SessionSettings | None = None,
) -> Snapshot:
    """Open the snapshot of the table at a path: the newest, or the requested version.

    Args:
        spark: A classic session.
        path: Path of the table.
        travel: The requested version or time, or None for the newest.
        hadoop_conf: Options beyond those of the session.
        session: Settings of the session, if they were already read.

    Raises:
        TableNotFoundError: No Delta table is there.
        VersionNotFoundError: The log does not have the version or time. The message names the versions that it has.
        InvalidArgumentError: A version is not a number, or a time is not valid.
    """
    log = log_for_path(spark, Jvm.of(spark).qualify(path), hadoop_conf, session=session)
    if travel is None:
        snapshot = log.update()
        if snapshot.version < 0:
            raise TableNotFoundError(
                f"{path} is not a Delta table: there is no _delta_log with a commit in it.",
                hint="Check the location; df.write.format('delta').save(path) makes a table.",
                condition=absent_path(log),
            )
        return snapshot
    if not log.table_exists():
        raise TableNotFoundError(
            f"{path} is not a Delta table.",
            hint="Check the location.",
            condition=absent_path(log),
        )
    if travel.version is not None:
        text = str(travel.version).strip().strip("'\"")
        if not text.isdigit():
            raise InvalidArgumentError(
                f"{travel.version!r} is not a version.",
                hint="Versions are whole numbers from 0; see history().",
                condition=Condition.of("DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE", timeTravelKey="versionAsOf"),
            )
        return log.snapshot(version=int(text))
    return log.snapshot(timestamp_ms=epoch_ms(spark, travel))


def epoch_ms(spark: SparkSession, travel: TimeTravel) -> int:
    """Turn the requested time into epoch milliseconds. Without a zone it is in the session's.

    Raises:
        InvalidArgumentError: It is not a time.
    """
    if travel.moment is not None:
        try:
            return moment_ms(spark, travel.moment, shown=travel.moment)
        except InvalidArgumentError as error:
            raise error.called(Condition.of("INVALID_TIME_TRAVEL_TIMESTAMP_EXPR.INPUT", expr=travel.moment)) from None
    return moment_ms(spark, F.lit(str(travel.timestamp)), shown=travel.timestamp)
