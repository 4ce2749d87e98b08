"""Run commands in a session with its settings and engine, using its ``txnVersion`` once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from pydelta.commands.run import Command, Context, Task, run
from pydelta.engines.spark.engine import SparkEngine
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydelta.log import DeltaLog
    from pydelta.settings import Settings

__all__ = ["run_in_session", "session_context"]

R = TypeVar("R")
_TXN_VERSION: Final = ("spark.databricks.delta.write.txnVersion", "spark.pydelta.write.txnVersion")


def session_context(spark: SparkSession, log: DeltaLog, *, alias: str | None = None) -> Context:
    """Return the context for commands that a session runs on a table.

    Args:
        spark: A classic session.
        log: The table's log.
        alias: A qualifier for the table's columns that conditions may use.
    """
    return Context(log, SparkEngine(spark, alias=alias), settings=settings_of(spark))


def run_in_session(spark: SparkSession, command: Command[R] | Task[R], log: DeltaLog, *, alias: str | None = None) -> R:
    """Run a command with the session's settings. Unsets a used ``txnVersion`` if the session asks for that.

    The arguments are those of ``session_context``, the errors those of the command.
    """
    with Jvm.of(spark).active():  # Expressions of rules and conditions are parsed with the active session's settings.
        context = session_context(spark, log, alias=alias)
        result = run(command, context)
    if isinstance(command, Command) and context.settings.txn_version_auto_reset:
        _forget_version(spark, command, context.settings, result)
    return result


def _forget_version(spark: SparkSession, command: Command[R], settings: Settings, result: R) -> None:
    """Unset the session's version after a command that used it or was skipped because of it."""
    used = command.transaction(settings)
    if None in used or used != settings.transaction:
        return
    if getattr(result, "version", None) is not None or getattr(result, "skipped", False):
        for key in _TXN_VERSION:
            spark.conf.unset(key)
