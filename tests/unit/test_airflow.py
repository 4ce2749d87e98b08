"""What the profile airflow decides without Airflow: command lines, exit codes, the schedule's lines, checks."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import threading
import time
from decimal import Decimal
from pathlib import Path

import pytest
import stack_files

ROOT = Path(__file__).resolve().parents[2]
IMAGE = ROOT / "images" / "airflow"


@pytest.fixture(autouse=True)
def _package(monkeypatch):
    monkeypatch.syspath_prepend(str(IMAGE))


@pytest.fixture
def jobs():
    from lakehouse_airflow import jobs

    return jobs


def test_a_job_is_run_as_the_scheduler_runs_it(jobs):
    assert jobs.command_of("ingest", ["--input", "a b"], "spark") == [
        *("as-user", "spark", "on-network", "submit", "ingest"),
        *("--input", "a b"),
    ]


def test_a_job_gets_the_image_s_environment_and_nothing_of_airflow_s(jobs):
    given = {
        "PATH": "/opt/venv/bin:/usr/bin:/opt/airflow/bin", "PYTHONPATH": "/elsewhere", "STORE_SPARK_KEY": "spark",
        "PYDELTA_METASTORE": "thrift://hive-metastore:9083", "OPENLINEAGE_URL": "file:///opt/events/lineage",
        "AIRFLOW__CORE__FERNET_KEY": "hush", "AIRFLOW_SECRET": "hush",
        "TRINO_PASSWORD": "hush", "VIRTUAL_ENV": "/opt/airflow",
        "AWS_SECRET_ACCESS_KEY": "of-another", "AIRFLOW_CTX_DAG_ID": "daily_load", "SPARK_CONF_DIR": "/tmp/spark-conf",
    }  # fmt: skip
    found = jobs.environment_of(given)
    assert found["PATH"] == "/opt/venv/bin:/usr/bin"
    assert found["PYTHONPATH"] == "/opt/lakehouse"
    assert "hush" not in found.values()
    assert set(found) == {
        *("PATH", "PYTHONPATH", "STORE_SPARK_KEY", "PYDELTA_METASTORE", "OPENLINEAGE_URL", "AIRFLOW_CTX_DAG_ID"),
        "SPARK_CONF_DIR",
    }


def test_each_variable_that_common_yml_gives_to_programs_reaches_a_job(jobs):
    given = {name: "x" for name in stack_files.services()["scheduler"]["environment"] if not name.startswith("AWS_")}
    times = {"SYNC_EVERY_SECONDS", "INVENTORY_AT", "COMPACT_AT", "VACUUM_AT", "MAINTENANCE_BY"}
    left_out = set(given) - set(jobs.environment_of(given)) - {name for name in given if name.startswith("MAINTAIN_")}
    assert left_out == times


@pytest.mark.parametrize(
    ("job", "arguments", "expected"),
    [
        ("ingest", [], False),
        ("ingest", ["--mode", "append"], False),
        ("ingest", ["--mode", "overwrite"], True),
        ("ingest", ["--mode=overwrite"], True),
        ("ingest", ["--mode", "overwrite", "--mode", "append"], False),
        ("ingest", ["--batch-id", "sales:1"], True),
        ("compact", [], True),
        ("vacuum", [], True),
        ("stream_copy", [], False),
        ("my/own.py", [], False),
    ],
)
def test_a_job_may_run_twice_if_the_second_run_changes_nothing(jobs, job, arguments, expected):
    assert jobs.is_repeatable(job, arguments) is expected


@pytest.mark.parametrize(
    ("code", "repeatable", "reported", "expected"),
    [
        (0, False, True, "DONE"),
        (1, True, True, "GIVE_UP"),
        (1, True, False, "AGAIN"),
        (1, False, False, "GIVE_UP"),
        (2, False, True, "AGAIN"),
        (2, True, True, "AGAIN"),
        (3, False, True, "GIVE_UP"),
        (3, True, True, "AGAIN"),
        (4, True, True, "GIVE_UP"),
        (127, True, False, "GIVE_UP"),
        (137, True, False, "AGAIN"),
        (137, False, False, "GIVE_UP"),
        (-9, True, False, "AGAIN"),
        (-9, False, False, "GIVE_UP"),
    ],
)
def test_what_follows_from_an_exit_code(jobs, code, repeatable, reported, expected):
    assert jobs.what_next(code, repeatable=repeatable, reported=reported) is jobs.Next[expected]


def test_the_meanings_are_those_of_make_submit(jobs):
    submit = (ROOT / "scripts" / "stack-submit").read_text()
    for code, words in (
        (1, "has to change first"),
        (2, "nothing is lost"),
        (3, "the outcome is unknown"),
        (4, "a check failed"),
    ):
        assert words in submit
        assert words in jobs.explained("load", code, repeatable=False, report={})


def test_an_end_is_explained_with_what_the_job_said_and_what_to_do(jobs):
    said = jobs.explained("ingest", 1, repeatable=True, report={"message": "There is no file."})
    assert said.startswith("ingest ended with exit code 1: the input, an argument or the table has to change first.")
    assert "It said: There is no file." in said
    assert "clear the task" in said
    unknown = jobs.explained("ingest", 3, repeatable=False, report={"message": "m"})
    assert "not run again by itself" in unknown
    assert "history" in unknown
    assert "run again" in jobs.explained("ingest", 137, repeatable=True)
    assert "it was killed" in jobs.explained("ingest", -9, repeatable=False)


def test_a_report_is_the_line_of_json_and_nothing_else(jobs):
    assert jobs.report_of('{"rows": 3}') == {"rows": 3}
    assert jobs.report_of("3") is None
    assert jobs.report_of("Traceback") is None


def test_secrets_are_masked_the_longest_first(jobs):
    variables = {
        "STORE_SPARK_SECRET": "of-spark-1",
        "STORE_SPARK_KEY": "spark-key-1",
        "TRINO_PASSWORD": "of-spark-1-and",
        "X_TOKEN": "short",
    }
    secrets = jobs.secrets_of(variables)
    assert secrets == ["of-spark-1-and", "of-spark-1"]
    assert jobs.masked("a of-spark-1-and b of-spark-1 c spark-key-1", secrets) == "a *** b *** c spark-key-1"


# --- processes ---


def process(command, **variables):
    from lakehouse_airflow.processes import Process

    return Process(command, dict(os.environ) | variables, leash=str(IMAGE / "bin" / "held"))


def test_lines_of_both_outputs_come_as_they_are_and_the_last_of_standard_output_is_kept():
    told = []
    ended = process(["bash", "-c", "echo one; echo two >&2; echo '{\"rows\": 1}'; exit 3"]).follow(told.append)
    assert (ended.code, ended.last) == (3, '{"rows": 1}')
    assert sorted(told) == ["one", "two", '{"rows": 1}'] or set(told) == {"one", "two", '{"rows": 1}'}


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid):
    give_up = time.monotonic() + 30
    while alive(pid):
        assert time.monotonic() < give_up, f"{pid} is still there"
        time.sleep(0.05)


def test_what_a_process_started_ends_with_it():
    told, begun = [], threading.Event()

    def tell(line):
        told.append(line)
        begun.set()

    running = process(["bash", "-c", "sleep 600 & echo $!; wait"])
    thread = threading.Thread(target=running.follow, args=(tell,))
    thread.start()
    assert begun.wait(30)
    running.end()
    thread.join(30)
    gone(int(told[0]))


def test_a_process_ends_if_its_program_is_killed():
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from lakehouse_airflow.processes import Process\n"
        "import os\n"
        "Process(['bash', '-c', 'sleep 600 & echo $!; wait'], os.environ, leash=sys.argv[1] + '/bin/held')"
        ".follow(lambda line: print(line, flush=True))\n"
    )
    program = subprocess.Popen([sys.executable, "-c", script, str(IMAGE)], stdout=subprocess.PIPE, text=True)
    pid = int(program.stdout.readline())
    assert alive(pid)
    program.send_signal(signal.SIGKILL)
    program.wait(30)
    gone(pid)
    program.stdout.close()


# --- the schedule ---


@pytest.fixture
def schedule():
    from lakehouse_airflow import schedule

    return schedule


def read(schedule, **variables):
    program = [sys.executable, str(ROOT / "jobs" / "schedule.py"), str(ROOT / "jobs" / "schedule.conf"), "--as-json"]
    env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/tmp")}
    return schedule.read_schedule(env | variables, program=["env", f"PYTHONPATH={ROOT}", *program])


def test_the_lines_with_a_time_of_day_are_tasks_and_the_others_are_the_scheduler_s(schedule):
    lines = read(schedule)
    assert [[step.name for step in line.steps] for line in lines] == [
        ["inventory", "load_inventory"],
        ["compact"],
        ["vacuum"],
    ]
    assert [line.at for line in lines] == ["01:00", None, None]
    assert lines[1].steps[0].command[:4] == ("as-user", "spark", "submit", "compact")
    assert schedule.cron_of(lines) == "0 1 * * *"


def test_times_are_those_of_env_and_order_the_lines(schedule):
    lines = read(schedule, INVENTORY_AT="04:30", COMPACT_AT="02:05", VACUUM_AT="never", LAKE_DATABASES="lake")
    assert [(line.at, line.steps[0].name) for line in lines] == [
        ("02:05", "compact"),
        ("04:30", "inventory"),
        (None, "vacuum"),
    ]
    assert "lake" in lines[0].steps[0].command
    assert schedule.cron_of(lines) == "5 2 * * *"
    assert schedule.cron_of(read(schedule, INVENTORY_AT="never")) is None


def test_a_schedule_that_cannot_be_read_is_an_error_with_its_reason(schedule):
    with pytest.raises(ValueError, match=r"cannot be read.*Line 4.*Next: "):
        read(schedule, INVENTORY_AT="25:00")


def test_two_commands_of_one_name_are_two_tasks(schedule):
    entry = {
        "commands": [["as-user", "spark", "submit", "compact", "a"], ["as-user", "spark", "submit", "compact", "b"]],
        "every": None,
    }
    (line,) = schedule.lines_of([{**entry, "at": "01:00", "keeps": False}])
    assert [step.name for step in line.steps] == ["compact", "compact_2"]


def test_with_maintenance_by_airflow_the_scheduler_leaves_these_lines(tmp_path):
    (tmp_path / "python").write_text('#!/bin/sh\necho "$*"\n')
    (tmp_path / "python").chmod(0o755)
    script = ROOT / "images" / "spark" / "bin" / "scheduler"

    def words(**variables):
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"} | variables
        return subprocess.run([script], env=env, capture_output=True, text=True, check=True).stdout.split()

    assert "--without-daily" not in words()
    assert "--without-daily" not in words(MAINTENANCE_BY="scheduler")
    assert "--without-daily" in words(MAINTENANCE_BY="airflow")
    done = subprocess.run(
        [sys.executable, ROOT / "jobs" / "schedule.py", ROOT / "jobs" / "schedule.conf", "--check", "--without-daily"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "VACUUM_AT": "03:00"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "daily" not in done.stdout
    assert done.stdout.count("never: ") == 3
    assert "every 60 s: " in done.stdout


def test_the_schedule_s_variables_are_airflow_s_too():
    of_scheduler, of_airflow = (stack_files.services()[name]["environment"] for name in ("scheduler", "airflow"))
    handed_on = {name for name, value in of_scheduler.items() if value is None}
    assert handed_on <= {name for name, value in of_airflow.items() if value is None}
    assert of_scheduler["MAINTENANCE_BY"] == of_airflow["MAINTENANCE_BY"]


# --- checks ---


@pytest.mark.parametrize(
    ("columns", "rows", "expected"),
    [
        (["ok"], [[True]], None),
        (["ok", "found"], [[True, 3]], None),
        (["ok", "found", "put"], [[False, 3, 4]], "Not true: ok. Seen: ok=false, found=3, put=4."),
        (["ok", "sum"], [[True, None]], "Not true: sum. Seen: ok=true, sum=NULL."),
        (["a", "b"], [[False, None]], "A check returns"),
        (["a"], [[1]], "A check returns a boolean, but this one returned a=1."),
        (["a"], [], "A check returns one row, but this one returned 0."),
        (["a"], [[True], [True]], "A check returns one row, but this one returned 2."),
    ],
)
def test_a_check_holds_if_each_boolean_is_true_and_says_what_it_saw(columns, rows, expected):
    from lakehouse_airflow.checks import what_is_wrong

    found = what_is_wrong(columns, rows)
    if columns == ["a", "b"]:
        expected = "Not true: a, b. Seen: a=false, b=NULL."
    assert found == expected


# --- the day's sales ---


def test_a_day_s_sales_are_the_same_each_time_and_other_days_have_others():
    from lakehouse_airflow import sales

    day = dt.date(2026, 1, 5)
    rows = sales.sales_of(day)
    assert rows == sales.sales_of(day)
    assert rows != sales.sales_of(dt.date(2026, 1, 6))
    assert 200 <= len(rows) <= 300
    assert len({row.id for row in rows}) == len(rows)
    assert not {row.id for row in rows} & {row.id for row in sales.sales_of(dt.date(2026, 1, 6))}
    text = sales.as_csv(rows).decode().splitlines()
    assert text[0].split(",") == [column.split()[0] for column in sales.SCHEMA.replace("(10,2)", "").split(", ")]
    assert len(text) == len(rows) + 1
    facts = sales.facts(rows)
    assert facts["rows"] == len(rows)
    assert Decimal(facts["amount"]) == sum(Decimal(line.split(",")[-1]) for line in text[1:])


# --- the container ---


def run_airflow(tmp_path, **variables):
    """Run the image's program for commands with a stand-in for Airflow's own; its environment."""
    text = (IMAGE / "bin" / "airflow").read_text().replace("exec /opt/airflow/bin/airflow", "exec env")
    (tmp_path / "airflow").write_text(text)
    env = {"PATH": os.environ["PATH"], "AIRFLOW_HOME": "/tmp/airflow"} | variables
    done = subprocess.run(["bash", tmp_path / "airflow"], env=env, capture_output=True, text=True, check=True)
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def test_the_keys_are_made_of_one_secret_and_the_program_does_not_get_it(tmp_path):
    secrets = {"AIRFLOW_SECRET": "s-hush-1", "AIRFLOW_DATABASE_PASSWORD": "p+w/x@", "AIRFLOW_PASSWORD": "a-hush-1"}
    found = run_airflow(tmp_path, **secrets)
    keys = ("CORE__FERNET_KEY", "API_AUTH__JWT_SECRET", "API__SECRET_KEY")
    made = [found[f"AIRFLOW__{name}"] for name in keys]
    assert len(set(made)) == 3
    assert {len(key) for key in made} == {44}
    assert found["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].endswith("//airflow:p%2Bw%2Fx%40@airflow-database/airflow")
    assert not set(secrets) & set(found)
    assert run_airflow(tmp_path, **secrets) == found
    other = run_airflow(tmp_path, **secrets | {"AIRFLOW_SECRET": "another"})
    assert not set(made) & {other[f"AIRFLOW__{name}"] for name in keys}


def test_airflow_asks_nobody_outside_and_reads_both_folders_of_dags(tmp_path):
    found = run_airflow(tmp_path, AIRFLOW_PORT="29189")
    assert found["AIRFLOW__USAGE_DATA_COLLECTION__ENABLED"] == "False"
    assert found["AIRFLOW__API__BASE_URL"] == "http://127.0.0.1:29189"
    bundles = json.loads(found["AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"])
    assert [item["kwargs"]["path"] for item in bundles] == ["/opt/lakehouse-airflow/dags", "/opt/dags"]
    mounted = [volume.split(":")[1] for volume in stack_files.services()["airflow"]["volumes"]]
    assert "/opt/dags" in mounted


def test_without_a_password_the_server_does_not_start():
    done = subprocess.run(
        [IMAGE / "bin" / "airflow-server"], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "There is no AIRFLOW_PASSWORD in .env" in done.stderr
    assert "Next: make up" in done.stderr
