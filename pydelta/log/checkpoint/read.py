"""Read the actions and columns of a complete checkpoint: classic, multi-part, or V2 with or without sidecars.

::

    CheckpointFiles --> parts and sidecars (footers only) --> protocol, metadata, txn, domains   eagerly
                                                          --> core columns of the adds           on first use, cached
                                                          --> statistics, tombstones             on demand, by row
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from pydelta.errors import LogCorruptedError
from pydelta.log.checkpoint.parquet_rows import ParquetRows, plain, reading, struct_fields
from pydelta.log.checkpoint.stats_text import struct_stats_to_json
from pydelta.log.checkpoint.stats_typed import Leaf, read_typed_stats
from pydelta.log.columns import (
    ADD_FIELDS,
    REMOVE_FIELDS,
    TOMBSTONE_SCHEMA,
    add_frame,
    core_schema,
    path_hashes,
    remove_frame,
)
from pydelta.log.segment import CheckpointFiles
from pydelta.protocol.actions import (
    Action,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    Sidecar,
    decode_action,
    decode_commit,
)  # fmt: skip
from pydelta.protocol.malformed import MALFORMED_JSON
from pydelta.protocol.paths import SIDECAR_DIR
from pydelta.protocol.stats import parse_stats_columns
from pydelta.storage.interface import Store
from pydelta.storage.whole import read_listed

__all__ = ["PART_BITS", "Checkpoint", "PartFacts", "read_checkpoint", "sidecar_name"]

_STATE_KINDS: Final = ("protocol", "metaData", "txn", "domainMetadata", "sidecar")
_ADD_REST: Final = ("tags", "deletionVector", "baseRowId", "defaultRowCommitVersion", "clusteringProvider")
_KEPT_BYTES: Final = 256 * 1024 * 1024
"""If the sidecars together are larger, they are read by column and none of their bytes stay in memory."""
PART_BITS: Final = 40
"""Bits of a row locator that hold the row within its part. The higher bits hold the part."""


@dataclass(frozen=True, slots=True)
class PartFacts:
    """Facts about the adds of a part that do not need their columns in memory.

    Args:
        adds: Number of adds.
        size: Sum of the sizes of their files, in bytes.
        hashes: Hashes of their paths, ascending, to test whether a path is among them. Valid only in this process.
    """

    adds: int
    size: int
    hashes: npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class _Memory:
    """Columns that a checkpoint has in memory, to be reused by a later one that shares sidecars with it.

    Args:
        parts: Path and size of a sidecar -> its part number.
        cores: Partition columns -> the core columns of the adds.
        tombstones: The columns of the removes, if they are in memory.
    """

    parts: dict[tuple[str, int], int]
    cores: dict[tuple[str, ...], pl.DataFrame]
    tombstones: pl.DataFrame | None

    def rows_of(self, frame: pl.DataFrame | None, part: ParquetRows, number: int) -> pl.DataFrame | None:
        """Return the rows of a sidecar in a frame, renumbered as part ``number``; None if the frame lacks them."""
        old = self.parts.get((part.path, part.size))
        if frame is None or old is None:
            return None
        row = frame["row"]  # The column is ascending because parts are read in order.
        low, high = (int(row.search_sorted(bound << PART_BITS)) for bound in (old, old + 1))
        found = frame.slice(low, high - low)
        return found.with_columns(found["row"] - (old << PART_BITS) + (number << PART_BITS))


class Checkpoint:
    """The state at a checkpoint's version.

    Args:
        version: Its version.
        parts: The Parquet files that can hold file actions.
        state: Protocol, metadata, set-transactions and domain metadata.
        inline: File actions of a JSON checkpoint.
        sidecars: Sidecars of a V2 checkpoint. The opened ones are the last parts, in this order.
        name: Path of its first file, for messages.
    """

    def __init__(
        self,
        *,
        version: int,
        name: str,
        parts: Sequence[ParquetRows],
        state: Sequence[Action],
        inline: Sequence[AddFile | RemoveFile] = (),
        sidecars: Sequence[Sidecar] = (),
    ) -> None:
        self._known: _Memory | None = None
        self.version = version
        self.name = name
        self.parts = tuple(parts)
        self.state = tuple(state)
        self.inline = tuple(inline)
        self.sidecars = tuple(sidecars)
        self._lock = threading.Lock()
        self._cores: dict[tuple[str, ...], pl.DataFrame] = {}
        self._of_parts: tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]] | None = None
        self._tombstones: pl.DataFrame | None = None
        self._facts: dict[tuple[str, int], PartFacts] = {}

    @property
    def num_rows(self) -> int:
        """Rows of all kinds in all parts, according to their footers."""
        return sum(part.num_rows for part in self.parts)

    def reuse(self, known: Checkpoint) -> None:
        """Reuse columns of shared sidecars that an older checkpoint has in memory."""
        self._facts |= {
            (part.path, part.size): known._facts[part.path, part.size]
            for part in self.parts
            if part.path.startswith(f"{SIDECAR_DIR}/") and (part.path, part.size) in known._facts
        }
        memory = known._memory()
        if memory is not None and any((part.path, part.size) in memory.parts for part in self.parts):
            self._known = memory

    def _forget(self) -> None:
        """Release the older checkpoint's columns once this one has loaded all that they could provide."""
        if self._cores and self._tombstones is not None:
            self._known = None

    def _memory(self) -> _Memory | None:
        """Return sidecar columns in memory, or the older checkpoint's if this one has loaded none."""
        if not self._cores:
            return self._known
        parts = {
            (part.path, part.size): number
            for number, part in enumerate(self.parts)
            if part.path.startswith(f"{SIDECAR_DIR}/")
        }
        return _Memory(parts, self._cores, self._tombstones) if parts else None

    @property
    def sidecar_names(self) -> tuple[str, ...]:
        """Names of its sidecar files in ``_sidecars``."""
        return tuple(map(sidecar_name, self.sidecars))

    def core(self, partition_names: Sequence[str]) -> pl.DataFrame:
        """Return the core columns of all adds in the Parquet files. They are cached for one set of partition columns.

        Raises:
            LogCorruptedError: A file is damaged.
        """
        key = tuple(partition_names)
        with self._lock:
            found = self._cores.get(key)
            if found is None:
                frames = list(self.core_batches(partition_names))
                found = pl.concat(frames) if frames else pl.DataFrame(schema=core_schema(partition_names))
                self._cores = {key: found}
                self._forget()
            return found

    def adds_by_part(self, partition_names: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the number of adds in each part and the sum of their sizes. Computed once."""
        found = self._of_parts
        if found is None:
            core, count = self.core(partition_names), len(self.parts)
            at = (core["row"].to_numpy() >> np.uint64(PART_BITS)).astype(np.int64)
            sizes = np.bincount(at, weights=core["size"].to_numpy(), minlength=count).astype(np.float64)
            found = self._of_parts = np.bincount(at, minlength=count).astype(np.int64), sizes
        return found

    def facts(self, number: int) -> PartFacts:
        """Return the facts about a part's adds. They are read once and shared with later checkpoints."""
        part = self.parts[number]
        found = self._facts.get((part.path, part.size))
        if found is None:
            adds, size, hashes = 0, 0, [np.empty(0, dtype=np.uint64)]
            for frame in self.adds_in(number, ()):
                adds, size = adds + frame.height, size + int(frame["size"].sum())
                hashes.append(path_hashes(frame["path"]))
            found = self._facts[part.path, part.size] = PartFacts(adds, size, np.sort(np.concatenate(hashes)))
        return found

    def adds_in(self, number: int, partition_names: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Iterate over ``core`` of one part in batches that are not cached."""
        return _adds_in(self.parts[number], number, partition_names)

    def core_batches(self, partition_names: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Iterate over ``core`` in batches that are not cached. Sidecars already in memory are not read again."""
        known = self._known
        cores = known.cores.get(tuple(partition_names)) if known is not None else None
        for number, part in enumerate(self.parts):
            found = known.rows_of(cores, part, number) if known is not None else None
            yield from _adds_in(part, number, partition_names) if found is None else (found,)

    def tombstone_batches(self) -> Iterator[pl.DataFrame]:
        """Iterate over ``tombstones`` in batches that are not cached, like ``core_batches``."""
        known = self._known
        for number, part in enumerate(self.parts):
            found = known.rows_of(known.tombstones, part, number) if known is not None else None
            yield from _removes_in(part, number) if found is None else (found,)

    def tombstones(self) -> pl.DataFrame:
        """Return the columns ``TOMBSTONE_SCHEMA`` of all removes in the Parquet files."""
        with self._lock:
            if self._tombstones is None:
                frames = list(self.tombstone_batches())
                self._tombstones = pl.concat(frames) if frames else pl.DataFrame(schema=TOMBSTONE_SCHEMA)
                self._forget()
            return self._tombstones

    def stats(self, locators: npt.NDArray[np.uint64]) -> pl.Series:
        """Read the statistics of given rows, in order, as JSON text: from ``stats``, otherwise ``stats_parsed``."""
        result: list[pl.Series] = []
        order: list[npt.NDArray[np.int64]] = []
        for part, rows, positions in self._by_part(locators):
            with reading(part.path):
                text = _part_stats(part, rows)
            result.append(text)
            order.append(positions)
        if not result:
            return pl.Series("stats", [], dtype=pl.String)
        position = np.concatenate(order)
        return pl.concat(result)[np.argsort(position)].alias("stats")

    def stats_columns(self, locators: npt.NDArray[np.uint64], leaves: Sequence[Leaf]) -> pl.DataFrame:
        """Return typed statistics of given rows, in their order, with the columns of ``parse_stats_columns``.

        They are read from ``stats_parsed`` if it has the columns. Text is read only for the other rows.
        """
        frames: list[pl.DataFrame] = []
        order: list[npt.NDArray[np.int64]] = []
        for part, rows, positions in self._by_part(locators):
            with reading(part.path):
                typed = read_typed_stats(part, rows, leaves)
            if typed is None:
                frames.append(parse_stats_columns(_part_stats(part, rows), leaves))
                order.append(positions)
                continue
            unknown = typed["numRecords"].is_null().to_numpy()
            frames.append(typed.filter(~unknown))
            order.append(positions[~unknown])
            if unknown.any():
                frames.append(parse_stats_columns(_part_stats(part, rows[unknown]), leaves))
                order.append(positions[unknown])
        if not frames:
            return parse_stats_columns(pl.Series("stats", [], dtype=pl.String), leaves)
        position = np.concatenate(order)
        return pl.concat(frames, how="vertical_relaxed")[np.argsort(position)]

    def adds(self, locators: npt.NDArray[np.uint64]) -> list[AddFile]:
        """Read complete ``add`` actions of given rows, in their order, without statistics."""
        found: list[tuple[int, AddFile]] = []
        for part, rows, positions in self._by_part(locators):
            present = [name for name in _ADD_REST if part.has("add", name)]
            fields = ["path", "partitionValues", "size", "modificationTime", *present]
            for at, structs in part.take("add", fields, rows):
                with reading(part.path):
                    found += zip(positions[at].tolist(), map(_add, structs.to_pylist()), strict=True)
        found.sort(key=lambda pair: pair[0])
        return [add for _, add in found]

    def is_plain(self, locators: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Return for each row, in order, whether its add has no fields besides core columns and statistics."""
        result = np.ones(len(locators), dtype=bool)
        for part, rows, positions in self._by_part(locators):
            present = [name for name in _ADD_REST if part.has("add", name)]
            for at, structs in part.take("add", present, rows) if present else ():
                for child in struct_fields(structs).values():
                    if child.null_count < len(child):
                        result[positions[at]] &= np.asarray(child.is_null())
        return result

    def integers(self, locators: npt.NDArray[np.uint64], fields: Sequence[str]) -> pl.DataFrame:
        """Read integer fields of the ``add`` of given rows, in their order. A missing value is null."""
        frames: list[pl.DataFrame] = []
        order: list[npt.NDArray[np.int64]] = []
        schema = dict.fromkeys(fields, pl.Int64())
        for part, rows, positions in self._by_part(locators):
            present = [name for name in fields if part.has("add", name)]
            pieces = part.take("add", present, rows) if present else iter([(np.arange(len(rows)), None)])
            for at, structs in pieces:
                children = {} if structs is None else struct_fields(structs)
                nothing = pl.repeat(None, len(at), dtype=pl.Int64, eager=True)
                columns = [
                    pl.Series(name, children[name].cast(pa.int64())) if name in children else nothing.alias(name)
                    for name in fields
                ]
                frames.append(pl.DataFrame(columns, schema=schema))
                order.append(positions[at])
        if not frames:
            return pl.DataFrame(schema=schema)
        return pl.concat(frames)[np.argsort(np.concatenate(order))]

    def rows_of(self, part: int, locators: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Return which of the ascending locators lie in a part, as row indexes in it."""
        low, high = np.searchsorted(locators, [np.uint64(part << PART_BITS), np.uint64((part + 1) << PART_BITS)])
        return (locators[low:high] - np.uint64(part << PART_BITS)).astype(np.int64)

    def _by_part(
        self, locators: npt.NDArray[np.uint64]
    ) -> Iterator[tuple[ParquetRows, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Yield each part with rows to read, the ascending rows in it, and their positions in ``locators``."""
        order = np.argsort(locators, kind="stable")
        ordered = locators[order]
        numbers = (ordered >> np.uint64(PART_BITS)).astype(np.int64)
        rows = (ordered & np.uint64((1 << PART_BITS) - 1)).astype(np.int64)
        for number in np.unique(numbers):
            low, high = np.searchsorted(numbers, [number, number + 1])
            yield self.parts[int(number)], rows[low:high], order[low:high]


def _adds_in(part: ParquetRows, number: int, partition_names: Sequence[str]) -> Iterator[pl.DataFrame]:
    fields = [name for name in ADD_FIELDS if partition_names or name != "partitionValues"]
    for rows, structs in part.structs("add", fields):
        with reading(part.path):
            frame = add_frame(structs, _locators(number, rows), partition_names)
        yield frame


def _removes_in(part: ParquetRows, number: int) -> Iterator[pl.DataFrame]:
    for rows, structs in part.structs("remove", REMOVE_FIELDS):
        with reading(part.path):
            frame = remove_frame(structs, _locators(number, rows))
        yield frame


def _add(value: dict[str, Any]) -> AddFile:
    body = plain(value) | {"dataChange": True}
    body.setdefault("partitionValues", {})
    return msgspec.convert(body, AddFile, strict=False)


def _locators(part: int, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    return rows.astype(np.uint64) | np.uint64(part << PART_BITS)


def _part_stats(part: ParquetRows, rows: npt.NDArray[np.int64]) -> pl.Series:
    text = pl.repeat(None, len(rows), dtype=pl.String, eager=True)
    if part.has("add", "stats"):
        pieces: list[Any] = []
        for _, structs in part.take("add", ["stats"], rows):
            pieces.append(struct_fields(structs)["stats"])
        series = pl.from_arrow(pa.chunked_array(pieces, type=pieces[0].type)) if pieces else text
        assert isinstance(series, pl.Series)
        text = series.cast(pl.String)
    absent = np.flatnonzero(text.is_null().to_numpy()).astype(np.int64)
    if len(absent) and part.has("add", "stats_parsed"):
        parsed = [
            struct_stats_to_json(struct_fields(structs)["stats_parsed"])
            for _, structs in part.take("add", ["stats_parsed"], rows[absent])
        ]
        if parsed:
            text = text.scatter(absent, pl.concat(parsed))
    return text


def read_checkpoint(
    store: Store,
    files: CheckpointFiles,
    *,
    unopened: Collection[str] | None = frozenset(),
    known: Checkpoint | None = None,
) -> Checkpoint:
    """Open a checkpoint and read its actions that are not file actions.

    Args:
        store: The table's store.
        files: Its main file or its parts.
        unopened: Names of sidecars to leave closed; their rows are not part of the result. None for all.
        known: An older checkpoint. Its open sidecars are reused; see ``Checkpoint.reuse``.

    Raises:
        LogCorruptedError: A file (or sidecar) is missing, truncated or not a checkpoint.

    Protocol: "Checkpoints", "V2 Spec", "Sidecar Files".
    """
    parts: list[ParquetRows] = []
    state: list[Action] = []
    inline: list[AddFile | RemoveFile] = []
    sidecars: list[Sidecar] = []
    for info in files.files:
        if info.path.endswith(".json"):
            actions: Sequence[Action] = decode_commit(read_listed(store, info), source=info.path)
        else:
            part = ParquetRows(store, info.path, info.size)
            parts.append(part)
            actions = _state_actions(part)
        for action in actions:
            if isinstance(action, Sidecar):
                sidecars.append(action)
            elif isinstance(action, (AddFile, RemoveFile)):
                inline.append(action)
            elif isinstance(action, (Protocol, Metadata, SetTransaction, DomainMetadata)):
                state.append(action)
    opened = {(part.path, part.size): part for part in known.parts} if known is not None else {}
    few = sum(sidecar.size_in_bytes for sidecar in sidecars) <= _KEPT_BYTES
    for sidecar in sidecars:
        name = sidecar_name(sidecar)
        if unopened is not None and name not in unopened:
            # Sidecar names are unique, so path and size identify one.
            file = (f"{SIDECAR_DIR}/{name}", sidecar.size_in_bytes)
            parts.append(opened.get(file) or ParquetRows(store, *file, kept=few))
    found = Checkpoint(
        version=files.version, name=files.name, parts=parts, state=state, inline=inline, sidecars=sidecars
    )
    if known is not None:
        found.reuse(known)
    return found


def sidecar_name(sidecar: Sidecar) -> str:
    """Return the file name of a sidecar in ``_sidecars``."""
    return unquote(sidecar.path).rsplit("/", 1)[-1]


def _state_actions(part: ParquetRows) -> list[Action]:
    actions: list[Action] = []
    for kind in _STATE_KINDS:
        for body in part.objects(kind):
            try:
                action = decode_action({kind: body})
            except (*MALFORMED_JSON, TypeError) as error:
                raise LogCorruptedError(
                    f"{part.path} holds a {kind} action that is not valid: {error}",
                    hint="Restore the checkpoint from a backup of _delta_log.",
                ) from error
            if action is not None:
                actions.append(action)
    return actions
