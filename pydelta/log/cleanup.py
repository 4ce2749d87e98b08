"""Delete the log files that nothing needs any more.

::

    midnight(now) - delta.logRetentionDuration = cutoff
    newest commit not after the cutoff --> newest complete checkpoint at or before it
    that checkpoint is read in full, then everything strictly before it goes; its own commit stays
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Final

from pydelta.errors import LogCorruptedError, ObjectNotFoundError, UnsupportedFeatureError
from pydelta.log.checkpoint.hint import read_hint
from pydelta.log.checkpoint.read import Checkpoint, read_checkpoint
from pydelta.log.history import monotonised_times_ms
from pydelta.log.load import LogReader
from pydelta.log.replay import State, apply_actions, partition_spec
from pydelta.log.segment import CheckpointFiles, Listing, read_listing
from pydelta.log.snapshot import Snapshot
from pydelta.protocol.features import supports
from pydelta.protocol.paths import LOG_DIR, SIDECAR_DIR, LogFileKind, parse_log_name
from pydelta.storage.interface import DeleteReport, ObjectInfo, Store

__all__ = ["CleanupPlan", "CleanupResult", "clean_up", "plan_cleanup"]

_DAY_MS: Final = 86_400_000
_TOGETHER: Final = 1000
"""Files in one request, where a store deletes many with one."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupPlan:
    """What would be deleted.

    Args:
        checkpoint: The checkpoint that must be readable for any of it to go.
        names: Paths of commits, compactions, checksums and old checkpoints, commits first.
    """

    checkpoint: CheckpointFiles
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupResult:
    """What was deleted.

    Args:
        deleted: Number of files.
        cutoff_ms: Commits after this time stay, epoch milliseconds.
        oldest_version: Oldest version that can still be read; None when nothing was to be done.
        failed: Files that could not be deleted and why.
    """

    deleted: int
    cutoff_ms: int
    oldest_version: int | None = None
    failed: tuple[tuple[str, str], ...] = ()


def cutoff_ms(now_ms: int, retention_ms: int) -> int:
    """Midnight UTC of the day that lies the retention back."""
    return (now_ms - retention_ms) // _DAY_MS * _DAY_MS


def plan_cleanup(objects: list[ObjectInfo], *, cutoff: int) -> CleanupPlan | None:
    """Choose by the rules of "Metadata Cleanup". Pure.

    Args:
        objects: The whole listing of the log directory.
        cutoff: Epoch milliseconds.

    Returns:
        None when no complete checkpoint lies at or before the newest commit not after the cutoff.
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
    """The whole listing; nothing when its first commit is too young, since the times of later ones only grow.

    So that a clean-up that has nothing to do, as nearly all have, lists one name and not the whole log.
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
    """Delete what ``plan_cleanup`` chooses, after the checkpoint it leans on was read in full.

    Args:
        reader: Of the table's log.
        snapshot: The newest one, for the table's properties.
        now_ms: The clock, epoch milliseconds; None for now.
        retention_ms: How long the log is kept; None for ``delta.logRetentionDuration``.
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
    sidecars = _unused_sidecars(reader, anchor, now) if _may_have_sidecars(snapshot) and tried else []
    more = reader.store.delete_many(sidecars) if sidecars else None
    return CleanupResult(
        deleted=deleted + (more.deleted if more else 0),
        cutoff_ms=cutoff,
        oldest_version=plan.checkpoint.version,
        failed=(*not_deleted, *(more.failed if more else ())),
    )


def _delete_oldest_first(store: Store, names: list[str]) -> list[DeleteReport]:
    """Delete in this order, and no further than what cannot be deleted.

    While a version's commit is there, so is every later one: a transaction that took long relies on it.
    """
    reports: list[DeleteReport] = []
    for at in range(0, len(names), _TOGETHER):
        reports.append(store.delete_many(names[at : at + _TOGETHER]))
        if reports[-1].failed:
            break
    return reports


def _protected_before(snapshot: Snapshot) -> int:
    """The version before which nothing may go, unless all of it goes at once ("Checkpoint Protection")."""
    protocol, metadata = snapshot.protocol, snapshot.metadata
    if protocol is None or metadata is None or not supports(protocol, "checkpointProtection"):
        return 0
    text = metadata.configuration.get("delta.requireCheckpointProtectionBeforeVersion", "0").strip()
    return int(text) if text.isdigit() else snapshot.version + 1


def _read_in_full(reader: LogReader, files: CheckpointFiles) -> Checkpoint:
    """The checkpoint, once everything of it that no commit will tell any more was read: state, files, tombstones.

    Raises:
        LogCorruptedError: It is damaged, or holds no protocol or metadata.
        UnsupportedFeatureError: It asks for what this engine cannot read, so that it cannot be told.
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
    """Whether ``_last_checkpoint`` names this version or a later one.

    Who writes a checkpoint that names sidecars of an earlier one puts the hint once it is sure that they stay. One that
    its writer has not got to yet, or died before, may lose them: nothing may lean on it.
    """
    hint = read_hint(reader.store)
    return hint is not None and hint.version >= anchor.version


def _unused_sidecars(reader: LogReader, anchor: Checkpoint, now: int) -> list[str]:
    """Sidecars that no checkpoint names and that are older than a day as of midnight UTC.

    The checkpoints are those that are there now, after some were deleted: one that was written meanwhile may name
    sidecars of those.
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
        except (LogCorruptedError, ObjectNotFoundError) as error:  # what it names is not known: keep them all
            _logger.warning("Sidecars are kept: %s", error.message, extra={"table": reader.root})
            return []
    return [path for path in candidates if path.rsplit("/", 1)[-1] not in used]
