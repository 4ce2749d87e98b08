"""Record what a transaction has read, which a winning commit may not have changed.

Files are kept in columns (path, dv_id): a scan of a million files records a frame, never a million objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import polars as pl

from pydelta.log.columns import canonical_path, file_key, keys_of
from pydelta.log.runs import key_columns
from pydelta.protocol.actions import AddFile, FileKey, Metadata, RemoveFile

if TYPE_CHECKING:
    from pydelta.predicate import Expr

__all__ = ["KEY_SCHEMA", "FileMatcher", "ReadPredicate", "ReadSet", "key_frame", "match_any_file"]

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
