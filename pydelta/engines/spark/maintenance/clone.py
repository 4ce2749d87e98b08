"""Copy a table's files under another table's root, many by a Spark job, a few by threads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pydelta.commands.clone import FileCopy, ThreadCopier, open_and_copy
from pydelta.engines.spark.errors import raised_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydelta.log import DeltaLog

__all__ = ["SparkCopier"]

_FEW: Final = 64
_TASK_BYTES: Final = 1024 * 1024 * 1024


class SparkCopier:
    """Copies the files of deep clones.

    Args:
        spark: The session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def copy(self, files: Sequence[FileCopy], *, source: DeltaLog, target: DeltaLog) -> None:
        """See ``commands.clone.Copier``. Storage settings are part of the pickled function."""
        if len(files) <= _FEW:
            ThreadCopier().copy(files, source=source, target=target)
            return
        roots, options = (source.uri, target.uri), dict(source.options)

        def run(batch: Iterable[FileCopy]) -> None:
            open_and_copy(list(batch), source=roots[0], target=roots[1], options=options)

        context = self._spark.sparkContext
        total = sum(item.size for item in files)
        slices = min(len(files), max(context.defaultParallelism * 2, total // _TASK_BYTES))
        try:
            context.parallelize(list(files), slices).foreachPartition(run)
        except (PySparkException, Py4JError) as error:
            ours = raised_in(str(error))
            if ours is None:
                raise
            raise ours from error
