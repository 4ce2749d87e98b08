"""Hold the metastore's own lock of a table, which Iceberg's writers take around a commit.

Hive 2.3.10 and 4.0 check an expected parameter within the change itself. Hive 3.1 ignores it, and there only this lock
keeps other writers away. A metastore without locks breaks the connection or refuses; the caller goes on without one.
"""

from __future__ import annotations

import getpass
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from catalog_sync.errors import MetastoreError, MetastoreUnavailableError
from catalog_sync.thrift.client import Metastore
from pydelta.settings.clock import Deadline

__all__ = ["table_lock"]

_POLL_SECONDS: Final = 0.2


@contextmanager
def table_lock(metastore: Metastore, database: str, name: str, *, wait_seconds: float) -> Iterator[bool]:
    """Hold the lock of a table for the block, if the metastore has locks. Yields whether it is held.

    Raises:
        MetastoreUnavailableError: Another writer held the lock all the time.
    """
    number = _locked(metastore, database, name, wait_seconds)
    try:
        yield number is not None
    finally:
        if number is not None:
            with suppress(MetastoreError):  # It expires by itself.
                metastore.unlock_table(number)


def _locked(metastore: Metastore, database: str, name: str, wait_seconds: float) -> int | None:
    if metastore.lacks_locks:
        return None
    try:
        number, state = metastore.lock_table(database, name, user=_user(), host=socket.gethostname())
    except MetastoreError:
        metastore.lacks_locks = True
        return None
    deadline = Deadline(wait_seconds)
    while state == "WAITING":
        if deadline.remaining() <= 0:
            with suppress(MetastoreError):
                metastore.unlock_table(number)
            raise MetastoreUnavailableError(
                f"Another writer holds the metastore's lock on {database}.{name}.",
                hint="Run it again when that writer is done. A lock that was left behind expires by itself.",
            )
        time.sleep(_POLL_SECONDS)
        state = metastore.lock_state(number)
    return number if state == "ACQUIRED" else None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # The container's user has no name.
        return "pydelta"
