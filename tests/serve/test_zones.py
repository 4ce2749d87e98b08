"""A moment in a statement is in the time zone of its client's session, by both protocols."""

from __future__ import annotations

import pytest
from pyspark.sql.connect.session import SparkSession

NEW_YEAR = "TIMESTAMP '2024-01-01 00:00:00'"
LEFT = {"America/New_York": [1, 3], "Asia/Kolkata": [1, 2]}
"""What is left when the rows of New Year's Eve at midnight are deleted: each zone has one of the three moments."""
MOMENTS = "(1, 1704067200), (2, 1704085200), (3, 1704047400)"


@pytest.fixture(params=["thrift", "connect"])
def client(request, live):
    """Runs statements of one client; returns their rows."""
    if request.param == "thrift":
        found = live.client()
        yield lambda text: [tuple(row) for row in found.run(text)]
        found.close()
        return
    remote = SparkSession(f"sc://127.0.0.1:{live.connect}/;user_id=ann")
    yield lambda text: [tuple(row) for row in remote.sql(text).collect()]
    remote.stop()


@pytest.mark.parametrize("zone", LEFT)
def test_a_moment_is_in_the_zone_of_the_client(client, request, zone):
    name = f"zones_{request.node.callspec.id}".replace("-", "_").replace("/", "_").lower()
    client(f"SET spark.sql.session.timeZone = {zone}")
    client(
        f"CREATE TABLE {name} USING delta AS SELECT id, timestamp_seconds(s) AS at FROM VALUES {MOMENTS} AS v(id, s)"
    )
    [(found,)] = client(f"SELECT id FROM {name} WHERE at = {NEW_YEAR}")
    assert [found, *LEFT[zone]] in ([2, 1, 3], [3, 1, 2])
    client(f"DELETE FROM {name} WHERE at = {NEW_YEAR}")
    assert sorted(row[0] for row in client(f"SELECT id FROM {name}")) == LEFT[zone]
