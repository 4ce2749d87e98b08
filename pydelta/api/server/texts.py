"""Plan the strings that represent a remote client's reads and commands when Spark's parser receives them."""

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
    """Recognizes these strings before the session's parser sees them.

    Args:
        commands: The waiting commands.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def planner_of(self, text: str) -> _Planner | None:
        """Return the function that plans a text; None for an SQL statement.

        Args:
            text: As Spark's planner passes it to the parser.
        """
        relation = RelationText.of(text)
        if relation is not None:
            return lambda spark, around: _frame(spark, relation)._jdf.queryExecution().analyzed()
        if token_of(text) is not None:
            return lambda spark, around: statement_plan(Jvm.of(spark), lambda: self._run(spark, text), around)
        return None

    def _run(self, spark: SparkSession, text: str) -> DataFrame:
        command = self._commands.take(text)
        if command is None:
            raise DeltaEnvironmentError(
                "The server no longer has this command. Nothing was run.", hint="Send it again."
            )
        result = run_command(spark, command)
        return Jvm.of(spark).nothing() if result is None else result


def _frame(spark: SparkSession, relation: RelationText) -> DataFrame:
    reader: Any = (spark.readStream if relation.streaming else spark.read).options(**relation.options)
    if relation.table is not None:
        return reader.table(relation.table)
    if relation.schema:
        reader = reader.schema("given string")  # The reader refuses any schema.
    return reader.format("delta").load(relation.path)
