"""Read the records of a log's commits (version, time, provenance), and convert between times and versions.

Times are the commit files' modification times, moved forward if a clock went back. From the version that enabled them
on, they are in-commit timestamps ("In-Commit Timestamps").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from pydelta.errors import LogCorruptedError, VersionNotFoundError
from pydelta.errors.conditions import Condition
from pydelta.log.segment import Listing, read_listing
from pydelta.log.times import utc_time
from pydelta.protocol.actions import CommitInfo, Metadata, Protocol, decode_commit
from pydelta.protocol.features import ensure_readable, supports
from pydelta.protocol.malformed import MALFORMED_JSON
from pydelta.protocol.paths import LOG_DIR
from pydelta.settings import TableProperties
from pydelta.storage.interface import ObjectInfo, Store
from pydelta.storage.readers import read_all
from pydelta.storage.whole import read_listed

__all__ = ["CommitRecord", "CommitTimes", "commit_times", "history_of_commits", "read_commit_info", "read_history"]

_HEAD_BYTES: Final = 64 * 1024
"""More than a first line needs. A commit up to this size is read in one request."""
_SMALL_LOG_BYTES: Final = 8 * 1024 * 1024
_SMALL_LOG_COMMITS: Final = 1_000
_TIME_PROPERTIES: Final = frozenset(
    {
        "delta.enableInCommitTimestamps",
        "delta.inCommitTimestampEnablementVersion",
        "delta.inCommitTimestampEnablementTimestamp",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """One commit: its version, its time in epoch milliseconds and its ``commitInfo`` (None if it has none)."""

    version: int
    timestamp_ms: int
    commit_info: CommitInfo | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTimes:
    """The source of the commits' times.

    Args:
        in_commit: Whether in-commit timestamps are on.
        enablement_version: First version with one, if they were enabled after version 0.
        enablement_timestamp_ms: Its in-commit timestamp.
    """

    in_commit: bool = False
    enablement_version: int | None = None
    enablement_timestamp_ms: int | None = None

    def is_in_commit(self, version: int) -> bool:
        """Return whether the version's time is in its commit."""
        return self.in_commit and version >= (self.enablement_version or 0)


def read_commit_info(store: Store, info: ObjectInfo) -> CommitInfo | None:
    """Read the ``commitInfo`` of a commit file. For a large file, the first bytes usually suffice.

    Raises:
        LogCorruptedError: The line is not JSON. The error names file and line.
    """
    if info.size > _HEAD_BYTES:
        found = _first_line_info(store.read_range(info.path, 0, _HEAD_BYTES))
        if found is not None:
            return found
    data = read_listed(store, info)
    for line in data.splitlines():
        if b'"commitInfo"' not in line[:64]:
            continue
        try:
            body = msgspec.json.decode(line).get("commitInfo")
        except (*MALFORMED_JSON, AttributeError):
            break
        if isinstance(body, dict):
            return CommitInfo(body)
    else:
        return None
    actions = decode_commit(data, source=info.path)
    return next((action for action in actions if isinstance(action, CommitInfo)), None)


def _first_line_info(head: bytes) -> CommitInfo | None:
    """Return the ``commitInfo`` in a complete first line, or None if the rest of the file must be read."""
    line, newline, _ = head.partition(b"\n")
    if not newline or not line.startswith(b'{"commitInfo":'):
        return None
    try:
        body = msgspec.json.decode(line).get("commitInfo")
    except (*MALFORMED_JSON, AttributeError):
        return None
    return CommitInfo(body) if isinstance(body, dict) else None


def monotonised_times_ms(commits: Sequence[tuple[int, ObjectInfo]]) -> dict[int, int]:
    """Return modification times by version, each at least one millisecond after the previous version's.

    Args:
        commits: Versions and files, ascending.
    """
    times: dict[int, int] = {}
    latest: int | None = None
    for version, info in commits:
        latest = info.modification_time_ms if latest is None else max(info.modification_time_ms, latest + 1)
        times[version] = latest
    return times


def read_history(store: Store, listing: Listing, times: CommitTimes, *, limit: int | None = None) -> list[CommitRecord]:
    """Read the records of the commits still in the log, newest first.

    Args:
        store: Bound to the table's root.
        listing: The log directory.
        times: The source of the commits' times.
        limit: Maximum number of records; None for all.

    Raises:
        LogCorruptedError: A requested commit is damaged.
    """
    commits = sorted(listing.commits.items())
    file_times = monotonised_times_ms(commits)
    wanted = list(reversed(commits))[: None if limit is None else max(limit, 0)]
    infos = read_all(lambda pair: read_commit_info(store, pair[1]), wanted)
    records = []
    for (version, _), commit_info in zip(wanted, infos, strict=True):
        own = commit_info.in_commit_timestamp if commit_info and times.is_in_commit(version) else None
        records.append(
            CommitRecord(
                version=version,
                timestamp_ms=file_times[version] if own is None else own,
                commit_info=commit_info,
            )
        )
    return records


def commit_times(protocol: Protocol, metadata: Metadata) -> CommitTimes:
    """Determine the source of commit times from the table's protocol and metadata."""
    named = {name: text for name, text in metadata.configuration.items() if name in _TIME_PROPERTIES}
    properties = TableProperties.parse(named)
    if not properties.in_commit_timestamps_enabled or not supports(protocol, "inCommitTimestamp"):
        return CommitTimes()
    return CommitTimes(
        in_commit=True,
        enablement_version=properties.in_commit_timestamp_enablement_version,
        enablement_timestamp_ms=properties.in_commit_timestamp_enablement_timestamp_ms,
    )


def history_of_commits(store: Store, *, root: str, limit: int | None = None) -> list[CommitRecord] | None:
    """Read the history only from commits, without checkpoints or the libraries that read them.

    Args:
        store: Bound to the table's root.
        root: URI of the table, for messages.
        limit: Maximum number of records; None for all.

    Returns:
        None if commits are not enough: the log is large, damaged, has gaps, or was cleaned up past the table's
            definition.
        Then ``DeltaLog.history`` returns it or reports the problem.

    Raises:
        UnsupportedFeatureError: The table needs features that this engine cannot read.
    """
    listing = read_listing(store.list_from("", prefix=LOG_DIR))
    commits = listing.commits
    num_bytes = sum(info.size for info in commits.values())
    if not commits or len(commits) > _SMALL_LOG_COMMITS or num_bytes > _SMALL_LOG_BYTES:
        return None
    if len(commits) != listing.last_version - min(commits) + 1:
        return None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    try:
        for _, info in sorted(commits.items(), reverse=True):
            for action in reversed(decode_commit(read_listed(store, info), source=info.path)):
                protocol = action if protocol is None and isinstance(action, Protocol) else protocol
                metadata = action if metadata is None and isinstance(action, Metadata) else metadata
            if protocol is not None and metadata is not None:
                ensure_readable(protocol, table=root)
                return read_history(store, listing, commit_times(protocol, metadata), limit=limit)
    except LogCorruptedError:
        return None
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeQuery:
    """A time for which a version is wanted.

    Args:
        timestamp_ms: Epoch milliseconds.
        can_return_last: Whether a time after the newest version returns the newest instead of an error.
        can_return_first: Whether a time before the oldest version returns the oldest instead of an error.
    """

    timestamp_ms: int
    can_return_last: bool
    can_return_first: bool


def find_version(
    listing: Listing,
    times: CommitTimes,
    query: TimeQuery,
    *,
    first: int,
    in_commit_time: Callable[[ObjectInfo], int | None],
) -> int:
    """Find the last version whose time is not after the requested one.

    Args:
        listing: The log directory.
        times: The source of the commits' times.
        query: The time.
        first: Oldest version that may be returned.
        in_commit_time: Reads a commit's own time.

    Raises:
        VersionNotFoundError: The time is before the first or after the last version. The error gives that version.
    """
    timestamp_ms = query.timestamp_ms
    commits = [(version, info) for version, info in sorted(listing.commits.items()) if version >= first]
    if not commits:
        raise VersionNotFoundError(
            "No version in the log can be rebuilt.",
            hint="Restore _delta_log from a backup.",
            condition=Condition.of("DELTA_NO_RECREATABLE_HISTORY_FOUND"),
        )
    file_times = monotonised_times_ms(sorted(listing.commits.items()))

    def time_of(position: int) -> int:
        version, info = commits[position]
        own = in_commit_time(info) if times.is_in_commit(version) else None
        return file_times[version] if own is None else own

    switch = next((i for i, (version, _) in enumerate(commits) if times.is_in_commit(version)), len(commits))
    low, high = 0, len(commits)
    enabled_ms = times.enablement_timestamp_ms
    if 0 < switch < len(commits):
        if timestamp_ms >= (enabled_ms if enabled_ms is not None else time_of(switch)):
            low = switch
        else:
            high = switch
    start = low
    while low < high:  # Search for the first position whose time is after the timestamp.
        middle = (low + high) // 2
        if time_of(middle) <= timestamp_ms:
            low = middle + 1
        else:
            high = middle
    position = max(low - 1, start if start > 0 else -1)
    earliest_ms, latest_ms = time_of(0), time_of(len(commits) - 1)
    if position < 0:
        if query.can_return_first:
            return commits[0][0]
        raise _too_early(timestamp_ms, commits[0][0], earliest_ms)
    if position == len(commits) - 1 and timestamp_ms > latest_ms and not query.can_return_last:
        raise _too_late(timestamp_ms, commits[-1][0], latest_ms)
    return commits[position][0]


def _too_early(timestamp_ms: int, version: int, earliest_ms: int) -> VersionNotFoundError:
    return VersionNotFoundError(
        f"The time {show_time(timestamp_ms)} is before the oldest version that can be rebuilt: "
        f"version {version} of {show_time(earliest_ms)}.",
        hint=f"Ask for {show_time(earliest_ms)} or later, or for version {version}.",
        condition=Condition.of(
            "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION",
            userTimestamp=show_time(timestamp_ms),
            commitTs=show_time(earliest_ms),
            timestampString=show_time(earliest_ms),
        ),
    )


def _too_late(timestamp_ms: int, version: int, latest_ms: int) -> VersionNotFoundError:
    return VersionNotFoundError(
        f"The time {show_time(timestamp_ms)} is after the newest version: version {version} of {show_time(latest_ms)}.",
        hint=f"Ask for {show_time(latest_ms)} or earlier, or leave the time out to read the newest version.",
        condition=Condition.of(
            "DELTA_TIMESTAMP_GREATER_THAN_COMMIT",
            providedTimestamp=show_time(timestamp_ms),
            lastCommitTimestamp=show_time(latest_ms),
            maximumTimestamp=show_time(latest_ms),
        ),
    )


def show_time(time_ms: int) -> str:
    """Format epoch milliseconds in UTC.

    Example:
        >>> show_time(1_700_000_000_123)
        '2023-11-14 22:13:20.123 UTC'
    """
    moment = utc_time(time_ms)
    return f"{time_ms} ms" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03d} UTC"
