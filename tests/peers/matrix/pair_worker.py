"""A process of ``pydelta certify`` that may write with the reference engine: ``python pair_worker.py PEER``.

It reads its order as every process does. Where the engine is ``delta-spark`` it goes on as the interpreter PEER, whose
environment has the reference engine and this project, and does the same statements in a session of that engine.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REFERENCE = "delta-spark"
_ORDER = "PAIR_ORDER"


def _first_line() -> bytes:
    """Read the order byte by byte, so that what follows stays in the pipe."""
    line = bytearray()
    while not line.endswith(b"\n"):
        more = os.read(0, 1)
        if not more:
            break
        line += more
    return bytes(line)


def main() -> None:
    """Read the order, become the right process, carry it out."""
    order = os.environb.pop(_ORDER.encode(), None) or _first_line()
    if f'"engine":"{REFERENCE}"'.encode() in order and len(sys.argv) > 1:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
        environment |= {_ORDER: order.decode(), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.argv[1]}
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), str(HERE.parents[2])])
        os.execve(sys.argv[1], [sys.argv[1], str(HERE / "pair_worker.py")], environment)
    _carry_out(order)


def _carry_out(order: bytes) -> None:
    from pydelta.tools.certify import worker

    class Said:
        """Standard input with the order put back before it."""

        buffer = io.BufferedReader(_Before(order))

    plain: Any = worker._worker
    worker._worker = lambda asked: _reference(asked) if asked.engine == REFERENCE else plain(asked)
    sys.stdin = Said()  # type: ignore[assignment]
    worker.main()
    sys.stdout.flush()
    os._exit(0)


class _Before(io.RawIOBase):
    def __init__(self, first: bytes) -> None:
        self._first = first

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        data = self._first[: len(target)] if self._first else os.read(0, len(target))
        self._first = self._first[len(data) :] if self._first else b""
        target[: len(data)] = data
        return len(data)


def _reference(order: Any) -> Any:
    """The worker of the reference engine: the same statements, another session, its own errors."""
    sys.path.insert(0, str(HERE.parent))
    from pyspark.errors import PySparkException
    from reference_session import reference_session

    from pydelta.errors import first_line
    from pydelta.log import DeltaLog
    from pydelta.tools.certify.local_worker import Failed
    from pydelta.tools.certify.spark_worker import SparkWorker

    class Worker(SparkWorker):
        """See ``SparkWorker``."""

        def __init__(self) -> None:
            settings = {"spark.sql.shuffle.partitions": "1", "spark.driver.memory": "1g", "spark.log.level": "OFF"}
            self._spark = reference_session(settings, cores=1)
            self._log = DeltaLog.for_table(order.uri, options=order.options)
            self._table = f"delta.`{order.uri}`"

        def failure(self, error: Exception) -> Failed:
            """Judge an error: a conflict by its name is known; whatever else it says, the commit may be there."""
            text = f"{type(error).__name__}: {first_line(error)}"[:300]
            if isinstance(error, PySparkException) and "DELTA_CONCURRENT" in str(error):
                return Failed(known=True, trouble="conflict", error=text)
            return Failed(known=False, trouble="store", error=text)

    return Worker()


if __name__ == "__main__":
    main()
