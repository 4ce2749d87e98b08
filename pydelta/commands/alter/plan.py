"""Plan a change of a table's definition, or say why it cannot be made. Pure.

::

    AddColumns DropColumns RenameColumn ChangeColumn(s) ReplaceColumns  the schema: ``alter_columns``
    SyncIdentity                                                        an identity column's mark: ``alter_columns``
    SetProperties UnsetProperties SetComment                            ``alter_properties``
    AddConstraint DropConstraint                                        what rows must satisfy: ``alter_properties``
    ClusterBy                                                           what rows are ordered by: ``alter_properties``

Rows are not looked at here: ``AlterPlan.must_hold`` says what the rows that are there have to satisfy first.
"""

from __future__ import annotations

from pydelta.commands.alter import columns as alter_columns
from pydelta.commands.alter import properties as alter_properties
from pydelta.commands.alter.requests import (
    AddColumns,
    AddConstraint,
    AlterPlan,
    Change,
    ChangeColumn,
    ChangeColumns,
    ClusterBy,
    DropColumns,
    DropConstraint,
    RenameColumn,
    ReplaceColumns,
    SetComment,
    SetProperties,
    SyncIdentity,
    UnsetProperties,
)
from pydelta.log import Snapshot

__all__ = ["plan_alter"]


def plan_alter(snapshot: Snapshot, change: Change) -> AlterPlan:
    """Decide what a change makes of a table's definition. Pure.

    Args:
        snapshot: The table.
        change: What is to be another.

    Raises:
        BindError: A column that is not there; the nearest name is suggested.
        SchemaError: A column that cannot be added, changed or dropped, and why.
        UnknownSettingError: A misspelt ``delta.*`` property; the nearest name is suggested.
        InvalidArgumentError: A value or a constraint that cannot be.
        UnsafeOperationError: Something needs the column; it is named.
        UnsupportedFeatureError: It takes a feature that the table or this engine has not.

    Protocol: "Change Metadata", "Column Mapping", "Type Widening", "CHECK Constraints".
    """
    match change:
        case AddColumns():
            return alter_columns.add(snapshot, change)
        case DropColumns():
            return alter_columns.drop(snapshot, change)
        case RenameColumn():
            return alter_columns.rename(snapshot, change)
        case ChangeColumn():
            return alter_columns.change(snapshot, change)
        case ChangeColumns():
            return alter_columns.change_together(snapshot, change)
        case ReplaceColumns():
            return alter_columns.replace(snapshot, change)
        case SetProperties():
            return alter_properties.set_properties(snapshot, change)
        case UnsetProperties():
            return alter_properties.unset_properties(snapshot, change)
        case SetComment():
            return alter_properties.set_comment(snapshot, change)
        case AddConstraint():
            return alter_properties.add_constraint(snapshot, change)
        case DropConstraint():
            return alter_properties.drop_constraint(snapshot, change)
        case ClusterBy():
            return alter_properties.cluster_by(snapshot, change)
        case SyncIdentity():
            return alter_columns.sync_identity(snapshot, change)
