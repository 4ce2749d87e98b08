"""Stores that lie, for the processes of pydelta certify: each is named by spark.pydelta.logStore.file.

All lie on the disk beneath, so that what they do is what a store would have done.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from pydelta.commands.vacuum.command import Vacuum
from pydelta.log import DeltaLog
from pydelta.storage import PutOutcome
from pydelta.storage.local import LocalStore
from pydelta.testing.commands import vacuum


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
    """One put-if-absent of a commit in 500 puts over what is there, and says that it created it.

    It is the sixth of a process, the 506th and so on; where nothing is there, the next that finds something. It waits a
    moment for others, as a request does in a store that is busy.
    """

    calls, lies = 494, 0

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if _is_commit(path):
            type(self).calls += 1
            if type(self).calls // 500 > type(self).lies:
                time.sleep(0.3)
                if self._inner.head(path) is not None:
                    type(self).lies += 1
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
    """Its listings are behind: the first three of a process that could show a version do not."""

    hidden: ClassVar[Counter[str]] = Counter()

    def list_from(self, start: str, *, prefix: str) -> Any:
        found = list(self._inner.list_from(start, prefix=prefix))
        commits = [info.path for info in found if _is_commit(info.path)]
        if commits and int(Path(commits[-1]).stem) > 0 and self.hidden[commits[-1]] < 3:
            self.hidden[commits[-1]] += 1
            found = [info for info in found if info.path != commits[-1]]
        return iter(found)


class _Vacuuming(_Liar):
    """Whoever runs VACUUM here runs it with no retention, too, the first time."""

    done = False

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if _is_commit(path) and b"VACUUM END" in data and not type(self).done:
            type(self).done = True
            request = Vacuum(retention_hours=0, enforce_retention=False)
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
