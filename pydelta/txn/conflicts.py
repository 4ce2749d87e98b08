"""Decide whether a concurrent commit conflicts with ours, and why. No I/O.

::

    rule                                          raises
    1 winner changed the protocol                 ProtocolChangedException
    2 winner changed the metadata                 MetadataChangedException
    3 both change a domain                        ConcurrentWriteException
    4 both use an application id                  ConcurrentTransactionException
    5 winner added what we should have read       ConcurrentAppendException
    6 winner removed what we read                 ConcurrentDeleteReadException
    7 both remove a file                          ConcurrentDeleteDeleteException
    8 both use a path in another way              the one of 5 or 6
    9 winner is a VACUUM, we bring files back     ConcurrentDeleteReadException
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pydelta.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from pydelta.protocol.actions import AddFile, RemoveFile
from pydelta.protocol.identity import only_marks_moved
from pydelta.txn.footprint import (
    ROW_TRACKING_DOMAIN,
    VACUUM_END,
    VACUUM_START,
    Isolation,
    ReadSet,
    Staged,
    WinningCommit,
)

__all__ = ["Conflict", "find_conflict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """The reason why a transaction may not follow a winner.

    Args:
        kind: The class of the error to raise.
        reason: What the winner did, completing a sentence that begins with its version.
        hint: What to do next.
        winning_version: The winner's version.
        winning_operation: Its operation, if known.
    """

    kind: type[DeltaConcurrentModificationException]
    reason: str
    hint: str
    winning_version: int
    winning_operation: str | None

    def error(self, *, table: str | None = None) -> DeltaConcurrentModificationException:
        """Return the exception. It names the winning version, its operation and the partition or file."""
        operation = f" by {self.winning_operation}" if self.winning_operation else ""
        return self.kind(
            f"Version {self.winning_version}, committed{operation} meanwhile, {self.reason}",
            winning_version=self.winning_version,
            winning_operation=self.winning_operation,
            hint=self.hint,
            table=table,
        )


def find_conflict(*, reads: ReadSet, staged: Staged, winner: WinningCommit, level: Isolation) -> Conflict | None:
    """Find the reason why ``staged`` may not follow ``winner``; None means that it may.

    Pure and total. Call it once for each winning version, oldest first. A version that passed need not be checked
    again.

    Args:
        reads: What this transaction read.
        staged: The changes to publish, without ``commitInfo``.
        winner: The commit that took the version.
        level: The isolation level; see ``Staged.effective_level``.

    Returns:
        The first conflict in the order of the table above.

    Protocol: "Delta Log Entries" decides the race for a version. The levels are a convention of Delta's writers.
    """
    for rule in _RULES:
        conflict = rule(reads, staged, winner, level)
        if conflict is not None:
            return conflict
    return None


_RERUN = "Nothing was committed. Run it again: it will see the new version."


def _conflict(
    kind: type[DeltaConcurrentModificationException], winner: WinningCommit, reason: str, hint: str = _RERUN
) -> Conflict:
    return Conflict(
        kind=kind, reason=reason, hint=hint, winning_version=winner.version, winning_operation=winner.operation
    )


def _partition(values: Mapping[str, str | None] | None) -> str:
    if not values:
        return "the unpartitioned table"
    return "partition [" + ", ".join(f"{name}={value}" for name, value in values.items()) + "]"


def _file(file: AddFile | RemoveFile) -> str:
    vector = f" (deletion vector {file.key.dv_id})" if file.key.dv_id else ""
    return f"file {file.path}{vector} in {_partition(file.partition_values)}"


def _protocol_changed(reads: ReadSet, staged: Staged, winner: WinningCommit, level: Isolation) -> Conflict | None:
    if winner.protocol is None:
        return None
    if winner.version == 0:
        return _conflict(ProtocolChangedException, winner, "created the table that this transaction creates too.")
    versions = f"({winner.protocol.min_reader_version}, {winner.protocol.min_writer_version})"
    return _conflict(ProtocolChangedException, winner, f"changed the table's protocol to {versions}.")


def _metadata_changed(reads: ReadSet, staged: Staged, winner: WinningCommit, level: Isolation) -> Conflict | None:
    if winner.metadata is None:
        return None
    if reads.metadata is not None and staged.metadata is None and only_marks_moved(reads.metadata, winner.metadata):
        return None  # The winner assigned identity values, and this transaction assigns none.
    return _conflict(
        MetadataChangedException, winner, "changed the table's metadata (schema, partitioning or properties)."
    )


def _domain_changed(reads: ReadSet, staged: Staged, winner: WinningCommit, level: Isolation) -> Conflict | None:
    theirs = {item.domain for item in winner.domains}
    for item in staged.domains:
        # The row id high-water mark is derived again on every attempt, so two of them never conflict.
        if item.domain in theirs and item.domain != ROW_TRACKING_DOMAIN:
            reason = f"changed the metadata domain {item.domain!r}, which this transaction changes too."
            return _conflict(ConcurrentWriteException, winner, reason)
    return None


def _application_advanced(reads: ReadSet, staged: Staged, winner: WinningCommit, level: Isolation) -> Conflict | None:
    ours = reads.app_ids | {item.app_id for item in staged.transactions}
    for item in winner.transactions:
        if item.app_id in ours:
            return _conflict(
                ConcurrentTransactionException,
                winner,
                f"moved application {item.app_id!r} to {item.version}, which this transaction uses too.",
                "Two writers share this application id. Give each job (or stream checkpoint) its own id; "
                "if one job was started twice, stop one of them.",
            )
    return None


def _appended_to_reads(reads: ReadSet, staged: Staged, winner: WinningCommit, level: Isolation) -> Conflict | None:
    if level is Isolation.SNAPSHOT:
        return None
    # If our schema or partitioning changes, unseen rows cannot be tolerated by reordering the commits.
    tolerant = level is Isolation.WRITE_SERIALIZABLE and staged.metadata is None and not reads.exactly
    if tolerant and winner.is_blind_append:
        return None
    # Rows that were only moved come from files whose removal the next rule detects.
    found = reads.first_matching([add for add in winner.adds if add.data_change])
    if found is None:
        return None
    hint = _RERUN
    if reads.whole_table or any(not scan.partition_filters for scan in reads.predicates):
        hint += " If the two writers work on different partitions, name the partition in this one's condition."
    return _conflict(
        ConcurrentAppendException, winner, f"added {_file(found)}, which this transaction would have read.", hint
    )


def _removed_from_reads(reads: ReadSet, staged: Staged, winner: WinningCommit, level: Isolation) -> Conflict | None:
    found = reads.first_removed(winner.removes)
    if found is None:
        return None
    return _conflict(ConcurrentDeleteReadException, winner, f"removed {_file(found)}, which this transaction read.")


def _removed_by_both(reads: ReadSet, staged: Staged, winner: WinningCommit, level: Isolation) -> Conflict | None:
    ours = reads.keys_of(staged.removes) if winner.removes else frozenset()
    for remove in winner.removes if ours else ():
        if reads.key_of(remove) in ours:
            reason = f"removed {_file(remove)}, which this transaction removes too."
            return _conflict(ConcurrentDeleteDeleteException, winner, reason)
    return None


def _same_path(reads: ReadSet, staged: Staged, winner: WinningCommit, level: Isolation) -> Conflict | None:
    """Find a path that both use: a file added again after the winner removed it, or two vectors on one file."""
    if not winner.has_files:
        return None
    added = reads.paths_of(staged.adds)
    ours = added | reads.paths_of(staged.removes)
    for removed in winner.removes:
        if reads.path_of(removed) in ours:
            reason = f"removed {_file(removed)}, which this transaction changes."
            return _conflict(ConcurrentDeleteReadException, winner, reason)
    for add in winner.adds:
        # It is fine to remove a file whose metadata the winner only refreshed.
        if reads.path_of(add) in added:
            reason = f"added {_file(add)}, which this transaction adds too."
            return _conflict(ConcurrentAppendException, winner, reason)
    return None


def _vacuumed_meanwhile(reads: ReadSet, staged: Staged, winner: WinningCommit, level: Isolation) -> Conflict | None:
    if not reads.brings_back or winner.operation not in (VACUUM_START, VACUUM_END):
        return None
    return _conflict(
        ConcurrentDeleteReadException,
        winner,
        "is a VACUUM, which deletes files that this transaction brings back.",
    )


_Rule: TypeAlias = Callable[[ReadSet, Staged, WinningCommit, Isolation], Conflict | None]

_RULES: Sequence[_Rule] = (
    _protocol_changed,
    _metadata_changed,
    _domain_changed,
    _application_advanced,
    _appended_to_reads,
    _removed_from_reads,
    _removed_by_both,
    _same_path,
    _vacuumed_meanwhile,
)
