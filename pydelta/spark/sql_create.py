"""CREATE and REPLACE TABLE as Spark parsed it in; a table, with its rows or without, and its catalog entry out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydelta.commands.create import CreateMode, create_table
from pydelta.commands.write import WriteMode
from pydelta.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
    error_context,
)
from pydelta.protocol.schema import StructType
from pydelta.spark.catalog import DeltaEntry, ViewEntry, look_up
from pydelta.spark.catalog_entries import create_entry
from pydelta.spark.engine import SparkEngine
from pydelta.spark.facade import log_for_path, settings_of
from pydelta.spark.sql_nodes import Nodes, text_of
from pydelta.spark.travel import open_snapshot
from pydelta.spark.write_command import save_as_table, write_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["create", "create_as_select", "create_like"]

_PROVIDER: Final = "delta"
_CONSTRAINT: Final = "delta.constraints."


@dataclass(frozen=True, slots=True, kw_only=True)
class _New:
    """The table that a statement makes."""

    parts: tuple[str, ...]
    entry: DeltaEntry | None
    location: str | None
    properties: Mapping[str, str]
    comment: str | None

    @property
    def quoted(self) -> str:
        return ".".join("`" + part.replace("`", "``") + "`" for part in self.parts)


def create(nodes: Nodes, node: Any) -> DataFrame | None:
    """``CREATE [OR REPLACE] TABLE [IF NOT EXISTS] name (columns) USING delta …``."""
    new = _new(nodes, node)
    if new is None:
        return None
    replace = str(node.nodeName()) == "ReplaceTable"
    partitions, clusters = nodes.partitioning(node.partitioning())
    if_not_exists = not replace and bool(node.ignoreIfExists())
    _make(
        nodes,
        new,
        nodes.schema(node),
        partitions,
        clusters,
        _mode(replace, replace and bool(node.orCreate()), if_not_exists),
    )
    return nodes.jvm.nothing()


def _mode(replace: bool, or_create: bool, if_not_exists: bool) -> CreateMode:
    if replace:
        return CreateMode.CREATE_OR_REPLACE if or_create else CreateMode.REPLACE
    return CreateMode.CREATE_IF_NOT_EXISTS if if_not_exists else CreateMode.CREATE


def _make(
    nodes: Nodes, new: _New, schema: StructType, partitions: list[str], clusters: list[str], mode: CreateMode
) -> None:
    replace = mode in (CreateMode.REPLACE, CreateMode.CREATE_OR_REPLACE)
    if not replace and _taken(nodes, new, mode is CreateMode.CREATE_IF_NOT_EXISTS):
        return
    if mode is CreateMode.REPLACE and new.entry is None:
        raise TableNotFoundError(
            f"There is no table {new.quoted} to replace.", hint="Write CREATE OR REPLACE TABLE, or CREATE TABLE."
        )
    location, managed = _location(nodes, new)
    log = log_for_path(nodes.spark, location)
    with error_context(table=log.uri):
        snapshot = log.update()
        by_path = new.entry is not None and new.entry.by_path
        if snapshot.version >= 0 and not replace and not by_path and new.entry is None:
            _check_same(new, schema, partitions, log.update())
        elif snapshot.version < 0 and not schema.fields:
            raise TableNotFoundError(
                f"{new.quoted} is created without columns, and there is no Delta table at {location}.",
                hint="Name the columns, or the location of a table.",
            )
        else:
            result = create_table(
                log,
                mode=mode,
                schema=schema,
                partition_columns=partitions,
                properties=new.properties,
                description=new.comment,
                settings=settings_of(nodes.spark),
                managed=managed,
                cluster_by=clusters,
            )
            if result.committed is not None:
                SparkEngine(nodes.spark).committed(result.committed.snapshot)
    if not by_path:
        create_entry(nodes.spark, new.parts, log.update(), replace=replace, managed=managed)


def _check_same(new: _New, schema: StructType, partitions: list[str], snapshot: Any) -> None:
    """A name for a table that is there: what the statement says must be what the table is."""
    if schema.fields and [(f.name.lower(), f.data_type) for f in schema.fields] != [
        (f.name.lower(), f.data_type) for f in snapshot.schema.fields
    ]:
        raise SchemaMismatchError(
            f"There is a Delta table at {snapshot.table_uri} already, with other columns than the statement has.\n"
            f"Its schema:\n{snapshot.schema.tree()}\nThe statement's:\n{schema.tree()}",
            hint="Leave out the columns, or name those that it has.",
        )
    if partitions and [name.lower() for name in partitions] != [n.lower() for n in snapshot.partition_columns]:
        raise SchemaMismatchError(
            f"The Delta table at {snapshot.table_uri} is partitioned by "
            f"{', '.join(snapshot.partition_columns) or 'nothing'}, not by {', '.join(partitions)}.",
            hint="Leave out PARTITIONED BY.",
        )
    have = snapshot.metadata.configuration
    other = {key: value for key, value in new.properties.items() if have.get(key) != value}
    if other:
        raise InvalidArgumentError(
            f"The Delta table at {snapshot.table_uri} does not have {', '.join(f'{k}={v}' for k, v in other.items())}.",
            hint="Leave TBLPROPERTIES out, and set them with ALTER TABLE … SET TBLPROPERTIES afterwards.",
        )


def create_as_select(nodes: Nodes, node: Any) -> DataFrame | None:
    """``CREATE [OR REPLACE] TABLE [IF NOT EXISTS] name USING delta … AS query``."""
    new = _new(nodes, node)
    if new is None:
        return None
    replace = str(node.nodeName()) == "ReplaceTableAsSelect"
    if not replace and _taken(nodes, new, bool(node.ignoreIfExists())):
        return nodes.jvm.nothing()
    partitions, clusters = nodes.partitioning(node.partitioning())
    mode = WriteMode.CREATE
    if replace:
        mode = WriteMode.CREATE_OR_REPLACE if bool(node.orCreate()) else WriteMode.REPLACE
    options = dict(nodes.mapping(node.writeOptions()))
    if clusters:
        options["clusterBy"] = json.dumps(clusters)
    rows = nodes.query(node.query())
    if new.entry is not None and new.entry.by_path:
        write_path(
            nodes.spark,
            rows,
            new.entry.location,
            mode=mode,
            options=options,
            partition_by=partitions,
            properties=new.properties,
            description=new.comment,
        )
    else:
        save_as_table(
            nodes.spark,
            rows,
            new.quoted,
            mode=mode,
            options=options | ({"path": new.location} if new.location else {}),
            partition_by=partitions,
            properties=new.properties,
            description=new.comment,
        )
    return nodes.jvm.nothing()


def create_like(nodes: Nodes, node: Any) -> DataFrame | None:
    """``CREATE TABLE [IF NOT EXISTS] name LIKE source [USING delta] …``: the definition without the rows."""
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
        given = {**like.metadata.configuration, **given}
    else:
        spark_source = nodes.spark.table(".".join(f"`{part.replace('`', '``')}`" for part in source))
        schema = nodes.own_schema(spark_source.schema)
        partitions = nodes.partition_columns(source)
        clusters, comment = [], None
    entry = look_up(nodes.spark, parts)
    new = _New(
        parts=parts,
        entry=entry if isinstance(entry, DeltaEntry) else None,
        location=location,
        properties=given,
        comment=comment,
    )
    _make(nodes, new, schema, partitions, clusters, _mode(False, False, bool(node.ifNotExists())))
    return nodes.jvm.nothing()


def _new(nodes: Nodes, node: Any) -> _New | None:
    """What is to be made; None when it is no Delta table."""
    parts = nodes.parts(node.name())
    if parts is None:
        return None
    specification = node.tableSpec()
    provider = text_of(nodes.optional(specification.provider()))
    entry = look_up(nodes.spark, parts)
    ours = entry if isinstance(entry, DeltaEntry) else None
    if provider is None:
        default = str(nodes.spark.conf.get("spark.sql.sources.default", "parquet")).lower()
        if not (ours is not None and ours.by_path) and default != _PROVIDER:
            return None
        if specification.serde().isDefined():
            return None  # STORED AS … is Hive's
    elif provider.lower() != _PROVIDER:
        return None
    if ours is not None and ours.twin:
        raise TableAlreadyExistsError(
            f"{'.'.join(parts)} is what Trino and Presto read of the Delta table at {ours.location}.",
            hint="Choose another name; the twin belongs to catalog_sync.",
        )
    options = _options(nodes, specification)
    location = text_of(nodes.optional(specification.location())) or options.get("path")
    properties = nodes.mapping(specification.properties())
    for constraint in nodes.constraints(specification):
        kind = str(constraint.getClass().getSimpleName())
        if kind != "CheckConstraint":
            raise UnsupportedFeatureError(
                f"A Delta table has no {kind}.", features=(kind,), hint="CHECK constraints are enforced."
            )
        given = text_of(constraint.userProvidedName()) or str(constraint.name())
        properties[_CONSTRAINT + given.lower()] = str(constraint.condition())
    return _New(
        parts=parts,
        entry=ours,
        location=location,
        properties=properties,
        comment=text_of(nodes.optional(specification.comment())),
    )


def _options(nodes: Nodes, specification: Any) -> dict[str, str]:
    found = {}
    for pair in nodes.items(specification.optionExpression().options()):
        found[str(pair._1()).lower()] = str(nodes.evaluate(str(pair._2().sql())))
    return found


def _taken(nodes: Nodes, new: _New, if_not_exists: bool) -> bool:
    """Whether nothing is to be done because the name is taken, which ``IF NOT EXISTS`` allows."""
    if new.entry is not None and new.entry.by_path:
        if not log_for_path(nodes.spark, new.entry.location).table_exists():
            return False
    elif new.entry is None and not (
        isinstance(look_up(nodes.spark, new.parts), ViewEntry) or nodes.spark.catalog.tableExists(new.quoted)
    ):
        return False
    if if_not_exists:
        return True
    raise TableAlreadyExistsError(
        f"{'.'.join(new.parts)} exists already.",
        hint="Write CREATE OR REPLACE TABLE or IF NOT EXISTS, drop it first, or choose another name.",
    )


def _location(nodes: Nodes, new: _New) -> tuple[str, bool]:
    """Where the table's files go, and whether the catalog owns them."""
    if new.entry is not None:
        if new.entry.by_path and new.location not in (None, new.entry.location):
            raise InvalidArgumentError(
                f"The table is named by its path {new.entry.location!r}, and LOCATION says {new.location!r}.",
                hint="Give one of the two.",
            )
        return nodes.jvm.qualify(new.entry.location), new.entry.managed
    if new.location is not None:
        return nodes.jvm.qualify(new.location), False
    return nodes.jvm.default_location(new.quoted), True
