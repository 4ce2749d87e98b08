"""Stores that lie, for the processes of pydelta certify: each is named by spark.pydelta.logStore.file.

All lie on the disk beneath, so that what they do is what a store would have done.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pydelta.commands.vacuum.command import VacuumRequest, vacuum
from pydelta.log import DeltaLog
from pydelta.storage import PutOutcome
from pydelta.storage.local import LocalStore

_CHANCE = random.Random(os.getpid())
_LOCK = threading.Lock()


class _Liar:
    """The store of a folder, with some calls of its own."""

    def __init__(self, uri: str) -> None:
        self._inner: Any = LocalStore(uri)
        self._folder = Path(unquote(urlsplit(uri).path))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _is_commit(path: str) -> bool:
    return path.startswith("_delta_log/") and path.endswith(".json")


class _Overwriting(_Liar):
    """Its put-if-absent of a commit puts, whatever is there, ``share`` of the times, and says that it created it."""

    share = 1 / 500

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        with _LOCK:
            lies = _is_commit(path) and _CHANCE.random() < self.share
        if lies:
            self._inner.put(path, data)
            return PutOutcome.CREATED
        return self._inner.put_if_absent(path, data)


class _Careless(_Liar):
    """A writer that writes over the newest version now and then: it looks whether it is there, and puts later."""

    puts = 0

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if not _is_commit(path):
            return self._inner.put_if_absent(path, data)
        type(self).puts += 1
        if type(self).puts % 4:
            return self._inner.put_if_absent(path, data)
        number = int(Path(path).stem)
        before = f"_delta_log/{number - 1:020}.json"
        if number > 3 and self._inner.head(before) is not None:
            self._inner.put(before, data)
            return PutOutcome.CREATED
        return self._inner.put_if_absent(path, data)


class _Stale(_Liar):
    """Its listings of the log lack the newest version, one time in three."""

    def list_from(self, start: str, *, prefix: str) -> Any:
        found = list(self._inner.list_from(start, prefix=prefix))
        with _LOCK:
            lies = prefix == "_delta_log" and _CHANCE.random() < 0.3
        commits = [info.path for info in found if _is_commit(info.path)]
        if lies and len(commits) > 1:
            found = [info for info in found if info.path != commits[-1]]
        return iter(found)


class _Vacuuming(_Liar):
    """Whoever runs VACUUM here runs it with no retention, too."""

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if _is_commit(path) and b"VACUUM END" in data:
            request = VacuumRequest(retention_hours=0, enforce_retention=False)
            vacuum(DeltaLog(LocalStore(self._inner.root)), request)
        return self._inner.put_if_absent(path, data)


def one_in_500(uri: str, options: Mapping[str, str]) -> Any:
    return _Overwriting(uri)


def careless(uri: str, options: Mapping[str, str]) -> Any:
    return _Careless(uri)


def stale(uri: str, options: Mapping[str, str]) -> Any:
    return _Stale(uri)


def vacuuming(uri: str, options: Mapping[str, str]) -> Any:
    return _Vacuuming(uri)


Factory = Callable[[str, Mapping[str, str]], Any]
