"""Hold what the page shows: values alone, the same for HTML, JSON and Prometheus. Times are in epoch milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pydelta.errors import DeltaError
from pydelta.errors.redaction import hide_text

__all__ = [
    "UNCHANGED_ROWS",
    "CommitState",
    "GarbageState",
    "LastRun",
    "Rows",
    "ServiceState",
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
    """Something that is wrong, what to do next, and how much it matters: 2 for an error, 1 for a warning."""

    what: str
    next: str | None = None
    weight: int = 1

    @classmethod
    def of(cls, error: Exception) -> Trouble:
        """Tell an error in a line, without what may be secret."""
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
    """Where a table lies, and under which name it is shown; ``registered`` where the metastore has it."""

    name: str
    uri: str
    registered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows that a commit put in, changed and took out; None where it does not say."""

    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None

    @property
    def known(self) -> bool:
        """Whether the commit says anything of rows."""
        return (self.inserted, self.updated, self.deleted) != (None, None, None)


UNCHANGED_ROWS: Final = Rows(inserted=0, updated=0, deleted=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitState:
    """One commit in a list.

    Args:
        version: The version.
        timestamp_ms: Its time.
        operation: What it was; None where it does not say.
        who: User, or what else is known of the writer.
        rows: What it did to rows.
        metrics: As recorded.
    """

    version: int
    timestamp_ms: int
    operation: str | None
    who: str | None
    rows: Rows
    metrics: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSums:
    """Numbers and bytes of a table's files.

    Args:
        live, live_bytes: Of the newest version.
        small: Live files that OPTIMIZE would merge with others of their partition.
        small_below_bytes: What small means.
        with_vectors: Live files with a deletion vector.
        removed, removed_bytes: Files that older versions still read; VACUUM deletes them when their retention is over.
        most_in_partition: Live files of the partition that has most.
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
    """When something was done last: the version, and its time."""

    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageState:
    """Files that VACUUM would delete.

    Args:
        files, bytes: How many and how large.
        noncurrent_bytes: Of object versions that are not current; None where no inventory says.
        timestamp_ms: When that was found.
        source: In words: a listing, an inventory, the last VACUUM.
    """

    files: int | None
    bytes: int | None
    noncurrent_bytes: int | None = None
    timestamp_ms: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinState:
    """What readers of the symlink manifests see.

    Args:
        name: Of the twin in the metastore; None without a metastore.
        state: ``current``, ``behind``, ``not synced``, ``blocked``, ``no table`` or ``unknown``.
        manifest_version: Version that every published manifest is of at least; None when none is published.
        metastore_version: Version that the twin's entry carries.
        lag_versions: Versions that the slower of the two is behind.
        lag_seconds: Age of the oldest version that readers do not see.
        problem: Why it cannot be brought to the newest version.
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
        """The version that readers get; None where there is none."""
        known = [self.manifest_version] if self.name is None else [self.manifest_version, self.metastore_version]
        versions = [version for version in known if version is not None]
        return min(versions) if len(versions) == len(known) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProgress:
    """How far a stream has read one of its sources.

    Args:
        source: Name of the table, or what the offset itself says.
        table: Name of the table where it is one of those shown.
        version: Version of the table that was read up to; None for another kind of source.
        backlog_versions: Commits that it has not read yet; None where it is not known.
        offset: The offset as the checkpoint holds it.
    """

    source: str
    table: str | None = None
    version: int | None = None
    backlog_versions: int | None = None
    offset: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """A streaming query by its checkpoint.

    Args:
        location: Of the checkpoint.
        query_id: By which tables know it; None where the checkpoint does not say.
        planned_batch: The newest batch whose offsets are written; None before the first.
        done_batch: The newest batch that is done.
        planned_ms: When the newest batch was planned.
        sources: What it reads.
        trouble: Why it could not be read.
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
    """A service that was asked.

    Args:
        name: As given.
        ok: Whether it answers; None while it is being asked for the first time.
        said: In a few words.
        link: Where a browser finds it.
        next: What to do where it does not answer.
        there: False where it is optional and its host has no name.
        checked_ms: When it was asked.
    """

    name: str
    ok: bool | None
    said: str
    link: str | None = None
    next: str | None = None
    there: bool = True
    checked_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTable:
    """Everything that is shown of a table, as it was at ``read_ms``; what was not read is None.

    Args:
        place: Name and location.
        read_ms: When the log was looked at: no version older than the newest of that moment is shown.
        troubles: What is wrong, worst first.
        version, timestamp_ms: The newest version and its time.
        table_id: Id in the metadata.
        description, columns, partition_columns, clustering_columns, properties, features, protocol: As the log says.
        files: Numbers and bytes.
        checkpoint, optimize, vacuum: When that was done last; None where the commits looked at do not tell.
        looked_back: How many commits were looked at for that.
        garbage: What VACUUM would delete, where that is known.
        twin: What readers of manifests see.
        writers: Application id -> last transaction's version and time (None where it has none).
        commits: The newest commits, newest first.
    """

    place: ShownPlace
    read_ms: int
    troubles: tuple[Trouble, ...] = ()
    version: int | None = None
    timestamp_ms: int | None = None
    table_id: str | None = None
    description: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
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
    writers: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    commits: tuple[CommitState, ...] = ()

    @property
    def weight(self) -> int:
        """How much is wrong: 0 for nothing."""
        return max((trouble.weight for trouble in self.troubles), default=0)
