"""Remove the files that a failed job staged, including those of tasks still running when another one failed.

::

    a task succeeds        --> its paths arrive with its accumulator
    the job fails          --> Spark abandons the running tasks, and their results are lost
    they have ended        --> their files are found by the mark in the names of all files of the write
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark import AccumulatorParam
from pyspark.errors import PySparkException

from pydelta.engines.arrow.tasks.write_files import WriteTask
from pydelta.engines.spark.errors import raised_in
from pydelta.engines.spark.write.columns import violation_in
from pydelta.errors import DeltaError, RowsDoNotAddUpError
from pydelta.storage import open_store
from pydelta.storage.discarding import discard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["StagedPaths", "clean_up", "removing_staged"]

_PATIENCE_SECONDS: Final = 5.0
"""Spark kills the Python process of an abandoned task after two seconds."""
_POLL_SECONDS: Final = 0.02
_MOST_LISTED: Final = 100_000
"""In a larger table, files of tasks that were still running are left to VACUUM."""


class StagedPaths(AccumulatorParam[list[str]]):
    """Paths that finished tasks staged. The driver knows them even if the job fails later."""

    def zero(self, value: list[str]) -> list[str]:
        """Return the empty list."""
        return []

    def addInPlace(self, value1: list[str], value2: list[str]) -> list[str]:  # noqa: N802 - pyspark's name
        """Concatenate both lists."""
        return value1 + value2


def clean_up(task: WriteTask, paths: Sequence[str]) -> None:
    """Remove files that finished tasks of a failed job staged. An error here must not hide the original one."""
    if paths:
        try:
            discard(open_store(task.table_uri, task.store_options), paths)
        except OSError as error:
            error.add_note("while removing the files of a failed write")


@contextmanager
def removing_staged(spark: SparkSession, task: WriteTask, staged: Any) -> Iterator[None]:
    """Remove staged files if the job in the block fails, and convert its error to the engine's own if known.

    Args:
        spark: The session.
        task: The task that the job runs.
        staged: Accumulator of the paths, with ``StagedPaths``.
    """
    context, tag = spark.sparkContext, f"pydelta-{task.mark}"
    context.addJobTag(tag)
    try:
        yield
    except RowsDoNotAddUpError as error:
        clean_up(task, staged.value)
        error.hint = f"{error.hint or ''} {_staged_note(len(staged.value))}".strip()
        raise
    except (PySparkException, Py4JError) as error:
        paths = list(dict.fromkeys([*staged.value, *_late(spark, task, tag)]))
        clean_up(task, paths)
        explained = _explained(error, len(paths))
        if explained is None:
            error.add_note(_staged_note(len(paths)))
            raise
        raise explained from error
    finally:
        context.removeJobTag(tag)
        staged.value = []  # PySpark keeps every accumulator until it stops.


def _late(spark: SparkSession, task: WriteTask, tag: str) -> list[str]:
    """Return files of tasks that ended after the job failed; none if only a single task ran."""
    try:
        if not _several_have_ended(spark, tag):
            return []
        objects = open_store(task.table_uri, task.store_options).list_all(task.folder)
        return [item.path for item in itertools.islice(objects, _MOST_LISTED) if f"-{task.mark}" in item.path]
    except (OSError, Py4JError):  # An error here must not hide why the job failed.
        return []


def _several_have_ended(spark: SparkSession, tag: str) -> bool:
    """Wait for the tasks of the jobs with a tag. Returns whether several ran at once."""
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while True:
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForTag(tag)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job.isDefined() for stage in job.get().stageIds()]
        found = [stage.get() for stage in stages if stage.isDefined()]
        if all(stage.numTasks() < 2 for stage in found):
            return False
        if not any(stage.numActiveTasks() for stage in found) or time.monotonic() > give_up:
            return True
        time.sleep(_POLL_SECONDS)


def _explained(error: BaseException, staged: int) -> DeltaError | None:
    """Return the engine's own error inside a failed job, or None if the rows themselves could not be computed."""
    text = str(error)
    found: DeltaError | None = violation_in(text)
    if found is None:
        found = raised_in(text)
        if found is None:
            return None
    found.hint = f"{found.hint or ''} {_staged_note(staged)}".strip()
    return found


def _staged_note(staged: int) -> str:
    """Return a sentence about the files of a failed write."""
    if not staged:
        return "No version was made."
    files = "1 file was" if staged == 1 else f"{staged} files were"
    return f"{files} staged by then and removed again as far as the store allowed; no version was made."
