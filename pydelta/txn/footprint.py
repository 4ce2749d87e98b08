"""Record a transaction's footprint: what it read, which a winning commit must not have changed, and what it stages.

A commit that took the version has the same type as the staged changes, so the rules of ``conflicts`` can compare them.
Files that were read are stored as columns (path, dv_id): a scan of a million files adds a frame, not a million objects.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import polars as pl

from pydelta.log.columns import canonical_path, file_key, keys_of
from pydelta.log.deltas import build_delta
from pydelta.log.files import FileTable
from pydelta.log.pruning import PartitionSpec
from pydelta.log.runs import joined, key_columns, objects_of, of_kind, runs_of
from pydelta.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CommitInfo,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from pydelta.protocol.schema import parse_schema

if TYPE_CHECKING:
    from pydelta.predicate import Expr

__all__ = [
    "KEY_SCHEMA",
    "ROW_TRACKING_DOMAIN",
    "VACUUM_END",
    "VACUUM_START",
    "FileMatcher",
    "Isolation",
    "Operation",
    "ReadPredicate",
    "ReadSet",
    "Staged",
    "WinningCommit",
    "key_frame",
    "match_any_file",
    "matcher_for",
]

KEY_SCHEMA = pl.Schema({"path": pl.String(), "dv_id": pl.String()})


class Isolation(enum.Enum):
    """The guarantees of a transaction against concurrent ones.

    - ``SERIALIZABLE``: the versions of the log are a serial order, reads included.
    - ``WRITE_SERIALIZABLE``: writes are serial. A commit that read nothing and only added rows may precede a
      transaction that did not see those rows, as if it had come later.
    - ``SNAPSHOT``: only files that were read or removed must still exist. For commits that change no rows.
    """

    SERIALIZABLE = "Serializable"
    WRITE_SERIALIZABLE = "WriteSerializable"
    SNAPSHOT = "SnapshotIsolation"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPredicate:
    """One scan: conjuncts on partition columns, and conjuncts on data that statistics may decide.

    If both are empty, everything is scanned. ``time_zone`` applies to timestamps in partition values without a zone.
    """

    partition_filters: tuple[Expr, ...] = ()
    data_filters: tuple[Expr, ...] = ()
    time_zone: str = "UTC"


FileMatcher: TypeAlias = Callable[[ReadPredicate, Sequence[AddFile]], AddFile | None]
"""Returns the first of some added files that a scan might have had to read; None if all are ruled out."""


def match_any_file(predicate: ReadPredicate, adds: Sequence[AddFile]) -> AddFile | None:
    """Match any file."""
    return adds[0] if adds else None


def matcher_for(metadata: Metadata | None, *, root: str, mode: str) -> FileMatcher:
    """Build a function that finds, among a winner's adds, the first file that a scan would have had to read.

    It uses the same pruning that selected the files to read, so the two always agree on a condition.

    Args:
        metadata: The metadata that was read; None if there is no table, so that every file counts. A winner that
            changed it is refused before files are compared.
        root: URI of the table.
        mode: The column mapping mode in effect, which the protocol must support.
    """

    if metadata is None:
        return match_any_file

    @functools.cache
    def spec() -> PartitionSpec:
        return PartitionSpec.of(parse_schema(metadata.schema_string), metadata.partition_columns, mode)

    def first_match(predicate: ReadPredicate, adds: Sequence[AddFile]) -> AddFile | None:
        if not predicate.partition_filters and not predicate.data_filters:
            return adds[0] if adds else None
        delta = build_delta(adds, version=0, partition_names=spec().physical_names, root=root)
        added = FileTable(root=root, spec=spec(), deltas=(delta,))
        conditions = (*predicate.partition_filters, *predicate.data_filters)
        found = added.select(data_filters=conditions, time_zone=predicate.time_zone)
        paths = set(found["path"])
        return next((add for add in adds if add.path in paths), None)

    return first_match


def key_frame(keys: Sequence[FileKey]) -> pl.DataFrame:
    """Convert file keys to two columns, ``path`` and ``dv_id``."""
    return pl.DataFrame({"path": [key.path for key in keys], "dv_id": [key.dv_id for key in keys]}, schema=KEY_SCHEMA)


def _no_files() -> pl.DataFrame:
    return pl.DataFrame(schema=KEY_SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadSet:
    """Everything on which a transaction's outcome may depend.

    Args:
        predicates: Scans, as requested.
        files: Keys of the files that those scans (or ``mark_read``) returned, with the columns of ``KEY_SCHEMA``.
        app_ids: Applications whose ``txn`` version was looked up.
        whole_table: Whether the outcome depends on all files.
        exactly: Whether rows of a blind append conflict like other rows.
        brings_back: Whether removed files become live again, so that no VACUUM may delete them at the same time.
        rows_stand_alone: Whether the outcome for a row depends only on that row; see ``OptimisticTransaction``.
        matcher: Decides which added files a scan would have read.
        root: URI of the table. It completes paths, so that two spellings of a file compare equal.
        metadata: The table's metadata that was read; None if there is no table.
    """

    predicates: tuple[ReadPredicate, ...] = ()
    files: pl.DataFrame = field(default_factory=_no_files)
    app_ids: frozenset[str] = frozenset()
    whole_table: bool = False
    exactly: bool = False
    brings_back: bool = False
    rows_stand_alone: bool = False
    matcher: FileMatcher = match_any_file
    root: str = ""
    metadata: Metadata | None = None

    def key_of(self, file: AddFile | RemoveFile) -> str:
        """Return the file's identity, independent of how its path is spelled."""
        key = file.key
        return file_key(key.path, key.dv_id, self.root)

    def path_of(self, file: AddFile | RemoveFile) -> str:
        """Return the file's path in its canonical spelling."""
        return canonical_path(file.path, self.root)

    def keys_of(self, files: Sequence[AddFile] | Sequence[RemoveFile]) -> frozenset[str]:
        """Return ``key_of`` of several files. Computed on columns."""
        return frozenset(keys_of(key_columns(files), self.root).to_list())

    def paths_of(self, files: Sequence[AddFile] | Sequence[RemoveFile]) -> frozenset[str]:
        """Return ``path_of`` of several files. Computed on columns."""
        paths = key_columns(files).with_columns(dv_id=pl.lit(None, dtype=pl.String))
        return frozenset(keys_of(paths, self.root).to_list())

    @property
    def depends_on_files(self) -> bool:
        """Whether any file or scan was read. If not, a transaction that only adds files is a blind append."""
        return self.whole_table or bool(self.predicates) or not self.files.is_empty()

    def first_matching(self, adds: Sequence[AddFile]) -> AddFile | None:
        """Find the first added file that matches what was read."""
        if not adds:
            return None
        if self.whole_table:
            return adds[0]
        for predicate in self.predicates:
            found = self.matcher(predicate, adds)
            if found is not None:
                return found
        return None

    def first_removed(self, removes: Sequence[RemoveFile]) -> RemoveFile | None:
        """Find the first removed file that was read."""
        if not removes:
            return None
        if self.whole_table:
            return removes[0]
        if self.files.is_empty():
            return None
        removed = pl.Series([self.key_of(remove) for remove in removes], dtype=pl.String)
        hits = removed.is_in(keys_of(self.files, self.root).implode()).arg_true()
        return removes[hits[0]] if len(hits) else None


ROW_TRACKING_DOMAIN = "delta.rowTracking"
VACUUM_START = "VACUUM START"
VACUUM_END = "VACUUM END"
"""Files are deleted between the commits of these two operations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The operation as shown in the history.

    Args:
        name: The name that Delta users know: ``WRITE``, ``DELETE``, ``CREATE TABLE`` …
        parameters: Strings and None are stored unchanged, other values as JSON.
        metrics: Counts, bytes and milliseconds. The log stores them as strings.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The actions that a transaction wants to publish.

    Args:
        actions: All of them, in the given order.
        adds, removes, cdc_files, transactions, domains: The same, by kind.
        metadata, protocol, commit_info: The one of its kind, if any.
    """

    actions: Sequence[Action] = ()
    adds: Sequence[AddFile] = ()
    removes: Sequence[RemoveFile] = ()
    cdc_files: tuple[AddCDCFile, ...] = ()
    transactions: tuple[SetTransaction, ...] = ()
    domains: tuple[DomainMetadata, ...] = ()
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    commit_info: CommitInfo | None = None

    @classmethod
    def of(cls, actions: Iterable[Action], **others: Any) -> Self:
        """Group actions by kind. Of several metadata or protocol actions, the last one counts."""
        listed = joined(actions)
        objects = tuple(objects_of(listed))

        def only(kind: type[Any]) -> tuple[Any, ...]:
            return tuple(action for action in objects if isinstance(action, kind))

        def last(kind: type[Any]) -> Any:
            return next((action for action in reversed(objects) if isinstance(action, kind)), None)

        return cls(
            actions=listed,
            adds=of_kind(listed, AddFile),
            removes=of_kind(listed, RemoveFile),
            cdc_files=only(AddCDCFile),
            transactions=only(SetTransaction),
            domains=only(DomainMetadata),
            metadata=last(Metadata),
            protocol=last(Protocol),
            commit_info=last(CommitInfo),
            **others,
        )

    @property
    def has_files(self) -> bool:
        """Whether any data or change file is added or removed."""
        return bool(self.adds or self.removes or self.cdc_files)

    @property
    def only_adds_files(self) -> bool:
        """Whether no file is removed and no change data is written. Also True for a commit without files."""
        return not self.removes and not self.cdc_files

    @property
    def changes_rows(self) -> bool:
        """Whether any file action adds or removes rows (``dataChange``)."""
        return bool(self.cdc_files) or changes_rows(self.adds) or changes_rows(self.removes)

    @property
    def only_rearranges(self) -> bool:
        """Whether it has only file actions, none of which changes rows, as in a compaction."""
        others = self.transactions or self.metadata or self.protocol
        domains = [item for item in self.domains if item.domain != ROW_TRACKING_DOMAIN]
        return self.has_files and not self.changes_rows and not others and not domains

    def effective_level(self, level: Isolation) -> Isolation:
        """Return the level to check at. A commit that only rearranges rows only needs its files to exist."""
        return Isolation.SNAPSHOT if self.only_rearranges else level


def changes_rows(files: Sequence[AddFile] | Sequence[RemoveFile]) -> bool:
    """Return whether any of the file actions adds or removes rows (``dataChange``)."""
    if any(run.data_change for run in runs_of(files)):
        return True
    return any(isinstance(file, (AddFile, RemoveFile)) and file.data_change for file in objects_of(files))


@dataclass(frozen=True, slots=True, kw_only=True)
class WinningCommit(Staged):
    """A commit that took a version that this transaction wanted.

    Args:
        version: The version it took.
    """

    version: int

    @property
    def operation(self) -> str | None:
        """The operation in its ``commitInfo``. Other writers may omit it."""
        return self.commit_info.operation if self.commit_info else None

    @property
    def is_blind_append(self) -> bool:
        """Whether it declares that it read nothing and only added. Without a declaration it counts as having read."""
        return self.commit_info is not None and self.commit_info.get("isBlindAppend") is True
