"""Apply deletion vectors in a scan: Spark tests a row's bit itself, and only in files that have a vector.

::

    files without a vector --> the plain scan ----------------------------------+--> one relation, ``_metadata`` too
    files with one --> scan + bitmap per file --filter: bit of the row not set--+

The filter has a form that Spark tests after all other conditions of a query: see ``_not_deleted``. In the other
direction, ``collect_rows`` returns the rows that a query found. No row goes through Python.

Protocol: "Reader Requirement for Deletion Vectors".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import SessionSettings
from pydelta.engines.spark.lru import LruCache
from pydelta.engines.spark.scan.index import MATCH_COLUMNS, VECTOR_COLUMNS
from pydelta.engines.spark.scan.row_numbers import counted
from pydelta.errors import UnsupportedFeatureError
from pydelta.log.vector_files import read_deleted_rows
from pydelta.protocol.row_sets import WORD_BITS, RowSet
from pydelta.storage import open_store

if TYPE_CHECKING:
    from pydelta.log import Snapshot

__all__ = [
    "Bitmap",
    "SnapshotVectors",
    "bitmap_columns",
    "collect_rows",
    "in_bitmap",
    "is_vector_scan",
    "make_bitmap",
    "vector_scan",
]

_METADATA: Final = "_metadata"
_MAX_BITS: Final = (1 << 31) - 4 * WORD_BITS
_CACHE_BYTES: Final = 128 * 1024 * 1024
_MARK: Final = "pydelta.vectors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bitmap:
    """Rows of a file as bits.

    Args:
        bits: Words of 64 bits, little-endian.
        start: Row of the first bit, a multiple of 64.
        end: First row after the last bit.
    """

    bits: bytes
    start: int
    end: int


def make_bitmap(rows: RowSet) -> Bitmap:
    """Turn rows of a file into the bits between the first and the last of them. Pure.

    Raises:
        UnsupportedFeatureError: They are further apart than Spark's function can address.
    """
    if rows.end - rows.start > _MAX_BITS:
        raise UnsupportedFeatureError(
            f"Deleted or changed rows of one file are too far apart: between {rows.start} and {rows.end}.",
            features=("files of more than 2^31 rows",),
            hint="Rewrite the file in the engine that wrote it (REORG TABLE … APPLY (PURGE)).",
        )
    return Bitmap(bits=rows.dense() or bytes(WORD_BITS // 8), start=rows.start, end=rows.end)


def bitmap_columns(bitmaps: Sequence[Bitmap]) -> pa.Table:
    """Return bitmaps as ``MATCH_COLUMNS``."""
    columns = [
        pa.array([item.bits for item in bitmaps], type=pa.binary()),
        pa.array([item.start for item in bitmaps], type=pa.int64()),
        pa.array([item.end for item in bitmaps], type=pa.int64()),
    ]
    return pa.Table.from_arrays(columns, names=list(MATCH_COLUMNS))


def in_bitmap(jvm: Jvm, scanned: DataFrame) -> Column:
    """Return for each row whether it is in its file's bitmap, in a scan that has ``MATCH_COLUMNS``."""
    row = scanned.metadataColumn("_metadata").getField("row_index")
    bits, start, end = (F.col(name) for name in MATCH_COLUMNS)
    is_set = jvm.bit_is_set(bits, F.lit(jvm.bits_base).cast("bigint"), (row - start).cast("int"))
    # Spark may compute both sides of an AND, and testing a bit after the last reads arbitrary memory.
    return F.when((row >= start) & (row < end), is_set).otherwise(F.lit(False))


def _vector_columns(bitmaps: Sequence[Bitmap], base: int) -> pa.Table:
    """Return bitmaps as ``VECTOR_COLUMNS``, padded with a word of zeros on both sides for rows beyond them.

    Args:
        bitmaps: Bitmaps of the files.
        base: Offset of the bits in a Java array.
    """
    zeros = bytes(WORD_BITS // 8)
    bits = [(zeros if item.start else b"") + item.bits + zeros for item in bitmaps]
    columns = [
        pa.array(bits, type=pa.binary()),
        pa.array([item.start - WORD_BITS if item.start else 0 for item in bitmaps], type=pa.int64()),
        pa.array([item.end for item in bitmaps], type=pa.int64()),
        pa.array([base] * len(bits), type=pa.int64()),
    ]
    return pa.Table.from_arrays(columns, names=list(VECTOR_COLUMNS))


_RECENT: Final[LruCache[tuple[str, str], Bitmap]] = LruCache(_CACHE_BYTES)
"""Bitmaps of the vectors used last in this process."""


class SnapshotVectors:
    """Reads the bitmaps of the files that a query reads. The index calls it when Spark plans.

    Args:
        jvm: The session's bindings, for its storage options.
        snapshot: Snapshot with the descriptors of the vectors.
    """

    def __init__(self, jvm: Jvm, snapshot: Snapshot) -> None:
        self._jvm = jvm
        self._snapshot = snapshot

    def __call__(self, files: pl.DataFrame) -> pa.Table:
        """Return the columns ``VECTOR_COLUMNS``, one row per file."""
        return _vector_columns(self._bitmaps(files), self._jvm.bits_base)

    def _bitmaps(self, files: pl.DataFrame) -> list[Bitmap]:
        root = self._snapshot.table_uri
        keys = [(root, dv_id) for dv_id in files["dv_id"].to_list()]
        found = {key: bitmap for key in set(keys) if (bitmap := _RECENT.get(key)) is not None}
        missing = files.filter(~pl.col("dv_id").is_in([key[1] for key in found])).unique("dv_id", maintain_order=True)
        if missing.height:
            adds = self._snapshot.files.adds(missing.select(self._snapshot.files.none().columns))
            vectors = [add.deletion_vector for add in adds if add.deletion_vector is not None]
            options = SessionSettings.of(self._jvm.spark).options
            store = open_store(root, options)
            for vector, rows in zip(
                vectors, read_deleted_rows(vectors, store=store, root=root, options=options), strict=True
            ):
                key = (root, vector.unique_id)
                found[key] = make_bitmap(RowSet.of(rows))
                _RECENT.put(key, found[key], len(found[key].bits))
        return [found[key] for key in keys]


def vector_scan(jvm: Jvm, *, plain: Any | None, marked: Any, ids: dict[str, Any] | None = None) -> DataFrame:
    """Join the rows of two relations, without those that vectors delete.

    Args:
        jvm: The session's bindings.
        plain: ``HadoopFsRelation`` over the files without a vector, or None if there are none.
        marked: The same over the files with one. ``VECTOR_COLUMNS`` are its last columns.
        ids: Ids of the resulting columns, by name, so that the frame can replace another in a plan.

    Returns:
        A frame with the columns of ``plain``, in its order. ``_metadata`` can be selected.
    """
    spark = jvm.spark
    scanned = DataFrame(jvm.session.baseRelationToDataFrame(marked), spark)
    metadata = scanned.metadataColumn(_METADATA)
    kept = scanned.filter(_not_deleted(jvm, metadata.getField("row_index")))
    shown = [f"`{name.replace('`', '``')}`" for name in scanned.columns if name not in VECTOR_COLUMNS]
    branch = kept.select(*(kept[name] for name in shown), metadata.alias(_METADATA))._jdf.queryExecution().analyzed()
    *columns, hidden = jvm.to_list(branch.output())
    if plain is None:
        return jvm.frame(_top(jvm, branch, columns, hidden, ids))
    other = DataFrame(jvm.session.baseRelationToDataFrame(plain), spark)._jdf.queryExecution().analyzed()
    # Spark adds hidden metadata below a union by its id in the first branch, so the second needs the same id.
    shared = jvm.to_list(other.metadataOutput())[0]
    inner = jvm.project(jvm.seq([*columns, jvm.alias(hidden, shared.exprId())]), branch)
    outer = jvm.project(jvm.seq(columns), inner)
    jvm.hide_column(outer, jvm.to_list(inner.output())[-1])
    union = jvm.union([other, outer])
    return jvm.frame(_top(jvm, union, jvm.to_list(union.output()), shared, ids))


def _not_deleted(jvm: Jvm, row: Column) -> Column:
    """Build a condition that a row's bit is not set, which is tested after those of the query.

    Spark puts the scan's own filter before a query's and tests conditions in their order. It tests "is not null" last
    if only a null among its columns can make it null. So a deleted row is one for which a function has no value,
    without literals or comparisons: ``factorial`` has no value below zero, and 1 at zero.
    """
    bits, first, last, base = (F.col(name) for name in VECTOR_COLUMNS)
    within = jvm.static_call("java.lang.Math", "max", "long", counted(jvm, row, bits), first)
    within = jvm.static_call("java.lang.Math", "min", "long", within, last)
    is_set = jvm.bit_is_set(bits, base, (within - first).cast("int"))
    return F.factorial(-is_set.cast("int")).isNotNull()


def _top(jvm: Jvm, plan: Any, columns: list[Any], hidden: Any, ids: dict[str, Any] | None) -> Any:
    """Build the top node of the scan, marked so that ``refresh`` finds it."""
    listed = [*columns, hidden] if ids is not None and _METADATA in ids else columns
    items = [jvm.alias(item, None if ids is None else ids.get(str(item.name()))) for item in listed]
    top = jvm.project(jvm.seq(items), plan)
    if listed is columns:
        jvm.hide_column(top, hidden)
    top.setTagValue(jvm.tag(_MARK), True)
    return top


def is_vector_scan(jvm: Jvm, node: Any) -> bool:
    """Return whether a node of an analysed plan is the top of a ``vector_scan``."""
    return bool(node.getTagValue(jvm.tag(_MARK)).isDefined())


def collect_rows(rows: DataFrame, *, file_column: str, row_column: str) -> dict[int, RowSet]:
    """Collect the files and rows that a frame holds, as words of 64 bits.

    Args:
        rows: Any frame with the two columns.
        file_column: A number for the file (bigint), as ``FILE_ROW_COLUMN``.
        row_column: Position of the row in the file (bigint), as ``ROW_INDEX_COLUMN``.

    Returns:
        The rows by file, each once even if the frame repeats it.
    """
    row = F.col(row_column)
    word, bit = F.shiftright(row, 6), row.bitwiseAND(F.lit(WORD_BITS - 1)).cast("int")
    one = F.call_function("shiftleft", F.lit(1).cast("bigint"), bit)
    words = (
        rows.groupBy(F.col(file_column).alias("file"), word.alias("word")).agg(F.bit_or(one).alias("bits")).toArrow()
    )
    frame = pl.from_arrow(words)
    assert isinstance(frame, pl.DataFrame)
    return {
        int(str(file)): RowSet(part["word"].to_numpy().astype("<u8"), part["bits"].to_numpy().astype("<i8").view("<u8"))
        for (file,), part in frame.sort("file", "word").group_by("file", maintain_order=True)
    }
