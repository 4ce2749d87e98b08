"""Hide rows with deletion vectors: build the actions, rewrite no data file.

::

    files + positions --merged with old vectors--> every row hidden --> remove
                                              `--> others: vectors into one file --> remove + add with the new vector

Protocol: "Deletion Vectors", "Writer Requirement for Deletion Vectors", "Per-file Statistics".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from pydelta.log import DeltaLog, Snapshot
from pydelta.log.footers import count_rows
from pydelta.log.vector_files import read_deleted_rows, write_vectors
from pydelta.protocol.actions import AddFile, RemoveFile
from pydelta.protocol.features import supports
from pydelta.protocol.malformed import MALFORMED_JSON
from pydelta.protocol.roaring import Positions, ascending
from pydelta.settings.clock import epoch_ms

__all__ = [
    "VectorOutput",
    "footer_rows",
    "live_rows",
    "loose_stats",
    "mark_deleted",
    "physical_rows",
    "writes_vectors",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorOutput:
    """The actions that hide rows, before the commit.

    Args:
        removes: One for each touched file.
        adds: The files with their new vectors; a file without live rows has none.
        files_written: Deletion vector files, relative to the table, which a failed command deletes.
        num_deleted_rows: Rows that were live and are now hidden.
        num_removed_files: Files left without a live row.
        removed_bytes: The size of these files.
    """

    removes: tuple[RemoveFile, ...] = ()
    adds: tuple[AddFile, ...] = ()
    files_written: tuple[str, ...] = ()
    num_deleted_rows: int = 0
    num_removed_files: int = 0
    removed_bytes: int = 0

    @property
    def actions(self) -> tuple[RemoveFile | AddFile, ...]:
        """All actions, for the commit."""
        return (*self.removes, *self.adds)

    @property
    def metrics(self) -> dict[str, int]:
        """Counts of vectors under their names in the history."""
        before = {remove.path for remove in self.removes if remove.deletion_vector is not None}
        return {
            "numDeletionVectorsAdded": len(self.adds),
            "numDeletionVectorsRemoved": len(before),
            "numDeletionVectorsUpdated": len(before & {add.path for add in self.adds}),
        }


def writes_vectors(snapshot: Snapshot) -> bool:
    """Return whether changes of the table's rows are written as deletion vectors."""
    enabled = snapshot.properties.enable_deletion_vectors
    return enabled and snapshot.protocol is not None and supports(snapshot.protocol, "deletionVectors")


def mark_deleted(
    snapshot: Snapshot,
    log: DeltaLog,
    adds: Sequence[AddFile],
    positions: Mapping[int, Positions],
    *,
    count: Callable[[Sequence[AddFile]], Sequence[int]] | None = None,
) -> VectorOutput:
    """Hide rows of files. Writes the vectors; commits nothing.

    Args:
        snapshot: The version that contains the files.
        log: The table's log.
        adds: Files of the snapshot.
        positions: The rows to delete, by position in ``adds``, counted from 0 with hidden rows. Files without rows to
            delete are ignored.
        count: Counts the rows in files regardless of the log; by default from their footers.

    Raises:
        LogCorruptedError: An existing vector is damaged.
        StorageError: The store refused; no file is left behind.
    """
    touched = [place for place in sorted(positions) if len(positions[place])]
    marked = [place for place in touched if adds[place].deletion_vector is not None]
    vectors = [vector for place in marked if (vector := adds[place].deletion_vector) is not None]
    stored = read_deleted_rows(vectors, store=log.store, root=log.uri, options=log.options)
    before = dict(zip(marked, stored, strict=True))
    now_ms = epoch_ms()
    removes: list[RemoveFile] = []
    kept: list[tuple[AddFile, int]] = []
    united: list[Positions] = []
    hidden: dict[int, Positions] = {}
    deleted = removed_files = removed_bytes = 0
    for place in touched:
        old = before.get(place, np.empty(0, dtype=np.uint64))
        hidden[place] = ascending(np.concatenate([old, positions[place].astype(np.uint64)]))
        deleted += len(hidden[place]) - len(old)
    counts = _row_counts(
        [adds[place] for place in touched],
        log,
        least=[max(len(hidden[place]), int(hidden[place][-1])) + 1 for place in touched],
        ask=count,
    )
    for place, there in zip(touched, counts, strict=True):
        add, rows = adds[place], hidden[place]
        removes.append(add.remove(deletion_timestamp=now_ms, data_change=True))
        if len(rows) >= there:
            removed_files, removed_bytes = removed_files + 1, removed_bytes + add.size
        else:
            kept.append((add, there))
            united.append(rows)
    spread = snapshot.properties.randomize_file_prefixes
    described, written = write_vectors(united, store=log.store, random_folders=spread)
    return VectorOutput(
        removes=tuple(removes),
        adds=tuple(
            add.replace(deletion_vector=vector, stats=loose_stats(add.stats, there), data_change=True)
            for (add, there), vector in zip(kept, described, strict=True)
        ),
        files_written=tuple(written),
        num_deleted_rows=deleted,
        num_removed_files=removed_files,
        removed_bytes=removed_bytes,
    )


def loose_stats(stats: str | None, num_records: int) -> str:
    """Return the statistics of a file with a vector: the row count includes hidden rows, and bounds are not tight.

    Numbers stay as written: decoding a decimal into a float would lose digits. Pure.
    """
    try:
        fields = msgspec.json.decode(stats or "{}", type=dict[str, msgspec.Raw])
    except MALFORMED_JSON:
        fields = {}
    changed: dict[str, Any] = {**fields, "numRecords": num_records, "tightBounds": False}
    return msgspec.json.encode(changed).decode()


def live_rows(adds: Sequence[AddFile], log: DeltaLog, *, by_footer: bool = False) -> int:
    """Count the rows in data files that no deletion vector hides.

    Args:
        adds: The files.
        log: The table's log.
        by_footer: Read the files themselves, ignoring their statistics.

    Raises:
        StorageError: A file cannot be read.
    """
    hidden = sum(add.deletion_vector.cardinality for add in adds if add.deletion_vector is not None)
    return sum(_row_counts(adds, log, by_footer=by_footer)) - hidden


def physical_rows(add: AddFile, log: DeltaLog) -> int:
    """Count the rows in a data file, including hidden ones: from its statistics, or else from its footer.

    Raises:
        StorageError: The file cannot be read.
    """
    return _row_counts([add], log)[0]


def _row_counts(
    adds: Sequence[AddFile],
    log: DeltaLog,
    *,
    by_footer: bool = False,
    least: Sequence[int] | None = None,
    ask: Callable[[Sequence[AddFile]], Sequence[int]] | None = None,
) -> list[int]:
    """Count the rows in each file, reading the footers that are needed in parallel.

    With ``least``, a count below a file's minimum is not trusted: removing the file because of a wrong count would also
    remove rows that are still live.
    """
    counts = [None if by_footer else _recorded_rows(add) for add in adds]
    if least is not None:
        pairs = zip(counts, least, strict=True)
        counts = [None if count is not None and count < needed else count for count, needed in pairs]
    missing = [place for place, count in enumerate(counts) if count is None]
    unknown = [adds[place] for place in missing]
    counted = footer_rows(unknown, log) if ask is None else ask(unknown)
    found = dict(zip(missing, counted, strict=True))
    return [found[place] if count is None else count for place, count in enumerate(counts)]


def footer_rows(adds: Sequence[AddFile], log: DeltaLog) -> list[int]:
    """Count the rows in data files by their footers, read in parallel.

    Raises:
        StorageError: A file cannot be read.
    """

    return count_rows([(add.path, add.size) for add in adds], store=log.store, root=log.uri, options=log.options)


def _recorded_rows(add: AddFile) -> int | None:
    try:
        count = msgspec.json.decode(add.stats or "{}", type=dict[str, msgspec.Raw]).get("numRecords")
        return None if count is None else msgspec.json.decode(count, type=int)
    except MALFORMED_JSON:
        return None
