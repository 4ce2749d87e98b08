"""Read a partition by its folder: ``/table/day=2024-01-01`` is the table at ``/table``, filtered by ``day``.

Protocol: "Partition Value Serialization".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import log_for_path
from pydelta.errors import InvalidArgumentError
from pydelta.errors.conditions import Condition
from pydelta.protocol.names import quoted
from pydelta.protocol.partitions import HIVE_NULL, hive_unescape, partition_dir

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pydelta.log import Snapshot

__all__ = ["rows_of_partition", "split_partition_folder"]

_FOLDER: Final = re.compile(r"(?P<above>.*[^/])/+(?P<column>[^/=]+)=(?P<value>[^/]*)/*", re.DOTALL)


def split_partition_folder(
    spark: SparkSession, path: str, hadoop_conf: Mapping[str, str] | None = None
) -> tuple[str, dict[str, str | None]]:
    """Split the path of a partition's folder into the table's path and the values. A table's own path is not split.

    Args:
        spark: The session.
        path: The path as the user wrote it.
        hadoop_conf: Options for the store.

    Returns:
        The path of the nearest table above, and values as text by column, None for null. If there is a table at the
        path itself, or none above, the path without values.
    """
    found, values, jvm = _FOLDER.fullmatch(path), dict[str, str | None](), Jvm.of(spark)
    if found is None or log_for_path(spark, jvm.qualify(path), hadoop_conf).table_exists():
        return path, {}
    while found is not None:
        value = hive_unescape(found["value"])
        values = {hive_unescape(found["column"]): None if value == HIVE_NULL else value, **values}
        above = found["above"]
        if log_for_path(spark, jvm.qualify(above), hadoop_conf).table_exists():
            return above, values
        found = _FOLDER.fullmatch(above)
    return path, {}


def rows_of_partition(frame: DataFrame, snapshot: Snapshot, values: Mapping[str, str | None]) -> DataFrame:
    """Keep the rows of the partition that a path named. Without one, return the frame itself.

    Raises:
        InvalidArgumentError: A folder is not named after a partition column.
    """
    if not values:
        return frame
    known = {column.lower() for column in snapshot.partition_columns}
    others = [column for column in values if column.lower() not in known]
    if others:
        raise InvalidArgumentError(
            f"The path ends in {partition_dir(values)}, but the table at {snapshot.table_uri} is partitioned by "
            f"{', '.join(snapshot.partition_columns) or 'nothing'}.",
            hint="Read the table by its own path, and filter with where(…).",
            condition=Condition.of(
                "DELTA_NON_PARTITION_COLUMN_SPECIFIED", columnList=others, fragment=partition_dir(values)
            ),
        )
    columns = {column: frame[quoted(column)] for column in values}
    conditions = (
        columns[column].isNull() if value is None else columns[column] == F.lit(value)
        for column, value in values.items()
    )
    return frame.where(reduce(lambda left, right: left & right, conditions))
