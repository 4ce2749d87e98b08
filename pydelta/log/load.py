"""Load the snapshot of a version. Damaged checkpoints and compactions are bypassed if the log allows it.

::

    listing --plan_segment--> segment --replay--> snapshot
       ^                         |
       +---- exclude the file <--+ a checkpoint or compacted file cannot be read
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from pydelta.errors import LogCorruptedError, LogGapError, TableNotFoundError
from pydelta.errors.conditions import Condition
from pydelta.log.checkpoint.read import Checkpoint
from pydelta.log.files import MOST_IN_MEMORY, FileTable
from pydelta.log.given_up import given_up_error
from pydelta.log.history import read_commit_info
from pydelta.log.replay import Replayed, State, UnusableFile, replay
from pydelta.log.segment import Listing, LogSegment, plan_segment, read_listing
from pydelta.log.side_files import read_checksum, read_hint
from pydelta.log.snapshot import Snapshot
from pydelta.protocol.actions import CommitInfo
from pydelta.protocol.features import GIVEN_UP, ensure_readable
from pydelta.protocol.paths import LOG_DIR, commit_file
from pydelta.storage.interface import ObjectInfo, Store

__all__ = ["LogReader", "commit_info"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogReader:
    """Reads versions of one table.

    Args:
        store: Bound to the table's root.
        root: URI of the table, for messages and for absolute paths.
        most_in_memory: See ``FileTable``.
    """

    store: Store
    root: str
    most_in_memory: int = MOST_IN_MEMORY

    def listing(self, start_version: int = 0) -> Listing:
        """List the log directory, starting with a version's files."""
        start = f"{start_version:020d}" if start_version else ""
        return read_listing(self.store.list_from(start, prefix=LOG_DIR))

    def list_latest(self) -> Listing:
        """List the log directory from the checkpoint in ``_last_checkpoint`` on, or else all of it.

        The hint only avoids a long listing. It is ignored if no complete checkpoint is listed from its version on.
        """
        hint = read_hint(self.store)
        if hint is not None and hint.version > 0:
            listing = self.listing(hint.version)
            if listing.checkpoints:
                return listing
        return self.listing()

    def list_latest_for(self, version: int) -> Listing:
        """List the log directory back to a checkpoint at or before ``version``."""
        listing = self.list_latest()
        if 0 in listing.commits or any(checkpoint.version <= version for checkpoint in listing.checkpoints):
            return listing
        return self.listing()

    def load(
        self, version: int | None = None, *, listing: Listing | None = None, known: Snapshot | None = None
    ) -> Snapshot | None:
        """Load the snapshot of a version. Returns None if the log is empty.

        Args:
            version: The version; None for the newest.
            listing: An existing listing, if any. It need not begin at version 0.
            known: An older snapshot. Sidecars that it has in memory and that are still used are not read again.

        Raises:
            LogGapError: Commits are missing. The error lists their versions.
            LogCorruptedError: A file is damaged, and nothing older replaces it.
            UnsupportedFeatureError: The table needs features that this engine cannot read.
        """
        if listing is None:
            listing = self.list_latest() if version is None else self.listing()
        if listing.is_empty:
            return None
        found = self._replay(listing, version, frozenset(), known.files.layers()[0] if known is not None else None)
        if found is None:
            return None
        segment, replayed = found
        return Snapshot.of(segment, replayed, lambda: self.commit_info(segment.last_commit))

    def commit_info(self, info: ObjectInfo) -> CommitInfo | None:
        """Read the ``commitInfo`` of a commit file."""
        return read_commit_info(self.store, info)

    def check(self, state: State) -> None:
        """Refuse a state that must not be read.

        Raises:
            LogCorruptedError: There is no protocol or no metadata.
            VersionNotFoundError: The version was given up.
            UnsupportedFeatureError: The reader version or a feature is unknown.
        """
        if state.protocol is not None:
            if GIVEN_UP in (state.protocol.reader_features or ()):
                raise given_up_error()
            ensure_readable(state.protocol, table=self.root)
        missing = [
            name for name, value in (("protocol", state.protocol), ("metaData", state.metadata)) if value is None
        ]
        if missing:
            raise LogCorruptedError(
                f"The log has no {' and no '.join(missing)} action, so the table's state cannot be rebuilt.",
                hint="Version 0 must hold both. Restore the first commits of _delta_log from a backup.",
                table=self.root,
                condition=Condition.of("DELTA_STATE_RECOVER_ERROR", operation=" and ".join(missing)),
            )

    def _replay(
        self, listing: Listing, version: int | None, excluded: frozenset[str], known: Checkpoint | None = None
    ) -> tuple[LogSegment, Replayed] | None:
        first: LogCorruptedError | None = None
        whole = False
        while True:
            try:
                segment = plan_segment(listing, version=version, excluded=excluded)
            except LogGapError as gap:
                if first is not None:
                    raise _no_way_back(first, gap) from gap
                raise
            if segment is None:
                if first is not None:
                    raise first
                return None
            try:
                replayed = replay(
                    self.store,
                    segment,
                    check=self.check,
                    fallback=self._fallback(segment),
                    known=known,
                    most_in_memory=self.most_in_memory,
                )
                self._verify_compacted(segment, replayed)
                return segment, replayed
            except UnusableFile as unusable:
                _logger.warning(
                    "%s is bypassed: %s", unusable.name, unusable.error.message,
                    extra={"table": self.root, "file": unusable.name},
                )  # fmt: skip
                first = first or unusable.error
                excluded |= {unusable.name}
                version = segment.version
                if not whole:
                    listing, whole = self.listing(), True

    def _verify_compacted(self, segment: LogSegment, replayed: Replayed) -> None:
        """Compare the result of compacted files with the version's checksum, if it has one.

        Raises:
            UnusableFile: They differ, so the commits must be read instead.
        """
        compacted = [commit for commit in segment.commits if commit.is_compacted]
        checksum = read_checksum(self.store, segment.version) if compacted and segment.has_checksum else None
        if checksum is None:
            return
        files = replayed.files
        if (files.num_files, files.size_bytes) != (checksum.sums.num_files, checksum.sums.size_bytes):
            name = compacted[-1].info.path
            raise UnusableFile(
                name,
                LogCorruptedError(
                    f"With {name}, version {segment.version} has {files.num_files} files; its checksum says "
                    f"{checksum.sums.num_files}.",
                    hint="The commits are read instead. Delete the compacted file.",
                ),
            )

    def _fallback(self, segment: LogSegment) -> Callable[[LogCorruptedError], FileTable] | None:
        checkpoint = segment.checkpoint
        if checkpoint is None:
            return None

        def older(error: LogCorruptedError) -> FileTable:
            _logger.warning("%s is bypassed: %s", checkpoint.name, error.message, extra={"table": self.root})
            try:
                found = self._replay(self.listing(), checkpoint.version, frozenset({checkpoint.name}))
            except LogGapError as gap:
                raise _no_way_back(error, gap) from error
            if found is None:
                raise error
            return found[1].files

        return older

    def not_found(self) -> TableNotFoundError:
        """Build the error for a location without a table."""
        return TableNotFoundError(
            f"There is no Delta table at {self.root}: {LOG_DIR} has no commit.",
            hint="Check the path. A table is created by writing to it, or by CREATE TABLE.",
        )


def _no_way_back(first: LogCorruptedError, gap: LogGapError) -> LogCorruptedError:
    return LogCorruptedError(
        f"{first.message} Without it, {gap.message[0].lower()}{gap.message[1:]}",
        hint="Restore the damaged checkpoint or the missing commits from a backup of _delta_log.",
        version=gap.version,
    )


def commit_info(store: Store, version: int) -> ObjectInfo | None:
    """Return the file of a commit, or None if it does not exist.

    Readers take a version's time from a listing. S3's HEAD returns whole seconds, but some services (MinIO) list
    milliseconds. So a time in whole seconds is looked up in a listing too; otherwise the writer would date its commit
    up to a second earlier than all readers. Stores whose ``head`` returns the listed time are asked only once.
    """
    name = commit_file(version)
    found = store.head(f"{LOG_DIR}/{name}")
    exact = getattr(store, "head_has_exact_time", False)
    if found is None or exact or found.modification_time_ms % 1000:
        return found
    listed = next(iter(store.list_from(name, prefix=LOG_DIR)), None)
    return listed if listed is not None and listed.path == found.path else found
