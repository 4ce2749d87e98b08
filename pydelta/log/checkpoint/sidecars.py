"""Choose the sidecars of the previous checkpoint to reuse, so that the next one costs only what changed since.

::

    checkpoint 100   a (all live)   b (a file of it is removed)   c (small, all live)
    since then       3 files removed, 20 added
    checkpoint 110   a reused       b' without the removed files + the 20 new ones + c

A sidecar whose rows are all unchanged is reused, unless it is small compared to what is written anyway. So each row is
rewritten only a few times while its sidecar grows, and the number of sidecars stays small. docs/adr/0029-large-logs.md
explains when this is safe next to a clean-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pydelta.log.checkpoint.read import PART_BITS, Checkpoint, sidecar_name
from pydelta.log.deltas import DELTA_BIT
from pydelta.log.segment import CheckpointFiles, Listing
from pydelta.log.side_files import CheckpointHint
from pydelta.log.snapshot import Snapshot
from pydelta.protocol.actions import Sidecar
from pydelta.protocol.paths import LOG_DIR, LogFileKind

__all__ = [
    "FULL_ACTIONS",
    "KeptSidecars",
    "SidecarRows",
    "choose_kept",
    "is_newest_but_for",
    "kept_sidecars",
    "settled_base",
]

FULL_ACTIONS: Final = 25_000
"""A sidecar with this many rows is not merged further."""
_MUCH_LARGER: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarRows:
    """The state of a sidecar's rows.

    Args:
        rows: Number of adds and removes in it.
        is_as_written: Whether all its adds are live, all its removes still apply, and its columns are those of the next
            checkpoint.
        expired: Removes that the next checkpoint may omit.
    """

    rows: int
    is_as_written: bool
    expired: int = 0


def choose_kept(sidecars: Sequence[SidecarRows], *, new_rows: int) -> frozenset[int]:
    """Choose the numbers of the sidecars to reuse. Pure.

    Args:
        sidecars: Those of the previous checkpoint.
        new_rows: Rows of the commits since then.

    Example:
        >>> full, small = SidecarRows(rows=30_000, is_as_written=True), SidecarRows(rows=10, is_as_written=True)
        >>> sorted(choose_kept([full, small], new_rows=20))
        [0]
    """
    kept = {
        number for number, one in enumerate(sidecars) if one.is_as_written and one.rows and one.expired * 2 <= one.rows
    }
    pending = new_rows + sum(one.rows for number, one in enumerate(sidecars) if number not in kept)
    small = sorted((number for number in kept if sidecars[number].rows < FULL_ACTIONS), key=lambda n: sidecars[n].rows)
    for number in small:
        if sidecars[number].rows > pending * _MUCH_LARGER:
            break
        kept.discard(number)
        pending += sidecars[number].rows
    return frozenset(kept)


def settled_base(
    listing: Listing, hint: CheckpointHint | None, *, version: int, now_ms: int, retention_ms: int
) -> CheckpointFiles | None:
    """Return the checkpoint whose sidecars may be reused, provided no clean-up can delete it. Pure.

    Args:
        listing: The log's listing.
        hint: ``_last_checkpoint``. The writer of that checkpoint verified that the files it names stay.
        version: Version of the checkpoint to write.
        now_ms: Current time, epoch milliseconds.
        retention_ms: Minimum retention of checkpoints. Nobody deletes one within half of it.
    """
    newest = listing.checkpoints[0] if listing.checkpoints else None
    if newest is None or newest.kind is not LogFileKind.CHECKPOINT_V2 or newest.version >= version:
        return None
    if hint is None or hint.v2 is None or newest.name != f"{LOG_DIR}/{hint.v2.name}":
        return None
    age_ms = abs(now_ms - newest.files[0].modification_time_ms)
    return newest if age_ms * 2 < retention_ms else None


def is_newest_but_for(listing: Listing, own: str, named_by: str) -> bool:
    """Return whether a checkpoint is the newest one besides ``own``, which was written on top of it. Pure.

    A clean-up deletes a checkpoint only if it lists a newer one. So while this one is the newest besides ``own``, any
    later clean-up that deletes it also lists ``own`` and keeps the files that ``own`` names.
    """
    others = [checkpoint.name for checkpoint in listing.checkpoints if checkpoint.name != own]
    return bool(others) and others[0] == named_by


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSidecars:
    """The sidecars to reuse.

    Args:
        named_by: The checkpoint that already names them.
        parts: Their numbers among its parts.
        sidecars: Their actions.
        num_adds: Live files in them.
        num_removes: Tombstones in them.
        size_bytes: Bytes of the live files.
    """

    named_by: str
    parts: frozenset[int]
    sidecars: tuple[Sidecar, ...]
    num_adds: int
    num_removes: int
    size_bytes: int

    @property
    def names(self) -> frozenset[str]:
        """File names of the sidecars."""
        return frozenset(map(sidecar_name, self.sidecars))


def kept_sidecars(
    snapshot: Snapshot, schema: pa.Schema, *, expired_before_ms: int, named_by: Checkpoint
) -> KeptSidecars | None:
    """Compute which sidecars the next checkpoint of a snapshot may reuse, or return None.

    Args:
        snapshot: The snapshot to write.
        schema: Schema of the sidecars to write.
        expired_before_ms: Tombstones removed at or before this time are not needed.
        named_by: The newest checkpoint of the log. Only sidecars that it names are reused.
    """
    base, _ = snapshot.files.layers()
    if base is None or not base.sidecars:
        return None
    named = frozenset(named_by.sidecar_names)
    files, tombstones = snapshot.files, snapshot.tombstones()
    count = len(base.parts)
    adds_before, adds, bytes_live = files.by_part()
    new_adds = files.new_rows().height
    gone_at = _parts_of(tombstones["row"].to_numpy())
    removes, removes_before = _counts(gone_at, count), _counts(_parts_of(base.tombstones()["row"].to_numpy()), count)
    old = (tombstones["deletion_timestamp"].fill_null(0) <= expired_before_ms).to_numpy()
    expired = _counts(gone_at[old], count)
    first = count - len(base.sidecars)
    rows = [
        SidecarRows(
            rows=int(adds_before[part] + removes_before[part]),
            is_as_written=bool(adds[part] == adds_before[part] and removes[part] == removes_before[part])
            and base.sidecar_names[part - first] in named
            and _same_columns(base, part, schema),
            expired=int(expired[part]),
        )
        for part in range(first, count)
    ]
    kept = choose_kept(rows, new_rows=int(new_adds + (gone_at < 0).sum()))
    if not kept:
        return None
    parts = frozenset(first + number for number in kept)
    return KeptSidecars(
        named_by=named_by.name,
        parts=parts,
        sidecars=tuple(base.sidecars[number] for number in sorted(kept)),
        num_adds=int(sum(adds[part] for part in parts)),
        num_removes=int(sum(removes[part] for part in parts)),
        size_bytes=int(sum(bytes_live[part] for part in parts)),
    )


def _parts_of(rows: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the part of each row, or -1 for rows of commits."""
    parts = (rows >> np.uint64(PART_BITS)).astype(np.int64)
    return np.where((rows & np.uint64(DELTA_BIT)) != 0, -1, parts)


def _counts(parts: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    return np.bincount(parts[parts >= 0], minlength=count)


def _same_columns(base: Checkpoint, part: int, schema: pa.Schema) -> bool:
    return bool(base.parts[part].schema.remove_metadata().equals(schema.remove_metadata()))
