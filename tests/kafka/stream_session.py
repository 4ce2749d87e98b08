"""Jobs that read Kafka, in a process that can be killed and started again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from importlib.metadata import version
from pathlib import Path

from java_servers import NotToBeHad, fetch

# Two of Spark's packages are published, at times, later than PySpark: the release of each, the best choice first.
RELEASES = ((version("pyspark"), version("pyspark")), ("4.2.0", "4.1.1"))


class StreamSession:
    """A Spark session in a process of its own; ``start`` begins another when that one has died."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address
        jars = folder / "jars"
        _fetch_packages(jars)
        self._jars = ",".join(sorted(map(str, jars.glob("*.jar"))))
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        """Start the process, and wait until it takes orders."""
        read, write = os.pipe()
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        root = str(Path(__file__).parents[2])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))
        script = str(Path(__file__).with_name("kafka_session.py"))
        command = [sys.executable, script, self._jars, self.address, str(self.folder)]
        with (self.folder / "session.log").open("a") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", f'exec 3>&{write}; exec "$@"', "bash", *command],
                stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, pass_fds=(write,), text=True,
            )  # fmt: skip
        os.close(write)
        self._channel = os.fdopen(read)
        assert self._next() is not None, self.said()

    def order(self, order: str, /, **given):
        """Give an order and wait for what it gives."""
        return self.begin(order, **given).result()

    def begin(self, order: str, /, **given) -> Order:
        """Give an order, and do not wait for it."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps([order, given]) + "\n")
        self._process.stdin.flush()
        return Order(self)

    def job(self, name: str, *args: str, **how) -> tuple[int | None, list[dict]]:
        """Run a job: its exit code, or None where the process died, and its lines."""
        order = self.begin("job", name=name, args=list(args), **how)
        return order.result(), order.lines

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._channel.close()
            self._process = None

    def said(self) -> str:
        """The last lines of what it wrote."""
        return "\n".join((self.folder / "session.log").read_text(errors="replace").split("\n")[-30:])

    def _next(self) -> dict | None:
        line = self._channel.readline()
        return json.loads(line) if line else None


class Order:
    """An order that is being carried out."""

    def __init__(self, session: StreamSession) -> None:
        self._session = session
        self.lines: list[dict] = []

    def wait_for_line(self) -> dict:
        """The next line that the job prints."""
        found = self._session._next()
        assert found is not None and "line" in found, (found, self._session.said())
        self.lines.append(found["line"])
        return found["line"]

    def result(self):
        """What the order gave at its end; None where the process died."""
        while (found := self._session._next()) is not None:
            if "done" in found:
                return found["done"]
            self.lines.append(found["line"])
        self._session.stop()
        return None


class Stream:
    """A topic, the tables that a job makes of it, and the arguments of that job."""

    def __init__(self, session, broker, folder, *, partitions):
        self.session, self.topic, self.folder = session, f"t-{uuid.uuid4().hex[:12]}", folder
        self.table, self.bad, self.checkpoint = (str(folder / name) for name in ("table", "bad", "checkpoint"))
        self.arguments = ["--source", "kafka", "--brokers", broker.address, "--topic", self.topic, "--table",
                          self.table, "--checkpoint", self.checkpoint, "--bad-records", self.bad]  # fmt: skip
        session.order("topic", name=self.topic, partitions=partitions)

    def send(self, *records, key=None, partition=None):
        """Each record is a dict (JSON), text, bytes or None; or a pair with its key."""
        given = [record if isinstance(record, tuple) else (key, record) for record in records]
        self.session.order("send", name=self.topic, records=[[key, _hex(value), partition] for key, value in given])

    def run(self, *more, **how):
        """Run the job: exit code, lines of batches, last line."""
        code, lines = self.session.job("ingest_stream", *self.arguments, *more, **how)
        return code, lines[:-1], lines[-1] if lines else None

    def rows(self, table=None):
        return self.session.order("rows", table=table or self.table)


def _hex(value):
    if value is None:
        return None
    data = value if isinstance(value, bytes) else (json.dumps(value) if isinstance(value, dict) else value).encode()
    return data.hex()


def _packages(connector: str, avro: str) -> tuple[str, ...]:
    return (
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{connector}",
        f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{connector}",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
        f"org.apache.spark:spark-avro_2.13:{avro}",
    )


def _fetch_packages(target: Path) -> None:
    first, second = RELEASES
    try:
        fetch(target, *_packages(*first))
    except NotToBeHad:
        fetch(target, *_packages(*second))
