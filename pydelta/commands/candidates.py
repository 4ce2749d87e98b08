"""A bound condition in, the files that may hold a row for which it is true out."""

from __future__ import annotations

import polars as pl

from pydelta.commands.engine import BoundCondition
from pydelta.predicate import columns, is_partition_only
from pydelta.txn import OptimisticTransaction

__all__ = ["read_candidates"]


def read_candidates(txn: OptimisticTransaction, condition: BoundCondition, *, time_zone: str) -> pl.DataFrame:
    """Files that partition values and statistics cannot rule out; the transaction records the reading."""
    partitions = tuple(txn.snapshot.partition_columns)
    of_partition = [part for part in condition.conjuncts if columns(part) and is_partition_only(part, partitions)]
    of_data = [part for part in condition.conjuncts if part not in of_partition]
    return txn.read_files(partition_filters=of_partition, data_filters=of_data, time_zone=time_zone)
