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
import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias
from weakref import WeakValueDictionary

import polars as pl
import pyarrow as pa

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
]

_log = logging.getLogger(__name__)

_ORDINAL: Final = "__pydelta_partition"
_SERIALS: Final = itertools.count(1)
_LIVE: Final[WeakValueDictionary[int, DeltaFileIndex]] = WeakValueDictionary()
_TEXT: Final = re.compile(r"^Delta\[.*\]#(\d+)$", re.DOTALL)
_ROWS_BYTES: Final = 32 * 1024 * 1024
_KEPT_FILES: Final = 10_000
"""Up to so many files, what Spark was told of all of them is kept for its next query."""
_NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})
_HIDDEN_ARROW: Final = {"long": pa.int64(), "integer": pa.int32(), "binary": pa.binary(), "string": pa.string()}


TABLE_SCAN: Final = "pydelta.table"
"""Mark of a projection that gives the columns of a scan their logical names."""

MATCH_COLUMNS: Final = ("__pydelta_match", "__pydelta_match_start", "__pydelta_match_end")
"""Hidden columns that single out rows of a file: bits (binary), row of the first bit, row behind the last (bigint)."""

VECTOR_COLUMNS: Final = (
    "__pydelta_vector",
    "__pydelta_vector_first",
    "__pydelta_vector_last",
    "__pydelta_vector_base",
)
"""Hidden columns of files with a deletion vector: bits (binary); the rows that the first of them stands for, and one of
the last, neither of which is deleted unless the first is row 0; where Java keeps the bits of an array (bigint)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexIdentity:
    """What makes two scans the same to Spark's cache and to exchange reuse.

    Args:
        table_id: The table's id in its metadata.
        location: Root URI.
        version: Table version.
        subset: Something that differs between scans over different files or hidden columns; empty for a whole table.
    """

    table_id: str
    location: str
    version: int
    subset: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenColumn:
    """A value a file that the scan carries as one more partition column, such as a file's ordinal.

    Args:
        name: Its name in the scan; the projection above drops it.
        spark_type: ``long``, ``integer``, ``string`` or ``binary``.
        column: The frame's column that holds the values.
    """

    name: str
    spark_type: str
    column: str


_Skip: TypeAlias = Callable[[pl.DataFrame], pl.DataFrame]


class VectorReader(Protocol):
    """Makes the bitmaps of files, when it is known which files a query is left with."""

    def __call__(self, files: pl.DataFrame) -> pa.Table:
        """The columns that the reader is kept under, for rows of a scan's frame, in their order."""


class Pruner(Protocol):
    """Narrows files by their statistics."""

    def __call__(self, filters: Sequence[Expr]) -> Callable[[pl.DataFrame], pl.DataFrame]:
        """What leaves of some files those that may hold a row for which all filters are true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanFiles:
    """The files of one scan, as columns.

    Args:
        identity: See ``IndexIdentity``.
        listed: ``path``, ``size``, ``modification_time``, one text column ``pv:<name>`` a partition column, and
            the columns of ``hidden``. Or the live files of a log that is read in parts, and nothing is hidden.
        partition_types: Partition column (physical name) -> SQL type to cast its text to, in the table's order.
        hidden: Columns beyond those of the table.
        size_bytes: Sum of the sizes.
        pinned: The version was asked for by the user: never replaced by a later one.
        prune: Narrows by statistics.
        bitmaps: What gives each file a bitmap of its own: ``MATCH_COLUMNS`` or ``VECTOR_COLUMNS``, and their reader.
            With the latter, every file has a deletion vector.
        shared: A whole table's files, so that other scans of the version may use the same partition rows.
        snapshot: The version.
        fixed: A command reads the version in all of its jobs: no query moves it to the newest.
        storage: The reader's options for the store, beside those of the session.
        schema: Columns of the table that are read, as an older version had them; None for all.
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
        """All files; those of a log in parts are listed for it."""
        return self.listed if isinstance(self.listed, pl.DataFrame) else self.listed.core


@dataclass(frozen=True, slots=True, kw_only=True)
class _Partitions:
    """Distinct partition rows of a scan.

    Args:
        values: Their values as texts, and their positions.
        ordinals: For each file of the frame, the position of its partition; None for the files of a log in parts.
        rows: ``java.util.List[InternalRow]``, without the ordinal.
        numbered: The same with the position as one more column, to be filtered.
        count: How many.
    """

    values: pl.DataFrame
    ordinals: pl.Series | None
    rows: Any
    numbered: Any
    count: int


class DeltaFileIndex:
    """``FileIndex`` over a frozen file list. Spark calls it from its planning threads.

    Args:
        jvm: The session's bindings.
        files: What to scan.
        partition_schema: ``StructType`` of the JVM: the table's partition columns, then the hidden ones.
    """

    class Java:
        """py4j: the interface this object implements for the JVM."""

        implements = ("org.apache.spark.sql.execution.datasources.FileIndex",)

    def __init__(self, jvm: Jvm, files: ScanFiles, partition_schema: Any) -> None:
        self._jvm = jvm
        self.files = files
        self._schema = partition_schema
        self._root = hadoop_uri(files.identity.location)
        self._lock = threading.Lock()
        self._partitions: _Partitions | None = None
        self._ordinal_attribute: Any = None
        self._roots: Any = None
        self._all: Any = None
        self._serial = next(_SERIALS)
        _LIVE[self._serial] = self

    # --- FileIndex -----------------------------------------------------------------------------------------

    def rootPaths(self) -> Any:
        """Return the table's root and its log: two, since Spark's own file writer refuses to write into several roots.

        It knows nothing of the log: overwriting a view of the table would delete the folder.
        """
        if self._roots is None:  # Spark asks several times for each query
            self._roots = self._jvm.seq([self._jvm.path(self._root), self._jvm.path(f"{self._root}/{LOG_DIR}")])
        return self._roots

    def listFiles(self, partitionFilters: Any, dataFilters: Any) -> Any:
        """Return the files to read, grouped by partition: exact for partition filters, generous for data filters."""
        jvm, files = self._jvm, self.files
        frame, rows = self._selected(partitionFilters, dataFilters)
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
        """The files to read, and the partition rows that they are numbered by; None without any."""
        files, filters, skip = self.files, self._decidable(partition_filters), self._skipping(data_filters)
        if not isinstance(files.listed, pl.DataFrame) and (filters or skip):
            return self._selected_in_parts(files.listed, filters, skip)
        frame, rows = files.frame, None
        if not self._columns():
            if not self._constant(filters):  # as a table without partition columns may have
                frame = frame.head(0)
        elif filters or not files.bitmaps:  # with bitmaps, each file gets a row of its own below
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
        """See ``_selected``; a part of the log is held at a time, and the files that are left of it."""
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
        """Files, of which none has a deletion vector: this scan would read the rows that it deletes."""
        if files["dv_id"].null_count() < files.height:
            raise LogCorruptedError(
                "A file has a deletion vector, and the table's protocol does not list the feature deletionVectors.",
                hint="Another writer broke the log. Read the table with spark.pydelta.log.maxFilesInMemory above its "
                "number of files.",
                table=self.files.identity.location,
                version=self.files.identity.version,
            )
        return files

    def _numbered(self, frame: pl.DataFrame, partitions: _Partitions, values: pl.DataFrame) -> pl.DataFrame:
        """Files with the position of each one's partition."""
        if partitions.ordinals is not None:
            return frame.with_columns(partitions.ordinals.alias(_ORDINAL))
        return frame.join(values, on=self._columns(), how="left", nulls_equal=True, maintain_order="left")

    def partition_matches(self, filters: Sequence[Any], names: Mapping[str, str] | None = None) -> pl.DataFrame:
        """Return the files of the partitions for which Spark finds all filters true.

        Args:
            filters: Catalyst expressions over partition columns alone.
            names: What the filters call a partition column -> what it is called here, where these differ.
        """
        if not isinstance(self.files.listed, pl.DataFrame):
            return self._selected_in_parts(self.files.listed, filters, None, names or {})[0].drop(_ORDINAL)
        partitions = self._load_partitions()
        kept = pl.Series(self._matching(filters, partitions, names or {}), dtype=pl.UInt32)
        numbered = self._numbered(self.files.frame, partitions, partitions.values)
        return numbered.filter(pl.col(_ORDINAL).is_in(kept.implode())).drop(_ORDINAL)

    def inputFiles(self) -> Any:
        """Return the URI-encoded paths of all files."""
        return self._jvm.string_array(encode_uris(file_uris(self.files.frame["path"], self._root)))

    def refresh(self) -> None:
        """Do nothing: the list of files is frozen."""

    def sizeInBytes(self) -> int:
        """Return the sum of the files' sizes, for the planner's estimates."""
        return self.files.size_bytes

    def partitionSchema(self) -> Any:
        """Return the partition columns and the hidden ones."""
        return self._schema

    def metadataOpsTimeNs(self) -> Any:
        """Return 0: it is not measured."""
        return self._jvm.none

    def isTimeTravel(self) -> bool:
        """Tell whether the user named the version."""
        return self.files.pinned

    # --- identity ------------------------------------------------------------------------------------------

    def toString(self) -> str:
        """Name table, version and id, and a serial number by which ``find_index`` finds this object again."""
        identity = self.files.identity
        subset = f", {identity.subset}" if identity.subset else ""
        return f"Delta[version={identity.version}, id={identity.table_id}{subset}, {self._root}]#{self._serial}"

    def equals(self, other: Any) -> bool:
        """Compare table id, location and version."""
        found = find_index(other)
        return found is not None and found.files.identity == self.files.identity

    @property
    def version_and_id(self) -> tuple[int, str]:
        """Version and id of the table."""
        return self.files.identity.version, self.files.identity.table_id

    def hashCode(self) -> int:
        """Compute a hash consistent with ``equals``, within Java's int."""
        return hash(self.files.identity) & 0x7FFFFFFF

    # --- parts ---------------------------------------------------------------------------------------------

    def _columns(self) -> list[str]:
        return [PV_PREFIX + name for name in self.files.partition_types] + [item.column for item in self.files.hidden]

    def _skipping(self, data_filters: Any) -> _Skip | None:
        """What leaves out files by their statistics; None where no filter says anything of them."""
        filters = self._jvm.to_list(data_filters)
        expressions = to_expressions(filters) if filters else []
        if not expressions:
            return None
        narrow = self.files.prune(expressions)

        def skip(frame: pl.DataFrame) -> pl.DataFrame:
            try:
                return frame if frame.is_empty() else narrow(frame)
            except StorageError as error:  # statistics only save work: without them all files are read
                _log.warning("statistics of %s could not be read, no file is skipped: %s", self._root, error.code)
                return frame

        return skip

    def _constant(self, filters: Sequence[Any]) -> bool:
        if not filters:
            return True
        row = self._jvm.empty_row
        return all(bool(item.eval(row)) for item in filters)

    def _decidable(self, partition_filters: Any) -> list[Any]:
        """Filters over partition columns, without those that Spark infers from the test of a bitmap itself."""
        filters = self._jvm.to_list(partition_filters)
        own = {name for names in self.files.bitmaps for name in names}
        return [item for item in filters if not own or not set(self._jvm.reference_names(item)) & own]

    def _rows_with_bitmaps(self, frame: pl.DataFrame) -> tuple[Any, pl.DataFrame]:
        """A partition row a file, with its bitmaps, and the frame numbered accordingly."""
        numbered = frame.with_columns(pl.int_range(pl.len(), dtype=pl.UInt32).alias(_ORDINAL))
        if not self.files.shared or frame.is_empty():  # a command's, or nobody's
            return self._make_rows(frame)[0], numbered
        identity, zone, _ = self._cache_key()
        key = (identity.table_id, identity.location, zone, *self.files.bitmaps, self._digest(frame))
        rows = self._jvm.recent_rows.get(key)
        if rows is None:
            rows, num_bytes = self._make_rows(frame)
            self._jvm.recent_rows.put(key, rows, num_bytes)
        return rows, numbered

    def _digest(self, frame: pl.DataFrame) -> bytes:
        """What tells the files of a query, and what their rows carry, from others, whatever the version."""
        text = "".join(f"{name} {kind}," for name, kind in self.files.partition_types.items())
        chosen = frame.select("path", "dv_id", *self._columns()).rechunk()
        return hashlib.sha256(text.encode() + chosen.write_ipc(None).getvalue()).digest()

    def _make_rows(self, frame: pl.DataFrame) -> tuple[Any, int]:
        """``java.util.List[InternalRow]``, a partition row a file, with its bitmaps; and how many bytes they take."""
        jvm = self._jvm
        names, arrays, casts = self._row_columns(frame)
        for columns, read in self.files.bitmaps.items():
            arrays, names, casts = [*arrays, *read(frame).columns], [*names, *columns], [*casts, *("" for _ in columns)]
        table = pa.Table.from_arrays(arrays, names=names)
        rows = jvm.new_list()
        step = max(1, frame.height * _ROWS_BYTES // max(table.nbytes, 1))
        for start in range(0, frame.height, step):  # what one job may hand to the driver is limited
            part = table.slice(start, step)
            rows.addAll(jvm.rows_list(jvm.rows_of(part, casts)))
        return rows, table.nbytes

    def _row_columns(self, frame: pl.DataFrame) -> tuple[list[str], list[pa.Array], list[str]]:
        """Names, text or typed values, and casts of the columns of partition rows."""
        columns = self._columns()
        types = [pa.string()] * len(self.files.partition_types)
        types += [_HIDDEN_ARROW[item.spark_type] for item in self.files.hidden]
        arrays = [frame[name].to_arrow().cast(kind) for name, kind in zip(columns, types, strict=True)]
        names = [f"c{position}" for position in range(len(columns))]
        return names, arrays, [*self.files.partition_types.values(), *("" for _ in self.files.hidden)]

    def _matching(
        self, filters: Sequence[Any], partitions: _Partitions, names: Mapping[str, str] = _NO_NAMES
    ) -> list[int]:
        """Positions of the partitions for which Spark finds all filters true."""
        by_name: dict[str, Any] = {}
        lower = {name.lower(): other.lower() for name, other in names.items()}
        for item in filters:
            for attribute in self._jvm.to_list(item.references().toSeq()):  # named as the user spelt them
                named = str(attribute.name()).lower()
                by_name[lower.get(named, named)] = attribute
        own = self._jvm.to_list(self._jvm.local_relation.apply(self._schema).output())[: len(self._columns())]
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
                else:  # scanned once, by the command that chose the files
                    self._partitions = self._make_partitions()
            return self._partitions

    def _cache_key(self) -> tuple[Any, ...]:
        zone = ""
        if "timestamp" in self.files.partition_types.values():  # text without a zone is in the session's
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
    """Find our object behind a ``FileIndex`` that the JVM hands back; None for any other index.

    py4j gives a Python proxy that has been through the JVM back as a plain Java object, so it is known by its text.
    """
    if isinstance(location, DeltaFileIndex):
        return location
    match = _TEXT.match(str(location.toString()))
    return None if match is None else _LIVE.get(int(match.group(1)))
