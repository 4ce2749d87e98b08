"""Random tables and commands by SQL and the API of a remote session leave the same logs as without a JVM."""

from __future__ import annotations

import pytest

from tests.routes.run import run_seed, ways_of

pytestmark = pytest.mark.damages_tables


def test_a_seed_leaves_the_same_log_by_spark_connect(live, tmp_path):
    from pyspark.sql.connect.session import SparkSession

    remote = SparkSession(f"sc://127.0.0.1:{live.connect}/;user_id=ann")
    try:
        outcome = run_seed(0, ways_of(remote), tmp_path, remote)
    finally:
        remote.stop()
    assert outcome.wrong == [], "\n".join([*outcome.trace, *outcome.wrong])
    assert outcome.counts["connect api"] == outcome.counts["connect sql"] == 6
    assert outcome.counts["no JVM"] > 3
