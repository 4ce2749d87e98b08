"""Find the files of deletion vectors by unique id. It works on columns, because a table may have millions.

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
_NONE: Final = pl.DataFrame(schema={"id": pl.String, "path": pl.String})
_POWERS: Final = np.array([85**4, 85**3, 85**2, 85, 1], dtype=np.uint64)


def vector_files(ids: pl.Series, *, offsets: bool = True) -> pl.DataFrame:
    """Return the ``id`` and file ``path`` of each vector. Paths are relative and decoded, or absolute as in the log.

    An id may end in ``@offset``, but its text may also end so by chance. Then both readings are returned, one of which
    names a file that does not exist.

    Args:
        ids: ``FileKey.dv_id`` texts. Nulls and inline vectors are ignored.
        offsets: Whether ids may end in an offset.

    Example:
        >>> vector_files(pl.Series(["uab^-aqEH.-t@S}K{vb[*k^", None]))["path"].to_list()
        ['ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin']
    """
    if ids.null_count() == len(ids):
        return _NONE
    frame = pl.DataFrame({"id": ids.drop_nulls().unique()}, schema={"id": pl.String})
    bodies = frame.with_columns(kind=pl.col("id").str.slice(0, 1), body=pl.col("id").str.slice(1))
    if offsets:
        bodies = pl.concat([bodies, bodies.with_columns(body=pl.col("body").str.replace(r"@\d+$", ""))]).unique()
    absolute = bodies.filter(pl.col("kind") == "p").select("id", path="body")
    relative = bodies.filter((pl.col("kind") == "u") & (pl.col("body").str.len_bytes() >= _UUID_LENGTH))
    return pl.concat([absolute, _decoded(relative)])


def _decoded(vectors: pl.DataFrame) -> pl.DataFrame:
    """Convert ``id`` and ``body`` to ``id`` and ``path`` for bodies that end in a UUID."""
    text = pl.col("body").str.tail(_UUID_LENGTH)
    vectors = vectors.filter(text.str.len_bytes() == _UUID_LENGTH)
    if vectors.is_empty():
        return _NONE
    raw = np.frombuffer("".join(vectors.select(text)["body"].to_list()).encode(), dtype=np.uint8)
    numbers = _VALUES[raw].reshape(-1, 4, 5) @ _POWERS
    good = (numbers < (1 << 32)).all(axis=1)
    folder = pl.col("body").str.head(-_UUID_LENGTH)
    prefix = pl.when(folder == "").then(pl.lit("")).otherwise(folder + "/")
    name = "deletion_vector_" + _hex(numbers[good].astype(">u4")) + ".bin"
    return vectors.filter(pl.Series(good)).select("id", path=prefix + pl.lit(name))


def _hex(numbers: npt.NDArray[Any]) -> pl.Series:
    """Format rows of 16 bytes as UUIDs."""
    data = numbers.tobytes()
    plain = pl.Series([data[at : at + 16] for at in range(0, len(data), 16)], dtype=pl.Binary).bin.encode("hex")
    return pl.DataFrame({"x": plain}).select(
        pl.concat_str(*(pl.col("x").str.slice(start, length) for start, length in _PARTS), separator="-")
    )["x"]


_PARTS: Final = ((0, 8), (8, 4), (12, 4), (16, 4), (20, 12))
