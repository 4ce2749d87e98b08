"""Give Spark's planner the files to read: a snapshot's files as a ``FileIndex``. The JVM reads them.

::

    Spark's planner --listFiles(partition filters, data filters)--> DeltaFileIndex
        distinct partition rows --Spark evaluates the partition filters--> partitions (exact)
        their files --statistics against the data filters--> files that may match (loose: Spark filters rows again)
        surviving columns --one buffer--> PartitionDirectory objects
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias
from weakref import WeakValueDictionary

import polars as pl
import pyarrow as pa

from pydelta.engines.spark.java_objects import JavaObject
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.scan.filters import to_expressions
from pydelta.engines.spark.scan.statuses import encode_statuses, encode_uris, file_uris
from pydelta.errors import LogCorruptedError, StorageError
from pydelta.log import FileTable, Snapshot
from pydelta.log.columns import PV_PREFIX
from pydelta.predicate import Expr
from pydelta.protocol.paths import LOG_DIR
from pydelta.protocol.types import StructType
from pydelta.storage.uris import hadoop_uri

__all__ = [
    "MATCH_COLUMNS",
    "TABLE_SCAN",
    "VECTOR_COLUMNS",
    "DeltaFileIndex",
    "HiddenColumn",
    "IndexIdentity",
    "ScanFiles",
    "VectorReader",
    "find_index",
    "live_index",
]

_log = logging.getLogger(__name__)

_ORDINAL: Final = "__pydelta_partition"
_SERIALS: Final = itertools.count(1)
_LIVE: Final[WeakValueDictionary[int, DeltaFileIndex]] = WeakValueDictionary()
_TEXT: Final = re.compile(r"^Delta\[.*\]#(\d+)$", re.DOTALL)
_ROWS_BYTES: Final = 32 * 1024 * 1024
_KEPT_FILES: Final = 10_000
"""Up to this many files, the listing of all of them is kept for Spark's next query."""
_NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})
_HIDDEN_ARROW: Final = {"long": pa.int64(), "integer": pa.int32(), "binary": pa.binary(), "string": pa.string()}


TABLE_SCAN: Final = "pydelta.table"
"""Mark of a projection that gives the columns of a scan their logical names."""

MATCH_COLUMNS: Final = ("__pydelta_match", "__pydelta_match_start", "__pydelta_match_end")
"""Hidden columns that select rows of a file: bits (binary), row of the first bit, row after the last one (bigint)."""

VECTOR_COLUMNS: Final = (
    "__pydelta_vector",
    "__pydelta_vector_first",
    "__pydelta_vector_last",
    "__pydelta_vector_base",
)
"""Hidden columns of files with a deletion vector: bits (binary), the row of the first bit, a row of the last word
(neither is deleted, unless the first is row 0), and the offset of the bits in a Java array (bigint).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexIdentity:
    """The identity by which Spark's cache and exchange reuse compare scans.

    Args:
        table_id: Id of the table in its metadata.
        location: Root URI.
        version: Table version.
        subset: Text that differs between scans over different files or hidden columns, empty for a whole table.
    """

    table_id: str
    location: str
    version: int
    subset: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenColumn:
    """One value per file that the scan carries as an additional partition column, such as a file's ordinal.

    Args:
        name: Name in the scan. The projection above drops it.
        spark_type: ``long``, ``integer``, ``string`` or ``binary``.
        column: The frame's column that holds the values.
    """

    name: str
    spark_type: str
    column: str


_Skip: TypeAlias = Callable[[pl.DataFrame], pl.DataFrame]


class VectorReader(Protocol):
    """Reads the bitmaps of the files that a query reads."""

    def __call__(self, files: pl.DataFrame) -> pa.Table:
        """Return the columns under which the reader is registered, in their order, for rows of a scan's frame."""


class Pruner(Protocol):
    """Narrows files by their statistics."""

    def __call__(self, filters: Sequence[Expr]) -> Callable[[pl.DataFrame], pl.DataFrame]:
        """Return a function that keeps the files that may hold a row for which all filters are true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanFiles:
    """The files of one scan, as columns.

    Args:
        identity: See ``IndexIdentity``.
        listed: ``path``, ``size``, ``modification_time``, one text column ``pv:<name>`` per partition column, and the
            columns of ``hidden``. Or the live files of a log that is read in parts, without hidden columns.
        partition_types: Partition columns by physical name, with the SQL type to which their text is cast, in the
            table's order.
        hidden: Columns beyond those of the table.
        size_bytes: Sum of the sizes.
        pinned: Whether the user named the version, which then is never replaced by a later one.
        prune: Function that narrows files by statistics.
        bitmaps: Readers of a bitmap per file, by their columns: ``MATCH_COLUMNS`` or ``VECTOR_COLUMNS``. With the
            latter, every file has a deletion vector.
        shared: Whether the scan reads a whole table, so that other scans of the version may use the same partition
            rows.
        snapshot: The version.
        fixed: Whether a command reads the version in all of its jobs, so that no query moves it to the newest.
        storage: The reader's options for the store, in addition to those of the session.
        schema: Columns of the table to read, as an older version had them, or None for all.
    """

    identity: IndexIdentity
    listed: pl.DataFrame | FileTable
    partition_types: Mapping[str, str]
    hidden: tuple[HiddenColumn, ...]
    size_bytes: int
    pinned: bool
    prune: Pruner
    bitmaps: Mapping[tuple[str, ...], VectorReader] = field(default_factory=dict)
    shared: bool = False
    snapshot: Snapshot
    fixed: bool = False
    storage: Mapping[str, str] = field(default_factory=dict)
    schema: StructType | None = None

    @property
    def frame(self) -> pl.DataFrame:
        """All files, listed now if the log is read in parts."""
        return self.listed if isinstance(self.listed, pl.DataFrame) else self.listed.core


@dataclass(frozen=True, slots=True, kw_only=True)
class _Partitions:
    """Distinct partition rows of a scan.

    Args:
        values: Their values as strings, and their positions.
        ordinals: Position of the partition of each file, or None for the files of a log that is read in parts.
        rows: ``java.util.List[InternalRow]``, without the ordinal.
        numbered: The same rows with their position as an additional column, for filters.
        count: Number of rows.
    """

    values: pl.DataFrame
    ordinals: pl.Series | None
    rows: Any
    numbered: Any
    count: int


class DeltaFileIndex(JavaObject):
    """Lists the files of a scan when Spark plans it, in its planning threads.

    ``Calls.file_index`` makes the index that Spark gets.

    Args:
        jvm: The session's bindings.
        files: The files to scan.
        partition_schema: The JVM's ``StructType`` of the table's partition columns, then the hidden ones.
    """

    class Java:
        """py4j: the interfaces that this object implements for the JVM."""

        implements = ("java.util.function.BiFunction", "java.util.function.Supplier")

    def __init__(self, jvm: Jvm, files: ScanFiles, partition_schema: Any) -> None:
        self._jvm = jvm
        self.files = files
        self.partition_schema = partition_schema
        self._root = hadoop_uri(files.identity.location)
        self._lock = threading.Lock()
        self._partitions: _Partitions | None = None
        self._ordinal_attribute: Any = None
        self._all: Any = None
        self.number = next(_SERIALS)
        _LIVE[self.number] = self

    # --- what the JVM calls --------------------------------------------------------------------------------

    def apply(self, partition_filters: Any, data_filters: Any) -> Any:
        """Return the files to read by partition: exact for partition filters, a superset for data filters."""
        jvm, files = self._jvm, self.files
        frame, rows = self._selected(partition_filters, data_filters)
        whole = isinstance(files.listed, pl.DataFrame) and not files.bitmaps
        whole = whole and frame.height == files.frame.height <= _KEPT_FILES
        if whole and self._all is not None:
            return self._all
        if files.bitmaps:
            rows, frame = self._rows_with_bitmaps(frame)
        uris = file_uris(frame["path"], self._root)
        owners = None if rows is None else frame[_ORDINAL]
        blocks = encode_statuses(uris, frame["size"], frame["modification_time"], owners)
        _log.debug("planned %d files of %s", frame.height, self._root)
        found = jvm.directories(blocks, frame.height, rows)
        if whole:
            self._all = found
        return found

    def paths(self, partition_filters: Any, data_filters: Any) -> list[str]:
        """Return the URI-encoded paths of the files that a scan with these filters reads."""
        frame, _ = self._selected(partition_filters, data_filters)
        return list(encode_uris(file_uris(frame["path"], self._root)))

    def _selected(self, partition_filters: Any, data_filters: Any) -> tuple[pl.DataFrame, Any]:
        """Return the files to read, and the partition rows to which their numbers refer, or None without partitions."""
        files, filters, skip = self.files, self._decidable(partition_filters), self._skipping(data_filters)
        if not isinstance(files.listed, pl.DataFrame) and (filters or skip):
            return self._selected_in_parts(files.listed, filters, skip)
        frame, rows = files.frame, None
        if not self._columns():
            if not self._constant(filters):  # A table without partition columns may have such filters.
                frame = frame.head(0)
        elif filters or not files.bitmaps:  # With bitmaps, each file gets its own row below.
            partitions = self._load_partitions()
            rows = partitions.rows
            frame = self._numbered(frame, partitions, partitions.values)
            if filters:
                kept = self._matching(filters, partitions)
                if len(kept) < partitions.count:
                    frame = frame.filter(pl.col(_ORDINAL).is_in(pl.Series(kept, dtype=pl.UInt32).implode()))
        return frame if skip is None else skip(frame), rows

    def _selected_in_parts(
        self, table: FileTable, filters: Sequence[Any], skip: _Skip | None, names: Mapping[str, str] = _NO_NAMES
    ) -> tuple[pl.DataFrame, Any]:
        """See ``_selected``. Holds one part of the log at a time, and the files selected from it."""
        columns = self._columns()
        if not columns:
            return (self._plain(table.narrowed(skip or _all_of)) if self._constant(filters) else table.none()), None
        partitions = self._load_partitions()
        wanted = partitions.values
        if filters:
            kept = pl.Series(self._matching(filters, partitions, names), dtype=pl.UInt32)
            wanted = wanted.filter(pl.col(_ORDINAL).is_in(kept.implode()))

        def narrow(frame: pl.DataFrame) -> pl.DataFrame:
            found = frame.join(wanted, on=columns, how="semi", nulls_equal=True)
            return found if skip is None else skip(found)

        return self._numbered(self._plain(table.narrowed(narrow)), partitions, wanted), partitions.rows

    def _plain(self, files: pl.DataFrame) -> pl.DataFrame:
        """Check that no file has a deletion vector, because this scan would read the rows that it deletes."""
        if files["dv_id"].null_count() < files.height:
            raise LogCorruptedError(
                "A file has a deletion vector, but the table's protocol does not list the feature deletionVectors.",
                hint="Another writer broke the log. Read the table with spark.pydelta.log.maxFilesInMemory above its "
                "number of files.",
                table=self.files.identity.location,
                version=self.files.identity.version,
            )
        return files

    def _numbered(self, frame: pl.DataFrame, partitions: _Partitions, values: pl.DataFrame) -> pl.DataFrame:
        """Add the position of each file's partition."""
        if partitions.ordinals is not None:
            return frame.with_columns(partitions.ordinals.alias(_ORDINAL))
        return frame.join(values, on=self._columns(), how="left", nulls_equal=True, maintain_order="left")

    def partition_matches(self, filters: Sequence[Any], names: Mapping[str, str] | None = None) -> pl.DataFrame:
        """Return the files of the partitions for which Spark finds all filters true.

        Args:
            filters: Catalyst expressions over partition columns alone.
            names: Names of partition columns in the filters, with their names here if these differ.
        """
        if not isinstance(self.files.listed, pl.DataFrame):
            return self._selected_in_parts(self.files.listed, filters, None, names or {})[0].drop(_ORDINAL)
        partitions = self._load_partitions()
        kept = pl.Series(self._matching(filters, partitions, names or {}), dtype=pl.UInt32)
        numbered = self._numbered(self.files.frame, partitions, partitions.values)
        return numbered.filter(pl.col(_ORDINAL).is_in(kept.implode())).drop(_ORDINAL)

    def get(self) -> Any:
        """Return the URI-encoded paths of all files."""
        return self._jvm.string_array(encode_uris(file_uris(self.files.frame["path"], self._root)))

    # --- what the index in the JVM knows -------------------------------------------------------------------

    @property
    def roots(self) -> tuple[str, str]:
        """The table's root and its log, since Spark's own file writer refuses to write into several roots.

        That writer ignores the log: overwriting a view of the table would delete the folder.
        """
        return self._root, f"{self._root}/{LOG_DIR}"

    @property
    def text(self) -> str:
        """Table, version and id, and the number by which ``find_index`` finds this object again."""
        identity = self.files.identity
        subset = f", {identity.subset}" if identity.subset else ""
        return f"Delta[version={identity.version}, id={identity.table_id}{subset}, {self._root}]#{self.number}"

    @property
    def identity(self) -> str:
        """The text by which scans are compared."""
        return json.dumps(astuple(self.files.identity))

    @property
    def version_and_id(self) -> tuple[int, str]:
        """Version and id of the table."""
        return self.files.identity.version, self.files.identity.table_id

    # --- helpers -----------------------------------------------------------------------------------------------

    def _columns(self) -> list[str]:
        return [PV_PREFIX + name for name in self.files.partition_types] + [item.column for item in self.files.hidden]

    def _skipping(self, data_filters: Any) -> _Skip | None:
        """Return a function that drops files by their statistics, or None if no filter applies to them."""
        filters = self._jvm.to_list(data_filters)
        expressions = to_expressions(filters) if filters else []
        if not expressions:
            return None
        narrow = self.files.prune(expressions)

        def skip(frame: pl.DataFrame) -> pl.DataFrame:
            try:
                return frame if frame.is_empty() else narrow(frame)
            except StorageError as error:  # Statistics only save work. Without them all files are read.
                _log.warning("statistics of %s could not be read, no file is skipped: %s", self._root, error.code)
                return frame

        return skip

    def _constant(self, filters: Sequence[Any]) -> bool:
        if not filters:
            return True
        row = self._jvm.empty_row
        return all(bool(item.eval(row)) for item in filters)

    def _decidable(self, partition_filters: Any) -> list[Any]:
        """Return the filters over partition columns, without those that Spark infers from the test of a bitmap."""
        filters = self._jvm.to_list(partition_filters)
        own = {name for names in self.files.bitmaps for name in names}
        return [item for item in filters if not own or not set(self._jvm.reference_names(item)) & own]

    def _rows_with_bitmaps(self, frame: pl.DataFrame) -> tuple[Any, pl.DataFrame]:
        """Return one partition row per file, with its bitmaps, and the frame numbered accordingly."""
        numbered = frame.with_columns(pl.int_range(pl.len(), dtype=pl.UInt32).alias(_ORDINAL))
        if not self.files.shared or frame.is_empty():  # Rows of a command's scan are used once.
            return self._make_rows(frame)[0], numbered
        identity, zone, _ = self._cache_key()
        key = (identity.table_id, identity.location, zone, *self.files.bitmaps, self._digest(frame))
        rows = self._jvm.recent_rows.get(key)
        if rows is None:
            rows, num_bytes = self._make_rows(frame)
            self._jvm.recent_rows.put(key, rows, num_bytes)
        return rows, numbered

    def _digest(self, frame: pl.DataFrame) -> bytes:
        """Compute a digest of a query's files and of the values in their rows, independent of the version."""
        text = "".join(f"{name} {kind}," for name, kind in self.files.partition_types.items())
        chosen = frame.select("path", "dv_id", *self._columns()).rechunk()
        return hashlib.sha256(text.encode() + chosen.write_ipc(None).getvalue()).digest()

    def _make_rows(self, frame: pl.DataFrame) -> tuple[Any, int]:
        """Make ``java.util.List[InternalRow]``, one row per file with its bitmaps. Also returns their size in bytes."""
        jvm = self._jvm
        names, arrays, casts = self._row_columns(frame)
        for columns, read in self.files.bitmaps.items():
            arrays, names, casts = [*arrays, *read(frame).columns], [*names, *columns], [*casts, *("" for _ in columns)]
        table = pa.Table.from_arrays(arrays, names=names)
        rows = jvm.new_list()
        step = max(1, frame.height * _ROWS_BYTES // max(table.nbytes, 1))
        for start in range(0, frame.height, step):  # The data that one job may send to the driver is limited.
            part = table.slice(start, step)
            rows.addAll(jvm.rows_list(jvm.rows_of(part, casts)))
        return rows, table.nbytes

    def _row_columns(self, frame: pl.DataFrame) -> tuple[list[str], list[pa.Array], list[str]]:
        """Return names, text or typed values, and casts of the columns of partition rows."""
        columns = self._columns()
        types = [pa.string()] * len(self.files.partition_types)
        types += [_HIDDEN_ARROW[item.spark_type] for item in self.files.hidden]
        arrays = [frame[name].to_arrow().cast(kind) for name, kind in zip(columns, types, strict=True)]
        names = [f"c{position}" for position in range(len(columns))]
        return names, arrays, [*self.files.partition_types.values(), *("" for _ in self.files.hidden)]

    def _matching(
        self, filters: Sequence[Any], partitions: _Partitions, names: Mapping[str, str] = _NO_NAMES
    ) -> list[int]:
        """Return the positions of the partitions for which Spark finds all filters true."""
        by_name: dict[str, Any] = {}
        lower = {name.lower(): other.lower() for name, other in names.items()}
        for item in filters:
            for attribute in self._jvm.to_list(item.references().toSeq()):  # Attributes have the user's spelling.
                named = str(attribute.name()).lower()
                by_name[lower.get(named, named)] = attribute
        own = self._jvm.to_list(self._jvm.local_relation.apply(self.partition_schema).output())[: len(self._columns())]
        attributes = [by_name.get(str(attribute.name()).lower(), attribute) for attribute in own]
        if self._ordinal_attribute is None:
            schema = self._jvm.struct(Jvm.struct_json(pa.schema([(_ORDINAL, pa.int32())])))
            self._ordinal_attribute = self._jvm.local_relation.apply(schema).output().apply(0)
        return self._jvm.filter_ordinals(filters, attributes, self._ordinal_attribute, partitions.numbered)

    def _load_partitions(self) -> _Partitions:
        with self._lock:
            if self._partitions is None:
                if self.files.shared:
                    self._partitions = self._jvm.recent_partitions(self._cache_key(), self._make_partitions)
                else:  # The command that chose the files scans them once.
                    self._partitions = self._make_partitions()
            return self._partitions

    def _cache_key(self) -> tuple[Any, ...]:
        zone = ""
        if "timestamp" in self.files.partition_types.values():  # Text without a zone is in the session's.
            zone = self._jvm.time_zone()
        return (self.files.identity, zone, isinstance(self.files.listed, pl.DataFrame))

    def _make_partitions(self) -> _Partitions:
        columns, listed, ordinals = self._columns(), self.files.listed, None
        if isinstance(listed, pl.DataFrame):
            distinct = listed.select(columns).unique(maintain_order=True).with_row_index(_ORDINAL)
            joined = listed.select(columns).join(
                distinct, on=columns, how="left", nulls_equal=True, maintain_order="left"
            )
            ordinals = joined[_ORDINAL]
        else:
            distinct = listed.partition_texts().select(columns).with_row_index(_ORDINAL)
        names, arrays, casts = self._row_columns(distinct)
        table = pa.Table.from_arrays(arrays, names=names)
        numbered = table.append_column(_ORDINAL, distinct[_ORDINAL].to_arrow().cast(pa.int32()))
        jvm = self._jvm
        return _Partitions(
            values=distinct,
            ordinals=ordinals,
            rows=jvm.rows_list(jvm.rows_of(table, casts)),
            numbered=jvm.rows_list(jvm.rows_of(numbered, [*casts, ""])),
            count=distinct.height,
        )


def _all_of(frame: pl.DataFrame) -> pl.DataFrame:
    return frame


def find_index(location: Any) -> DeltaFileIndex | None:
    """Find the Python object of a ``FileIndex`` from the JVM, or return None for any other index."""
    match = _TEXT.match(str(location.toString()))
    return None if match is None else live_index(int(match.group(1)))


def live_index(number: int) -> DeltaFileIndex | None:
    """Return the object with a number, or None if the JVM has forgotten it."""
    return _LIVE.get(number)
