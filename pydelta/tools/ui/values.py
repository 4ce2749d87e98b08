"""Define the values behind the page, shared by HTML, JSON and Prometheus. Times are in epoch milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pydelta.errors import DeltaError
from pydelta.errors.redaction import hide_text

__all__ = [
    "RECENT_MS",
    "UNCHANGED_ROWS",
    "CommitState",
    "GarbageState",
    "LastRun",
    "Rows",
    "ServiceState",
    "ShownIceberg",
    "ShownPlace",
    "ShownSums",
    "ShownTable",
    "SourceProgress",
    "StreamState",
    "Trouble",
    "TwinState",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A problem, the next step, and its weight: 2 for an error, 1 for a warning."""

    what: str
    next: str | None = None
    weight: int = 1

    @classmethod
    def of(cls, error: Exception) -> Trouble:
        """Describe an error in one line, with secrets hidden."""
        if isinstance(error, DeltaError):
            advice = error.hint or "Check its location, and what pydelta doctor says of that."
            return cls(what=hide_text(error.message), next=hide_text(advice), weight=2)
        return cls(
            what=hide_text(f"{type(error).__name__}: {error}".splitlines()[0]),
            next="Look at the log of pydelta ui; if it stays, report it.",
            weight=2,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPlace:
    """The location and the shown name of a table. ``registered`` means that the metastore has it."""

    name: str
    uri: str
    registered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows that a commit inserted, updated and deleted; None if it does not record them."""

    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None

    @property
    def known(self) -> bool:
        """Whether the commit records any row counts."""
        return (self.inserted, self.updated, self.deleted) != (None, None, None)


RECENT_MS: Final = 15 * 60_000
UNCHANGED_ROWS: Final = Rows(inserted=0, updated=0, deleted=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitState:
    """One commit in a list.

    Args:
        version: The version.
        timestamp_ms: Its time.
        operation: Name of the operation; None if not recorded.
        who: The user, or other information about the writer.
        rows: Its effect on rows.
        metrics: Recorded metrics.
    """

    version: int
    timestamp_ms: int
    operation: str | None
    who: str | None
    rows: Rows
    metrics: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSums:
    """Counts and sizes of a table's files.

    Args:
        live, live_bytes: Files of the newest version.
        small: Live files that OPTIMIZE would merge with others of their partition.
        small_below_bytes: Size below which a file counts as small.
        with_vectors: Live files with a deletion vector.
        removed, removed_bytes: Files that only older versions read; VACUUM deletes them after their retention.
        most_in_partition: Live files in the partition that has the most.
    """

    live: int
    live_bytes: int
    small: int
    small_below_bytes: int
    with_vectors: int
    removed: int
    removed_bytes: int
    most_in_partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """The version and time of the last run of an operation."""

    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageState:
    """Files that VACUUM would delete.

    Args:
        files, bytes: Number and total size.
        noncurrent_bytes: Bytes of noncurrent object versions; None without an inventory that lists them.
        timestamp_ms: Time of the measurement.
        source: The source in words: a listing, an inventory or the last VACUUM.
    """

    files: int | None
    bytes: int | None
    noncurrent_bytes: int | None = None
    timestamp_ms: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinState:
    """The version that readers of the symlink manifests see.

    Args:
        name: Name of the twin in the metastore; None without a metastore.
        state: ``current``, ``behind``, ``not synced``, ``blocked``, ``no table`` or ``unknown``.
        manifest_version: Lowest version of the published manifests; None if none are published.
        metastore_version: Version in the twin's entry.
        lag_versions: Versions that the slower of the two is behind.
        lag_seconds: Age of the oldest version that readers do not see.
        problem: The reason why the twin cannot be updated.
    """

    name: str | None
    state: str
    manifest_version: int | None = None
    metastore_version: int | None = None
    lag_versions: int | None = None
    lag_seconds: float | None = None
    problem: str | None = None

    @property
    def seen_version(self) -> int | None:
        """The version that readers see; None if there is none."""
        known = [self.manifest_version] if self.name is None else [self.manifest_version, self.metastore_version]
        versions = [version for version in known if version is not None]
        return min(versions) if len(versions) == len(known) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownIceberg:
    """The version that readers of a table's Iceberg entry see.

    Args:
        name: Name of the entry in the metastore.
        state: ``current``, ``behind``, ``not synced``, ``stopped``, ``blocked``, ``drift``, ``not ours`` or
            ``no table``.
        version: Version that its readers see; None if that is not known.
        lag_versions: Versions that it is behind.
        lag_seconds: Age of the oldest version that its readers do not see.
        problem: The reason why a user has to act.
    """

    name: str
    state: str
    version: int | None = None
    lag_versions: int | None = None
    lag_seconds: float | None = None
    problem: str | None = None

    @property
    def is_bad(self) -> bool:
        """Whether a user has to act."""
        return self.state in ("blocked", "drift", "not ours", "no table")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProgress:
    """The progress of a stream in one of its sources.

    Args:
        source: Name of the table, or the content of the offset.
        table: Name of the table if it is shown.
        version: Version up to which the table was read; None for other kinds of sources.
        backlog_versions: Commits not read yet; None if unknown.
        offset: The offset as stored in the checkpoint.
    """

    source: str
    table: str | None = None
    version: int | None = None
    backlog_versions: int | None = None
    offset: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """A streaming query, as read from its checkpoint.

    Args:
        location: Location of the checkpoint.
        query_id: Id by which tables know it; None if the checkpoint has none.
        planned_batch: The newest batch whose offsets are written; None before the first.
        done_batch: The newest batch that is done.
        planned_ms: Time at which the newest batch was planned.
        sources: Its sources.
        trouble: The reason why it could not be read.
    """

    location: str
    query_id: str | None = None
    planned_batch: int | None = None
    done_batch: int | None = None
    planned_ms: int | None = None
    sources: tuple[SourceProgress, ...] = ()
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """The result of checking a service.

    Args:
        name: Name as configured.
        ok: Whether it answers; None during the first check, and if it is not started or switched off.
        said: The result in a few words.
        link: Address for a browser.
        next: What to do if it does not answer.
        there: False if it is optional and its host name cannot be resolved.
        idle: Whether it is not started, or switched off, which is not a problem.
        kind: ``service``, ``schedule`` or ``disk``.
        checked_ms: Time of the check.
    """

    name: str
    ok: bool | None
    said: str
    link: str | None = None
    next: str | None = None
    there: bool = True
    idle: bool = False
    kind: str = "service"
    checked_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTable:
    """Everything that is shown of a table, as of ``read_ms``. Values that were not read are None.

    Args:
        place: Name and location.
        read_ms: Time at which the log was read. The version shown is the newest of that moment or later.
        troubles: Problems, worst first.
        version, timestamp_ms: The newest version and its time.
        table_id: Id in the metadata.
        description, columns, partition_columns, clustering_columns, properties, features, protocol: As in the log.
        files: Counts and sizes of files.
        checkpoint, optimize, vacuum: Last run of each; None if the commits looked at do not show one.
        looked_back: Number of commits looked at.
        garbage: What VACUUM would delete, if known.
        comments: Comments of columns and of parts of nested ones, by dotted path.
        nested: Dotted paths of the parts of nested columns.
        required: Columns that must not be null.
        twin: What readers of manifests see.
        iceberg: What readers of the Iceberg entry see; None without one, and without a metastore.
        native_behind: Whether the table's own entry has other columns or properties; None if that is not known.
        writers: Application id -> version and time (None if not recorded) of its last transaction.
        commits: Newest commits, newest first.
    """

    place: ShownPlace
    read_ms: int
    troubles: tuple[Trouble, ...] = ()
    version: int | None = None
    timestamp_ms: int | None = None
    table_id: str | None = None
    description: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    comments: Mapping[str, str] = field(default_factory=dict)
    nested: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    partition_columns: tuple[str, ...] = ()
    clustering_columns: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    protocol: str = ""
    files: ShownSums | None = None
    checkpoint: LastRun | None = None
    optimize: LastRun | None = None
    vacuum: LastRun | None = None
    looked_back: int = 0
    garbage: GarbageState | None = None
    twin: TwinState | None = None
    iceberg: ShownIceberg | None = None
    native_behind: bool | None = None
    writers: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    commits: tuple[CommitState, ...] = ()

    @property
    def weight(self) -> int:
        """The weight of the worst problem: 0 if there is none."""
        return max((trouble.weight for trouble in self.troubles), default=0)

    @property
    def recent_retries(self) -> int | None:
        """How often statements whose commits landed in the last 15 minutes were run again; None without commits."""
        if not self.commits:
            return None
        recent = [commit for commit in self.commits if commit.timestamp_ms >= self.read_ms - RECENT_MS]
        counts = [commit.metrics.get("numRetries", "") for commit in recent]
        return sum(int(count) for count in counts if count.isdecimal())
