"""Read a table by its path and a reader's options: one version, the newest, or the changes between two."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import log_for_path, store_options
from pydelta.engines.spark.scan.change_feed import changes_from_options, read_changes
from pydelta.engines.spark.scan.newest import follow_newest
from pydelta.engines.spark.scan.partition_folder import rows_of_partition, split_partition_folder
from pydelta.engines.spark.scan.row_metadata import scan_table
from pydelta.engines.spark.scan.travel import open_snapshot, split_path_version, travel_from_options
from pydelta.errors import InvalidArgumentError, error_context
from pydelta.errors.conditions import Condition

__all__ = ["read_path"]

_SECRET_WORDS = ("key", "secret", "token", "password", "credential")


def read_path(spark: SparkSession, path: str, options: dict[str, str]) -> DataFrame:
    """Read ``spark.read.format("delta").options(…).load(path)``. The path of a partition's folder reads that partition.

    Raises:
        TableNotFoundError, VersionNotFoundError, InvalidArgumentError, UnsupportedFeatureError: See ``open_snapshot``
            and ``scan_table``.
    """
    travel = travel_from_options(options)
    changes = changes_from_options(spark, options)
    storage = store_options(options)
    by_path = split_path_version(spark, path, storage)
    if by_path[1] is not None:
        if travel is not None:
            raise InvalidArgumentError(
                f"{path!r} names a version, and so do the options.",
                hint="Name it in one place only.",
                condition=Condition.of("DELTA_UNSUPPORTED_TIME_TRAVEL_MULTIPLE_FORMATS"),
            )
        path, travel = by_path
    for name in storage:
        if any(word in name.lower() for word in _SECRET_WORDS):
            raise InvalidArgumentError(
                f"The reader option {name} is a credential, and options become part of the plan and the event log.",
                hint=f"Set spark.hadoop.{name} on the session instead.",
            )
    with error_context(table=path):
        if changes is not None:
            if travel is not None:
                raise InvalidArgumentError(
                    "Both a change data feed and a version to travel to were asked for.",
                    hint="Leave the version out of the path.",
                    condition=Condition.of("DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS"),
                )
            return read_changes(spark, log_for_path(spark, Jvm.of(spark).qualify(path), storage), changes)
        path, partition = split_partition_folder(spark, path, storage)
        snapshot = open_snapshot(spark, path, travel, storage)
        follow_newest(Jvm.of(spark))
        frame = scan_table(spark, snapshot, pinned=travel is not None, storage=storage)
        return rows_of_partition(frame, snapshot, partition)
