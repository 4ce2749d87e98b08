"""Run ALTER TABLE, COMMENT ON, DROP TABLE and DROP DATABASE as Spark parsed them, in the log and the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydelta.api.sql.nodes import Nodes, StatementTarget, text_of
from pydelta.commands.alter.clustering import path_text
from pydelta.commands.alter.command import Alter
from pydelta.commands.alter.requests import (
    AddColumns,
    AddConstraint,
    After,
    Change,
    ChangeColumn,
    ChangeColumns,
    ClusterBy,
    DropColumns,
    DropConstraint,
    First,
    NewColumn,
    RenameColumn,
    ReplaceColumns,
    SetComment,
    SetProperties,
    UnsetProperties,
)
from pydelta.engines.spark.catalog.databases import drop_managed_tables, is_on_objects
from pydelta.engines.spark.catalog.entries import drop_table, follow, rename_table, set_location
from pydelta.engines.spark.catalog.lookup import DeltaEntry, look_up, twin_refusal
from pydelta.engines.spark.running import run_in_session
from pydelta.errors import InvalidArgumentError, UnsupportedFeatureError
from pydelta.errors.conditions import Condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["alter", "drop", "drop_database", "drops_tables", "no_partitions", "rename"]


def alter(nodes: Nodes, node: Any) -> DataFrame | None:
    """Run an ``ALTER TABLE`` that changes the definition, or ``COMMENT ON``."""
    target = _target(nodes, _table(node))
    if target is None:
        return None
    kind = str(node.nodeName())
    if kind == "SetTableLocation":
        if node.partitionSpec().isDefined():
            raise UnsupportedFeatureError(
                f"{target.name} is a Delta table: its partitions have no separate locations.",
                features=("SET LOCATION",),
                hint="Leave PARTITION out.",
            )
        set_location(nodes.spark, target.parts, nodes.jvm.qualify(str(node.location())))
        return nodes.jvm.nothing()
    for change in _changes(nodes, node, kind):
        _apply(nodes, target, change)
    return nodes.jvm.nothing()


def _table(node: Any) -> Any:
    child = node.table() if str(node.nodeName()) != "AddCheckConstraint" else node.child()
    while str(child.nodeName()) == "Filter":  # Spark adds it to find rows that break a new constraint.
        child = child.child()
    return child


def _target(nodes: Nodes, table: Any) -> StatementTarget | None:
    target = nodes.target(table)
    if target is not None and target.entry.twin:
        raise twin_refusal(target.name, target.entry)
    return target


def _apply(nodes: Nodes, target: StatementTarget, change: Change) -> None:
    log = nodes.log(target)
    run_in_session(nodes.spark, Alter(change), log, alias=target.alias)
    follow(nodes.spark, target.parts, log.update())


def _changes(nodes: Nodes, node: Any, kind: str) -> list[Change]:
    if kind == "AddColumns":
        return [AddColumns(columns=tuple(_new_column(nodes, item) for item in nodes.items(node.columnsToAdd())))]
    if kind == "ReplaceColumns":
        return [ReplaceColumns(columns=tuple(_new_column(nodes, item) for item in nodes.items(node.columnsToAdd())))]
    if kind == "DropColumns":
        paths = tuple(nodes.names(item.name()) for item in nodes.items(node.columnsToDrop()))
        return [DropColumns(paths=paths, if_exists=bool(node.ifExists()))]
    if kind == "RenameColumn":
        return [RenameColumn(path=nodes.names(node.column().name()), name=str(node.newName()))]
    if kind == "AlterColumns":
        changes = tuple(_changed(nodes, item) for item in nodes.items(node.specs()))
        return [changes[0] if len(changes) == 1 else ChangeColumns(changes=changes)]
    if kind == "AlterColumn":  # Spark 4.0
        return [_changed(nodes, node)]
    if kind == "SetTableProperties":
        return [SetProperties(properties=nodes.mapping(node.properties()))]
    if kind == "UnsetTableProperties":
        return [UnsetProperties(names=nodes.names(node.propertyKeys()), if_exists=True)]  # Delta ignores missing keys.
    if kind == "CommentOnTable":
        return [SetComment(text=text_of(node.comment()))]
    if kind in ("AddCheckConstraint", "AddConstraint"):
        constraint = node.checkConstraint() if kind == "AddCheckConstraint" else node.tableConstraint()
        if str(constraint.getClass().getSimpleName()) != "CheckConstraint":
            raise UnsupportedFeatureError(
                "A Delta table has CHECK constraints only.",
                features=(),
                hint="Write ADD CONSTRAINT name CHECK (…).",
                condition=Condition.of("UNSUPPORTED_FEATURE.TABLE_OPERATION", operation="table constraint"),
            )
        name = text_of(constraint.userProvidedName()) or str(constraint.name())
        return [AddConstraint(name=name, expression=str(constraint.condition()))]
    if kind == "DropConstraint":
        return [DropConstraint(name=str(node.name()), if_exists=bool(node.ifExists()))]
    assert kind == "AlterTableClusterBy", kind
    specification = nodes.optional(node.clusterBySpec())
    if specification is None:
        return [ClusterBy(columns=None)]
    columns = [path_text(tuple(map(str, item.fieldNames()))) for item in nodes.items(specification.columnNames())]
    return [ClusterBy(columns=tuple(columns) or None)]


def _new_column(nodes: Nodes, item: Any) -> NewColumn:
    above = nodes.optional(item.path())
    parents = nodes.names(above.name()) if above is not None else ()
    default = nodes.optional(item.default())
    field = nodes.field_type(str(item.colName()), item.dataType())
    return NewColumn(
        path=(*parents, str(item.colName())),
        data_type=field.data_type,
        nullable=bool(item.nullable()),
        comment=text_of(nodes.optional(item.comment())),
        default=str(default.originalSQL()) if default is not None else None,
        position=_position(nodes.optional(item.position())),
        metadata=dict(field.metadata),
    )


def _changed(nodes: Nodes, item: Any) -> ChangeColumn:
    data_type = nodes.optional(item.newDataType())
    nullable = nodes.optional(item.newNullability())
    default = nodes.optional(item.newDefaultExpression())
    return ChangeColumn(
        path=nodes.names(item.column().name()),
        data_type=nodes.field_type("c", data_type).data_type if data_type is not None else None,
        nullable=None if nullable is None else bool(nullable),
        comment=text_of(nodes.optional(item.newComment())),
        position=_position(nodes.optional(item.newPosition())),
        default=str(default.originalSQL()) if default is not None else None,
        drop_default=bool(item.dropDefault()),
    )


def _position(position: Any | None) -> First | After | None:
    if position is None:
        return None
    text = str(position.position().toString())
    return First() if text == "FIRST" else After(str(position.position().column()))


def drop(nodes: Nodes, node: Any) -> DataFrame | None:
    """Run ``DROP TABLE [IF EXISTS] name [PURGE]``, which deletes a managed table's files but not an external one's."""
    parts = nodes.parts(node.child())
    if parts is None:
        return None
    entry = look_up(nodes.spark, parts)
    if not isinstance(entry, DeltaEntry):
        return None
    drop_table(nodes.spark, parts, if_exists=bool(node.ifExists()), purge=bool(node.purge()))
    return nodes.jvm.nothing()


def drop_database(nodes: Nodes, node: Any) -> None:
    """Drop the managed Delta tables of ``DROP DATABASE … CASCADE`` with their files; Spark does the rest."""
    if drops_tables(nodes, node):
        drop_managed_tables(nodes.spark, nodes.names(node.namespace().multipartIdentifier())[-1])


def drops_tables(nodes: Nodes, node: Any) -> bool:
    """Return whether a ``DROP DATABASE`` drops tables that may have files in an object store."""
    if not bool(node.cascade()) or str(node.namespace().nodeName()) != "UnresolvedNamespace":
        return False
    parts = nodes.names(node.namespace().multipartIdentifier())
    return nodes.in_session_catalog((*parts, "any")) and is_on_objects(nodes.spark, parts[-1])


def rename(nodes: Nodes, node: Any) -> DataFrame | None:
    """Run ``ALTER TABLE name RENAME TO other``."""
    if bool(node.isView()):
        return None
    target = _target(nodes, node.child())
    if target is None:
        return None
    new = nodes.names(node.newName())
    rename_table(nodes.spark, target.parts, new if len(new) > 1 else (*target.parts[:-1], *new))
    return nodes.jvm.nothing()


def no_partitions(nodes: Nodes, node: Any) -> DataFrame | None:
    """Refuse statements on partitions and files, which only a Delta table's log can change."""
    table = node.table() if str(node.nodeName()) in ("AddPartitions", "DropPartitions", "RenamePartitions") else None
    target = nodes.target(node.child() if table is None else table)
    if target is None or target.entry.twin:
        return None
    raise InvalidArgumentError(
        f"{target.name} is a Delta table: its log says which partitions and files it has, so "
        f"{_VERBS[str(node.nodeName())]} has nothing to act on.",
        hint="Write rows with INSERT, delete them with DELETE; catalog_sync keeps the partitions that Trino sees.",
        condition=Condition.of("INVALID_PARTITION_OPERATION.PARTITION_MANAGEMENT_IS_UNSUPPORTED", name=target.name),
    )


_VERBS = {
    "AddPartitions": "ADD PARTITION",
    "DropPartitions": "DROP PARTITION",
    "RenamePartitions": "RENAME PARTITION",
    "RecoverPartitions": "RECOVER PARTITIONS",
    "RepairTable": "MSCK REPAIR TABLE",
    "LoadData": "LOAD DATA",
    "SetTableSerDeProperties": "SET SERDEPROPERTIES",
}
