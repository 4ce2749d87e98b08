"""Spark's and Hive's own settings hold for what the engine runs: pools, the size of a result, idle sessions."""

from __future__ import annotations

import json
import time

import pytest
from live_server import Failed, LiveServer
from pyhive.exc import OperationalError

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("limits")
    (folder / "events").mkdir()
    settings = {
        "spark.scheduler.mode": "FAIR",
        "spark.driver.maxResultSize": "1m",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.hadoop.hive.server2.session.check.interval": "3000",
        "spark.hadoop.hive.server2.idle.session.timeout": "30000",  # longer than a busy machine takes to begin one
        "spark.connect.session.manager.defaultSessionTimeout": "30s",
        "spark.connect.session.manager.maintenanceInterval": "3s",
    }
    found = LiveServer(folder, *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")))
    found.events = folder / "events"
    yield found
    found.stop()


def pools_of_jobs(server):
    """The pools of the jobs so far, in their order, None where a job is in none."""
    found = []
    for file in server.events.iterdir():
        for line in file.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerJobStart":
                found.append(event["Properties"].get("spark.scheduler.pool"))
    return found


def test_jobs_of_every_statement_are_in_the_pool_that_a_session_names(server):
    client = server.client()
    client.run("CREATE TABLE pooled (id BIGINT, p INT) USING delta PARTITIONED BY (p)")
    client.run("INSERT INTO pooled SELECT id, CAST(id % 3 AS INT) FROM range(100)")
    before = len(pools_of_jobs(server))
    client.run("SET spark.sql.thriftserver.scheduler.pool=slow")
    client.run("INSERT INTO pooled SELECT id + 100, 7 FROM range(10)")
    client.run("DELETE FROM pooled WHERE sha1(CAST(id AS STRING)) < '2'")
    client.run("MERGE INTO pooled t USING (SELECT id FROM range(60, 70)) s ON t.id = s.id WHEN MATCHED THEN DELETE")
    client.run("SELECT sum(id) FROM pooled")
    pools = pools_of_jobs(server)[before:]
    assert len(pools) >= 3
    assert set(pools) == {"slow"}


def test_a_result_that_is_too_large_is_refused_and_the_server_goes_on(server):
    client = server.client()
    with pytest.raises(Failed, match=r"spark\.driver\.maxResultSize"):
        client.run("SELECT id, repeat(sha2(CAST(id AS STRING), 512), 4) AS text FROM range(20000)")
    assert client.run("SELECT 1") == [(1,)]


def use(client, text):
    """Run a statement and close it: a session with a statement that is open does not idle."""
    cursor = client.connection.cursor()
    try:
        cursor.execute(text)
    finally:
        cursor.close()


def test_a_session_that_idles_is_closed(server):
    client = server.client()
    use(client, "CREATE TEMPORARY VIEW mine AS SELECT 1 AS one")
    for pause in (36, 72, 144):  # each use makes it busy again, so a slow machine gets longer breaks
        time.sleep(pause)
        try:
            use(client, "SELECT * FROM mine")
        except OperationalError as error:
            assert "Invalid SessionHandle" in str(error)
            return
    pytest.fail("the session was never closed")


def test_a_remote_session_that_idles_is_closed(server):
    told = server.remote(
        """
        import time
        from pyspark.errors import PySparkException
        spark.sql("CREATE TEMPORARY VIEW mine AS SELECT 1 AS one")
        for pause in (40, 80, 160):
            time.sleep(pause)
            try:
                spark.sql("SELECT * FROM mine").collect()
            except PySparkException as error:
                tell(error.getCondition() or str(error)[:200])
                break
        """
    )
    assert len(told) == 1
    assert "SESSION" in told[0]
