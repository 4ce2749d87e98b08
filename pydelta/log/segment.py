"""Choose the files of ``_delta_log`` that make up one version. Pure: no file is read.

::

    listing --> complete checkpoints <= version --> newest one (not excluded)
            --> commits after it, no gaps        --> compacted files where they replace whole runs
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pydelta.errors import LogCorruptedError, LogGapError
from pydelta.errors.conditions import Condition
from pydelta.protocol.paths import LogFile, LogFileKind, parse_log_name
from pydelta.storage.interface import ObjectInfo

__all__ = ["CheckpointFiles", "CommitFile", "Listing", "LogSegment", "plan_segment", "read_listing"]

_MISSING_SHOWN = 10
_MISSING_LISTED = 1_000  # A stray file with a huge version must not produce a huge list.


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFile:
    """A commit ``start..end`` to replay: one version's commit, or a compacted file over several.

    Args:
        start: First version in it.
        end: Last version in it; equal to ``start`` for a commit.
        info: The object in the store.
    """

    start: int
    end: int
    info: ObjectInfo

    @property
    def is_compacted(self) -> bool:
        """Whether it replaces a run of commits."""
        return self.end > self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFiles:
    """One complete checkpoint: its version and its top-level files (several only if multi-part)."""

    version: int
    kind: LogFileKind
    files: tuple[ObjectInfo, ...]

    @property
    def name(self) -> str:
        """Path of the first file, which identifies the checkpoint in messages and exclusions."""
        return self.files[0].path


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A listing of the log directory, grouped by kind.

    Args:
        commits: Commit files by version.
        checkpoints: Complete checkpoints, newest first. Within a version, the kinds that are cheapest to read come
            first.
        compacted: Compacted files by their first version, longest first.
        checksums: Versions that have a ``.crc``.
    """

    commits: dict[int, ObjectInfo]
    checkpoints: tuple[CheckpointFiles, ...]
    compacted: dict[int, tuple[CommitFile, ...]]
    checksums: frozenset[int]

    @property
    def is_empty(self) -> bool:
        """Whether there is no commit and no complete checkpoint."""
        return not self.commits and not self.checkpoints

    @property
    def last_version(self) -> int:
        """Newest version of a commit or checkpoint; -1 if there is none."""
        newest_checkpoint = self.checkpoints[0].version if self.checkpoints else -1
        return max(max(self.commits, default=-1), newest_checkpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSegment:
    """The files that make up ``version``: a checkpoint (or none), then commits in ascending order without gaps.

    Args:
        version: The version.
        checkpoint: The start of replay; None starts from nothing at version 0.
        commits: The commits to apply on top, oldest first.
        last_commit: The commit file of ``version``, for its time.
        commit_times_ms: Modification times of the listed commits from the checkpoint on, by version.
        has_checksum: Whether ``version`` has a ``.crc``.
    """

    version: int
    checkpoint: CheckpointFiles | None
    commits: tuple[CommitFile, ...]
    last_commit: ObjectInfo
    commit_times_ms: tuple[tuple[int, int], ...] = ()
    has_checksum: bool = False

    @property
    def checkpoint_version(self) -> int:
        """Version of the checkpoint; -1 without one."""
        return self.checkpoint.version if self.checkpoint else -1

    @property
    def timestamp_ms(self) -> int:
        """Modification time of the last commit, moved forward so that versions never go back in time."""
        latest: int | None = None
        for _, time_ms in self.commit_times_ms:
            latest = time_ms if latest is None else max(time_ms, latest + 1)
        return self.last_commit.modification_time_ms if latest is None else latest


def _name(info: ObjectInfo) -> str:
    return info.path.rsplit("/", 1)[-1]


def read_listing(objects: Iterable[ObjectInfo]) -> Listing:
    """Group listed objects by the kind in their names. Names that the protocol does not define are ignored.

    A multi-part checkpoint counts only if all parts exist, as "Checkpoints" requires of readers.
    """
    commits: dict[int, ObjectInfo] = {}
    complete: list[CheckpointFiles] = []
    parts: dict[tuple[int, int], dict[int, ObjectInfo]] = {}
    compacted: dict[int, list[CommitFile]] = {}
    checksums: set[int] = set()
    for info in objects:
        file: LogFile | None = parse_log_name(_name(info))
        if file is None:
            continue
        if file.kind is LogFileKind.COMMIT:
            commits[file.version] = info
        elif file.kind is LogFileKind.CHECKSUM:
            checksums.add(file.version)
        elif file.kind is LogFileKind.COMPACTED:
            if file.end_version is not None and file.end_version > file.version:
                run = CommitFile(start=file.version, end=file.end_version, info=info)
                compacted.setdefault(file.version, []).append(run)
        elif file.kind is LogFileKind.CHECKPOINT_PART:
            if file.part is not None and file.parts is not None and 1 <= file.part <= file.parts:
                parts.setdefault((file.version, file.parts), {})[file.part] = info
        elif info.size > 0:
            complete.append(CheckpointFiles(version=file.version, kind=file.kind, files=(info,)))
    for (version, count), found in parts.items():
        if len(found) == count:
            files = tuple(found[number] for number in range(1, count + 1))
            complete.append(CheckpointFiles(version=version, kind=LogFileKind.CHECKPOINT_PART, files=files))
    complete.sort(key=_preference, reverse=True)
    return Listing(
        commits=commits,
        checkpoints=tuple(complete),
        compacted={start: tuple(sorted(runs, key=lambda run: -run.end)) for start, runs in compacted.items()},
        checksums=frozenset(checksums),
    )


def _preference(checkpoint: CheckpointFiles) -> tuple[int, int, str]:
    rank = {
        LogFileKind.CHECKPOINT_V2: 2,
        LogFileKind.CHECKPOINT_CLASSIC: 1,
        LogFileKind.CHECKPOINT_PART: 0,
    }
    return (checkpoint.version, rank.get(checkpoint.kind, -1), checkpoint.name)


def plan_segment(
    listing: Listing, *, version: int | None = None, excluded: Collection[str] = frozenset()
) -> LogSegment | None:
    """Choose the files that make up ``version``.

    Args:
        listing: The log directory, at least from the newest usable checkpoint on.
        version: The requested version; None for the newest.
        excluded: Paths of checkpoints and compacted files found to be unusable.

    Returns:
        The segment, or None if the listing has no commit or checkpoint at or below ``version``.

    Raises:
        LogGapError: Versions between the start of replay and ``version`` are missing. The error lists them.
        LogCorruptedError: The commit of ``version`` is missing although its checkpoint exists.

    Protocol: "Delta Log Entries" (versions are contiguous), "Checkpoints", "Log Compaction Files".
    """
    target = listing.last_version if version is None else version
    usable = [c for c in listing.checkpoints if c.version <= target and c.name not in excluded]
    checkpoint = usable[0] if usable else None
    first = checkpoint.version + 1 if checkpoint else 0
    if target < 0 or (checkpoint is None and not listing.checkpoints and min(listing.commits, default=0) > target):
        return None
    absent = (number for number in range(first, target + 1) if number not in listing.commits)
    missing = list(itertools.islice(absent, _MISSING_LISTED))
    if missing:
        raise _gap_error(missing, checkpoint=checkpoint, target=target)
    last_commit = listing.commits.get(target)
    if last_commit is None:
        raise LogCorruptedError(
            f"Checkpoint {checkpoint.name if checkpoint else ''} is of version {target}, but the commit file of "
            f"version {target} is missing, so nothing shows whether that version is the newest.",
            hint="Restore the newest commit files of _delta_log from a backup.",
            version=target,
        )
    times = tuple(
        (number, listing.commits[number].modification_time_ms)
        for number in range(max(first - 1, 0), target + 1)
        if number in listing.commits
    )
    return LogSegment(
        version=target,
        checkpoint=checkpoint,
        commits=_cover(listing, first=first, last=target, excluded=excluded),
        last_commit=last_commit,
        commit_times_ms=times,
        has_checksum=target in listing.checksums,
    )


def _cover(listing: Listing, *, first: int, last: int, excluded: Collection[str]) -> tuple[CommitFile, ...]:
    """Cover commits ``first..last``, using the longest usable compacted file wherever one fits."""
    chosen: list[CommitFile] = []
    number = first
    while number <= last:
        run = next(
            (
                run
                for run in listing.compacted.get(number, ())
                if run.end <= last and run.info.path not in excluded and run.info.size > 0
            ),
            None,
        )
        if run is None:
            run = CommitFile(start=number, end=number, info=listing.commits[number])
        chosen.append(run)
        number = run.end + 1
    return tuple(chosen)


def _gap_error(missing: list[int], *, checkpoint: CheckpointFiles | None, target: int) -> LogGapError:
    shown = ", ".join(str(number) for number in missing[:_MISSING_SHOWN])
    more = f" and {len(missing) - _MISSING_SHOWN} more" if len(missing) > _MISSING_SHOWN else ""
    base = f"the checkpoint of version {checkpoint.version}" if checkpoint else "an empty table"
    plural = "s" if len(missing) > 1 else ""
    return LogGapError(
        f"Version {target} cannot be rebuilt: replay starts from {base}, and the commit{plural} of "
        f"version{plural} {shown}{more} {'are' if len(missing) > 1 else 'is'} missing from _delta_log.",
        missing_versions=missing,
        hint="Restore the missing commit files from a backup. Without them only versions before the hole, "
        "or from a later checkpoint on, can be read.",
        version=target,
        condition=Condition.of(
            "DELTA_VERSIONS_NOT_CONTIGUOUS",
            versionList=missing,
            startVersion=base,
            endVersion=target,
            versionToLoad=target,
        ),
    )
