"""Convert the actions of one or more commits to columnar changes of the file table."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from pydelta.log.columns import (
    TOMBSTONE_SCHEMA,
    adds_to_frame,
    core_schema,
    file_key,
    has_escapes,
    keys_of,
    path_hashes,
    removes_to_frame,
    spellings,
    unescaped,
)
from pydelta.log.runs import AddRun, RemoveRun, objects_of, runs_of
from pydelta.protocol.actions import Action, AddFile, RemoveFile

__all__ = [
    "FileDelta",
    "Mentions",
    "added_files",
    "build_delta",
    "live_tombstones",
    "merged",
    "removed_files",
]

DELTA_BIT: Final = 1 << 63
_ID_SHIFT: Final = 32
_FEW: Final = 100
_PLAIN_PATH: Final = r"^[A-Za-z0-9_.=-][A-Za-z0-9_.=/-]*$"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDelta:
    """The latest action on each file that some commits mention.

    Args:
        version: The last commit in it. The locators of its rows carry this number.
        adds: Core columns, ``stats``, ``rest`` and ``key``.
        removes: Tombstone columns, ``rest`` and ``key``.
    """

    version: int
    adds: pl.DataFrame
    removes: pl.DataFrame

    @property
    def keys(self) -> pl.Series:
        """Keys of all mentioned files, each once."""
        return pl.concat([self.adds["key"], self.removes["key"]])


def delta_version(locator: int) -> int:
    """Return the ``version`` of the delta that a locator points to."""
    return (locator & ~DELTA_BIT) >> _ID_SHIFT


def build_delta(actions: Iterable[Action], *, version: int, partition_names: Sequence[str], root: str) -> FileDelta:
    """Reconcile file actions, oldest first, so that each file key keeps its last action ("Action Reconciliation")."""
    runs = runs_of(actions)
    if runs and all(set(run.names) == set(partition_names) for run in runs):
        found = _delta_of_runs(actions, runs, version=version, partition_names=partition_names, root=root)
        if found is not None:
            return found
    last: dict[str, AddFile | RemoveFile] = {}
    for action in actions:
        if isinstance(action, (AddFile, RemoveFile)):
            vector = action.deletion_vector
            key = file_key(action.path, vector.unique_id if vector else None, root)
            last.pop(key, None)
            last[key] = action
    adds = {key: action for key, action in last.items() if isinstance(action, AddFile)}
    removes = {key: action for key, action in last.items() if isinstance(action, RemoveFile)}
    first = DELTA_BIT | version << _ID_SHIFT
    return FileDelta(
        version=version,
        adds=_keyed(adds_to_frame(list(adds.values()), partition_names, first), adds),
        removes=_keyed(removes_to_frame(list(removes.values()), first), removes),
    )


def _delta_of_runs(
    actions: Iterable[Action],
    runs: Sequence[AddRun | RemoveRun],
    *,
    version: int,
    partition_names: Sequence[str],
    root: str,
) -> FileDelta | None:
    """Build the delta of actions that are mostly in runs. Returns None if two concern one file and order matters."""
    loose = build_delta(tuple(objects_of(actions)), version=version, partition_names=partition_names, root=root)
    nothing = pl.lit(None, dtype=pl.String)
    adds, removes = [loose.adds], [loose.removes]
    for run in runs:
        frame = run.frame.with_columns(dv_id=nothing, row=pl.lit(0, dtype=pl.UInt64))
        if isinstance(run, AddRun):
            columns = [*core_schema(partition_names), "stats", "rest", "key"]
            adds.append(frame.with_columns(keys_of(frame, root), rest=nothing).select(columns))
        else:
            columns = [*TOMBSTONE_SCHEMA, "rest", "key"]
            removes.append(frame.with_columns(keys_of(frame, root), run.bodies()).select(columns))
    delta = FileDelta(version=version, adds=_numbered(adds, version), removes=_numbered(removes, version))
    keys = delta.keys
    return delta if keys.n_unique() == len(keys) else None


def _numbered(frames: Sequence[pl.DataFrame], version: int) -> pl.DataFrame:
    """Concatenate frames and give their rows new locators."""
    frame = pl.concat(frames)
    first = DELTA_BIT | version << _ID_SHIFT
    rows = np.arange(frame.height, dtype=np.uint64) + np.uint64(first)
    return frame.with_columns(pl.Series("row", rows, dtype=pl.UInt64))


def _keyed(fresh: pl.DataFrame, keys: Iterable[str]) -> pl.DataFrame:
    """Append the column ``key`` in place. The frame has no other owner, and this avoids planning a query."""
    return fresh.insert_column(fresh.width, pl.Series("key", list(keys), dtype=pl.String))


def _are_among(some: npt.NDArray[np.uint64], ascending: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Return for each number whether it occurs in an ascending array."""
    if not len(ascending):
        return np.zeros(len(some), dtype=bool)
    at = np.minimum(np.searchsorted(ascending, some), len(ascending) - 1)
    return np.asarray(ascending[at] == some)


class Mentions:
    """The files that some deltas mention, to be filtered out of many frames.

    Args:
        deltas: The deltas.
        root: URI of the table.
    """

    def __init__(self, deltas: Sequence[FileDelta], root: str) -> None:
        self._root = root
        parts = [part for delta in deltas for part in (delta.adds, delta.removes) if part.height]
        self._forms: pl.Series | None = None
        if parts:
            paths = pl.concat([part["path"] for part in parts]).unique()
            plain = paths.str.contains(_PLAIN_PATH)
            self._forms = paths
            if not bool(plain.all()):
                odd = {form for path in paths.filter(~plain) for form in spellings(path, root)}
                forms = pl.concat([paths.filter(plain), unescaped(pl.Series(list(odd), dtype=pl.String))])
                self._forms = forms.unique()
            self._keys = pl.concat([part["key"] for part in parts]).unique().sort()

    @functools.cached_property
    def _hashes(self) -> npt.NDArray[np.uint64]:
        """Ascending hashes. The forms are already unescaped, and a name with an escape must not be decoded twice."""
        return np.empty(0, dtype=np.uint64) if self._forms is None else np.sort(self._forms.hash(seed=0).to_numpy())

    def may_be_among(self, hashes: npt.NDArray[np.uint64]) -> bool:
        """Return whether one of the files may be among paths with these ascending hashes."""
        return bool(_are_among(self._hashes, hashes).any())

    def without(self, frame: pl.DataFrame, *, escaped: bool | None = None) -> pl.DataFrame:
        """Return the rows of a frame (``path``, ``dv_id``, …) that are not mentioned.

        Args:
            frame: The rows.
            escaped: Whether any of their paths has escapes; None if unknown.
        """
        if self._forms is None or frame.is_empty():
            return frame
        paths = frame["path"]
        if len(self._forms) * _FEW < frame.height:
            if escaped is None:
                escaped = has_escapes(paths)
            candidates = (unescaped(paths) if escaped else paths).is_in(self._forms.implode())
        else:  # is_in would rebuild its hash set for each frame.
            candidates = pl.Series(_are_among(path_hashes(paths), self._hashes))
        if not bool(candidates.any()):
            return frame
        keys = keys_of(frame.filter(candidates), self._root)
        at = self._keys.search_sorted(keys).clip(upper_bound=len(self._keys) - 1)
        mentioned = self._keys.gather(at) == keys
        mask = candidates.scatter(candidates.arg_true(), mentioned)
        return frame.filter(~mask)


def _newest(frames: Sequence[pl.DataFrame], deltas: Sequence[FileDelta]) -> pl.DataFrame:
    """Return the rows of each delta's frame that no newer delta mentions."""
    if len(deltas) == 1:
        return frames[0]
    orders = [
        pl.DataFrame({"key": delta.keys}).with_columns(order=pl.lit(number, dtype=pl.UInt32))
        for number, delta in enumerate(deltas)
    ]
    latest = pl.concat(orders).group_by("key").agg(pl.col("order").max())
    rows = pl.concat([frame.with_columns(order=pl.lit(number, dtype=pl.UInt32)) for number, frame in enumerate(frames)])
    return rows.join(latest, on=["key", "order"], how="semi", maintain_order="left").drop("order")


def merged(deltas: Sequence[FileDelta]) -> FileDelta:
    """Merge deltas, oldest first, into one with the version of the last."""
    version = deltas[-1].version
    return FileDelta(
        version=version,
        adds=_numbered([added_files(deltas)], version),
        removes=_numbered([removed_files(deltas)], version),
    )


def added_files(deltas: Sequence[FileDelta]) -> pl.DataFrame:
    """Return the files that the deltas add and none of them removes later."""
    return _newest([delta.adds for delta in deltas], deltas)


def removed_files(deltas: Sequence[FileDelta]) -> pl.DataFrame:
    """Return the files that the deltas remove and none of them adds again."""
    return _newest([delta.removes for delta in deltas], deltas)


def live_tombstones(base: pl.DataFrame, deltas: Sequence[FileDelta], root: str) -> pl.DataFrame:
    """Return the tombstones of ``base`` whose files no delta mentions, plus those of the deltas."""
    if not deltas:
        return base
    return pl.concat([Mentions(deltas, root).without(base), removed_files(deltas).select(base.columns)])
