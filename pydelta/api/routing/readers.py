"""Route ``spark.read…load``, ``table``, ``spark.table`` and ``spark.sql`` to this engine."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.errors.exceptions import captured
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.sql_formatter import SQLStringFormatter

from pydelta.api.routing import aggregates as metadata_aggregates
from pydelta.api.routing import catalog_api as routing_catalog
from pydelta.api.routing import conf_api as routing_conf
from pydelta.api.routing.aggregates import answered_frame
from pydelta.api.routing.catalog_api import read_table
from pydelta.api.routing.datasource import NOT_ROUTED
from pydelta.api.sql.dispatch import run_node, run_text
from pydelta.api.sql.grammar import is_ours
from pydelta.api.sql.relations import RelationResolver, named_tables
from pydelta.api.sql.targets import log_for_name
from pydelta.engines.spark.errors import causes_of, raised_in, to_spark
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import user_errors
from pydelta.engines.spark.scan.change_feed import changes_from_options, read_changes
from pydelta.engines.spark.scan.changelog import context_of_options, feed_options
from pydelta.engines.spark.scan.newest import raised_while_planning
from pydelta.engines.spark.scan.reads import read_path
from pydelta.engines.spark.session.inside import inside_with_jvm
from pydelta.engines.spark.session.patches import is_enabled, patch
from pydelta.errors import InvalidArgumentError, error_context
from pydelta.errors.conditions import Condition

__all__ = ["install"]

_PROVIDER = "delta"


def install(enable: Callable[[SparkSession], SparkSession]) -> None:
    """Install the routes. ``patches.restore_all`` removes them.

    Args:
        enable: Enables a session; used for sessions that an enabled session creates.
    """
    for name in ("newSession", "cloneSession"):
        if name in vars(SparkSession):
            patch(SparkSession, name, functools.partial(_new_session, enable))
    patch(SparkSession, "table", _table)
    patch(SparkSession, "sql", _sql)
    patch(DataFrameReader, "load", _load)
    patch(DataFrameReader, "table", _reader_table)
    patch(captured, "convert_exception", _converted)
    if hasattr(DataFrameReader, "changes"):  # It exists since Spark 4.2.
        patch(DataFrameReader, "changes", _reader_changes)
    routing_catalog.install()
    routing_conf.install()
    metadata_aggregates.install()


def _new_session(
    enable: Callable[[SparkSession], SparkSession], original: Callable[..., SparkSession]
) -> Callable[..., SparkSession]:
    def new_session(self: SparkSession) -> SparkSession:
        session = original(self)
        return enable(session) if is_enabled(self) else session

    return new_session


def _table(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    def table(self: SparkSession, tableName: str) -> DataFrame:
        if not is_enabled(self):
            return original(self, tableName)
        with user_errors():
            frame = read_table(self, tableName)
        return original(self, tableName) if frame is None else frame

    return table


def _sql(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    def sql(self: SparkSession, sqlQuery: str, args: Any = None, **kwargs: Any) -> DataFrame:
        if not is_enabled(self):
            return original(self, sqlQuery, args, **kwargs)
        formatter = SQLStringFormatter(self)
        text = formatter.format(sqlQuery, **kwargs) if kwargs else sqlQuery
        try:
            with inside_with_jvm(self), Jvm.of(self).active():  # A served session also has our parser.
                return _statement(self, text, args, original)
        finally:
            if kwargs:
                formatter.clear()

    return sql


def _statement(spark: SparkSession, text: str, args: Any, original: Callable[..., DataFrame]) -> DataFrame:
    jvm = Jvm.of(spark)
    with user_errors():
        frame = _own(spark, text, args)
    if frame is not None:
        return frame
    names, values = _parameters(jvm, args)
    try:
        parsed = jvm.parse(text, values, names)
    except ParseException:
        with user_errors():
            frame = _own(spark, text, args, spark_refuses=True)
        return original(spark, text, args) if frame is None else frame
    with user_errors():
        parsed = named_tables(jvm, parsed)
        frame = run_node(spark, parsed)
        if frame is not None:
            return frame
        plan = RelationResolver(spark).statement(parsed)
    if plan is not None:
        frame = jvm.frame(plan)
        with user_errors():
            return answered_frame(spark, frame)
    try:
        return original(spark, text, args)
    except AnalysisException as error:
        with user_errors():
            _raise_ours(error)
        raise


def _converted(original: Callable[..., Any]) -> Callable[..., Any]:
    """Convert an error from planning a query into the engine's error that caused it."""

    def convert_exception(error: Any) -> Any:
        ours = raised_while_planning(str(error.getMessage()))
        if ours is None and NOT_ROUTED in (text := "\n".join(causes_of(error))):
            ours = raised_in(text)
        return original(error) if ours is None else to_spark(ours)

    return convert_exception


def _own(spark: SparkSession, text: str, args: Any, *, spark_refuses: bool = False) -> DataFrame | None:
    """Run a statement that only this engine knows; such statements take no parameters."""
    if args and is_ours(text, spark_refuses=spark_refuses):
        raise InvalidArgumentError(
            "Statements that Spark's parser does not know cannot have parameters.",
            hint="Format the values into the text.",
        )
    return run_text(spark, text, spark_refuses=spark_refuses)


def _raise_ours(error: AnalysisException) -> None:
    """Raise the engine's own error if it caused the failure of a statement over the registered data source."""
    text = str(error)
    ours = raised_in(text)
    if ours is not None:
        raise ours from None


def _parameters(jvm: Jvm, args: Any) -> tuple[list[str], list[Any]]:
    """Return the names and values of parameters: a dictionary for ``:name``, a list without names for ``?``."""
    values = args.values() if isinstance(args, dict) else args or ()
    return list(args) if isinstance(args, dict) else [], [_expression(jvm, value) for value in values]


def _expression(jvm: Jvm, value: Any) -> Any:
    column = value if isinstance(value, Column) else F.lit(value)
    return jvm.expression(column)


def _load(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    def load(
        self: DataFrameReader,
        path: Any = None,
        format: Any = None,  # noqa: A002  PySpark's name
        schema: Any = None,
        **options: Any,
    ) -> DataFrame:
        if not is_enabled(self._spark):
            return original(self, path, format, schema, **options)
        source = format if format is not None else str(self._jreader.source())
        if source.lower() != _PROVIDER:
            return original(self, path, format, schema, **options)
        with user_errors():
            if schema is not None or self._jreader.userSpecifiedSchema().isDefined():
                raise InvalidArgumentError(
                    "A schema was given for reading a Delta table, which already has one.",
                    hint="Leave out .schema(…) and select or cast columns afterwards.",
                    condition=Condition.of("DELTA_UNSUPPORTED_SCHEMA_DURING_READ"),
                )
            self.options(**options)
            given = _reader_options(self)
            target = path if path is not None else given.get("path")
            if isinstance(target, (list, tuple)) and len(target) == 1:
                target = target[0]
            if not isinstance(target, str):
                raise InvalidArgumentError(
                    f"One path to a Delta table was expected, not {target!r}.",
                    hint='Write spark.read.format("delta").load(path); union several tables afterwards.',
                    condition=Condition.of("DELTA_PATH_NOT_SPECIFIED"),
                )
            return read_path(self._spark, target, given)

    return load


def _reader_table(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    def table(self: DataFrameReader, tableName: str) -> DataFrame:
        if not is_enabled(self._spark):
            return original(self, tableName)
        with user_errors():
            options = _reader_options(self)
            changes = changes_from_options(self._spark, options)
            if changes is not None and read_table(self._spark, tableName) is not None:
                log = log_for_name(self._spark, tableName)
                with error_context(table=log.uri):
                    return read_changes(self._spark, log, changes)
            frame = read_table(self._spark, tableName, options)
        return original(self, tableName) if frame is None else frame

    return table


def _reader_changes(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    """Answer ``changes(name)`` with the table's change feed."""

    def changes(self: DataFrameReader, tableName: str) -> DataFrame:
        spark = self._spark
        if not is_enabled(spark):
            return original(self, tableName)
        with user_errors():
            if read_table(spark, tableName) is None:
                return original(self, tableName)
            jvm, given = Jvm.of(spark), _reader_options(self)
            changes = changes_from_options(spark, feed_options(jvm, context_of_options(jvm, given), given))
            assert changes is not None, "feed_options asks for the feed"
            log = log_for_name(spark, tableName)
            with error_context(table=log.uri):
                return read_changes(spark, log, changes)

    return changes


def _reader_options(reader: DataFrameReader) -> dict[str, str]:
    jvm = Jvm.of(reader._spark)
    return jvm.to_dict(jvm.python_utils_map(reader._jreader.extraOptions().originalMap()))
