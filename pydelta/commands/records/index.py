"""Look keys up in a table's record index, and keep its segments few.

::

    _pydelta/records/<uuid>.records      segments; each is complete for the data files that it covers

    candidate files -- no segment covers it, by path and size --> stays
                    -- covered, has one of the hashes ----------> stays
                    -- covered, has none of them ---------------> left out

The log alone says which files are live. The index only says what a file does not hold, and anything odd about a segment
makes the lookup ignore it. Nothing names the segments: writers add some, and delete those that they merged, so that
writers at the same time at most cover a file twice.
"""

from __future__ import annotations

import functools
import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from pydelta.commands.records.segments import (
    FILES_SCHEMA,
    BadSegmentError,
    Hashes,
    IndexedColumn,
    Numbers,
    Segment,
    SegmentContents,
    open_segment,
    write_segment,
)
from pydelta.errors import ObjectNotFoundError, StorageError
from pydelta.storage.interface import DeleteReport, ObjectInfo, Store
from pydelta.storage.readers import read_all

__all__ = [
    "FEWEST_FILES",
    "FOLDER",
    "MOST_HASHES",
    "HashesOf",
    "Lookup",
    "drop_segments",
    "list_segments",
    "merge_segments",
    "new_segment_path",
]

_LOG: Final = logging.getLogger(__name__)
FOLDER: Final = "_pydelta/records"
_SUFFIX: Final = ".records"
FEWEST_FILES: Final = 16
"""With fewer candidate files than this, no index is looked for: reading them costs no more than the lookup."""
MOST_HASHES: Final = 100_000
"""For more keys than this, no index is asked."""
_READ_SHARE: Final = 8
"""A lookup reads at most this fraction of the bytes of the candidate files."""
_LEAST_BUDGET: Final = 1 << 20
_MERGED_FENCES: Final = 1024
"""Blocks that a merge holds in memory at once, about 50 MB."""

HashesOf = Callable[[Sequence[IndexedColumn]], Hashes | None]
"""Computes the ascending distinct hashes of the wanted keys over some columns; None if the keys have other columns."""


def list_segments(store: Store) -> list[ObjectInfo]:
    """List the segments of a table."""
    return [info for info in store.list_from("", prefix=FOLDER) if info.path.endswith(_SUFFIX)]


def new_segment_path() -> str:
    """Return a path for a new segment, which nothing else has."""
    return f"{FOLDER}/{uuid.uuid4()}{_SUFFIX}"


def drop_segments(store: Store) -> DeleteReport:
    """Delete everything in the index's folder."""
    return store.delete_many([info.path for info in store.list_all(FOLDER)])


def drop_all_segments(store: Store, table: str, hint: str) -> int:
    """Delete everything in the index's folder. Returns the number of objects.

    Args:
        store: Store of the table.
        table: URI of the table, for the error.
        hint: What to do if an object stays.

    Raises:
        StorageError: An object could not be deleted.
    """
    report = drop_segments(store)
    if report.failed:
        path, reason = report.failed[0]
        raise StorageError(
            f"{len(report.failed)} objects of the record index are still there, such as {path}: {reason}",
            retryable=report.retryable,
            hint=hint,
            table=table,
        )
    return report.deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """A lookup of keys.

    Args:
        store: Store of the table.
        table_id: Id of the table in its metadata.
        hash_name: Name and version of the hash.
        hashes_of: See ``HashesOf``.
    """

    store: Store
    table_id: str
    hash_name: str
    hashes_of: HashesOf

    def narrow(self, files: pl.DataFrame) -> pl.DataFrame:
        """Leave out the files that are proven to hold none of the keys. An index that cannot be used changes nothing.

        Args:
            files: Candidates, with columns ``path`` (as in the log) and ``size``.
        """
        if files.height < FEWEST_FILES:
            return files
        try:
            infos = list_segments(self.store)
            if not infos:
                return files
            budget = max(int(files["size"].sum() or 0) // _READ_SHARE, _LEAST_BUDGET) // len(infos)
            places = files.select("path", pl.col("size").cast(pl.Int64)).with_row_index("place")
            out = np.zeros(files.height, dtype=np.bool_)
            for part in read_all(lambda info: self._free_of(info, places, budget), infos):
                out[part] = True
        except Exception as error:  # noqa: BLE001 - the index is optional, the merge is not
            _LOG.warning("The record index is ignored: %s", error, extra={"table": self.store.root})
            return files
        return files.filter(pl.Series(~out)) if out.any() else files

    def _free_of(self, info: ObjectInfo, places: pl.DataFrame, budget: int) -> npt.NDArray[np.int64]:
        """Return the places of the files that a segment proves to hold none of the keys."""
        nothing = np.empty(0, dtype=np.int64)
        try:
            segment = open_segment(self.store, info, hash_name=self.hash_name)
            if segment.table_id != self.table_id:
                return nothing
            wanted = self.hashes_of(segment.key)
            if wanted is None or len(wanted) > MOST_HASHES or segment.bytes_of(segment.blocks_for(wanted)) > budget:
                return nothing
            covered = places.join(segment.files.with_row_index("number"), on=["path", "size"], how="inner")
            if covered.is_empty():
                return nothing
            holds = segment.find(wanted)
            free = ~holds[covered["number"].to_numpy()]
            return np.asarray(covered["place"].to_numpy()[free], dtype=np.int64)
        except ObjectNotFoundError:  # Another process merged it, or dropped the index.
            return nothing
        except BadSegmentError as error:
            _LOG.warning("A segment of the record index is ignored: %s", error, extra={"table": self.store.root})
            return nothing


def merge_segments(store: Store, segments: Sequence[Segment], live: pl.DataFrame, hash_name: str) -> Segment:
    """Write one segment with the entries of several that belong to live files. The others are not deleted.

    Args:
        store: Store of the table.
        segments: Segments of one key and one table.
        live: The live files: ``FILES_SCHEMA``.
        hash_name: Name and version of the hash.

    Raises:
        BadSegmentError: A segment is damaged.
        StorageError: One is gone, or the store failed.
    """
    each = [
        segment.files.with_row_index("number").with_columns(segment=pl.lit(place, dtype=pl.UInt32))
        for place, segment in enumerate(segments)
    ]
    named = list(FILES_SCHEMA)
    kept = pl.concat(each).join(live.select(named), on=named, how="semi", maintain_order="left")
    kept = kept.unique(named, keep="first", maintain_order=True).with_row_index("new")
    numbers = []
    for place, segment in enumerate(segments):
        own = kept.filter(pl.col("segment") == place)
        new = np.full(segment.files.height, -1, dtype=np.int64)
        new[own["number"].to_numpy()] = own["new"].to_numpy()
        numbers.append(new)
    contents = SegmentContents(
        key=segments[0].key, hash_name=hash_name, table_id=segments[0].table_id, files=kept.select(named)
    )
    info = write_segment(store, new_segment_path(), contents, _merged(segments, numbers))
    return open_segment(store, info, hash_name=hash_name)


def _merged(segments: Sequence[Segment], new: Sequence[npt.NDArray[np.int64]]) -> Iterator[tuple[Hashes, Numbers]]:
    """Merge the entries of segments, range by range of the hashes, with the new numbers of files; -1 leaves one out."""
    fences = np.sort(np.concatenate([segment.fences for segment in segments]))
    bounds = [0, *map(int, np.unique(fences[_MERGED_FENCES::_MERGED_FENCES])), None]
    for low, high in pairwise(bounds):
        if low is None or low == high:
            continue
        read = functools.partial(_between, low=low, high=high)
        parts = read_all(read, segments)
        hashes = np.concatenate([part[0] for part in parts])
        places = np.concatenate([of[part[1]] for of, part in zip(new, parts, strict=True)])
        kept = places >= 0
        hashes, places = hashes[kept], places[kept]
        order = np.argsort(hashes, kind="stable")
        yield hashes[order], places[order].astype(np.uint32)


def _between(segment: Segment, *, low: int, high: int | None) -> tuple[Hashes, Numbers]:
    return segment.between(low, high)
