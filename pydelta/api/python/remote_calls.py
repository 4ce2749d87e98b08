"""Send the calls of a remote ``DeltaTable`` to the server, and give back what it tells."""

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
    """Tell whether a session is a client of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def active_remote() -> Any:
    """Return the active session of a Spark Connect client; None where this process has none."""
    module = sys.modules.get("pyspark.sql.connect.session")
    return None if module is None else module.SparkSession.getActiveSession()


@dataclass(frozen=True)
class Given:
    """The frames that a table gave out, by the ids of their plans: a column of theirs is the table's of that name.

    Args:
        ids: Of the plans.
        alias: What qualifies the names, if anything does.
        source: Those among them that the rows of a merge were made of.
    """

    ids: dict[int, None] = field(default_factory=dict)
    alias: str | None = None
    source: frozenset[int] = frozenset()

    def note(self, frame: Any) -> None:
        """Remember a frame."""
        self.ids[frame._plan._plan_id] = None

    def merging(self, source: Any, client: Any, alias: str) -> Given:
        """Return what holds in a merge of a source."""
        plan = source._plan.plan(client)
        found = {message.plan_id for message in _messages(plan) if "RelationCommon" in message.DESCRIPTOR.name}
        return Given(self.ids, self.alias or alias, frozenset(found & self.ids.keys()))

    def by_name(self, expression: Any, method: str = "") -> Any:
        """Name the table's columns in an expression's message, which is changed and returned.

        Args:
            expression: The message.
            method: What is called with it: a clause of a merge may read one side alone.

        Raises:
            InvalidArgumentError: A column may be the table's and the source's.
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
    """A message and those within it."""
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
    """Calls that the server makes one after the other, each on what the one before gave.

    Args:
        spark: A session of a Spark Connect client.
        calls: So far.
        given: The frames that the table gave out.
    """

    spark: Any
    calls: tuple[Call, ...] = ()
    given: Given = field(default_factory=Given)

    def then(self, call: Call) -> Chain:
        """Add a call. Nothing is sent."""
        given = tuple(self._sent(item, call.method) for item in call.arguments)
        return replace(self, calls=(*self.calls, Call(call.method, given, self._sent(call.named, call.method))))

    def opened(self, call: Call) -> Chain:
        """Add a call and send it, so that what it cannot open is an error here."""
        chain = self.then(call)
        chain.run()
        return chain

    def rows(self) -> DataFrame:
        """Send the calls, of which the last gives rows."""
        rows = self.run()
        assert rows is not None, self.calls[-1].method
        return rows

    def run(self) -> DataFrame | None:
        """Send the calls in one command.

        Returns:
            The rows that the last of them told, if it told any.

        Raises:
            DeltaEnvironmentError: The server does not know such commands.
            PySparkException: What it ran into; its condition is that of the engine's error.
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
        told = properties.get("sql_command_result")
        return None if told is None else ConnectFrame(CachedRelation(told), self.spark)

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
            return value.astimezone(dt.UTC)  # one without a zone means this machine's, not the server's
        return value
