"""What a running statement shows in Spark's pages and to its client; a long one holds up no other client's."""

from __future__ import annotations

import json
import time
import urllib.request

import pytest
from live_server import LiveServer
from TCLIService.ttypes import TOperationState

from pydelta.log import DeltaLog

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    settings = {"spark.connect.progress.reportInterval": "100ms"}
    local = {"SPARK_LOCAL_IP": "127.0.0.1"}
    found = LiveServer(tmp_path_factory.mktemp("shown"), settings=settings, environment=local, pages=True)
    yield found
    found.stop()


def merge(table, rows):
    """A MERGE whose source one core works on for as long as it takes to count rows; it deletes one row."""
    source = f"SELECT max(id % 7) AS id FROM range(0, {rows}, 1, 1)"
    return f"MERGE INTO {table} t USING ({source}) s ON t.id = s.id WHEN MATCHED THEN DELETE"


def page(server, path):
    with urllib.request.urlopen(server.pages + path) as answer:
        return answer.read().decode()


def executions(server):
    """What the SQL tab lists."""
    (application,) = json.loads(page(server, "/api/v1/applications"))
    return json.loads(page(server, f"/api/v1/applications/{application['id']}/sql?details=false&length=10000"))


def is_running(cursor):
    return cursor.poll().operationState in (TOperationState.RUNNING_STATE, TOperationState.PENDING_STATE)


def test_a_long_merge_is_in_the_sql_tab_by_its_text_and_holds_up_no_select_of_another(server):
    client, other = server.client(), server.client("grace")
    client.run("CREATE TABLE shown USING delta AS SELECT id FROM range(10)")
    text = merge("shown", 10**15)
    running = client.start(text)
    while not (found := [item for item in executions(server) if item["runningJobIds"]]):
        assert is_running(running)
        time.sleep(0.1)
    assert text in {item["description"] for item in found}
    assert "ada" in page(server, "/sqlserver/")
    for _ in range(3):
        assert other.run("SELECT count(*), sum(id + 1) FROM shown") == [(10, 55)]
    assert other.run("DESCRIBE HISTORY shown")[0][0] == 0
    assert is_running(running)
    running.cancel()
    while is_running(running):
        pass
    assert running.poll().operationState == TOperationState.CANCELED_STATE
    assert DeltaLog.for_table(str(server.warehouse / "shown")).update().version == 0


def test_a_remote_client_is_told_of_the_progress_of_its_statement(server):
    told = server.remote(
        f"""
        seen = []
        def see(stages, inflight_tasks, operation_id, done):
            seen.append(sum(stage.num_tasks for stage in stages))
        spark.sql("CREATE TABLE progress USING delta AS SELECT id FROM range(10)")
        spark.registerProgressHandler(see)
        tell(spark.sql("{merge("progress", 5 * 10**9)}").first()[0])
        tell(max(seen, default=0) > 0)
        """
    )
    assert told == [1, True]
