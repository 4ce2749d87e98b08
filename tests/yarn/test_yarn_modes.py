"""A job on YARN, with the engine from an archive: the driver here, and the driver in the cluster."""

from __future__ import annotations

import json
import re

import pytest
from submitting import ENGINE_OF_THE_ARCHIVE, rows_that_it_leaves

from pydelta.log import DeltaLog


def test_the_driver_is_here_and_the_archive_is_uploaded(lake, tmp_path):
    table = lake.new_table()
    with lake.submit("client", [table], folder=tmp_path, archive=lake.archive) as submission:
        code, said = submission.ended()
    assert code == 0, said[-6000:]
    assert "rows 902 on yarn" in said
    assert re.search(ENGINE_OF_THE_ARCHIVE, said)
    assert lake.rows(table) == rows_that_it_leaves()
    assert lake.yarn.application(said)["finalStatus"] == "SUCCEEDED"


def test_the_driver_is_in_the_cluster_and_the_archive_is_on_hdfs(lake, tmp_path):
    table = lake.new_table()
    with lake.submit("cluster", [table], folder=tmp_path) as submission:
        code, said = submission.ended()
    found = lake.yarn.application(said)
    assert code == 0, said[-3000:] + lake.yarn.container_logs(found["id"])[-6000:]
    assert found["finalStatus"] == "SUCCEEDED"
    assert "rows 902 on yarn" in (written := lake.yarn.container_logs(found["id"]))
    assert "rows 902" not in said
    assert re.search(ENGINE_OF_THE_ARCHIVE, written)
    assert lake.rows(table) == rows_that_it_leaves()
    assert DeltaLog.for_table(table).update().version == 4


def test_executors_that_are_given_back_are_asked_for_again(lake, tmp_path):
    """The job goes on after its first write only when no executor is left."""
    table = lake.new_table()
    conf = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
        "spark.dynamicAllocation.initialExecutors": 0,
        "spark.dynamicAllocation.minExecutors": 0,
        "spark.dynamicAllocation.maxExecutors": 2,
        "spark.dynamicAllocation.executorIdleTimeout": "2s",
        "spark.executor.instances": 0,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": tmp_path.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    with lake.submit("client", [table, "--until-idle"], folder=tmp_path, conf=conf) as submission:
        code, said = submission.ended()
    assert code == 0, said[-6000:]
    assert lake.rows(table) == rows_that_it_leaves()
    events = _events_of_executors(tmp_path)
    assert re.search(r"A+R+A+", events), events


def _events_of_executors(folder):
    """``A`` for each executor that was added, ``R`` for each that was given back, not lost."""
    (log,) = [file for file in folder.iterdir() if file.name.startswith("application_")]
    found = ""
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerExecutorAdded":
            found += "A"
        if event["Event"] == "SparkListenerExecutorRemoved" and event["Removed Reason"] == "Executor killed by driver.":
            found += "R"
    return found


@pytest.mark.parametrize("containers", [True, False], ids=["a dead machine", "a cut cable"])
def test_a_node_is_lost_while_its_tasks_write(lake, tmp_path, containers):
    """Of a dead machine the executors are dead, too; behind a cut cable they write on, which nobody must count."""
    table, gate = lake.new_table(), tmp_path / "gate"
    gate.mkdir()
    conf = {
        "spark.executor.instances": 3,  # one beside the driver or its agent, two on the other node
        "spark.scheduler.minRegisteredResourcesRatio": 1.0,
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
    }
    with lake.submit("cluster", [table, "--gate", str(gate)], folder=tmp_path, conf=conf) as submission:
        node = lake.yarn.node_to_lose(gate, submission.process)
        lake.yarn.lose(node, containers=containers)
        try:
            if not containers:  # only the ResourceManager notices; a dead executor's driver does so at once
                lake.yarn.wait_for_nodes(1)
            (gate / "open").touch()
            code, said = submission.ended()
        finally:
            lake.yarn.bring_back(node)
    found = lake.yarn.application(said)
    assert code == 0, said[-3000:] + lake.yarn.container_logs(found["id"])[-6000:]
    assert found["finalStatus"] == "SUCCEEDED"
    assert lake.rows(table) == rows_that_it_leaves()
    assert DeltaLog.for_table(table).update().version == 4
