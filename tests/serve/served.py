"""Sessions that parse through the engine, spoken to as Spark's servers do: in the JVM, through no method of PySpark."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import pydelta
from pydelta.api.server.spark.parser import install
from pydelta.api.server.spark.sessions import Sessions, prepare
from pydelta.api.server.spark.users import nobody
from pydelta.engines.spark.jvm import Jvm


class Refused(Exception):
    """What a client is told: class, condition, SQLSTATE, text."""

    def __init__(self, origin):
        self.kind = str(origin.getClass().getName())
        spark_error = "org.apache.spark.SparkThrowable"
        known = origin.getClass().getClassLoader() is not None and any(
            str(item.getName()) == spark_error for item in _interfaces(origin.getClass())
        )
        self.condition = origin.getCondition() if known else None
        self.state = origin.getSqlState() if known else None
        self.parameters = dict(origin.getMessageParameters()) if known else {}
        super().__init__(str(origin.getMessage()))


def _interfaces(kind):
    while kind is not None:
        yield from kind.getInterfaces()
        kind = kind.getSuperclass()


class Client:
    """One session."""

    def __init__(self, session):
        self.session = session

    def plan(self, text, *args):
        try:
            return self.session.sql(text, *args)
        except PySparkException as error:
            raise Refused(error._origin) from None
        except Py4JJavaError as error:
            raise Refused(error.java_exception) from None

    def rows(self, text, *args):
        frame = self.plan(text, *args)
        try:
            return [str(row.mkString("|")) for row in frame.collectAsList()]
        except PySparkException as error:
            raise Refused(error._origin) from None

    def columns(self, text):
        return list(self.plan(text).columns())

    def parse(self, text):
        return self.session.sessionState().sqlParser().parsePlan(text)


class Served:
    """A root session with extensions of its own, so that other tests' sessions keep Spark's parser."""

    def __init__(self, spark, user_of=nobody, first_seen=prepare):
        jvm = Jvm.of(spark)
        parent = spark._jsparkSession
        classes = jvm.view.org.apache.spark.sql
        empty = jvm.scala_map({})
        made = classes.classic.SparkSession(
            parent.sparkContext(), jvm.option.apply(parent.sharedState()), jvm.none,
            classes.SparkSessionExtensions(), empty, empty,
        )  # fmt: skip
        self.root = pydelta.enable(SparkSession(spark.sparkContext, made))
        self.sessions = Sessions(self.root, user_of, first_seen)
        self._parameters = spark.sparkContext._gateway.callback_server_parameters
        self._before = self._parameters.propagate_java_exceptions
        install(self.sessions)

    def client(self):
        return Client(self.root._jsparkSession.newSession())

    def close(self):
        self._parameters.propagate_java_exceptions = self._before
        pydelta.disable(self.root)
