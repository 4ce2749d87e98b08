"""Delete the rows of keys from a table for good: from its files, its history and its log, and search what is left.

::

    look --> files with rows of the keys, and who needs them
    ERASE        live files are rewritten without the rows, in one commit
    manifests    symlink manifests and the Iceberg entry are published again
    ERASE START  a commit without files, and its checkpoint without tombstones: all versions before are given up
    index        the record index is dropped: it has hashes of keys
    files        those of earlier versions, of the change feed and old strays with rows of the keys are deleted
    log          the files of the versions before are deleted, or replaced by markers
    older        with ``object_versions="drop"``: the older versions of a bucket's objects, and delete markers
    ERASE END    other processes read the log from the start
    look again --> clean, or once more: a writer may have added a key at the same time

Each step leaves a table that reads right, and a run after an interruption begins with a look, so that it does what is
left. A deletion waits for nothing but the commits before it: a version that was not given up never loses a file.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import polars as pl

from pydelta.commands.erase.keys import Subject, bind_keys
from pydelta.commands.erase.look import EARLIER, LIVE, STRAY, Look, OlderSearch, files_with_keys, look, older_versions
from pydelta.commands.erase.rows import APPEND_ONLY, ErasedRows, EraseRows
from pydelta.commands.generate import Generate, GenerateIceberg
from pydelta.commands.records.index import drop_all_segments
from pydelta.commands.run import Context, Task, commit_alone, existing_table, refuse_append_only, run
from pydelta.commands.vacuum.delete import Deletion, Doomed, VacuumOptions, delete_files, not_deleted
from pydelta.commands.vacuum.iceberg import delete_unreferenced, expire_entry
from pydelta.commands.vacuum.needed import find_needed
from pydelta.commands.vacuum.notes import noted_clones
from pydelta.commands.vacuum.plan import checksums_of, directories_above
from pydelta.errors import (
    DeltaConcurrentModificationException,
    DeltaEnvironmentError,
    ObjectNotFoundError,
    StorageError,
    UnsafeOperationError,
)
from pydelta.log import CheckpointResult, DeltaLog, Snapshot
from pydelta.log.given_up import GIVEN_UP_END
from pydelta.manifests.iceberg.entry import find_newest
from pydelta.manifests.publish import listed_manifests
from pydelta.protocol.features import ensure_writable
from pydelta.protocol.names import camel_case
from pydelta.storage.kinds import kind_of
from pydelta.storage.object_versions import DeletedVersions, ObjectVersions, open_versions
from pydelta.storage.pages import is_unfinished, paged
from pydelta.storage.ranges import open_stream
from pydelta.storage.readers import read_all
from pydelta.storage.uris import scheme_of
from pydelta.txn import Operation, start_transaction

__all__ = ["Erase", "Erasure", "ErasurePlan", "ErasureResult", "History", "KeptObjects"]

History = Literal["drop"]
"""What becomes of earlier versions: ``drop`` gives all of them up."""
KeptObjects = Literal["keep", "drop", "absent"]
"""What becomes of the older versions of objects in a bucket that keeps them."""

_START: Final = "ERASE START"
_ATTEMPTS: Final = 5
_ROUNDS: Final = 3
_SHOWN: Final = 5
_SALT_BYTES: Final = 16
_FAR_MS: Final = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasurePlan:
    """What an erasure would touch.

    Args:
        first_version: The oldest version that can be read.
        look: Where the keys are.
        clones: Shallow clones that read files of this table.
        has_manifests, has_iceberg_entry: Whether these are published again.
    """

    first_version: int
    look: Look
    clones: tuple[str, ...] = ()
    has_manifests: bool = False
    has_iceberg_entry: bool = False

    @property
    def version(self) -> int:
        """The newest version."""
        return self.look.version

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to erase."""
        return not self.look.files.is_empty() or bool(self.look.places)

    @property
    def gives_up(self) -> tuple[int, int] | None:
        """The versions that would be given up, both ends included; None if nothing is to be erased."""
        return (self.first_version, self.version) if self.is_needed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureResult:
    """The counts of an erasure.

    ``is_proven`` says whether a search of everything that is left found no key. ``first_given_up`` and
    ``last_given_up`` are the versions that were given up, or would be by a dry run; None if there are none.
    ``num_left`` counts files and places that hold a key, or could not be read, after the erasure.
    """

    version: int
    is_proven: bool
    dry_run: bool
    num_files_found: int
    num_places_found: int
    num_deleted_rows: int = 0
    num_hidden_rows: int = 0
    num_rewritten_files: int = 0
    num_deleted_files: int = 0
    num_deleted_bytes: int = 0
    num_deleted_versions: int = 0
    first_given_up: int | None = None
    last_given_up: int | None = None
    num_left: int = 0

    def as_dict(self) -> dict[str, int | bool | None]:
        """Return the fields under the names that a history would have: ``isProven``, ``numDeletedRows`` …"""
        return {camel_case(name): getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """The result of an erasure of one table.

    Args:
        table: Its location.
        table_id: Its id.
        plan: What was found at first.
        digests: A keyed digest of each key by column; see ``Subject.digests``.
        salt: The key of these digests, hexadecimal.
        dry_run: Whether nothing was changed.
        rows: The commits that rewrote files.
        given_up: Versions that were given up, both ends included.
        removed: Path, size and digest (SHA-256, hexadecimal) of each file that was deleted, because it had rows of the
            keys or no writer finished it.
        older: Older versions of objects that were deleted.
        left: The last look.
        version: The newest version afterwards.
        began_ms, ended_ms: Epoch milliseconds.
    """

    table: str
    table_id: str
    plan: ErasurePlan
    digests: Mapping[str, Sequence[str]]
    salt: str
    dry_run: bool
    left: Look
    version: int
    rows: tuple[ErasedRows, ...] = ()
    given_up: tuple[int, int] | None = None
    removed: tuple[tuple[str, int, str], ...] = ()
    older: DeletedVersions = field(default_factory=DeletedVersions)
    began_ms: int = 0
    ended_ms: int = 0

    @property
    def deleted_files(self) -> int:
        """Number of files with rows of the keys that were deleted."""
        return len(self.removed)

    @property
    def deleted_bytes(self) -> int:
        """Their size."""
        return sum(size for _, size, _ in self.removed)

    @property
    def is_proven(self) -> bool:
        """Whether a search of everything that is left found no key."""
        return not self.dry_run and self.left.is_clean

    @property
    def result(self) -> ErasureResult:
        """The counts."""
        found, left = self.plan.look, self.left
        first, last = (self.plan.gives_up if self.dry_run else self.given_up) or (None, None)
        return ErasureResult(
            version=self.version,
            is_proven=self.is_proven,
            dry_run=self.dry_run,
            num_files_found=found.files.height,
            num_places_found=len(found.places),
            num_deleted_rows=sum(rows.num_rows for rows in self.rows),
            num_hidden_rows=sum(rows.num_hidden_rows for rows in self.rows),
            num_rewritten_files=sum(rows.num_removed_files for rows in self.rows),
            num_deleted_files=self.deleted_files,
            num_deleted_bytes=self.deleted_bytes,
            num_deleted_versions=self.older.versions + self.older.markers,
            first_given_up=first,
            last_given_up=last,
            num_left=left.files.height
            + left.abandoned.height
            + len(left.places)
            + len(left.unread)
            + len(left.unlisted)
            + left.kept_versions,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Erase(Task[Erasure]):
    """Delete the rows of keys from a table, and everything that names them.

    Args:
        keys: Texts by the name of the column that holds them.
        history: What becomes of earlier versions. None refuses an erasure that needs an answer.
        dry_run: Whether only to look.
        object_versions: ``drop`` deletes the older versions of all objects of the table, and delete markers, in a
            bucket that keeps them. With ``keep`` they are counted, and the erasure is not proven while there are any,
            nor where they cannot be listed. ``absent`` states that the store keeps none, so nothing is listed.
        deleting: The same table with options of a key that may delete; None if the log's own key may.
        options: Parallelism, limits and retries of deletions.

    Returns:
        What was done, and what a search found afterwards.

    Raises:
        TableNotFoundError: There is no table.
        UnsafeOperationError: Earlier versions would be given up without consent, the table is append-only, or a shallow
            clone or a manifest reads a file that would go.
        BindError, InvalidArgumentError, UnsupportedFeatureError: The keys do not fit the table.
        DeltaConcurrentModificationException: Other writers won each time. What was done so far is right; run it again.
        StoragePermissionError, StorageError: The store refused. Run it again: it does what is left.

    Protocol: "Add File and Remove File", "Checkpoints", "Metadata Cleanup".
    """

    keys: Mapping[str, Sequence[str]] = field(repr=False)
    history: History | None = None
    dry_run: bool = False
    object_versions: KeptObjects = "keep"
    deleting: DeltaLog | None = field(default=None, repr=False)
    options: VacuumOptions = field(default_factory=VacuumOptions)

    def perform(self, context: Context) -> Erasure:
        """See ``Task.perform``."""
        log = context.log
        snapshot = existing_table(log.update())
        assert snapshot.protocol is not None and snapshot.metadata is not None
        ensure_writable(snapshot.protocol, table=log.uri)
        refuse_append_only(snapshot, APPEND_ONLY)
        subject = bind_keys(snapshot, self.keys)
        return _Run(
            request=self,
            context=context,
            subject=subject,
            salt=secrets.token_bytes(_SALT_BYTES),
            table_id=snapshot.metadata.id,
            deleting=self.deleting or log,
        ).run()


@dataclass(slots=True, kw_only=True)
class _Run:
    """One erasure under way."""

    request: Erase
    context: Context
    subject: Subject
    salt: bytes
    table_id: str
    deleting: DeltaLog
    rows: list[ErasedRows] = field(default_factory=list)
    removed: list[tuple[str, int, str]] = field(default_factory=list)
    given_up: tuple[int, int] | None = None
    versions: ObjectVersions | None = None
    unlisted: list[str] = field(default_factory=list)
    unfinished: frozenset[str] | None = None
    older: DeletedVersions = field(default_factory=DeletedVersions)

    @property
    def log(self) -> DeltaLog:
        return self.context.log

    def run(self) -> Erasure:
        """Look, erase, and look again."""
        began = self.context.clock()
        self._open_versions()
        plan = self._plan()
        left = plan.look
        self.unfinished = frozenset(path for path, _ in left.unread if is_unfinished(path))
        if not self.request.dry_run and plan.is_needed:
            self._refuse(plan)
            self._drop_index()
            self._delete_abandoned(plan)
            for _ in range(_ROUNDS):
                self._erase(plan)
                left = self._look(all_files=True)
                if not left.of(LIVE, EARLIER, STRAY).height and not left.places:
                    break
        elif not self.request.dry_run:
            self._drop_index()
            self._delete_abandoned(plan)
            self._delete_older()
            left = self._look(all_files=True)
        return Erasure(
            table=self.log.uri,
            table_id=self.table_id,
            plan=plan,
            digests=self.subject.digests(self.salt),
            salt=self.salt.hex(),
            dry_run=self.request.dry_run,
            rows=tuple(self.rows),
            given_up=self.given_up,
            removed=tuple(self.removed),
            older=self.older,
            left=left,
            version=self.log.update().version,
            began_ms=began,
            ended_ms=self.context.clock(),
        )

    # -- looking --------------------------------------------------------------------------------------------------

    def _plan(self) -> ErasurePlan:
        found = self._look(all_files=False)
        return ErasurePlan(
            first_version=min(self.log.held().commits, default=0),
            look=found,
            clones=tuple(clone.uri for clone in noted_clones(self.log)),
            has_manifests=bool(listed_manifests(self.log.store)),
            has_iceberg_entry=find_newest(self.log.store) is not None,
        )

    def _look(self, *, all_files: bool) -> Look:
        snapshot = self.log.update()
        old = self._old_before_ms(snapshot)
        read = all_files and self.request.object_versions == "drop"
        older = None if self.versions is None else OlderSearch(versions=self.versions, read=read)
        found = look(self.log, snapshot, self.subject, old_before_ms=old, all_files=all_files, older=older)
        unread = tuple(item for item in found.unread if not self._begun_since(item[0]))
        return replace(found, unread=unread, unlisted=tuple(self.unlisted))

    def _begun_since(self, path: str) -> bool:
        """Return whether a writer began the file after the first look: whatever it adds comes after this erasure."""
        return is_unfinished(path) and self.unfinished is not None and path not in self.unfinished

    def _open_versions(self) -> None:
        """Open the older versions of the table's objects, or note why they cannot be listed."""
        if self.request.object_versions == "absent":
            return
        try:
            self.versions = open_versions(self.log.uri, self.deleting.options)
            if self.versions is None and kind_of(scheme_of(self.log.uri)).buckets:
                self.unlisted.append("Older versions of objects can only be listed in S3.")
            elif self.versions is not None:
                next(iter(self.versions.listed()), None)
        except (DeltaEnvironmentError, StorageError) as error:
            if self.request.object_versions == "drop" or getattr(error, "retryable", False):
                raise
            self.versions = None
            self.unlisted.append(f"Older versions of objects cannot be listed: {error.message}")

    def _old_before_ms(self, snapshot: Snapshot) -> int:
        """Return the time before which no transaction that still runs began."""
        return self.context.clock() - snapshot.properties.deleted_file_retention_ms

    def _refuse(self, plan: ErasurePlan) -> None:
        """Refuse what needs consent."""
        if self.request.history is None:
            assert plan.gives_up is not None
            first, last = plan.gives_up
            raise UnsafeOperationError(
                f"Versions {first} to {last} hold rows of the keys or name them, so they have to be given up.",
                hint="Say so with history='drop' (--history drop): time travel, RESTORE and streams that have not "
                "read these versions will fail. A dry run shows what is touched.",
                table=self.log.uri,
            )

    # -- erasing --------------------------------------------------------------------------------------------------

    def _erase(self, plan: ErasurePlan) -> None:
        """Delete what a look at the table finds, in the order that keeps every state readable."""
        digest = _digest_of(self.subject.digests(self.salt))
        rows = run(EraseRows(subject=self.subject, digest=digest), self.context)
        if rows.version is not None:
            self.rows.append(rows)
        if plan.has_manifests:
            run(Generate(), self.context)
        if plan.has_iceberg_entry:
            run(GenerateIceberg(), self.context)
        started, checkpoint = self._start(digest)
        found = files_with_keys(self.log, started, self.subject, old_before_ms=self._old_before_ms(started))
        self._drop_index()  # A refresh that ends later sees the commit above, and deletes what it wrote.
        doomed = found.filter(pl.col("state").is_in([EARLIER, STRAY]))
        self._refuse_readers(started, doomed)
        if plan.has_iceberg_entry:
            run(GenerateIceberg(full=True), self.context)  # Manifests also name removed files, with their bounds.
            expire_entry(self.deleting, newest=started.version, cutoff_ms=_FAR_MS)
        self._delete(doomed, started.version)
        self._give_up(checkpoint)
        ended = Operation(
            name=GIVEN_UP_END,
            parameters={"startVersion": started.version},
            metrics={"numDeletedFiles": len(self.removed)},
        )
        commit_alone(self.context, ended)
        if plan.has_iceberg_entry:
            delete_unreferenced(self.deleting, cutoff_ms=_FAR_MS)
        self._delete_older()

    def _start(self, digest: str) -> tuple[Snapshot, CheckpointResult]:
        """Commit the version from which the table can be read afterwards, and write its checkpoint."""
        started = Operation(name=_START, parameters={"request": digest})
        silent = self.context.beginning(lambda log: start_transaction(log, hooks=()))
        for _ in range(_ATTEMPTS):
            snapshot = self.log.snapshot(commit_alone(silent, started))
            checkpoint = self.log.checkpoint(snapshot, whole=True, tombstones=False)
            if checkpoint.num_removes == 0:
                return snapshot, checkpoint
        raise DeltaConcurrentModificationException(
            "Other processes wrote checkpoints of each version that was begun, so no version was given up.",
            hint="Run it again.",
            table=self.log.uri,
        )

    def _refuse_readers(self, snapshot: Snapshot, doomed: pl.DataFrame) -> None:
        """Refuse to delete files that shallow clones or published manifests name."""
        read = self._read_by_others(snapshot, doomed)
        if read.is_empty():
            return
        names = ", ".join(clone.uri for clone in noted_clones(self.log)[:_SHOWN]) or "published manifests"
        raise UnsafeOperationError(
            f"{read.height} files with rows of the keys are still read by others: {names}. The newest version has "
            "no row of the keys any more; earlier ones still do.",
            hint="Erase the keys in these clones first, which gives them files of their own; publish manifests again "
            "(catalog_sync sync). Then run it again: it does what is left.",
            table=self.log.uri,
        )

    def _read_by_others(self, snapshot: Snapshot, files: pl.DataFrame) -> pl.DataFrame:
        """Return the files that shallow clones or published manifests may name."""
        if files.is_empty():
            return files
        needed = find_needed(self.log, snapshot, cutoff_ms=_FAR_MS, clones=noted_clones(self.log))
        return files.filter(needed.others.may_hold(files["path"]))

    def _drop_index(self) -> None:
        """Delete the record index: hashes of keys tell whether a file, also a deleted one, had a row of a person."""
        drop_all_segments(self.deleting.store, self.log.uri, "Run it again: it does what is left.")

    def _delete_abandoned(self, plan: ErasurePlan) -> None:
        """Delete what no writer finished, but nothing that a clone or a manifest names."""
        abandoned = plan.look.abandoned
        read = self._read_by_others(self.log.update(), abandoned)
        self._delete(abandoned.join(read, on="path", how="anti"), plan.version)

    def _delete(self, doomed: pl.DataFrame, version: int) -> None:
        """Delete files with rows of the keys, and folders that are empty then."""
        if doomed.is_empty():
            return
        files = doomed.select("path", "size")
        digests = read_all(lambda path: _digest_of_file(self.log, path), files["path"].to_list())
        beside = checksums_of(doomed) if self.log.uri.startswith("file:") else files.clear()
        state = Deletion()
        plan = Doomed(files=files, uncounted=beside.select("path", "size"), version=version)
        delete_files(self.deleting, plan, self.request.options, on_deleted=lambda _: None, state=state)
        if state.failed or state.untouched:
            shown = "; ".join(f"{path}: {reason}" for path, reason in state.failed[:_SHOWN])
            left = len(state.failed) + state.untouched
            raise not_deleted(state, f"{left} of {files.height} files with rows of the keys are still there. {shown}")
        for path, size, digest in zip(files["path"], files["size"], digests, strict=True):
            if not state.spared or self.log.store.head(path) is None:  # A commit may have made a file live again.
                self.removed.append((path, size, digest))
        store = paged(self.deleting.store)
        if store is not None and store.has_directories:
            folders = directories_above(files["path"])
            store.remove_directories(sorted(folders, key=lambda folder: (-folder.count("/"), folder)))

    def _delete_older(self) -> None:
        """Delete the older versions of the table's objects, and the markers of those that are gone."""
        if self.request.object_versions != "drop" or self.versions is None:
            return
        done = self.versions.delete(older_versions(self.log, self.versions))
        self.older.versions += done.versions
        self.older.markers += done.markers
        self.older.size += done.size
        if done.failed:
            shown = "; ".join(f"{path}: {reason}" for path, reason in done.failed[:_SHOWN])
            raise StorageError(
                f"{len(done.failed)} older versions of objects are still there. {shown}",
                hint="A lock of the bucket may hold them, or the key may not delete them (s3:DeleteObjectVersion). "
                "Run it again afterwards: it does what is left.",
                table=self.log.uri,
            )

    def _give_up(self, checkpoint: CheckpointResult) -> None:
        plan = self.log.plan_giving_up(checkpoint, young_since_ms=self._old_before_ms(self.log.update()))
        first = min(self.log.held().commits, default=checkpoint.version)
        done = self.deleting.give_up(plan)
        if done.failed:
            path, reason = done.failed[0]
            raise StorageError(
                f"{len(done.failed)} files of versions that were given up are still there, such as {path}: {reason}",
                retryable=True,
                hint="Run it again: it does what is left.",
            )
        before = self.given_up
        self.given_up = (before[0] if before else first, checkpoint.version - 1)


def _digest_of_file(log: DeltaLog, path: str) -> str:
    """Return the SHA-256 of a file, hexadecimal; empty if another process deleted it."""
    try:
        with open_stream(log.store, path) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except ObjectNotFoundError:
        return ""


def _digest_of(digests: Mapping[str, Sequence[str]]) -> str:
    """Return one digest for all keys of a request."""
    text = "\n".join(f"{name}:{digest}" for name, found in sorted(digests.items()) for digest in found)
    return hashlib.sha256(text.encode()).hexdigest()
