"""Create or replace a table without rows, in one commit, or in none if the table may stay.

::

                          no table             an existing table
    CREATE                version 0            refused
    CREATE_IF_NOT_EXISTS  version 0            unchanged
    REPLACE               refused              new definition, every file removed
    CREATE_OR_REPLACE     version 0            new definition, every file removed
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydelta.commands.alter.clustering import (
    CLUSTERING_FEATURES,
    check_layout,
    clustering_domain,
    clustering_paths,
    plan_clustering,
)
from pydelta.commands.run import Attempt, Command, Refusal, refuse_append_only
from pydelta.commands.write.plan import (
    TableDefinition,
    check_columns,
    definition_parameters,
    new_metadata,
)
from pydelta.errors import (
    SchemaError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from pydelta.errors.conditions import Condition
from pydelta.log import Snapshot
from pydelta.protocol.actions import Action, DomainMetadata, Metadata, RemoveFile
from pydelta.protocol.features import required_protocol, upgrade
from pydelta.protocol.schema_edits import all_paths, fields_along, name_of
from pydelta.protocol.types import StructType
from pydelta.settings import Settings, checked_properties
from pydelta.storage import Store
from pydelta.txn import Committed, Operation

__all__ = [
    "REPLACES",
    "Create",
    "CreateMode",
    "CreatePlan",
    "CreateResult",
    "TableDefinition",
    "plan_create",
    "refuse_foreign_files",
]


REPLACES: Final = Refusal(
    "it cannot be replaced: its rows would be removed",
    "Set delta.appendOnly to false first, if you really want to replace it.",
)


class CreateMode(enum.Enum):
    """The behaviour of a create when the table exists or not. The values appear in the history."""

    CREATE = "CREATE TABLE"
    CREATE_IF_NOT_EXISTS = "CREATE TABLE IF NOT EXISTS"
    REPLACE = "REPLACE TABLE"
    CREATE_OR_REPLACE = "CREATE OR REPLACE TABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePlan:
    """The plan of a create. ``metadata`` is None when the table stays unchanged.

    Args:
        metadata: The new definition.
        removes_files: Whether the existing files are removed.
        operation: Name for the history.
        parameters: Parameters for the history.
        clustering: The domain with the table's clustering; None if the table neither has nor had any.
    """

    metadata: Metadata | None
    removes_files: bool
    operation: str
    parameters: Mapping[str, Any]
    clustering: DomainMetadata | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateResult:
    """The result of a create. ``version`` is None when the table already existed and is unchanged."""

    version: int | None
    num_removed_files: int = 0
    committed: Committed | None = None


def plan_create(
    snapshot: Snapshot,
    definition: TableDefinition,
    *,
    mode: CreateMode,
    settings: Settings,
    managed: bool = False,
) -> CreatePlan:
    """Decide what a create does. Pure, except for the id and time of the table.

    Args:
        snapshot: The current state; version -1 if there is no table.
        definition: The table's new definition.
        mode: What to do with or without an existing table.
        settings: For the defaults.
        managed: Whether the files belong to the catalog; for the history.

    Raises:
        TableAlreadyExistsError, TableNotFoundError: The mode refuses an existing, or a missing, table.
        BindError, InvalidArgumentError: Columns that a table cannot be clustered by; see ``plan_clustering``.
        SchemaError: Columns that the format cannot hold; see ``new_metadata``.
        UnknownSettingError: A ``delta.*`` property is misspelled.
        UnsupportedFeatureError: A column type or property cannot be written.
    """
    exists = snapshot.version >= 0
    if exists and mode is CreateMode.CREATE:
        raise TableAlreadyExistsError(
            f"There is a Delta table at {snapshot.table_uri}, at version {snapshot.version}.",
            hint="Use createIfNotExists or createOrReplace, or choose another location.",
        )
    if mode in (CreateMode.REPLACE, CreateMode.CREATE_OR_REPLACE) and not definition.schema.fields:
        raise SchemaError(
            "A table cannot be replaced by one without columns.",
            hint="Give the columns, or write AS SELECT; DELETE FROM removes only the rows.",
            condition=Condition.of("DELTA_SCHEMA_NOT_PROVIDED"),
        )
    if not exists and mode is CreateMode.REPLACE:
        raise TableNotFoundError(
            f"There is no Delta table at {snapshot.table_uri} to replace.",
            hint="Use create or createOrReplace.",
            condition=Condition.of("TABLE_OR_VIEW_NOT_FOUND", relationName=snapshot.table_uri),
        )
    if exists and mode is CreateMode.CREATE_IF_NOT_EXISTS:
        return CreatePlan(metadata=None, removes_files=False, operation="CREATE TABLE", parameters={})
    check_columns(definition.schema)
    _refuse_unchecked_not_null(definition.schema)
    definition = replace(definition, properties=checked_properties(definition.properties))
    metadata = new_metadata(definition, settings=settings, replaced=snapshot.metadata if exists else None)
    check_layout(snapshot, metadata.partition_columns, definition.cluster_by)
    clustering = plan_clustering(metadata, definition.cluster_by)
    if clustering is None and exists and clustering_paths(snapshot):
        clustering = clustering_domain(definition.schema, ())
    operation = "CREATE TABLE" if mode is CreateMode.CREATE_IF_NOT_EXISTS else mode.value
    parameters = definition_parameters(metadata, managed=managed, cluster_by=definition.cluster_by)
    return CreatePlan(
        metadata=metadata, removes_files=exists, operation=operation, parameters=parameters, clustering=clustering
    )


def _refuse_unchecked_not_null(schema: StructType) -> None:
    """Refuse NOT NULL within arrays and maps, where no writer checks it."""
    for path, field in all_paths(schema):
        inside = [at for at, item in enumerate(fields_along(schema, path)) if item is None]
        if inside and not field.nullable:
            raise SchemaError(
                f"{name_of(path)} is NOT NULL within an array or map, where it would not be checked.",
                hint="Leave NOT NULL out there; it is for columns and for fields of structs.",
                condition=Condition.of(
                    "DELTA_NESTED_NOT_NULL_CONSTRAINT",
                    nestType=path[inside[0]],
                    parent=name_of(path[: inside[0]]),
                    configKey="spark.databricks.delta.constraints.allowUnenforcedNotNull.enabled",
                    nestedPrettyJson=field.to_dict(),
                ),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Create(Command[CreateResult]):
    """Create or replace a table, in one commit. Arguments and errors are those of ``plan_create``.

    Raises:
        TableAlreadyExistsError: Also if the location has files but no log, because they would belong to no table.
        UnsafeOperationError: A replace would remove rows from an append-only table.

    Protocol: "Change Metadata", "Protocol Evolution".
    """

    definition: TableDefinition
    mode: CreateMode
    managed: bool = False

    makes_table = True

    def execute(self, attempt: Attempt) -> CreateResult:
        """See ``Command.execute``."""
        txn, snapshot = attempt.txn, attempt.snapshot
        plan = plan_create(snapshot, self.definition, mode=self.mode, settings=attempt.settings, managed=self.managed)
        if plan.metadata is None:
            return CreateResult(version=None)
        actions: list[Action] = []
        if plan.removes_files:
            refuse_append_only(snapshot, REPLACES)
            now_ms = attempt.now_ms()
            actions += [add.remove(deletion_timestamp=now_ms) for add in snapshot.files.adds(txn.read_files())]
        else:
            refuse_foreign_files(attempt.log.store, snapshot.table_uri)
        txn.update_metadata(plan.metadata)
        if plan.clustering is not None:
            txn.update_protocol(upgrade(snapshot.protocol or required_protocol(plan.metadata), CLUSTERING_FEATURES))
            actions.append(plan.clustering)
        committed = txn.commit(actions, Operation(name=plan.operation, parameters=plan.parameters))
        removed = sum(isinstance(action, RemoveFile) for action in actions)
        return CreateResult(version=committed.version, num_removed_files=removed, committed=committed)


def refuse_foreign_files(store: Store, location: str) -> None:
    """Check that a location is free for a new table. Names that begin with ``_`` or ``.`` are not data, at any depth.

    Raises:
        TableAlreadyExistsError: The location holds files; the error names one of them.
    """
    for item in store.list_all():
        if not any(part.startswith(("_", ".")) for part in item.path.split("/")):
            raise TableAlreadyExistsError(
                f"{location} holds files but no Delta log, for example {item.path}.",
                hint="Choose an empty location, or read those files and write them as a table elsewhere.",
                condition=Condition.of("DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION", tableLocation=location),
            )
