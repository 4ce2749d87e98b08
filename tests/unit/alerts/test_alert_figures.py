"""The figures behind the alerts: schedules, disks, entries, refused commits. What is not known has no sample."""

from __future__ import annotations

import dataclasses
import datetime as dt
import http.server
import json
import os
import threading
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest
from leaks import secret

from jobs import maintain
from jobs.schedule import Ended, Scheduler, StatusFile, parse_schedule
from pydelta.commands.run import Command, Context, run
from pydelta.errors import (
    CommitStateUnknownError,
    ConcurrentAppendException,
    ConcurrentWriteException,
    InvalidArgumentError,
    TableNotFoundError,
)
from pydelta.log import DeltaLog
from pydelta.storage import normalize_uri
from pydelta.testing.operations import create_table
from pydelta.tools.alerts.evaluate import SampleHistory
from pydelta.tools.alerts.rules import RULES
from pydelta.tools.maintenance.notice import REFUSAL_URL, Listener, announce_commit, announce_refusal
from pydelta.tools.maintenance.refusals import RefusalTally, read_refusals
from pydelta.tools.maintenance.status import StatusOf, write_status
from pydelta.tools.ui.disks import Disk, measure_disk
from pydelta.tools.ui.metrics import metrics_text, samples
from pydelta.tools.ui.schedules import read_schedules
from pydelta.tools.ui.services import Service
from pydelta.tools.ui.sources import Sources
from pydelta.tools.ui.values import CommitState, Rows, ShownPlace, ShownTable
from pydelta.tools.ui.watch import Watch, Watched
from pydelta.txn import hooks

NOON = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
LOST = ConcurrentWriteException("Other writers won.", winning_version=3, winning_operation="WRITE", hint="Again.")


def overview(**watched):
    return Watch(Watched(sources=watched.pop("sources", Sources()), patience=60, **watched)).overview()


def found(view, metric):
    return {tuple(sample.labels.values()): sample.value for sample in samples(view) if sample.metric == metric}


def at(hours=0, minutes=0):
    return (NOON - dt.timedelta(hours=hours, minutes=minutes)).isoformat()


# --- schedules -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "failed", "late", "running"),
    [
        ({"every": 60}, None, None, None),
        ({"every": 60, "since": at(minutes=2)}, None, None, 120),
        ({"every": 60, "since": None, "ended": at(minutes=1), "code": 0, "due": at()}, False, 0, None),
        ({"every": 60, "since": None, "ended": at(minutes=31), "code": 2, "due": at(minutes=30)}, True, 1800, None),
        ({"every": 60, "since": at(hours=7), "ended": at(hours=8), "code": 0, "due": at()}, False, None, 25200),
        ({"every": None, "due": at(hours=-3)}, None, 0, None),
        ({"every": None, "due": at(hours=3)}, None, 10800, None),
        ({"every": None, "due": None}, None, None, None),
        # A command that is kept running has recovered once it has run for two minutes.
        ({"every": 30, "keeps": True, "since": at(minutes=1), "ended": at(minutes=2), "code": 1}, True, None, None),
        ({"every": 30, "keeps": True, "since": at(minutes=3), "ended": at(minutes=4), "code": 1}, False, None, None),
        # A status of maintenance has no time at which it is due.
        ({"every": 60, "since": None, "ended": at(minutes=21), "code": 0}, False, 1200, None),
        ({"every": 60, "since": "nonsense", "ended": 7, "code": 0}, None, None, None),
    ],
)
def test_a_line_is_failed_late_or_running(tmp_path, row, failed, late, running):
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps([{"commands": "catalog_sync sync"} | row]))
    [state] = read_schedules([str(path)], now_ms=int(NOON.timestamp() * 1000)).states
    assert (state.failed, state.late_seconds, state.running_seconds) == (failed, late, running)


def test_the_scheduler_says_when_each_line_is_due(tmp_path):
    file, now = tmp_path / "status.json", [NOON]
    text = "every 60 sync\ndaily 01:00 inventory\nnever compact\nkeep maintain"
    scheduler = Scheduler(parse_schedule(text, {}), lambda _: Ended(code=0), lambda: now[0], StatusFile(file))

    def due():
        return {row["commands"]: row["due"] for row in json.loads(file.read_text())}

    assert due() == {
        "sync": "2026-11-23T12:00:00+00:00", "inventory": "2026-11-24T01:00:00+00:00", "compact": None,
        "maintain": "2026-11-23T12:00:00+00:00",
    }  # fmt: skip
    scheduler.start_due()
    scheduler.join()
    assert due()["sync"] == "2026-11-23T12:01:00+00:00"
    states = read_schedules([str(file)], now_ms=int((NOON + dt.timedelta(minutes=15)).timestamp() * 1000)).states
    assert {state.name: state.late_seconds for state in states} == {
        "sync": 840, "inventory": 0, "compact": None, "maintain": 870
    }  # fmt: skip


@pytest.mark.parametrize(
    ("row", "late"),
    [
        # The scheduler says when a line is due: ten minutes, however often it runs.
        ({"every": 3600, "since": None, "ended": at(minutes=70), "code": 0, "due": at(minutes=10)}, False),
        ({"every": 3600, "since": None, "ended": at(minutes=71), "code": 0, "due": at(minutes=11)}, True),
        ({"every": None, "at": "11:49", "due": at(minutes=11)}, True),
        ({"every": 30, "keeps": True, "since": at(minutes=11), "due": at(minutes=11)}, False),
        # A status of maintenance may miss ten of its turns.
        ({"every": 60, "since": None, "ended": at(minutes=20), "code": 0}, False),
        ({"every": 60, "since": None, "ended": at(minutes=21), "code": 0}, True),
        ({"every": 60, "off": True, "ended": at(hours=9), "code": 1, "due": at(hours=8)}, False),
    ],
)
def test_the_page_and_the_alert_mean_the_same_by_late(tmp_path, row, late):
    path, line = tmp_path / "schedule.json", {"commands": "catalog_sync sync"}
    path.write_text(json.dumps([line | row]))
    read = read_schedules([str(path)], now_ms=int(NOON.timestamp() * 1000))
    [rule] = [rule for rule in RULES if rule.name == "ScheduleIsLate"]
    view = dataclasses.replace(overview(), schedules=read.states)
    triggered = SampleHistory([rule]).add(samples(view), 0.0)
    assert ["late: it should" in state.said for state in read.lines] == [late]
    assert [item.labels for item in triggered] == ([(("schedule", "catalog_sync sync"),)] if late else [])


def test_a_line_that_is_off_has_no_figures_and_neither_has_the_file_it_would_write(tmp_path):
    theirs, path = tmp_path / "maintenance.json", tmp_path / "schedule.json"
    write_status(theirs, StatusOf(what="maintenance of lake", every=60, unreadable={"lake.a": ("a gap", 4)}), "away")
    row = {"commands": f"maintain --status {theirs}", "every": None, "at": None, "due": None}
    row |= {"since": None, "ended": "2026-11-23T10:00:00+00:00", "code": 1, "said": "no"}
    figures = [f"pydelta_{name}" for name in ("schedule_failed", "schedule_late_seconds", "maintenance_failed_tries")]

    def shown(**facts):
        path.write_text(json.dumps([row | facts]))
        view = overview(schedules=[str(path), str(theirs)])
        return [state.ok for state in view.services], [len(found(view, figure)) for figure in figures]

    assert shown(off=False) == ([False, False, False], [2, 1, 1])
    assert shown(off=True) == ([None], [0, 0, 0])


def test_schedules_are_metrics_of_their_own_and_no_services(tmp_path):
    hush = "do-not-show"
    path = tmp_path / "schedule.json"
    ended = {"since": None, "ended": "2026-11-23T10:00:00+00:00", "every": 60}
    path.write_text(
        json.dumps([{"commands": f"run password={hush}", "command": "run", "code": 1, "said": "", **ended}])
    )
    view = overview(schedules=[str(path)], services=[Service.parse("Gone=tcp://127.0.0.1:1")])
    assert found(view, "pydelta_service_up") == {("Gone",): 0}
    assert list(found(view, "pydelta_schedule_failed").values()) == [1]
    assert next(iter(found(view, "pydelta_schedule_late_seconds").values())) > 0
    assert found(view, "pydelta_schedule_running_seconds") == {}
    assert hush not in metrics_text(view).decode()
    assert [service.name for service in view.services] == ["Gone", "Scheduled: run password=(hidden)"]


def test_failed_tries_of_maintenance_have_the_same_labels_at_each_try(tmp_path):
    path = tmp_path / "maintenance.json"
    for tries in (1, 3):
        row = SimpleNamespace(at_ms=0, action="optimize", table="lake.t", attempt=tries, error="no room", location="l")
        status = StatusOf(what="maintenance of lake", every=60, failing=(row,), unreadable={"lake.a": ("a gap", 4)})
        write_status(path, status, None)
        view = overview(schedules=[str(path)])
        assert found(view, "pydelta_maintenance_failed_tries") == {("lake.t", "optimize"): tries, ("lake.a", "look"): 1}
        assert list(found(view, "pydelta_schedule_failed")) == [("maintenance of lake",)]


@pytest.mark.parametrize(
    "text", [None, "nope", "[1]", "{}", '[{"commands": "a", "table": 1, "action": 2, "tries": "x"}]']
)
def test_a_status_that_cannot_be_read_has_no_figures(tmp_path, text):
    path = tmp_path / "schedule.json"
    if text is not None:
        path.write_text(text)
    assert read_schedules([str(path)], now_ms=0).failed_actions == ()
    view = overview(schedules=[str(path)])
    assert found(view, "pydelta_schedule_late_seconds") == {}


# --- disks -----------------------------------------------------------------------------------------------------------

CAPACITY = """# HELP minio_cluster_capacity_usable_free_bytes Total free usable capacity online in the cluster.
# TYPE minio_cluster_capacity_usable_free_bytes gauge
minio_cluster_capacity_usable_free_bytes{server="127.0.0.1:9000"} 2.5e+11
minio_cluster_capacity_usable_total_bytes{server="127.0.0.1:9000"} 1e+12
"""


class _Metrics(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        status, text = (200, CAPACITY) if self.path == "/minio/v2/metrics/cluster" else (403, "no")
        if self.path == "/other":
            status, text = 200, "up 1\n"
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def store():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Metrics)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_a_folder_has_the_size_and_the_room_of_its_disk(tmp_path):
    view = overview(disks=[Disk.parse(f"Volumes={tmp_path}")])
    [ratio] = found(view, "pydelta_disk_used_ratio").values()
    [size] = found(view, "pydelta_disk_size_bytes").values()
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    assert 0 <= ratio <= 1
    assert size >= free
    assert found(view, "pydelta_disk_free_bytes")[("Volumes",)] == pytest.approx(free, rel=0.2)
    assert found(view, "pydelta_service_up") == {}
    [line] = view.services
    assert line.name == "Disk: Volumes"
    assert " full, " in line.said


def test_a_store_that_publishes_its_capacity_is_a_disk_too(store):
    state = measure_disk(Disk.parse(f"Store={store}/minio/v2/metrics/cluster"), seconds=60)
    assert (state.size_bytes, state.free_bytes, state.used_ratio) == (10**12, 25 * 10**10, 0.75)


@pytest.mark.parametrize(
    ("path", "says"), [("/closed", "HTTP status 403"), ("/other", "does not have the capacity of a MinIO")]
)
def test_a_store_that_does_not_tell_has_no_figures(store, path, says):
    view = overview(disks=[Disk.parse(f"Store={store}{path}")])
    assert found(view, "pydelta_disk_used_ratio") == {}
    [line] = view.services
    assert says in line.said
    assert line.next


def test_a_folder_that_is_gone_has_no_figures(tmp_path):
    view = overview(disks=[Disk.parse(f"Gone={tmp_path}/none")])
    assert found(view, "pydelta_disk_free_bytes") == {}
    assert "No such file" in view.services[0].said


@pytest.mark.parametrize("text", ["x", "=/x", "a=relative", "a=ftp://h/", "a=http://", "a=http://u:{}@h:x/"])
def test_a_disk_that_is_not_named_rightly_is_refused(text):
    hush = secret("pw")
    with pytest.raises(InvalidArgumentError) as refused:
        Disk.parse(text.format(hush))
    assert refused.value.hint
    assert hush not in str(refused.value)


# --- retries, as commits record them ---------------------------------------------------------------------------------


def test_retries_of_the_last_quarter_of_an_hour_are_counted():
    def commit(version, minutes, **metrics):
        return CommitState(
            version=version, timestamp_ms=10**12 - minutes * 60_000, operation="MERGE", who=None, rows=Rows(),
            metrics=metrics,
        )  # fmt: skip

    place = ShownPlace(name="lake.t", uri="memory://t")
    commits = (commit(4, 1, numRetries="3"), commit(3, 2), commit(2, 14, numRetries="4"), commit(1, 16, numRetries="9"))
    assert ShownTable(place=place, read_ms=10**12, commits=commits).recent_retries == 7
    assert ShownTable(place=place, read_ms=10**12, commits=commits[1:2]).recent_retries == 0
    assert ShownTable(place=place, read_ms=10**12).recent_retries is None


# --- refused commits -------------------------------------------------------------------------------------------------


class Losing(Command[None]):
    """Raises an error at each attempt."""

    def __init__(self, error):
        self.error = error

    def execute(self, attempt):
        raise self.error


@pytest.fixture
def table(tmp_path):
    return create_table(DeltaLog.for_table(str(tmp_path / "t")))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (LOST, ["DELTA_CONCURRENT_WRITE"]),
        (CommitStateUnknownError("Lost.", txn_id="1", version=2), ["DELTA_COMMIT_STATE_UNKNOWN"]),
        (TableNotFoundError("none"), []),
    ],
)
def test_hooks_are_told_when_a_command_gives_up(monkeypatch, tmp_path, error, told):
    log = DeltaLog.for_table(str(tmp_path / "t"))
    create_table(log)
    heard = []

    def hook(_):
        raise AssertionError("there was no commit")

    hook.refused = heard.append

    def broken(_):
        raise AssertionError

    broken.refused = lambda _: 1 / 0
    names = (("broken", lambda: broken), ("none", lambda: print), ("told", lambda: hook))
    monkeypatch.setattr(hooks, "_installed_hooks", lambda: names)
    with pytest.raises(type(error)):
        run(Losing(error), Context(log))
    assert [refused.error.code for refused in heard] == told
    assert [refused.table for refused in heard] == [log.uri] * len(told)


def test_refusals_reach_the_page_through_the_scheduler(monkeypatch, tmp_path):
    file, uri = tmp_path / "refusals.json", normalize_uri(str(tmp_path / "t"))
    create_table(DeltaLog.for_table(uri))
    listener, wake = None, threading.Event()
    listener = Listener.open("127.0.0.1:0", wake)
    try:
        monkeypatch.setenv(REFUSAL_URL, f"http://127.0.0.1:{listener.port}/refusals")
        assert announce_commit.refused is announce_refusal
        for error in (LOST, LOST, ConcurrentAppendException("x", winning_version=1, winning_operation="WRITE")):
            announce_refusal(hooks.RefusedCommit(table=uri, error=error))
        announce_refusal(hooks.RefusedCommit(table="file:///elsewhere", error=LOST))
        from pydelta.tools.maintenance import notice

        assert notice._outbox(os.environ[REFUSAL_URL], REFUSAL_URL).flush(60)
        refused = listener.take_refused()
        assert refused[uri, "DELTA_CONCURRENT_WRITE"] == 2
        assert not wake.is_set(), "a refused commit changed nothing"
    finally:
        listener.close()
    RefusalTally(file).add(refused, {uri, "file:///quiet"}, dt.datetime.now(dt.UTC))
    view = overview(sources=Sources(tables=[f"t={uri}"]), refusals=[str(file)])
    counts = found(view, "pydelta_refused_commits_total")
    assert counts[("t", "DELTA_CONCURRENT_WRITE")] == 2
    assert counts[("t", "DELTA_CONCURRENT_APPEND.WITHOUT_HINT")] == 1
    assert counts[("t", "DELTA_COMMIT_STATE_UNKNOWN")] == 0
    assert {table for table, _ in counts} == {"t"}


@pytest.mark.parametrize("body", [b"{}", b'{"location": "t", "refused": 7}', b'{"location": "t", "refused": "a b"}'])
def test_a_notice_that_is_not_one_is_refused(body):
    listener = Listener.open("127.0.0.1:0", threading.Event())
    try:
        with pytest.raises(urllib.error.HTTPError) as answered:
            urllib.request.urlopen(f"http://127.0.0.1:{listener.port}/refusals", data=body, timeout=60)
        assert answered.value.code == 400
        assert (listener.take_refused(), listener.take()) == ({}, frozenset())
    finally:
        listener.close()


def test_counts_go_on_after_a_restart_and_dropped_tables_leave(tmp_path):
    file, now = tmp_path / "refusals.json", NOON
    RefusalTally(file).add({("a", "E"): 2, ("b", "E"): 1, ("unknown", "E"): 5}, {"a", "b"}, now)
    again = RefusalTally(file)
    again.add({("a", "E"): 1}, {"a"}, now)
    assert read_refusals(str(file), now) == {"a": {"E": 3}}
    again.add({("a", f"E{number}"): 1 for number in range(100)}, {"a"}, now)
    assert len(read_refusals(str(file), now)["a"]) == 50
    RefusalTally(None).add({("a", "E"): 1}, {"a"}, now)


def test_a_file_of_refusals_that_is_old_or_broken_says_nothing(tmp_path):
    file = tmp_path / "refusals.json"
    RefusalTally(file).add({}, {"a"}, NOON)
    assert read_refusals(str(file), NOON + dt.timedelta(minutes=9)) == {"a": {}}
    assert read_refusals(str(file), NOON + dt.timedelta(minutes=11)) is None
    for text in ("nope", "{}", '{"at": "x", "tables": {}}', '{"at": "2026-11-23T12:00:00+00:00", "tables": []}'):
        file.write_text(text)
        assert read_refusals(str(file), NOON) is None
        RefusalTally(file)
    assert read_refusals(str(tmp_path / "none"), NOON) is None
    view = overview(refusals=[str(file)])
    assert view.refused is None
    assert found(view, "pydelta_refused_commits_total") == {}


def test_refusals_without_a_listener_are_an_error(capsys):
    assert maintain.main(["--database", "lake", "--refusals", "/x"]) == 1
    said = capsys.readouterr()
    assert "--refusals has no effect without --listen" in said.out + said.err
