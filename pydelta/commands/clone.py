"""Clone a version of a table as a separate table elsewhere, in one commit (CLONE).

::

    shallow   the new log names the source's files by absolute paths; nothing is copied
    deep      files and deletion vectors are copied under new names; the clone does not need the source afterwards

A replaced target keeps the files that it already shares with the source, so repeating a clone copies only new files.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Protocol
from urllib.parse import quote

import polars as pl

from pydelta.commands.convert import ParquetFolder
from pydelta.commands.create import REPLACES, refuse_foreign_files
from pydelta.commands.run import Attempt, Command, refuse_append_only
from pydelta.commands.vacuum.notes import note_clone
from pydelta.errors import (
    InvalidArgumentError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
    error_context,
)
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog, Snapshot
from pydelta.log.columns import canonical_path
from pydelta.log.runs import AddRun, joined, loose_adds, num_bytes, removes_of, runs_of
from pydelta.log.vector_files import place_of, read_deleted_rows, write_vectors
from pydelta.protocol.actions import Action, AddFile, DeletionVectorDescriptor, DomainMetadata, Metadata
from pydelta.protocol.actions import Protocol as ProtocolAction
from pydelta.protocol.features import implied_features, required_protocol, upgrade
from pydelta.protocol.iceberg_compat import check_files_made_for
from pydelta.protocol.paths import are_absolute, decode_log_path, encode_log_path, is_absolute_path
from pydelta.protocol.vectors import vector_path
from pydelta.settings import TableProperties, checked_properties
from pydelta.settings.clock import Clock
from pydelta.settings.table import iceberg_compat_version
from pydelta.storage import Store, open_store
from pydelta.storage.discarding import discard
from pydelta.txn import Committed, Operation, OptimisticTransaction
from pydelta.txn.prepare import row_id_high_water_mark

__all__ = [
    "Clone",
    "CloneResult",
    "Copier",
    "FileCopy",
    "ThreadCopier",
    "absolute_add",
    "cloned_metadata",
]

_NO_VERSION: Final = -1
_CHUNK_BYTES: Final = 8 * 1024 * 1024
_THREADS: Final = 16
_SUFFIX: Final = re.compile(r"-c[0-9a-f]{8}(?=\.|$)")
_ROW_TRACKING: Final = "delta.rowTracking"
_MAX_COLUMN_ID: Final = "delta.columnMapping.maxColumnId"
_PROTECTION: Final = "delta.requireCheckpointProtectionBeforeVersion"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneResult:
    """The result of a CLONE. Sizes are in bytes; only a deep clone counts copied files."""

    source_table_size: int
    source_num_of_files: int
    num_removed_files: int
    num_copied_files: int
    removed_files_size: int
    copied_files_size: int
    version: int
    committed: Committed | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCopy:
    """One file to copy.

    Args:
        source: As the source's log spells it.
        target: Relative to the target's root, not escaped.
        size: Expected size in bytes.
    """

    source: str
    target: str
    size: int


class Copier(Protocol):
    """Copies files from one table's location to another's."""

    def copy(self, files: Sequence[FileCopy], *, source: DeltaLog, target: DeltaLog) -> None:
        """Copy all files.

        Raises:
            StorageError: A file could not be read or written, or its size differs from the log.
        """


class ThreadCopier:
    """Copies with threads of this process."""

    def copy(self, files: Sequence[FileCopy], *, source: DeltaLog, target: DeltaLog) -> None:
        """See ``Copier.copy``."""
        with ThreadPoolExecutor(max_workers=_THREADS) as pool:
            jobs = [
                pool.submit(copy_file, item, store=source.store, into=target.store, options=source.options)
                for item in files
            ]
            try:
                for job in jobs:
                    job.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


def copy_file(item: FileCopy, *, store: Store, into: Store, options: Mapping[str, str]) -> None:
    """Copy one file in pieces. The target appears complete or not at all."""
    holder, path = place_of(item.source, store=store, root=store.root, options=options)
    writer = into.open_writer(item.target)
    try:
        for start in range(0, item.size, _CHUNK_BYTES):
            piece = holder.read_range(path, start, min(_CHUNK_BYTES, item.size - start))
            writer.write(piece)
            if len(piece) < min(_CHUNK_BYTES, item.size - start):
                raise StorageError(
                    f"The file {item.source!r} ends after {start + len(piece)} of {item.size} bytes.",
                    hint="It is damaged: restore it from a backup before the table is cloned.",
                )
        writer.close()
    except BaseException:
        abort = getattr(writer, "abort", None)
        if abort is not None:
            abort()
        raise


def open_and_copy(files: Sequence[FileCopy], *, source: str, target: str, options: Mapping[str, str]) -> None:
    """Copy files between two tables' locations, for executors, which open the stores themselves."""
    store, into = open_store(source, options), open_store(target, options)
    for item in files:
        copy_file(item, store=store, into=into, options=options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clone(Command[CloneResult]):
    """Create a table from a version of another one, or from the Parquet files in a folder; the source is unchanged.

    Args:
        source: The table or folder to clone, at another location than the target.
        shallow: Reference the source's files instead of copying them. VACUUM of the source keeps them if the clone
            could be noted beside it (``_pydelta/clones``); otherwise it breaks the clone.
        replace: Replace an existing table with the clone.
        version: The version to clone; without version and time, the newest. A folder has none.
        timestamp_ms: Epoch milliseconds: clone the last version that is not newer.
        properties: Table properties, which override the source's.
        folder: Description of a folder of Parquet files, see ``commands.convert.described``; None for a Delta table.
        copier: Copies files for a deep clone; by default threads of this process.

    Raises:
        TableNotFoundError: There is no source table.
        TableAlreadyExistsError: The target has a table or other files, and ``replace`` is not set.
        VersionNotFoundError: The source's log does not reach the version.
        InvalidArgumentError: A version of a folder was requested, or the target is the source.
        UnsafeOperationError: The target is append-only.
        UnsupportedFeatureError: The source has a feature that this engine cannot write.
        StorageError: A file could not be copied. The copies are deleted, and no version is created.

    Protocol: "Add File and Remove File", "Deletion Vectors", "Row Tracking".
    """

    source: DeltaLog = field(repr=False)
    shallow: bool
    replace: bool = False
    version: int | None = None
    timestamp_ms: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    folder: ParquetFolder | None = None
    copier: Copier | None = None

    makes_table = True

    def execute(self, attempt: Attempt) -> CloneResult:
        """See ``Command.execute``."""
        source, target = self.source, attempt.log
        with error_context(table=source.uri):
            if source.uri == target.uri:
                raise InvalidArgumentError(
                    "A table cannot be cloned onto itself.",
                    hint="Choose another target.",
                    condition=Condition.of("DELTA_UNSUPPORTED_CLONE_REPLACE_SAME_TABLE", tableName=target.uri),
                )
            cloned = self._cloned()
            properties = checked_properties(self.properties)
        self._refuse_target(attempt)
        copier = self.copier or ThreadCopier()
        work = _Clone(attempt.txn, source, target, cloned, properties, copier, attempt.now_ms)
        result = work.run(shallow=self.shallow)
        if self.shallow and self.folder is None:
            note_clone(source, target.uri, version=cloned.version)
        return result

    def _cloned(self) -> _Cloned:
        if self.folder is None:
            if not self.source.table_exists():
                raise TableNotFoundError.at(self.source.uri)
            return _Cloned.of(self.source.snapshot(version=self.version, timestamp_ms=self.timestamp_ms))
        if self.version is not None or self.timestamp_ms is not None:
            raise InvalidArgumentError(
                "A folder of Parquet files has no versions to clone.",
                hint="Leave VERSION or TIMESTAMP AS OF out.",
            )
        metadata = self.folder.metadata
        return _Cloned(
            provider="parquet",
            version=_NO_VERSION,
            metadata=metadata,
            protocol=required_protocol(metadata),
            adds=self.folder.adds,
        )

    def _refuse_target(self, attempt: Attempt) -> None:
        target = attempt.log
        if not attempt.txn.table_exists:
            refuse_foreign_files(target.store, target.uri)
        elif not self.replace:
            raise TableAlreadyExistsError(
                f"There is a Delta table at {target.uri}, at version {attempt.snapshot.version}.",
                hint="Clone with replace=True, or choose another target.",
                condition=Condition.of("DELTA_TABLE_ALREADY_EXISTS", tableName=target.uri),
            )
        else:
            refuse_append_only(attempt.snapshot, REPLACES)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cloned:
    """The version or folder to clone.

    Args:
        provider: The format of its files: ``delta`` or ``parquet``.
        version: The source's version; -1 for a folder of Parquet files, which has none.
        domains: The source's domain metadata.
    """

    provider: str
    version: int
    metadata: Metadata
    protocol: ProtocolAction
    adds: Sequence[AddFile]
    domains: Sequence[DomainMetadata] = ()

    @classmethod
    def of(cls, snapshot: Snapshot) -> _Cloned:
        assert snapshot.metadata is not None and snapshot.protocol is not None
        return cls(
            provider="delta",
            version=snapshot.version,
            metadata=snapshot.metadata,
            protocol=snapshot.protocol,
            adds=snapshot.files.add_actions(snapshot.files.core),
            domains=tuple(snapshot.domain_metadata.values()),
        )

    @property
    def properties(self) -> TableProperties:
        return TableProperties.parse(self.metadata.configuration)

    @property
    def size_bytes(self) -> int:
        return num_bytes(self.adds)


@dataclass(slots=True)
class _Clone:
    """One clone in progress."""

    txn: OptimisticTransaction
    source: DeltaLog
    target: DeltaLog
    cloned: _Cloned
    properties: Mapping[str, str]
    copier: Copier
    clock: Clock

    def run(self, *, shallow: bool) -> CloneResult:
        wanted = self.cloned.adds
        there: Sequence[AddFile] = ()
        if self.txn.table_exists:
            self.txn.read_whole_table(exactly=True)
            there = self.txn.snapshot.files.add_actions(self.txn.snapshot.files.core)
        written: list[str] = []
        coming: Sequence[AddFile]
        leaving: Sequence[AddFile]
        copied: Sequence[AddFile] = ()
        try:
            if shallow:
                coming, leaving = self._shared(wanted, there)
            else:
                coming, leaving = self._copied(wanted, there, written)
                copied = coming
            return self._commit(coming, leaving, copied)
        except BaseException as error:
            # The names are new, so these files cannot belong to another version.
            if written and self.txn.surely_not_landed:
                try:
                    discard(self.target.store, written)
                except OSError:
                    error.add_note(f"{len(written)} copied files are left behind")
            raise

    def _shared(
        self, wanted: Sequence[AddFile], existing: Sequence[AddFile]
    ) -> tuple[Sequence[AddFile], Sequence[AddFile]]:
        root = self.target.uri
        shared = absolute_adds(wanted, self.source.uri)
        if not existing:
            return shared, ()
        new = {_identity(add, root): add for add in shared}
        old = {_identity(add, root): add for add in existing}
        return [new[key] for key in new.keys() - old.keys()], [old[key] for key in old.keys() - new.keys()]

    def _copied(
        self, wanted: Sequence[AddFile], existing: Sequence[AddFile], written: list[str]
    ) -> tuple[list[AddFile], list[AddFile]]:
        """Return the copied files, and the target's files to remove; copies of an earlier clone stay."""
        kept: dict[tuple[str, int], AddFile] = {}
        for add in existing:
            if not is_absolute_path(add.path) and _SUFFIX.search(add.path) and add.deletion_vector is None:
                kept[_SUFFIX.sub("", add.path), add.size] = add
        jobs: list[FileCopy] = []
        coming: list[AddFile] = []
        staying: set[str] = set()
        for add in wanted:
            relative = _relative(add.path)
            old = kept.get((_SUFFIX.sub("", encode_log_path(relative)), add.size))
            if old is not None and add.deletion_vector is None and old.path not in staying:
                staying.add(old.path)
                continue
            fresh = _fresh_name(relative)
            jobs.append(FileCopy(source=add.path, target=fresh, size=add.size))
            coming.append(add.replace(path=encode_log_path(fresh), data_change=True))
        written.extend(job.target for job in jobs)
        if jobs:
            self.copier.copy(jobs, source=self.source, target=self.target)
        coming = self._with_own_vectors(coming, written)
        return coming, [add for add in existing if add.path not in staying]

    def _with_own_vectors(self, adds: Sequence[AddFile], written: list[str]) -> list[AddFile]:
        vectors = [add.deletion_vector for add in adds if add.deletion_vector is not None]
        if not vectors:
            return list(adds)
        source = self.source
        rows = read_deleted_rows(vectors, store=source.store, root=source.uri, options=source.options)
        described, files = write_vectors(
            rows, store=self.target.store, random_folders=self.cloned.properties.randomize_file_prefixes
        )
        written.extend(files)
        own = iter(described)
        return [add if add.deletion_vector is None else add.replace(deletion_vector=next(own)) for add in adds]

    def _commit(self, coming: Sequence[AddFile], leaving: Sequence[AddFile], copied: Sequence[AddFile]) -> CloneResult:
        txn, cloned = self.txn, self.cloned
        now_ms = self.clock()
        metadata = cloned_metadata(
            cloned.metadata, replaced=txn.snapshot.metadata, properties=self.properties, now_ms=now_ms
        )
        version = iceberg_compat_version(metadata.configuration)
        if version != iceberg_compat_version(cloned.metadata.configuration):
            check_files_made_for(version, len(coming), table=self.target.uri)
        txn.update_metadata(metadata)
        existing = txn.snapshot.protocol
        protocol = cloned.protocol
        if existing is not None:
            protocol = upgrade(existing, implied_features(protocol))
        txn.update_protocol(protocol)
        metrics = {
            "sourceTableSize": cloned.size_bytes,
            "sourceNumOfFiles": len(cloned.adds),
            "numRemovedFiles": len(leaving),
            "numCopiedFiles": len(copied),
            "removedFilesSize": num_bytes(leaving),
            "copiedFilesSize": num_bytes(copied),
        }
        parameters = {"source": f"{cloned.provider}.`{self.source.uri}`", "sourceVersion": cloned.version}
        actions: Sequence[Action] = joined(
            removes_of(leaving, deletion_timestamp=now_ms), coming, _domains(cloned.domains, txn.snapshot)
        )
        operation = Operation(name="CLONE", parameters=parameters, metrics=metrics)
        committed = txn.commit(actions, operation, blind_append=False)  # The rows come from another table.
        return CloneResult(
            source_table_size=metrics["sourceTableSize"],
            source_num_of_files=metrics["sourceNumOfFiles"],
            num_removed_files=metrics["numRemovedFiles"],
            num_copied_files=metrics["numCopiedFiles"],
            removed_files_size=metrics["removedFilesSize"],
            copied_files_size=metrics["copiedFilesSize"],
            version=committed.version,
            committed=committed,
        )


def cloned_metadata(
    source: Metadata, *, replaced: Metadata | None, properties: Mapping[str, str], now_ms: int
) -> Metadata:
    """Build a clone's definition from the source's, without what belongs to one log. Pure, except for a new id.

    Args:
        source: The source's definition at the cloned version.
        replaced: The definition of the table it replaces, whose id it keeps.
        properties: Properties that override the source's.
        now_ms: Time of creation, epoch milliseconds.
    """
    configuration = {key: value for key, value in source.configuration.items() if key != _PROTECTION}
    configuration |= properties
    ids = [
        meta.configuration[_MAX_COLUMN_ID]
        for meta in (source, replaced)
        if meta and _MAX_COLUMN_ID in meta.configuration
    ]
    if ids and _MAX_COLUMN_ID in configuration:
        configuration[_MAX_COLUMN_ID] = max(ids, key=int)
    return source.replace(
        id=replaced.id if replaced else str(uuid.uuid4()), configuration=configuration, created_time=now_ms
    )


def _domains(source: Sequence[DomainMetadata], target: Snapshot) -> list[DomainMetadata]:
    """Return the source's domains and remove the target's others. The row id mark only moves forward."""
    names = {domain.domain for domain in source}
    domains: list[DomainMetadata] = []
    for domain in source:
        if domain.domain == _ROW_TRACKING:
            mark = row_id_high_water_mark(target.domain_metadata.values())
            if mark > row_id_high_water_mark([domain]):
                continue
        if target.domain_metadata.get(domain.domain) != domain:
            domains.append(domain)
    for domain in target.domain_metadata.values():
        if domain.domain not in names and domain.domain != _ROW_TRACKING:
            domains.append(domain.replace(removed=True))
    return domains


def absolute_add(add: AddFile, root: str) -> AddFile:
    """Build the action of the same file for another table's log: file and vector by absolute, escaped URIs. Pure.

    Args:
        add: From a table's log.
        root: URI of that table.
    """
    vector = add.deletion_vector
    if vector is not None:
        path = vector_path(vector)
        if path is not None and vector.storage_type == "u":
            vector = DeletionVectorDescriptor(
                storage_type="p",
                path_or_inline_dv=_absolute(path, root),
                offset=vector.offset,
                size_in_bytes=vector.size_in_bytes,
                cardinality=vector.cardinality,
            )
    return add.replace(path=_absolute(add.path, root), deletion_vector=vector, data_change=True)


def absolute_adds(adds: Sequence[AddFile], root: str) -> Sequence[AddFile]:
    """Apply ``absolute_add`` to all files, with column operations for those in runs."""
    runs: list[AddRun] = []
    for run in runs_of(adds):
        paths = run.frame["path"]
        own = are_absolute(paths)
        below = _absolute("", root) + paths
        frame = run.frame.with_columns(path=pl.select(pl.when(own).then(paths).otherwise(below)).to_series())
        runs.append(AddRun(frame, run.names, data_change=True))
    return joined([absolute_add(add, root) for add in loose_adds(adds)], *runs)


def _absolute(path: str, root: str) -> str:
    if is_absolute_path(path):
        return path
    if root.startswith("file:"):  # The root is already escaped, and Hadoop compares such URIs with a single slash.
        return f"file:/{root.removeprefix('file:').lstrip('/')}/{path}"
    scheme, _, rest = root.partition("://")
    return f"{scheme}://{quote(rest, safe='/-._~@:')}/{path}"


def _identity(add: AddFile, root: str) -> tuple[str, str | None]:
    return canonical_path(add.path, root), add.deletion_vector.unique_id if add.deletion_vector else None


def _relative(path: str) -> str:
    """Return a file's path under another root, not escaped; for a file outside its table, only the name."""
    plain = decode_log_path(path)
    return plain.text.rpartition("/")[2] if plain.is_absolute else plain.text


def _fresh_name(relative: str) -> str:
    """Add a unique suffix to the file's name."""
    folder, slash, file = _SUFFIX.sub("", relative).rpartition("/")
    stem, dot, rest = file.partition(".")
    return f"{folder}{slash}{stem}-c{uuid.uuid4().hex[:8]}{dot}{rest}"
