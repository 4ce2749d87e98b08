"""Report the loss of rows that a command kept while running as an error of the engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pydelta.errors import DeltaEnvironmentError

__all__ = ["reading_kept"]

_LOST: Final = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"


@contextmanager
def reading_kept(table_uri: str, command: str) -> Iterator[None]:
    """Convert errors of a job that reads rows which a command keeps as a local checkpoint.

    Args:
        table_uri: The table.
        command: What the rows were kept for, such as "the merge".

    Raises:
        DeltaEnvironmentError: The executor that held some of them is gone. The command can be run again.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if _LOST not in str(error):
            raise
        lost = DeltaEnvironmentError(
            f"Rows that {command} kept while it ran were lost with the executor that held them. Nothing was committed.",
            hint=f"Run {command} again. If it happens often, look for executors that are killed for their memory.",
            table=table_uri,
        )
        lost.retryable = True
        raise lost from error
