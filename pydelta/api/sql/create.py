"""Run CREATE and REPLACE TABLE as Spark parsed them: the table, with or without rows, and its catalog entry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import ParseException

from pydelta.api.sql.nodes import Nodes, text_of
from pydelta.api.sql.relations import RelationResolver
from pydelta.commands.create import CreateMode, TableDefinition
from pydelta.commands.write.command import WriteMode
from pydelta.engines.spark.catalog.databases import refuse_default_collation
from pydelta.engines.spark.catalog.define import OPTION_PREFIX, define_table
from pydelta.engines.spark.catalog.lookup import DeltaEntry, look_up
from pydelta.engines.spark.logs import log_for_path
from pydelta.engines.spark.scan.reads import read_path
from pydelta.engines.spark.scan.travel import open_snapshot
from pydelta.engines.spark.write.command import WriteRequest, save_as_table, write_path
from pydelta.errors import InvalidArgumentError, TableAlreadyExistsError, UnsupportedFeatureError
from pydelta.errors.conditions import Condition
from pydelta.protocol.names import quoted
from pydelta.settings import KEPT_PROPERTIES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["cache_as_select", "create", "create_as_select", "create_like", "create_view_using"]

_PROVIDER: Final = "delta"
_CONSTRAINT: Final = "delta.constraints."
_STORAGE_LEVEL: Final = "storagelevel"
_PATH: Final = "path"
_OWN: Final = "delta."


@dataclass(frozen=True, slots=True, kw_only=True)
class _New:
    """The table that a statement creates.

    Args:
        parts: Its name.
        entry: The existing table of that name.
        location: The location in the statement, if it has one.
        properties: From TBLPROPERTIES, constraints and the options that begin with ``delta.``.
        options: All OPTIONS except the path.
        comment: The table's comment.
    """

    parts: tuple[str, ...]
    entry: DeltaEntry | None
    location: str | None
    properties: Mapping[str, str]
    options: Mapping[str, str]
    comment: str | None

    @property
    def quoted(self) -> str:
        return quoted(*self.parts)


def create(nodes: Nodes, node: Any) -> DataFrame | None:
    """Run ``CREATE [OR REPLACE] TABLE [IF NOT EXISTS] name (columns) USING delta …``."""
    new = _new(nodes, node)
    if new is None:
        return None
    partitions, clusters = nodes.partitioning(node.partitioning())
    if str(node.nodeName()) == "ReplaceTable":
        mode = CreateMode.CREATE_OR_REPLACE if bool(node.orCreate()) else CreateMode.REPLACE
    else:
        mode = CreateMode.CREATE_IF_NOT_EXISTS if bool(node.ignoreIfExists()) else CreateMode.CREATE
    kept = {} if str(node.nodeName()) == "ReplaceTable" else _as_properties(new.options)
    define_table(
        nodes.spark,
        new.parts,
        TableDefinition(
            schema=nodes.schema(node),
            partition_columns=partitions,
            cluster_by=clusters,
            properties={**new.properties, **kept},
            description=new.comment,
        ),
        mode=mode,
        location=new.location,
    )
    return nodes.jvm.nothing()


def create_as_select(nodes: Nodes, node: Any) -> DataFrame | None:
    """Run ``CREATE [OR REPLACE] TABLE [IF NOT EXISTS] name USING delta … AS query``."""
    new = _new(nodes, node)
    if new is None:
        return None
    replace = str(node.nodeName()) == "ReplaceTableAsSelect"
    if not replace and bool(node.ignoreIfExists()) and _exists(nodes, new):
        return nodes.jvm.nothing()
    partitions, clusters = nodes.partitioning(node.partitioning())
    mode = WriteMode.CREATE
    if replace:
        mode = WriteMode.CREATE_OR_REPLACE if bool(node.orCreate()) else WriteMode.REPLACE
    options = dict(nodes.mapping(node.writeOptions()))
    if clusters:
        options["clusterBy"] = json.dumps(clusters)
    rows = nodes.query(node.query())
    by_path = new.entry is not None and new.entry.by_path
    request = WriteRequest(
        mode=mode,
        options=options | ({"path": new.location} if new.location and not by_path else {}),
        partition_by=partitions,
        properties=new.properties,
        description=new.comment,
    )
    if new.entry is not None and by_path:
        write_path(nodes.spark, rows, new.entry.location, request)
    else:
        save_as_table(nodes.spark, rows, new.quoted, request)
    return nodes.jvm.nothing()


def create_like(nodes: Nodes, node: Any) -> DataFrame | None:
    """Run ``CREATE TABLE [IF NOT EXISTS] name LIKE source [USING delta] …``, copying the definition but no rows."""
    if str(node.nodeName()) == "CreateTableLikeCommand":  # Spark 4.1
        parts, source = nodes.identifier(node.targetTable()), nodes.identifier(node.sourceTable())
        uri = nodes.optional(node.fileFormat().locationUri())
        location = None if uri is None else str(nodes.jvm.path(uri).toString())
    else:
        named, other = nodes.parts(node.name()), nodes.parts(node.source())
        if named is None or other is None:
            return None
        parts, source, location = named, other, text_of(nodes.optional(node.location()))
    provider = text_of(nodes.optional(node.provider()))
    found = look_up(nodes.spark, source)
    if provider is None:
        if not isinstance(found, DeltaEntry):
            return None
    elif provider.lower() != _PROVIDER:
        return None
    like = open_snapshot(nodes.spark, found.location, None) if isinstance(found, DeltaEntry) else None
    given = nodes.mapping(node.properties())
    if like is not None and like.metadata is not None:
        schema, partitions = like.schema, list(like.partition_columns)
        clusters, comment = list(like.clustering_columns), like.metadata.description
        of_the_log = set(KEPT_PROPERTIES)
        given = {**{k: v for k, v in like.metadata.configuration.items() if k not in of_the_log}, **given}
    else:
        spark_source = nodes.spark.table(".".join(f"`{part.replace('`', '``')}`" for part in source))
        schema = nodes.own_schema(spark_source.schema)
        partitions = nodes.partition_columns(source)
        clusters, comment = [], None
    define_table(
        nodes.spark,
        parts,
        TableDefinition(
            schema=schema, partition_columns=partitions, cluster_by=clusters, properties=given, description=comment
        ),
        mode=CreateMode.CREATE_IF_NOT_EXISTS if bool(node.ifNotExists()) else CreateMode.CREATE,
        location=location,
    )
    return nodes.jvm.nothing()


def _new(nodes: Nodes, node: Any) -> _New | None:
    """Read the table to create; None when it is not a Delta table."""
    parts = nodes.parts(node.name())
    if parts is None:
        return None
    specification = node.tableSpec()
    provider = text_of(nodes.optional(specification.provider()))
    entry = look_up(nodes.spark, parts)
    ours = entry if isinstance(entry, DeltaEntry) else None
    if ours is None and not nodes.in_session_catalog(parts):
        return None
    if provider is None:
        default = str(nodes.spark.conf.get("spark.sql.sources.default", "parquet")).lower()
        if not (ours is not None and ours.by_path) and default != _PROVIDER:
            return None
        if specification.serde().isDefined():
            return None  # STORED AS … makes a Hive table.
    elif provider.lower() != _PROVIDER:
        return None
    if ours is not None and ours.twin:
        raise TableAlreadyExistsError(
            f"{'.'.join(parts)} is the entry by which other engines read the Delta table at {ours.location}.",
            hint="Choose another name; the twin belongs to catalog_sync.",
        )
    if (collation := nodes.default_collation(specification)) or nodes.in_session_catalog(parts):
        refuse_default_collation(nodes.spark, parts, collation)
    options = _options(nodes, specification)
    paths = [value for key, value in options.items() if key.lower() == _PATH]
    location = text_of(nodes.optional(specification.location())) or next(iter(paths), None)
    options = {key: value for key, value in options.items() if key.lower() != _PATH}
    properties = nodes.mapping(specification.properties())
    properties |= {key: value for key, value in options.items() if key.lower().startswith(_OWN)}
    for constraint in nodes.constraints(specification):
        kind = str(constraint.getClass().getSimpleName())
        if kind != "CheckConstraint":
            raise UnsupportedFeatureError(
                f"A Delta table has no {kind}.",
                features=(kind,),
                hint="CHECK constraints are enforced.",
                condition=Condition.of("UNSUPPORTED_FEATURE.TABLE_OPERATION", operation="table constraint"),
            )
        given = text_of(constraint.userProvidedName()) or str(constraint.name())
        properties[_CONSTRAINT + given.lower()] = str(constraint.condition())
    return _New(
        parts=parts,
        entry=ours,
        location=location,
        properties=properties,
        options=options,
        comment=text_of(nodes.optional(specification.comment())),
    )


def _options(nodes: Nodes, specification: Any) -> dict[str, str]:
    found = {}
    for pair in nodes.items(specification.optionExpression().options()):
        found[str(pair._1())] = str(nodes.evaluate(pair._2()))
    return found


def _as_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return options of CREATE TABLE as table properties: under their names, and again with ``option.`` in front."""
    return {**options, **{f"{OPTION_PREFIX}{key}": value for key, value in options.items()}}


def _exists(nodes: Nodes, new: _New) -> bool:
    if new.entry is not None and new.entry.by_path:
        return log_for_path(nodes.spark, nodes.jvm.qualify(new.entry.location)).table_exists()
    return new.entry is not None


def create_view_using(nodes: Nodes, node: Any) -> DataFrame | None:
    """Run ``CREATE TEMPORARY VIEW name USING delta OPTIONS (path '…')``."""
    if str(node.provider()).lower() != _PROVIDER:
        return None
    options = nodes.mapping(node.options())
    path = next((value for key, value in options.items() if key.lower() == "path"), None)
    if path is None:
        raise InvalidArgumentError(
            "CREATE TEMPORARY VIEW … USING delta does not name a table.",
            hint="Add OPTIONS (path '/path/to/table').",
            condition=Condition.of("DELTA_PATH_NOT_SPECIFIED"),
        )
    if node.userSpecifiedSchema().isDefined():
        raise InvalidArgumentError(
            "A schema was given for a view of a Delta table, which already has one.",
            hint="Leave the columns out, or write CREATE TEMPORARY VIEW … AS SELECT.",
            condition=Condition.of("DELTA_UNSUPPORTED_SCHEMA_DURING_READ"),
        )
    rest = {key: value for key, value in options.items() if key.lower() != "path"}
    frame = read_path(nodes.spark, path, rest)
    database, name = nodes.optional(node.tableIdent().database()), str(node.tableIdent().table())
    if database is not None:
        raise InvalidArgumentError(
            f"{database}.{name}: a temporary view cannot have a database.",
            hint=f"Write CREATE TEMPORARY VIEW {name} ….",
        )
    where = "GlobalTempView" if bool(getattr(node, "global")()) else "TempView"
    getattr(frame, f"createOrReplace{where}" if bool(node.replace()) else f"create{where}")(f"`{name}`")
    return nodes.jvm.nothing()


def cache_as_select(nodes: Nodes, node: Any) -> DataFrame | None:
    """Run ``CACHE [LAZY] TABLE name … AS query`` over Delta tables: create a temporary view, and cache it."""
    plan = RelationResolver(nodes.spark).statement(node.plan())
    if plan is None:
        return None
    jvm, named = nodes.jvm, node.tempViewName()
    view = named if isinstance(named, str) else str(nodes.evaluate(named))
    levels = [value for key, value in nodes.mapping(node.options()).items() if key.lower() == _STORAGE_LEVEL]
    level = jvm.storage_level(None)
    if levels:
        level = jvm.view.org.apache.spark.storage.StorageLevel.fromString(levels[0].upper())
    frame = jvm.frame(plan)
    frame.createTempView(quoted(view))
    jvm.session.sharedState().cacheManager().cacheQuery(frame._jdf, jvm.option.apply(view), level)
    if not bool(node.isLazy()):
        frame.count()
    return jvm.nothing()


def create_function(nodes: Nodes, node: Any) -> DataFrame | None:
    """Refuse ``CREATE FUNCTION … RETURN …`` if its body reads a Delta table; Spark runs any other."""
    query, expression = text_of(nodes.optional(node.queryText())), text_of(nodes.optional(node.exprText()))
    body = query if query is not None else f"SELECT {expression}"
    try:
        parsed = nodes.jvm.parse(body)
    except ParseException:
        return None  # Spark raises the precise error.
    if RelationResolver(nodes.spark).statement(parsed) is None:
        return None
    raise UnsupportedFeatureError(
        "The body of a SQL function cannot read a Delta table: Spark looks up its tables without this engine.",
        features=("SQL functions over tables",),
        hint="Make a view of the query, and join it or filter it where the function would be called.",
        condition=Condition.of("DELTA_OPERATION_NOT_ALLOWED", operation="CREATE FUNCTION over a Delta table"),
    )
