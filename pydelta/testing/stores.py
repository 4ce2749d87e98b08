"""Count the calls of a store, or make them fail on purpose. Both wrap a real store and keep its interface."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from pydelta.errors import StorageError
from pydelta.storage.interface import DeleteReport, ObjectInfo, PutOutcome, Store
from pydelta.storage.pages import ListPage
from pydelta.storage.streams import ObjectWriter

__all__ = ["CountingStore", "Fault", "FaultKind", "FaultyStore", "SimulatedCrash"]


class SimulatedCrash(BaseException):
    """The process died. Only the test may catch this."""


class _Wrapper:
    """Passes every call to an inner store through ``_call``."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    @property
    def root(self) -> str:
        """The inner store's root."""
        return self._inner.root

    def _call(self, verb: str, path: str, run: Callable[[], Any]) -> Any:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that only some stores have: pages (each page is a call), directories, exact times."""
        if name in ("has_key_ranges", "has_directories", "head_has_exact_time", "put_if_absent_is_atomic"):
            return getattr(self._inner, name)
        if name == "list_pages":
            pages = self._inner.list_pages  # type: ignore[attr-defined]
            return lambda **bounds: self._pages(pages(**bounds))
        if name == "list_unfinished":
            unfinished = self._inner.list_unfinished  # type: ignore[attr-defined]
            return lambda prefix: iter(self._call(name, prefix, lambda: list(unfinished(prefix))))
        if name == "remove_directories":
            remove = self._inner.remove_directories  # type: ignore[attr-defined]
            return lambda paths: self._call("remove_directories", ",".join(paths), lambda: remove(paths))
        raise AttributeError(name)

    def _pages(self, pages: Iterator[ListPage]) -> Iterator[ListPage]:
        for page in pages:
            self._call("list_page", "", lambda: None)
            yield page

    def list_from(self, start: str, *, prefix: str) -> Iterator[ObjectInfo]:
        """List objects; see ``Store.list_from``. The whole listing is read at the call."""
        listed = self._call("list_from", prefix, lambda: list(self._inner.list_from(start, prefix=prefix)))
        return iter(listed)

    def list_all(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """See ``Store.list_all``."""
        return iter(self._call("list_all", prefix, lambda: list(self._inner.list_all(prefix))))

    def read(self, path: str) -> bytes:
        """See ``Store.read``."""
        data: bytes = self._call("read", path, lambda: self._inner.read(path))
        return data

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """See ``Store.read_range``."""
        data: bytes = self._call("read_range", path, lambda: self._inner.read_range(path, start, length))
        return data

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """See ``Store.put_if_absent``."""
        outcome: PutOutcome = self._call("put_if_absent", path, lambda: self._inner.put_if_absent(path, data))
        return outcome

    def put(self, path: str, data: bytes) -> None:
        """See ``Store.put``."""
        self._call("put", path, lambda: self._inner.put(path, data))

    def head(self, path: str) -> ObjectInfo | None:
        """See ``Store.head``."""
        found: ObjectInfo | None = self._call("head", path, lambda: self._inner.head(path))
        return found

    def delete_many(self, paths: Iterable[str]) -> DeleteReport:
        """See ``Store.delete_many``."""
        names = list(paths)
        report: DeleteReport = self._call("delete_many", ",".join(names), lambda: self._inner.delete_many(names))
        return report

    def open_writer(self, path: str) -> BinaryIO:
        """Open a writer; see ``Store.open_writer``. Its ``close`` publishes the object, as a call ``close_writer``."""
        stream = self._call("open_writer", path, lambda: self._inner.open_writer(path))
        return cast(BinaryIO, _WatchedWriter(stream, lambda run: self._call("close_writer", path, run)))


class _WatchedWriter(ObjectWriter):
    """An inner store's stream whose publishing goes through the wrapper."""

    def __init__(self, stream: Any, call: Callable[[Callable[[], Any]], Any]) -> None:
        self._stream = stream
        self._call = call
        super().__init__()

    def _append(self, view: memoryview) -> None:
        self._stream.write(view)

    def _publish(self) -> None:
        self._call(self._stream.close)

    def _drop(self) -> None:
        self._stream.abort()


class CountingStore(_Wrapper):
    """Records calls, in order, as pairs of verb and path, and counts the bytes read.

    Example:
        >>> from pydelta.storage import MemoryStore
        >>> store = CountingStore(MemoryStore("memory://doc/t"))
        >>> store.put("a", b"x"); store.calls
        [('put', 'a')]
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self.calls: list[tuple[str, str]] = []
        self.bytes_read = 0

    def paths(self, *verbs: str) -> list[str]:
        """Return the paths of calls with the given verbs, in order."""
        return [path for verb, path in self.calls if verb in verbs]

    def reset(self) -> None:
        """Reset the records."""
        with self._lock:
            self.calls.clear()
            self.bytes_read = 0

    def _call(self, verb: str, path: str, run: Callable[[], Any]) -> Any:
        with self._lock:
            self.calls.append((verb, path))
        result = run()
        if isinstance(result, bytes):
            with self._lock:
                self.bytes_read += len(result)
        return result


class FaultKind(enum.Enum):
    """The way in which a call fails."""

    FAIL = "fail"
    """The call does nothing and raises a retryable ``StorageError``."""
    LOSE_REPLY = "lose reply"
    """The call takes effect, but its reply is lost: a put-if-absent returns ``UNKNOWN``, other calls raise an error."""
    DIE_BEFORE = "die before"
    """The process ends before the call takes effect."""
    DIE_AFTER = "die after"
    """The process ends after the call took effect."""
    TEAR = "tear"
    """A read returns only the beginning of the object, as if it were complete. Any other call succeeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault at the ``call``-th call (from 0) of those that ``verb`` (None for any) and ``path_contains`` select.

    ``times`` is the number of consecutive calls that fail. ``kept`` maps the size of an object to the size of a torn
    read.
    """

    kind: FaultKind
    call: int
    verb: str | None = None
    path_contains: str = ""
    times: int = 1
    kept: Callable[[int], int] = lambda size: size // 2


class FaultyStore(_Wrapper):
    """A store with planned faults. After a death, every further call dies too, until a new store is opened.

    Attributes:
        calls: Verb and path of each call, in order.
        fired: Whether the fault happened.
    """

    def __init__(self, inner: Store, *faults: Fault) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self._faults = faults
        self._seen = dict.fromkeys(faults, 0)
        self._dead = False
        self.calls: list[tuple[str, str]] = []
        self.fired = False

    def _call(self, verb: str, path: str, run: Callable[[], Any]) -> Any:
        with self._lock:
            if self._dead:
                raise SimulatedCrash("the process is gone")
            self.calls.append((verb, path))
            fault = self._due(verb, path)
            if fault is not None:
                self.fired = True
                self._dead = fault.kind in (FaultKind.DIE_BEFORE, FaultKind.DIE_AFTER)
        if fault is None:
            return run()
        if fault.kind is FaultKind.FAIL:
            raise StorageError(f"{verb} of {path} failed on purpose.", retryable=True)
        if fault.kind is FaultKind.DIE_BEFORE:
            raise SimulatedCrash(f"before {verb} of {path}")
        result = run()
        if fault.kind is FaultKind.TEAR:
            return result[: fault.kept(len(result))] if isinstance(result, bytes) else result
        if fault.kind is FaultKind.DIE_AFTER:
            raise SimulatedCrash(f"after {verb} of {path}")
        if verb == "put_if_absent":
            return PutOutcome.UNKNOWN
        raise StorageError(f"The reply to {verb} of {path} was lost on purpose.", retryable=True)

    def _due(self, verb: str, path: str) -> Fault | None:
        due = None
        for fault in self._faults:
            if fault.verb in (None, verb) and fault.path_contains in path:
                if fault.call <= self._seen[fault] < fault.call + fault.times:
                    due = fault
                self._seen[fault] += 1
        return due
