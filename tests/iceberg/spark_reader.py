"""Ask a process with Spark's Iceberg for the rows of an entry."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from tests.json_lines import exchange

_SIDE = Path(__file__).with_name("spark_side.py")


class SparkReader:
    """A process with Spark's Iceberg. Leave its block to end it.

    Args:
        python: The interpreter of an environment with PySpark and PyArrow.
        folder: A folder for rows, and for what the process says.
    """

    def __init__(self, python: str, folder: Path) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
        environment |= {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
        environment.pop("PYTHONPATH", None)
        self._out = folder / "spark-rows.arrow"
        self._log = folder / "spark.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, str(_SIDE)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def __enter__(self) -> SparkReader:
        """Return the reader."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def rows(self, location: str) -> pa.Table:
        """All rows of a table."""
        self.ask(location=location, out=str(self._out))
        with pa.memory_map(str(self._out)) as source:
            return pa.ipc.open_file(source).read_all()

    def ids(self, location: str, conditions: Sequence[str]) -> list[list[Any]]:
        """The column ``id`` of the rows for which each condition holds."""
        found: list[list[Any]] = self.ask(location=location, where=list(conditions))["ids"]
        return found

    def row_ids(self, location: str) -> dict[str, int]:
        """How many rows, different row ids and rows without one a table of format version 3 has."""
        found: dict[str, int] = self.ask(location=location, row_ids=True)["row_ids"]
        return found

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and return the answer, see ``spark_side``."""
        answer = exchange(self._process, request)
        if answer is None:
            raise AssertionError(f"Spark ended: {self._log.read_text(errors='replace')[-3000:]}")
        assert "error" not in answer, f"Spark's Iceberg: {answer['error']}"
        return answer
