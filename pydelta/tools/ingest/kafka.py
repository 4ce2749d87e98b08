"""Ask Kafka whether the topics of a stream exist, and where they end.

Spark's Kafka connector contains Kafka's client, which this module uses through the JVM.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError

from pydelta.engines.spark.jvm import Jvm
from pydelta.errors import InvalidArgumentError, StorageError
from pydelta.tools.ingest.sources import KAFKA_CLASS, need_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydelta.tools.ingest.sources import RecordSource

__all__ = ["KafkaEnds", "cannot_reach"]

_PREFIX: Final = "kafka."
_TIMEOUT_MS: Final = "10000"
_BATCH_SECONDS: Final = 5


def cannot_reach(brokers: str, why: str) -> StorageError:
    """Return the error for a broker that does not answer."""
    return StorageError(
        f"Kafka at {brokers} does not answer: {why}",
        retryable=True,
        hint="Check --brokers and that the broker runs, then run the job again: it goes on where it was.",
    )


class KafkaEnds:
    """A connection that knows where topics end.

    Args:
        spark: The session.
        source: Topics and brokers.

    Raises:
        DeltaEnvironmentError: The connector is not on the class path.
        StorageError: No broker answers.
        InvalidArgumentError: A topic does not exist, or an option is wrong.
    """

    def __init__(self, spark: SparkSession, source: RecordSource) -> None:
        need_package(spark, KAFKA_CLASS)
        self._jvm = Jvm.of(spark)
        self._brokers = source.brokers
        self._topics = [name.strip() for name in source.name.split(",")]
        self._admin = self._connect(source.options)
        try:
            self._check_topics()
        except BaseException:
            self.close()
            raise

    def _connect(self, options: Mapping[str, str]) -> Any:
        given = {name.removeprefix(_PREFIX): text for name, text in options.items() if name.startswith(_PREFIX)}
        settings = self._jvm.view.java.util.HashMap()
        own = {"request.timeout.ms": _TIMEOUT_MS, "default.api.timeout.ms": _TIMEOUT_MS}
        for name, value in {**own, **given, "bootstrap.servers": self._brokers}.items():
            settings.put(name, value)
        try:
            return self._jvm.view.org.apache.kafka.clients.admin.Admin.create(settings)
        except Py4JJavaError as error:
            raise InvalidArgumentError(
                f"Kafka's client refuses its settings: {_deepest(error)}",
                hint="Check --brokers (HOST:PORT, with commas between several) and the options kafka.*.",
            ) from None

    def _check_topics(self) -> None:
        try:
            there = set(self._admin.listTopics().names().get())
        except Py4JJavaError as error:
            raise cannot_reach(self._brokers, _deepest(error)) from None
        missing = [name for name in self._topics if name not in there]
        if missing:
            shown = ", ".join(sorted(there)[:10]) or "none"
            raise InvalidArgumentError(
                f"Kafka at {self._brokers} has no topic {', '.join(missing)}.",
                hint=f"Create it first, or check --topic. Topics that are there: {shown}.",
            )

    def behind(self, reached: str) -> int | None:
        """Count the records between the end of a batch and the ends of the topics; None if Kafka does not answer.

        Args:
            reached: End offset of a batch, as Spark reports it.
        """
        offsets = {
            (topic, int(number)): int(offset)
            for topic, parts in json.loads(reached).items()
            for number, offset in parts.items()
        }
        view = self._jvm.view
        wanted = view.java.util.HashMap()
        kafka = view.org.apache.kafka
        latest = kafka.clients.admin.OffsetSpec.latest()
        places = {place: kafka.common.TopicPartition(*place) for place in offsets}
        for place in places.values():
            wanted.put(place, latest)
        try:
            seconds = view.java.util.concurrent.TimeUnit.SECONDS
            ends = self._admin.listOffsets(wanted).all().get(_BATCH_SECONDS, seconds)
            return sum(int(ends.get(places[place]).offset()) - offset for place, offset in offsets.items())
        except Py4JJavaError:
            return None  # The broker is away, but the result of the batch does not depend on it.

    def close(self) -> None:
        """Close the connection."""
        self._admin.close()


def _deepest(error: Py4JJavaError) -> str:
    found = error.java_exception
    while found.getCause() is not None:
        found = found.getCause()
    return str(found.getMessage() or found.getClass().getSimpleName()).split("\n", 1)[0]
