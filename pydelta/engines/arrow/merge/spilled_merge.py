"""Pair a merge's source with a table when the source is larger than memory, through temporary files.

::

    1. source --keys--> a sorted word per row: its hash and its number    (2^24 rows at once, then the next ones)
    2. files --keys--> hash --a bit set, then a binary search--> candidate pairs: position in the file, source row
    3. source, in its order --the rows of the pairs--> temporary file, in groups of pairs that follow each other
    4. file by file: rows of the pairs from both sides --keys compared--> pairs

Memory holds 8 bytes per row of the source and 16 per pair, and a few groups of source rows; the rows themselves are
written and read in order. Hashes are only used within one merge.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from pydelta.engines.arrow.expressions import NotHere
from pydelta.engines.arrow.merge.merge_rule import MergeRule
from pydelta.engines.arrow.merge.merge_source import LiveRows, Numbers, Pairs, TargetRows, keys_of
from pydelta.engines.arrow.merge.source_rows import SourceRows
from pydelta.engines.arrow.merge.spill import Part, SpillFile, return_memory
from pydelta.engines.arrow.threads import cores
from pydelta.protocol.actions import AddFile

__all__ = ["KeyHashes", "SpilledSource", "hashes_of"]

_Words = npt.NDArray[np.uint64]

_PASS_BITS: Final = 24
"""So many bits of a word number the rows whose hashes are held at once."""
_MOST: Final = 1 << 32
_GROUP_BYTES: Final = 4 * 1024 * 1024
_HELD_GROUPS: Final = 2
"""Groups that are held per processor: a thread reads them in order."""
_SET_BITS: Final = (10, 27)
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_ROW: Final = "source row"
_PAIR: Final = "pair"


def hashes_of(keys: pl.DataFrame) -> tuple[_Words, Numbers]:
    """Return hashes of keys that have no null, and the rows that they are of. Equal keys have equal hashes."""
    rows = np.arange(keys.height)
    nulls = keys.select(pl.any_horizontal(pl.all().is_null())).to_series()
    if nulls.any():
        rows = rows[~nulls.to_numpy()]
        keys = keys.filter(~nulls)
    if not len(rows):
        return np.empty(0, np.uint64), rows
    found: _Words = keys.hash_rows(seed=1).to_numpy() * _ODD  # The upper bits are used.
    return found, rows


class KeyHashes:
    """Hashes of keys, with the rows that have them. Pure.

    Args:
        parts: Hashes and the rows that have them, below 2^24.
        most: Number of rows, which may be more than there are hashes.
    """

    def __init__(self, parts: Iterable[tuple[_Words, Numbers]], most: int) -> None:
        low = np.uint64((1 << _PASS_BITS) - 1)
        words, count = np.empty(most, np.uint64), 0
        for hashes, rows in parts:
            words[count : count + len(rows)] = (hashes & ~low) | rows.astype(np.uint64)
            count += len(rows)
        self._words = words[:count]
        self._words.sort()
        wanted = len(self._words).bit_length() + 4
        self._shift = np.uint64(64 - min(max(wanted, _SET_BITS[0]), _SET_BITS[1]))
        self._set = self._bits()

    def _bits(self) -> npt.NDArray[np.uint8]:
        """Return a bit for each value of the upper bits, set if a key has it."""
        count = 1 << (64 - int(self._shift))
        bits = np.zeros(count // 8, np.uint8)
        step = min(count, 1 << 22)
        starts = np.arange(0, count, step, dtype=np.uint64)
        bounds = [*np.searchsorted(self._words, starts << self._shift).tolist(), len(self._words)]
        for start, first, last in zip(starts.tolist(), bounds, bounds[1:], strict=False):
            flags = np.zeros(step, np.bool_)
            flags[((self._words[first:last] >> self._shift) - np.uint64(start)).astype(np.int64)] = True
            bits[start // 8 : (start + step) // 8] = np.packbits(flags, bitorder="little")
        return bits

    def find(self, hashes: _Words) -> tuple[Numbers, Numbers]:
        """Return candidate pairs: positions among ``hashes``, ascending, and rows. Few of them have other keys."""
        tops = (hashes >> self._shift).astype(np.int64)
        maybe = np.flatnonzero((self._set[tops >> 3] >> (tops & 7).astype(np.uint8)) & np.uint8(1))
        if not len(maybe):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        low = np.uint64((1 << _PASS_BITS) - 1)
        order = np.argsort(hashes[maybe])  # Sorted searches stay in the processor's cache.
        maybe, wanted = maybe[order], hashes[maybe][order]
        first = np.searchsorted(self._words, wanted & ~low, side="left")
        counts = np.searchsorted(self._words, wanted | low, side="right") - first
        at = np.repeat(maybe, counts)
        starts = np.repeat(first - (np.cumsum(counts) - counts), counts)
        rows = (self._words[starts + np.arange(len(at))] & low).astype(np.int64)
        back = np.argsort(at, kind="stable")
        return at[back], rows[back]


@dataclass(slots=True)
class _Found:
    """Candidate pairs of a file: positions in the file, ascending, and rows of the source."""

    positions: Numbers
    sources: Numbers


class SpilledSource:
    """A source of which memory holds only parts. See ``MergeSource``.

    Args:
        source: Its rows.
        rule: The merge.

    Raises:
        NotHere: It has 2^32 rows or more.
        StorageError: A temporary file cannot be written.
    """

    def __init__(self, source: SourceRows, rule: MergeRule) -> None:
        if source.num_rows >= _MOST:
            raise NotHere("a source of 2^32 rows")
        self._source, self._rule = source, rule
        self.num_rows = source.num_rows
        self._matched = np.zeros(source.num_rows, dtype=np.bool_)
        self._file = SpillFile()
        self._groups = _Groups(self._file, 1)
        self._positions: list[Numbers] = []
        self._release()

    @property
    def held(self) -> None:
        """See ``MergeSource.held``."""
        return

    def pairs(self, adds: Sequence[AddFile], target: TargetRows, *, all_rows: bool) -> Iterator[Pairs]:
        """See ``MergeSource.pairs``."""
        found = self._search(adds, target)
        self._release()
        counts = [len(item.positions) for item in found]
        self._group(found)
        del found[:]
        firsts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        for number, add in enumerate(adds):
            first, last = int(firsts[number]), int(firsts[number + 1])
            positions = self._positions[number]
            if all_rows:
                [rows] = target.load([add])
                at = np.searchsorted(rows.positions, positions)
                yield self._equal(number, add, target, rows, at, np.arange(first, last))
                continue
            for start, end in _pieces(positions, self._groups.rows):
                own, at = np.unique(positions[start:end], return_inverse=True)
                rows = target.select(add, own)
                yield self._equal(number, add, target, rows, at, np.arange(first + start, first + end))
        self._positions = []
        self._release()

    def _search(self, adds: Sequence[AddFile], target: TargetRows) -> list[_Found]:
        """Find candidate pairs by hashes, in as many passes over the files as the source needs."""
        found = [_Found(np.empty(0, np.uint32), np.empty(0, np.uint32)) for _ in adds]
        for start, hashes in self._passes():
            more = target.search(adds, functools.partial(_find, target, hashes, start))
            found = [_both(before, after) for before, after in zip(found, more, strict=True)]
        return found

    def _passes(self) -> Iterator[tuple[int, KeyHashes]]:
        """Yield hashes of up to 2^24 rows, and the number of the first of them."""
        blocks, start, left = self._source.blocks(), 0, self.num_rows
        while left:
            most = min(left, 1 << _PASS_BITS)
            yield start, KeyHashes(self._hashed(blocks, most), most)
            start, left = start + most, left - most

    def _hashed(self, blocks: Iterator[pa.Table], most: int) -> Iterator[tuple[_Words, Numbers]]:
        """Yield hashes of the next rows, and the rows' numbers among them. A pass is a whole number of blocks."""
        first = 0
        while first < most:
            block = next(blocks)
            hashes, rows = hashes_of(keys_of(block, self._rule))
            yield hashes, rows + first
            first += block.num_rows

    def _group(self, found: list[_Found]) -> None:
        """Write the source rows of all pairs to the temporary file, in groups of pairs that follow each other."""
        total = sum(len(item.positions) for item in found)
        if total >= _MOST:
            raise NotHere("2^32 pairs of rows")
        words = np.empty(total, np.uint64)
        self._positions = []
        at = 0
        for item in found:
            size = len(item.positions)
            words[at : at + size] = item.sources.astype(np.uint64) << np.uint64(32)
            words[at : at + size] |= np.arange(at, at + size, dtype=np.uint64)
            at += size
            self._positions.append(item.positions)
            item.sources = np.empty(0, np.uint32)
        words.sort()
        per_row = max(1, self._source.nbytes // max(1, self.num_rows))
        self._groups = _Groups(self._file, max(1, _GROUP_BYTES // per_row))
        start = 0
        for block in self._source.blocks():
            first, last = np.searchsorted(words, np.array([start, start + block.num_rows], np.uint64) << np.uint64(32))
            own = words[first:last]
            if len(own):
                pairs = own & np.uint64(0xFFFFFFFF)
                self._groups.add(block, (own >> np.uint64(32)).astype(np.int64), pairs.astype(np.int64), start)
            start += block.num_rows

    def _equal(
        self, number: int, add: AddFile, target: TargetRows, rows: LiveRows, at: Numbers, sources: Numbers
    ) -> Pairs:
        """Leave out pairs whose keys have the same hash and differ."""
        mine = target.keys(add, rows.batch.take(pa.array(at)))
        theirs = keys_of(self.rows(sources), self._rule)
        same = np.ones(len(at), dtype=np.bool_)
        for name in mine.columns:
            same &= (mine[name] == theirs[name]).fill_null(False).to_numpy()
        return Pairs(number=number, rows=rows, at=at[same], sources=sources[same])

    def rows(self, sources: Numbers) -> pa.Table:
        """See ``MergeSource.rows``. A row is named by the number of its pair."""
        if not len(sources):
            return self._source.empty()
        return self._groups.take(sources)

    def mark(self, sources: Numbers) -> None:
        """See ``MergeSource.mark``."""
        if len(sources):
            self._matched[self._groups.take(sources, only=_ROW).column(0).to_numpy()] = True

    @property
    def num_matched(self) -> int:
        """See ``MergeSource.num_matched``."""
        return int(self._matched.sum())

    def unmatched(self) -> Iterator[pa.Table]:
        """See ``MergeSource.unmatched``."""
        start = 0
        for block in self._source.blocks():
            matched = self._matched[start : start + block.num_rows]
            start += block.num_rows
            if not matched.all():
                yield block.filter(pa.array(~matched))

    def close(self) -> None:
        """See ``MergeSource.close``."""
        self._release()
        self._file.close()

    def _release(self) -> None:
        """Return the memory of a step to the system."""
        self._groups.clear()
        return_memory()


class _Groups:
    """Source rows of pairs in a temporary file. A group has the rows of pairs that follow each other.

    Args:
        file: The file.
        rows: Pairs in a group.
    """

    def __init__(self, file: SpillFile, rows: int) -> None:
        self._file, self.rows = file, rows
        self._parts: dict[int, list[Part]] = {}
        self._held: OrderedDict[int, pa.Table] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, block: pa.Table, sources: Numbers, pairs: Numbers, first: int) -> None:
        """Write rows of a block.

        Args:
            block: The block.
            sources: The source rows to write.
            pairs: The pair of each.
            first: The first source row of the block.
        """
        order = np.argsort(pairs // self.rows, kind="stable")
        sources, pairs = sources[order], pairs[order]
        rows = block.take(pa.array(sources - first))
        rows = rows.append_column(_ROW, pa.array(sources.astype(np.uint32)))
        rows = rows.append_column(_PAIR, pa.array(pairs.astype(np.uint32)))
        groups, starts = np.unique(pairs // self.rows, return_index=True)
        for group, start, end in zip(groups.tolist(), starts, [*starts[1:], len(pairs)], strict=True):
            self._parts.setdefault(group, []).append(self._file.add(rows.slice(start, end - start)))

    def take(self, pairs: Numbers, only: str | None = None) -> pa.Table:
        """Return the rows of pairs, in their order; ``only`` one column if given."""
        groups = pairs // self.rows
        parts, places = [], []
        for group in np.unique(groups).tolist():
            own = np.flatnonzero(groups == group)
            table = self._group(group)
            table = table if only is None else table.select([only])
            parts.append(table.take(pa.array(pairs[own] - group * self.rows)))
            places.append(own)
        if len(parts) == 1:
            return parts[0]
        back = np.argsort(np.concatenate(places), kind="stable")
        return pa.concat_tables(parts).take(pa.array(back))

    def _group(self, group: int) -> pa.Table:
        with self._lock:
            if group in self._held:
                self._held.move_to_end(group)
                return self._held[group]
        rows = pa.concat_tables([self._file.read(part) for part in self._parts[group]])
        pairs = rows.column(_PAIR).to_numpy()
        rows = rows.take(pa.array(np.argsort(pairs))).combine_chunks()
        with self._lock:
            self._held[group] = rows
            while len(self._held) > _HELD_GROUPS * cores():
                self._held.popitem(last=False)
        return rows

    def clear(self) -> None:
        """Release the rows in memory."""
        self._held.clear()


def _find(
    target: TargetRows, hashes: KeyHashes, first: int, add: AddFile, hidden: npt.NDArray[np.uint64] | None
) -> _Found:
    """Find candidate pairs of a file. ``first`` is the source row that the hashes number 0."""
    positions, sources = [], []
    for live, batch in target.batches(add, hidden):
        theirs, rows = hashes_of(target.keys(add, batch))
        at, of = hashes.find(theirs)
        positions.append(_small(live[rows[at]]))
        sources.append(_small(of + first))
    return _joined(positions, sources)


def _pieces(positions: Numbers, most: int) -> Iterator[tuple[int, int]]:
    """Divide a file's pairs into runs of about ``most`` that do not divide the pairs of a row. Pure."""
    start = 0
    while start < len(positions):
        end = min(start + most, len(positions))
        end = int(np.searchsorted(positions, positions[end - 1], side="right"))
        yield start, end
        start = end


def _small(values: Numbers) -> Numbers:
    if len(values) and int(values.max()) >= _MOST:
        raise NotHere("a file of 2^32 rows")
    return values.astype(np.uint32)


def _joined(positions: Sequence[Numbers], sources: Sequence[Numbers]) -> _Found:
    if not positions:
        return _Found(np.empty(0, np.uint32), np.empty(0, np.uint32))
    return _Found(np.concatenate(positions), np.concatenate(sources))


def _both(before: _Found, after: _Found) -> _Found:
    """Join the pairs of two passes, by position."""
    if not len(before.positions):
        return after
    if not len(after.positions):
        return before
    whole = _joined([before.positions, after.positions], [before.sources, after.sources])
    order = np.argsort(whole.positions, kind="stable")
    return _Found(whole.positions[order], whole.sources[order])
