"""Open a table's log: its snapshots, history and changes. There is one object per table and process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

from pydelta.errors import (
    LogCorruptedError,
    LogGapError,
    ObjectNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
    error_context,
)
from pydelta.errors.conditions import Condition
from pydelta.log.checkpoint.sidecars import FULL_ACTIONS
from pydelta.log.checkpoint.write import CheckpointResult, write_checkpoint
from pydelta.log.cleanup import CleanupResult, clean_up
from pydelta.log.compaction import plan_run, write_compacted
from pydelta.log.deltas import build_delta
from pydelta.log.given_up import (
    GIVEN_UP_END,
    GivenUp,
    GivenUpPlan,
    give_up,
    given_up_error,
    is_given_up,
    plan_giving_up,
)
from pydelta.log.history import (
    CommitRecord,
    CommitTimes,
    TimeQuery,
    commit_times,
    find_version,
    monotonised_times_ms,
    read_commit_info,
    read_history,
)
from pydelta.log.load import LogReader, commit_info
from pydelta.log.replay import apply_actions, partition_spec, read_commit
from pydelta.log.runs import is_operation, objects_of
from pydelta.log.segment import CommitFile, Listing, LogSegment, read_listing
from pydelta.log.side_files import write_checksum
from pydelta.log.snapshot import Snapshot, VersionCommit, change_of
from pydelta.log.vector_files import place_of
from pydelta.protocol.actions import Action, CommitInfo
from pydelta.protocol.paths import LOG_DIR, SIDECAR_DIR, commit_file
from pydelta.settings import Settings
from pydelta.storage import normalize_uri, open_store
from pydelta.storage.interface import ObjectInfo, Store
from pydelta.storage.readers import read_all

__all__ = ["DeltaLog"]

_CACHED_LOGS: Final = 64
_CACHED_VERSIONS: Final = 4


class DeltaLog:
    """The log of one table. It caches what it has read and reads only new commits.

    It is thread-safe. ``for_table`` returns the process's shared object for a location.

    Args:
        store: Bound to the table's root.
        settings: Session settings; None for those of the environment.
        options: Storage options for files that the log names outside the table's root.
    """

    _cache: ClassVar[OrderedDict[tuple[str, frozenset[tuple[str, str]], str], DeltaLog]] = OrderedDict()
    _cache_lock: ClassVar = threading.Lock()

    def __init__(
        self, store: Store, *, settings: Settings | None = None, options: Mapping[str, str] | None = None
    ) -> None:
        self.store = store
        self._options = dict(options or {})
        self.uri = store.root
        self.settings = settings or Settings.resolve()
        self._reader = LogReader(store, self.uri, self.settings.max_files_in_memory)
        self._lock = threading.RLock()
        self._current: Snapshot | None = None
        self._old: OrderedDict[int, Snapshot] = OrderedDict()

    def __repr__(self) -> str:
        return f"DeltaLog({self.uri!r})"

    @classmethod
    def for_table(
        cls,
        uri: str,
        *,
        options: Mapping[str, str] | None = None,
        settings: Settings | None = None,
        store: Store | None = None,
    ) -> DeltaLog:
        """Return the log of the table at a location. Equal location, options and settings give the same object.

        Args:
            uri: A URI or a local path. The table need not exist yet.
            options: Storage options, Hadoop names.
            settings: Session settings; None for those of the environment.
            store: A store to use instead of the one for the scheme. Such a log is not shared.

        Raises:
            InvalidArgumentError: No store supports the scheme.
        """
        if store is not None:
            return cls(store, settings=settings, options=options)
        settings = settings or Settings.resolve()
        normal = normalize_uri(uri)
        key = (normal, frozenset((options or {}).items()), repr(settings))
        with cls._cache_lock:
            found = cls._cache.get(key)
            if found is None:
                found = cls._cache[key] = cls(open_store(normal, options), settings=settings, options=options)
            cls._cache.move_to_end(key)
            while len(cls._cache) > _CACHED_LOGS:
                cls._cache.popitem(last=False)
            return found

    @classmethod
    def clear_cache(cls) -> None:
        """Forget the process's logs. Snapshots in use stay valid."""
        with cls._cache_lock:
            cls._cache.clear()

    @property
    def options(self) -> Mapping[str, str]:
        """The storage options. They may hold secrets."""
        return self._options

    def file_exists(self, path: str) -> bool:
        """Return whether a file named by the log exists. Its path is escaped, relative to the table or absolute.

        Raises:
            LogCorruptedError: A relative path leads out of the table.
            StorageError: The store failed.
        """
        return self.head_file(path) is not None

    def head_file(self, path: str) -> ObjectInfo | None:
        """Return the store's information about a file named by the log; None if it is missing.

        Raises:
            LogCorruptedError: A relative path leads out of the table.
            StorageError: The store failed.
        """
        store, there = place_of(path, store=self.store, root=self.uri, options=self._options)
        return store.head(there)

    # -- snapshots ------------------------------------------------------------------------------------------------

    def table_exists(self) -> bool:
        """Return whether the location holds a log with a commit or a checkpoint. Reads no file."""
        return self._current_version() >= 0 or not self._reader.listing().is_empty

    def _current_version(self) -> int:
        """Return the version of the cached snapshot if its commit still exists, otherwise -1."""
        current = self._current
        if current is None or current.version < 0:
            return -1
        info = self.store.head(f"{LOG_DIR}/{commit_file(current.version)}")
        return current.version if info is not None else -1

    def update(self) -> Snapshot:
        """Return the newest snapshot. It lists from the last known version and reads only commits after it.

        Returns:
            The snapshot, or the empty one (version -1) if there is no table.

        Raises:
            LogGapError, LogCorruptedError, UnsupportedFeatureError: The table cannot be read.
            StorageError: The store failed.
        """
        with self._lock, error_context(table=self.uri):
            current = self._current
            updated = self._advance(current) if current is not None and current.version >= 0 else None
            if updated is None:
                updated = self._reload()
            self._current = updated
            return updated

    def _reload(self) -> Snapshot:
        self._old.clear()
        try:
            loaded = self._reader.load(known=self._current)
        except ObjectNotFoundError:  # A clean-up deleted files between listing and reading.
            loaded = self._reader.load()
        return loaded if loaded is not None else Snapshot.empty(self.uri)

    def _advance(self, current: Snapshot) -> Snapshot | None:
        """Apply the commits after ``current`` to get the newest snapshot. Returns None if it must be reloaded."""
        listing = self._reader.listing(current.version)
        known = listing.commits.get(current.version)
        if known is None or not _is_same(known, current.commit_file):
            return None  # The table was deleted and recreated, or the log was cleaned up behind a newer checkpoint.
        newer = sorted(version for version in listing.commits if version > current.version)
        if not newer:
            if listing.last_version > current.version:
                return None
            return current
        if newer[-1] - current.version != len(newer):
            return None
        if current.files.chain_length + len(newer) > self.settings.max_snapshot_chain:
            return None
        snapshot = current
        for version in newer:
            info = listing.commits[version]
            try:
                actions = read_commit(self.store, CommitFile(start=version, end=version, info=info))
            except ObjectNotFoundError:
                return None
            if is_operation(actions, GIVEN_UP_END):
                return None  # The checkpoint that this snapshot reads from is gone.
            following = self._follow(snapshot, version, actions, info)
            if following is None:
                return None
            snapshot = following
        return snapshot

    def _follow(self, snapshot: Snapshot, version: int, actions: Sequence[Action], info: ObjectInfo) -> Snapshot | None:
        """Apply one more commit to a snapshot. Returns None if the partition columns change, which needs a reload."""
        state = apply_actions(snapshot.state, actions)
        self._reader.check(state)
        before, after = snapshot.metadata, state.metadata
        spec = snapshot.files.spec
        if before is not after or snapshot.protocol is not state.protocol:
            spec = partition_spec(state)
            if snapshot.version >= 0 and spec.physical_names != snapshot.files.spec.physical_names:
                return None
        delta = build_delta(actions, version=version, partition_names=spec.physical_names, root=self.uri)
        own = next((action for action in objects_of(actions) if isinstance(action, CommitInfo)), None)
        time_ms = info.modification_time_ms
        sums, change = snapshot.sums(), change_of(actions)
        times = (*(snapshot.segment.commit_times_ms if snapshot.segment else ()), (version, time_ms))
        file_time_ms = max(time_ms, snapshot.file_time_ms + 1) if snapshot.version >= 0 else time_ms
        return Snapshot(
            version=version,
            state=state,
            files=snapshot.files.apply(delta, spec),
            segment=LogSegment(
                version=version,
                checkpoint=snapshot.segment.checkpoint if snapshot.segment else None,
                commits=(
                    *(snapshot.segment.commits if snapshot.segment else ()),
                    CommitFile(start=version, end=version, info=info),
                ),
                last_commit=info,
                commit_times_ms=times,
            ),
            sums=sums.plus(change) if sums is not None and change is not None else None,
            commit=VersionCommit(file_time_ms=file_time_ms, change=change, read_info=lambda: own),
        )

    def apply_commit(
        self, snapshot: Snapshot, version: int, actions: Sequence[Action], commit_file_info: ObjectInfo | None = None
    ) -> Snapshot:
        """Return the snapshot after a commit that this process just made, without reading it back. Cost: O(commit).

        Args:
            snapshot: The version just before.
            version: ``snapshot.version + 1``.
            actions: The commit's lines as written.
            commit_file_info: Its file as the store lists it; None asks the store.

        Returns:
            The new snapshot, from which later updates start.

        Raises:
            ValueError: ``version`` does not follow ``snapshot``.
        """
        if version != snapshot.version + 1:
            raise ValueError(f"version {version} does not follow version {snapshot.version}")
        with self._lock, error_context(table=self.uri):
            path = f"{LOG_DIR}/{commit_file(version)}"
            info = commit_file_info or commit_info(self.store, version)
            if info is None:
                raise ObjectNotFoundError(f"{path} disappeared right after it was written.", table=self.uri)
            following = None
            if is_operation(actions, GIVEN_UP_END):
                self._old.clear()
            elif snapshot.files.chain_length < self.settings.max_snapshot_chain:
                following = self._follow(snapshot, version, actions, info)
            if following is None:
                following = self._reader.load(version, listing=self._reader.list_latest_for(version), known=snapshot)
                if following is None:
                    raise self._reader.not_found()
            if self._current is None or self._current.version <= version:
                self._current = following
            return following

    def snapshot(self, version: int | None = None, timestamp_ms: int | None = None) -> Snapshot:
        """Return the snapshot of a version or of a time; without either, the newest.

        Args:
            version: A version that the log can still rebuild.
            timestamp_ms: Epoch milliseconds. Selects the last version that is not newer.

        Raises:
            TableNotFoundError: There is no table.
            VersionNotFoundError: The log cannot rebuild that version. The error gives the range.
            LogGapError, LogCorruptedError, UnsupportedFeatureError: The version cannot be read.
        """
        current: Snapshot | None
        with self._lock, error_context(table=self.uri):
            if timestamp_ms is not None:
                if version is not None:
                    raise ValueError("version and timestamp_ms exclude each other")
                version = self.version_at(timestamp_ms)
            try:
                current = self.update()
            except (LogGapError, LogCorruptedError, UnsupportedFeatureError):
                if version is None:
                    raise
                current = None  # A damaged newest version must not prevent reading an older one.
            if current is not None and current.version < 0:
                raise self._reader.not_found()
            if current is not None and version in (None, current.version):
                return current
            assert version is not None
            kept = self._old.get(version)
            if kept is not None:
                self._old.move_to_end(version)
                return kept
            listing = self._reader.listing()
            self._refuse_outside(listing, version)
            loaded = self._reader.load(version, listing=listing)
            if loaded is None:
                raise self._reader.not_found()
            self._old[version] = loaded
            while len(self._old) > _CACHED_VERSIONS:
                self._old.popitem(last=False)
            return loaded

    def _refuse_outside(self, listing: Listing, version: int) -> None:
        first, last = _first_recreatable(listing), listing.last_version
        if first is not None and first <= version <= last:
            return
        held = f"versions {first} to {last}" if first is not None else "no version that can be rebuilt"
        raise VersionNotFoundError(
            f"Version {version} cannot be read: the log has {held}.",
            hint="Older versions are gone once log clean-up has passed them (delta.logRetentionDuration).",
            table=self.uri,
            condition=Condition.of("DELTA_VERSION_NOT_FOUND", userVersion=version, earliest=first, latest=last),
        )

    # -- history --------------------------------------------------------------------------------------------------

    def _times(self) -> CommitTimes:
        current = self._current if self._current is not None and self._current.version >= 0 else self.update()
        if current.protocol is None or current.metadata is None:
            return CommitTimes()
        return commit_times(current.protocol, current.metadata)

    def history(self, limit: int | None = None) -> list[CommitRecord]:
        """Return records of the commits in the log, newest first, at most ``limit``.

        Raises:
            TableNotFoundError: There is no table.
            LogCorruptedError: A requested commit is damaged.
        """
        with self._lock, error_context(table=self.uri):
            listing = self._reader.listing()
            if listing.is_empty:
                raise self._reader.not_found()
            self._current = self.update()
            return read_history(self.store, listing, self._times(), limit=limit)

    def version_at(
        self,
        timestamp_ms: int,
        *,
        can_return_last: bool = False,
        can_return_first: bool = False,
        must_be_recreatable: bool = True,
    ) -> int:
        """Return the last version that is not newer than a time.

        Args:
            timestamp_ms: Epoch milliseconds.
            can_return_last: Whether a time after the newest version returns the newest instead of an error.
            can_return_first: Whether a time before the oldest version returns the oldest instead of an error.
            must_be_recreatable: Whether to exclude versions whose state can no longer be rebuilt.

        Raises:
            TableNotFoundError: There is no table.
            VersionNotFoundError: The time is before the first or after the last version.
        """
        with self._lock, error_context(table=self.uri):
            current = self.update()
            if current.version < 0:
                raise self._reader.not_found()
            listing = self._reader.listing()
            first = _first_recreatable(listing) if must_be_recreatable else min(listing.commits, default=None)
            return find_version(
                listing,
                self._times(),
                TimeQuery(
                    timestamp_ms=timestamp_ms, can_return_last=can_return_last, can_return_first=can_return_first
                ),
                first=first if first is not None else listing.last_version + 1,
                in_commit_time=self._in_commit_time,
            )

    def _in_commit_time(self, info: ObjectInfo) -> int | None:
        found = read_commit_info(self.store, info)
        return found.in_commit_timestamp if found else None

    def actions(self, version: int) -> Sequence[Action]:
        """Return the lines of one commit.

        Raises:
            VersionNotFoundError: The log does not have that commit.
            LogCorruptedError: The commit is damaged.
        """
        path = f"{LOG_DIR}/{commit_file(version)}"
        info = ObjectInfo(path=path, size=0, modification_time_ms=0)
        with error_context(table=self.uri, version=version):
            try:
                actions = read_commit(self.store, CommitFile(start=version, end=version, info=info))
                if is_given_up(actions):
                    raise given_up_error(version)
                return actions
            except ObjectNotFoundError:
                raise VersionNotFoundError(
                    f"The log has no commit of version {version}.",
                    hint="It is newer than the table, or log clean-up has removed it.",
                    condition=Condition.of("DELTA_VERSION_NOT_FOUND", userVersion=version),
                ) from None

    def changes(self, base: int, head: int) -> Iterator[tuple[int, Sequence[Action]]]:
        """Yield the commits after version ``base`` up to and including ``head``, oldest first.

        Raises:
            VersionNotFoundError: One of them is not, or not yet, in the log.
            LogCorruptedError: One of them is damaged.
        """
        for version in range(base + 1, head + 1):
            yield version, self.actions(version)

    def commits(self, first: int, last: int) -> list[tuple[CommitRecord, Sequence[Action]]]:
        """Return the times and lines of the commits in a range of versions, oldest first, both ends included.

        Raises:
            VersionNotFoundError: One of them is not, or not yet, in the log.
            LogCorruptedError: One of them is damaged.
        """
        with self._lock, error_context(table=self.uri):
            times = self._times()
            file_times = monotonised_times_ms(sorted(self._reader.listing().commits.items()))
        versions = range(first, last + 1)
        read = read_all(self.actions, versions)
        found = []
        for version, actions in zip(versions, read, strict=True):
            info = next((action for action in objects_of(actions) if isinstance(action, CommitInfo)), None)
            own = info.in_commit_timestamp if info is not None and times.is_in_commit(version) else None
            time_ms = file_times.get(version, 0) if own is None else own
            found.append((CommitRecord(version=version, timestamp_ms=time_ms, commit_info=info), actions))
        return found

    # -- maintenance ----------------------------------------------------------------------------------------------

    def checkpoint(
        self,
        snapshot: Snapshot | None = None,
        *,
        now_ms: int | None = None,
        whole: bool = False,
        tombstones: bool = True,
    ) -> CheckpointResult:
        """Write a checkpoint of a snapshot (None for the newest), verify it, then update ``_last_checkpoint``.

        Args:
            snapshot: A snapshot of this table.
            now_ms: Current time, epoch milliseconds; None reads the clock.
            whole: Whether to write all sidecars instead of reusing unchanged ones.
            tombstones: Whether to write tombstones; see ``write_checkpoint``.

        Raises:
            TableNotFoundError: There is no table.
            LogCorruptedError: The checkpoint read back wrong and was deleted again.
        """
        with error_context(table=self.uri):
            chosen = snapshot or self.snapshot()
            if chosen.version < 0:
                raise self._reader.not_found()
            written = write_checkpoint(self.store, chosen, now_ms=now_ms, whole=whole, tombstones=tombstones)
            if written.sidecars and not written.named_again and written.num_adds >= FULL_ACTIONS:
                with self._lock:  # Load from the new checkpoint next, so that a later one can reuse its sidecars.
                    self._current = None
            return written

    def write_checksum(self, snapshot: Snapshot) -> bool:
        """Write ``N.crc`` of a snapshot unless it exists. Returns whether this call wrote it."""
        with error_context(table=self.uri):
            return write_checksum(self.store, snapshot)

    def compact(self, snapshot: Snapshot) -> bool:
        """Write the log compaction file if one is due. Returns whether this call wrote it.

        Raises:
            VersionNotFoundError, LogCorruptedError: A commit of the run cannot be read.
        """
        properties = snapshot.properties
        run = plan_run(
            snapshot.version,
            interval=properties.log_compaction_interval,
            checkpoint_interval=properties.checkpoint_interval,
        )
        if run is None:
            return False
        with error_context(table=self.uri):
            return write_compacted(self.store, run, read_all(self.actions, range(run[0], run[1] + 1)), root=self.uri)

    def cleanup(self, now_ms: int | None = None, *, retention_ms: int | None = None) -> CleanupResult:
        """Delete log files that are no longer needed ("Metadata Cleanup"), only behind a verified checkpoint.

        Args:
            now_ms: Current time, epoch milliseconds; None reads the clock.
            retention_ms: Retention of the log; None for the table's property.

        Raises:
            TableNotFoundError: There is no table.
        """
        with error_context(table=self.uri):
            return clean_up(self._reader, self.snapshot(), now_ms=now_ms, retention_ms=retention_ms)

    def plan_giving_up(self, kept: CheckpointResult, *, young_since_ms: int) -> GivenUpPlan:
        """Choose what happens to the files of versions before a checkpoint; see ``pydelta.log.given_up``.

        Args:
            kept: The checkpoint, which must hold no tombstones.
            young_since_ms: Commits since then, in epoch milliseconds, get a marker instead of being deleted.

        Raises:
            LogCorruptedError: The checkpoint is not in the log.
        """
        with error_context(table=self.uri):
            objects = list(self.store.list_from("", prefix=LOG_DIR))
            files = next((found for found in read_listing(objects).checkpoints if found.name == kept.name), None)
            if files is None:
                raise LogCorruptedError(
                    f"{kept.name} disappeared right after it was written, so no version is given up.",
                    hint="Another process cleans up this log: run it again.",
                )
            return plan_giving_up(
                objects,
                before=kept.version,
                young_since_ms=young_since_ms,
                kept=files,
                sidecars=list(self.store.list_from("", prefix=SIDECAR_DIR)),
                named=frozenset(kept.sidecars),
            )

    def give_up(self, plan: GivenUpPlan) -> GivenUp:
        """Delete and replace the files of versions that are given up, and forget what was read of them.

        Raises:
            StorageError: The store failed. Files may be left.
        """
        with self._lock, error_context(table=self.uri):
            try:
                return give_up(self.store, plan)
            finally:
                self._current = None
                self._old.clear()

    def held(self) -> Listing:
        """List the log directory."""
        with error_context(table=self.uri):
            return self._reader.listing()


def _first_recreatable(listing: Listing) -> int | None:
    """Return the oldest version from which the log can rebuild the newest: 0, or the oldest usable checkpoint."""
    if not listing.commits:
        return None
    if 0 in listing.commits:
        return 0
    versions = [checkpoint.version for checkpoint in listing.checkpoints if checkpoint.version in listing.commits]
    return min(versions, default=None)


def _is_same(listed: ObjectInfo, known: ObjectInfo | None) -> bool:
    """Return whether the commit file is the one that was read before, not one of a new table at the same location."""
    if known is None or listed.size != known.size:
        return False
    if listed.etag is not None and known.etag is not None:
        return listed.etag == known.etag
    times = (listed.modification_time_ms, known.modification_time_ms)
    if any(time_ms % 1000 == 0 for time_ms in times):  # A listing may round to whole seconds where HEAD does not.
        return times[0] // 1000 == times[1] // 1000
    return times[0] == times[1]
