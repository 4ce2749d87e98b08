"""Hold the table of live files: a checkpoint's columns and the deltas of later commits, read on demand.

::

    checkpoint (footers) --core, on first use--+
                                               +--> core: path dv_id size modification_time pv:… row
    deltas of commits ------- newest wins -----+         |
                                                         +--> select: partition values, then statistics of survivors
    statistics, tags, … stay in the files <---- row -----+--> with_stats, adds
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from pydelta.errors import LogCorruptedError
from pydelta.log.checkpoint.read import PART_BITS, Checkpoint
from pydelta.log.checkpoint.stats_typed import Leaf
from pydelta.log.columns import (
    PV_PREFIX,
    TOMBSTONE_SCHEMA,
    adds_from_frame,
    compact,
    core_schema,
    has_escapes,
    removes_from_frame,
)
from pydelta.log.deltas import (
    DELTA_BIT,
    FileDelta,
    Mentions,
    added_files,
    delta_version,
    live_tombstones,
    removed_files,
)
from pydelta.log.pruning import PartitionSpec, prune_by_generated, prune_by_partition, prune_by_statistics
from pydelta.log.runs import RUN_LENGTH, AddRun, joined
from pydelta.predicate.expressions import Expr, columns, is_partition_only, split_conjuncts
from pydelta.protocol.actions import AddFile, RemoveFile
from pydelta.protocol.partitions import typed_frame
from pydelta.protocol.stats import parse_stats_columns, stat_column
from pydelta.protocol.types import StructType
from pydelta.storage.readers import read_all

__all__ = ["FileTable"]

_Array: TypeAlias = npt.NDArray[Any]
_Positions: TypeAlias = npt.NDArray[np.int64]
_SLICE_ROWS: Final = 65_536
MOST_IN_MEMORY: Final = 3_000_000
_TYPED_BYTES: Final = 8 * 1024 * 1024


_NO_PARTITIONS: Final = PartitionSpec(schema=StructType(()), partition_columns=(), physical_names=(), mode="none")


class FileTable:
    """The live files of one version. Immutable; columns are loaded on first use.

    Args:
        root: URI of the table.
        spec: Schema and partition columns.
        base: The underlying checkpoint, or None.
        deltas: Later changes, oldest first.
        fallback: Returns the same base from an older checkpoint. Called once if ``base`` is damaged.
        most_in_memory: A checkpoint with more rows is searched part by part instead of being loaded.
    """

    __slots__ = (
        "_base",
        "_core",
        "_deltas",
        "_escaped",
        "_fallback",
        "_lock",
        "_mentioned",
        "_most",
        "_replaced",
        "_seed",
        "_typed",
        "root",
        "spec",
    )

    def __init__(
        self,
        *,
        root: str,
        spec: PartitionSpec = _NO_PARTITIONS,
        base: Checkpoint | None = None,
        deltas: Sequence[FileDelta] = (),
        fallback: Callable[[LogCorruptedError], FileTable] | None = None,
        most_in_memory: int = MOST_IN_MEMORY,
    ) -> None:
        self.root = root
        self.spec = spec
        self._base = base
        self._deltas = tuple(deltas)
        self._fallback = fallback
        self._core: pl.DataFrame | None = None
        self._escaped: bool | None = None
        self._seed: tuple[pl.DataFrame, int, bool | None] | None = None
        self._replaced: FileTable | None = None
        self._mentioned: Mentions | None = None
        self._most = most_in_memory
        self._typed: dict[tuple[str, ...], pl.DataFrame] = {}
        self._lock = threading.RLock()

    @property
    def chain_length(self) -> int:
        """Number of deltas on top of the base."""
        return len(self._deltas)

    def layers(self) -> tuple[Checkpoint | None, tuple[FileDelta, ...]]:
        """Return the checkpoint that holds rows without a delta locator, and all deltas on top of it, oldest first."""
        if self._replaced is not None:
            base, deltas = self._replaced.layers()
            return base, (*deltas, *self._deltas)
        return self._base, self._deltas

    @property
    def is_materialized(self) -> bool:
        """Whether ``core`` is in memory."""
        return self._core is not None

    def apply(self, delta: FileDelta, spec: PartitionSpec) -> FileTable:
        """Return the table after one more commit. The cost grows with the chain, not with the number of files."""
        seed = (self._core, len(self._deltas), self._escaped) if self._core is not None else self._seed
        # This is the first commit of a table whose emptiness was read before.
        if spec.physical_names != self.spec.physical_names:
            seed = None
        after = FileTable(
            root=self.root,
            spec=spec,
            base=self._base,
            deltas=(*self._deltas, delta),
            fallback=self._fallback,
            most_in_memory=self._most,
        )
        after._seed, after._replaced = seed, self._replaced
        return after

    @property
    def core(self) -> pl.DataFrame:
        """One row per live file, with the columns of ``core_schema``.

        Raises:
            LogCorruptedError: The checkpoint is damaged, and no older one plus later commits can replace it.
        """
        with self._lock:
            if self._core is None:
                frame, applied, escaped = self._seed or (self._base_core(), 0, None)
                newer = self._deltas[applied:]
                if newer:
                    if escaped is None:
                        escaped = has_escapes(frame["path"])
                    added = added_files(newer)
                    kept = Mentions(newer, self.root).without(frame, escaped=escaped)
                    frame = pl.concat([kept, added.select(frame.columns)])
                    escaped = escaped or has_escapes(added["path"])
                self._core, self._escaped, self._seed = frame, escaped, None
            return self._core

    def _base_core(self) -> pl.DataFrame:
        if self._replaced is not None:
            return self._replaced.core
        if self._base is None:
            return pl.DataFrame(schema=core_schema(self.spec.physical_names))
        try:
            return self._base.core(self.spec.physical_names)
        except LogCorruptedError as error:
            if self._fallback is None:
                raise
            self._replaced = self._fallback(error)
            return self._replaced.core

    def tombstones(self) -> pl.DataFrame:
        """Return removed files still in the log: ``path dv_id deletion_timestamp size row``. Times are epoch ms."""
        if self._replaced is not None:
            base = self._replaced.tombstones()
        elif self._base is None:
            base = pl.DataFrame(schema=TOMBSTONE_SCHEMA)
        else:
            base = self._base.tombstones()
        return live_tombstones(base, self._deltas, self.root)

    # -- in parts -------------------------------------------------------------------------------------------------

    @property
    def in_parts(self) -> bool:
        """Whether there are too many files to load and they are not in memory, so that ``core`` should be avoided."""
        if self._core is not None or self._seed is not None or self._replaced is not None:
            return False
        return self._base is not None and self._base.num_rows > self._most

    def none(self) -> pl.DataFrame:
        """Return ``core`` without rows."""
        return pl.DataFrame(schema=core_schema(self.spec.physical_names))

    def settle(self) -> None:
        """Read the data behind ``core``, so that a damaged checkpoint is already replaced by an older one afterwards.

        Raises:
            LogCorruptedError: As for ``core``.
        """
        if not self.in_parts:
            _ = self.core
            return
        assert self._base is not None
        try:
            read_all(self._base.facts, range(len(self._base.parts)))
        except LogCorruptedError:
            _ = self.core  # This uses the fallback or raises the error again.

    def _mentions(self) -> Mentions:
        if self._mentioned is None:
            self._mentioned = Mentions(self._deltas, self.root)
        return self._mentioned

    def live_rows(self, number: int) -> _Positions | None:
        """Return the rows of a checkpoint part that are live files, ascending. None means that all files are live."""
        assert self._base is not None
        if not self._mentions().may_be_among(self._base.facts(number).hashes):
            return None
        frames = [self._mentions().without(frame)["row"] for frame in self._base.adds_in(number, ())]
        rows = pl.concat(frames).to_numpy() if frames else np.empty(0, dtype=np.uint64)
        return (rows & np.uint64((1 << PART_BITS) - 1)).astype(np.int64)

    def by_part(self) -> tuple[_Positions, _Positions, npt.NDArray[np.float64]]:
        """Return for each checkpoint part the number of its files, how many are live, and the bytes of those."""
        base, _ = self.layers()
        assert base is not None
        if self.in_parts:
            return self._by_facts(base)
        adds, sizes = base.adds_by_part(self.spec.physical_names)
        rows = self.core["row"].to_numpy()
        new = np.count_nonzero(rows & np.uint64(DELTA_BIT))
        if self.core.height - new == adds.sum():  # All files of the checkpoint are live.
            return adds, adds, sizes
        of_base = (rows & np.uint64(DELTA_BIT)) == 0
        at = (rows[of_base] >> np.uint64(PART_BITS)).astype(np.int64)
        weights = self.core["size"].to_numpy()[of_base]
        return (
            adds,
            np.bincount(at, minlength=len(base.parts)).astype(np.int64),
            np.bincount(at, weights=weights, minlength=len(base.parts)).astype(np.float64),
        )

    def _by_facts(self, base: Checkpoint) -> tuple[_Positions, _Positions, npt.NDArray[np.float64]]:
        facts = [base.facts(number) for number in range(len(base.parts))]
        adds = np.array([part.adds for part in facts], dtype=np.int64)
        live, sizes = adds.copy(), np.array([part.size for part in facts], dtype=np.float64)
        for number, part in enumerate(facts):
            if self._mentions().may_be_among(part.hashes):
                left = [self._mentions().without(frame)["size"] for frame in base.adds_in(number, ())]
                live[number], sizes[number] = sum(map(len, left)), sum(int(column.sum()) for column in left)
        return adds, live, sizes

    def new_rows(self) -> pl.DataFrame:
        """Return the locators, ascending, of live files that commits after the checkpoint added."""
        rows = (self._added() if self.in_parts else self.core)["row"]
        return pl.DataFrame({"row": rows.filter((rows & DELTA_BIT) != 0).sort()}, schema={"row": pl.UInt64})

    def partition_texts(self) -> pl.DataFrame:
        """Return the distinct combinations of partition values of live files, as text."""
        names = self.spec.keys
        if not self.in_parts:
            return self.core.select(names).unique()
        found = pl.DataFrame(schema=dict.fromkeys(names, pl.String))
        for frame in self._live_batches():
            found = pl.concat([found, frame.select(names)]).unique()
        return found

    def _live_batches(self) -> Iterator[pl.DataFrame]:
        """Yield ``core`` part by part without caching it."""
        assert self._base is not None
        for frame in self._base.core_batches(self.spec.physical_names):
            yield self._mentions().without(frame)
        yield self._added()

    def _added(self) -> pl.DataFrame:
        """Return the live files that commits after the checkpoint added, as rows of ``core``."""
        schema = core_schema(self.spec.physical_names)
        return added_files(self._deltas).select(list(schema)) if self._deltas else pl.DataFrame(schema=schema)

    def path_batches(self) -> Iterator[pl.DataFrame]:
        """Yield ``path`` and ``dv_id`` of the live files, part by part, without loading more than a part.

        A file is yielded twice if the checkpoint turns out to be damaged half-way and an older one replaces it.

        Raises:
            LogCorruptedError: As for ``core``.
        """
        columns = ["path", "dv_id"]
        base = self._base
        if base is None or self._core is not None or self._seed is not None or self._replaced is not None:
            yield from self.core.select(columns).iter_slices(_SLICE_ROWS)
            return
        try:
            for frame in base.core_batches(()):
                yield self._mentions().without(frame.select(columns))
        except LogCorruptedError:
            # This uses the fallback or raises the error again.
            yield from self.core.select(columns).iter_slices(_SLICE_ROWS)
            return
        if self._deltas:
            yield self._added().select(columns)

    def tombstone_batches(self) -> Iterator[pl.DataFrame]:
        """Yield ``tombstones`` part by part, like ``path_batches``."""
        if self._base is None or self._replaced is not None:
            yield self.tombstones()
            return
        for frame in self._base.tombstone_batches():
            yield self._mentions().without(frame)
        if self._deltas:
            yield removed_files(self._deltas).select(list(TOMBSTONE_SCHEMA))

    @property
    def num_files(self) -> int:
        """Number of live files."""
        return self._counted()[0] if self.in_parts else self.core.height

    @property
    def size_bytes(self) -> int:
        """Sum of the live files' sizes."""
        return self._counted()[1] if self.in_parts else int(self.core["size"].sum())

    def _counted(self) -> tuple[int, int]:
        self.settle()
        if not self.in_parts:
            return self.core.height, int(self.core["size"].sum())
        _, live, sizes = self.by_part()
        new = self._added()["size"]
        return int(live.sum()) + len(new), sum(map(int, sizes)) + int(new.sum())

    def has_live_vectors(self) -> bool:
        """Return whether a live file has a deletion vector."""
        core = self.core
        return core["dv_id"].null_count() < core.height

    # -- by row ---------------------------------------------------------------------------------------------------

    def with_stats(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Add ``stats`` (JSON text, null if a file has none) to rows. Only their row groups are read.

        Args:
            frame: Rows of ``core``. Only the column ``row`` is used.
        """
        return frame.with_columns(stats=self._stats(frame["row"]))

    def _stats(self, locators: pl.Series) -> pl.Series:
        rows = locators.to_numpy()
        from_delta = (rows & np.uint64(DELTA_BIT)) != 0
        result = pl.repeat(None, len(rows), dtype=pl.String, eager=True)
        below = np.flatnonzero(~from_delta)
        if len(below):
            if self._replaced is not None:
                text = self._replaced._stats(pl.Series(rows[below], dtype=pl.UInt64))
            else:
                assert self._base is not None
                text = self._base.stats(rows[below])
            result = text if len(below) == len(rows) else result.scatter(below, text)
        for delta, at, index in self._by_delta(rows, np.flatnonzero(from_delta)):
            if isinstance(delta, FileTable):
                result = result.scatter(at, delta._stats(pl.Series(rows[at], dtype=pl.UInt64)))
            else:
                result = result.scatter(at, delta.adds["stats"][index])
        return result.alias("stats")

    def stats_columns(self, frame: pl.DataFrame, leaves: Sequence[Leaf]) -> pl.DataFrame:
        """Return typed statistics of rows, in order, for some leaf columns. See ``parse_stats_columns``.

        If the rows are all of ``core``, the result is cached, up to a few megabytes, for the next query.

        Args:
            frame: Rows of ``core``.
            leaves: Physical paths and types.
        """
        whole = self._core is not None and frame.height == self._core.height and frame["row"].equals(self._core["row"])
        if not whole or not leaves:
            return self._stats_columns(frame, leaves)
        with self._lock:
            missing = [leaf for leaf in leaves if tuple(leaf[0]) not in self._typed]
            if missing:
                read = self._stats_columns(frame, missing)
                parts = {tuple(path): self._of_leaf(read, path) for path, _ in missing}
                if sum(part.estimated_size() for part in (*self._typed.values(), *parts.values())) > _TYPED_BYTES:
                    return read if len(missing) == len(leaves) else self._stats_columns(frame, leaves)
                self._typed |= parts
            first, *others = (self._typed[tuple(path)] for path, _ in leaves)
            return first.hstack([column for other in others for column in other.get_columns()[1:]])

    @staticmethod
    def _of_leaf(stats: pl.DataFrame, path: Sequence[str]) -> pl.DataFrame:
        names = [stat_column(kind, path) for kind in ("nullCount", "min", "max")]
        return stats.select("numRecords", *(name for name in names if name in stats.columns))

    def _stats_columns(self, frame: pl.DataFrame, leaves: Sequence[Leaf]) -> pl.DataFrame:
        rows = frame["row"].to_numpy()
        below = np.flatnonzero((rows & np.uint64(DELTA_BIT)) == 0)
        base, _ = self.layers()
        if base is None or not len(below):
            return parse_stats_columns(self._stats(frame["row"]), leaves)
        typed = base.stats_columns(rows[below], leaves)
        if len(below) == len(rows):
            return typed
        above = np.flatnonzero((rows & np.uint64(DELTA_BIT)) != 0)
        parsed = parse_stats_columns(self._stats(frame["row"][above]), leaves)
        order = np.argsort(np.concatenate([below, above]))
        return pl.concat([typed, parsed], how="vertical_relaxed")[order]

    def adds(self, frame: pl.DataFrame) -> list[AddFile]:
        """Return complete ``add`` actions for a few rows, in order, with statistics."""
        if frame.is_empty():
            return []
        rows = frame["row"].to_numpy()
        from_delta = (rows & np.uint64(DELTA_BIT)) != 0
        found: dict[int, AddFile] = {}
        below = np.flatnonzero(~from_delta)
        if len(below):
            if self._replaced is not None:
                parts = self._replaced.adds(frame[below])
            else:
                assert self._base is not None
                stats = self._base.stats(rows[below])
                parts = [add.replace(stats=text) for add, text in zip(self._base.adds(rows[below]), stats, strict=True)]
            found.update(zip(below.tolist(), parts, strict=True))
        for delta, at, index in self._by_delta(rows, np.flatnonzero(from_delta)):
            if isinstance(delta, FileTable):
                parts = delta.adds(frame[at])
            else:
                parts = adds_from_frame(delta.adds[index], self.spec.physical_names)
            found.update(zip(at.tolist(), parts, strict=True))
        return [found[number] for number in range(len(rows))]

    def add_actions(self, frame: pl.DataFrame) -> Sequence[AddFile]:
        """Return complete ``add`` actions for any number of rows, in any order. Many plain ones form a run."""
        if frame.height < RUN_LENGTH or self._replaced is not None:
            return self.adds(frame)
        rows = frame["row"].to_numpy()
        from_delta = (rows & np.uint64(DELTA_BIT)) != 0
        columns = [
            "path",
            "size",
            "modification_time",
            *self.spec.keys,
            "stats",
        ]
        recent = self.recent(frame.filter(pl.Series(from_delta)))
        plain = [recent.filter(pl.col("rest").is_null()).select(columns)]
        others = adds_from_frame(recent.filter(pl.col("rest").is_not_null()), self.spec.physical_names)
        below = frame.filter(pl.Series(~from_delta))
        if below.height:
            assert self._base is not None
            is_plain = pl.Series(self._base.is_plain(rows[~from_delta]))
            others += self.adds(below.filter(~is_plain))
            plain.append(self.with_stats(below.filter(is_plain)).select(columns))
        return joined(others, AddRun(pl.concat(plain), self.spec.physical_names, data_change=True))

    def _by_delta(self, rows: _Array, at: _Array) -> list[tuple[FileDelta | FileTable, _Array, _Array]]:
        """Find the delta (or replaced base) that holds each of the rows at these positions, and their index in it."""
        if not len(at):
            return []
        versions = (rows[at] & np.uint64(DELTA_BIT - 1)) >> np.uint64(32)
        index = (rows[at] & np.uint64(0xFFFF_FFFF)).astype(np.int64)
        own = {delta.version: delta for delta in self._deltas}
        found: list[tuple[FileDelta | FileTable, _Array, _Array]] = []
        for version in np.unique(versions):
            chosen = versions == version
            holder: FileDelta | FileTable | None = own.get(int(version), self._replaced)
            assert holder is not None, f"no delta {delta_version(int(rows[at][0]))}"
            found.append((holder, at[chosen], index[chosen]))
        return found

    def recent(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of ``core`` that come from deltas, with ``stats`` and ``rest``, in no particular order."""
        rows = frame["row"].to_numpy()
        schema = core_schema(self.spec.physical_names) | {"stats": pl.String(), "rest": pl.String()}
        parts: list[pl.DataFrame] = []
        for delta, at, index in self._by_delta(rows, np.flatnonzero((rows & np.uint64(DELTA_BIT)) != 0)):
            found = delta.recent(frame[at]) if isinstance(delta, FileTable) else delta.adds[index]
            parts.append(found.select(list(schema)))
        return pl.concat(parts) if parts else pl.DataFrame(schema=schema)

    def remove_actions(self, frame: pl.DataFrame) -> list[RemoveFile]:
        """Return the removes for rows of ``tombstones()`` that come from deltas, in no particular order."""
        rows = frame["row"].to_numpy()
        found: list[RemoveFile] = []
        for delta, at, index in self._by_delta(rows, np.flatnonzero((rows & np.uint64(DELTA_BIT)) != 0)):
            if isinstance(delta, FileTable):
                found += delta.remove_actions(frame[at])
            else:
                found += removes_from_frame(delta.removes["rest"][index])
        return found

    def remove_texts(self, frame: pl.DataFrame) -> pl.Series:
        """Return the JSON of the actions that ``remove_actions`` returns, in no particular order."""
        rows = frame["row"].to_numpy()
        parts = [pl.Series("rest", [], dtype=pl.String)]
        for delta, at, index in self._by_delta(rows, np.flatnonzero((rows & np.uint64(DELTA_BIT)) != 0)):
            parts.append(
                delta.remove_texts(frame[at]) if isinstance(delta, FileTable) else delta.removes["rest"][index]
            )
        return pl.concat(parts)

    # -- pruning --------------------------------------------------------------------------------------------------

    def partition_frame(self, frame: pl.DataFrame, *, time_zone: str = "UTC") -> pl.DataFrame:
        """Return typed partition values of the given rows: one column per partition column, by logical name."""
        renamed = frame.select(
            pl.col(PV_PREFIX + physical).alias(logical)
            for physical, logical in zip(self.spec.physical_names, self.spec.partition_columns, strict=True)
        )
        return typed_frame(renamed, self.spec.partition_schema(), time_zone=time_zone)

    def select(
        self, partition_filter: Expr | None = None, data_filters: Sequence[Expr] = (), *, time_zone: str = "UTC"
    ) -> pl.DataFrame:
        """Return rows of ``core`` for files that may hold a row for which all conditions are true.

        Conditions on partition columns are decided by partition values, the others by statistics of the remaining
        files. A condition that cannot be evaluated keeps every file.

        Args:
            partition_filter: Condition on partition columns, by logical name; None for none.
            data_filters: Conditions on any columns. All must hold.
            time_zone: Zone of partition timestamps without one.
        """
        conjuncts = [part for expr in (partition_filter, *data_filters) if expr is not None
                     for part in split_conjuncts(expr)]  # fmt: skip
        on_partitions = [
            expr for expr in conjuncts if columns(expr) and is_partition_only(expr, self.spec.partition_columns)
        ]
        on_data = [expr for expr in conjuncts if expr not in on_partitions]
        if not conjuncts:
            return self.core
        pruned = functools.partial(self._pruned, on_partitions=on_partitions, on_data=on_data, time_zone=time_zone)
        return self.narrowed(pruned)

    def narrowed(self, narrow: Callable[[pl.DataFrame], pl.DataFrame]) -> pl.DataFrame:
        """Apply a filter to ``core``. If the log is in parts, only a few parts are in memory at once.

        Args:
            narrow: Removes some of the given rows based on their contents. Called by several threads.
        """
        if self.in_parts:
            try:
                return self._chosen(narrow)
            except LogCorruptedError:
                pass  # This uses the fallback below or raises the error again.
        return narrow(self.core)

    def _chosen(self, pruned: Callable[[pl.DataFrame], pl.DataFrame]) -> pl.DataFrame:
        """Collect the live files that pruning keeps, part by part, without caching the rest."""
        base, names = self._base, self.spec.physical_names
        assert base is not None
        mentions = self._mentions()

        def of_part(number: int) -> pl.DataFrame:
            found = [compact(mentions.without(pruned(frame))) for frame in base.adds_in(number, names)]
            return pl.concat([empty, *found])

        empty = pl.DataFrame(schema=core_schema(names))
        return pl.concat([empty, *read_all(of_part, range(len(base.parts))), pruned(self._added())])

    def _pruned(
        self, frame: pl.DataFrame, on_partitions: Sequence[Expr], on_data: Sequence[Expr], *, time_zone: str
    ) -> pl.DataFrame:
        for expr in on_partitions:
            frame = prune_by_partition(self, frame, expr, time_zone=time_zone)
        frame = prune_by_generated(self, frame, on_data, time_zone=time_zone)
        if on_data and not frame.is_empty():
            frame = prune_by_statistics(self, frame, on_data, time_zone=time_zone)
        return frame
