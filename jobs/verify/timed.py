"""Plan the hops that measure the time from a commit until Trino shows it, by the writer's sync or the scheduler's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

from catalog_sync.names import TableName
from jobs.verify import rows
from jobs.verify.answers import HINTS, compared
from jobs.verify.lake import CATALOGS, Lake
from jobs.verify.plan import Answer, Hop, Timing
from jobs.verify.trino import TrinoError
from jobs.verify.visible import Waiting, seen_after

__all__ = ["clock_hops", "visible_hop"]

_COMMITS: Final = 10
_TARGET_SECONDS: Final = 5.0
_FIRST_ID: Final = 1_000_000
_CLOCK_ROWS: Final = 100
_PAUSE_SECONDS: Final = 2.0
_SLOW_SECONDS: Final = 180.0


def visible_hop(lake: Lake) -> Hop:
    """Plan several one-row commits, each of which every catalog must show once its writer has ended."""
    return Hop(name="commit to visible", work=lambda: _commits(lake), hint=HINTS["hive"], needs=("load",))


def _commits(lake: Lake) -> Answer:
    table = lake.names.orders
    times: dict[str, list[float]] = {catalog: [] for catalog in CATALOGS}
    unseen = []
    for number in range(_COMMITS):
        found = seen_after(_insert(lake, number), [_reader(lake, name, table, _FIRST_ID + number) for name in CATALOGS])
        for catalog, seconds in zip(CATALOGS, found, strict=True):
            if seconds is None:
                unseen.append(f"{catalog} {number + 1}")
            else:
                times[catalog].append(seconds)
    for catalog, values in times.items():
        lake.timings.append(Timing(name=f"catalog {catalog}", seconds=tuple(values), target=_TARGET_SECONDS))
    expected = f"{_COMMITS} commits, each seen in every catalog when its writer had ended"
    return Answer(expected=expected, found=f"not seen: {', '.join(unseen)}" if unseen else expected, right=not unseen)


def _insert(lake: Lake, number: int) -> Callable[[], float]:
    table, city = lake.names.orders, rows.CITIES[number % 2]
    assert city is not None

    def write() -> float:
        lake.spark.sql(
            f"INSERT INTO {table} VALUES ({_FIRST_ID + number}, 'commit {number}', 1.25, DATE'2024-05-01', "
            f"TIMESTAMP'2024-05-01 00:00:00', '{city}')"
        )
        lake.expected[table] = rows.appended(lake.expected[table], _FIRST_ID + number, f"commit {number}", city)
        return lake.committed(table)

    return write


def _reader(lake: Lake, catalog: str, table: TableName, number: int) -> Callable[[], bool]:
    statement = f"SELECT count(*) FROM {lake.in_catalog(catalog, table)} WHERE id = {number}"
    return lambda: lake.trino.rows(statement) == [[1]]


# --- the scheduler ------------------------------------------------------------------------------------------------


_BY_SCHEDULER: Final = {"hive": "twin", "iceberg": "Iceberg entry"}


def clock_hops(lake: Lake, every_seconds: int) -> tuple[Hop, list[Hop]]:
    """Plan a table in ``lake`` whose commits are not followed by a sync.

    The first hop creates it, and the others wait for its twin and its Iceberg entry.

    Args:
        lake: Resources of the run.
        every_seconds: How often the scheduler syncs.
    """
    table, waiting = lake.names.clock, dict[str, Waiting]()
    name = "a table for the scheduler"

    def make() -> Answer:
        expected = rows.first_rows(_CLOCK_ROWS)
        columns = "id, customer, amount, day, at, city"
        lake.spark.sql(
            f"CREATE TABLE {table} USING DELTA PARTITIONED BY (city) "
            f"TBLPROPERTIES ('pydelta.sync.iceberg' = 'true') AS "
            f"SELECT {columns} FROM verify_orders WHERE id < {_CLOCK_ROWS}"
        )
        lake.expected[table] = expected
        for catalog in _BY_SCHEDULER:
            look = _reader(lake, catalog, table, _CLOCK_ROWS - 1)
            waiting[catalog] = Waiting(look, (TrinoError,), _PAUSE_SECONDS)
        return compared(expected, lake.by_spark(table, expected.columns))

    def wait(catalog: str, what: str) -> Answer:
        lake.trino.rows("SELECT 1")  # Fail at once if Trino does not answer, because waiting would be useless.
        seen = waiting[catalog].seen(2.0 * every_seconds + _SLOW_SECONDS)
        if seen is None:
            wanted = f"a new {what}, since the scheduler syncs every {every_seconds} s"
            return Answer(expected=wanted, found="none", right=False)
        seconds = (seen - lake.committed(table),)
        target = every_seconds + _TARGET_SECONDS
        lake.timings.append(Timing(name=f"catalog {catalog}, by the scheduler", seconds=seconds, target=target))
        frame = lake.expected[table]
        return compared(frame, lake.by_trino(catalog, table, frame.columns))

    made = Hop(name=name, work=make, hint=HINTS["spark"], needs=("Spark on the cluster",))
    seen = [
        Hop(
            name=f"the scheduler's {what}: Trino, catalog {catalog}",
            work=functools.partial(wait, catalog, what),
            hint="make status says what the scheduler's last run lacked; make logs SERVICE=scheduler",
            needs=(name,),
        )
        for catalog, what in _BY_SCHEDULER.items()
    ]
    return made, seen
