"""Plant one fault of each kind into targets of their own: the fuzzer has to find it."""

from __future__ import annotations

import os
import tempfile
from typing import Final

from pydelta.errors import InvalidArgumentError
from tests.fuzz.contract import Target

__all__ = ["PLANTED"]


def _crash(data: bytes) -> None:
    if data.startswith(b"[[") and len(data) > 3:
        raise KeyError("planted")
    raise InvalidArgumentError("This is one of ours.")


def _spin(data: bytes) -> None:
    while b"@" in data:
        pass


def _eat(data: bytes) -> None:
    if b"@" in data:
        held = [bytes(1 << 20) for _ in range(4000)]
        del held


def _abort(data: bytes) -> None:
    if b"@" in data:
        os.abort()


def _stray(data: bytes) -> None:
    if b"@" in data:
        with open("/etc/hostname") as file:
            file.read()


def _own(data: bytes) -> None:
    """What is allowed: a file of its own among the temporary ones, errors of ours."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
    raise InvalidArgumentError("This is one of ours.")


def _seeds() -> list[bytes]:
    return [b"[1]", b"(a@b"[:2]]


PLANTED: Final = {
    name: Target(name=name, run=run, seeds=_seeds, words=(b"@", b"["), cpu_seconds=0.3, memory_mb=256)
    for name, run in {
        "planted-crash": _crash,
        "planted-hang": _spin,
        "planted-memory": _eat,
        "planted-abort": _abort,
        "planted-stray": _stray,
        "planted-none": _own,
    }.items()
}
