"""Start Delta Kernel, the Java library that connectors are built on, with its default engine, and read the tables by it.

``KernelTables.java`` is the program. Its jars come from Maven once, into ``build/kernel``.
"""

from __future__ import annotations

import contextlib
import decimal
import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from matrix.answers import said
from matrix.cases import CASES, Case
from matrix.others import answer
from tests.java_servers import fetch, java
from tests.json_lines import exchange

__all__ = ["TYPES", "Kernel", "KernelError", "answer_of", "arrow", "kernel", "read_by_kernel"]

_VERSION = "4.4.0"
_ARTIFACTS = tuple(f"io.delta:delta-kernel-{part}:{_VERSION}" for part in ("api", "defaults"))
_PROGRAM = Path(__file__).with_name("KernelTables.java")
_BUILD = Path(__file__).resolve().parents[3] / "build" / "kernel"
TYPES = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_CONVERTED: dict[str, Callable[[Any], Any]] = {"float": float, "double": float, "binary": bytes.fromhex}
"""How JSON's values become those of Arrow: "NaN" is a text in JSON."""


class KernelError(Exception):
    """What the kernel threw."""


@contextlib.contextmanager
def kernel() -> Iterator[Kernel]:
    """Start a process with Delta Kernel, and end it after the block."""
    memory = ["-XX:+UseSerialGC", "-Xmx512m"]
    command = [java(), *memory, "-Duser.timezone=UTC", "-cp", f"{_jars()}/*", str(_PROGRAM)]
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, encoding="utf-8"
        ) as process,
    ):
        try:
            yield Kernel(process, log)
        finally:
            process.kill()


class Kernel:
    """A process with Delta Kernel, see ``kernel``."""

    def __init__(self, process: subprocess.Popen[str], log: IO[bytes]) -> None:
        self._process = process
        self._log = log

    def read(self, place: str, version: int | None = None) -> pa.Table:
        """Read all rows of a table, or of one of its versions."""
        found = self.ask(read=place) if version is None else self.ask(read=place, version=version)
        return arrow(found["schema"], found["rows"])

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and return the answer, see ``KernelTables.java``. Raises what the kernel threw."""
        found = exchange(self._process, request)
        if found is None:
            self._log.seek(0)
            raise AssertionError(f"The kernel's process ended: {self._log.read()[-3000:].decode(errors='replace')}")
        if "error" in found:
            raise KernelError(f"{found['kind']}: {found['error']}")
        return found


def read_by_kernel(folder: Path) -> dict[str, dict[str, str]]:
    """Read each table of each writer."""
    told: dict[str, dict[str, str]] = {}
    with kernel() as process:
        for writer in sorted(item for item in folder.iterdir() if item.is_dir()):
            for number, case in enumerate(CASES):
                place = writer / str(number)
                if place.is_dir():
                    told.setdefault(writer.name, {})[case.name] = answer_of(process, str(place), case)
    return told


def answer_of(process: Kernel, place: str, case: Case) -> str:
    """Read a table, and compare it with what is there. Only what the kernel threw is a refusal."""
    try:
        table = process.read(place)
    except KernelError as error:
        return f"refused: {said(error, place)}"
    return answer(lambda _: table, place, case)


def arrow(schema: dict[str, Any], rows: list[list[Any]]) -> pa.Table:
    """Make an Arrow table of the rows that the program prints.

    Args:
        schema: As the log has it.
        rows: A list of values per row.
    """
    fields = schema["fields"]
    columns = [pa.array([_value(f["type"], row[at]) for row in rows], _type(f["type"])) for at, f in enumerate(fields)]
    return pa.Table.from_arrays(columns, names=[field["name"] for field in fields])


def _type(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        if kind.startswith("decimal("):
            digits, _, scale = kind.removeprefix("decimal(").rstrip(")").partition(",")
            return pa.decimal128(int(digits), int(scale))
        return TYPES[kind]
    if kind["type"] == "struct":
        return pa.struct([(field["name"], _type(field["type"])) for field in kind["fields"]])
    if kind["type"] == "array":
        return pa.list_(_type(kind["elementType"]))
    return pa.map_(_type(kind["keyType"]), _type(kind["valueType"]))


def _value(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, str):
        return decimal.Decimal(value) if kind.startswith("decimal(") else _CONVERTED.get(kind, lambda same: same)(value)
    if kind["type"] == "struct":
        parts = zip(kind["fields"], value, strict=True)
        return {field["name"]: _value(field["type"], part) for field, part in parts}
    if kind["type"] == "array":
        return [_value(kind["elementType"], item) for item in value]
    keys, values = value
    return [
        (_value(kind["keyType"], key), _value(kind["valueType"], item)) for key, item in zip(keys, values, strict=True)
    ]


def _jars() -> Path:
    """Return the folder of the jars, after fetching them if they are not there."""
    folder = _BUILD / _VERSION
    _BUILD.mkdir(parents=True, exist_ok=True)
    with (_BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            fetch(folder, *_ARTIFACTS, dependencies=True)
            (folder / "ready").touch()
    return folder
