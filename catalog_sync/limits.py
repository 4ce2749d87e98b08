"""Refuse to sync partitions that do not fit into the metastore's database, and name them. Pure.

If one partition were left out, queries would miss its rows without an error. So nothing is published, and queries
still see the previous version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import polars as pl

from catalog_sync.errors import PartitionTooLongError
from catalog_sync.thrift.client import hive_name
from pydelta.log import Snapshot
from pydelta.manifests import values_of_directory
from pydelta.manifests.contents import refuse_null_name
from pydelta.manifests.plan import partition_directories

__all__ = ["NAME_LENGTH", "check_partitions"]

NAME_LENGTH: Final = 767
"""Maximum length of a partition's name in the metastore's database (``PARTITIONS.PART_NAME``)."""
_SHOWN: Final = 60


def check_partitions(snapshot: Snapshot, *, value_length: int) -> None:
    """Refuse partitions that a metastore cannot hold.

    Args:
        snapshot: Snapshot of the version to publish.
        value_length: Maximum length of a value in the metastore's database, in characters.

    Raises:
        PartitionTooLongError: A partition is too long. The error names it and the limit.
        SchemaError: A value is Hive's name for null.
    """
    refuse_null_name(snapshot)
    found = list(_too_long(snapshot, value_length))
    if not found:
        return
    directory, what = found[0]
    shown = directory if len(directory) <= _SHOWN else f"{directory[:_SHOWN]}…"
    others = f", nor {len(found) - 1} others" if len(found) > 1 else ""
    raise PartitionTooLongError(
        f"The metastore cannot hold the partition {shown}{others}: {what}. Nothing was published, since queries would "
        "miss its rows without an error; they still see the previous version.",
        hint="Give its rows a shorter value. Or read the table through Trino's Delta connector; or widen PART_KEY_VAL "
        "in the metastore's database and set spark.pydelta.sync.partitionValueLength "
        "(PYDELTA_SYNC_PARTITION_VALUE_LENGTH) to its new length.",
        table=snapshot.table_uri,
        version=snapshot.version,
    )


def _too_long(snapshot: Snapshot, value_length: int) -> Iterator[tuple[str, str]]:
    keys = snapshot.files.spec.keys
    if not keys:
        return
    sizes = [pl.col(key).str.len_bytes().fill_null(0) for key in keys]
    most = 3 * pl.sum_horizontal(sizes) + sum(len(key.encode()) * 3 for key in keys)  # Each byte may be escaped.
    near = pl.any_horizontal([size > value_length for size in sizes]) | (most > NAME_LENGTH)
    rows = snapshot.files.core.select(keys).filter(near).unique().sort(keys).iter_rows()
    for directory in partition_directories(snapshot, rows):
        for column, value in values_of_directory(directory).items():
            if _length(value or "") > value_length:
                yield (
                    directory,
                    f"its value of {column!r} has {_length(value or '')} characters, and {value_length} fit",
                )
                break
        else:
            if _length(hive_name(directory)) > NAME_LENGTH:
                yield directory, f"its name has {_length(hive_name(directory))} characters, and {NAME_LENGTH} fit"


def _length(text: str) -> int:
    """Count UTF-16 units, as Java and most databases do: a character beyond the first plane counts twice."""
    return len(text.encode("utf-16-le")) // 2
