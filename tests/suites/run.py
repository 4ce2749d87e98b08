"""Run a suite's tests by pytest in the suite's environment."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.suites.environment import ROOT, packages_of, python_of
from tests.suites.rows import HERE, Outcomes, Suite

RAN = (0, 1)  # pytest's exit codes of a run that came to its end
PROGRAMS = "programs"


def outcomes(suite: Suite, part: tuple[int, int], only: str | None = None) -> Outcomes:
    """Run a suite's tests, or a part of them.

    Args:
        suite: Its row.
        part: Which of how many parts.
        only: An expression of pytest's ``-k``.

    Returns:
        The outcome of each test, by its name.

    Raises:
        SystemExit: pytest did not come to its end.
    """
    python = python_of(suite)
    with tempfile.TemporaryDirectory(prefix="suite-") as name:
        folder = Path(name)
        results, request = folder / "results.json", folder / "asked.json"
        left_out = [pattern for reason in suite.reasons() if reason.kind == "left_out" for pattern in reason.tests]
        request.write_text(json.dumps({"left_out": left_out, "part": part, "results": str(results)}))
        shutil.copytree(HERE / PROGRAMS, folder / PROGRAMS)  # Suites write files beside their programs.
        with _server(suite, folder) as ports:
            command = _command(suite, python, folder, ports)
            command += ["-k", only] if only else []
            environment = _environment(python) | ports
            environment |= {"PYDELTA_SUITE": str(request), "PYDELTA_GUIDE_SECTION": suite.section, "HOME": name}
            code = subprocess.run(command, cwd=folder, env=environment, check=False).returncode
        if code not in RAN:
            raise SystemExit(f"{suite.name}: pytest ended with {code}.")
        found: Outcomes = json.loads(results.read_text())
        return found


def _command(suite: Suite, python: Path, folder: Path, ports: Mapping[str, str]) -> list[str]:
    """Return the call of pytest, with the names of tests relative to the programs or to the environment's packages."""
    packages = packages_of(python)
    paths = [(folder if path.startswith(f"{PROGRAMS}/") else packages) / path for path in suite.runs]
    root = folder / PROGRAMS if folder in paths[0].parents else packages
    command = [str(python), "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-c", os.devnull]
    command += [f"--rootdir={root}", f"--confcutdir={root}", "--import-mode=importlib"]
    command += [word for plugin in ("tests.suites.outcomes", *suite.plugins) for word in ("-p", plugin)]
    command += [option.format_map(ports) for option in suite.options]
    return [*command, *map(str, paths)]


def _environment(python: Path) -> dict[str, str]:
    """Return the variables of this process without those meant for its own tests."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "DBT_"))}
    own = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    return {**kept, **own, "SPARK_LOCAL_IP": "127.0.0.1"}


@contextlib.contextmanager
def _server(suite: Suite, folder: Path) -> Iterator[dict[str, str]]:
    """Run ``pydelta serve`` where a suite asks for it; its ports as environment variables."""
    if not suite.server:
        yield {}
        return
    sys.path[:0] = [str(ROOT / "tests" / "serve"), str(ROOT / "tests")]
    from live_server import LiveServer

    server = LiveServer(folder / "server", settings={"spark.sql.sources.default": "delta"})
    try:
        yield {"PYDELTA_THRIFT_PORT": str(server.thrift), "PYDELTA_CONNECT_PORT": str(server.connect)}
    finally:
        server.stop()
