"""Search a store for a key without the engine: every object's bytes, every value of every Parquet file, every name."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pydelta.storage.interface import Store


def names_of_key(store: Store, key: str) -> list[str]:
    """Return the places below a store's root that name a text key, as ``path: how``."""
    spelt = {key, quote(key), quote(quote(key)), json.dumps(key)[1:-1], json.dumps(json.dumps(key)[1:-1])[1:-1]}
    needles = [text.encode() for text in spelt]
    found = []
    for info in store.list_all():
        data = store.read(info.path)
        if any(needle.decode() in info.path for needle in needles):
            found.append(f"{info.path}: its name")
        if any(needle in data for needle in needles):
            found.append(f"{info.path}: its bytes")
        elif data[:4] == b"PAR1" and any(key in text for text in texts_of(pq.read_table(pa.BufferReader(data)))):
            found.append(f"{info.path}: its values")
        elif data[:4] == b"Obj\x01" and key in str(pl.read_avro(io.BytesIO(data)).to_dicts()):
            found.append(f"{info.path}: its Avro values")
    return found


def texts_of(value: Any) -> Iterator[str]:
    """Yield every text in rows, and in the JSON within texts."""
    if isinstance(value, pa.Table):
        value = value.to_pylist()
    if isinstance(value, dict):
        for name, item in value.items():
            yield str(name)
            yield from texts_of(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts_of(item)
    elif value is not None:
        yield str(value)
