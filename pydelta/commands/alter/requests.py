"""Define the changes of a table's definition as values, and ``AlterPlan``, their outcome. ``alter_plan`` decides."""

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
    """A column to be added.

    Args:
        path: Its name and those above it; arrays and maps are gone through by ``element``, ``key`` and ``value``.
        data_type: Its type; ``PrimitiveType("varchar(5)")`` and ``char(n)`` are texts of limited length.
        nullable: Whether it may be null.
        comment: Its description.
        default: SQL text of its default; a column that is added to a table cannot have one.
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
    """Columns that go, at any depth; takes column mapping."""

    paths: tuple[Path, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameColumn:
    """Another name for the column at ``path``; takes column mapping."""

    path: Path
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeColumn:
    """What of a column becomes another; None leaves it as it is.

    Args:
        path: The column; it may end at ``element``, ``key`` or ``value`` where only the type changes.
        data_type: A wider type.
        nullable: Whether it may be null; False takes rows that have no null there.
        comment: Its description.
        position: Where among its siblings.
        default: SQL text of its default.
        drop_default: Whether its default goes.
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
    """Several columns that change together, in one version."""

    changes: tuple[ChangeColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceColumns:
    """The columns that the table is to have, all of them, in order."""

    columns: tuple[NewColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetProperties:
    """Table properties."""

    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsetProperties:
    """Table properties that go."""

    names: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetComment:
    """The table's description; None takes it away."""

    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddConstraint:
    """A condition that every row must satisfy, those that are there too."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropConstraint:
    """A constraint that goes."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBy:
    """Columns (dotted) that OPTIMIZE orders rows by; None for none."""

    columns: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncIdentity:
    """Let an identity column go on behind the values that its rows have.

    Args:
        column: Its name.
        furthest: The value furthest in the direction of its step that a row has; None where no row has one.
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
    """A condition on the rows that are there.

    Args:
        what: The rule, for the message: ``CHECK constraint 'positive' (x > 0)``.
        expression: SQL text; it must be true for every row.
        not_null: The column, where the rule is its NOT NULL.
    """

    what: str
    expression: str
    not_null: str | None = None

    def broken(self, rows: int, table: str) -> Condition:
        """Name the condition of a table with this many rows that break the rule."""
        if self.not_null is not None:
            return Condition.of("DELTA_NEW_NOT_NULL_VIOLATION", numRows=rows, tableName=table, colName=self.not_null)
        rule = self.expression
        return Condition.of("DELTA_NEW_CHECK_CONSTRAINT_VIOLATION", numRows=rows, tableName=table, checkConstraint=rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPlan:
    """What a change makes of a table's definition.

    Args:
        metadata: The definition afterwards.
        operation: For the history.
        protocol: The protocol, where the change names one; features that the definition needs come by themselves.
        clustering: The domain that says what rows are ordered by, where that changes.
        must_hold: What the rows that are there must satisfy.
        changed: Whether anything is another than before.
        rewrites: Whether the definition takes that every file is written anew.
    """

    metadata: Metadata
    operation: Operation
    protocol: Protocol | None = None
    clustering: DomainMetadata | None = None
    must_hold: tuple[MustHold, ...] = ()
    changed: bool = True
    rewrites: bool = False
