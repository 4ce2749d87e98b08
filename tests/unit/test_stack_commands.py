"""The commands of the stack's services, which are scripts of their images; what they start is a stand-in."""

from __future__ import annotations

import os
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
import stack_files

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "images"
SPARK = IMAGES / "spark" / "bin"


@pytest.fixture
def run(tmp_path):
    """Run a script that starts one of the stand-ins; gives its arguments and the variables that it was given."""

    def started(script: Path, *words: str, stand_in: str, **env: str) -> tuple[list[str], dict[str, str]]:
        (tmp_path / stand_in).write_text(f'#!/bin/sh\nprintf "%s\\0" "$@" >{tmp_path}/words\nenv -0 >{tmp_path}/env\n')
        (tmp_path / stand_in).chmod(0o755)
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        subprocess.run([script, *words], env=path | env, capture_output=True, check=True)
        said = (tmp_path / "words").read_text().split("\0")[:-1]
        given = (tmp_path / "env").read_text().split("\0")[:-1]
        return said, dict(line.partition("=")[::2] for line in given)

    return started


def options(words: list[str], name: str) -> list[str]:
    return [after for word, after in pairwise(words) if word == name]


def test_the_page_asks_the_stack_s_services_and_links_them_at_their_ports(run):
    words, _ = run(IMAGES / "ui" / "status-page", stand_in="pydelta", TRINO_PORT="", PRESTO_PORT="29190")
    assert words[:6] == ["ui", "--host", "status-page", "--no-login", "--port", "8088"]
    assert options(words, "--schedule") == ["/opt/status/schedule.json", "/opt/status/maintenance.json"]
    assert options(words, "--service") == [
        "Object store=http://minio:9000/minio/health/live",
        "Metastore=thrift://hive-metastore:9083",
        "Trino=http://trino:8080/v1/info,http://127.0.0.1:8080/",
        "Spark=http://spark-worker:8081/json/,http://127.0.0.1:8081/",
    ]
    optional = options(words, "--optional-service")
    names = ["Kafka", "Presto", "Spark history", "Notebooks", "Iceberg REST", "Charts", "Change capture", "Change job"]
    names += ["Airflow", "SQL server", "SQL session", "Monitor"]
    assert [word.partition("=")[0] for word in optional] == names
    assert optional[1] == "Presto=http://presto:8080/v1/info,http://127.0.0.1:29190/"
    secure = {"TRINO_SCHEME": "https", "TRINO_PORT": "29143", "STORE_CHECK": "tcp://namenode:8020"}
    words, _ = run(IMAGES / "ui" / "status-page", stand_in="pydelta", **secure)
    assert options(words, "--service")[0] == "Object store=tcp://namenode:8020"
    assert options(words, "--service")[2] == "Trino=http://trino:8080/v1/info,https://127.0.0.1:29143/"


def test_the_page_asks_the_stack_s_engines_and_shows_rows_where_trino_asks_no_password(run):
    words, _ = run(IMAGES / "ui" / "status-page", stand_in="pydelta")
    assert options(words, "--engine") == [
        "Spark=file:///opt/status/cluster.json",
        "Trino=http://trino:8080/v1/query",
        "Presto=http://presto:8080/v1/query",
        "Spark history=http://history:18080/api/v1/applications?limit=200",
    ]
    assert options(words, "--lineage") == ["/opt/events/lineage"]
    given = [("", "", True), ("", "https", False), ("yes", "https", True), ("no", "", False), ("no", "https", False)]
    for preview, scheme, shows in given:
        words, _ = run(IMAGES / "ui" / "status-page", stand_in="pydelta", UI_PREVIEW=preview, TRINO_SCHEME=scheme)
        assert words[-1] == ("--preview" if shows else "--no-preview"), (preview, scheme)


def test_each_profile_of_the_stack_has_a_service_that_may_not_be_started(run):
    words, _ = run(IMAGES / "ui" / "status-page", stand_in="pydelta")
    shown = {word.partition("=")[0] for word in options(words, "--optional-service")}
    profiles = {profile for service in stack_files.services().values() for profile in service.get("profiles", [])}
    named = {
        "kafka": "Kafka",
        "presto": "Presto",
        "history": "Spark history",
        "notebook": "Notebooks",
        "iceberg": "Iceberg REST",
        "serve": "SQL server",
        "session": "SQL session",
        "monitor": "Monitor",
        "cdc": "Change capture",
        "bi": "Charts",
        "airflow": "Airflow",
    }
    assert {*named.values(), "Change job"} == shown
    stores_and_steps = {"minio", "versity", "hdfs", "external", "client", "tests", "certificates", "secure"}
    assert profiles - stores_and_steps <= named.keys() | {"sql"}, profiles


def test_what_the_master_says_is_written_down_for_the_page_and_its_last_word_stays(tmp_path):
    (tmp_path / "curl").write_text(
        f'#!/bin/sh\n[ -e {tmp_path}/down ] && exit 7\nwhile [ "$1" != -o ]; do shift; done\necho "{{}}" >"$2"\n'
    )
    (tmp_path / "curl").chmod(0o755)
    (tmp_path / "sleep").write_text(f"#!/bin/sh\n[ -e {tmp_path}/down ] && kill $PPID\ntouch {tmp_path}/down\n")
    (tmp_path / "sleep").chmod(0o755)
    file = tmp_path / "cluster.json"
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run([SPARK / "cluster-status", file], env=env, check=False, timeout=60)
    assert file.read_text() == "{}\n"
    assert not file.with_name("cluster.json.new").exists()


def test_the_page_reads_the_events_that_programs_write():
    services = stack_files.services()
    assert "spark-events:/opt/events:ro" in services["ui"]["volumes"]
    for name in ("scheduler", "sql-server", "notebook", "airflow", "spark-client"):
        assert "OPENLINEAGE_URL" in services[name]["environment"], name
        assert any(volume.startswith("spark-events:/opt/events") for volume in services[name]["volumes"]), name
    assert "OPENLINEAGE_URL" not in services["ui"]["environment"]


def test_the_page_s_service_hands_on_each_variable_that_its_script_reads():
    script = (IMAGES / "ui" / "status-page").read_text()
    environment = stack_files.services()["ui"]["environment"]
    handed_on = {name for name, value in environment.items() if value is None}
    assert handed_on == {part.partition(":-")[0] for part in script.split("${")[1:]} - {"1"}


def test_the_scheduler_keeps_its_state_where_its_check_looks(run):
    words, _ = run(SPARK / "scheduler", stand_in="python")
    assert words == ["/opt/jobs/schedule.py", "/opt/jobs/schedule.conf", "--status", "/opt/status/schedule.json"]
    checked, _ = run(SPARK / "scheduler", "--healthy", stand_in="python")
    assert checked == [*words, "--status", "/opt/status/maintenance.json", "--healthy"]


def test_what_env_may_say_of_the_schedule_is_handed_on_and_has_its_default_in_the_schedule():
    plan = (ROOT / "jobs" / "schedule.conf").read_text()
    read = {part.partition(":-")[0] for part in plan.split("${")[1:]} - {"STORE_ROOT"}
    environment = stack_files.services()["scheduler"]["environment"]
    assert read == {name for name, value in environment.items() if value is None and not name.startswith("STORE_")}
    assert plan.count("${") == plan.count(":-")


def test_the_master_recovers_its_applications_and_the_worker_frees_its_disk(run):
    words, env = run(SPARK / "cluster", "master", stand_in="spark-class")
    assert words[0] == "org.apache.spark.deploy.master.Master"
    assert "-Dspark.deploy.recoveryMode=FILESYSTEM" in env["SPARK_MASTER_OPTS"]
    words, env = run(SPARK / "cluster", "worker", "3", "2g", stand_in="spark-class")
    assert (options(words, "--cores"), options(words, "--memory"), words[-1]) == (
        ["3"],
        ["2g"],
        "spark://spark-master:7077",
    )
    assert "-Dspark.worker.cleanup.enabled=true" in env["SPARK_WORKER_OPTS"]


@pytest.mark.parametrize(
    ("script", "words", "answers", "healthy"),
    [
        (SPARK / "cluster", ["schedules"], ['"status" : "ALIVE"'], True),
        (SPARK / "cluster", ["schedules"], ['"status" : "RECOVERING"'], False),
        (SPARK / "cluster", ["has-worker"], ['"aliveworkers" : 1,'], True),
        (SPARK / "cluster", ["has-worker"], ['"aliveworkers" : 0,'], False),
        (IMAGES / "trino" / "bin" / "healthy", [], ['{"starting":false}'], True),
        (IMAGES / "trino" / "bin" / "healthy", [], ['{"starting":true}'], False),
        (IMAGES / "presto" / "bin" / "healthy", [], ['{"starting":false}', '{"activeWorkers":1}'], True),
        (IMAGES / "presto" / "bin" / "healthy", [], ['{"starting":false}', '{"activeWorkers":0}'], False),
        (IMAGES / "presto" / "bin" / "healthy", [], ['{"starting":true}', '{"activeWorkers":1}'], False),
        (IMAGES / "presto" / "bin" / "healthy", [], [], False),
    ],
)  # fmt: skip
def test_a_server_is_healthy_by_what_it_answers(tmp_path, script, words, answers, healthy):
    for number, answer in enumerate(answers):
        (tmp_path / f"answer{number}").write_text(answer)
    (tmp_path / "curl").write_text(
        f'#!/bin/sh\nn=$(cat {tmp_path}/n 2>/dev/null || echo 0)\necho $((n + 1)) >{tmp_path}/n\n'
        f'exec cat {tmp_path}/answer$n 2>/dev/null\n'
    )  # fmt: skip
    (tmp_path / "curl").chmod(0o755)
    done = subprocess.run([script, *words], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, check=False)
    assert (done.returncode == 0) == healthy


def test_each_script_that_a_service_runs_is_in_its_image():
    known = {
        "spark": SPARK,
        "ui": IMAGES / "ui",
        "trino": IMAGES / "trino" / "bin",
        "presto": IMAGES / "presto" / "bin",
    }
    services = stack_files.services()
    checked = {
        ("spark", services["spark-master"]["command"][0]),
        ("spark", services["spark-worker"]["command"][0]),
        ("spark", services["scheduler"]["command"][0]),
        ("ui", services["ui"]["command"][0]),
        ("ui", services["iceberg"]["command"][0]),
        ("ui", services["iceberg"]["healthcheck"]["test"][1]),
        *((name, services[name]["healthcheck"]["test"][1]) for name in ("trino", "presto", "ui")),
        *(
            ("spark", services[name]["healthcheck"]["test"][1])
            for name in ("spark-master", "spark-worker", "scheduler")
        ),
    }
    for image, name in checked:
        assert os.access(known[image] / name, os.X_OK), (image, name)
