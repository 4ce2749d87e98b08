"""Make store calls slow, fail them, lose their replies, or kill the process during one, as a plan says.

The process opens its stores through ``open_faulty`` (the setting ``spark.pydelta.logStore.<scheme>``). They wrap the
store that the user's own options choose, and calls that take effect do so there.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from pydelta.errors import StorageError
from pydelta.storage import Store, open_store
from pydelta.storage.interface import PutOutcome
from pydelta.storage.uris import scheme_of
from pydelta.tools.certify.history import Fault

__all__ = ["Faults", "open_faulty", "with_faults"]

_SETTING: Final = "spark.pydelta.logStore."
_INNER: Final = "spark.pydelta.logStore.certified."
_CALLS: Final = frozenset(
    {"list_from", "list_all", "read", "read_range", "put_if_absent", "put", "head", "delete_many", "open_writer"}
)
_LISTINGS: Final = frozenset({"list_from", "list_all"})


class Faults:
    """The faults of this process, and the number of store calls so far.

    Args:
        faults: Faults with the numbers of their calls.
        calls: Calls made by earlier lives of this process.
        happened: Called for each fault when it happens, or just before the process dies of it.
    """

    def __init__(
        self, faults: Sequence[Fault] = (), calls: int = 0, happened: Callable[[Fault], None] = lambda fault: None
    ) -> None:
        self._at = {fault.call: fault for fault in faults}
        self._calls = calls
        self._happened = happened
        self._lock = threading.Lock()

    def run(self, verb: str, path: str, call: Callable[[], Any]) -> Any:
        """Make a store call, with its fault if it has one.

        Raises:
            StorageError: The call failed, or its reply was lost, on purpose.
        """
        with self._lock:
            number, self._calls = self._calls, self._calls + 1
        fault = self._at.get(number)
        if fault is None:
            return call()
        if fault.kind != "die after":
            self._happened(fault)
        if fault.kind == "delay":
            time.sleep(fault.ms / 1000)
            return call()
        if fault.kind == "fail":
            raise StorageError(f"{verb} of {path} failed: pydelta certify let it fail.", retryable=True)
        if fault.kind == "die":
            _die()
        call()
        if fault.kind == "die after":
            self._happened(fault)
            _die()
        if verb == "put_if_absent":
            return PutOutcome.UNKNOWN
        raise StorageError(f"The reply to {verb} of {path} was lost: pydelta certify lost it.", retryable=True)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class _FaultyStore:
    """A store whose calls go through ``Faults``. It offers no attribute of the inner store that bypasses the calls."""

    def __init__(self, inner: Store, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        if name == "local_path":
            raise AttributeError(name)
        found = getattr(self._inner, name)
        if name not in _CALLS:
            return found

        def call(*args: Any, **named: Any) -> Any:
            path = args[0] if args and isinstance(args[0], str) else named.get("prefix", "")
            if name in _LISTINGS:
                return iter(self._faults.run(name, path, lambda: list(found(*args, **named))))
            return self._faults.run(name, path, lambda: found(*args, **named))

        return call


_ACTIVE = Faults()


def with_faults(uri: str, options: Mapping[str, str], faults: Faults) -> dict[str, str]:
    """Return options that make this process open faulty stores for a location.

    Args:
        uri: The location.
        options: The user's options.
        faults: The faults.
    """
    global _ACTIVE
    _ACTIVE = faults
    key = _SETTING + scheme_of(uri)
    inner = {_INNER + scheme_of(uri): options[key]} if key in options else {}
    return {**options, **inner, key: "pydelta.tools.certify.faults:open_faulty"}


def open_faulty(uri: str, options: Mapping[str, str]) -> Store:
    """Open the store that the user's options choose, and wrap it."""
    scheme = scheme_of(uri)
    given = {name: value for name, value in options.items() if name != _SETTING + scheme}
    inner = given.pop(_INNER + scheme, None)
    if inner is not None:
        given[_SETTING + scheme] = inner
    return cast(Store, _FaultyStore(open_store(uri, given), _ACTIVE))
