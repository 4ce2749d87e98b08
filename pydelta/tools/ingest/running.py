"""Run a stream's query to its end: tell of each batch, stop when asked between two batches, say why it failed.

::

    query --foreachBatch--> apply, under a lock --> counts
    SIGTERM, to this process or the JVM's --> the batch under way is finished, no other begins --> the query stops
    an error of a batch, of the source, of Kafka --> one DeltaError, without the JVM's stack
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
    """What is told of a batch that is done.

    Args:
        number: Of the batch.
        counts: What became of its rows.
        seconds: How long it took, planning and checkpoint included.
        reached: Where the source stands after it, as JSON; None where Spark did not say.
    """

    number: int
    counts: BatchCounts
    seconds: float
    reached: str | None


def trigger_of(text: str) -> dict[str, Any]:
    """Read ``available-now``, ``once`` or a number of seconds as arguments of Spark's ``trigger``.

    Raises:
        InvalidArgumentError: It is none of them.
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
    """Ends a query before a batch that it has planned and not begun."""


@dataclass(slots=True)
class _Batches:
    """Runs the batches of one query, one at a time, until it is asked to stop."""

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
        with self.lock:  # the batch under way holds it
            self.closed = True


def run_stream(
    frame: DataFrame,
    apply: Callable[[SparkSession, DataFrame, Batch], BatchCounts],
    *,
    checkpoint: str,
    trigger: dict[str, Any],
    tell: Callable[[BatchReport], None],
) -> bool:
    """Run a stream until there is nothing left, it fails or it is asked to stop.

    Args:
        frame: A streaming DataFrame.
        apply: Takes each batch.
        checkpoint: Folder of Spark's notes.
        trigger: See ``trigger_of``.
        tell: Gets each batch that is done, in order.

    Returns:
        Whether it was asked to stop.

    Raises:
        DeltaError: What ended it.
    """
    spark = frame.sparkSession
    batches, stopping = _Batches(spark, apply), Stopping(spark)
    with stopping.listening():
        try:
            writer = frame.writeStream.foreachBatch(batches.run).option("checkpointLocation", checkpoint)
            query = writer.trigger(**trigger).start()
        except Exception as error:  # noqa: BLE001  whatever Spark says, explained
            raise _explained(error, None) from None
        told = _Telling(query, batches, tell)
        try:
            while not query.awaitTermination(_POLL_SECONDS):  # type: ignore[arg-type]  # it takes fractions
                told.tell_new()
                if stopping.asked.is_set():
                    batches.close()
                    _settle(query, batches)
                    break
        except Exception as error:  # noqa: BLE001  the same
            told.tell_new(last=True)
            if not batches.closed:
                raise _explained(error, batches.failed) from None
        finally:
            with contextlib.suppress(Exception):
                query.stop()
        told.tell_new(last=True)
    return batches.closed


def _settle(query: StreamingQuery, batches: _Batches) -> None:
    """Wait until Spark has noted the last batch as done; it may plan another one, which does not begin."""
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
    """Tells of each batch once, in order, when Spark has noted it."""

    query: StreamingQuery
    batches: _Batches
    tell: Callable[[BatchReport], None]
    next: int = -1

    def tell_new(self, *, last: bool = False) -> None:
        """Tell of batches that are new; with ``last``, also of one that Spark has not noted as done."""
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
            self.next = number + 1
            self.tell(
                BatchReport(
                    number=number,
                    counts=self.batches.done[number],
                    seconds=round(durations.get("triggerExecution", 0) / 1000, 3),
                    reached=None if reached is None else reached if isinstance(reached, str) else json.dumps(reached),
                )
            )


def _explained(error: Exception, failed: Exception | None) -> DeltaError:
    """The error of ours that stands for what ended a query."""
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
    hint = "Mend the cause and run the job again: it begins with the batch that failed, and writes it once."
    return StreamStoppedError(f"{what}: {_cause(text)}", hint=hint)


def _text(error: Exception) -> str:
    """What an error says; one of the JVM's, what the deepest of its causes says."""
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
    """Return an error of Spark's as one of ours, without the JVM's stack."""
    if isinstance(error, DeltaError):
        return error
    kind = InvalidArgumentError if isinstance(error, PySparkException) else StreamStoppedError
    assert not isinstance(error, StreamingQueryException)
    return kind(f"{what}: {_cause(_text(error))}", hint=hint)
