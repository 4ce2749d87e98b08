"""Run programs through ``pydelta serve``: by Spark Connect, or by the Thrift protocol of HiveServer2.

::

    connect   a remote session runs the program, DeltaTable and all
    thrift    PyHive runs the statements; a remote session of the same server looks at the tables afterwards

Thrift shows numbers, texts, dates; of nested values only whether they are null is compared, of errors condition and state.
"""

from __future__ import annotations

import datetime
import decimal
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["Server", "ThriftSession", "as_thrift_shows"]

_READY_SECONDS = 300.0
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
_NESTED = {"nested": True}
_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
_PLAIN = frozenset(f"{kind}_TYPE" for kind in (*_NUMBERS, "BOOLEAN", "STRING", "VARCHAR", "CHAR", "DATE", "TIMESTAMP"))


class Server:
    """``pydelta serve`` in a process of its own, on free ports of the loopback.

    Args:
        folder: For what it says, and its warehouse.
        settings: Of its session.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.thrift, self.connect = _free_ports(2)
        said = folder / "server.txt"
        command = [sys.executable, "-m", "pydelta.api.cli.cli", "serve", "--master", "local[1]"]
        command += [
            "--thrift",
            str(self.thrift),
            "--connect",
            str(self.connect),
            "--warehouse",
            str(folder / "warehouse"),
        ]
        for key, value in settings.items():
            command += ["--conf", f"{key}={value}"]
        with said.open("wb") as file:
            self._process = subprocess.Popen(
                command, stdout=file, stderr=file, cwd=folder, start_new_session=True, env=_environment()
            )
        give_up = time.monotonic() + _READY_SECONDS
        while f"sc://127.0.0.1:{self.connect}" not in said.read_text(errors="replace"):
            if self._process.poll() is not None or time.monotonic() > give_up:
                self.stop()
                raise SystemExit(f"pydelta serve did not start: {said.read_text(errors='replace')[-3000:]}")
            time.sleep(0.1)

    def remote(self) -> Any:
        """Return a session of a Spark Connect client."""
        from pyspark.sql import SparkSession

        return SparkSession.builder.remote(f"sc://127.0.0.1:{self.connect}/;user_id=ada").getOrCreate()

    def stop(self) -> None:
        """End it, and its JVM."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class ThriftSession:
    """What a program of SQL needs of a session, by a connection of PyHive.

    Args:
        port: Of the server's Thrift.
        remote: A session of the same server, which tells of tables and their state.
    """

    def __init__(self, port: int, remote: Any) -> None:
        from pyhive import hive

        self._connection = hive.connect("127.0.0.1", port=port, username="ada")
        self.states = remote
        self.catalog = remote.catalog
        self.conf = _Settings(self)

    def sql(self, text: str) -> dict[str, Any]:
        """Run a statement; its outcome."""
        from pyhive import exc

        cursor = self._connection.cursor()
        try:
            cursor.execute(text)
        except exc.OperationalError as error:
            return _error(error)
        try:
            rows = cursor.fetchall() if cursor.description else []
        except exc.OperationalError as error:
            return _error(error)
        except exc.ProgrammingError:
            rows = []
        names, kinds = zip(*(item[:2] for item in cursor.description or [("", "")]), strict=True)
        shown = [[_shown(item, kind) for item, kind in zip(row, kinds, strict=True)] for row in rows]
        return {"columns": list(names) if cursor.description else [], "rows": shown}


class _Settings:
    def __init__(self, session: ThriftSession) -> None:
        self._session = session

    def get(self, key: str, _default: Any = None) -> str | None:
        found = self._session.sql(f"SET {key}")["rows"][0][1]
        return None if found == "<undefined>" else str(found)

    def set(self, key: str, value: str) -> None:
        self._session.sql(f"SET {key}={value}")

    def unset(self, key: str) -> None:
        self._session.sql(f"RESET {key}")


def as_thrift_shows(outcome: Mapping[str, Any]) -> dict[str, Any]:
    """Make of a statement's outcome in process, or by Thrift, what is compared of both."""
    if "error" in outcome:
        told = {"error": "Error", "caught_by": ["Error"], "text": outcome["text"]}
        return told | {"condition": outcome["condition"], "state": outcome["state"]}
    if "columns" in outcome:
        none = (
            outcome["columns"] == ["Result"] and not outcome["rows"]
        )  # how Spark's server shows a frame without columns
        return _sorted([] if none else outcome["columns"], outcome["rows"])
    if "rows" not in outcome:
        return {"done": True}
    names = [field["name"] for field in outcome["schema"]["fields"]]
    return _sorted(names, [[_told(row.get(name)) for name in names] for row in outcome["rows"]])


def _sorted(names: list[str], rows: list[list[Any]]) -> dict[str, Any]:
    return {"columns": names, "rows": sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))}


def _told(value: Any) -> Any:
    """A value as ``plain`` gives it, in the form that Thrift has for it."""
    if isinstance(value, list):
        return _NESTED
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind in ("float", "decimal"):
        return {kind: inner}
    if kind in ("date", "datetime"):
        return _time(inner)
    return _NESTED


def _shown(value: Any, kind: str) -> Any:
    """A value of PyHive's, in the same form."""
    if value is not None and kind not in _PLAIN:
        return _NESTED
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return {"float": "nan" if value != value else repr(value)}
    if isinstance(value, decimal.Decimal):
        return {"decimal": str(value)}
    if isinstance(value, datetime.datetime | datetime.date):
        return _time(str(value))
    return _time(value) if kind in ("DATE_TYPE", "TIMESTAMP_TYPE") else value


def _time(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _error(error: Exception) -> dict[str, Any]:
    status = getattr(error.args[0], "status", None)
    text = status.errorMessage if status is not None else str(error)
    named = _CONDITION.search(text)
    return {
        "error": "Error",
        "text": text.split("\n", 1)[0][:400],
        "caught_by": ["Error"],
        "condition": named.group(1) if named else None,
        "state": status.sqlState if status is not None else None,
    }


def _environment() -> dict[str, str]:
    """This process's, with the programs where the server finds them: a function of theirs is sent by its module's name."""
    programs = str(Path(__file__).resolve().parent.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [programs, os.environ.get("PYTHONPATH")]))}


def _free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports
