"""Plan the hops of the profile ``kafka``: send records to a topic, ingest them with the job, and read the table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from jobs import ingest_stream
from jobs.verify import rows
from jobs.verify.answers import HINTS, reading_hops, same
from jobs.verify.hops import COLUMNS, create_synced
from jobs.verify.plan import Answer, Hop

if TYPE_CHECKING:
    from jobs.verify.lake import Lake

__all__ = ["kafka_hops"]

_RECORDS: Final = 300


def kafka_hops(lake: Lake, brokers: str) -> Iterator[Hop]:
    """Plan a topic for the run, from which ``jobs/ingest_stream.py`` reads records in batches.

    Args:
        lake: Resources of the run.
        brokers: Address of the Kafka brokers.
    """
    yield Hop(name="Kafka", work=lambda: _streamed(lake, brokers), hint=HINTS["kafka"], needs=("load",))
    yield from reading_hops(lake, lake.names.kafka, "Kafka", ("load", "Kafka"))


def _streamed(lake: Lake, brokers: str) -> Answer:
    table, run = lake.names.kafka, lake.names.run
    lake.expected[table] = rows.first_rows(_RECORDS)
    with _topic(lake, brokers, run):
        records = lake.spark.sql(
            f"SELECT CAST(id AS STRING) AS key, to_json(struct(*)) AS value FROM verify_orders WHERE id < {_RECORDS}"
        )
        records.write.format("kafka").option("kafka.bootstrap.servers", brokers).option("topic", run).save()
        create_synced(lake, table)
        arguments = ["--source", "kafka", "--brokers", brokers, "--topic", run, "--schema", COLUMNS]
        arguments += ["--max-per-trigger", str(_RECORDS // 2), "--table", str(table)]
        arguments += ["--checkpoint", f"{lake.place('work')}/checkpoint"]
        found = ingest_stream.run(lake.spark, arguments)
    return same(f"{_RECORDS} records taken", f"{found['rows']} records taken")


@contextmanager
def _topic(lake: Lake, brokers: str, name: str) -> Iterator[None]:
    """Create a topic and delete it afterwards, with Kafka's own client in the JVM."""
    from pydelta.engines.spark.jvm import Jvm

    view: Any = Jvm.of(lake.spark).view
    settings = view.java.util.HashMap()
    settings.put("bootstrap.servers", brokers)
    admin = view.org.apache.kafka.clients.admin.Admin.create(settings)
    empty = view.java.util.Optional.empty
    topics = view.java.util.ArrayList()
    topics.add(view.org.apache.kafka.clients.admin.NewTopic(name, empty(), empty()))
    names = view.java.util.ArrayList()
    names.add(name)
    try:
        admin.createTopics(topics).all().get()
        try:
            yield
        finally:
            admin.deleteTopics(names).all().get()
    finally:
        admin.close()
