"""Append events to files of a folder, one file per day, for those who read them there, such as the status page."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pydelta.errors import InvalidArgumentError

__all__ = ["KEPT_DAYS", "folder_of", "into_folder"]

KEPT_DAYS: Final = 30
"""Files of days before these are deleted when a day's file is created."""
_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
_MOST_BYTES: Final = 64 * 1024 * 1024
_NAME: Final = re.compile(r"events-(\d{4}-\d{2}-\d{2})\.jsonl")


def folder_of(url: str, *, name: str) -> Path:
    """Return the folder that a ``file:`` URL names.

    Raises:
        InvalidArgumentError: It names no absolute path of this machine.
    """
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not path.startswith("/") or path == "/":
        raise InvalidArgumentError(
            f"{name} is not the address of a folder of this machine.", hint="Set it to file:///path/of/a/folder."
        )
    return Path(path)


def into_folder(folder: Path, *, today: Callable[[], dt.date] | None = None) -> Callable[[bytes], str | None]:
    """Return a function that appends a document as a line. It returns the reason if it could not.

    Several processes may write to one folder: each line is a single write at the end of the file.

    Args:
        folder: The folder, which is created if necessary.
        today: Returns the day; None for this machine's, in UTC.
    """
    day_of = today or (lambda: dt.datetime.now(dt.UTC).date())

    def append(line: bytes) -> str | None:
        day = day_of()
        path = folder / f"events-{day.isoformat()}.jsonl"
        try:
            if not path.exists():
                folder.mkdir(parents=True, exist_ok=True)
                _delete_old(folder, day)
            number = os.open(path, _APPEND, 0o644)
            try:
                if os.fstat(number).st_size + len(line) > _MOST_BYTES:
                    return f"{path.name} is full"
                written = os.write(number, line + b"\n")
            finally:
                os.close(number)
        except OSError as error:
            return f"{path}: {error.strerror}"
        return None if written == len(line) + 1 else f"{path}: only a part was written"

    return append


def _delete_old(folder: Path, day: dt.date) -> None:
    for path in folder.iterdir():
        match = _NAME.fullmatch(path.name)
        if match is not None and match[1] < (day - dt.timedelta(days=KEPT_DAYS)).isoformat():
            path.unlink(missing_ok=True)
