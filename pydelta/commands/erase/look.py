"""Search everything below a table's root for keys: its data files of all versions, its log, and what lies beside them.

::

    listing --> data files, change files, strays --footers, key columns--> files with rows of the keys
    log     --> files elsewhere, as clones have  --the same--------------> files with rows of the keys
            --> log, manifests, notes            --texts, bounds-------> places that name a key
            --> names of files and folders       ----------------------> paths that spell a key
    older versions of a bucket's objects --counted, or read----------> those that hold or name a key

Other tables below the root are left out. What cannot be read is reported, not passed over.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from pydelta.commands.erase.keys import KeyColumn, Subject
from pydelta.commands.erase.parquet import FoundRows, find_keys
from pydelta.commands.erase.rows import may_hold, with_bounds_of
from pydelta.commands.erase.texts import (
    KeyTexts,
    is_key_text,
    kinds_in_actions,
    named_partitions,
    texts_of_parquet,
    values_of_avro,
)
from pydelta.commands.records.index import FOLDER
from pydelta.commands.vacuum.listing import list_batches
from pydelta.commands.vacuum.needed import find_needed
from pydelta.commands.vacuum.plan import LISTED_SCHEMA, names_of, nested_tables, outside
from pydelta.errors import DeltaError, LogCorruptedError, ObjectNotFoundError, VersionNotFoundError
from pydelta.log import DeltaLog, Snapshot
from pydelta.log.columns import PV_PREFIX
from pydelta.log.runs import decode_actions
from pydelta.log.vector_files import place_of
from pydelta.protocol.actions import AddCDCFile, AddFile, RemoveFile
from pydelta.protocol.paths import (
    LOG_DIR,
    LogFileKind,
    are_absolute,
    decode_log_path,
    decoded_paths,
    is_absolute_path,
    parse_log_name,
)
from pydelta.storage import ObjectInfo, Store
from pydelta.storage.memory import MemoryStore
from pydelta.storage.object_versions import ObjectVersions, OlderVersion
from pydelta.storage.pages import UNFINISHED_PATH, is_unfinished
from pydelta.storage.readers import read_all
from pydelta.storage.whole import read_listed

__all__ = [
    "EARLIER",
    "FOREIGN",
    "FOUND_SCHEMA",
    "LIVE",
    "STRAY",
    "YOUNG",
    "Look",
    "OlderSearch",
    "Place",
    "files_with_keys",
    "look",
    "older_versions",
]

FOUND_SCHEMA: Final[dict[str, pl.DataType]] = {
    "path": pl.String(),
    "size": pl.Int64(),
    "modification_time": pl.Int64(),
    "rows": pl.Int64(),
    "state": pl.String(),
}
_ABANDONED_SCHEMA: Final = {name: FOUND_SCHEMA[name] for name in ("path", "size")}
LIVE: Final = "live"
"""The newest version reads the file."""
EARLIER: Final = "earlier"
"""An earlier version reads the file, or its change feed."""
STRAY: Final = "stray"
"""No version names the file, and it is older than the table's retention, so that no writer is about to commit it."""
YOUNG: Final = "young"
"""No version names the file yet: a writer may be about to commit it."""
FOREIGN: Final = "foreign"
"""The file lies in a hidden folder, where nothing of the table is."""

_PARQUET: Final = b"PAR1"
_AVRO: Final = b"Obj\x01"
_MOST_BYTES: Final = 256 * 1024 * 1024
_NOTES: Final = (f"{LOG_DIR}/", "_pydelta/", "_symlink_format_manifest/")
_IS_NOTE: Final = pl.any_horizontal(pl.col("path").str.starts_with(prefix) for prefix in _NOTES)
"""Whether a file belongs to the log, or to what lies beside it, instead of the data."""
_IS_INDEX: Final = pl.col("path").str.starts_with(f"{FOLDER}/")
"""Whether a file belongs to the record index, which has no texts of keys, and which an erasure drops."""
_IS_UNFINISHED: Final = pl.col("path").str.contains(UNFINISHED_PATH)
_ROW: Final = ("path", "size", "modification_time")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place outside of data files that names a key.

    Args:
        path: The file, relative to the table.
        kind: ``path``, ``bounds``, ``partition``, ``text`` or ``older version``.
    """

    path: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a search found.

    Args:
        version: The version that was the newest.
        files: Files with rows of the keys: columns of ``FOUND_SCHEMA``. ``rows`` counts those of the keys. A file of an
            earlier version that cannot be read counts as one with 0 rows.
        places: Places outside of data files that name a key.
        unread: Files that were not searched, with the reason.
        abandoned: Those that no writer finished and no version names, older than the table's retention: ``path size``.
        unlisted: What cannot be listed, so that it is not known whether it exists; a sentence each.
        kept_versions, kept_bytes: Older versions of objects, and delete markers, that exist and were not read.
        num_files, num_bytes: Files below the root, and their size.
        num_opened: Data files that were opened.
    """

    version: int
    files: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=FOUND_SCHEMA))
    places: tuple[Place, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()
    abandoned: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_ABANDONED_SCHEMA))
    unlisted: tuple[str, ...] = ()
    kept_versions: int = 0
    kept_bytes: int = 0
    num_files: int = 0
    num_bytes: int = 0
    num_opened: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether everything was listed and searched, and nothing was found."""
        found = not self.files.is_empty() or self.places or not self.abandoned.is_empty()
        return not (found or self.unread or self.unlisted or self.kept_versions)

    def of(self, *states: str) -> pl.DataFrame:
        """Return the files in the given states."""
        return self.files.filter(pl.col("state").is_in(states))


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderSearch:
    """How the older versions of a table's objects are searched.

    Args:
        versions: Those below its root.
        read: Whether to read them. Otherwise they are counted.
    """

    versions: ObjectVersions
    read: bool


def look(
    log: DeltaLog,
    snapshot: Snapshot,
    subject: Subject,
    *,
    old_before_ms: int,
    all_files: bool,
    older: OlderSearch | None = None,
) -> Look:
    """Search a table for keys.

    Args:
        log: The table.
        snapshot: Its newest version.
        subject: The keys.
        old_before_ms: Files that no version names and that are older, in epoch milliseconds, are strays.
        all_files: Whether to open all data files. Otherwise the statistics of live files are trusted.
        older: The older versions of its objects; None for a store without them.

    Raises:
        LogCorruptedError: The log is damaged, so that it is not known which files are live.
        StorageError: The store failed.
    """
    listed, folders, nested = _listed(log)
    search = _Search(log, snapshot, subject)
    abandoned = _IS_NOTE & _IS_UNFINISHED & (pl.col("modification_time") < old_before_ms)
    data = listed.filter(~_IS_NOTE)
    counted = _with_states(log, snapshot, search.data_files(data, all_files=all_files), old_before_ms=old_before_ms)
    files = _certain(counted)
    search.notes(listed.filter(_IS_NOTE & ~_IS_INDEX & ~abandoned))
    elsewhere = search.elsewhere(all_files=all_files)
    search.bounds()
    search.names(pl.concat([listed["path"], folders]), known=files["path"])
    kept = search.older(older, nested)
    return Look(
        version=snapshot.version,
        files=pl.concat([files, elsewhere]),
        places=tuple(sorted(set(search.places))),
        unread=tuple(search.unread),
        abandoned=pl.concat(
            found.select(list(_ABANDONED_SCHEMA))
            for found in (listed.filter(abandoned), counted.filter((pl.col("state") == STRAY) & (pl.col("rows") < 0)))
        ),
        kept_versions=len(kept),
        kept_bytes=sum(version.size for version in kept),
        num_files=listed.height,
        num_bytes=int(listed["size"].sum() or 0),
        num_opened=search.opened,
    )


def files_with_keys(log: DeltaLog, snapshot: Snapshot, subject: Subject, *, old_before_ms: int) -> pl.DataFrame:
    """Find the files with rows of keys alone, without a search of the log: the ``files`` of a ``look``."""
    listed, _, _ = _listed(log)
    counted = _Search(log, snapshot, subject).data_files(listed.filter(~_IS_NOTE), all_files=False)
    return _certain(_with_states(log, snapshot, counted, old_before_ms=old_before_ms))


def older_versions(log: DeltaLog, versions: ObjectVersions) -> list[OlderVersion]:
    """List the older versions of a table's objects, without those of other tables below its root."""
    _, _, nested = _listed(log)
    return _older(versions, nested)


def _older(versions: ObjectVersions, nested: Collection[str]) -> list[OlderVersion]:
    found = list(versions.listed())
    schema = {"path": pl.String()}
    frame = pl.DataFrame({"path": [version.path for version in found]}, schema=schema).with_row_index()
    own = outside(frame, {*nested, *nested_tables(frame["path"])})  # Some tables exist in older versions alone.
    return [found[number] for number in own["index"]]


def _listed(log: DeltaLog) -> tuple[pl.DataFrame, pl.Series, set[str]]:
    """List the files and the folders below a table's root, without those of other tables, and their folders."""
    batches = list(list_batches(log.store))
    listed = pl.concat([pl.DataFrame(schema=LISTED_SCHEMA), *(batch.files for batch in batches)])
    listed = listed.unique("path", maintain_order=True)
    folders = pl.Series("path", [folder for batch in batches for folder, _ in batch.directories], dtype=pl.String)
    nested = nested_tables(pl.concat([listed["path"], folders]))
    return outside(listed, nested), outside(folders.to_frame(), nested)["path"], nested


def _with_states(log: DeltaLog, snapshot: Snapshot, files: pl.DataFrame, *, old_before_ms: int) -> pl.DataFrame:
    """Add to files with keys, and to those that cannot be read, who needs them."""
    if files.is_empty():
        return pl.DataFrame(schema=FOUND_SCHEMA)
    needed = find_needed(log, snapshot, cutoff_ms=0)
    paths = files["path"]
    states = (
        pl.when(needed.live.may_hold(paths)).then(pl.lit(LIVE))
        .when(needed.others.may_hold(paths)).then(pl.lit(EARLIER))
        .when(names_of(snapshot).is_hidden(pl.col("path"))).then(pl.lit(FOREIGN))
        .when(pl.col("modification_time") < old_before_ms).then(pl.lit(STRAY))
        .otherwise(pl.lit(YOUNG))
    )  # fmt: skip
    return files.with_columns(state=states).select(list(FOUND_SCHEMA))


def _certain(files: pl.DataFrame) -> pl.DataFrame:
    """Keep the files that hold rows of the keys, and those of earlier versions that cannot be read."""
    found = files.filter((pl.col("rows") > 0) | (pl.col("state") == EARLIER))
    return found.with_columns(rows=pl.col("rows").clip(0))


_NO_ROWS: Final = FoundRows(rows=np.empty(0, dtype=np.uint64), num_rows=0)


def _number(found: FoundRows | None, whole: bool) -> int:
    """Return the number of rows of the keys, which are all of them in a partition of a key; -1 if it is not known."""
    if found is None:
        return -1
    return found.num_rows if whole else len(found.rows)


class _Search:
    """One search under way."""

    def __init__(self, log: DeltaLog, snapshot: Snapshot, subject: Subject) -> None:
        self._log, self._snapshot, self._subject = log, snapshot, subject
        self._texts = KeyTexts.of(subject)
        self._inside = [column for column in subject.columns if not column.is_partition]
        self._partitions = [column for column in subject.columns if column.is_partition]
        self._named: dict[str, Mapping[str, str | None]] = {}  # Files elsewhere, with their partitions.
        self.places: list[Place] = []
        self.unread: list[tuple[str, str]] = []
        self.opened = 0

    # -- rows -----------------------------------------------------------------------------------------------------

    def data_files(self, listed: pl.DataFrame, *, all_files: bool) -> pl.DataFrame:
        """Count the rows of keys in data files: ``path size modification_time rows``. Other files are read as bytes."""
        whole = self._in_partitions(listed["path"])
        if not all_files:
            excluded = self._excluded()
            kept = ~listed["path"].is_in(excluded.implode())
            listed, whole = listed.filter(kept), whole.filter(kept)
        rows = list(zip(listed["path"], listed["size"], whole, strict=True))
        counts = read_all(self._count, rows)
        return listed.with_columns(rows=pl.Series(counts, dtype=pl.Int64)).filter(pl.col("rows") != 0)

    def _count(self, row: tuple[str, int, bool]) -> int:
        """Return the number of rows of the keys in a file; -1 if it cannot be read."""
        path, size, whole = row
        return _number(self._rows(path, self._log.store, path, size), whole)

    def _rows(self, path: str, store: Store, there: str, size: int) -> FoundRows | None:
        """Find the rows of the keys in a data file; None if it cannot be read, which is noted.

        A file that another process deleted has none. One that is not Parquet by its name and its ends is read as bytes.
        """
        try:
            found = find_keys(store, there, size, self._inside)
        except ObjectNotFoundError:
            return _NO_ROWS
        except DeltaError as error:
            self.unread.append((path, error.message))
            return None
        if found is None and not path.endswith(".parquet"):
            data = self._read_bytes(ObjectInfo(path=path, size=size, modification_time_ms=0))
            is_torn = is_unfinished(path) if data is None else data.startswith(_PARQUET)
            return None if is_torn else _NO_ROWS
        if found is None:
            self.unread.append((path, "it does not end as a Parquet file does"))
            return None
        self.opened += 1
        return found

    def elsewhere(self, *, all_files: bool) -> pl.DataFrame:
        """Count the rows of keys in files outside of the table, which versions of a shallow clone name."""
        snapshot = self._snapshot
        core = snapshot.files.core
        live = core.filter(are_absolute(core["path"]))
        searched = live if all_files else may_hold(snapshot, self._subject).join(live, on="path", how="semi")
        keys = [PV_PREFIX + column.physical[0] for column in self._partitions]
        rows = {row[0]: (row[1:], LIVE) for row in searched.select("path", *keys).iter_rows()}
        removed = snapshot.tombstones()["path"]
        named = {path: self._named.get(path, {}) for path in (*removed.filter(are_absolute(removed)), *self._named)}
        known = set(live["path"])
        for path, values in named.items():
            if path not in known:
                rows[path] = tuple(values.get(column.physical[0]) for column in self._partitions), EARLIER
        counts = read_all(self._count_elsewhere, [(path, values) for path, (values, _) in rows.items()])
        found = [
            {"path": path, "size": size, "modification_time": time, "rows": max(count, 0), "state": state}
            for (path, (_, state)), (count, size, time) in zip(rows.items(), counts, strict=True)
            if count > 0 or (count < 0 and state == EARLIER)
        ]
        return pl.DataFrame(found, schema=FOUND_SCHEMA)

    def _count_elsewhere(self, named: tuple[str, tuple[str | None, ...]]) -> tuple[int, int, int]:
        """Return the rows of the keys in a file elsewhere (-1 if it cannot be read), its size and its time."""
        path, values = named
        try:
            store, there = place_of(path, store=self._log.store, root=self._log.uri, options=self._log.options)
            info = store.head(there)
        except DeltaError as error:
            self.unread.append((path, error.message))
            return -1, 0, 0
        if info is None:
            return 0, 0, 0
        pairs = zip(values, self._partitions, strict=True)
        number = _number(self._rows(path, store, there, info.size), any(is_key_text(*pair) for pair in pairs))
        return number, info.size, info.modification_time_ms

    def _excluded(self) -> pl.Series:
        """Return the live files that cannot hold a key by their statistics, as plain paths."""
        files = self._snapshot.files
        kept = may_hold(self._snapshot, self._subject)["row"]
        out = files.narrowed(lambda frame: frame.filter(~pl.col("row").is_in(kept.implode())))
        return decoded_paths(out["path"])

    def _in_partitions(self, paths: pl.Series) -> pl.Series:
        """Return for each file whether its partition is that of a key: by its folders, or else by the log."""
        result = pl.repeat(value=False, n=len(paths), dtype=pl.Boolean, eager=True)
        for column in self._partitions:
            texts = named_partitions(paths, column)
            known = self._partition_texts(column)
            texts = paths.replace_strict(known["path"], known["text"], default=texts, return_dtype=pl.String)
            keys = [text for text in texts.unique().drop_nulls() if is_key_text(text, column)]
            result = result | texts.is_in(keys).fill_null(value=False)
        return result

    def _partition_texts(self, column: KeyColumn) -> pl.DataFrame:
        """Return what the log says about the partitions of files: ``path`` (plain) and ``text``."""
        key = PV_PREFIX + column.physical[0]
        core = self._snapshot.files.core.select("path", text=key)
        earlier: dict[str, str | None] = {}
        for version in sorted(self._log.held().commits):
            try:
                actions = self._log.actions(version)
            except VersionNotFoundError:
                continue
            for action in actions:
                values = getattr(action, "partition_values", None)
                if values:
                    earlier[action.path] = values.get(column.physical[0])  # type: ignore[union-attr]
        named = pl.DataFrame({"path": list(earlier), "text": list(earlier.values())}, schema=core.schema)
        both = pl.concat([core, named]).drop_nulls("text")
        return both.with_columns(path=decoded_paths(both["path"])).unique("path", keep="first")

    def older(self, search: OlderSearch | None, nested: Collection[str]) -> list[OlderVersion]:
        """Search the older versions of objects, and return those that were not read."""
        if search is None:
            return []
        found = _older(search.versions, nested)
        if not search.read:
            return found
        paths = pl.Series("path", [version.path for version in found], dtype=pl.String)
        named = self._texts.are_in(paths) | self._in_partitions(paths)
        self.places += [Place(path, "older version") for path in paths.filter(named)]
        versions = [version for version in found if not version.is_marker]
        read_all(lambda version: self._version(search.versions, version), versions)
        return []

    def _version(self, versions: ObjectVersions, version: OlderVersion) -> None:
        try:
            data = versions.read(version)
        except ObjectNotFoundError:
            return  # Another process deleted it since the listing.
        except DeltaError as error:
            self.unread.append((version.path, error.message))
            return
        if self._holds_key(version.path, data):
            self.places.append(Place(version.path, "older version"))

    def _holds_key(self, path: str, data: bytes) -> bool:
        """Return whether the bytes of a file, whatever it is, hold a key. One that cannot be read is noted."""
        if path.startswith(_NOTES) and path.endswith(".parquet"):
            try:
                return any(self._texts.are_in(column).any() for column in texts_of_parquet(data))
            except (pl.exceptions.PolarsError, OSError) as error:
                self.unread.append((path, str(error).splitlines()[0]))
                return False
        if not path.endswith(".parquet") and not data.startswith(_PARQUET):
            return self._texts.is_in(data) or self._in_avro(path, data)
        held = MemoryStore(f"memory://older-version/{uuid.uuid4()}")
        held.put("file", data)
        try:
            found = self._rows(path, held, "file", len(data))
        finally:
            held.delete_many(["file"])  # Such a store lives as long as the process.
        return found is not None and len(found.rows) > 0

    # -- texts ----------------------------------------------------------------------------------------------------

    def notes(self, listed: pl.DataFrame) -> None:
        """Search the log, manifests and notes."""
        infos = [
            ObjectInfo(path=path, size=size, modification_time_ms=time)
            for path, size, time in listed.select(_ROW).iter_rows()
        ]
        read_all(self._read_note, infos)

    def _read_note(self, info: ObjectInfo) -> None:
        file = parse_log_name(info.path.rpartition("/")[2]) if info.path.startswith(f"{LOG_DIR}/") else None
        if info.path.endswith(".parquet"):
            self._read_parquet(info)
            return
        data = self._read_bytes(info)
        if data is not None and file is not None and file.kind is LogFileKind.COMMIT:
            try:
                actions = decode_actions(data, source=info.path)
            except LogCorruptedError:
                return  # The table's state is not read from it.
            self.places += [Place(info.path, kind) for kind in kinds_in_actions(actions, self._subject)]
            for action in actions:
                if isinstance(action, (AddFile, RemoveFile, AddCDCFile)) and is_absolute_path(action.path):
                    self._named[action.path] = action.partition_values or {}

    def _read_bytes(self, info: ObjectInfo) -> bytes | None:
        """Search a file for texts, and return what it holds; None if it was not read."""
        if info.size > _MOST_BYTES:
            self.unread.append((info.path, f"it has more than {_MOST_BYTES} bytes and is no Parquet file"))
            return None
        data = self._data(info)
        if data is not None and data.startswith(_PARQUET):
            how = "it is being written, or its writer was killed" if is_unfinished(info.path) else "it does not end so"
            self.unread.append((info.path, f"it begins as a Parquet file, and {how}"))
        elif data is not None and (self._texts.is_in(data) or self._in_avro(info.path, data)):
            self.places.append(Place(info.path, "text"))
        return data

    def _in_avro(self, path: str, data: bytes) -> bool:
        """Return whether an Avro file, whose bytes are compressed, holds a key. One that cannot be read is noted."""
        if not data.startswith(_AVRO):
            return False
        try:
            return self._texts.is_in(values_of_avro(data))
        except (pl.exceptions.PolarsError, OSError) as error:
            self.unread.append((path, (str(error).splitlines() or [type(error).__name__])[0]))
            return False

    def _read_parquet(self, info: ObjectInfo) -> None:
        """Search a checkpoint or a sidecar."""
        data = self._data(info)
        if data is None:
            return
        try:
            columns = list(texts_of_parquet(data))
        except (pl.exceptions.PolarsError, OSError) as error:
            self.unread.append((info.path, str(error).splitlines()[0]))
            return
        if any(self._texts.are_in(column).any() for column in columns):
            self.places.append(Place(info.path, "text"))
        for column in self._partitions:
            for texts in columns:
                named = named_partitions(decoded_paths(texts), column).drop_nulls().unique()
                if any(is_key_text(text, column) for text in named):
                    self.places.append(Place(info.path, "partition"))

    def _data(self, info: ObjectInfo) -> bytes | None:
        try:
            return read_listed(self._log.store, info)
        except ObjectNotFoundError:
            return None
        except DeltaError as error:
            self.unread.append((info.path, error.message))
            return None

    def bounds(self) -> None:
        """Search the bounds of live files, which may be wider than their rows."""
        files = self._snapshot.files
        found = files.narrowed(lambda frame: frame.filter(with_bounds_of(self._snapshot, frame, self._inside)))
        self.places += [Place(decode_log_path(path).text, "bounds") for path in found["path"]]

    def names(self, paths: pl.Series, *, known: pl.Series) -> None:
        """Search the names of files and folders, other than those of files that are known to hold a key."""
        rest = paths.filter(~paths.is_in(known.implode()))
        spelt = self._texts.are_in(rest)
        for column in self._partitions:
            texts = named_partitions(rest, column)
            keys = [text for text in texts.unique().drop_nulls() if is_key_text(text, column)]
            spelt = spelt | texts.is_in(keys).fill_null(value=False)
        self.places += [Place(path, "path") for path in rest.filter(spelt)]
