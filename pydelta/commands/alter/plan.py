"""Plan a change of a table's definition, or explain why it is impossible. Pure.

::

    AddColumns DropColumns RenameColumn ChangeColumn(s) ReplaceColumns  the schema: ``alter_columns``
    SyncIdentity                                                        an identity column's mark: ``alter_columns``
    SetProperties UnsetProperties SetComment                            ``alter_properties``
    AddConstraint DropConstraint                                        conditions on rows: ``alter_properties``
    ClusterBy                                                           the order of rows: ``alter_properties``

Planning does not read rows: ``AlterPlan.must_hold`` lists the conditions that existing rows must satisfy first.
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
    """Decide the effect of a change on a table's definition. Pure.

    Args:
        snapshot: The table.
        change: The requested change.

    Raises:
        BindError: A column does not exist; the error suggests the nearest name.
        SchemaError: A column cannot be added, changed or dropped; the error says why.
        UnknownSettingError: A ``delta.*`` property is misspelled; the error suggests the nearest name.
        InvalidArgumentError: A value or a constraint is invalid.
        UnsafeOperationError: Something depends on the column; the error names it.
        UnsupportedFeatureError: It requires a feature that the table or this engine lacks.

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
