"""Runs the tests of a module once for each mutant of it, in processes forked from one that has the libraries loaded.

The tree is copied first, and a mutant lives in its process's memory alone: nothing is written to the working tree, and
editing it while mutants run changes nothing. A mutant that loops ends by its use of the processor, not by the clock,
so that a busy machine gives the same answer.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

_MEMORY_BYTES = 4 << 30
_PRELOADED = ("hypothesis", "hypothesis.strategies", "lark", "msgspec", "numpy", "obstore", "polars", "pyarrow.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one run of the tests.

    Args:
        survived: Every test passed.
        by: The test that failed, or what else ended the run.
        cpu: Seconds of the processor.
    """

    survived: bool
    by: str
    cpu: float


def copy_tree(root: Path, to: Path) -> None:
    """Copies what git knows or would add, as it is in the working tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (root / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, to / name)


def preload() -> None:
    """Loads what every run needs and no mutant changes, none of which keeps a thread that a fork would lose."""
    import pytest  # noqa: F401

    for name in _PRELOADED:
        importlib.import_module(name)


class Runner:
    """Runs mutants of one module.

    Args:
        tree: The copy.
        path: The module's file, relative to the tree.
        tests: What pytest is to run.
        scratch: A folder for output.
        jobs: How many at once.
        options: For pytest.
        spare: Seconds of the processor that a mutant has beyond four times what the tests take as it is.
    """

    def __init__(
        self, tree: Path, path: str, tests: Sequence[str], scratch: Path, *, jobs: int = 2,
        options: Sequence[str] = ("--hypothesis-profile=mutants",), spare: float = 5,
    ) -> None:  # fmt: skip
        self._tree, self._path, self._tests, self._scratch = tree, path, tuple(tests), scratch
        self._jobs, self._options, self._spare = jobs, tuple(options), spare
        self._kills: Counter[str] = Counter()
        self._limit = 600.0
        self._number = 0

    def baseline(self) -> Outcome:
        """Runs the tests on the module as it is, and sets the limit of a mutant by what they take."""
        source = (self._tree / self._path).read_text()
        ((_, outcome),) = self.run([(None, lambda: source)])
        self._limit = 4 * outcome.cpu + self._spare
        return outcome

    def run(self, mutants: Sequence[tuple[Any, Callable[[], str]]]) -> Iterator[tuple[Any, Outcome]]:
        """Yields each mutant's key with what became of it, in the order in which they end."""
        waiting = list(reversed(mutants))
        running: dict[int, tuple[Any, Path]] = {}
        while waiting or running:
            while waiting and len(running) < self._jobs:
                key, source = waiting.pop()
                self._number += 1
                report = self._scratch / f"run-{self._number}"
                running[self._fork(source(), report)] = (key, report)
            process, status, usage = os.wait3(0)
            key, report = running.pop(process)
            outcome = self._outcome(report, status, usage.ru_utime + usage.ru_stime)
            if not outcome.survived:
                self._kills[outcome.by] += 1
            yield key, outcome

    def _outcome(self, report: Path, status: int, cpu: float) -> Outcome:
        output = report.with_suffix(".out")
        try:
            found = json.loads(report.read_text()) if report.exists() else None
            if found is None:
                by = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "the end of its process"
                return Outcome(survived=False, by=by, cpu=cpu)
            if not found["applied"]:
                raise RuntimeError(f"The tests never import {self._path}:\n{output.read_text()}")
            if found["code"] not in (0, 1, 2, 3):
                raise RuntimeError(f"pytest ends with {found['code']}:\n{output.read_text()}")
            survived = found["code"] == 0
            return Outcome(survived=survived, by="" if survived else found["failed"], cpu=cpu)
        finally:
            report.unlink(missing_ok=True)
            output.unlink(missing_ok=True)

    def _fork(self, source: str, report: Path) -> int:
        process = os.fork()
        if process:
            return process
        try:
            self._run_tests(source, report)
        finally:
            os._exit(70)

    def _run_tests(self, source: str, report: Path) -> None:
        import pytest

        output = os.open(report.with_suffix(".out"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        seconds = int(self._limit) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
        os.chdir(self._tree)
        sys.path.insert(0, str(self._tree))
        finder = _Finder(self._path.removesuffix(".py").replace("/", "."), self._tree / self._path, source)
        sys.meta_path.insert(0, finder)
        plugin = _Plugin(self._kills)
        folder = report.with_suffix(".tmp")
        how = ["-q", "-x", "--tb=short", "-p", "no:warnings", f"--basetemp={folder}", *self._options]
        code = pytest.main([*how, *self._tests], plugins=[plugin])
        shutil.rmtree(folder, ignore_errors=True)
        draft = report.with_suffix(".draft")
        draft.write_text(json.dumps({"code": int(code), "failed": plugin.failed, "applied": finder.applied}))
        draft.rename(report)
        sys.stdout.flush()
        os._exit(0)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, with a text of ours."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self._name, self._path, self._source = name, path, source
        self.applied = False

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=_Loader(name, self))

    def code(self) -> CodeType:
        self.applied = True
        return compile(self._source, str(self._path), "exec")


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, finder: _Finder) -> None:
        super().__init__(name, str(finder._path))
        self._finder = finder

    def get_code(self, fullname: str) -> CodeType:
        return self._finder.code()


class _Plugin:
    """Begins with the tests that noticed other mutants, and remembers which one failed."""

    def __init__(self, kills: Counter[str]) -> None:
        self._kills = kills
        self.failed = "loading the tests"

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items.sort(key=lambda item: -self._kills[item.nodeid])

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed = report.nodeid
