"""Measure how long a commit takes to be visible in the stack's Trino, alone and while others write and query.

``TRINO`` names it, as for ``_entries``. One table gets a row with each commit, and its entries are synced after it, as
a commit's hook does. A client for each entry asks for the newest row without pause. A row's delay begins when its
commit was acknowledged and ends when a query has shown it, so it includes the sync and that query.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks._entries import ENTRIES, Place, place_in_stack
from jobs.verify.trino import Trino
from pydelta import LocalTable

COMMITS = int(os.environ.get("PYDELTA_BENCH_COMMITS", "60"))
CLIENTS = int(os.environ.get("PYDELTA_BENCH_CLIENTS", "2"))
PAUSE_S, PATIENCE_S = 1.0, 60.0
_SCHEMA = pa.schema([("seq", pa.int64()), ("day", pa.int32())])
_DAYS = 10
_QUERY = "SELECT sum(x * y) FROM UNNEST(sequence(1, 10000)) a(x) CROSS JOIN UNNEST(sequence(1, 1000)) b(y)"


class _Watch(threading.Thread):
    """Asks for the newest row of an entry until it is stopped, and notes when each was first shown."""

    def __init__(self, entry: str) -> None:
        super().__init__(daemon=True)
        self._statement = f"SELECT max(seq) FROM {entry}"
        self._trino = Trino(os.environ["TRINO"], "bench-visible")
        self._stopping = threading.Event()
        self.newest, self.shown = -1, dict[int, float]()

    def run(self) -> None:
        while not self._stopping.is_set():
            newest = self._trino.rows(self._statement)[0][0]
            now = time.monotonic()
            for seq in range(self.newest + 1, (-1 if newest is None else newest) + 1):
                self.shown[seq] = now
                self.newest = seq

    def stop(self) -> None:
        """Let the query that runs be the last one."""
        self._stopping.set()
        self.join()


def run() -> dict[str, Any]:
    """60 commits (``PYDELTA_BENCH_COMMITS``), and 60 beside two writers and two clients (``PYDELTA_BENCH_CLIENTS``)."""
    if not os.environ.get("TRINO"):
        print("TRINO is not set: there is no stack whose Trino could be asked", file=sys.stderr)
        return {}
    with place_in_stack() as place:
        table = LocalTable.create(place.uri, _SCHEMA, partition_by=["day"], options=place.options)
        found = {"alone": _delays(place, table, 0)}
        print(found, flush=True)
        with _load() as done:
            found["under load"] = _delays(place, table, COMMITS)
        found["under load"]["done beside it"] = dict(done)
    return found


def _delays(place: Place, table: LocalTable, first: int) -> dict[str, Any]:
    """Commit and sync, and return percentiles of the delays of each entry in seconds."""
    acknowledged: dict[int, float] = {}
    syncs = []
    _commit(place, table, first, acknowledged)  # The entries are there before they are asked.
    watches = {name: _Watch(entry) for name, entry in ENTRIES.items()}
    for watch in watches.values():
        watch.newest = first - 1
        watch.start()
    for seq in range(first + 1, first + COMMITS):
        time.sleep(PAUSE_S)
        syncs.append(_commit(place, table, seq, acknowledged))
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and any(watch.newest < first + COMMITS - 1 for watch in watches.values()):
        time.sleep(0.1)
    for watch in watches.values():
        watch.stop()
    measured = range(first + 1, first + COMMITS)
    delays = {name: [watch.shown[seq] - acknowledged[seq] for seq in measured] for name, watch in watches.items()}
    return {name: _percentiles(values) for name, values in (delays | {"the sync itself": syncs}).items()}


def _commit(place: Place, table: LocalTable, seq: int, acknowledged: dict[int, float]) -> float:
    """Append a row and sync the entries. Returns the seconds of the sync."""
    table.append(pa.table({"seq": [seq], "day": [seq % _DAYS]}, schema=_SCHEMA))
    acknowledged[seq] = time.monotonic()
    place.sync(with_twin=True)
    return time.monotonic() - acknowledged[seq]


def _percentiles(values: list[float]) -> dict[str, float]:
    return {f"p{part}": round(float(np.percentile(values, part)), 2) for part in (50, 95)}


@contextmanager
def _load() -> Iterator[Counter[str]]:
    """Let clients join two tables in Trino, and writers append to tables on this machine, until the end."""
    done: Counter[str] = Counter()
    stop = threading.Event()

    def again(kind: str, work: Callable[[], object]) -> None:
        while not stop.is_set():
            work()
            done[kind] += 1

    with TemporaryDirectory() as folder:
        rows = pa.table({"id": np.arange(100_000), "v": np.random.default_rng(7).random(100_000)})
        works: list[tuple[str, Callable[[], object]]] = []
        for number in range(CLIENTS):
            table = LocalTable.create(str(Path(folder, f"t{number}")), rows)
            works.append(("appends of 100,000 rows", partial(table.append, rows)))
            works.append(
                ("joins of ten million rows by Trino", partial(Trino(os.environ["TRINO"], "bench-load").rows, _QUERY))
            )
        threads = [threading.Thread(target=again, args=work, daemon=True) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield done
        finally:
            stop.set()
            for thread in threads:
                thread.join()
