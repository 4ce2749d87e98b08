"""Answer the texts that stand for a remote client's reads and commands, when Spark asks its parser for them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeAlias

from pydelta.api.server.commands import run_command
from pydelta.api.server.requests import Commands, RelationText, token_of
from pydelta.api.server.spark.plans import statement_plan
from pydelta.engines.spark.jvm import Jvm
from pydelta.errors import DeltaEnvironmentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Texts"]

_Planner: TypeAlias = Callable[["SparkSession", Callable[[], AbstractContextManager[None]]], Any]


class Texts:
    """What the parser of a client's session asks first.

    Args:
        commands: Those that wait.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def planner_of(self, text: str) -> _Planner | None:
        """Return what makes the plan that a text stands for; None for a statement of SQL.

        Args:
            text: As Spark's planner hands it to the parser.
        """
        asked = RelationText.of(text)
        if asked is not None:
            return lambda spark, around: _frame(spark, asked)._jdf.queryExecution().analyzed()
        if token_of(text) is not None:
            return lambda spark, around: statement_plan(Jvm.of(spark), lambda: self._run(spark, text), around)
        return None

    def _run(self, spark: SparkSession, text: str) -> DataFrame:
        command = self._commands.take(text)
        if command is None:
            raise DeltaEnvironmentError(
                "The server no longer has this command. Nothing was run.", hint="Send it again."
            )
        told = run_command(spark, command)
        return Jvm.of(spark).nothing() if told is None else told


def _frame(spark: SparkSession, asked: RelationText) -> DataFrame:
    reader: Any = (spark.readStream if asked.streaming else spark.read).options(**asked.options)
    if asked.table is not None:
        return reader.table(asked.table)
    if asked.schema:
        reader = reader.schema("given string")  # refused with the engine's words
    return reader.format("delta").load(asked.path)
