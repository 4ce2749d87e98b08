"""Turn the plans of remote clients into DataFrames and Columns of their session on the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message
from pyspark.sql import Column, DataFrame

from pydelta.engines.spark.jvm import Jvm, scala_object

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Planner"]

_DEEPEST = 1024  # Spark Connect's own server has the same limit.


class Planner:
    """Spark Connect's planner for one session.

    Args:
        spark: The session on the server.
        user: The client's user.
        session: The client's name for the session.
    """

    def __init__(self, spark: SparkSession, *, user: str, session: str) -> None:
        self.spark = spark
        self.jvm = Jvm.of(spark)
        connect = self.jvm.view.org.apache.spark.sql.connect
        none = self.jvm.none
        holder = connect.service.SparkConnectService.getOrCreateIsolatedSession(user, session, none)
        self._planner = connect.planner.SparkConnectPlanner(holder, none)
        self._proto = self.jvm.view.org.apache.spark.connect.proto
        self.holder = holder

    def frame(self, relation: Message | bytes) -> DataFrame:
        """Build a DataFrame from a ``spark.connect.Relation``."""
        plan = self._planner.transformRelation(self._message(self._proto.Relation, relation))
        return self.jvm.frame(plan)

    def column(self, expression: Message | bytes) -> Column:
        """Build a Column from a ``spark.connect.Expression``."""
        return Column(self.jvm.column_of(self.expression(expression)))

    def expression(self, expression: Message | bytes) -> Any:
        """Build a Catalyst expression from a ``spark.connect.Expression``."""
        return self._planner.transformExpression(self._message(self._proto.Expression, expression))

    def register(self, query: StreamingQuery, operation: str) -> None:
        """Register a stream with Spark Connect, so that its client can ask about it.

        Args:
            query: The stream.
            operation: The client's id of the command that started it.
        """
        service = scala_object(self.jvm.view.org.apache.spark.sql.connect.service, "SparkConnectService")
        no_tags = self.jvm.seq([]).toSet()
        service.streamingSessionManager().registerNewStreamingQuery(self.holder, query._jsq, no_tags, operation)

    def _message(self, kind: Any, given: Message | bytes) -> Any:
        data = given.SerializeToString() if isinstance(given, Message) else given
        stream = self.jvm.view.org.sparkproject.connect.protobuf.CodedInputStream.newInstance(data)
        stream.setRecursionLimit(_DEEPEST)
        return kind.parseFrom(stream)
