"""Send the calls of a remote ``DeltaTable`` to the server, and return the results."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType, StructField

from pydelta.api.python.own_columns import ambiguous
from pydelta.api.python.wire import COMMAND_URL, Call, Expression, Schema, WireIdentity, WirePlan, packed
from pydelta.engines.spark.logs import user_errors
from pydelta.errors import DeltaEnvironmentError
from pydelta.protocol.names import quoted

__all__ = ["Chain", "Given", "active_remote", "is_remote"]


def is_remote(spark: Any) -> bool:
    """Return whether a session is a client of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def active_remote() -> Any:
    """Return the active session of a Spark Connect client; None if this process has none."""
    module = sys.modules.get("pyspark.sql.connect.session")
    return None if module is None else module.SparkSession.getActiveSession()


@dataclass(frozen=True)
class Given:
    """The DataFrames that a table returned, by the ids of their plans. Their columns stand for the table's columns.

    Args:
        ids: Ids of the plans.
        alias: Qualifier for the names; None for none.
        source: Ids of the plans that the source of a merge was made from.
    """

    ids: dict[int, None] = field(default_factory=dict)
    alias: str | None = None
    source: frozenset[int] = frozenset()

    def note(self, frame: Any) -> None:
        """Remember a DataFrame."""
        self.ids[frame._plan._plan_id] = None

    def merging(self, source: Any, client: Any, alias: str) -> Given:
        """Return the frames as seen by a merge with a source."""
        plan = source._plan.plan(client)
        found = {message.plan_id for message in _messages(plan) if "RelationCommon" in message.DESCRIPTOR.name}
        return Given(self.ids, self.alias or alias, frozenset(found & self.ids.keys()))

    def by_name(self, expression: Any, method: str = "") -> Any:
        """Replace columns of the DataFrames by names in an expression's message, in place, and return the message.

        Args:
            expression: The message.
            method: The method that takes the expression. Some clauses of a merge read only one side.

        Raises:
            InvalidArgumentError: A column may be the table's or the source's.
        """
        for message in _messages(expression):
            if message.DESCRIPTOR.name != "UnresolvedAttribute" or message.plan_id not in self.ids:
                continue
            name = message.unparsed_identifier
            if message.plan_id in self.source and not method.startswith("whenNotMatchedBySource"):
                if method.startswith("whenNotMatched"):
                    continue
                with user_errors():
                    raise ambiguous(name)
            message.ClearField("plan_id")
            if self.alias is not None:
                message.unparsed_identifier = f"{quoted(self.alias)}.{name}"
        return expression


def _messages(message: Any) -> Iterator[Any]:
    """Yield a message and the messages inside it."""
    yield message
    for kind, value in message.ListFields():
        if kind.message_type is None:
            continue
        if kind.message_type.GetOptions().map_entry:
            inner = [item for item in value.values() if hasattr(item, "ListFields")]
        else:
            inner = [value] if hasattr(value, "ListFields") else list(value)
        for item in inner:
            yield from _messages(item)


@dataclass(frozen=True)
class Chain:
    """Calls that the server makes in order, each on the result of the one before.

    Args:
        spark: A session of a Spark Connect client.
        calls: The calls so far.
        given: The DataFrames that the table returned.
    """

    spark: Any
    calls: tuple[Call, ...] = ()
    given: Given = field(default_factory=Given)

    def then(self, call: Call) -> Chain:
        """Return a chain with one more call. Nothing is sent."""
        given = tuple(self._sent(item, call.method) for item in call.arguments)
        return replace(self, calls=(*self.calls, Call(call.method, given, self._sent(call.named, call.method))))

    def opened(self, call: Call) -> Chain:
        """Add a call and send it, so that a table that cannot be opened is an error here."""
        chain = self.then(call)
        chain.run()
        return chain

    def rows(self) -> DataFrame:
        """Send the calls, and return the rows of the last one."""
        rows = self.run()
        assert rows is not None, self.calls[-1].method
        return rows

    def run(self) -> DataFrame | None:
        """Send the calls in one command.

        Returns:
            The rows of the last call; None if it has none.

        Raises:
            DeltaEnvironmentError: The server does not support such commands.
            PySparkException: A call failed; the condition is that of the engine's error.
        """
        from pyspark.sql.connect.dataframe import DataFrame as ConnectFrame
        from pyspark.sql.connect.plan import CachedRelation
        from pyspark.sql.connect.proto import commands_pb2

        command = commands_pb2.Command()
        command.extension.type_url = COMMAND_URL
        command.extension.value = packed(self.calls)
        try:
            properties = self.spark.client.execute_command(command)[1]
        except PySparkException as error:
            if "extension" in str(error).lower() and "no handler" in str(error).lower():
                raise DeltaEnvironmentError(
                    "The server does not know DeltaTable: it is Spark Connect without this engine.",
                    hint="Start it with pydelta serve, or use SQL that the server's own engine knows.",
                ) from None
            raise
        result = properties.get("sql_command_result")
        return None if result is None else ConnectFrame(CachedRelation(result), self.spark)

    def _sent(self, value: Any, method: str) -> Any:
        if isinstance(value, Column):
            column: Any = value
            return Expression(self.given.by_name(column.to_plan(self.spark.client), method).SerializeToString())
        if isinstance(value, DataFrame):
            frame: Any = value
            return WirePlan(frame._plan.plan(self.spark.client).SerializeToString())
        if isinstance(value, (DataType, StructField)):
            return Schema(value.json())
        if isinstance(value, Mapping):
            return {name: self._sent(item, method) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._sent(item, method) for item in value]
        if type(value).__name__ == "IdentityGenerator":
            return WireIdentity(value.start, value.step)
        if isinstance(value, dt.datetime):
            return value.astimezone(dt.UTC)  # Without a zone, it is in this machine's zone, not in the server's.
        return value
