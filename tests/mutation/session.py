"""Runs the tests of a module that need a Spark session, once for each mutant of it.

::

    SessionRunner --a module's text--> worker: pytest, with the session started --fork--> child: the tests
                  <--the test that failed--------------------------------------------------- ends

To start a session takes longer than most tests, so a worker starts one and no test runs in the worker itself. Its
children share the JVM: each opens connections of its own, answers the JVM's calls itself, and has the mutant put in the
place of the loaded module. A mutant runs the tests that reach its lines, those first that noticed its neighbours. One
that does not end takes its worker along.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from tests.mutation.in_place import put
from tests.mutation.operators import Mutant, marked
from tests.mutation.runner import Outcome, importers_of

_PROBE = "tests/mutation/probe.py"
_TICKS = os.sysconf("SC_CLK_TCK")
_MUTANTS_OF_A_WORKER = 200
_COLD = 120
"""Seconds of the processor that a test may take more in a new session, whose JVM has compiled nothing yet."""
_MARK = "_reached_by_a_test"
_OWN_THREADS = ("polars", "tokio", "rayon")
_LEFT_OUT = frozenset({"delta_rs_reads_every_table"})
"""Fixtures that every test has and that take longer than it: to read each table by another engine is not its point."""


class SessionRunner:
    """Runs mutants of one module, one at a time.

    Args:
        tree: A copy of the project.
        path: The module's file, relative to the tree.
        tests: What pytest is to run.
        scratch: A folder for output.
        spare: Seconds of the processor that a mutant has beyond four times what its tests take as it is.
    """

    def __init__(self, tree: Path, path: str, tests: Sequence[str], scratch: Path, *, spare: float = 20) -> None:
        self._tree, self._path, self._tests, self._scratch, self._spare = tree, path, tuple(tests), scratch, spare
        self._worker: _Worker | None = None
        self._source = ""
        self._seconds: dict[str, float] = {}
        self._lines: dict[str, frozenset[int]] = {}
        self._kills: dict[str, int] = {}

    def baseline(self) -> Outcome:
        """Runs the tests on the module as it is, and notes what each takes and which lines it reaches."""
        self._source = (self._tree / self._path).read_text()
        found = self._ask({"source": self._source, "tests": None, "record": True, "rebuild": True}, 1800)
        self._seconds = found.get("seconds", {})
        self._lines = {test: frozenset(lines) for test, lines in found.get("lines", {}).items()}
        return _outcome(found)

    def run(self, mutants: Sequence[tuple[Any, Callable[[], str]]]) -> Iterator[tuple[Any, Outcome]]:
        """Yields each mutant with what became of it, those first whose tests take less."""
        ordered = sorted(mutants, key=lambda item: sum(self._seconds[test] for test in self._tests_of(item[0])))
        try:
            for number, (mutant, source) in enumerate(ordered, 1):
                tests = self._tests_of(mutant)
                limit = 4 * sum(self._seconds[test] for test in tests) + self._spare
                asked = {"source": source(), "tests": tests, "rebuild": mutant.reach is None}
                outcome = self._judge(asked, limit) if tests else Outcome(survived=True, by="", cpu=0)
                if not outcome.survived:
                    self._kills[outcome.by] = number
                yield mutant, outcome
        finally:
            self._stop()

    def _judge(self, request: dict[str, Any], limit: float) -> Outcome:
        """Try a mutant. Only a test that fails on it alone, too, and passes on the module as it is has noticed it.

        Tests share a session: one may fail because of those before it, because of its own run before, or because a
        mutant has spoilt the session. In the last case a new session decides.
        """
        tests = request["tests"]
        while tests:
            outcome = _outcome(self._ask({**request, "tests": tests}, limit))
            test = outcome.by
            if test not in self._seconds:
                return outcome
            unchanged = {**request, "source": self._source}
            if not self._passes(request, test):
                if self._passes(unchanged, test):
                    return outcome
                self._stop()
                is_noticed = self._passes(unchanged, test, _COLD) and not self._passes(request, test, _COLD)
                self._stop()
                if is_noticed:
                    return outcome
            tests = tests[tests.index(test) + 1 :]  # Those before it have passed.
        return Outcome(survived=True, by="", cpu=0)

    def _passes(self, request: dict[str, Any], test: str, more: float = 0) -> bool:
        """Run one test on the module of a request, and return whether it passes. ``more`` raises its limit, seconds."""
        limit = 4 * self._seconds[test] + self._spare + more
        return _outcome(self._ask({**request, "tests": [test]}, limit)).survived

    def _tests_of(self, mutant: Mutant) -> list[str]:
        reach = mutant.reach
        found = [test for test, lines in self._lines.items() if reach is None or not lines.isdisjoint(reach)]
        return sorted(found, key=lambda test: (-self._kills.get(test, 0), self._seconds[test]))

    def _ask(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        if self._worker is None or self._worker.asked >= _MUTANTS_OF_A_WORKER:
            self._stop()
            self._worker = _Worker(self._tree, self._path, self._tests, self._scratch)
        found = self._worker.ask(request, limit)
        if found.get("end"):
            self._stop()
        return found

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()
            self._worker = None


def _outcome(found: dict[str, Any]) -> Outcome:
    by = found.get("end") or found["failed"]
    return Outcome(survived=not by, by=by, cpu=found["cpu"])


class _Worker:
    """A process with a session, seen from outside."""

    def __init__(self, tree: Path, path: str, tests: Sequence[str], scratch: Path) -> None:
        ask, self._ask = os.pipe()
        self._tell, tell = os.pipe()
        self._output = scratch / "worker.out"
        self._base = scratch / "worker.tmp"
        command = [sys.executable, "-m", "tests.mutation.session", str(ask), str(tell), path, str(self._base), *tests]
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                command, cwd=tree, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=(ask, tell)
            )
        os.close(ask)
        os.close(tell)
        self._answers: IO[str] = os.fdopen(self._tell)
        self.asked = 0
        self._jvm: int = self._answer()["jvm"]

    def ask(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        """Have a text tried. ``end`` says what else ended it."""
        self.asked += 1
        before, began = _cpu(self._jvm), time.monotonic()
        _write(self._ask, request)
        child = self._answer()["child"]
        while not select.select([self._answers], [], [], 0.2)[0]:
            spent = _cpu(self._jvm) - before + _cpu(child)
            if spent > limit or time.monotonic() - began > 60 + 10 * limit:
                _kill(child)
                return {"end": "the limit of time", "cpu": spent}
        found = self._answer()
        found["cpu"] += _cpu(self._jvm) - before
        return found

    def _answer(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            self.stop()
            raise RuntimeError(f"The process with the session has ended:\n{self._output.read_text()[-4000:]}")
        found: dict[str, Any] = json.loads(line)
        return found

    def stop(self) -> None:
        """End the process and its JVM."""
        os.close(self._ask)
        self._process.kill()
        self._process.wait()
        self._answers.close()
        shutil.rmtree(self._base, ignore_errors=True)


def _write(file: int, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(file, data) :]


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, 9)


def _cpu(process: int) -> float:
    """Seconds of the processor that a process has used; 0 when it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:13])) / _TICKS


class _Plugin:
    """Takes the place of pytest's loop over the tests."""

    def __init__(self, ask: int, tell: int, path: str) -> None:
        self._requests, self._tell, self._path = os.fdopen(ask), tell, path
        self._name = path.removesuffix(".py").replace("/", ".")
        self._number = 0
        self._lines: set[int] = set()
        self._shared: dict[str, set[int]] = {}
        self._items: dict[str, Any] = {}
        self._probe: Any = None

    def pytest_runtestloop(self, session: Any) -> bool:
        from _pytest.runner import runtestprotocol
        from pyspark import SparkContext

        self._probe, *items = session.items
        for item in items:
            item.fixturenames[:] = [name for name in item.fixturenames if name not in _LEFT_OUT]
        self._items = {item.nodeid: item for item in items}
        failed = [report for report in runtestprotocol(self._probe, log=False, nextitem=items[0]) if report.failed]
        if failed:
            raise RuntimeError(f"The session does not start: {failed[0].longreprtext}")
        running = [Path(task, "comm").read_text() for task in Path("/proc/self/task").iterdir()]
        if lost := [name for name in running if name.startswith(_OWN_THREADS) and not name.startswith("polars-ooc")]:
            raise RuntimeError(f"To start the session starts threads that a fork would lose: {lost}")
        gateway = SparkContext._gateway
        assert gateway is not None
        _write(self._tell, {"jvm": gateway.proc.pid})
        for line in self._requests:
            self._number += 1
            child = os.fork()
            if not child:
                try:
                    self._try(gateway, json.loads(line))
                finally:
                    sys.stdout.flush()
                    os._exit(70)
            _write(self._tell, {"child": child})
            _, status, usage = os.wait4(child, 0)
            if status:
                spent = usage.ru_utime + usage.ru_stime
                _write(self._tell, {"end": f"the end of its process ({status})", "cpu": spent})
        os._exit(0)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Any:
        """Note the lines that a fixture reaches for all tests of its file."""
        if fixturedef.scope == "function":
            return (yield)
        before = set(self._lines)
        result = yield
        self._shared.setdefault(request.node.nodeid.split("::")[0], set()).update(self._lines - before)
        return result

    def _try(self, gateway: Any, request: dict[str, Any]) -> None:
        _connect_again(gateway, self._number)
        module = importlib.import_module(self._name)
        here = {name: other for name, other in sys.modules.items() if name.startswith("pydelta.") and other.__file__}
        files = {name: Path(str(other.__file__)) for name, other in here.items()}
        found: dict[str, Any] = {"failed": ""}
        try:
            importers = importers_of(self._name, files) - {self._name} if request["rebuild"] else set()
            source = marked(request["source"], _MARK) if request.get("record") else request["source"]
            names = {_MARK: lambda line: self._lines.add(line)}
            put(module, source, [here[name] for name in here if name in importers], names)
        except Exception as error:  # noqa: BLE001
            found["failed"] = f"loading the module: {error!r}"
        tests = list(self._items) if request["tests"] is None else request["tests"]
        seconds: dict[str, float] = {}
        lines: dict[str, set[int]] = {}
        for place, test in enumerate(() if found["failed"] else tests):
            self._lines = set()
            began = time.process_time() + _cpu(gateway.proc.pid)
            following = self._items[tests[place + 1]] if place + 1 < len(tests) else self._probe
            if not self._passes(self._items[test], following):
                found["failed"] = test
                break
            seconds[test] = time.process_time() + _cpu(gateway.proc.pid) - began
            lines[test] = self._lines
        if request.get("record"):
            for test, reached in lines.items():
                reached |= self._shared.get(test.split("::")[0], set())
            found |= {"seconds": seconds, "lines": {test: sorted(reached) for test, reached in lines.items()}}
        _write(self._tell, {**found, "cpu": time.process_time()})
        os._exit(0)

    def _passes(self, item: Any, following: Any) -> bool:
        from _pytest.runner import runtestprotocol

        failed = [report for report in runtestprotocol(item, log=False, nextitem=following) if report.failed]
        if failed:
            print(f"{item.nodeid}\n{failed[0].longreprtext[-12000:]}", flush=True)
            item.session._setupstate.teardown_exact(self._probe)
        return not failed


_PARENTS: list[Any] = []
"""What belongs to the worker: to lose it would close the worker's connections."""


def _connect_again(gateway: Any, number: int) -> None:
    """Open connections of this process's own to the JVM, and answer its calls here."""
    from py4j.finalizer import ThreadSafeFinalizer
    from pyspark.java_gateway import ensure_callback_server_started

    from pydelta.engines.spark.callers import close_ended

    client, pool = gateway._gateway_client, gateway.gateway_property.pool
    _PARENTS.extend((client.thread_connection, list(client.deque), client.deque, client.finalizer_deque))
    _PARENTS.append(gateway._callback_server)
    client.thread_connection, client.deque, client.finalizer_deque = threading.local(), deque(), deque()
    pool.lock, ThreadSafeFinalizer.lock = threading.RLock(), threading.RLock()
    pool.next_id += number * 1_000_000  # The JVM may still release what it had from another child, by its number.
    gateway._callback_server = None
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    close_ended(gateway)


def _main(ask: str, tell: str, path: str, base: str, *tests: str) -> None:
    sys.path.insert(0, str(Path.cwd()))
    how = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:warnings", f"--basetemp={base}"]
    pytest.main([*how, "--hypothesis-profile=mutants", _PROBE, *tests], plugins=[_Plugin(int(ask), int(tell), path)])


if __name__ == "__main__":
    _main(*sys.argv[1:])
