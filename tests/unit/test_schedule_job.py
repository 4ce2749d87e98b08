"""What the scheduler runs, and when; commands are recorded, the clock is the test's."""

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path

import pytest

from jobs import schedule
from jobs.schedule import Entry, Scheduler, parse_schedule
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
    """
    assert parse_schedule(text, {"AT": "01:00", "EVERY": ""}) == [
        Entry(commands=(("sync", "--name", "a b"),), every=60),
        Entry(commands=(("one", "--x"), ("two",)), at=dt.time(1)),
        Entry(commands=(("three",),)),
        Entry(commands=(("four",),)),
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
    assert [line.partition(":")[0] for line in lines] == ["every 60 s", "daily 01", "daily 02", "never"]
    for job in ("inventory", "load_inventory", "compact", "vacuum"):
        assert (ROOT / "jobs" / f"{job}.py").exists()
    assert schedule.main(["/no/such/file"]) == 1


def test_entries_run_at_their_times_and_a_failure_ends_the_chain():
    now = [MORNING]
    ran = []
    text = "every 60 sync\ndaily 01:00 list && load\ndaily 01:00 fails && not-reached\nnever vacuum"

    def execute(command):
        ran.append(command[0])
        return int(command[0] == "fails")

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


def test_what_is_still_running_is_not_started_again():
    now = [MORNING]
    release, started = threading.Event(), []

    def execute(command):
        started.append(command)
        release.wait(30)
        return 0

    scheduler = Scheduler(parse_schedule("every 1 slow", {}), execute, lambda: now[0])
    for _ in range(3):
        scheduler.start_due()
        now[0] += dt.timedelta(seconds=5)
    release.set()
    scheduler.join()
    assert len(started) == 1
