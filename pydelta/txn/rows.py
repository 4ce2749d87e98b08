"""Rebase commits that hide rows of the same files, as far as they hide different rows.

::

    winner: remove F, add F with a larger vector    we: only read F             --> no conflict: F has fewer rows
                                                    we: put a vector on F too   --> other rows: ours over the winner's
                                                                                `-> a row that both hide: conflict
                                                    we: rewrote or removed F    --> conflict
            anything else ------------------------------------------------------> the rules of ``conflicts``

For transactions of which each row's fate depends on that row alone. No I/O but in ``rebase``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import polars as pl

from pydelta.errors import LogCorruptedError
from pydelta.log.vector_files import read_deleted_rows, write_vectors
from pydelta.protocol.actions import Action, AddFile, DeletionVectorDescriptor, RemoveFile
from pydelta.protocol.roaring import Positions, ascending
from pydelta.protocol.vectors import vector_path
from pydelta.storage.interface import Store
from pydelta.txn.reads import ReadSet, key_frame
from pydelta.txn.staged import Staged, WinningCommit

__all__ = ["Rebased", "Reconciled", "Rewrite", "hidden_rows", "rebase", "reconcile"]

_NONE: Positions = np.empty(0, dtype=np.uint64)

RowsOf: TypeAlias = Callable[[DeletionVectorDescriptor], Positions]


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenRows:
    """A file that a commit removes and adds again with a deletion vector."""

    remove: RemoveFile
    add: AddFile
    vector: DeletionVectorDescriptor

    def before(self, rows_of: RowsOf) -> Positions:
        """Rows that were deleted already."""
        return _NONE if self.remove.deletion_vector is None else rows_of(self.remove.deletion_vector)

    def after(self, rows_of: RowsOf) -> Positions:
        """Rows that are deleted by then."""
        return rows_of(self.vector)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """A vector of ours that has to be written anew.

    Args:
        path: The file's path in one spelling.
        old: The vector that it takes the place of.
        base: The file as the winner leaves it.
        rows: What the winner and we delete.
    """

    path: str
    old: DeletionVectorDescriptor
    base: AddFile
    rows: Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """What is left of a winner for the rules, and what has to be done to follow it.

    Args:
        winner: The commit without the files on which it only hid rows that are none of our business.
        rewrites: Our vectors that are to be united with its.
        read: Files that we have read, as the winner leaves them.
    """

    winner: WinningCommit
    rewrites: tuple[Rewrite, ...] = ()
    read: tuple[AddFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebased:
    """A transaction moved behind a winner.

    Args:
        staged, reads: As they are now.
        written: Vector files that were written for it.
        superseded: Vector files of ours that nothing names any more.
    """

    staged: Staged
    reads: ReadSet
    written: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()


def hidden_rows(commit: Staged, reads: ReadSet) -> dict[str, HiddenRows]:
    """Find the files that a commit removes and adds again with a vector, by path. Pure."""
    removes = {reads.path_of(remove): remove for remove in commit.removes}
    found = {}
    for add in commit.adds:
        remove = removes.get(reads.path_of(add))
        if remove is not None and add.deletion_vector is not None:
            found[reads.path_of(add)] = HiddenRows(remove=remove, add=add, vector=add.deletion_vector)
    return found


def reconcile(*, reads: ReadSet, staged: Staged, winner: WinningCommit, rows_of: RowsOf) -> Reconciled:
    """Tell which of a winner's files need no conflict, row by row. Pure.

    Args:
        reads: What this transaction has looked at.
        staged: What it wants to publish.
        winner: The commit that took the version.
        rows_of: A vector's rows.
    """
    theirs = hidden_rows(winner, reads)
    if not theirs or not reads.rows_stand_alone or reads.whole_table or reads.exactly or staged.metadata is not None:
        return Reconciled(winner=winner)
    ours = hidden_rows(staged, reads)
    touched = {reads.path_of(add) for add in staged.adds} | {reads.path_of(remove) for remove in staged.removes}
    harmless: dict[str, AddFile] = {}
    rewrites = []
    for path, hidden in theirs.items():
        before, after = hidden.before(rows_of), hidden.after(rows_of)
        if len(np.setdiff1d(before, after, assume_unique=True)):  # rows came back
            continue
        if path in ours:
            own = ours[path]
            if own.remove.key.dv_id != hidden.remove.key.dv_id:
                continue
            rows = own.after(rows_of)
            both = np.intersect1d(np.setdiff1d(rows, before, assume_unique=True), after, assume_unique=True)
            if len(both):
                continue
            united = ascending(np.concatenate([rows, after]))
            rewrites.append(Rewrite(path=path, old=own.vector, base=hidden.add, rows=united))
        elif path in touched:
            continue
        harmless[path] = hidden.add

    def counts(action: Action) -> bool:
        return not isinstance(action, (AddFile, RemoveFile)) or reads.path_of(action) not in harmless

    left = [action for action in winner.actions if counts(action)]
    return Reconciled(
        winner=WinningCommit.of(left, version=winner.version),
        rewrites=tuple(rewrites),
        read=tuple(harmless.values()),
    )


def vector_reader(
    commits: tuple[Staged, ...], reads: ReadSet, *, store: Store, options: Mapping[str, str] | None
) -> RowsOf | None:
    """The rows of the vectors that matter to two commits, read at once; None when one of them cannot be read."""
    vectors: dict[str, DeletionVectorDescriptor] = {}
    for commit in commits:
        for hidden in hidden_rows(commit, reads).values():
            for vector in (hidden.remove.deletion_vector, hidden.vector):
                if vector is not None:
                    vectors[vector.unique_id] = vector
    try:
        read = read_deleted_rows(list(vectors.values()), store=store, root=reads.root, options=options)
    except LogCorruptedError:  # the rules of ``conflicts`` then decide by files
        return None
    rows = dict(zip(vectors, read, strict=True))
    return lambda vector: rows[vector.unique_id]


def rebase(staged: Staged, reads: ReadSet, reconciled: Reconciled, *, store: Store) -> Rebased:
    """Move a transaction behind a winner that it does not conflict with; writes the united vectors.

    Args:
        staged: What it wants to publish.
        reads: What it has looked at.
        reconciled: What ``reconcile`` said.
        store: The table's.

    Raises:
        StorageError: The store refused; nothing is left behind.
    """
    files = pl.concat([reads.files, key_frame([add.key for add in reconciled.read])])
    reads = dataclasses.replace(reads, files=files)
    if not reconciled.rewrites:
        return Rebased(staged=staged, reads=reads)
    described, written = write_vectors([item.rows for item in reconciled.rewrites], store=store)
    new = {item.path: (item, vector) for item, vector in zip(reconciled.rewrites, described, strict=True)}

    def moved(action: Action) -> Action:
        if not isinstance(action, (AddFile, RemoveFile)) or reads.path_of(action) not in new:
            return action
        item, vector = new[reads.path_of(action)]
        if isinstance(action, AddFile):
            return item.base.replace(deletion_vector=vector, data_change=action.data_change)
        return item.base.remove(deletion_timestamp=action.deletion_timestamp or 0, data_change=action.data_change)

    after = Staged.of([moved(action) for action in staged.actions])
    named = {vector_path(add.deletion_vector) for add in after.adds if add.deletion_vector is not None}
    old = {path for item in reconciled.rewrites if (path := vector_path(item.old)) is not None}
    return Rebased(staged=after, reads=reads, written=tuple(written), superseded=tuple(sorted(old - named)))
