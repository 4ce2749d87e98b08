"""What tests submit to a cluster: the packed environment, ``spark-submit``, and the rows that the job leaves."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Self

import pyspark

from pydelta.log import DeltaLog
from pydelta.testing.parquet_rows import parquet_rows

ROOT = Path(__file__).resolve().parents[1]
HOME = Path(pyspark.__file__).parent
BARE: str = getattr(sys, "_base_executable")  # noqa: B009  the interpreter that the environment was made from
JOB = ROOT / "tests/cluster/archive_job.py"
PACKED = "./environment/bin/python"
"""The packed environment's Python, where ``--archives FILE#environment`` unpacks it."""
ENGINE_OF_THE_ARCHIVE = r"workers have the engine at \S*/environment/lib/python3\.\d+/site-packages/pydelta/"
NOTHING: Mapping[str, str] = MappingProxyType({})
_LEFT_OUT = frozenset({"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV"})


def pack(folder: Path) -> Path:
    """Pack the engine as docs/guides/cluster.md says it."""
    file = folder / "environment.tar.gz"
    command = [str(ROOT / "scripts/make-archive"), str(file)]
    said = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHON": BARE})
    assert said.returncode == 0, said.stderr
    assert "for workers with Python 3." in said.stdout
    return file


def bare_environment() -> dict[str, str]:
    """This environment without what names a Python, on the loopback."""
    environment = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    return environment | {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"}


class Submission:
    """``spark-submit`` with the job, as a context: at its end the process has ended.

    Args:
        job: The table that the job writes, and more arguments of the job.
        options: Of ``spark-submit``.
        workers: The workers' Python.
        folder: Where it runs, and where its log is.
        more: Variables of the environment.
        driver: Whether the driver is a process of this machine, with this Python.
    """

    def __init__(
        self,
        job: Sequence[str],
        *options: str,
        workers: str,
        folder: Path,
        more: Mapping[str, str] = NOTHING,
        driver: bool = True,
    ) -> None:
        environment = bare_environment() | {"PYSPARK_PYTHON": workers, **more}
        if driver:
            environment["PYSPARK_DRIVER_PYTHON"] = str(_python_with_the_engine(folder))
        command = [str(HOME / "bin/spark-submit"), *options, str(JOB), *job]
        self._log = folder / f"submitted-{uuid.uuid4()}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def ended(self) -> tuple[int, str]:
        """Wait for its end: the code, and what it wrote."""
        return self.process.wait(), self.said()

    def said(self) -> str:
        """What it has written."""
        return self._log.read_text(errors="replace")


def _python_with_the_engine(folder: Path) -> Path:
    """Make a driver's Python that has this engine: a variable of the submission would reach the workers on YARN."""
    program = folder / "driver-python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT}:$PYTHONPATH exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return program


def rows_that_it_leaves() -> Counter[tuple[int, str]]:
    """The job's rows by a model: what it deletes, what its MERGE matches and deletes, what the MERGE inserts.

    The value of a partition column is a string, as in the log.
    """
    rows = {number for number in range(1000) if number % 10}
    source = set(range(990, 1010))
    return Counter((number, str(number % 4)) for number in rows ^ source)


def rows_in(log: DeltaLog) -> Counter[tuple[object, ...]]:
    """The rows of a table, read without Spark."""
    return parquet_rows(log.update(), log.store)
