"""Count the files and bytes that one trigger may take. Pure, except for its counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

__all__ = ["DEFAULT_MAX_FILES", "AdmissionBudget"]

DEFAULT_MAX_FILES: Final = 1000


class AdmissionBudget:
    """The remaining files and bytes of a trigger.

    A file is taken while some of both is left. The last file may exceed the remaining bytes, so that every file fits
    some trigger.

    Args:
        max_files: Files; None for no limit.
        max_bytes: Bytes; None for no limit.

    Example:
        >>> AdmissionBudget(max_files=2).take([5, 5, 5])
        2
        >>> AdmissionBudget(max_bytes=6).take([5, 5, 5])
        2
    """

    def __init__(self, *, max_files: int | None = None, max_bytes: int | None = None) -> None:
        self._files = max_files
        self._bytes = max_bytes

    @property
    def is_spent(self) -> bool:
        """Whether no further file is taken."""
        return (self._files is not None and self._files <= 0) or (self._bytes is not None and self._bytes <= 0)

    def take(self, sizes: Sequence[int]) -> int:
        """Take files in order until the budget is spent, and return how many were taken."""
        if self.is_spent:
            return 0
        count = len(sizes)
        if self._files is not None:
            count = min(count, self._files)
        if self._bytes is not None:
            before = np.cumsum(np.asarray(sizes[:count], dtype=np.int64)) - np.asarray(sizes[:count], dtype=np.int64)
            count = int(np.searchsorted(before, self._bytes, side="left"))
        self._spend(count, int(sum(sizes[:count])))
        return count

    def take_whole(self, sizes: Sequence[int]) -> bool:
        """Take all files of a group or none; return whether they were taken."""
        if self.is_spent:
            return False
        self._spend(len(sizes), int(sum(sizes)))
        return True

    def _spend(self, files: int, size_bytes: int) -> None:
        if self._files is not None:
            self._files -= files
        if self._bytes is not None:
            self._bytes -= size_bytes
