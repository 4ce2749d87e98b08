"""A time as text is in the zone of the session that asks, whichever session the calling thread has, or none."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import pydelta
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable
from tests.integration.spark.session.test_active_session import ZONES, here, in_a_thread, sessions

__all__ = ["sessions"]
pytestmark = pytest.mark.spark
SIX = "2024-01-01 06:00:00"
HOURS = (0, 3, 8, 12)
NEWEST_AT_SIX = {"America/New_York": 2, "Asia/Kolkata": 0}
"""Six o'clock is 11:00 UTC in New York and 00:30 UTC in India."""
VERSIONS = {
    "timestampAsOf": lambda session, path: session.read.format("delta").option("timestampAsOf", SIX).load(path),
    "TIMESTAMP AS OF": lambda session, path: session.sql(f"SELECT * FROM delta.`{path}` TIMESTAMP AS OF '{SIX}'"),
    "a cast": lambda session, path: session.sql(
        f"SELECT * FROM delta.`{path}` TIMESTAMP AS OF CAST('{SIX}' AS TIMESTAMP)"
    ),
    "a literal": lambda session, path: session.sql(f"SELECT * FROM delta.`{path}` TIMESTAMP AS OF TIMESTAMP'{SIX}'"),
    "a path": lambda session, path: session.read.format("delta").load(f"{path}@20240101060000000"),
    "restoreToTimestamp": lambda session, path: restored(session, path),
    "RESTORE": lambda session, path: session.sql(f"RESTORE TABLE delta.`{path}` TO TIMESTAMP AS OF '{SIX}'") and (
        session.read.format("delta").load(path)
    ),
}  # fmt: skip
CHANGES = {
    "startingTimestamp": lambda session, path: session.read.format("delta").option("readChangeFeed", "true")
    .option("startingTimestamp", "2024-01-01 00:00:00").option("endingTimestamp", SIX).load(path),
    "table_changes": lambda session, path: session.sql(
        f"SELECT * FROM table_changes_by_path('{path}', '2023-12-31 19:00:00', '{SIX}')"
    ),
}  # fmt: skip


def restored(session, path):
    DeltaTable.forPath(session, path).restoreToTimestamp(SIX)
    return session.read.format("delta").load(path)


@pytest.fixture
def path(tmp_path):
    """A table of four versions, each of which adds its number."""
    place = tmp_path / "t"
    table = pydelta.LocalTable.create(
        str(place), pa.table({"n": [0]}), properties={"delta.enableChangeDataFeed": "true"}
    )
    for number in (1, 2, 3):
        table.append(pa.table({"n": [number]}))
    for number, hour in enumerate(HOURS):
        at = datetime(2024, 1, 1, hour, tzinfo=UTC).timestamp()
        os.utime(place / "_delta_log" / f"{number:020}.json", (at, at))
    DeltaLog.clear_cache()
    return str(place)


@pytest.mark.parametrize("place", [here, in_a_thread])
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("door", VERSIONS)
def test_the_version_of_a_time_is_that_of_the_session_s_zone(sessions, path, door, zone, place):
    found = place(lambda: {row.n for row in VERSIONS[door](sessions[zone], path).collect()})
    assert found == set(range(NEWEST_AT_SIX[zone] + 1))


@pytest.mark.parametrize("place", [here, in_a_thread])
@pytest.mark.parametrize("door", CHANGES)
def test_the_changes_between_times_are_those_of_the_session_s_zone(sessions, path, door, place):
    found = place(lambda: {row.n for row in CHANGES[door](sessions["America/New_York"], path).collect()})
    assert found == {2} if door == "startingTimestamp" else found == {0, 1, 2}
