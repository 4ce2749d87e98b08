"""Run VACUUM as an operation, for tests of races and crashes, on a table that has files to delete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from pydelta.commands.run import Context
from pydelta.commands.run import run as run_command
from pydelta.commands.vacuum.command import Vacuum, VacuumMode, VacuumOptions
from pydelta.log import DeltaLog
from pydelta.log.vector_files import write_vectors
from pydelta.protocol.paths import decode_log_path
from pydelta.protocol.vectors import vector_path
from pydelta.storage import Store
from pydelta.storage.memory import MemoryStore
from pydelta.testing.operations import LogOperation
from pydelta.testing.stores import _Wrapper
from pydelta.txn.commit import SILENT, Observer

__all__ = ["GARBAGE", "LONG_AGO_MS", "WatchedStore", "litter", "missing_files", "vacuum_all"]

GARBAGE: Final = ("p=1/aborted", "p=2/aborted", "aborted too")
LONG_AGO_MS: Final = 1_600_000_000_000


class WatchedStore(_Wrapper):
    """Notifies an observer before each call that finds, deletes or commits something."""

    def __init__(self, inner: Store, observer: Observer) -> None:
        super().__init__(inner)
        self._observer = observer

    def _call(self, verb: str, path: str, run: Callable[[], Any]) -> Any:
        if verb in ("list_page", "delete_many", "put_if_absent") and not path.endswith(".crc"):
            self._observer.at(f"{verb} {path}")
        return run()


def litter(store: MemoryStore) -> list[str]:
    """Create the files that the log names and some garbage, all of them old. Returns the garbage."""
    snapshot = DeltaLog(store).update()
    for path in snapshot.files.core["path"]:
        store.put(decode_log_path(path).text, b"x")
        store.set_time(decode_log_path(path).text, LONG_AGO_MS)
    _, vectors = write_vectors([np.array([0], dtype=np.uint64)], store=store)
    for path in GARBAGE:
        store.put(path, b"x")
    for path in (*GARBAGE, *vectors):
        store.set_time(path, LONG_AGO_MS)
    return [*GARBAGE, *vectors]


def missing_files(store: Store, known: set[str]) -> list[str]:
    """Find missing files of the newest version, among known data files and all deletion vectors."""
    snapshot = DeltaLog(store).update()
    there = {info.path for info in store.list_all()}
    adds = snapshot.files.adds(snapshot.files.core)
    wanted = {decode_log_path(add.path).text for add in adds} & known
    for add in adds:
        path = vector_path(add.deletion_vector) if add.deletion_vector is not None else None
        if path is not None:
            wanted.add(decode_log_path(path).text)
    return sorted(wanted - there)


def vacuum_all(mode: VacuumMode = "full") -> LogOperation:
    """Run VACUUM with a retention of one hour and one worker."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> None:
        watched = DeltaLog(WatchedStore(log.store, observer), settings=log.settings)
        options = VacuumOptions(list_workers=1, delete_workers=1, sleep=lambda seconds: None)
        command = Vacuum(retention_hours=1, enforce_retention=False, mode=mode, options=options)
        run_command(command, Context(watched))

    return LogOperation(name=f"vacuum {mode}", run=run, model=lambda rows: rows)
