"""The history server shows the cluster's applications, and their event logs hold no secret."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from pathlib import Path

import pytest
import zstandard

pytestmark = pytest.mark.history

EVENTS = Path("/opt/events")
PATIENCE_SECONDS = 900  # ends what hangs


def ask(path):
    with urllib.request.urlopen(f"http://history:18080/api/v1/applications{path}") as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def applications():
    """Every application by its name, once those that the script has run are there and have ended."""
    wanted = {os.environ["NAME"], "prompt", "compact"}
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = {app["name"]: app for app in reversed(ask(""))}
        if all(name in found and found[name]["attempts"][-1]["completed"] for name in wanted):
            return found
        assert time.monotonic() < give_up, f"of {wanted} there are {found}"
        time.sleep(2)


def text_of(path):
    """The events of a log, which Spark writes with zstandard in frames one after the other, perhaps cut off."""
    data, parts = path.read_bytes(), []
    if path.suffix != ".zstd" and ".zstd" not in path.name:
        return data
    while data:
        one = zstandard.ZstdDecompressor().decompressobj()
        parts.append(one.decompress(data))
        data = one.unused_data
    return b"".join(parts)


def logs():
    return {path: text_of(path) for path in sorted(EVENTS.rglob("*")) if path.is_file()}


def test_applications_of_make_submit_the_prompt_and_the_scheduler_are_shown(applications):
    for name in (os.environ["NAME"], "prompt", "compact"):
        (attempt,) = applications[name]["attempts"]
        assert attempt["duration"] > 0
        assert attempt["endTime"] > attempt["startTime"]
    jobs = ask(f"/{applications['prompt']['id']}/jobs")
    assert {job["status"] for job in jobs} == {"SUCCEEDED"}
    assert sum(job["numCompletedTasks"] for job in jobs) >= 1


def test_the_sql_server_is_shown_while_it_runs(applications):
    if os.environ["WITH_SERVER"]:
        assert applications["sql-server"]["attempts"][-1]["completed"] is False
    else:
        assert all(app["attempts"][-1]["completed"] for name, app in applications.items() if name == "sql-server")


def test_settings_that_are_secrets_are_shown_without_their_values(applications):
    shown = ask(f"/{applications[os.environ['NAME']]['id']}/environment")
    settings = {key: value for part in ("sparkProperties", "hadoopProperties") for key, value in shown[part]}
    for key in ("spark.my.password", "fs.s3a.secret.key", "fs.s3a.access.key", "fs.s3a.bucket.elsewhere.secret.key"):
        assert "redacted" in settings[key], key
    assert settings["spark.sql.warehouse.dir"] == "s3a://warehouse/", "what is no secret is shown"


@pytest.mark.parametrize("variable", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "STORE_SPARK_SECRET", "HUSH"])
def test_no_log_holds_a_secret(applications, variable):
    secret, found = os.environ[variable].encode(), logs()
    assert len(secret) >= 8
    assert any(applications["prompt"]["id"] in str(path) for path in found)
    assert any(b"SparkListenerApplicationStart" in text for text in found.values()), "logs can be read"
    assert any(b"spark.my.password" in text for text in found.values())
    assert [str(path) for path, text in found.items() if secret in text] == []
