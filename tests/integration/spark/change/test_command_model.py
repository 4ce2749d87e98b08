"""Commands by random clocks, zones and calendars against a model that knows micros and days, and no calendar library.

A command's "now" is not known beforehand: rows lie on both sides of it, milliseconds apart, and there must be one
instant that explains the rows, the change feed and the counts alike.
"""

from __future__ import annotations

import datetime as dt
import itertools
import os
import time
import zoneinfo
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark

ZONES = ("UTC", "America/New_York", "Europe/Berlin", "Asia/Kathmandu", "Pacific/Apia")
ZONE_SETTING = "spark.sql.session.timeZone"
DAY = 86_400_000_000
EPOCH = dt.datetime(1970, 1, 1)
EXAMPLES = int(os.environ.get("PYDELTA_COMMAND_EXAMPLES", "0"))
few = settings(
    max_examples=EXAMPLES or 2,
    derandomize=not EXAMPLES,  # the same ones each time
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
"""How many cases are tried beside the fixed ones; more, and others each time, by ``PYDELTA_COMMAND_EXAMPLES=50``."""

_NAMES = itertools.count()


def micros(text: str) -> int:
    return (dt.datetime.fromisoformat(text) - EPOCH) // dt.timedelta(microseconds=1)


SPECIAL = [
    *map(micros, ["0001-01-01T00:00:00", "0001-01-02T03:04:05.678901", "1500-02-28T23:30:00", "1500-03-01T00:00:00"]),
    *map(micros, ["1582-10-04T12:00:00", "1582-10-10T12:00:00", "1582-10-15T00:00:00", "1883-11-18T17:00:00"]),
    *map(micros, ["1969-12-31T23:59:59.999999", "2011-12-30T12:00:00", "2024-03-31T01:30:00", "2024-11-03T05:30:00"]),
    *map(micros, ["2024-11-03T06:30:00", "9999-12-31T11:59:59.999999"]),
]
"""In UTC: both ends of what SQL can write, the gap of 1582, hours that zones repeat or leave out."""


@dataclass(frozen=True)
class Row:
    id: int
    ts: int | None
    day: int | None
    v: int


@dataclass(frozen=True)
class Clause:
    """A condition as SQL, and as a function of a row, "now" in micros, and the zone."""

    sql: str
    holds: Callable[[Row, int, str], bool]
    partition_only: tuple[str, ...] = ()


def local_day(instant: int, zone: str) -> int:
    """The day on which an instant falls; at the ends of the calendar the offset is that of the year before or after."""
    known = min(max(instant, micros("0003-01-01T00:00:00")), micros("9997-01-01T00:00:00"))
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=known)
    offset = moment.astimezone(zoneinfo.ZoneInfo(zone)).utcoffset()
    return (instant + offset // dt.timedelta(microseconds=1)) // DAY


def of_ts(test: Callable[[int, int, str], bool]) -> Callable[[Row, int, str], bool]:
    return lambda row, now, zone: row.ts is not None and test(row.ts, now, zone)


def of_day(test: Callable[[int, int], bool]) -> Callable[[Row, int, str], bool]:
    return lambda row, now, zone: row.day is not None and test(row.day, local_day(now, zone))


_GAP, _RARE = (
    micros("1582-10-12T00:00:00"),
    [micros(text) // DAY for text in ("0001-01-01", "1582-10-10", "9999-12-31")],
)
CLAUSES = [
    Clause("ts < current_timestamp()", of_ts(lambda ts, now, _: ts < now), ("ts",)),
    Clause("ts > now()", of_ts(lambda ts, now, _: ts > now), ("ts",)),
    Clause("ts >= now() AND id % 2 = 0", lambda row, now, _: row.ts is not None and row.ts >= now and not row.id % 2),
    Clause("ts < now() - INTERVAL 36 HOURS", of_ts(lambda ts, now, _: ts < now - DAY * 3 // 2), ("ts",)),
    Clause("NOT (ts < now())", of_ts(lambda ts, now, _: ts >= now), ("ts",)),
    Clause("day < current_date()", of_day(lambda day, today: day < today), ("day",)),
    Clause("day >= current_date() OR id < 0", of_day(lambda day, today: day >= today)),
    Clause(
        "CAST(ts AS DATE) = current_date()",
        of_ts(lambda ts, now, zone: local_day(ts, zone) == local_day(now, zone)),
        ("ts",),
    ),
    Clause("ts IS NULL OR ts < localtimestamp()", lambda row, now, _: row.ts is None or row.ts < now, ("ts",)),
    Clause("ts <= TIMESTAMP'1582-10-12 00:00:00Z'", of_ts(lambda ts, *_: ts <= _GAP), ("ts",)),
    Clause(
        "day IN (DATE'0001-01-01', DATE'1582-10-10', DATE'9999-12-31')", of_day(lambda day, _: day in _RARE), ("day",)
    ),
]


@dataclass(frozen=True)
class Case:
    zone: str
    jvm_zone: str
    clause: Clause
    partition: str | None
    vectors: bool
    feed: bool
    instants: tuple[int | None, ...]
    near: tuple[int, ...]
    """Milliseconds from the time at which the rows are made."""


cases = st.builds(
    Case,
    zone=st.sampled_from(ZONES),
    jvm_zone=st.sampled_from(ZONES),
    clause=st.sampled_from(CLAUSES),
    partition=st.sampled_from([None, None, "ts", "day"]),
    vectors=st.booleans(),
    feed=st.booleans(),
    instants=st.lists(st.sampled_from([None, *SPECIAL]), min_size=2, max_size=6, unique=True).map(tuple),
    near=st.lists(st.integers(-3000, 30_000), min_size=1, max_size=6, unique=True).map(tuple),
)


@pytest.fixture
def in_zones(spark):
    """Sets the session's zone and the JVM's own."""
    zones = spark._jvm.java.util.TimeZone
    before = spark.conf.get(ZONE_SETTING), zones.getDefault()

    def set_both(session: str, jvm: str) -> None:
        spark.conf.set(ZONE_SETTING, session)
        zones.setDefault(zones.getTimeZone(jvm))

    yield set_both
    spark.conf.set(ZONE_SETTING, before[0])
    zones.setDefault(before[1])


def make_table(spark, path: str, case: Case) -> list[Row]:
    base = time.time_ns() // 1000
    instants = [*case.instants, *(base + 1000 * near for near in case.near), *range(base, base + 30_000_000, 40_000)]
    if case.partition == "ts":
        instants = instants[: len(case.instants) + len(case.near) + 10]
    rows = [Row(id_, ts, None if ts is None else ts // DAY, id_ % 3) for id_, ts in enumerate(instants)]
    frame = spark.createDataFrame([(r.id, r.ts, r.day, r.v) for r in rows], "id long, ts long, day int, v long")
    frame = frame.selectExpr("id", "timestamp_micros(ts) AS ts", "date_from_unix_date(day) AS day", "v")
    if case.partition is None:
        frame = frame.repartition(3, "id")
    options = {
        "delta.enableDeletionVectors": str(case.vectors).lower(),
        "delta.enableChangeDataFeed": str(case.feed).lower(),
    }
    by = [case.partition] if case.partition else []
    frame.write.format("delta").partitionBy(*by).options(**options).save(path)
    return rows


def read_rows(frame) -> list:
    return frame.selectExpr("*", "unix_micros(ts) AS _ts", "unix_date(day) AS _day").drop("ts", "day").collect()


def rows_of(spark, path: str) -> Counter[Row]:
    frame = spark.read.format("delta").load(path)
    return Counter(Row(row["id"], row["_ts"], row["_day"], row["v"]) for row in read_rows(frame))


def files_of(spark, path: str) -> dict[int, str]:
    rows = spark.read.format("delta").load(path).selectExpr("id", "_metadata.file_name AS file").collect()
    return {row["id"]: row["file"] for row in rows}


def feed_of(spark, path: str) -> Counter[tuple[str, Row]]:
    options = {"readChangeFeed": "true", "startingVersion": 1}
    rows = read_rows(spark.read.format("delta").options(**options).load(path))
    return Counter((row["_change_type"], Row(row["id"], row["_ts"], row["_day"], row["v"])) for row in rows)


@dataclass(frozen=True)
class Outcome:
    """What a command leaves behind."""

    rows: Counter[Row]
    feed: Counter[tuple[str, Row]] | None
    counts: dict[str, int]


def model(command: str, case: Case, rows: list[Row], files: dict[int, str], now: int) -> Outcome:
    """What the command leaves behind if it happened at ``now``."""
    matched = [row for row in rows if case.clause.holds(row, now, case.zone)]
    touched = {files[row.id] for row in matched}
    others = [row for row in rows if row not in matched]
    copied = sum(files[row.id] in touched for row in others)
    if command == "delete":
        after: list[Row] = []
        feed = [("delete", row) for row in matched]
        if case.partition in case.clause.partition_only:
            copied = 0
        counts = {"deleted": len(matched)}
    else:
        after = [Row(row.id, now, row.day, row.v + 1) for row in matched]
        feed = [("update_preimage", row) for row in matched] + [("update_postimage", row) for row in after]
        counts = {"updated": len(matched)}
    counts["copied"] = 0 if case.vectors else copied
    return Outcome(Counter([*others, *after]), Counter(feed) if case.feed and matched else None, counts)


def run(spark, path: str, command: str, case: Case) -> dict[str, int]:
    """Run a command; MERGE with the same condition belongs here too."""
    table = DeltaTable.forPath(spark, path)
    if command == "delete":
        deleted = table.delete(case.clause.sql)
        return {"deleted": deleted.num_deleted_rows, "copied": deleted.num_copied_rows}
    updated = table.update(case.clause.sql, {"ts": "current_timestamp()", "v": "v + 1"})
    return {"updated": updated.num_updated_rows, "copied": updated.num_copied_rows}


_PLAIN = Case("Asia/Kathmandu", "America/New_York", CLAUSES[0], None, True, True, (None, *SPECIAL), (0, 5))


@pytest.mark.ci
@few
@pytest.mark.parametrize("command", ["delete", "update"])
@example(case=_PLAIN)
@example(case=Case("Pacific/Apia", "UTC", CLAUSES[5], "day", False, True, (None, *SPECIAL), (0, 5)))
@example(case=Case("America/New_York", "Asia/Kathmandu", CLAUSES[9], "ts", False, True, (None, *SPECIAL), (0,)))
@given(case=cases)
def test_one_instant_explains_everything_that_a_command_left(spark, tmp_path_factory, in_zones, command, case):
    path = str(tmp_path_factory.mktemp("model") / f"t{next(_NAMES)}")
    in_zones(case.zone, case.jvm_zone)
    rows = make_table(spark, path, case)
    files = files_of(spark, path)
    assert rows_of(spark, path) == Counter(rows)
    earliest = time.time_ns() // 1000
    counts = run(spark, path, command, case)
    latest = time.time_ns() // 1000
    version = DeltaTable.forPath(spark, path).history(1).collect()[0]["version"]
    feed = feed_of(spark, path) if case.feed and version else None
    found = Outcome(rows_of(spark, path), feed, counts)
    moments = {earliest, latest, *(row.ts for row in rows if row.ts is not None and earliest < row.ts <= latest)}
    if command == "update":  # what it wrote tells
        moments = {row.ts for row in found.rows if row.v > row.id % 3} or moments
        assert all(earliest <= moment <= latest for moment in moments)
    assert found in [model(command, case, rows, files, moment) for moment in sorted(moments)]
