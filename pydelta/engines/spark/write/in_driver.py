"""Write a few rows in the driver's process, without a Spark write job.

::

    INSERT … VALUES, small local frames --Spark's optimizer--> a LocalRelation --Arrow-------------> files
    spark.range, createDataFrame of a list, rows of such ----> a small job without Python --Arrow--> files
    anything else, or any failure here ----------------------> None: a job, which raises the usual errors
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pydelta.engines.arrow.tasks.write_files import FileRecord, WriteTask, run_task
from pydelta.engines.spark.jvm import Jvm
from pydelta.errors import DeltaError, RowsDoNotAddUpError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["write_in_driver"]

_LOG = logging.getLogger(__name__)
_LOCAL: Final = "LocalRelation"
_RANGE: Final = "Range"
_RDD: Final = "LogicalRDD"
_PROJECT: Final = "Project"
_BY_ROW: Final = (_PROJECT, "Filter", "GlobalLimit", "LocalLimit")
_MAPPED: Final = ("MapPartitionsRDD", "PythonRDD")
_PARALLELIZED: Final = "ParallelCollectionRDD"
_FEW_BYTES: Final = 4 * 1024 * 1024
"""Beyond this, two tasks that write side by side are faster than one process that writes what they compute."""
_BYTES_OF_ROW: Final = 16
"""Of a range, in Spark's format: the number and the row's header."""


def write_in_driver(rows: DataFrame, task: WriteTask, *, most_bytes: int) -> list[FileRecord] | None:
    """Write rows that need no job; None if Spark must write them. A failure leaves nothing behind.

    Args:
        rows: The columns in the task's order.
        task: Defines how files of the table are written.
        most_bytes: Upper limit for Spark's estimate of the rows' size.

    Raises:
        RowsDoNotAddUpError: The files hold other rows than were given.
    """
    try:
        found = _rows_at_hand(rows, most_bytes)
        if found is None:
            return None
        batches = rows.toArrow().to_batches()
        given = sum(batch.num_rows for batch in batches)
        if found.count not in (None, given):
            raise RowsDoNotAddUpError(
                f"Spark has {found.count} rows, but gave only {given} of them to the write.",
                hint="This is a defect of the engine; report it with the plan of the rows (df.explain).",
            )
        return run_task(batches, task, partition_id=0)
    except RowsDoNotAddUpError:
        raise
    except (DeltaError, Py4JError, PySparkException, pa.ArrowException, OSError) as error:
        _LOG.debug("a write in the driver's process is left to Spark: %s", type(error).__name__)
        return None


@dataclass(frozen=True, slots=True)
class _AtHand:
    """Rows that the driver may take. ``count`` is None if only taking them shows their number."""

    count: int | None


def _rows_at_hand(rows: DataFrame, most_bytes: int) -> _AtHand | None:
    """Return what is known of the rows if they come from the driver and are few; None for all others.

    Whoever asks for a number of partitions gets as many files, so that such rows are a job's.
    """
    if not most_bytes:
        return None
    jvm, execution = Jvm.of(rows.sparkSession), rows._jdf.queryExecution()
    slices = rows.sparkSession.sparkContext.defaultParallelism
    leaves = jvm.to_list(execution.analyzed().collectLeaves())
    if len(leaves) != 1 or _kind(leaves[0]) not in (_LOCAL, _RANGE, _RDD):
        return None  # This check comes first because optimizing the plan would be repeated by the job.
    plan = execution.optimizedPlan()
    if _kind(plan) == _LOCAL:
        return _AtHand(int(plan.data().size())) if _bytes(plan) <= most_bytes else None
    counted = True
    while (kind := _kind(plan)) in _BY_ROW:
        counted = counted and kind == _PROJECT
        plan = plan.children().head()
    few = min(most_bytes, _FEW_BYTES)
    if kind == _RANGE:
        count, wanted = int(str(plan.numElements())), plan.numSlices()
        is_few = count * _BYTES_OF_ROW <= few and (wanted.isEmpty() or int(wanted.get()) == slices)
        return _AtHand(count if counted else None) if is_few else None
    if kind == _LOCAL:
        return _AtHand(int(plan.data().size()) if counted else None) if _bytes(plan) <= few else None
    rdd = plan.rdd() if kind == _RDD else None
    is_few = rdd is not None and rdd.getNumPartitions() == slices and _is_parallelized(jvm, rdd, few)
    return _AtHand(None) if is_few else None


def _bytes(plan: Any) -> int:
    return int(str(plan.stats().sizeInBytes()))


def _is_parallelized(jvm: Jvm, rdd: Any, most_bytes: int) -> bool:
    """Return whether an RDD has only rows that the driver gave to it, and they are few."""
    while (kind := _kind(rdd)) in _MAPPED:
        (dependency,) = jvm.to_list(rdd.dependencies())
        rdd = dependency.rdd()
    if kind != _PARALLELIZED:
        return False
    size = jvm.view.org.apache.spark.util.SizeEstimator.estimate
    left = most_bytes
    for partition in rdd.partitions():
        left -= int(size(partition.values()))
        if left < 0:
            return False
    return True


def _kind(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())
