"""A lake for tests of the page's catalog: hostile names and comments, events of lineage, and engines that answer."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

import pydelta
from pydelta.protocol.types import StructType, parse_schema
from pydelta.txn import Operation, start_transaction

__all__ = ["HOSTILE", "FakeEngines", "build_catalog", "engines", "event", "write_events"]

HOSTILE = "<img src=x onerror=alert(1)> & \"quotes\" 'too'"
"""A name, a comment and a value at once."""


def _comment(table: pydelta.LocalTable, comments: dict[str, str], description: str | None = None) -> None:
    """Give columns comments, and the table a description, by a commit of the engine."""
    txn = start_transaction(table._log)
    metadata = txn.snapshot.metadata
    schema = parse_schema(metadata.schema_string)
    fields = tuple(
        field.replace(metadata={**field.metadata, "comment": comments[field.name]}) if field.name in comments else field
        for field in schema.fields
    )
    changed = metadata.replace(schema_string=json.dumps(StructType(fields).to_dict()), description=description)
    txn.update_metadata(changed)
    txn.commit([], Operation(name="CHANGE COLUMN"))


def build_catalog(folder: Path) -> None:
    """Write tables of two databases with the engine."""
    people = pa.table(
        {
            "id": pa.array([1, 2, 3, None], pa.int64()),
            "name": ["Ada", HOSTILE, "Grace", None],
            "password": ["do-not-show", "do-not-show", None, None],
            "city": ["London", None, "New York", "Berlin"],
            "blob": pa.array([b"\x00\xff", b"x" * 100, None, b""], pa.binary()),
            "tags": pa.array([["a"], [HOSTILE], [], None], pa.list_(pa.string())),
        }
    )
    table = pydelta.LocalTable.create(str(folder / "lake" / "people"), people, partition_by=["city"])
    _comment(table, {"id": "The number of a person", "name": HOSTILE}, f"Everybody we know. {HOSTILE}")
    pydelta.LocalTable.create(
        str(folder / "lake" / "secretive"),
        pa.table({"card": ["4111-do-not-show"]}),
        properties={"pydelta.ui.preview": "false"},
    )
    pydelta.LocalTable.create(str(folder / "raw" / "clicks"), {"at": "timestamp", "url": "string"})
    odd = {HOSTILE.replace('"', "`"): "bigint"}
    pydelta.LocalTable.create(
        str(folder / "raw" / "odd"), odd, properties={"delta.columnMapping.mode": "name", "note": HOSTILE}
    )


def event(kind: str, job: str, run: str, at_ms: int, inputs: Any = (), outputs: Any = (), **facets: Any) -> str:
    """An event of OpenLineage, as one line."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_ms // 1000))
    sets = [[{"namespace": space, "name": name} for space, name in each] for each in (inputs, outputs)]
    found = {
        "eventType": kind, "eventTime": f"{moment}.{at_ms % 1000:03d}Z", "run": {"runId": run, "facets": facets},
        "job": {"namespace": "lakehouse", "name": job}, "inputs": sets[0], "outputs": sets[1],
    }  # fmt: skip
    return json.dumps(found)


def write_events(folder: Path, lake: Path) -> None:
    """Write events of jobs: clicks come from Kafka, people from clicks, a report from people; one job fails."""
    folder.mkdir(parents=True, exist_ok=True)
    now = time.time_ns() // 1_000_000
    clicks, people = (("file", str(lake / name)) for name in ("raw/clicks", "lake/people"))
    kafka, report = ("kafka://broker", "clicks"), ("s3://elsewhere", "report")
    failed = {"errorMessage": {"message": "password=hush was refused\nmore", "programmingLanguage": "PYTHON"}}
    lines = [
        event("START", "ingest_stream", "r1", now - 400_000),
        event("RUNNING", "ingest_stream", "r1", now - 300_000, [kafka], [clicks]),
        event("START", "refine", "r2", now - 200_000, [clicks]),
        event("COMPLETE", "refine", "r2", now - 100_000, [clicks], [people]),
        event("START", "refine", "r0", now - 900_000, [clicks]),
        event("COMPLETE", "refine", "r0", now - 800_000, [clicks], [people]),
        event("COMPLETE", "delete.lake.people", "r3", now - 90_000, [people], [people]),
        event("COMPLETE", f"report {HOSTILE}", "r4", now - 80_000, [people], [report]),
        event("START", "compact", "r5", now - 70_000),
        event("FAIL", "compact", "r5", now - 60_000, [people], [], **failed),
        "this is not an event",
    ]
    (folder / "events-2026-11-24.jsonl").write_text("\n".join(lines) + "\n")


def _master(now: int) -> dict[str, Any]:
    """What Spark 4.3's master answers: two applications hold something, one waits, and two ended."""

    def app(number: int, name: str, state: str, cores: int) -> dict[str, Any]:
        return {
            "id": f"app-20261127223302-000{number}", "starttime": now - 600_000 + number, "name": name, "cores": cores,
            "user": "spark", "memoryperexecutor": 768, "memoryperslave": 768, "resourcesperexecutor": [],
            "submitdate": "Fri Nov 27 22:33:02 UTC 2026", "state": state, "duration": 60_000,
        }  # fmt: skip

    return {
        "url": "spark://spark-master:7077", "workers": [], "aliveworkers": 1, "cores": 4, "coresused": 3,
        "memory": 1600, "memoryused": 1536, "status": "ALIVE", "activedrivers": [], "completeddrivers": [],
        "activeapps": [app(0, f"prompt {HOSTILE}", "RUNNING", 2), app(1, "ingest", "RUNNING", 1),
                       app(2, "compact", "WAITING", 0)],
        "completedapps": [app(3, "vacuum", "FINISHED", 2), app(4, "backfill", "KILLED", 2)],
    }  # fmt: skip


def _queries(now: int) -> list[dict[str, Any]]:
    """What Trino answers at /v1/query, as far as the page reads it and some more."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(now / 1000 - 30))
    stats = {"createTime": moment, "elapsedTime": "1.50s", "totalMemoryReservation": "1.5MB"}
    return [
        {"queryId": "20261127_1", "state": "RUNNING", "session": {"user": "ada", "source": "cli"}, "queryStats": stats,
         "query": f"SELECT *\nFROM lake.people WHERE name = '{HOSTILE}' AND token = 'abc123' -- {'long ' * 60}"},
        {"queryId": "20261127_2", "state": "FAILED", "session": {"user": HOSTILE}, "errorType": "USER_ERROR",
         "errorCode": {"code": 1, "name": "SYNTAX_ERROR", "type": "USER_ERROR"}, "query": "SELEC 1",
         "queryStats": {**stats, "endTime": moment}},
    ]  # fmt: skip


def _history(now: int) -> list[dict[str, Any]]:
    """What Spark 4.3's history server answers: an application that the master lists too, and an older one."""

    def attempt(began: int, ended: int) -> dict[str, Any]:
        return {"startTimeEpoch": began, "endTimeEpoch": ended, "sparkUser": "spark", "completed": True, "duration": 1}

    return [
        {"id": "app-20261127223302-0003", "name": "vacuum", "attempts": [attempt(now - 500_000, now - 400_000)]},
        {"id": "app-20261126000000-0000", "name": "yesterday", "attempts": [attempt(now - 9e7, now - 8.9e7)]},
    ]


class FakeEngines:
    """Answers as engines do, by path. A test may replace an answer, or let all wait."""

    def __init__(self) -> None:
        now = time.time_ns() // 1_000_000
        self.answers: dict[str, Any] = {"/json/": _master(now), "/v1/query": _queries(now), "/history": _history(now)}
        self.may, self.headers = threading.Event(), []
        self.may.set()
        self.url = ""

    def option(self, name: str, path: str) -> str:
        """The engine as an option of the command line."""
        return f"{name}={self.url}{path}"


@contextmanager
def engines() -> Iterator[FakeEngines]:
    """Serve the engines on the loopback."""
    found = FakeEngines()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.may.wait(60)
            found.headers.append(dict(self.headers))
            answer = found.answers.get(self.path.partition("?")[0], 404)
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(answer if isinstance(answer, int) else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        found.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield found
        found.may.set()
        server.shutdown()
