"""Write a few rows that the driver already has in its own process, without a Spark write job.

::

    INSERT … VALUES, small local frames --Spark's optimizer--> a LocalRelation --Arrow--> files
    anything else, or any failure here ----------------------> None: a job, which raises the usual errors
"""

from __future__ import annotations

import logging
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
        count = _rows_at_hand(rows, most_bytes)
        if count is None:
            return None
        batches = rows.toArrow().to_batches()
        given = sum(batch.num_rows for batch in batches)
        if given != count:
            raise RowsDoNotAddUpError(
                f"Spark has {count} rows, but gave only {given} of them to the write.",
                hint="This is a defect of the engine; report it with the plan of the rows (df.explain).",
            )
        return run_task(batches, task, partition_id=0)
    except RowsDoNotAddUpError:
        raise
    except (DeltaError, Py4JError, PySparkException, pa.ArrowException, OSError) as error:
        _LOG.debug("a write in the driver's process is left to Spark: %s", type(error).__name__)
        return None


def _rows_at_hand(rows: DataFrame, most_bytes: int) -> int | None:
    """Return the number of rows if the driver already has all of them and they are few."""
    if not most_bytes:
        return None
    jvm, execution = Jvm.of(rows.sparkSession), rows._jdf.queryExecution()
    leaves = jvm.to_list(execution.analyzed().collectLeaves())
    if len(leaves) != 1 or _kind(leaves[0]) != _LOCAL:
        return None  # This check comes first because optimizing the plan would be repeated by the job.
    plan = execution.optimizedPlan()
    if _kind(plan) != _LOCAL or int(str(plan.stats().sizeInBytes())) > most_bytes:
        return None
    return int(plan.data().size())


def _kind(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())
