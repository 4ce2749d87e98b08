"""Open table logs with a session's settings, and raise the errors that Spark users catch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from pydelta.engines.spark.errors import to_spark
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.session.call_sites import without_call_sites
from pydelta.engines.spark.session.stores import check_store
from pydelta.engines.spark.session.tokens import login_options
from pydelta.errors import DeltaEnvironmentError, DeltaError, InvalidArgumentError, StorageError, error_context
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog
from pydelta.settings import Settings

__all__ = [
    "SessionSettings",
    "absent_path",
    "active_session",
    "log_for_path",
    "moment_ms",
    "settings_of",
    "store_options",
    "timestamp_ms",
    "user_errors",
]

_LOG_STORE = "spark.pydelta.logStore."
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@contextmanager
def user_errors(log: DeltaLog | None = None) -> Iterator[None]:
    """Run engine code for a user: errors name the table and have a PySpark base class that Spark users catch."""
    try:
        with without_call_sites():
            if log is None:
                yield
            else:
                with error_context(table=log.uri):
                    yield
    except DeltaError as error:
        converted = to_spark(error)
        if converted is error:
            raise
        raise converted from error


def active_session(spark: SparkSession | None) -> SparkSession:
    """Return the given session, or the active one."""
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise DeltaEnvironmentError(
            "There is no active Spark session.",
            hint="Make one with pydelta.session().",
            condition=Condition.of("DELTA_ACTIVE_SPARK_SESSION_NOT_FOUND"),
        )
    return session


def settings_of(spark: SparkSession) -> Settings:
    """Return the engine's settings in the session."""
    return Settings.resolve(Jvm.of(spark).session_conf())


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """A session's settings of the engine and of stores, read once for all tables of a statement.

    Args:
        settings: The engine's settings.
        conf: All settings of the session. They may hold secrets, like ``options``.
        stores: The log stores that they name, by setting.
        options: The storage options, including ``stores``, and those of a log-in with a keytab.
        time_zone: The session's time zone.
        parquet_codec: The codec of Parquet files.
    """

    settings: Settings
    conf: Mapping[str, str] = field(repr=False)
    stores: Mapping[str, str]
    options: Mapping[str, str] = field(repr=False)
    time_zone: str
    parquet_codec: str

    @classmethod
    def of(cls, spark: SparkSession) -> SessionSettings:
        """Read the current settings."""
        jvm = Jvm.of(spark)
        current = jvm.calls.settings()
        stores = {key: value for key, value in current.conf.items() if key.startswith(_LOG_STORE)}
        return cls(
            settings=Settings.resolve(current.conf),
            conf=current.conf,
            stores=stores,
            options={**jvm.hadoop_options(), **login_options(current.conf, jvm.view), **stores},
            time_zone=current.time_zone,
            parquet_codec=current.parquet_codec,
        )


def log_for_path(
    spark: SparkSession,
    path: str,
    hadoop_conf: Mapping[str, str] | None = None,
    *,
    session: SessionSettings | None = None,
) -> DeltaLog:
    """Return the log of the table at a path, with the session's storage options and settings.

    Args:
        spark: A classic session.
        path: Location of the table.
        hadoop_conf: Options in addition to those of the session.
        session: The session's settings, if they were already read.

    Raises:
        DeltaEnvironmentError: Spark could not read the table's files; see ``check_store``.
    """
    held = session or SessionSettings.of(spark)
    if held.settings.hadoop_check and not any(
        path.startswith(f"{key.removeprefix(_LOG_STORE)}:") for key in held.stores
    ):
        check_store(spark, path)  # A user who configures a custom store knows what Spark can read there.
    return DeltaLog.for_table(path, options={**held.options, **(hadoop_conf or {})}, settings=held.settings)


def store_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return those of a reader's options that configure the store."""
    return {name: value for name, value in given.items() if name.lower().startswith(("fs.", "dfs."))}


def absent_path(log: DeltaLog) -> Condition:
    """Choose the error condition for a path without a table: there may be other files, or nothing at all."""
    try:
        empty = next(iter(log.store.list_all()), None) is None
    except StorageError:
        empty = False
    if empty:
        return Condition.of("PATH_NOT_FOUND", path=log.uri)
    return Condition.of("DELTA_TABLE_NOT_FOUND", tableName=log.uri)


def timestamp_ms(spark: SparkSession, value: str | datetime) -> int:
    """Convert a time to epoch milliseconds. Spark reads text in the session's zone. A naive datetime is local time."""
    if isinstance(value, datetime):
        return (value.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
    return moment_ms(spark, F.lit(value), shown=repr(value))


def moment_ms(spark: SparkSession, moment: Column, *, shown: object) -> int:
    """Evaluate a constant expression as a time in epoch milliseconds. Text without a zone uses the session's.

    Raises:
        InvalidArgumentError: It is not a time. The message shows ``shown``.
    """
    # Without a relation, Spark folds it during planning and runs no job.
    rows = Jvm.of(spark).one_row([F.unix_millis(moment.try_cast("timestamp")).alias("ms")])._jdf.collectAsList()
    if rows.get(0).isNullAt(0):
        raise InvalidArgumentError(
            f"{shown} is not a timestamp.",
            hint="Write it as '2024-05-01 12:00:00' or '2024-05-01'.",
            condition=Condition.of("DELTA_TIMESTAMP_INVALID", expr=shown),
        )
    return int(rows.get(0).getLong(0))
