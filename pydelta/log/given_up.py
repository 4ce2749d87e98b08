"""Give up the versions before a checkpoint, for an erasure: delete their files, or put a marker in their place.

::

    checkpoints, sidecars, checksums, compactions before the version --> deleted
    commits older than any transaction that still runs               --> deleted
    younger commits                                                  --> a marker: what the history shows, a protocol

If a young commit were deleted, a transaction that began before it could take its version again: the store would accept
a commit that no reader ever sees. A marker keeps the version taken. Its protocol names a table feature that no engine
supports, so a transaction that meets it is refused, as by any change of the protocol, and a reader that replays it
fails instead of showing a state without the files. Its change file does not exist, so that a reader of the change feed
fails, too.

Protocol: "Protocol Evolution", "Valid Feature Names", "Add CDC File".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pydelta.errors import LogCorruptedError, ObjectNotFoundError, VersionNotFoundError
from pydelta.errors.conditions import Condition
from pydelta.log.replay import read_commit
from pydelta.log.segment import CheckpointFiles, CommitFile
from pydelta.protocol.actions import Action, AddCDCFile, CommitInfo, Protocol, encode_commit
from pydelta.protocol.features import GIVEN_UP
from pydelta.protocol.paths import LOG_DIR, LogFileKind, commit_file, parse_log_name
from pydelta.storage.interface import ObjectInfo, Store

__all__ = [
    "GIVEN_UP_END",
    "GIVEN_UP_FILE",
    "GivenUp",
    "GivenUpPlan",
    "give_up",
    "given_up_error",
    "is_given_up",
    "marker",
    "plan_giving_up",
]

GIVEN_UP_FILE: Final = "_change_data/given-up"
"""Path of the change file that a marker names. It does not exist."""
GIVEN_UP_END: Final = "ERASE END"
"""Operation of the commit after versions were given up. A process that meets it reads the log from the start again."""
_SHOWN: Final = ("timestamp", "inCommitTimestamp", "operation", "txnId", "engineInfo")
"""What a marker keeps of a commit's provenance: nothing that can hold a value of a row."""
_TOGETHER: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUpPlan:
    """The files of versions that are given up.

    Args:
        others: Paths of checkpoints, their sidecars, checksums and compactions.
        old: Paths of commits to delete, oldest first.
        young: Versions whose commit gets a marker, oldest first.
    """

    others: tuple[str, ...] = ()
    old: tuple[str, ...] = ()
    young: tuple[int, ...] = ()

    @property
    def num_files(self) -> int:
        """Number of files that are deleted or replaced."""
        return len(self.others) + len(self.old) + len(self.young)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """What became of the files.

    Args:
        deleted: Number of deleted files.
        marked: Number of commits that have a marker now.
        failed: Files that are still there, with the reason.
    """

    deleted: int = 0
    marked: int = 0
    failed: tuple[tuple[str, str], ...] = ()


def plan_giving_up(
    objects: Iterable[ObjectInfo],
    *,
    before: int,
    young_since_ms: int,
    kept: CheckpointFiles,
    sidecars: Iterable[ObjectInfo] = (),
    named: Collection[str] = (),
) -> GivenUpPlan:
    """Choose what happens to the files of versions before a checkpoint. Pure.

    Args:
        objects: The listing of the log directory.
        before: The version of the checkpoint, which stays.
        young_since_ms: Commits since then, in epoch milliseconds, get a marker.
        kept: The checkpoint. Others of its version are deleted.
        sidecars: The listing of the folder of sidecars.
        named: Paths of the checkpoint's sidecars. Those that are older than its commit and not among them are deleted;
            younger ones may be those of a checkpoint that another process is writing.
    """
    objects = list(objects)
    staying = {info.path for info in kept.files}
    others: list[str] = []
    begun_ms = next(
        (info.modification_time_ms for info in objects if info.path == f"{LOG_DIR}/{commit_file(before)}"), 0
    )
    old: list[tuple[int, str]] = []
    young: list[int] = []
    for info in objects:
        file = parse_log_name(info.path.rsplit("/", 1)[-1])
        if file is None:
            continue
        if file.kind is LogFileKind.COMMIT:
            if file.version >= before:
                continue
            if info.modification_time_ms >= young_since_ms:
                young.append(file.version)
            else:
                old.append((file.version, info.path))
        elif file.kind is LogFileKind.COMPACTED:
            if file.version <= before:  # Its version is the first that it holds.
                others.append(info.path)
        elif file.kind is LogFileKind.CHECKSUM:
            if file.version < before:
                others.append(info.path)
        elif file.version < before or (file.version == before and info.path not in staying):
            others.append(info.path)
    others += [info.path for info in sidecars if info.path not in named and info.modification_time_ms < begun_ms]
    return GivenUpPlan(others=tuple(others), old=tuple(path for _, path in sorted(old)), young=tuple(sorted(young)))


def marker(info: CommitInfo | None) -> bytes:
    """Return the bytes of the commit that takes the place of one that is given up.

    Args:
        info: Its provenance, of which the time, the operation and the transaction's id stay.
    """
    fields = {} if info is None else {name: info.get(name) for name in _SHOWN if info.get(name) is not None}
    features = (GIVEN_UP,)
    return encode_commit(
        [
            CommitInfo(fields={**fields, "operationParameters": {}}),
            Protocol(min_reader_version=3, min_writer_version=7, reader_features=features, writer_features=features),
            AddCDCFile(path=GIVEN_UP_FILE, partition_values={}, size=0, data_change=False),
        ]
    )


def is_given_up(actions: Sequence[Action]) -> bool:
    """Return whether a commit is a marker."""
    return len(actions) <= 3 and any(
        isinstance(action, Protocol) and GIVEN_UP in (action.reader_features or ()) for action in actions
    )


def given_up_error(version: int | None = None) -> VersionNotFoundError:
    """Return the error of a version that was given up."""
    return VersionNotFoundError(
        f"{'This version' if version is None else f'Version {version}'} was given up by an erasure.",
        hint="Its rows cannot be read any more. Read the newest version.",
        condition=Condition.of("DELTA_VERSION_NOT_FOUND", userVersion="" if version is None else version),
    )


def give_up(store: Store, plan: GivenUpPlan) -> GivenUp:
    """Delete and replace the files of a plan. A repetition continues after an interruption.

    The commits go last, so that a checkpoint before them cannot be read together with a part of them.

    Raises:
        StorageError: The store failed. Files may be left.
    """
    deleted, failed = 0, list[tuple[str, str]]()
    for paths in (plan.others, plan.old):
        for at in range(0, len(paths), _TOGETHER):
            report = store.delete_many(paths[at : at + _TOGETHER])
            deleted += report.deleted
            failed += report.failed
        if failed:
            return GivenUp(deleted=deleted, failed=tuple(failed))
    marked = 0
    for version in plan.young:
        path = f"{LOG_DIR}/{commit_file(version)}"
        info = ObjectInfo(path=path, size=0, modification_time_ms=0)
        try:
            actions = read_commit(store, CommitFile(start=version, end=version, info=info))
        except ObjectNotFoundError:
            continue
        except LogCorruptedError:
            actions = ()
        if not is_given_up(actions):
            store.put(path, marker(next((item for item in actions if isinstance(item, CommitInfo)), None)))
            marked += 1
    return GivenUp(deleted=deleted, marked=marked)
