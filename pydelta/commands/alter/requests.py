"""Define the changes of a table's definition as values, and ``AlterPlan``, their outcome. ``plan_alter`` decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pydelta.errors.conditions import Condition
from pydelta.protocol.actions import DomainMetadata, Metadata, Protocol
from pydelta.protocol.schema_edits import After, First, Position
from pydelta.protocol.types import DataType
from pydelta.txn import Operation

__all__ = [
    "AddColumns",
    "AddConstraint",
    "After",
    "AlterPlan",
    "Change",
    "ChangeColumn",
    "ChangeColumns",
    "ClusterBy",
    "DropColumns",
    "DropConstraint",
    "First",
    "MustHold",
    "NewColumn",
    "RenameColumn",
    "ReplaceColumns",
    "SetComment",
    "SetProperties",
    "SyncIdentity",
    "UnsetProperties",
]

Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewColumn:
    """A column to add.

    Args:
        path: Its name and those above it, with ``element``, ``key`` and ``value`` for the parts of arrays and maps.
        data_type: Its type; ``PrimitiveType("varchar(5)")`` and ``char(n)`` are strings of limited length.
        nullable: Whether it may be null.
        comment: Its description.
        default: SQL text of its default; a column added to an existing table cannot have one.
        position: Where among its siblings; None for the end.
        metadata: More field metadata.
    """

    path: Path
    data_type: DataType
    nullable: bool = True
    comment: str | None = None
    default: str | None = None
    position: Position | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumns:
    """New columns, at any depth."""

    columns: tuple[NewColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropColumns:
    """Columns to drop, at any depth; requires column mapping."""

    paths: tuple[Path, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameColumn:
    """A new name for the column at ``path``; requires column mapping."""

    path: Path
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeColumn:
    """Changes of one column; None leaves a part unchanged.

    Args:
        path: The column; it may end at ``element``, ``key`` or ``value`` if only the type changes.
        data_type: A wider type.
        nullable: Whether it may be null; False requires that no row has a null there.
        comment: Its description.
        position: Where among its siblings.
        default: SQL text of its default.
        drop_default: Whether to drop its default.
    """

    path: Path
    data_type: DataType | None = None
    nullable: bool | None = None
    comment: str | None = None
    position: Position | None = None
    default: str | None = None
    drop_default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeColumns:
    """Several columns to change together, in one version."""

    changes: tuple[ChangeColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceColumns:
    """All columns of the new definition, in order."""

    columns: tuple[NewColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetProperties:
    """Table properties to set."""

    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsetProperties:
    """Table properties to remove."""

    names: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetComment:
    """The table's description; None removes it."""

    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddConstraint:
    """A condition that every row must satisfy, including existing rows."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropConstraint:
    """A constraint to drop."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBy:
    """Columns (dotted) that OPTIMIZE orders rows by; None ends the clustering."""

    columns: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncIdentity:
    """Move an identity column's next value past those in the rows.

    Args:
        column: Its name.
        furthest: The value in the rows that is furthest in the direction of its step; None if no row has one.
    """

    column: str
    furthest: int | None = None


Change: TypeAlias = (
    AddColumns
    | DropColumns
    | RenameColumn
    | ChangeColumn
    | ChangeColumns
    | ReplaceColumns
    | SetProperties
    | UnsetProperties
    | SetComment
    | AddConstraint
    | DropConstraint
    | ClusterBy
    | SyncIdentity
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MustHold:
    """A condition on the existing rows.

    Args:
        what: The rule, for the message: ``CHECK constraint 'positive' (x > 0)``.
        expression: SQL text; it must be true for every row.
        not_null: The column, if the rule is its NOT NULL.
    """

    what: str
    expression: str
    not_null: str | None = None

    def broken(self, rows: int, table: str) -> Condition:
        """Return the error condition for a table with this many rows that violate the rule."""
        if self.not_null is not None:
            return Condition.of("DELTA_NEW_NOT_NULL_VIOLATION", numRows=rows, tableName=table, colName=self.not_null)
        rule = self.expression
        return Condition.of("DELTA_NEW_CHECK_CONSTRAINT_VIOLATION", numRows=rows, tableName=table, checkConstraint=rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPlan:
    """The effect of a change on a table's definition.

    Args:
        metadata: The definition afterwards.
        operation: For the history.
        protocol: The protocol, if the change sets one; features that the definition needs are added automatically.
        clustering: The domain with the table's clustering, if that changes.
        must_hold: Conditions that the existing rows must satisfy.
        changed: Whether anything changes.
        rewrites: Whether every file must be rewritten.
    """

    metadata: Metadata
    operation: Operation
    protocol: Protocol | None = None
    clustering: DomainMetadata | None = None
    must_hold: tuple[MustHold, ...] = ()
    changed: bool = True
    rewrites: bool = False
