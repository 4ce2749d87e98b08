"""Somebody else's list of files in, frames of it out: what VACUUM USING INVENTORY looks at instead of listing.

An inventory has the columns ``path string`` (fully qualified, or relative to the table), ``length long``,
``isDir boolean``, ``modificationTime long`` (epoch milliseconds); others are passed over. A table of S3 Inventory rows
with ``bucket`` and ``key`` instead of ``path`` is taken too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from pydelta.log import DeltaLog

__all__ = ["Inventory", "inventory_from_csv", "inventory_from_delta", "inventory_from_frame", "inventory_from_parquet"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Inventory:
    """A list of files as of a time.

    Args:
        description: What it is, for messages.
        frames: Root URI of a table -> frames with the inventory's columns. Rows that lie elsewhere may be among
            them; leaving them out early is what the root is given for.
        as_of_ms: When it was made, epoch milliseconds: rows that say to be newer are passed over. None: not known,
            the newest ``modificationTime`` stands for it.
    """

    description: str
    frames: Callable[[str], Iterator[pl.DataFrame]]
    as_of_ms: int | None = None


def inventory_from_frame(
    frame: pl.DataFrame, *, as_of_ms: int | None = None, description: str = "the inventory"
) -> Inventory:
    """An inventory that is in memory."""
    raise NotImplementedError


def inventory_from_delta(
    log: DeltaLog, *, version: int | None = None, where: str | None = None, as_of_ms: int | None = None
) -> Inventory:
    """An inventory that is a Delta table; read here, without Spark.

    Args:
        log: The inventory table.
        version: One of its versions; None for the newest.
        where: SQL over its partition columns: which part of it to read.
        as_of_ms: When it was made; None: its rows tell.
    """
    raise NotImplementedError


def inventory_from_parquet(
    uri: str, *, options: Mapping[str, str] | None = None, as_of_ms: int | None = None
) -> Inventory:
    """An inventory that is a Parquet file, or a folder of them."""
    raise NotImplementedError


def inventory_from_csv(uri: str, *, options: Mapping[str, str] | None = None, as_of_ms: int | None = None) -> Inventory:
    """An inventory that is a CSV file with a header, or a folder of them; ``.gz`` too."""
    raise NotImplementedError
