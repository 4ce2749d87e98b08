"""``jobs/maintain.py``: which jobs it runs with what, what it says, and that it ends when it is told to; no Spark."""

from __future__ import annotations

import datetime as dt
import json
import shlex
import signal
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from contextlib import nullcontext
from pathlib import Path

import pytest

from catalog_sync.names import TableName
from catalog_sync.native import sync_native
from catalog_sync.thrift.memory import MemoryMetastore
from jobs import maintain, vacuum
from jobs.maintain import Children, SilentJobError, StoppedError
from jobs.schedule import problems, warnings
from pydelta.errors import InvalidArgumentError, TableNotFoundError, UnknownSettingError
from pydelta.log import DeltaLog
from pydelta.storage.local import LocalStore
from pydelta.testing.garbage import Yard
from pydelta.testing.operations import add_file, append, create_table
from pydelta.tools.maintenance.decide import NO_INVENTORY
from pydelta.tools.maintenance.journal import read_rows
from pydelta.tools.maintenance.refusals import read_refusals

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "pydelta.maintenance."


@pytest.fixture(autouse=True)
def forget_logs():
    yield
    DeltaLog.clear_cache()


@pytest.fixture
def crowded(tmp_path):
    """A table that has passed its bound."""
    log = DeltaLog.for_table(str(tmp_path / "crowded"))
    properties = {PREFIX + "compact.minFiles": "5", "delta.targetFileSize": "64mb"}
    create_table(log, [add_file("a", [n]) for n in range(8)], **properties)
    return log


def fake_compact(tmp_path, answer):
    """A job in the place of jobs/compact.py that notes its arguments."""
    script = tmp_path / "compact.py"
    script.write_text(
        textwrap.dedent(f"""
        import json, sys
        open({str(tmp_path / "given.json")!r}, "w").write(json.dumps(sys.argv[1:]))
        print("a message")
        {answer}
        """)
    )
    return f"--optimize-with={sys.executable} {script}"


DONE = "print(json.dumps(dict(version=1, files_removed=8, files_added=1, bytes_removed=808, bytes_added=700)))"


def book_rows(tmp_path):
    return read_rows(DeltaLog.for_table(str(tmp_path / "book")), since_ms=0)


def run(tmp_path, *arguments):
    return maintain.run({}, [*arguments, f"--journal-location={tmp_path / 'book'}"])


def test_a_table_past_its_bound_is_compacted_by_a_job_with_the_policy_s_sizes(tmp_path, crowded):
    found = run(tmp_path, crowded.uri, fake_compact(tmp_path, DONE))
    assert found["exit_code"] == 0
    [action] = found["tables"][0]["actions"]
    assert (action["kind"], action["held"]) == ("compact", None)
    given = dict(item.split("=", 1) for item in json.loads((tmp_path / "given.json").read_text()))
    assert given.pop("--modified-before").isdecimal()
    assert given == {"--table": crowded.uri, "--target": str(64 << 20), "--small-below": str(32 << 20)}
    [row] = book_rows(tmp_path)
    assert (row.outcome, row.files_read, row.files_written, row.saved_files, row.saved_bytes) == ("done", 8, 1, 7, 108)
    assert (row.version_before, row.version_after) == (0, 1)


def test_columns_of_zorder_are_passed_on(tmp_path):
    log = DeltaLog.for_table(str(tmp_path / "t"))
    adds = [add_file("a", [n]).replace(size=40 << 20) for n in range(2)]
    create_table(log, adds, **{PREFIX + "zorder": "x, p"})
    run(tmp_path, log.uri, fake_compact(tmp_path, DONE))
    assert "--zorder-by=x,p" in json.loads((tmp_path / "given.json").read_text())


@pytest.mark.parametrize(
    ("answer", "said", "code"),
    [
        (
            "print(json.dumps(dict(error='DELTA_X', message='[DELTA_X] A conflict.', exit_code=2))); sys.exit(2)",
            "[DELTA_X] A conflict.",
            2,
        ),
        ("sys.exit(137)", "compact.py ended with exit code 137 and printed no report", 2),
    ],
)
def test_a_job_that_fails_is_in_the_book_and_in_the_exit_code(tmp_path, crowded, answer, said, code):
    assert run(tmp_path, crowded.uri, fake_compact(tmp_path, answer))["exit_code"] == code
    [row] = book_rows(tmp_path)
    assert row.outcome == "failed"
    assert said in row.error


def test_a_dry_run_says_what_is_due_and_does_nothing(tmp_path, crowded):
    found = run(tmp_path, crowded.uri, "--dry-run", "--default=compact.minFiles=100")
    assert [action["kind"] for action in found["tables"][0]["actions"]] == ["compact"]
    assert crowded.update().version == 0
    assert not (tmp_path / "book").exists()


def test_garbage_goes_by_the_vacuum_job_itself(tmp_path):
    yard = Yard(LocalStore(str(tmp_path / "t")), now_ms=time.time_ns() // 1_000_000)
    old = yard.add("old", age=400)
    yard.commit(yard.add("live", age=400), old, age=400)
    yard.commit(yard.remove(old, age=300), age=300)
    place = str(tmp_path / "t")
    assert run(tmp_path, place)["tables"][0]["actions"] == []
    found = run(tmp_path, place, "--default=vacuum=lite", "--bytes-per-day=1g")
    assert found["exit_code"] == 0
    assert yard.files() == {"live"}
    [row] = book_rows(tmp_path)
    assert (row.action, row.outcome, row.files_removed, row.saved_bytes) == ("vacuum lite", "done", 1, 10)
    assert run(tmp_path, place, "--default=vacuum=lite")["tables"][0]["actions"] == []


def test_the_vacuum_job_can_be_run_by_another_command(tmp_path):
    yard = Yard(LocalStore(str(tmp_path / "t")), now_ms=time.time_ns() // 1_000_000)
    old = yard.add("old", age=400)
    yard.commit(yard.add("live", age=400), old, age=400)
    yard.commit(yard.remove(old, age=300), age=300)
    noted = tmp_path / "whose"
    script = f"echo $WHOSE >{noted}; exec {sys.executable} {ROOT / 'jobs' / 'vacuum.py'} $0 $*"
    command = shlex.join(["env", "WHOSE=another", "sh", "-c", script])
    found = run(tmp_path, str(tmp_path / "t"), "--default=vacuum=lite", f"--vacuum-with={command}")
    assert found["exit_code"] == 0
    assert (noted.read_text(), yard.files()) == ("another\n", {"live"})


def test_a_commit_that_is_announced_is_synced_and_the_book_gets_its_entry(tmp_path, monkeypatch):
    log = DeltaLog.for_table(str(tmp_path / "lake" / "t"))
    create_table(log, [add_file("a", [1])])
    metastore = MemoryMetastore()
    sync_native(metastore, TableName.parse("lake.t"), log.update())
    monkeypatch.setattr(maintain, "metastore_of", lambda uri, conf: metastore)
    options = maintain._options(["--database=lake", f"--journal-location={tmp_path / 'ops' / 'maintenance'}"])
    turn = maintain._open(options, {}, Children())
    [place] = turn.places()
    assert (place.name, place.location, place.registered) == ("lake.t", log.uri, True)
    turn.rounds.tick([place], announced=frozenset({log.uri}), now_ms=time.time_ns() // 1_000_000)
    assert turn.rounds.finish() is None
    [row] = read_rows(turn.journal, since_ms=0)
    assert (row.action, row.outcome, row.error) == ("sync", "done", None)
    assert metastore.table("lake_symlink", "t") is not None
    assert [place.name for place in turn.places()] == ["lake.t", "ops.maintenance"]
    assert metastore.table("ops", "maintenance") is not None


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ([], InvalidArgumentError, "No table was named"),
        (["--database", "lake"], InvalidArgumentError, "there is none"),
        (["/t", "--every", "0"], InvalidArgumentError, "a number of seconds above 0"),
        (["/t", "--every", "5", "--dry-run"], InvalidArgumentError, "runs once"),
        (["/t", "--default", "vacuum"], InvalidArgumentError, "name=value"),
        (["/t", "--default", "vacum=lite"], UnknownSettingError, "Did you mean 'vacuum'"),
        (["/t", "--default", "vacuum=maybe"], InvalidArgumentError, "off, lite, inventory, full"),
        (["/t", "--bytes-per-day", "much"], InvalidArgumentError, "a size such as"),
        (["/t", "--requests-per-day", "0"], InvalidArgumentError, "1 or more"),
        (["/t", "--journal", "ops"], InvalidArgumentError, "database.table"),
    ],
)
def test_arguments_that_cannot_be_right_are_named(tmp_path, monkeypatch, arguments, error, said):
    monkeypatch.delenv("PYDELTA_METASTORE", raising=False)
    with pytest.raises(error) as caught:
        run(tmp_path, *arguments)
    assert said in str(caught.value)


def test_without_a_place_for_the_book_it_says_what_to_give(tmp_path, monkeypatch):
    monkeypatch.delenv("PYDELTA_METASTORE", raising=False)
    with pytest.raises(InvalidArgumentError, match=r"journal ops\.maintenance is not known") as caught:
        maintain.run({}, [str(tmp_path)])
    assert "--journal-location" in str(caught.value)


def test_a_command_that_cannot_be_started_and_one_after_the_end_are_named():
    children = Children()
    with pytest.raises(InvalidArgumentError, match="/no/such/job cannot be started: No such file"):
        children.run(["/no/such/job"])
    with pytest.raises(SilentJobError, match="exit code 3"):
        children.run([sys.executable, "-c", "import sys; sys.exit(3)"])
    children.end()
    with pytest.raises(StoppedError, match="is being stopped"):
        children.run([sys.executable, "-c", ""])


def test_the_process_goes_round_takes_notices_tells_how_it_fares_and_ends_when_told(tmp_path, crowded):
    status, refusals = tmp_path / "status.json", tmp_path / "refusals.json"
    command = [
        sys.executable, str(ROOT / "jobs" / "maintain.py"), crowded.uri, "--every=3600", f"--status={status}",
        f"--refusals={refusals}",
        f"--journal-location={tmp_path / 'book'}", fake_compact(tmp_path, "sys.exit(9)"), "--listen=127.0.0.1:0",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        listening = json.loads(process.stdout.readline())["listening"]

        def announce(document):
            request = urllib.request.Request(
                f"http://127.0.0.1:{listening}/commits", data=json.dumps(document).encode()
            )
            with urllib.request.urlopen(request, timeout=30) as reply:
                return reply.status

        rows = []
        while not warnings(rows):  # The first status may be of a turn that is under way.
            assert process.poll() is None
            announce({"location": crowded.uri})  # a turn now, not in an hour
            time.sleep(0.2)
            rows = json.loads(status.read_text()) if status.exists() else []
        assert announce({"location": crowded.uri, "refused": "DELTA_CONCURRENT_WRITE"}) == 202
        counts = {}
        while not counts:
            assert process.poll() is None
            announce({"location": crowded.uri})
            time.sleep(0.2)
            counts = read_refusals(str(refusals), dt.datetime.now(dt.UTC))[crowded.uri]
        before = crowded.update().version
        append("a", [9]).run(crowded)
        assert announce({"location": "s3a://not/known"}) == 202
        with pytest.raises(urllib.error.HTTPError, match="400"):
            announce({"table": "x"})
    finally:
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert before == 0
    assert counts == {"DELTA_CONCURRENT_WRITE": 1}
    assert problems(rows, dt.datetime.now(dt.UTC)) == []  # The service works; one table has a problem.
    [said] = warnings(rows)
    assert "compact of " in said
    assert "exit code 9" in said
    assert json.loads(out.splitlines()[-1]) == {"stopped": True}
    assert [row.outcome for row in book_rows(tmp_path)] == ["failed"]


def test_a_job_that_is_ended_with_the_process_leaves_no_row(tmp_path, crowded):
    command = [
        sys.executable, str(ROOT / "jobs" / "maintain.py"), crowded.uri, "--every=3600",
        f"--journal-location={tmp_path / 'book'}", fake_compact(tmp_path, "import time; time.sleep(3600)"),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        while not (tmp_path / "given.json").exists():
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert json.loads(out.splitlines()[-1]) == {"stopped": True}
    assert not (tmp_path / "book").exists()


def test_an_inventory_that_is_not_yet_there_holds_back_what_needs_it_and_nothing_else(tmp_path, crowded, monkeypatch):
    monkeypatch.setattr(maintain, "metastore_of", lambda uri, conf: MemoryMetastore())
    yard = Yard(LocalStore(str(tmp_path / "t")), now_ms=time.time_ns() // 1_000_000)
    yard.commit(yard.add("live", age=400), age=400)
    options = ["--inventory=inventory.datalake_report", "--default=vacuum=inventory", fake_compact(tmp_path, DONE)]
    found = run(tmp_path, crowded.uri, str(tmp_path / "t"), *options)
    assert found["exit_code"] == 0
    held = {action["kind"]: action["held"] for item in found["tables"] for action in item["actions"]}
    assert held == {"compact": None, "vacuum inventory": NO_INVENTORY}


@pytest.mark.parametrize("named", ["inventory.datalake_report", "{folder}/report"])
def test_vacuum_by_an_inventory_that_is_not_there_says_how_one_is_made(tmp_path, monkeypatch, named):
    monkeypatch.setattr(vacuum, "metastore_of", lambda uri, conf: nullcontext(MemoryMetastore()))
    options = ["--inventory", named.format(folder=tmp_path)]
    with pytest.raises(TableNotFoundError, match="No inventory has been loaded yet") as refused:
        vacuum.run({}, [f"{tmp_path}/t", *options])
    assert "scripts/lake inventory" in refused.value.hint
