"""Record what a transaction has read, which a winning commit may not have changed.

Files are kept in columns (path, dv_id): a scan of a million files records a frame, never a million objects.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import polars as pl

from pydelta.log.columns import canonical_path, file_key, keys_of
from pydelta.log.deltas import build_delta
from pydelta.log.files import FileTable
from pydelta.log.pruning import PartitionSpec
from pydelta.log.runs import key_columns
from pydelta.protocol.actions import AddFile, FileKey, Metadata, RemoveFile
from pydelta.protocol.schema import parse_schema

if TYPE_CHECKING:
    from pydelta.predicate import Expr

__all__ = ["KEY_SCHEMA", "FileMatcher", "ReadPredicate", "ReadSet", "key_frame", "match_any_file", "matcher_for"]

KEY_SCHEMA = pl.Schema({"path": pl.String(), "dv_id": pl.String()})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPredicate:
    """One scan: conjuncts over partition columns, and conjuncts over data that statistics may answer.

    Both empty means a scan of everything. ``time_zone`` is that of timestamps in partition values that name none.
    """

    partition_filters: tuple[Expr, ...] = ()
    data_filters: tuple[Expr, ...] = ()
    time_zone: str = "UTC"


FileMatcher: TypeAlias = Callable[[ReadPredicate, Sequence[AddFile]], AddFile | None]
"""The first of some added files that a scan could have had to read; None when every one is ruled out."""


def match_any_file(predicate: ReadPredicate, adds: Sequence[AddFile]) -> AddFile | None:
    """Match any file: nothing is ruled out."""
    return adds[0] if adds else None


def matcher_for(metadata: Metadata, *, root: str, mode: str) -> FileMatcher:
    """Make the function that finds, among a winner's adds, the first file that a scan would have had to read.

    The same pruning that chose what was read decides it, so the two can never disagree about a condition.

    Args:
        metadata: Of the snapshot that was read. A winner that changed it is refused before files are compared.
        root: URI of the table.
        mode: The column mapping mode in force, which the protocol has to support.
    """

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
    """Make file keys two columns, ``path`` and ``dv_id``."""
    return pl.DataFrame({"path": [key.path for key in keys], "dv_id": [key.dv_id for key in keys]}, schema=KEY_SCHEMA)


def _no_files() -> pl.DataFrame:
    return pl.DataFrame(schema=KEY_SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadSet:
    """Everything a transaction's outcome may depend on.

    Args:
        predicates: Scans, as they were asked for.
        files: Keys of the files those scans (or ``mark_read``) returned; columns as ``KEY_SCHEMA``.
        app_ids: Applications whose ``txn`` version was looked up.
        whole_table: The outcome depends on every file there is.
        exactly: Rows that a blind append added are no less a conflict than other rows.
        brings_back: Files that no version needed any more are to be live again, so that no VACUUM may be deleting
            them meanwhile.
        rows_stand_alone: What becomes of a row depends on that row alone; see ``OptimisticTransaction``.
        matcher: Decides which added files a scan would have met.
        root: URI of the table; completes paths, so that two spellings of one file meet.
        metadata: The table's definition that was read; None where there is no table.
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
        """Return the file's identity, whatever way its path is spelt."""
        key = file.key
        return file_key(key.path, key.dv_id, self.root)

    def path_of(self, file: AddFile | RemoveFile) -> str:
        """Return the file's path in one spelling."""
        return canonical_path(file.path, self.root)

    def keys_of(self, files: Sequence[AddFile] | Sequence[RemoveFile]) -> frozenset[str]:
        """Return ``key_of`` of all of some files; computed by columns."""
        return frozenset(keys_of(key_columns(files), self.root).to_list())

    def paths_of(self, files: Sequence[AddFile] | Sequence[RemoveFile]) -> frozenset[str]:
        """Return ``path_of`` of all of some files; computed by columns."""
        paths = key_columns(files).with_columns(dv_id=pl.lit(None, dtype=pl.String))
        return frozenset(keys_of(paths, self.root).to_list())

    @property
    def depends_on_files(self) -> bool:
        """Whether any file or scan was looked at; if not, a transaction that only adds is a blind append."""
        return self.whole_table or bool(self.predicates) or not self.files.is_empty()

    def first_matching(self, adds: Sequence[AddFile]) -> AddFile | None:
        """Find the first added file that belongs to what was read."""
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
        gone = pl.Series([self.key_of(remove) for remove in removes], dtype=pl.String)
        hits = gone.is_in(keys_of(self.files, self.root).implode()).arg_true()
        return removes[hits[0]] if len(hits) else None
