"""Delete expired log files that no version within the retention needs.

::

    midnight(now) - delta.logRetentionDuration = cutoff
    newest commit not after the cutoff --> newest complete checkpoint at or before it
    that checkpoint is read in full, then everything strictly before it is deleted; its own commit stays
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Final

from pydelta.errors import LogCorruptedError, ObjectNotFoundError, UnsupportedFeatureError
from pydelta.log.checkpoint.read import Checkpoint, read_checkpoint
from pydelta.log.history import monotonised_times_ms
from pydelta.log.load import LogReader
from pydelta.log.replay import State, apply_actions, partition_spec
from pydelta.log.segment import CheckpointFiles, Listing, read_listing
from pydelta.log.side_files import read_hint
from pydelta.log.snapshot import Snapshot
from pydelta.protocol.features import supports
from pydelta.protocol.paths import LOG_DIR, SIDECAR_DIR, LogFileKind, parse_log_name
from pydelta.storage.interface import DeleteReport, ObjectInfo, Store
from pydelta.storage.pages import unfinished

__all__ = ["CleanupPlan", "CleanupResult", "clean_up", "plan_cleanup"]

_DAY_MS: Final = 86_400_000
_TOGETHER: Final = 1000
"""Number of files per request for stores that delete many at once."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupPlan:
    """The files to delete.

    Args:
        checkpoint: The checkpoint that must be readable before anything is deleted.
        names: Paths of commits, compactions, checksums and old checkpoints, commits first.
    """

    checkpoint: CheckpointFiles
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupResult:
    """The outcome of a clean-up.

    Args:
        deleted: Number of files.
        cutoff_ms: Commits after this time stay, epoch milliseconds.
        oldest_version: Oldest version that can still be read; None if there was nothing to do.
        failed: Files that could not be deleted and why.
    """

    deleted: int
    cutoff_ms: int
    oldest_version: int | None = None
    failed: tuple[tuple[str, str], ...] = ()


def cutoff_ms(now_ms: int, retention_ms: int) -> int:
    """Return midnight UTC of the day on which the retention began."""
    return (now_ms - retention_ms) // _DAY_MS * _DAY_MS


def plan_cleanup(objects: list[ObjectInfo], *, cutoff: int) -> CleanupPlan | None:
    """Choose the files to delete by the rules of "Metadata Cleanup". Pure.

    Args:
        objects: The full listing of the log directory.
        cutoff: Epoch milliseconds.

    Returns:
        None if no complete checkpoint lies at or before the newest commit not after the cutoff.
    """
    listing = read_listing(objects)
    times = monotonised_times_ms(sorted(listing.commits.items()))
    expired = [version for version, at in times.items() if at <= cutoff]
    if not expired:
        return None
    anchor = _anchor(listing, max(expired))
    if anchor is None:
        return None
    commits: list[str] = []
    others: list[str] = []
    for info in objects:
        file = parse_log_name(info.path.rsplit("/", 1)[-1])
        if file is None:
            continue
        if file.kind is LogFileKind.COMPACTED:
            if file.version <= anchor.version:
                commits.append(info.path)
        elif file.version < anchor.version:
            (commits if file.kind is LogFileKind.COMMIT else others).append(info.path)
    return CleanupPlan(checkpoint=anchor, names=(*commits, *others))


def _anchor(listing: Listing, newest_expired: int) -> CheckpointFiles | None:
    return next((c for c in listing.checkpoints if c.version <= newest_expired and c.version in listing.commits), None)


def _list_if_expired(reader: LogReader, cutoff: int) -> list[ObjectInfo]:
    """List the whole log, but return nothing if its first commit is too young, because times only increase.

    Nearly all clean-ups have nothing to do. They list one name instead of the whole log.
    """
    objects: list[ObjectInfo] = []
    first = True
    for info in reader.store.list_from("", prefix=LOG_DIR):
        file = parse_log_name(info.path.rsplit("/", 1)[-1])
        if first and file is not None and file.kind is LogFileKind.COMMIT:
            if info.modification_time_ms > cutoff:
                return []
            first = False
        objects.append(info)
    return objects


def clean_up(
    reader: LogReader, snapshot: Snapshot, *, now_ms: int | None = None, retention_ms: int | None = None
) -> CleanupResult:
    """Delete the files that ``plan_cleanup`` chooses, after reading in full the checkpoint that replaces them.

    Args:
        reader: Reader of the table's log.
        snapshot: The newest snapshot, for the table's properties.
        now_ms: Current time, epoch milliseconds; None reads the clock.
        retention_ms: Retention of the log; None for ``delta.logRetentionDuration``.
    """
    now = int(time.time() * 1000) if now_ms is None else now_ms
    retention = snapshot.properties.log_retention_ms if retention_ms is None else retention_ms
    cutoff = cutoff_ms(now, retention)
    nothing = CleanupResult(deleted=0, cutoff_ms=cutoff)
    protocol = snapshot.protocol
    if protocol is None or supports(protocol, "catalogManaged"):
        return nothing
    objects = _list_if_expired(reader, cutoff)
    plan = plan_cleanup(objects, cutoff=cutoff)
    if plan is None or plan.checkpoint.version < _protected_before(snapshot):
        return nothing
    try:
        anchor = _read_in_full(reader, plan.checkpoint)
    except (LogCorruptedError, UnsupportedFeatureError) as error:
        _logger.warning("Log clean-up does nothing: %s", error.message, extra={"table": reader.root})
        return nothing
    if anchor.sidecars and not _is_settled(reader, anchor):
        return nothing
    names = list(plan.names)
    reports = _delete_oldest_first(reader.store, names)
    deleted = sum(report.deleted for report in reports)
    not_deleted = [item for report in reports for item in report.failed]
    tried = names[: deleted + len(not_deleted)]
    unused = _unused_sidecars(reader, anchor, now) if _may_have_sidecars(snapshot) and tried else []
    unused += _abandoned(reader.store, cutoff) if tried else []
    more = reader.store.delete_many(unused) if unused else None
    return CleanupResult(
        deleted=deleted + (more.deleted if more else 0),
        cutoff_ms=cutoff,
        oldest_version=plan.checkpoint.version,
        failed=(*not_deleted, *(more.failed if more else ())),
    )


def _abandoned(store: Store, cutoff: int) -> list[str]:
    """Return files of the log that a writer began before the cut-off and never finished."""
    folders = (LOG_DIR, SIDECAR_DIR)
    return [info.path for folder in folders for info in unfinished(store, folder) if info.modification_time_ms < cutoff]


def _delete_oldest_first(store: Store, names: list[str]) -> list[DeleteReport]:
    """Delete in this order and stop after a request with failures.

    While a version's commit exists, so do all later ones. Long transactions rely on that.
    """
    reports: list[DeleteReport] = []
    for at in range(0, len(names), _TOGETHER):
        reports.append(store.delete_many(names[at : at + _TOGETHER]))
        if reports[-1].failed:
            break
    return reports


def _protected_before(snapshot: Snapshot) -> int:
    """Return the version before which files may only be deleted all at once ("Checkpoint Protection")."""
    protocol, metadata = snapshot.protocol, snapshot.metadata
    if protocol is None or metadata is None or not supports(protocol, "checkpointProtection"):
        return 0
    text = metadata.configuration.get("delta.requireCheckpointProtectionBeforeVersion", "0").strip()
    return int(text) if text.isdigit() else snapshot.version + 1


def _read_in_full(reader: LogReader, files: CheckpointFiles) -> Checkpoint:
    """Read everything of a checkpoint that deleted commits could no longer provide: state, files, tombstones.

    Raises:
        LogCorruptedError: It is damaged, or holds no protocol or metadata.
        UnsupportedFeatureError: It needs features that this engine cannot read, so it cannot be verified.
    """
    found = read_checkpoint(reader.store, files)
    state = apply_actions(State(), found.state)
    reader.check(state)
    for _ in found.core_batches(partition_spec(state).physical_names):
        pass
    found.tombstones()
    return found


def _may_have_sidecars(snapshot: Snapshot) -> bool:
    return snapshot.protocol is not None and supports(snapshot.protocol, "v2Checkpoint")


def _is_settled(reader: LogReader, anchor: Checkpoint) -> bool:
    """Return whether ``_last_checkpoint`` names this version or a later one.

    The writer of a checkpoint that reuses older sidecars updates the hint once they are certain to stay. Until then, or
    if the writer died, the checkpoint may lose them, so nothing may depend on it.
    """
    hint = read_hint(reader.store)
    return hint is not None and hint.version >= anchor.version


def _unused_sidecars(reader: LogReader, anchor: Checkpoint, now: int) -> list[str]:
    """Return sidecars that no checkpoint names and that are older than a day, counted from midnight UTC.

    Checkpoints are listed after the deletion, because one written in between may name sidecars of the deleted ones.
    """
    before = now // _DAY_MS * _DAY_MS - _DAY_MS
    candidates = [info.path for info in reader.store.list_from("", prefix=SIDECAR_DIR)
                  if info.modification_time_ms < before]  # fmt: skip
    if not candidates:
        return []
    used: set[str] = set(anchor.sidecar_names)
    for files in reader.listing().checkpoints:
        if files.kind is LogFileKind.CHECKPOINT_PART:
            continue
        try:
            used.update(read_checkpoint(reader.store, files, unopened=None).sidecar_names)
        except (LogCorruptedError, ObjectNotFoundError) as error:  # Its sidecars are unknown, so all are kept.
            _logger.warning("Sidecars are kept: %s", error.message, extra={"table": reader.root})
            return []
    return [path for path in candidates if path.rsplit("/", 1)[-1] not in used]
