"""What the scheduler runs, and when; commands are recorded, the clock is the test's."""

from __future__ import annotations

import datetime as dt
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from jobs import schedule
from jobs.schedule import Ended, Entry, Scheduler, StatusFile, parse_schedule, problems, warnings
from pydelta.errors import InvalidArgumentError

ROOT = Path(__file__).resolve().parents[2]
MORNING = dt.datetime(2026, 3, 10, 0, 30, tzinfo=dt.UTC)


def test_a_schedule_is_read_with_the_environment():
    text = """
    # a comment
    every ${EVERY:-60} sync --name "a b"  # at once
    daily $AT one --x && two
    daily ${OFF:-never} three
    never four
    keep five --on
    """
    assert parse_schedule(text, {"AT": "01:00", "EVERY": ""}) == [
        Entry(commands=(("sync", "--name", "a b"),), every=60),
        Entry(commands=(("one", "--x"), ("two",)), at=dt.time(1)),
        Entry(commands=(("three",),)),
        Entry(commands=(("four",),)),
        Entry(commands=(("five", "--on"),), every=30, keeps=True),
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("hourly x", "begins with 'hourly'"),
        ("every soon x", "invalid literal"),
        ("every 0 x", "less than a second"),
        ("daily 25:00 x", "hour must be in"),
        ("daily 01:00", "no command"),
        ("daily 01:00 a &&", "no command"),
        ("every 5 $NOT_SET", "NOT_SET is not set"),
    ],
)
def test_a_line_that_cannot_be_understood_is_refused(line, says):
    with pytest.raises(InvalidArgumentError, match="Line 2") as caught:
        parse_schedule(f"never x\n{line}", {})
    assert says in str(caught.value)


def test_the_stack_s_own_schedule(capsys):
    assert schedule.main([str(ROOT / "jobs" / "schedule.conf"), "--check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "every 60 s", "daily 01", "kept running", "kept running", "never", "never"
    ]  # fmt: skip
    for job in ("inventory", "load_inventory", "maintain", "compact", "vacuum"):
        assert (ROOT / "jobs" / f"{job}.py").exists()
    assert schedule.main(["/no/such/file"]) == 1


def test_entries_run_at_their_times_and_a_failure_ends_the_chain():
    now = [MORNING]
    ran = []
    text = "every 60 sync\ndaily 01:00 list && load\ndaily 01:00 fails && not-reached\nnever vacuum"

    def execute(command):
        ran.append(command[0])
        return Ended(code=int(command[0] == "fails"))

    scheduler = Scheduler(parse_schedule(text, {}), execute, lambda: now[0])

    def at(minutes):
        del ran[:]
        now[0] = MORNING + dt.timedelta(minutes=minutes)
        wait = scheduler.start_due()
        scheduler.join()
        return wait, sorted(ran)

    assert at(0) == (60.0, ["sync"])
    assert at(0.5) == (30.0, [])
    assert at(30) == (60.0, ["fails", "list", "load", "sync"])
    assert at(31) == (60.0, ["sync"])
    assert at(24 * 60 + 30) == (60.0, ["fails", "list", "load", "sync"])


@pytest.mark.parametrize("hours", [2, 24, 24 * 365])
def test_a_clock_that_is_put_back_delays_no_entry(hours):
    now = [MORNING + dt.timedelta(hours=hours)]
    ran = []
    schedule = parse_schedule("every 60 sync\ndaily 01:00 list\nevery 600 maintain", {})
    scheduler = Scheduler(schedule, lambda command: ran.append(command[0]) or Ended(code=0), lambda: now[0])
    scheduler.start_due()
    scheduler.join()
    del ran[:]
    now[0] = MORNING
    assert scheduler.start_due() == 60
    now[0] += dt.timedelta(seconds=60)
    scheduler.start_due()
    scheduler.join()
    now[0] = MORNING + dt.timedelta(minutes=30)
    scheduler.start_due()
    scheduler.join()
    assert sorted(ran) == ["list", "maintain", "sync", "sync"]


def test_what_is_still_running_is_not_started_again():
    now = [MORNING]
    release, started = threading.Event(), []

    def execute(command):
        started.append(command)
        release.wait(30)
        return Ended(code=0)

    scheduler = Scheduler(parse_schedule("every 1 slow", {}), execute, lambda: now[0])
    for _ in range(3):
        scheduler.start_due()
        now[0] += dt.timedelta(seconds=5)
    release.set()
    scheduler.join()
    assert len(started) == 1


def test_the_status_says_which_run_failed_and_why_until_it_runs_well(tmp_path):
    now, codes = [MORNING], {"sync": 0, "load": 4}
    file = tmp_path / "status.json"

    def execute(command):
        return Ended(code=codes[command[0]], said=f"{command[0]} said so")

    text = "every 60 sync\ndaily 00:40 load --all && sync\nnever vacuum"
    scheduler = Scheduler(parse_schedule(text, {}), execute, lambda: now[0], StatusFile(file))

    def found(minutes):
        now[0] = MORNING + dt.timedelta(minutes=minutes)
        scheduler.start_due()
        scheduler.join()
        return problems(json.loads(file.read_text()), now[0])

    assert found(0) == []
    assert found(10) == ["load --all ended with exit code 4 at 2026-03-10T00:40:00+00:00\nload said so"]
    codes["load"] = 0
    assert found(11) != []
    assert found(24 * 60 + 10) == []


def test_a_run_without_an_end_and_one_that_does_not_begin_are_told():
    hours = [MORNING + dt.timedelta(hours=number) for number in range(8)]
    running = {"commands": "sync", "every": 60, "since": hours[0].isoformat(), "ended": hours[0].isoformat(), "code": 0}
    assert problems([running], hours[6]) == []
    assert "does not come to an end" in problems([running], hours[7])[0]
    waiting = running | {"since": None}
    assert problems([waiting], hours[0] + dt.timedelta(minutes=19)) == []
    assert "sync has not run since" in problems([waiting], hours[1])[0]
    assert (
        problems(
            [{"commands": "load", "every": None, "since": None, "ended": hours[0].isoformat(), "code": 0}], hours[7]
        )
        == []
    )


def test_a_command_that_is_kept_running_may_run_for_ever_and_is_started_again():
    start = MORNING
    row = {"commands": "maintain", "command": "maintain", "every": 30, "keeps": True, "since": start.isoformat()}
    assert problems([row], start + dt.timedelta(days=30)) == []
    died = row | {"since": None, "ended": start.isoformat(), "code": 1, "said": "no store"}
    assert problems([died], start) == [f"maintain ended with exit code 1 at {start.isoformat()}\nno store"]
    again = died | {"since": start.isoformat()}
    assert problems([again], start + dt.timedelta(minutes=1)) != []
    assert problems([again], start + dt.timedelta(minutes=3)) == []

    now, ran = [start], []

    def execute(command):
        ran.append(command)
        return Ended(code=1)

    scheduler = Scheduler(parse_schedule("keep maintain", {}), execute, lambda: now[0])
    for _ in range(3):
        scheduler.start_due()
        scheduler.join()
        now[0] += dt.timedelta(seconds=30)
    assert len(ran) == 3


def test_health_is_read_from_every_status_that_is_named(tmp_path, capsys):
    good, bad = tmp_path / "schedule.json", tmp_path / "maintenance.json"
    at = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    row = {"commands": "sync", "command": "sync", "every": 60, "since": None, "ended": at, "code": 0, "said": ""}
    good.write_text(json.dumps([row]))
    bad.write_text(json.dumps([row | {"command": "compact of lake.t", "code": 2, "said": "a conflict"}]))
    plan = str(ROOT / "jobs" / "schedule.conf")
    assert schedule.main([plan, "--status", str(good), "--healthy"]) == 0
    assert schedule.main([plan, "--status", str(good), "--status", str(bad), "--healthy"]) == 1
    assert "compact of lake.t ended with exit code 2" in capsys.readouterr().out
    assert schedule.main([plan, "--status", str(tmp_path / "none"), "--healthy"]) == 1
    assert schedule.main([plan, "--healthy"]) == 1


def test_what_is_wrong_with_single_tables_is_said_and_the_service_stays_healthy(tmp_path, capsys):
    at = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    row = {"commands": "sync", "command": "sync", "every": 60, "since": None, "ended": at, "code": 0}
    said = "Warning: lake_symlink.t: it cannot be published\n  Next: rename the column"
    table = {"commands": "compact of lake.u", "command": "compact of lake.u", "every": None, "since": None, "ended": at}
    rows = [row | {"said": said}, table | {"code": 2, "said": "a conflict", "warning": True}]
    assert problems(rows, dt.datetime.now(dt.UTC)) == []
    told = ["Warning: compact of lake.u: a conflict", "Warning: lake_symlink.t: it cannot be published"]
    assert warnings(rows) == told
    file = tmp_path / "status.json"
    file.write_text(json.dumps(rows))
    assert schedule.main([str(ROOT / "jobs" / "schedule.conf"), "--status", str(file), "--healthy"]) == 0
    assert capsys.readouterr().out.splitlines() == ["every run that was due ended well", *told]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "python3 -c \"import sys; print('working'); print('no such table', file=sys.stderr); sys.exit(4)\"",
            "no such table",
        ),
        (
            "python3 -c \"import sys; print('{\\\"error\\\": 1}'); print('WARN', file=sys.stderr); sys.exit(1)\"",
            '{"error": 1}',
        ),
        ("/no/such/program", "No such file"),
    ],
)
def test_the_scheduler_is_not_healthy_after_a_job_that_failed(tmp_path, command, said):
    """The process itself, and the check that the stack makes of it."""
    plan, status = tmp_path / "plan.conf", tmp_path / "status.json"
    plan.write_text(f"every 3600 {command}\n")
    run = [sys.executable, str(ROOT / "jobs" / "schedule.py"), str(plan), "--status", str(status)]

    def check():
        return subprocess.run([*run, "--healthy"], capture_output=True, text=True, check=False, cwd=ROOT)

    assert check().returncode == 1
    process = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    try:
        while not (status.exists() and "ended" in json.loads(status.read_text())[0]):
            assert process.poll() is None
            time.sleep(0.05)
        done = check()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert done.returncode == 1
    first, *rest = done.stdout.splitlines()
    assert "ended with exit code" in first
    assert said in "\n".join(rest)
    assert "working" not in rest
