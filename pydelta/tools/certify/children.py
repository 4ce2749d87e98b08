"""Start the processes of a plan, kill those that must die, restart them, and collect their output.

Only processes started by this module are ended, each by its own handle.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Final

import msgspec

from pydelta.errors import DeltaEnvironmentError
from pydelta.errors.redaction import hide_text
from pydelta.tools.certify.history import CertifyPlan, Event, Process, Row
from pydelta.tools.certify.trino import TrinoTable
from pydelta.tools.certify.worker import Line, WorkerOrder

__all__ = ["Crew", "read_in_process"]

_LIVES: Final = 20
"""Maximum number of times that a process is started."""
_GRACE_SECONDS: Final = 300.0
"""Seconds that a running operation has after the deadline. Then its process counts as hung and is killed."""


@dataclass(slots=True)
class _Child:
    """A process of the plan, including its restarts."""

    plan: Process
    ready: threading.Event = field(default_factory=threading.Event)
    events: list[Event] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    process: subprocess.Popen[bytes] | None = None
    crashed: str = ""


class Crew:
    """The processes of a plan.

    Args:
        plan: The processes and their operations.
        uri: Location of the table.
        options: Options of the store, as the processes see it. They may hold secrets.
        trino: The table in Trino, if processes write it with Trino.
    """

    def __init__(
        self, plan: CertifyPlan, uri: str, options: Mapping[str, str], trino: TrinoTable | None = None
    ) -> None:
        self._uri, self._options, self._trino = uri, dict(options), trino
        self._children = [_Child(plan=process) for process in plan.processes]
        self._go = threading.Event()
        self._deadline_ns = 0
        self._killing = threading.Lock()
        self._over = False

    def run(self, seconds: float) -> None:
        """Start all processes at the same moment, and wait until they are done.

        Args:
            seconds: Time after which no operation begins.

        Raises:
            DeltaEnvironmentError: A process did not start.
        """
        threads = [threading.Thread(target=self._live, args=(child,), daemon=True) for child in self._children]
        for thread in threads:
            thread.start()
        try:
            for child in self._children:
                child.ready.wait()
            self._refuse_crashed(started=False)
            self._deadline_ns = time.monotonic_ns() + int(seconds * 1e9)
            self._go.set()
            until = time.monotonic() + seconds + _GRACE_SECONDS
            for thread in threads:
                thread.join(max(until - time.monotonic(), 0.0))
        finally:
            self._end()
        for thread in threads:
            thread.join()
        self._refuse_crashed(started=True)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events, in the order in which they began."""
        return tuple(sorted((event for child in self._children for event in child.events), key=_begun))

    @property
    def faults(self) -> Counter[str]:
        """The number of injected faults by kind."""
        return sum((child.faults for child in self._children), Counter[str]())

    def _refuse_crashed(self, *, started: bool) -> None:
        for child in self._children:
            if child.crashed:
                when = "ended by itself" if started else "did not start"
                raise DeltaEnvironmentError(
                    f"Process {child.plan.number} ({child.plan.engine}) {when}: {child.crashed}",
                    hint="pydelta doctor says what this machine lacks; nothing is known about the store.",
                )

    def _end(self) -> None:
        with self._killing:
            self._over = True
            self._go.set()
            for child in self._children:
                if child.process is not None and child.process.poll() is None:
                    child.process.kill()

    def _live(self, child: _Child) -> None:
        order = WorkerOrder(
            uri=self._uri,
            options=self._options,
            process=child.plan.number,
            engine=child.plan.engine,
            steps=child.plan.steps,
            faults=child.plan.faults,
            trino=self._trino,
        )
        try:
            for _ in range(_LIVES):
                following = self._life(child, order)
                if following is None:
                    return
                order = following
        except OSError as error:
            child.crashed = child.crashed or f"it could not be started: {error}"
        finally:
            child.ready.set()

    def _life(self, child: _Child, order: WorkerOrder) -> WorkerOrder | None:
        """Run a process until it ends. Returns the order for its next life, or None."""
        with tempfile.TemporaryFile() as errors:
            with self._killing:
                if self._over:
                    return None
                process = child.process = _start(errors)
            assert process.stdin is not None and process.stdout is not None
            timers: list[threading.Timer] = []
            pending: Event | None = None
            last: Event | None = None
            calls = order.calls
            try:
                _tell(process, msgspec.json.encode(order))
                for text in process.stdout:
                    line = _decoded(text)
                    if line.ready:
                        child.ready.set()
                        self._go.wait()
                        _tell(process, str(self._deadline_ns).encode())
                    elif line.invoke is not None:
                        pending = last = line.invoke
                        timers += self._kill_later(child, process, pending)
                    elif line.event is not None:
                        child.events.append(line.event)
                        pending, last = None, line.event
                    elif line.fault is not None:
                        child.faults[line.fault.kind] += 1
                        calls = line.fault.call + 1
            finally:
                for timer in timers:
                    timer.cancel()
                process.stdin.close()
                process.wait()
            if pending is not None:
                child.events.append(pending)
            if process.returncode == 0:
                return None
            if process.returncode < 0 and process.returncode != -signal.SIGKILL and child.ready.is_set():
                child.faults[f"{child.plan.engine} crashed ({signal.Signals(-process.returncode).name})"] += 1
            elif process.returncode != -signal.SIGKILL:
                child.crashed = _last_line(errors) or f"exit code {process.returncode}"
                return None
            return _left(order, last, calls=calls, again=pending)

    def _kill_later(self, child: _Child, process: subprocess.Popen[bytes], event: Event) -> list[threading.Timer]:
        """Start timers that kill the process the planned number of milliseconds after an operation began."""

        def kill() -> None:
            with self._killing:
                if process.poll() is None:
                    child.faults["killed"] += 1
                    process.kill()

        if event.attempt > 1:
            return []
        found = [threading.Timer(ms / 1000, kill) for op, ms in child.plan.kills if op == event.step.op]
        for timer in found:
            timer.start()
        return found


def _left(order: WorkerOrder, last: Event | None, *, calls: int, again: Event | None) -> WorkerOrder | None:
    """Return what a restarted process takes over from the dead one. A stream repeats the batch in which it died."""
    place = [step.op for step in order.steps].index(last.step.op) + 1 if last is not None else 0
    attempt = 1
    if again is not None and again.step.kind == "stream":
        place, attempt = place - 1, again.attempt + 1
    if place >= len(order.steps):
        return None
    faults = tuple(fault for fault in order.faults if fault.call >= calls)
    return msgspec.structs.replace(order, steps=order.steps[place:], faults=faults, calls=calls, attempt=attempt)


def _begun(event: Event) -> int:
    return event.invoked_ns


def _start(errors: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "pydelta.tools.certify.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def _tell(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(line + b"\n")
        process.stdin.flush()
    except BrokenPipeError:  # The process died; its return code says how.
        return


def _decoded(text: bytes) -> Line:
    try:
        return msgspec.json.decode(text, type=Line)
    except msgspec.DecodeError:  # This is the cut-off last line of a killed process, or output of a library.
        return Line()


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return hide_text(lines[-1])[:500] if lines else ""


def read_in_process(order: WorkerOrder) -> tuple[tuple[Row, ...] | None, str]:
    """Read a version in a separate process. Returns its rows, or None and the reason."""
    with tempfile.TemporaryFile() as errors:
        process = _start(errors)
        try:
            output, _ = process.communicate(msgspec.json.encode(order) + b"\n", timeout=_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return None, "it did not answer"
        lines: Sequence[Line] = [_decoded(text) for text in output.splitlines()]
        for line in lines:
            if line.rows is not None or line.error:
                return line.rows, line.error
        return None, _last_line(errors) or f"exit code {process.returncode}"
