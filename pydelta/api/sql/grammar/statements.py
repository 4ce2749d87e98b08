"""Define the statements as values. Conditions and queries stay text for Spark's own parser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = [
    "CloneStatement",
    "ConvertToDelta",
    "DescribeDetail",
    "DescribeHistory",
    "DropFeatureStatement",
    "FsckStatement",
    "GenerateStatement",
    "OptimizeStatement",
    "QuotedPath",
    "Reorg",
    "RestoreStatement",
    "Statement",
    "SyncIdentityStatement",
    "TableName",
    "Travel",
    "VacuumStatement",
]

TableName: TypeAlias = tuple[str, ...]
"""Parts of a name; ``("delta", "/path")`` for a path."""


class QuotedPath(tuple[str, str]):
    """``("delta", path)`` for a path in single quotes, which is a path even without a slash."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Travel:
    """Either ``VERSION AS OF n`` or ``TIMESTAMP AS OF expression``."""

    version: int | None = None
    timestamp_sql: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumStatement:
    """``VACUUM table [USING INVENTORY …] [RETAIN n HOURS] [DRY RUN] [FULL | LITE] [WHERE …]``, in any order.

    Args:
        table: The table.
        retain_hours: Minimum age of unreferenced files to delete; None for the table's own setting.
        dry_run: Only report what would be deleted.
        mode: ``FULL``, ``LITE``, or None if the statement names neither.
        inventory: The table that holds an inventory.
        inventory_query: The query that returns one, instead of ``inventory``.
        where: Condition on partition columns.
    """

    table: TableName
    retain_hours: float | None = None
    dry_run: bool = False
    mode: str | None = None
    inventory: TableName | None = None
    inventory_query: str | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateStatement:
    """``GENERATE mode FOR TABLE table [WHERE …]``."""

    mode: str
    table: TableName
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeStatement:
    """``OPTIMIZE table [FULL] [WHERE …] [ZORDER BY (…)]``."""

    table: TableName
    full: bool = False
    where: str | None = None
    zorder_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptimize:
    """``EXPLAIN [EXTENDED | CODEGEN | COST | FORMATTED] OPTIMIZE …``; all four have the same output."""

    explained: OptimizeStatement


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeHistory:
    """``DESCRIBE HISTORY table [LIMIT n]``."""

    table: TableName
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeDetail:
    """``DESCRIBE DETAIL table``."""

    table: TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreStatement:
    """``RESTORE [TABLE] table TO VERSION | TIMESTAMP AS OF …``."""

    table: TableName
    to: Travel


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertToDelta:
    """``CONVERT TO DELTA table [NO STATISTICS] [PARTITIONED BY (name type, …)]``.

    Args:
        table: ``("parquet", "/path")``, or the name of a Parquet table.
        statistics: Whether to collect them.
        partition_schema: DDL of the partition columns.
    """

    table: TableName
    statistics: bool = True
    partition_schema: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneStatement:
    """``CREATE [OR REPLACE] TABLE [IF NOT EXISTS] table [SHALLOW | DEEP] CLONE source [… AS OF …] …``."""

    table: TableName
    source: TableName
    shallow: bool
    replace: bool = False
    if_not_exists: bool = False
    at: Travel | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reorg:
    """``REORG TABLE table [WHERE …] APPLY (PURGE)``."""

    table: TableName
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropFeatureStatement:
    """``ALTER TABLE table DROP FEATURE feature [TRUNCATE HISTORY]``."""

    table: TableName
    feature: str
    truncate_history: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncIdentityStatement:
    """``ALTER TABLE table ALTER [COLUMN] column SYNC IDENTITY``."""

    table: TableName
    column: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FsckStatement:
    """``FSCK REPAIR TABLE table [DRY RUN]``."""

    table: TableName
    dry_run: bool = False


Statement: TypeAlias = (
    VacuumStatement
    | GenerateStatement
    | OptimizeStatement
    | ExplainOptimize
    | DescribeHistory
    | DescribeDetail
    | RestoreStatement
    | ConvertToDelta
    | CloneStatement
    | Reorg
    | DropFeatureStatement
    | SyncIdentityStatement
    | FsckStatement
)
