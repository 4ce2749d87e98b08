"""Feed a table from Kafka: the rate that this machine sustains, then the lag at half of that rate, for ten minutes.

``BENCH_MINUTES`` (10) says how long. The broker and Kafka's own producer of loads run from their jars on this machine,
and share its processor with the job.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / part) for part in ("", "kafka")]

from java_servers import fetch, java  # noqa: E402
from kafka_broker import KAFKA, KafkaBroker  # noqa: E402
from stream_session import Stream, StreamSession  # noqa: E402

MINUTES = float(os.environ.get("BENCH_MINUTES", "10"))
FIRST = 600_000  # records that are there when the job begins
A_BATCH = 100_000
TOOLS = f"org.apache.kafka:kafka-tools:{KAFKA.rsplit(':', 1)[1]}"
SCHEMA = "id BIGINT, customer STRING, amount DOUBLE, at TIMESTAMP"


def run() -> dict[str, Any]:
    """Records a second that the job drains; then its lag and the seconds of its batches at half of that."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        broker = KafkaBroker(_made(root / "broker"))
        session = None
        try:
            session = StreamSession(_made(root / "session"), broker.address)
            stream = Stream(session, broker, root, partitions=2)
            load = _Load(root, broker.address, stream.topic)
            stream.arguments += ["--schema", SCHEMA]
            load.start(FIRST, per_second=-1).wait()
            sustained = _drained(stream)
            rate = int(sustained / 2)
            return {"drained, records/s": int(sustained), "sent, records/s": rate, **_followed(stream, load, rate)}
        finally:
            if session is not None:
                session.stop()
            broker.stop()


def _drained(stream: Stream) -> float:
    code, lines, last = stream.run("--max-per-trigger", str(A_BATCH))
    assert code == 0 and last["written"] == FIRST, (code, last)
    warm = lines[1:]
    return float(sum(line["written"] for line in warm) / sum(line["seconds"] for line in warm))


def _followed(stream: Stream, load: _Load, rate: int) -> dict[str, Any]:
    records = int(rate * MINUTES * 60)
    order = stream.session.begin(
        "job", name="ingest_stream", args=[*stream.arguments, "--trigger", "2", "--max-per-trigger", str(A_BATCH)]
    )
    sending, began = load.start(records, per_second=rate), time.monotonic()
    lags: list[tuple[float, int]] = []
    seconds = []
    written = 0
    while written < records:
        line = order.wait_for_line()
        assert "batch" in line, line
        written += line["written"]
        lags.append(((time.monotonic() - began) / 60, line["lag"]))
        seconds.append(line["seconds"])
    sending.wait()
    stream.session.signal(signal.SIGTERM)
    assert order.result() == 0
    found = stream.session.order("count", table=stream.table)
    minutes = range(int(MINUTES))
    by_minute = [[lag for at, lag in lags if minute <= at < minute + 1] for minute in minutes]
    return {
        "records sent and written": records,
        "records in the table": found - FIRST,
        "batches": len(seconds),
        "batch p50 s": round(statistics.median(seconds), 2),
        "batch p95 s": round(statistics.quantiles(seconds, n=20)[-1], 2),
        "lag by minute, median records": [int(statistics.median(part)) if part else None for part in by_minute],
    }


class _Load:
    """Kafka's own producer of loads."""

    def __init__(self, folder: Path, address: str, topic: str) -> None:
        self._folder, self._address, self._topic = folder, address, topic
        fetch(folder / "tools", TOOLS, "org.slf4j:slf4j-simple:1.7.36", dependencies=True)
        self._payload = folder / "payload"
        rows = (
            {"id": number, "customer": f"customer-{number % 9973}", "amount": number / 7, "at": "2026-01-01T00:00:00Z"}
            for number in range(10_000)
        )
        self._payload.write_text("\n".join(map(json.dumps, rows)))

    def start(self, records: int, *, per_second: int) -> subprocess.Popen[bytes]:
        """Send that many, at most so many a second (-1: as fast as it goes)."""
        command = [
            java(), "-Xmx200m", "-XX:+UseSerialGC", "-cp", f"{self._folder / 'tools'}/*",
            "org.apache.kafka.tools.ProducerPerformance", "--topic", self._topic, "--num-records", str(records),
            "--payload-file", str(self._payload), "--throughput", str(per_second),
            "--producer-props", f"bootstrap.servers={self._address}",
        ]  # fmt: skip
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
