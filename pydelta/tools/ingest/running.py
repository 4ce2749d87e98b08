"""Run a stream's query to its end: report each batch, stop between batches on request, explain failures.

::

    query --foreachBatch--> apply, under a lock --> counts
    SIGTERM, to this process or the JVM --> the current batch finishes, and no other begins --> the query stops
    an error in a batch, the source or Kafka --> one DeltaError, without the JVM's stack
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException

from pydelta.api.streams.source import QUERY_ID
from pydelta.engines.spark.stopping import Stopping
from pydelta.errors import DeltaError, InvalidArgumentError, StorageError, StreamStoppedError, first_line
from pydelta.tools.ingest.apply import Batch, BatchCounts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["BatchReport", "Stopping", "error_of_spark", "run_stream", "trigger_of"]

_POLL_SECONDS: Final = 0.2
_SETTLE_SECONDS: Final = 20.0
_AWAY: Final = ("TimeoutException", "DisconnectException", "No resolvable bootstrap", "NetworkException")
_GONE: Final = ("KAFKA_DATA_LOSS", "OffsetOutOfRange", "OffsetNotAvailable", "data may have been lost", "DATA_LOSS")
_CAUSE: Final = re.compile(r"terminated with exception: (?P<cause>.*?)(?: SQLSTATE: \w+)?(?:\n|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """The report of a finished batch.

    Args:
        number: Number of the batch.
        counts: Result for its rows.
        seconds: Duration, including planning and checkpoint.
        reached: Position of the source after it, as JSON; None if Spark did not report it.
    """

    number: int
    counts: BatchCounts
    seconds: float
    reached: str | None


def trigger_of(text: str) -> dict[str, Any]:
    """Parse ``available-now``, ``once`` or a number of seconds into arguments of Spark's ``trigger``.

    Raises:
        InvalidArgumentError: It is none of these.
    """
    if text == "available-now":
        return {"availableNow": True}
    if text == "once":
        return {"once": True}
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise InvalidArgumentError(
            f"--trigger is {text!r}.", hint="Write available-now, once, or the seconds between two batches, such as 10."
        )
    return {"processingTime": f"{round(seconds * 1000)} milliseconds"}


class _StopAskedError(Exception):
    """Ends a query before a batch that was planned but not begun."""


@dataclass(slots=True)
class _Batches:
    """Runs the batches of one query, one at a time, until it is stopped."""

    spark: SparkSession
    apply: Callable[[SparkSession, DataFrame, Batch], BatchCounts]
    failed: Exception | None = None
    done: dict[int, BatchCounts] = field(default_factory=dict)
    closed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, rows: DataFrame, number: int) -> None:
        with self.lock:
            if self.closed:
                raise _StopAskedError
            query = str(self.spark.sparkContext.getLocalProperty(QUERY_ID))
            try:
                self.done[number] = self.apply(rows.sparkSession, rows, Batch(query=query, number=number))
            except Exception as error:
                self.failed = error
                raise

    def close(self) -> None:
        with self.lock:  # The current batch holds the lock.
            self.closed = True


def run_stream(
    frame: DataFrame,
    apply: Callable[[SparkSession, DataFrame, Batch], BatchCounts],
    *,
    checkpoint: str,
    trigger: dict[str, Any],
    tell: Callable[[BatchReport], None],
) -> bool:
    """Run a stream until nothing is left, it fails, or it is asked to stop.

    Args:
        frame: A streaming DataFrame.
        apply: Applies each batch.
        checkpoint: Folder of Spark's checkpoint.
        trigger: See ``trigger_of``.
        tell: Receives each finished batch, in order.

    Returns:
        Whether it was asked to stop.

    Raises:
        DeltaError: The reason why it ended.
    """
    spark = frame.sparkSession
    batches, stopping = _Batches(spark, apply), Stopping(spark)
    with stopping.listening():
        try:
            writer = frame.writeStream.foreachBatch(batches.run).option("checkpointLocation", checkpoint)
            query = writer.trigger(**trigger).start()
        except Exception as error:  # noqa: BLE001  any error of Spark is explained
            raise _explained(error, None) from None
        reports = _Telling(query, batches, tell)
        try:
            while not query.awaitTermination(_POLL_SECONDS):  # type: ignore[arg-type]  # PySpark accepts fractions
                reports.tell_new()
                if stopping.asked.is_set():
                    batches.close()
                    _settle(query, batches)
                    break
        except Exception as error:  # noqa: BLE001  any error of Spark is explained
            reports.tell_new(last=True)
            if not batches.closed:
                raise _explained(error, batches.failed) from None
        finally:
            with contextlib.suppress(Exception):
                query.stop()
        reports.tell_new(last=True)
    return batches.closed


def _settle(query: StreamingQuery, batches: _Batches) -> None:
    """Wait until Spark has recorded the last batch as done. Spark may plan another one, which does not begin."""
    give_up = time.monotonic() + _SETTLE_SECONDS
    while query.isActive and time.monotonic() < give_up:
        done = max(batches.done, default=-1)
        if done <= max((progress["batchId"] for progress in _progress(query)), default=-1):
            break
        time.sleep(_POLL_SECONDS / 4)


def _progress(query: StreamingQuery) -> list[dict[str, Any]]:
    return [json.loads(item.json) for item in query.recentProgress]


@dataclass(slots=True)
class _Telling:
    """Reports each batch once, in order, after Spark has recorded it."""

    query: StreamingQuery
    batches: _Batches
    tell: Callable[[BatchReport], None]
    next: int = -1

    def tell_new(self, *, last: bool = False) -> None:
        """Report new batches. With ``last``, include one that Spark has not recorded as done."""
        new = sorted(number for number in self.batches.done if number >= self.next)
        if not new:
            return
        noted = {found["batchId"]: found for found in _progress(self.query)}
        for number in new:
            progress = noted.get(number)
            if progress is None and not last:
                return
            durations = (progress or {}).get("durationMs", {})
            sources = (progress or {}).get("sources", [])
            reached = sources[0].get("endOffset") if sources else None
            if reached is not None and not isinstance(reached, str):
                reached = json.dumps(reached)
            self.next = number + 1
            self.tell(
                BatchReport(
                    number=number,
                    counts=self.batches.done[number],
                    seconds=round(durations.get("triggerExecution", 0) / 1000, 3),
                    reached=reached,
                )
            )


def _explained(error: Exception, failed: Exception | None) -> DeltaError:
    """Convert the error that ended a query to an error of this engine."""
    for found in (failed, error):
        if isinstance(found, DeltaError):
            return found
    text = _text(failed or error)
    if any(word in text for word in _GONE):
        return StreamStoppedError(
            f"Records are gone from Kafka before they were read: {_cause(text)}",
            hint="To go on with what there is, give --option failOnDataLoss=false.",
        )
    if any(word in text for word in _AWAY):
        return StorageError(
            f"Kafka did not answer: {_cause(text)}",
            retryable=True,
            hint="Run the job again when the broker runs: it goes on where it was, and no row is lost or doubled.",
        )
    what = "A batch failed" if failed is not None else "The stream stopped"
    hint = "Correct the cause and run the job again: it begins with the batch that failed, and writes it once."
    return StreamStoppedError(f"{what}: {_cause(text)}", hint=hint)


def _text(error: Exception) -> str:
    """Return the message of an error or, for one from the JVM, of its deepest cause."""
    if not isinstance(error, Py4JJavaError):
        return str(error)
    found = error.java_exception
    while found.getCause() is not None:
        found = found.getCause()
    return str(found.toString())


def _cause(text: str) -> str:
    found = _CAUSE.search(text)
    line = found["cause"] if found is not None else first_line(text)
    return re.sub(r"^(?:[a-z]\w*\.)+([A-Z]\w*): ", "", line)[:500]


def error_of_spark(error: Exception, what: str, hint: str) -> DeltaError:
    """Convert an error of Spark to one of this engine, without the JVM's stack."""
    if isinstance(error, DeltaError):
        return error
    kind = InvalidArgumentError if isinstance(error, PySparkException) else StreamStoppedError
    assert not isinstance(error, StreamingQueryException)
    return kind(f"{what}: {_cause(_text(error))}", hint=hint)
