"""Run a text of Python in a process of its own, turn by turn, and get each turn's seconds by that process's clock.

::

    Peer(python, code, conf) --starts--> a Spark session with conf, then code, which defines turn(…) -> seconds
    peer("a", "b") -> seconds of turn("a", "b")                  warm from the second turn on
    reference_engine(code, conf) -> the Peer that has the reference engine; None where there is none
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Self

_PROGRAM = """
import json, sys, time
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]")
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
{code}
print("READY", flush=True)
for line in sys.stdin:
    print("TOOK", turn(*json.loads(line)), flush=True)
"""


class Peer:
    """A Spark session in a process of its own; ``BENCH_DEBUG=1`` shows what it says on standard error."""

    def __init__(self, python: str, code: str, conf: Mapping[str, str]) -> None:
        quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
        environment = {**os.environ, "PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
        environment.pop("PYSPARK_DRIVER_PYTHON", None)
        self._process = subprocess.Popen(
            [python, "-c", _PROGRAM.replace("{code}", code), json.dumps(quiet | dict(conf))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("BENCH_DEBUG") else subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._answer("READY")

    def __call__(self, *arguments: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        return float(self._answer("TOOK"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self, word: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return line.removeprefix(word).strip()
        raise RuntimeError("the other process ended; BENCH_DEBUG=1 shows why")


def reference_engine(code: str, conf: Mapping[str, str] | None = None) -> Peer | None:
    """The reference engine, or None (said on standard error) where ``PYDELTA_REFERENCE_PYTHON`` names no Python.

    Args:
        code: Defines ``turn``; ``spark`` is there.
        conf: More settings of its session; packages besides its own in ``spark.jars.packages``.
    """
    python = os.environ.get("PYDELTA_REFERENCE_PYTHON")
    if not python:
        print("PYDELTA_REFERENCE_PYTHON is not set: without the reference engine", file=sys.stderr)
        return None
    settings = dict(conf or {})
    own = os.environ.get("PYDELTA_REFERENCE_PACKAGE", "io.delta:delta-spark_2.13:4.4.0")
    more = settings.pop("spark.jars.packages", "")
    return Peer(
        python,
        code,
        {
            "spark.jars.packages": ",".join(filter(None, [own, more])),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            **settings,
        },
    )
