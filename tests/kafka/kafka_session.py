"""Run by ``StreamSession`` in a process of its own: a Spark session with Kafka's connector, which takes orders.

Arguments: jars with commas between, the broker's address, a folder. Each line of standard input is an order in JSON,
each line of the channel (file descriptor 3) a line that a job printed or, with ``done``, what an order gave.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
from importlib import import_module

import pydelta
from pydelta.tools.ingest import apply

jars, address, folder = sys.argv[1:]
channel = os.fdopen(3, "w", buffering=1)
spark = pydelta.session(
    "kafka-tests",
    master="local[2]",
    conf={
        "spark.jars": jars,
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "1500m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    },
)
spark.sparkContext.setLogLevel("OFF")
java = spark._jvm
settings = java.java.util.HashMap()
settings.put("bootstrap.servers", address)
admin_classes = java.org.apache.kafka.clients.admin
admin = admin_classes.Admin.create(settings)


class Lines(io.TextIOBase):
    """Sends what a job prints, as soon as it does."""

    def write(self, text):
        if text.strip():
            channel.write(json.dumps({"line": json.loads(text)}) + "\n")
        return len(text)


def job(name, args, die_after=None):
    """Run a job; ``die_after`` kills the process when the tables have that batch, before Spark notes it as done."""
    done = apply.apply_batch

    def dying(session, decoded, batch, writing):
        counts = done(session, decoded, batch, writing)
        if batch.number == die_after:
            os.kill(os.getpid(), signal.SIGKILL)
        return counts

    apply.apply_batch = dying
    try:
        with contextlib.redirect_stdout(Lines()):
            return import_module(f"jobs.{name}").main(args)
    finally:
        apply.apply_batch = done


def topic(name, partitions):
    """Make a topic."""
    optional = java.java.util.Optional
    new = java.java.util.ArrayList()
    new.add(admin_classes.NewTopic(name, optional.of(partitions), optional.empty()))
    admin.createTopics(new).all().get()


def grow(name, partitions):
    """Add partitions to a topic."""
    new = java.java.util.HashMap()
    new.put(name, admin_classes.NewPartitions.increaseTo(partitions))
    admin.createPartitions(new).all().get()


def send(name, records):
    """Put records, each a key, a value and a partition, into a topic; one after the other."""
    rows = [(key, None if value is None else bytes.fromhex(value), place) for key, value, place in records]
    frame = spark.createDataFrame(rows, "key string, value binary, partition int").coalesce(1)
    frame.write.format("kafka").option("kafka.bootstrap.servers", address).option("topic", name).save()


def rows(table):
    """Read a table."""
    return [json.loads(row) for row in spark.read.format("delta").load(table).toJSON().collect()]


def count(table):
    """Count the rows of a table."""
    return spark.read.format("delta").load(table).count()


def avro(schema, values):
    """Encode records as Avro, in hexadecimal."""
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import to_avro

    frame = spark.createDataFrame([tuple(value) for value in values], "id long, name string").coalesce(1)
    encoded = frame.select(F.hex(to_avro(F.struct("id", "name"), schema)).alias("text"))
    return [row.text for row in encoded.collect()]


ORDERS = {"job": job, "topic": topic, "grow": grow, "send": send, "rows": rows, "count": count, "avro": avro}
channel.write(json.dumps({"done": spark.version}) + "\n")
for order in sys.stdin:
    name, given = json.loads(order)
    channel.write(json.dumps({"done": ORDERS[name](**given)}) + "\n")
