"""Write few rows that the driver has already in its own process, without a Spark job of the write.

::

    INSERT … VALUES, small local frames --Spark's optimizer--> a LocalRelation --Arrow--> files
    anything else, anything that fails here -----------------> None: a job, which says what it always says
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
    """Write rows that need no job to be computed; None where that is Spark's to do. Nothing of a failure is left.

    Args:
        rows: The columns as the task takes them.
        task: How files of the table are written.
        most_bytes: What Spark estimates the rows at must not be more.

    Raises:
        RowsDoNotAddUpError: The files hold other rows than they were given.
    """
    try:
        count = _rows_at_hand(rows, most_bytes)
        if count is None:
            return None
        batches = rows.toArrow().to_batches()
        given = sum(batch.num_rows for batch in batches)
        if given != count:
            raise RowsDoNotAddUpError(
                f"Spark has {count} rows at hand, and gave {given} of them to the write.",
                hint="This is a defect of the engine; report it with the plan of the rows (df.explain).",
            )
        return run_task(batches, task, partition_id=0)
    except RowsDoNotAddUpError:
        raise
    except (DeltaError, Py4JError, PySparkException, pa.ArrowException, OSError) as error:
        _LOG.debug("a write in the driver's process is left to Spark: %s", type(error).__name__)
        return None


def _rows_at_hand(rows: DataFrame, most_bytes: int) -> int | None:
    """How many rows there are, if the driver has all of them and they are few."""
    if not most_bytes:
        return None
    jvm, execution = Jvm.of(rows.sparkSession), rows._jdf.queryExecution()
    leaves = jvm.to_list(execution.analyzed().collectLeaves())
    if len(leaves) != 1 or _kind(leaves[0]) != _LOCAL:
        return None  # before anything is optimized that would be once more
    plan = execution.optimizedPlan()
    if _kind(plan) != _LOCAL or int(str(plan.stats().sizeInBytes())) > most_bytes:
        return None
    return int(plan.data().size())


def _kind(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())
