"""Store a set of rows of one file in 64-bit words. It is small both for few rows and for nearly all rows.

A word costs 16 bytes, so a file whose rows are all in the set costs a quarter of a byte per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pydelta.protocol.roaring import Positions

__all__ = ["WORD_BITS", "RowSet"]

WORD_BITS: Final = 64
_ONES: Final = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class RowSet:
    """A set of rows in a file.

    Args:
        words: Word numbers, ascending and distinct. Word n covers the rows from 64·n to 64·n + 63.
        bits: The words. The lowest bit is the first row.
    """

    words: npt.NDArray[np.uint64]
    bits: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, positions: Positions) -> RowSet:
        """Build the set from ascending positions."""
        words, starts = np.unique(positions // np.uint64(WORD_BITS), return_index=True)
        ones = np.uint64(1) << (positions % np.uint64(WORD_BITS))
        bits = np.bitwise_or.reduceat(ones, starts) if len(words) else ones
        return cls(words.astype(np.uint64), bits.astype(np.uint64))

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(_ONES[self.bits.view(np.uint8)].sum(dtype=np.int64))

    def __eq__(self, other: object) -> bool:
        """Return whether both hold the same rows."""
        if not isinstance(other, RowSet):
            return NotImplemented
        return bool(np.array_equal(self.positions(), other.positions()))

    __hash__ = None  # type: ignore[assignment]

    @property
    def start(self) -> int:
        """The first row that the first word covers."""
        return int(self.words[0]) * WORD_BITS if len(self.words) else 0

    @property
    def end(self) -> int:
        """The first row after the last word."""
        return (int(self.words[-1]) + 1) * WORD_BITS if len(self.words) else WORD_BITS

    def positions(self) -> Positions:
        """Return the positions, ascending."""
        at = np.flatnonzero(np.unpackbits(self._bytes(), bitorder="little"))
        starts = self.words * np.uint64(WORD_BITS)
        found: Positions = starts[at // WORD_BITS] + (at % WORD_BITS).astype(np.uint64)
        return found

    def dense(self) -> bytes:
        """Return the bits of all rows from ``start`` to ``end``, little-endian."""
        filled = np.zeros((self.end - self.start) // WORD_BITS, dtype="<u8")
        if len(self.words):
            filled[(self.words - self.words[0]).astype(np.int64)] = self.bits
        return filled.tobytes()

    def _bytes(self) -> npt.NDArray[Any]:
        return self.bits.astype("<u8", copy=False).view(np.uint8)
