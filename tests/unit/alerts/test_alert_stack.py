"""What the stack does for alerts: a way out for the page alone, where a webhook is set; files on shared volumes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import stack_files
import yaml
from leaks import secret

from pydelta.log import DeltaLog
from pydelta.testing.operations import create_table
from pydelta.tools.maintenance.notice import REFUSAL_URL, Listener

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def scripts(tmp_path):
    """Runs a line in a project without Docker."""
    run = stack_files.scripts_in(tmp_path)
    run.folder = tmp_path
    return run


def test_a_webhook_adds_the_page_s_way_out_and_env_keeps_it(scripts):
    asked, hook = 'source scripts/stack-lib; echo "$COMPOSE_FILE"', f"https://hooks.example/{secret('hook')}"
    assert scripts(asked) == "docker-compose.yml"
    assert scripts(asked, ALERT_WEBHOOK=hook) == "docker-compose.yml:docker-compose.alerts.yml"
    secure = "docker-compose.yml:docker-compose.secure.yml:docker-compose.alerts.yml"
    assert scripts(asked, ALERT_WEBHOOK=hook, SECURE="yes") == secure
    scripts("scripts/make-env")
    env = scripts.folder / ".env"
    assert "COMPOSE_FILE=" not in env.read_text()
    env.write_text(f"{env.read_text()}ALERT_WEBHOOK={hook}\n")
    said = scripts("scripts/make-env 2>&1")
    assert "COMPOSE_FILE=docker-compose.yml:docker-compose.alerts.yml" in env.read_text().splitlines()
    assert hook not in said
    assert scripts(asked) == "docker-compose.yml:docker-compose.alerts.yml"
    scripts("scripts/make-env", SECURE="yes")
    assert f"COMPOSE_FILE={secure}" in env.read_text().splitlines()
    env.write_text("".join(line for line in env.read_text().splitlines(True) if "ALERT_WEBHOOK=h" not in line))
    scripts("scripts/make-env", SECURE="no")
    assert "COMPOSE_FILE=" not in env.read_text()


def test_only_the_page_gets_a_way_out_and_its_network_is_the_first_by_name():
    added = yaml.safe_load((ROOT / "docker-compose.alerts.yml").read_text())
    assert added["services"] == {"ui": {"networks": {"alerts": {"aliases": ["status-page-out"]}}}}
    assert "hosts+=,status-page-out" in (ROOT / "images" / "ui" / "status-page").read_text()
    networks = stack_files.services()["ui"]["networks"]
    assert min([*networks, "alerts"]) == "alerts"
    assert "alerts" not in yaml.safe_load(stack_files.MAIN.read_text())["networks"]


def test_the_page_reads_what_the_scheduler_writes_and_keeps_its_alerts():
    services, page = stack_files.services(), (ROOT / "images" / "ui" / "status-page").read_text()
    assert services["ui"]["environment"]["PYDELTA_ALERT_WEBHOOK"] == "${ALERT_WEBHOOK:-}"
    assert "--refusals /opt/status/refusals.json" in page
    assert "--refusals /opt/status/refusals.json" in (ROOT / "jobs" / "schedule.conf").read_text()
    assert "schedule-status:/opt/status" in services["scheduler"]["volumes"]
    assert {"schedule-status:/opt/status:ro", "alert-state:/opt/alerts"} <= set(services["ui"]["volumes"])
    assert "--alert-state /opt/alerts/alerts.json" in page
    for name in ("scheduler", "sql-server", "notebook", "spark-client"):
        assert services[name]["environment"]["PYDELTA_REFUSAL_URL"] == "http://scheduler:8089/refusals", name
    assert "ALERT_WEBHOOK secret" in (ROOT / "scripts" / "stack-settings").read_text().splitlines()


def test_the_commits_that_the_stack_s_test_refuses_are_refused_and_announced(tmp_path):
    log = DeltaLog.for_table(str(tmp_path / "t"))
    create_table(log)
    listener = Listener.open("127.0.0.1:0", threading.Event())
    try:
        done = subprocess.run(
            [sys.executable, ROOT / "tests" / "stack" / "refuse_commits.py", log.uri, "3"],
            env=os.environ | {REFUSAL_URL: f"http://127.0.0.1:{listener.port}/refusals"},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        refused = listener.take_refused()
    finally:
        listener.close()
    assert done.stdout.strip() == "3"
    assert log.update().version == 1
    assert list(refused) == [(log.uri, "DELTA_METADATA_CHANGED")]
    assert refused.total() == 3
