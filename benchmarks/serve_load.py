"""Let many clients read and change tables by ``pydelta serve``, and compare what they were told with what is there.

Half of the clients speak Thrift, half Spark Connect. Each keeps a ledger of its own rows: what was acknowledged has to
be there, what a conflict refused must not be. Now and then one goes away without a word and comes back.
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks._serving import free_port, pydelta_server

CLIENTS = int(os.environ.get("CLIENTS", "32"))
SECONDS = float(os.environ.get("LOAD_SECONDS", "300"))
TABLES = 4


class _Thrift:
    def __init__(self, port: int, name: str) -> None:
        from pyhive import hive

        self._connection = hive.connect("127.0.0.1", port=port, username=name)

    def run(self, text: str) -> list[tuple[Any, ...]]:
        from pyhive import exc

        cursor = self._connection.cursor()
        cursor.execute(text)
        try:
            return list(cursor.fetchall())
        except exc.ProgrammingError:
            return []

    def vanish(self) -> None:
        """End without a word to the server."""
        self._connection._transport.close()

    def leave(self) -> None:
        """End as a client does that is done."""
        self._connection.close()


class _Connect:
    def __init__(self, port: int, name: str) -> None:
        from pyspark.sql.connect.session import SparkSession

        self._session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}/;user_id={name}").create()

    def run(self, text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._session.sql(text).collect()]

    def vanish(self) -> None:
        """End without a word to the server."""
        self._session.client._channel.close()

    def leave(self) -> None:
        """End as a client does that is done; what it still has to tell the server is told first."""
        self._session.stop()


class _Worker(threading.Thread):
    """One client.

    Args:
        number: Its own.
        door: Makes a connection.
        until: When it stops, of the monotonic clock.
        reads: Whether it only reads, once it has inserted three rows.
    """

    def __init__(self, number: int, door: Any, until: float, *, reads: bool) -> None:
        super().__init__(daemon=True)
        self.number, self.door, self.until, self.reads = number, door, until, reads
        self.table = f"load{number % TABLES}"
        self.rows: dict[int, int] = {}
        self.seconds: dict[str, list[float]] = {}
        self.refused: list[str] = []
        self.wrong: list[str] = []
        self._chance = random.Random(number)
        self._next = 0

    def run(self) -> None:
        client = self.door()
        weights = (0, 0, 0, 1) if self.reads else (3, 2, 1, 6)
        try:
            if self.reads:
                self._timed(client, self._insert)
            while time.monotonic() < self.until:
                action = self._chance.choices((self._insert, self._merge, self._delete, self._read), weights)[0]
                self._timed(client, action)
                if self._chance.random() < 0.01:
                    client.vanish()
                    client = self.door()
            client.leave()
        except Exception as error:  # noqa: BLE001 - told in the report, which fails by it
            self.wrong.append(f"client {self.number}: {type(error).__name__}: {str(error)[:300]}")

    def _timed(self, client: Any, action: Any) -> None:
        text, after = action()
        began = time.monotonic()
        try:
            found = client.run(text)
        except Exception as error:
            if "CONCURRENT" not in str(error):
                raise
            self.refused.append(str(error)[:80])
            return
        self.seconds.setdefault(action.__name__.strip("_"), []).append(time.monotonic() - began)
        after(found)

    def _insert(self) -> tuple[str, Any]:
        new = {self._next + item: self._chance.randrange(1000) for item in range(3)}
        self._next += 3
        values = ", ".join(f"({self.number}, {key}, {value})" for key, value in new.items())
        return f"INSERT INTO {self.table} VALUES {values}", lambda _: self.rows.update(new)

    def _merge(self) -> tuple[str, Any]:
        keys = [*self._chance.sample(sorted(self.rows), min(2, len(self.rows))), self._next]
        self._next += 1
        new = {key: self._chance.randrange(1000) for key in keys}
        values = ", ".join(f"({self.number}, {key}, {value})" for key, value in new.items())
        text = (
            f"MERGE INTO {self.table} t USING (SELECT * FROM VALUES {values} AS s(client, id, v)) s "
            "ON t.client = s.client AND t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        return text, lambda _: self.rows.update(new)

    def _delete(self) -> tuple[str, Any]:
        gone = self._chance.choice(sorted(self.rows) or [-1])
        return (
            f"DELETE FROM {self.table} WHERE client = {self.number} AND id = {gone}",
            lambda _: self.rows.pop(gone, None),
        )

    def _read(self) -> tuple[str, Any]:
        expected = (len(self.rows), sum(self.rows.values()))

        def check(found: list[tuple[Any, ...]]) -> None:
            told = (int(found[0][0]), int(found[0][1] or 0))
            if told != expected:
                self.wrong.append(f"client {self.number} reads {told}, was told {expected}")

        return f"SELECT count(*), sum(v) FROM {self.table} WHERE client = {self.number}", check


def run() -> dict[str, Any]:
    """Clients that change and read, then clients that only read; ends with an error when a row is lost or doubled."""
    return {kind: _served(reads=kind == "readers") for kind in ("writers and readers", "readers")}


def _served(*, reads: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        connect = free_port()
        server = pydelta_server(Path(name), connect)
        try:
            return _load(server.pid, server.port, connect, reads=reads)
        finally:
            server.stop()


def _load(server: int, thrift: int, connect: int, *, reads: bool) -> dict[str, Any]:
    first = _Thrift(thrift, "first")
    for number in range(TABLES):
        first.run(f"CREATE TABLE load{number} (client INT, id INT, v INT) USING delta PARTITIONED BY (client)")
    until = time.monotonic() + SECONDS
    workers = [_Worker(number, _door(number, thrift, connect), until, reads=reads) for number in range(CLIENTS)]
    for worker in workers:
        worker.start()
    memory = []
    while any(worker.is_alive() for worker in workers):
        memory.append(_memory(server))
        time.sleep(min(10.0, SECONDS / 10))
    wrong = [line for worker in workers for line in worker.wrong]
    for number in range(TABLES):
        told = first.run(f"SELECT client, id, v FROM load{number}")
        expected = [
            (w.number, key, value) for w in workers if w.number % TABLES == number for key, value in w.rows.items()
        ]
        if sorted(map(tuple, told)) != sorted(expected):
            lost, more = set(expected) - set(map(tuple, told)), set(map(tuple, told)) - set(expected)
            wrong.append(f"load{number}: lost {sorted(lost)[:5]}, not expected {sorted(more)[:5]}, {len(told)} rows")
    if wrong:
        raise SystemExit("\n".join(wrong[:20]))
    return {
        "clients": CLIENTS,
        "seconds": SECONDS,
        "rows": sum(len(worker.rows) for worker in workers),
        "refused by a conflict": sum(len(worker.refused) for worker in workers),
        "statements": {
            kind: _spread(workers, kind)
            for kind in ("insert", "merge", "delete", "read")
            if any(kind in worker.seconds for worker in workers)
        },
        "MB of the JVM and of Python, in thirds": [
            memory[at] for at in (0, len(memory) // 3, 2 * len(memory) // 3, -1)
        ],
    }


def _door(number: int, thrift: int, connect: int) -> Any:
    if number % 2:
        return lambda: _Thrift(thrift, f"client{number}")
    return lambda: _Connect(connect, f"client{number}")


def _spread(workers: list[_Worker], kind: str) -> dict[str, float]:
    found = sorted(value for worker in workers for value in worker.seconds.get(kind, []))
    return {
        "count": len(found),
        "p50": round(found[len(found) // 2], 2),
        "p95": round(found[int(len(found) * 0.95)], 2),
        "most": round(found[-1], 2),
    }


def _memory(pid: int) -> list[int]:
    """Resident megabytes of the server's Python process and of its children, the largest first."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[2]) == pid:  # its process group
            found.append(int(words[21]) * os.sysconf("SC_PAGE_SIZE") >> 20)
    return sorted(found, reverse=True)[:2]
