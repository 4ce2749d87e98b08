"""Random tables and commands by SQL and the API of a remote session leave the same logs as by a session here."""

from __future__ import annotations

import pytest

from tests.routes.run import run_seed, ways_of

pytestmark = pytest.mark.damages_tables


def test_a_seed_leaves_the_same_log_by_spark_connect(spark, live, tmp_path):
    from pyspark.sql.connect.session import SparkSession

    remote = SparkSession(f"sc://127.0.0.1:{live.connect}/;user_id=ann")
    try:
        ways = [way for way in ways_of(spark, remote) if way.name in ("api", "connect api", "connect sql")]
        outcome = run_seed(0, ways, tmp_path, spark)
    finally:
        remote.stop()
    assert outcome.wrong == [], "\n".join([*outcome.trace, *outcome.wrong])
    assert outcome.counts["connect api"] == outcome.counts["steps"] == 6
