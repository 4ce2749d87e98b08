"""Decide in this process which files hold only rows for which a condition over partition columns is true."""

from __future__ import annotations

import polars as pl

from pydelta.engines.arrow.columns import ArrowColumns, refuse_table
from pydelta.engines.arrow.evaluate import true_rows
from pydelta.engines.arrow.expressions import Exact
from pydelta.log import Snapshot
from pydelta.log.columns import PV_PREFIX
from pydelta.predicate.expressions import fields_of

__all__ = ["files_of_partitions"]


def files_of_partitions(snapshot: Snapshot, files: pl.DataFrame, condition: Exact) -> pl.DataFrame:
    """Keep the files whose partition values make a condition true; each combination of values is looked at once.

    Args:
        snapshot: The table.
        files: Rows of its file table.
        condition: Over its partition columns alone.

    Raises:
        NotHere: Only Spark is sure of some value.
    """
    refuse_table(snapshot)
    columns = ArrowColumns(snapshot, fields_of(condition))
    names = snapshot.files.spec.physical_names
    if not names:
        return files if true_rows(condition, columns.of_partitions({}), 1)[0] else files.clear()
    keys = [PV_PREFIX + name for name in names]
    found = files.select(keys).unique()
    texts = {name: found[PV_PREFIX + name].to_list() for name in names}
    holds = true_rows(condition, columns.of_partitions(texts), found.height)
    return files.join(found.filter(pl.Series(holds)), on=keys, how="semi", nulls_equal=True)
