"""Encode hidden rows as Puffin files of Iceberg v3, and decode them. Pure.

::

    PFA1 | vector | vector … | PFA1 | footer in JSON | its size | flags | PFA1

A vector has the bytes that it has in a file of a Delta table: size, bitmap, checksum.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pydelta.errors import LogCorruptedError
from pydelta.manifests.iceberg.entries import Blob
from pydelta.protocol.roaring import Positions
from pydelta.protocol.vectors import rows_of_stored, stored_vector

__all__ = ["encode_puffin", "vector_rows"]

_MAGIC: Final = b"PFA1"
_TYPE: Final = "deletion-vector-v1"
_ROW_POSITION: Final = 2147483645
"""Field id of a row's position, which Iceberg's own library names as the field of a vector."""
_INHERITED: Final = -1
"""Stands for the snapshot and the sequence number, which are not known before the commit."""
_NO_FLAGS: Final = bytes(4)


def encode_puffin(files: Sequence[tuple[str, npt.NDArray[np.int64]]]) -> tuple[bytes, list[Blob]]:
    """Write a Puffin file.

    Args:
        files: Locations of data files, and the positions of their hidden rows.

    Returns:
        The file's bytes, and the place of each vector.
    """
    parts, places, described, at = [_MAGIC], list[Blob](), list[dict[str, Any]](), len(_MAGIC)
    for location, positions in files:
        data = stored_vector(positions)
        parts.append(data)
        places.append(Blob(location, at, len(data)))
        described.append(_described(places[-1], len(positions)))
        at += len(data)
    footer = json.dumps({"blobs": described}, ensure_ascii=False, separators=(",", ":")).encode()
    return b"".join((*parts, _MAGIC, footer, struct.pack("<i", len(footer)), _NO_FLAGS, _MAGIC)), places


def _described(place: Blob, cardinality: int) -> dict[str, Any]:
    return {
        "type": _TYPE,
        "fields": [_ROW_POSITION],
        "snapshot-id": _INHERITED,
        "sequence-number": _INHERITED,
        "offset": place.offset,
        "length": place.size,
        "properties": {"referenced-data-file": place.location, "cardinality": str(cardinality)},
    }


def vector_rows(data: bytes, place: Blob, *, cardinality: int) -> Positions:
    """Return the rows that a vector of a Puffin file hides.

    Raises:
        ValueError: The file is damaged.
    """
    try:
        return rows_of_stored(data[place.offset : place.offset + place.size], cardinality=cardinality)
    except (LogCorruptedError, struct.error) as error:
        raise ValueError(str(error)) from error
