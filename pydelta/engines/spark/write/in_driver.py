"""Write a few rows in the driver's process, without a Spark write job.

::

    INSERT … VALUES, small local frames ----Spark's optimizer----> a LocalRelation --Arrow-----------> files
    spark.range, createDataFrame of a list, rows of such --the same rule of the optimizer, in the driver--> files
    such rows with random values, or of a Python function ----> a small job without a worker that writes -> files
    anything else, or any failure here ----------------------> None: a job, which raises the usual errors
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pydelta.engines.arrow.tasks.write_files import FileRecord, WriteTask, run_task
from pydelta.engines.spark.calls import UNCOUNTED
from pydelta.engines.spark.jvm import Jvm
from pydelta.errors import DeltaError, RowsDoNotAddUpError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["write_in_driver"]

_LOG = logging.getLogger(__name__)
_FEW_BYTES: Final = 4 * 1024 * 1024
"""Beyond this, two tasks that write side by side are faster than one process that writes what they compute."""


def write_in_driver(rows: DataFrame, task: WriteTask, *, most_bytes: int) -> list[FileRecord] | None:
    """Write rows that need no job; None if Spark must write them. A failure leaves nothing behind.

    Args:
        rows: The columns in the task's order.
        task: Defines how files of the table are written.
        most_bytes: Upper limit for Spark's estimate of the rows' size.

    Raises:
        RowsDoNotAddUpError: The files hold other rows than were given.
    """
    if not most_bytes:
        return None
    try:
        calls = Jvm.of(rows.sparkSession).calls
        found = calls.rows_at_hand(rows, most_bytes=most_bytes, few_bytes=min(most_bytes, _FEW_BYTES))
        if found is None:
            return None
        table, count = found
        batches = (rows.toArrow() if table is None else table).to_batches()
        given = sum(batch.num_rows for batch in batches)
        if count not in (UNCOUNTED, given):
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
