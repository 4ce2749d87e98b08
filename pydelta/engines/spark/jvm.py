"""Bind JVM classes and bulk operations of a Spark session. Only this module knows Spark versions.

Names are looked up once (``JavaNames``). Data that grows with the table (files, partitions) crosses in one buffer,
never with one call per item.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import Column, DataFrame, SparkSession

from pydelta.engines.spark.bulk import Bulk
from pydelta.engines.spark.callback_results import release_late
from pydelta.engines.spark.callers import close_ended
from pydelta.engines.spark.calls import Calls
from pydelta.engines.spark.java_names import JavaNames
from pydelta.engines.spark.lru import LruCache
from pydelta.engines.spark_versions import refuse_unsupported
from pydelta.errors import DeltaEnvironmentError

__all__ = ["Jvm", "is_classic", "java_class_name", "scala_object"]

_ATTRIBUTE: Final = "_pydelta_jvm"
_CURRENT_FOR_VIEWS: Final = "spark.sql.legacy.useCurrentConfigsForView"
_CACHED_SNAPSHOTS: Final = 8
_CACHED_SHAPES: Final = 64
_USER_TYPE: Final = "org.apache.spark.sql.types.UserDefinedType"
_RECENT_ROWS_BYTES: Final = 32 * 1024 * 1024
_SECRET_KEYS: Final = ("fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token")


def is_classic(spark: Any) -> bool:
    """Return whether the session runs in this process's JVM (and is not a Spark Connect client)."""
    return isinstance(spark, SparkSession) and hasattr(spark, "_jsparkSession")


class Jvm:
    """JVM classes bound for one session. Get it with ``Jvm.of(spark)``.

    Raises:
        DeltaEnvironmentError: The session is a Spark Connect client, so there is no JVM.
    """

    def __init__(self, spark: SparkSession) -> None:
        if not is_classic(spark):
            raise DeltaEnvironmentError(
                f"A classic Spark session is needed; this one is {type(spark).__module__}.{type(spark).__name__}, "
                "whose driver is another process.",
                hint="Create the session with SparkSession.builder.master(...) instead of .remote(...), "
                "or run the job with spark-submit.",
            )
        self.version = refuse_unsupported(spark.version)
        self.spark = spark
        self.session: Any = spark._jsparkSession
        self.gateway: Any = spark.sparkContext._gateway
        jvm: Any = JavaNames.of(self.gateway)
        self.view: Any = jvm
        ensure_callback_server_started(self.gateway)
        release_late(self.gateway)
        close_ended(self.gateway)
        self._partitions: LruCache[Any, Any] = LruCache(_CACHED_SNAPSHOTS)
        self.recent_rows: LruCache[Any, Any] = LruCache(_RECENT_ROWS_BYTES)

        sql, catalyst = jvm.org.apache.spark.sql, jvm.org.apache.spark.sql.catalyst
        self.python_utils: Any = jvm.org.apache.spark.api.python.PythonUtils
        self.to_seq: Any = self.python_utils.toSeq
        self._as_java: Any = jvm.scala.jdk.javaapi.CollectionConverters.asJava
        self._to_json: Any = jvm.com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString
        self.python_sql: Any = sql.api.python.PythonSQLUtils
        self.none: Any = jvm.scala.Option.empty()
        self.option: Any = jvm.scala.Option
        self.path: Any = jvm.org.apache.hadoop.fs.Path
        self.data_type: Any = sql.types.DataType
        self.struct_type: Any = sql.types.StructType
        self.relation: Any = sql.execution.datasources.HadoopFsRelation
        self.parquet: Any = sql.execution.datasources.parquet.ParquetFileFormat
        self.logical_relation: Any = scala_object(sql.execution.datasources, "LogicalRelation")
        self.dataset: Any = scala_object(sql.classic, "Dataset")
        self.partition_directory: Any = scala_object(sql.execution.datasources, "PartitionDirectory")
        self.empty_row: Any = catalyst.InternalRow.empty()
        plans = catalyst.plans.logical
        self.local_relation: Any = scala_object(plans, "LocalRelation")
        self.filter: Any = plans.Filter
        self.project: Any = plans.Project
        self._rebalance: Any = plans.RebalancePartitions
        self._project_object: Any = scala_object(plans, "Project")
        self._union: Any = plans.Union
        self._alias: Any = scala_object(catalyst.expressions, "Alias")
        self._named: Any = scala_object(catalyst.expressions, "NamedExpression")
        self.bits_base = int(jvm.org.apache.spark.unsafe.Platform.BYTE_ARRAY_OFFSET)
        self._class_named: Any = jvm.java.lang.Class.forName
        self._static_invoke: Any = catalyst.expressions.objects.StaticInvoke
        self._expression_utils: Any = scala_object(sql.classic, "ExpressionUtils")
        self._tag: Any = catalyst.trees.TreeNodeTag
        self.subquery_alias: Any = scala_object(plans, "SubqueryAlias")
        self.and_expression: Any = catalyst.expressions.And
        self.table_identifier: Any = scala_object(catalyst, "TableIdentifier")
        self.strings: Any = jvm.org.apache.hadoop.util.StringUtils
        self.arrays: Any = jvm.java.util.Arrays
        self.object_class: Any = jvm.java.lang.Object
        self.java_system: Any = jvm.java.lang.System
        self.unseen_rows: LruCache[str, Any] = LruCache(_CACHED_SHAPES)
        self._bulk = Bulk(self)

    @classmethod
    def of(cls, spark: SparkSession) -> Jvm:
        """Return the bindings of a session, creating them on first use."""
        bound: Jvm | None = getattr(spark, _ATTRIBUTE, None)
        if bound is None:
            bound = cls(spark)
            setattr(spark, _ATTRIBUTE, bound)
        return bound

    # --- small conversions ---------------------------------------------------------------------------------

    @property
    def process(self) -> Any:
        """The JVM's process, a ``Popen``; None if this process did not start it."""
        return getattr(self.gateway, "proc", None)

    def seq(self, items: Iterable[Any]) -> Any:
        """Return a Scala ``Seq`` of the items."""
        return self.to_seq(list(items))

    def scala_map(self, items: Mapping[str, str]) -> Any:
        """Return an immutable Scala ``Map``."""
        return self.python_utils.toScalaMap(dict(items))

    def indexed_seq(self, items: Iterable[Any]) -> Any:
        """Return a Scala indexed sequence, the type that tree nodes expect for new children."""
        return self.seq(items).toIndexedSeq()

    def column_of(self, expression: Any) -> Any:
        """Return a JVM Column for a Catalyst expression, resolved or not."""
        return self._expression_utils.column(expression)

    def char_varchar_as_strings(self, struct: Any) -> Any:
        """Return a StructType with char and varchar as strings whose metadata stores the length."""
        utilities = self.view.org.apache.spark.sql.catalyst.util.CharVarcharUtils
        return utilities.replaceCharVarcharWithStringInSchema(struct)

    def array(self, java_class: Any, items: Sequence[Any]) -> Any:
        """Return a Java array of the given class."""
        result = self.gateway.new_array(java_class, len(items))
        for position, item in enumerate(items):
            result[position] = item
        return result

    def struct(self, schema_json: str) -> Any:
        """Convert schema JSON to ``StructType``."""
        return self._struct_from_json(schema_json)

    @cached_property
    def _struct_from_json(self) -> Any:
        return self.data_type.fromJson

    def is_user_type(self, name: object) -> bool:
        """Return whether the JVM has a class of this name that is a user-defined type."""
        if not isinstance(name, str):
            return False
        try:
            found = self.view.org.apache.spark.util.Utils.classForName(name, False, False)
        except Py4JError:
            return False
        return bool(self._class_named(_USER_TYPE).isAssignableFrom(found))

    def string_array(self, items: Sequence[str]) -> Any:
        """Create a ``String[]`` in one call."""
        if not items:
            return self.gateway.new_array(self.view.java.lang.String, 0)
        return self.strings.split("\x00".join(items), "\x00")

    def rest_of(self, target: Any, method: str, given: int) -> list[Any]:
        """Return the default values of a Scala method's parameters after the first ``given`` ones."""
        names = [str(item.getName()) for item in target.getClass().getMethods()]
        prefix = method + "$default$"
        positions = sorted(int(name.removeprefix(prefix)) for name in set(names) if name.startswith(prefix))
        return [getattr(target, f"{prefix}{position}")() for position in positions if position > given]

    def path_text(self, uri: Any) -> str:
        """Convert a ``java.net.URI`` to a location for ``normalize_uri``: local ones encoded, others decoded."""
        text = str(uri.toString())
        return text if text.startswith("file:") else str(self.path(uri).toString())

    def location_uri(self, table_uri: str) -> Any:
        """Convert a normalized table URI to ``java.net.URI``."""
        if table_uri.startswith("file:"):  # A local URI is already encoded.
            return self.view.java.net.URI("file:/" + table_uri.removeprefix("file:").lstrip("/"))
        return self.path(table_uri).toUri()

    # --- settings ------------------------------------------------------------------------------------------

    def session_conf(self) -> dict[str, str]:
        """Return all ``spark.*`` settings of the session."""
        return dict(self.calls.settings().conf)

    @cached_property
    def calls(self) -> Calls:
        """The calls that read many values at once."""
        return Calls(self.gateway, self.session)

    def python_utils_map(self, scala_map: Any) -> Any:
        """Convert a Scala map to ``java.util.Map``."""
        return self._as_java(scala_map)

    def time_zone(self) -> str:
        """Return the session's time zone."""
        return self.calls.settings().time_zone

    @cached_property
    def state(self) -> Any:
        """The session's ``SessionState``, the same object for the session's lifetime."""
        return self.session.sessionState()

    @cached_property
    def catalog(self) -> Any:
        """The session's ``SessionCatalog``."""
        return self.state.catalog()

    @cached_property
    def sql_conf(self) -> Any:
        """The session's ``SQLConf``, which always has the current settings."""
        return self.state.conf()

    def hadoop_conf(self) -> Any:
        """Return the session's Hadoop configuration."""
        return self.state.newHadoopConf()

    def hadoop_options(self) -> dict[str, str]:
        """Return the session's storage settings (``fs.*`` and similar). They may hold secrets, so never log them."""
        options = dict(self.calls.storage())
        if options.get("hadoop.security.credential.provider.path"):
            conf = self.hadoop_conf()
            for key in _SECRET_KEYS:
                password = conf.getPassword(key)
                if password is not None:
                    options[key] = self.view.java.lang.String.valueOf(password)
        return options

    def qualify(self, path: str) -> str:
        """Add the scheme to a location that a user wrote. A path without a scheme is on the default file system."""
        if _scheme(path) is not None:
            return path
        if self.calls.storage().get("fs.defaultFS", "").startswith("file:"):
            return path
        default = str(self.view.org.apache.hadoop.fs.FileSystem.getDefaultUri(self.hadoop_conf()).toString())
        if default.startswith("file:"):
            return path
        return str(self.path(self.path(default), path).toString()) if path.startswith("/") else path

    def default_location(self, name: str) -> str:
        """Return the default location of a managed table with this name."""
        identifier = self.state.sqlParser().parseTableIdentifier(name)
        catalog = self.catalog
        return str(self.path(catalog.defaultTablePath(identifier)).toString())

    def to_dict(self, java_map: Any) -> dict[str, Any]:
        """Convert a ``java.util.Map`` of strings to a dict, in one call."""
        decoded: dict[str, Any] = json.loads(self._to_json(java_map))
        return decoded

    # --- expressions ---------------------------------------------------------------------------------------

    def reference_names(self, expression: Any) -> list[str]:
        """Return the names of the top-level columns that an expression reads."""
        references = expression.references().toSeq()
        return [str(references.apply(i).name()) for i in range(references.size())]

    def has_subquery(self, expression: Any) -> bool:
        """Return whether the expression contains a subquery."""
        return any(map(is_query, json.loads(str(expression.toJSON()))))

    def conjunction(self, expressions: Sequence[Any]) -> Any:
        """Join Catalyst expressions with ``AND``."""
        result = expressions[0]
        for expression in expressions[1:]:
            result = self.and_expression(result, expression)
        return result

    def bit_is_set(self, bits: Column, base: Column, position: Column) -> Column:
        """Test a bit of a binary column by a Spark function that generated code calls directly.

        Args:
            bits: Words of 64 bits, little-endian. Bounds are not checked.
            base: ``bits_base``.
            position: An integer from 0.
        """
        return self.static_call(
            "org.apache.spark.unsafe.bitset.BitSetMethods", "isSet", "boolean", bits, base, position
        )

    def static_call(self, java_class: str, method: str, result: str, *arguments: Column) -> Column:
        """Call a static method of a Java class in generated code. The result is null if an argument is null."""
        given = [self._class_named(java_class), self.data_type.fromJson(f'"{result}"'), method]
        rest = [self.seq([]), True, True, True, self.none]
        called = self._static_invoke(*given, self.seq(map(self.expression, arguments)), *rest)
        return Column(self._expression_utils.column(called))

    def binary_search(self, ascending: Sequence[int] | Sequence[float] | Sequence[str], value: Column) -> Column:
        """Find a value among sorted ones. If it is absent, the result is ``-(position of the first greater one) - 1``.

        The values enter the plan as one Java array, which generated code searches directly. Spark's own expression
        would copy its array for each row.

        Args:
            ascending: Values of one type, without null or NaN.
            value: A bigint, double or string, matching the values.
        """
        text = self.view.org.apache.spark.unsafe.types.UTF8String
        if isinstance(ascending[0], str):
            kind, items = text, [text.fromString(item) for item in ascending]
        else:
            kind, items = (self.view.long if isinstance(ascending[0], int) else self.view.double), list(ascending)
        array = self.gateway.new_array(kind, len(items))
        for place, item in enumerate(items):
            array[place] = item
        held = self.view.org.apache.spark.sql.types.ObjectType(array.getClass())
        literal = self.view.org.apache.spark.sql.catalyst.expressions.Literal(array, held)
        return self.static_call("java.util.Arrays", "binarySearch", "integer", Column(self.column_of(literal)), value)

    def expression(self, column: Column) -> Any:
        """Return the Catalyst expression of a Column."""
        return self.session.expression(column._jc)

    def to_list(self, seq: Any) -> list[Any]:
        """Convert a short Scala ``Seq`` to a list (one call per item)."""
        return [seq.apply(position) for position in range(seq.size())]

    def recent_partitions(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return typed partition rows of a snapshot. Recent ones are cached, to avoid casting for each query."""
        made = self._partitions.get(key)
        if made is None:
            made = make()
            self._partitions.put(key, made, 1)
        return made

    # --- plans and frames ----------------------------------------------------------------------------------

    def frame(self, plan: Any) -> DataFrame:
        """Convert a logical plan to a DataFrame. A command in it runs immediately."""
        return DataFrame(self.dataset.ofRows(self.session, plan), self.spark)

    def analysed_under(self, plan: Any, settings: Mapping[str, str]) -> Any:
        """Resolve a plan under settings other than the session's, as Spark does for the text of a view."""
        current, session = self.session_conf(), self.session
        others = {key: value for key, value in settings.items() if current.get(key, self._default_of(key)) != value}
        if others and current.get(_CURRENT_FOR_VIEWS, "false").lower() != "true":
            session = session.cloneSession()
            for key, value in others.items():
                session.sessionState().conf().setConfString(key, value)
        return self.dataset.ofRows(session, plan).queryExecution().analyzed()

    @cached_property
    def _defaults(self) -> dict[str, str | None]:
        return {}

    def _default_of(self, key: str) -> str | None:
        """Return the default of an SQL setting; None if Spark does not know it."""
        if key not in self._defaults:
            entry = scala_object(self.view.org.apache.spark.sql.internal, "SQLConf").getConfigEntry(key)
            self._defaults[key] = None if entry is None else str(entry.defaultValueString())
        return self._defaults[key]

    def alias(self, attribute: Any, expression_id: Any | None = None) -> Any:
        """Return an attribute under its name with another id, either given or new."""
        chosen = self._named.newExprId() if expression_id is None else expression_id
        return self._alias.apply(attribute, attribute.name(), chosen, self.seq([]), self.none, self.seq([]))

    def named(self, name: str, expression: Any) -> Any:
        """Return an expression with a name."""
        return self._alias.apply(expression, name, self._named.newExprId(), self.seq([]), self.none, self.seq([]))

    def union(self, plans: Sequence[Any]) -> Any:
        """Concatenate plans by position, like ``UNION ALL``."""
        return self._union(self.seq(plans), False, False)

    def hide_column(self, project: Any, attribute: Any) -> None:
        """Hide a column of a projection that can still be selected by name, like ``_metadata`` of a scan."""
        project.setTagValue(self._project_object.hiddenOutputTag(), self.seq([attribute]))

    def tag(self, name: str) -> Any:
        """Return a tag that nodes of a plan can carry."""
        return self._tag(name)

    def rebalance(self, df: DataFrame, keys: Sequence[Column], part_bytes: int) -> DataFrame:
        """Shuffle by ``keys`` (randomly without keys) into parts of about that many bytes, merging small ones."""
        expressions = self.seq([self.expression(key) for key in keys])
        plan = df._jdf.queryExecution().analyzed()
        # py4j passes a small number as an Integer, but Spark expects a Long.
        size = self.view.scala.jdk.javaapi.OptionConverters.toScala(self.view.java.util.OptionalLong.of(part_bytes))
        return self.frame(self._rebalance(expressions, plan, self.none, size))

    def one_row(self, columns: Sequence[Column]) -> DataFrame:
        """Return a DataFrame of one row of constants, without a job."""
        nothing = self.view.org.apache.spark.sql.catalyst.plans.logical.OneRowRelation()
        return self.frame(self.project(self.seq([self.expression(column) for column in columns]), nothing))

    def values_of(self, columns: Sequence[Column]) -> tuple[Any, ...]:
        """Evaluate expressions that read no table."""
        [row] = self.one_row([column.alias(f"c{place}") for place, column in enumerate(columns)]).collect()
        return tuple(row)

    def no_rows(self) -> Any:
        """Return a plan without columns and rows."""
        return self.local_relation.apply(self.struct_type())

    def nothing(self) -> DataFrame:
        """Return the DataFrame without columns and rows that some commands return."""
        return self.frame(self.no_rows())

    def bound(self, query: Any) -> Any:
        """Bind the values of a statement's parameters."""
        return scala_object(self.view.org.apache.spark.sql.catalyst.analysis, "BindParameters").apply(query)

    @cached_property
    def has_paths(self) -> bool:
        """Whether this Spark has ``SET PATH``."""
        methods = self.state.catalogManager().getClass().getMethods()
        return any(str(method.getName()) == "sessionPathEntries" for method in methods)

    def parse(self, text: str, values: Sequence[Any] = (), names: Sequence[str] = ()) -> Any:
        """Parse a statement with its parameters bound. A marker may be where no expression is allowed.

        Args:
            text: The statement.
            values: Catalyst expressions for each ``?``, or, with names, for each ``:name``.
            names: Names of the values, in order; empty for positional ones.
        """
        parser = self.state.sqlParser()
        if not values:
            return parser.parsePlan(text)
        catalyst, literals = self.view.org.apache.spark.sql.catalyst, self.seq(values)
        if names:
            given = self.python_utils.toScalaMap(dict(zip(names, values, strict=True)))
            plan = parser.parsePlanWithParameters(text, catalyst.parser.NamedParameterContext(given))
            return self.bound(catalyst.analysis.NameParameterizedQuery(plan, self.seq(names), literals))
        plan = parser.parsePlanWithParameters(text, catalyst.parser.PositionalParameterContext(literals))
        return self.bound(catalyst.analysis.PosParameterizedQuery(plan, literals))

    def file_relation(self, index: Any, *, partition_schema: Any, data_schema: Any, options: Mapping[str, str]) -> Any:
        """Return a ``HadoopFsRelation`` that reads Parquet through a file index."""
        return self.relation(
            index, partition_schema, data_schema, self.none, self.parquet(), self.scala_map(options), self.session
        )

    def rows_of(self, table: pa.Table, casts: Sequence[str]) -> Any:
        """Convert an Arrow table to ``InternalRow[]``. Spark casts each column to its SQL type in the session's zone.

        A column is text, or already has its type if its entry in ``casts`` is empty.
        """
        with tempfile.NamedTemporaryFile(prefix="pydelta-rows-", suffix=".arrow") as file:
            with pa.ipc.new_stream(file, table.schema) as stream:
                stream.write_table(table)
            file.flush()
            batches = self.python_sql.readArrowStreamFromFile(file.name)
            schema = self.struct_json(table.schema)
            source = self.python_sql.toDataFrame(batches, schema, self.session)
            typed = source.selectExpr(
                self.seq(
                    f"try_cast(`{name}` AS {sql_type}) AS `{name}`" if sql_type else f"`{name}`"
                    for name, sql_type in zip(table.column_names, casts, strict=True)
                )
            )
            return typed.queryExecution().executedPlan().executeCollect()

    @staticmethod
    def struct_json(schema: pa.Schema) -> str:
        """Convert an Arrow schema of text, integer and binary columns to Spark schema JSON."""
        names = {pa.string(): "string", pa.int32(): "integer", pa.int64(): "long", pa.binary(): "binary"}
        fields = [{"name": f.name, "type": names[f.type], "nullable": True, "metadata": {}} for f in schema]
        return json.dumps({"type": "struct", "fields": fields})

    def new_list(self) -> Any:
        """Return an empty ``java.util.List``."""
        return self.view.java.util.ArrayList()

    def rows_list(self, rows: Any) -> Any:
        """Convert ``InternalRow[]`` to ``java.util.List``."""
        count = len(rows)
        objects = self.gateway.new_array(self.object_class, count)  # py4j finds no method that accepts a typed array.
        self.java_system.arraycopy(rows, 0, objects, 0, count)
        return self.arrays.asList(objects)

    def filter_ordinals(self, filters: Sequence[Any], attributes: Sequence[Any], ordinal: Any, rows: Any) -> list[int]:
        """Return the ordinals of the rows that satisfy all filters, evaluated by Spark.

        Args:
            filters: Catalyst expressions over ``attributes``.
            attributes: The attributes of the rows' columns, without the last one.
            ordinal: The attribute of the rows' last column, the integer to return.
            rows: ``java.util.List`` of ``InternalRow``.
        """
        relation = self.local_relation.apply(
            self.seq([*attributes, ordinal]), self.python_utils.toSeq(rows), False, self.none
        )
        plan = self.project(self.seq([ordinal]), self.filter(self.conjunction(filters), relation))
        optimized = self.state.optimizer().execute(plan)
        if optimized.nodeName() != "LocalRelation":  # The optimizer rule that evaluates it is switched off.
            return [int(row[0]) for row in self.frame(plan).collect()]
        text = str(optimized.data().mkString(","))
        return [int(item) for item in text.replace("[", "").replace("]", "").split(",") if item]

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make this session the active one within the block.

        Spark's parser, rules and look-ups read the settings of the session that is active in the calling thread: of
        another one, or Spark's defaults where none is, a literal has another zone and a name another path.
        """
        before = self.calls.activate()
        try:
            yield
        finally:
            if before is None:
                self._sessions.clearActiveSession()
            elif before is not True:
                self._sessions.setActiveSession(before)

    @cached_property
    def _sessions(self) -> Any:
        return self.view.org.apache.spark.sql.SparkSession

    def storage_level(self, level: Any) -> Any:
        """Convert PySpark's storage level to the JVM's. None gives the default of ``cacheTable``."""
        if level is None:
            return self.view.org.apache.spark.storage.StorageLevel.MEMORY_AND_DISK()
        return self.spark.sparkContext._getJavaStorageLevel(level)

    # --- files ---------------------------------------------------------------------------------------------

    def directories(self, blocks: Iterable[memoryview], count: int, rows: Any | None) -> Any:
        """Convert encoded file statuses to a Scala ``Seq[PartitionDirectory]``.

        Args:
            blocks: ``count`` records in total, as encoded by ``statuses.encode_statuses``.
            count: The number of records.
            rows: ``java.util.List`` of the partitions' ``InternalRow``. A record's owner is its position in it. None if
                the table has no partition columns.
        """
        if count == 0:
            return self.seq([])
        return self._bulk.directories(self._bulk.statuses(blocks, count), count, rows)


def is_query(node: Mapping[str, Any]) -> bool:
    """Return whether a node of ``toJSON()`` is a subquery. ArrayExists is not one but a function of arrays."""
    name = str(node.get("class", "")).rpartition(".")[2]
    return name in ("Exists", "ListQuery") or name.endswith("Subquery")


def scala_object(package: Any, name: str) -> Any:
    """Return a Scala object."""
    return getattr(getattr(package, name + "$"), "MODULE$")


def _scheme(path: str) -> str | None:
    head, separator, _ = path.partition(":/")
    return head if separator and head and "/" not in head else None


def java_class_name(value: JavaObject) -> str:
    """Return the full class name of a JVM object."""
    return str(value.getClass().getName())
