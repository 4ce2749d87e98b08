"""Remember many paths in eight bytes each: enough to tell that another path is not one of them.

::

    batches of paths -> PathIndexBuilder -> PathIndex.may_hold(paths)
                     -> PathSample: some of them, chosen by hash, and how many there were
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

__all__ = ["PathIndex", "PathIndexBuilder", "PathSample", "compact"]

_Hashes: TypeAlias = npt.NDArray[np.uint64]
_EVERYTHING: Final = (1 << 64) - 1


def _hashes(paths: pl.Series) -> _Hashes:
    found: npt.NDArray[Any] = paths.hash(seed=0).to_numpy()
    return found


def compact(frame: pl.DataFrame) -> pl.DataFrame:
    """Copy rows, without the memory of those that they were chosen from: a filtered text column keeps it."""
    return pl.DataFrame(
        [
            pl.Series(s.name, s.to_arrow(compat_level=pl.CompatLevel.oldest())) if s.dtype == pl.String else s
            for s in frame
        ]
    )


class PathIndex:
    """Hashes of 64 bits. Two texts may share one: a path that is none of them may be taken for one, never the other
    way round. Where these are the paths that must stay, a file too many stays then; none too few does.

    Args:
        paths: Any.

    Example:
        >>> PathIndex(pl.Series(["a", "b"])).may_hold(pl.Series(["b", "c"])).to_list()
        [True, False]
    """

    __slots__ = ("_sorted",)

    def __init__(self, paths: pl.Series | None = None) -> None:
        self._sorted: _Hashes = np.empty(0, dtype=np.uint64) if paths is None else np.sort(_hashes(paths))

    @classmethod
    def of_hashes(cls, ascending: _Hashes) -> PathIndex:
        """Make the index of what a builder has collected."""
        index = cls()
        index._sorted = ascending
        return index

    def __bool__(self) -> bool:
        return len(self._sorted) > 0

    def may_hold(self, paths: pl.Series) -> pl.Series:
        """Tell of each path whether it may be in the index; False is certain."""
        if not len(self._sorted):
            return pl.repeat(value=False, n=len(paths), eager=True)
        wanted = _hashes(paths)
        at = np.minimum(np.searchsorted(self._sorted, wanted), len(self._sorted) - 1)
        return pl.Series(self._sorted[at] == wanted)


class PathIndexBuilder:
    """Collects hashes batch by batch."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[_Hashes] = []

    def add(self, paths: pl.Series) -> None:
        """Add paths; one that was there already does no harm."""
        if len(paths):
            self._parts.append(_hashes(paths).copy())

    def index(self) -> PathIndex:
        """Make the index of all paths until now."""
        whole = np.concatenate([np.empty(0, dtype=np.uint64), *self._parts])
        whole.sort()
        self._parts = [whole]
        return PathIndex.of_hashes(whole)


class PathSample:
    """Some of many paths, evenly chosen: those with the lowest hashes.

    Args:
        size: How many at most.
    """

    def __init__(self, size: int) -> None:
        self.count = 0
        """Paths that were given, those given twice counted twice."""
        self._size = size
        self._below: int = _EVERYTHING
        self._kept = pl.DataFrame(schema={"path": pl.String, "hash": pl.UInt64})

    def add(self, paths: pl.Series) -> None:
        """Add paths."""
        self.count += len(paths)
        frame = pl.DataFrame({"path": paths.cast(pl.String), "hash": paths.hash(seed=0)})
        kept = pl.concat([self._kept, frame.filter(pl.col("hash") <= pl.lit(self._below, dtype=pl.UInt64))])
        if kept.height > 2 * self._size:
            kept = kept.unique("hash").bottom_k(self._size, by="hash")
            self._below = int(kept["hash"].max())  # type: ignore[arg-type]
        self._kept = compact(kept)

    @property
    def paths(self) -> pl.Series:
        """Return the chosen paths, each once, in no particular order."""
        return self._kept.unique("hash").bottom_k(self._size, by="hash")["path"]
