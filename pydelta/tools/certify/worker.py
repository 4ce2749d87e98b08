"""Run one process of a plan: read an order and a deadline on standard input, write a line per event on standard output.

Each invocation is written before it runs, so that an operation in which the process dies is still recorded.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any, Protocol

import msgspec

from pydelta.settings.clock import epoch_ms
from pydelta.tools.certify.faults import Faults, with_faults
from pydelta.tools.certify.history import Event, Fault, PlannedStep, Row
from pydelta.tools.certify.local_worker import Failed, LocalWorker, StepDone
from pydelta.tools.certify.trino import TrinoTable

__all__ = ["Line", "WorkerOrder", "main"]


class WorkerOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An order for one process. It holds the store's options, including secrets, so it only travels through a pipe.

    Args:
        uri: Location of the table.
        options: Options of its store.
        process: Number of the process.
        engine: The engine that it writes with.
        steps: Operations to run.
        faults: Faults to inject.
        calls: Store calls made by earlier lives of this process.
        attempt: Attempt number of the first step.
        read_version: If set, the process only reads this version and ends.
        trino: The table, for a process of Trino.
    """

    uri: str
    options: dict[str, str]
    process: int
    engine: str = "pydelta"
    steps: tuple[PlannedStep, ...] = ()
    faults: tuple[Fault, ...] = ()
    calls: int = 0
    attempt: int = 1
    read_version: int | None = None
    trino: TrinoTable | None = None


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line that a process writes: an operation that begins, its outcome, or an injected fault."""

    ready: bool = False
    invoke: Event | None = None
    event: Event | None = None
    fault: Fault | None = None
    rows: tuple[Row, ...] | None = None
    error: str = ""


class _Worker(Protocol):
    def run(self, step: PlannedStep) -> StepDone: ...

    def failure(self, error: Exception) -> Failed: ...

    def close(self) -> None: ...


_SAYING = threading.Lock()


def _say(line: Line) -> None:
    with _SAYING:
        sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
        sys.stdout.buffer.flush()


def _worker(order: WorkerOrder) -> _Worker:
    if order.engine == "spark":
        from pydelta.tools.certify.spark_worker import SparkWorker

        return SparkWorker(order.uri, order.options, order.process)
    if order.engine == "delta-rs":
        from pydelta.tools.certify.delta_rs import DeltaRsWorker

        return DeltaRsWorker(order.uri, order.options, order.process)
    if order.engine == "trino":
        from pydelta.tools.certify.trino_worker import TrinoWorker

        assert order.trino is not None, "it is registered before the processes begin"
        return TrinoWorker(order.trino, order.uri, order.options)
    faults = Faults(order.faults, order.calls, lambda fault: _say(Line(fault=fault)))
    return LocalWorker(order.uri, with_faults(order.uri, order.options, faults), order.process)


def _do(worker: _Worker, step: PlannedStep, order: WorkerOrder, attempt: int) -> Event:
    known: dict[str, Any] = {
        "step": step,
        "process": order.process,
        "engine": order.engine,
        "attempt": attempt,
        "invoked_ns": time.monotonic_ns(),
        "wall_ms": epoch_ms(),
    }
    _say(Line(invoke=Event(**known, returned_ns=None, outcome="unknown")))
    try:
        done = worker.run(step)
    except Exception as error:  # noqa: BLE001 - every error of an operation is part of the history
        failed = worker.failure(error)
        outcome = "failed" if failed.known else "unknown"
        known |= {"trouble": failed.trouble, "error": failed.error}
        return Event(**known, returned_ns=time.monotonic_ns(), outcome=outcome)  # type: ignore[arg-type]
    details = {"version": done.version, "rows": done.rows, "target": done.target}
    return Event(**known, **details, returned_ns=time.monotonic_ns(), outcome="ok")  # type: ignore[arg-type]


def main() -> None:
    """Read the order and carry it out."""
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=WorkerOrder)
    worker = _worker(order)
    if order.read_version is not None:
        _say(_read(worker, order.read_version))
        return
    _say(Line(ready=True))
    deadline_ns = int(sys.stdin.buffer.readline() or b"0")  # All processes begin when this line arrives.
    attempt = order.attempt
    for step in order.steps:
        while time.monotonic_ns() < deadline_ns:
            event = _do(worker, step, order, attempt)
            _say(Line(event=event))
            again = step.kind == "stream" and event.outcome != "ok" and attempt < 5  # A stream retries its batch.
            attempt = attempt + 1 if again else 1
            if not again:
                break
    worker.close()


def _read(worker: Any, version: int) -> Line:
    try:
        return Line(rows=worker.read(version))
    except Exception as error:  # noqa: BLE001 - an engine that cannot read is a finding
        return Line(error=worker.failure(error).error)
    finally:
        worker.close()


if __name__ == "__main__":
    main()
    os._exit(0)  # Threads of native libraries that are still running could abort the process at a normal exit.
