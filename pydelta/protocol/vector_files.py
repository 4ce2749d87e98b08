"""Unique ids of deletion vectors in, the files that hold them out; columns, since a table may have millions.

Protocol: "Deletion Vector Descriptor Schema".
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from pydelta.protocol.vectors import DIGITS

__all__ = ["vector_files"]

_UUID_LENGTH: Final = 20
_VALUES: Final[npt.NDArray[np.uint64]] = np.full(256, 1 << 40, dtype=np.uint64)
_VALUES[np.frombuffer(DIGITS.encode(), dtype=np.uint8)] = np.arange(len(DIGITS), dtype=np.uint64)
_POWERS: Final = np.array([85**4, 85**3, 85**2, 85, 1], dtype=np.uint64)


def vector_files(ids: pl.Series) -> pl.Series:
    """Paths of the files, each once: relative to the table and plain, or absolute as the log spells them.

    An id ends in ``@offset`` or not, and its text may look so by chance: then both readings are given, one of them a
    file that there is not.

    Args:
        ids: ``FileKey.dv_id`` texts; nulls and vectors that the log itself holds are passed over.

    Example:
        >>> vector_files(pl.Series(["uab^-aqEH.-t@S}K{vb[*k^", None])).to_list()
        ['ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin']
    """
    ids = ids.drop_nulls().unique()
    kept = pl.DataFrame({"type": ids.str.slice(0, 1), "body": ids.str.slice(1)}).filter(pl.col("type") != "i")
    without = kept.with_columns(body=pl.col("body").str.replace(r"@\d+$", ""))
    bodies = pl.concat([kept, without]).unique()
    absolute = bodies.filter(pl.col("type") == "p")["body"]
    relative = bodies.filter((pl.col("type") == "u") & (pl.col("body").str.len_bytes() >= _UUID_LENGTH))["body"]
    return pl.concat([absolute, _decoded(relative)]).unique().rename("path")


def _decoded(bodies: pl.Series) -> pl.Series:
    if bodies.is_empty():
        return bodies
    frame = pl.DataFrame({"folder": bodies.str.head(-_UUID_LENGTH), "text": bodies.str.tail(_UUID_LENGTH)})
    frame = frame.filter(pl.col("text").str.len_bytes() == _UUID_LENGTH)
    raw = np.frombuffer("".join(frame["text"].to_list()).encode(), dtype=np.uint8)
    numbers = _VALUES[raw].reshape(-1, 4, 5) @ _POWERS
    good = (numbers < (1 << 32)).all(axis=1)
    names = _hex(numbers[good].astype(">u4"))
    folder = frame["folder"].filter(pl.Series(good))
    prefix = pl.DataFrame({"folder": folder}).select(
        pl.when(pl.col("folder") == "").then(pl.lit("")).otherwise(pl.col("folder") + "/").alias("folder")
    )["folder"]
    return prefix + "deletion_vector_" + names + ".bin"


def _hex(numbers: npt.NDArray[Any]) -> pl.Series:
    """Rows of 16 bytes -> UUIDs as text."""
    data = numbers.tobytes()
    plain = pl.Series([data[at : at + 16] for at in range(0, len(data), 16)], dtype=pl.Binary).bin.encode("hex")
    return pl.DataFrame({"x": plain}).select(
        pl.concat_str(*(pl.col("x").str.slice(start, length) for start, length in _PARTS), separator="-")
    )["x"]


_PARTS: Final = ((0, 8), (8, 4), (12, 4), (16, 4), (20, 12))
