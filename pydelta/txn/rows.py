"""Rebase commits that hide rows of the same files, if they hide different rows.

::

    winner: remove F, add F with a larger vector    we: only read F             --> no conflict: F has fewer rows
                                                    we: put a vector on F too   --> other rows: ours over the winner's
                                                                                `-> a row that both hide: conflict
                                                    we: rewrote or removed F    --> conflict
            anything else ------------------------------------------------------> the rules of ``conflicts``

It applies to transactions in which the outcome for a row depends only on that row. Only ``rebase`` does I/O.
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
from pydelta.txn.footprint import ReadSet, Staged, WinningCommit, key_frame

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
        """Return the rows that were hidden before the commit."""
        return _NONE if self.remove.deletion_vector is None else rows_of(self.remove.deletion_vector)

    def after(self, rows_of: RowsOf) -> Positions:
        """Return the rows that are hidden after the commit."""
        return rows_of(self.vector)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """A vector of ours that must be rewritten.

    Args:
        path: The file's path in its canonical spelling.
        old: The vector to replace.
        base: The file after the winner's commit.
        rows: The rows that the winner and we hide.
    """

    path: str
    old: DeletionVectorDescriptor
    base: AddFile
    rows: Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """The rest of a winner that the rules must check, and the work needed to follow it.

    Args:
        winner: The commit without files in which it only hid rows that do not concern us.
        rewrites: Our vectors that must be united with the winner's.
        read: Files that we read, as of the winner.
    """

    winner: WinningCommit
    rewrites: tuple[Rewrite, ...] = ()
    read: tuple[AddFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebased:
    """A transaction rebased onto a winner.

    Args:
        staged, reads: The updated values.
        written: Vector files that were written for it.
        superseded: Our vector files that nothing names any longer.
    """

    staged: Staged
    reads: ReadSet
    written: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()


def hidden_rows(commit: Staged, reads: ReadSet) -> dict[str, HiddenRows]:
    """Find, by path, the files that a commit removes and adds again with a vector. Pure."""
    removes = {reads.path_of(remove): remove for remove in commit.removes}
    found = {}
    for add in commit.adds:
        remove = removes.get(reads.path_of(add))
        if remove is not None and add.deletion_vector is not None:
            found[reads.path_of(add)] = HiddenRows(remove=remove, add=add, vector=add.deletion_vector)
    return found


def reconcile(*, reads: ReadSet, staged: Staged, winner: WinningCommit, rows_of: RowsOf) -> Reconciled:
    """Find the winner's files that do not conflict row by row. Pure.

    Args:
        reads: What this transaction read.
        staged: The changes to publish.
        winner: The commit that took the version.
        rows_of: Returns a vector's rows.
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
        if len(np.setdiff1d(before, after, assume_unique=True)):  # The winner made hidden rows visible again.
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
    """Read the rows of all vectors relevant to two commits at once. Returns None if one cannot be read."""
    vectors: dict[str, DeletionVectorDescriptor] = {}
    for commit in commits:
        for hidden in hidden_rows(commit, reads).values():
            for vector in (hidden.remove.deletion_vector, hidden.vector):
                if vector is not None:
                    vectors[vector.unique_id] = vector
    try:
        read = read_deleted_rows(list(vectors.values()), store=store, root=reads.root, options=options)
    except LogCorruptedError:  # Then the rules of ``conflicts`` decide by file.
        return None
    rows = dict(zip(vectors, read, strict=True))
    return lambda vector: rows[vector.unique_id]


def rebase(staged: Staged, reads: ReadSet, reconciled: Reconciled, *, store: Store) -> Rebased:
    """Rebase a transaction onto a winner without conflict, writing the united vectors.

    Args:
        staged: The changes to publish.
        reads: What the transaction read.
        reconciled: The result of ``reconcile``.
        store: The table's store.

    Raises:
        StorageError: The store failed. No files are left behind.
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
