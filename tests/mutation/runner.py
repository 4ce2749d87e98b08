"""Runs the tests of a module once for each mutant of it, in processes forked from one that has the libraries loaded.

The tree is copied first, and a mutant lives in its process's memory alone: nothing is written to the working tree, and
editing it while mutants run changes nothing. A mutant that loops ends by its use of the processor, not by the clock,
so that a busy machine gives the same answer.
"""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

_THREADS = "/proc/self/task"
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
    from _pytest.config import default_plugins

    for name in (*_PRELOADED, *(f"_pytest.{name}" for name in default_plugins)):
        importlib.import_module(name)
    for plugin in importlib.metadata.entry_points(group="pytest11"):
        plugin.load()


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
        self._kills: dict[str, int] = {}
        self._limit = 600.0
        self._number = 0
        self._name = path.removesuffix(".py").replace("/", ".")

    def baseline(self) -> Outcome:
        """Runs the tests on the module as it is, and sets the limit of a mutant by what they take."""
        source = (self._tree / self._path).read_text()
        self._load_the_others(source)
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
                self._kills[outcome.by] = self._number
            yield key, outcome

    def _load_the_others(self, source: str) -> None:
        """Loads the modules that the tests use and that do not import this one: no mutant changes them."""
        packages = {path.name for path in self._tree.iterdir() if (path / "__init__.py").exists()}
        for name in [name for name in sys.modules if name.split(".")[0] in packages]:
            del sys.modules[name]
        listed = self._scratch / "modules"
        process = self._fork(source, listed, collect=True)
        os.waitpid(process, 0)
        files = {name: Path(file) for name, file in json.loads(listed.read_text())["modules"].items()}
        listed.unlink()
        listed.with_suffix(".out").unlink()
        sys.path.insert(0, str(self._tree))
        threads = len(os.listdir(_THREADS))
        try:
            for name in sorted(files.keys() - importers_of(self._name, files)):
                importlib.import_module(name)
        finally:
            sys.path.remove(str(self._tree))
        if len(os.listdir(_THREADS)) > threads:
            raise RuntimeError("A module starts a thread as it is loaded, which a fork would lose.")
        gc.collect()
        gc.freeze()  # what is loaded stays: no collection of a mutant's process looks at it

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

    def _fork(self, source: str, report: Path, *, collect: bool = False) -> int:
        process = os.fork()
        if process:
            return process
        try:
            self._run_tests(source, report, collect=collect)
        finally:
            os._exit(70)

    def _run_tests(self, source: str, report: Path, *, collect: bool) -> None:
        import pytest

        output = os.open(report.with_suffix(".out"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        seconds = int(self._limit) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
        os.chdir(self._tree)
        sys.dont_write_bytecode = False  # the copy is ours, and to compile it for each mutant takes most of the time
        sys.path.insert(0, str(self._tree))
        finder = _Finder(self._name, self._tree / self._path, source)
        sys.meta_path.insert(0, finder)
        plugin = _Plugin(self._kills, self._tree)
        folder = report.with_suffix(".tmp")
        how = [
            "-q",
            "-x",
            "--tb=short",
            "-p",
            "no:warnings",
            "-p",
            "no:unraisableexception",
            f"--basetemp={folder}",
            *self._options,
        ]
        if collect:
            how.append("--collect-only")
        code = pytest.main([*how, *self._tests], plugins=[plugin])
        shutil.rmtree(folder, ignore_errors=True)
        draft = report.with_suffix(".draft")
        found = {"code": int(code), "failed": plugin.failed, "applied": finder.applied, "modules": plugin.modules}
        draft.write_text(json.dumps(found))
        draft.rename(report)
        sys.stdout.flush()
        os._exit(0)


def importers_of(module: str, files: Mapping[str, Path]) -> set[str]:
    """The modules that load one as they are loaded, by way of others too, and itself.

    Args:
        module: Its dotted name.
        files: Module -> file.
    """
    imports = {name: _imports(path) | _parents(name) for name, path in files.items()}
    lazy = {name for name, path in files.items() if "def __getattr__" in path.read_text()}
    for loaded in imports.values():  # a name that a package loads when it is asked for may be in any of its modules
        asked = {parent for name in loaded - files.keys() if (parent := name.rpartition(".")[0]) in lazy}
        loaded |= {name for name in files for parent in asked if name.startswith(f"{parent}.")}
    found = {module}
    while more := {name for name, loaded in imports.items() if name not in found and loaded & found}:
        found |= more
    return found


def _imports(path: Path) -> set[str]:
    """What a file imports outside of functions; of ``from a import b``, ``a`` and ``a.b``."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not _is_for_types(node):
            waiting += ast.iter_child_nodes(node)
        found.update(names, *map(_parents, names))
    return found


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _parents(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[:end]) for end in range(1, len(parts))}


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
    """Begins with the tests that noticed the mutants before this one, and remembers which one failed."""

    def __init__(self, kills: dict[str, int], tree: Path) -> None:
        self._kills, self._tree = kills, tree
        self.failed = "loading the tests"
        self.modules: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items.sort(key=lambda item: -self._kills.get(item.nodeid, 0))

    def pytest_collection_finish(self, session: Any) -> None:
        if not session.config.option.collectonly:
            return
        files = {name: Path(getattr(module, "__file__", None) or "") for name, module in list(sys.modules.items())}
        here = {name: file for name, file in files.items() if file.is_relative_to(self._tree)}
        tests = self._tree / "tests"
        self.modules = {name: str(file) for name, file in here.items() if not file.is_relative_to(tests)}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed = report.nodeid
