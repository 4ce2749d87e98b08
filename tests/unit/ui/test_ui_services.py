"""Streams by their checkpoints, services by asking them, and how numbers are written."""

from __future__ import annotations

import datetime as dt
import http.server
import json
import socket
import threading
import time
import uuid

import pytest
from ui_lake import QUERY, write_checkpoint_of_query

from jobs.schedule import Ended, Scheduler, StatusFile, parse_schedule
from pydelta.errors import InvalidArgumentError
from pydelta.log import DeltaLog
from pydelta.settings.clock import Deadline
from pydelta.storage import MemoryStore
from pydelta.testing.operations import add_file, append, create_table
from pydelta.tools.maintenance.status import StatusOf, write_status
from pydelta.tools.ui import formats as words
from pydelta.tools.ui.collect import Reader
from pydelta.tools.ui.pages import overview_page
from pydelta.tools.ui.schedules import read_schedules
from pydelta.tools.ui.services import Service, ask
from pydelta.tools.ui.sources import Sources
from pydelta.tools.ui.streams import read_stream, reads_or_writes, with_backlog
from pydelta.tools.ui.values import ShownPlace
from pydelta.tools.ui.watch import Watch, Watched


@pytest.fixture
def log():
    """A table at version 0."""
    log = DeltaLog(MemoryStore(f"memory://{uuid.uuid4()}/streamed"))
    create_table(log, [add_file(name, [1, 2]) for name in "ab"])
    return log


# --- streams ---------------------------------------------------------------------------------------------------------


def test_a_stream_s_backlog_is_what_its_table_has_beyond_its_offset(tmp_path, log):
    for number in range(3):
        append("a", [number]).run(log)
    state = Reader(ShownPlace(name="lake.orders", uri=log.uri), log=log).read()
    write_checkpoint_of_query(tmp_path, state.table_id, batch=4, version=1)
    [stream] = with_backlog([read_stream(str(tmp_path))], [state])
    assert (stream.query_id, stream.planned_batch, stream.done_batch) == (QUERY, 4, 4)
    [source] = stream.sources
    assert (source.table, source.version, source.backlog_versions) == ("lake.orders", 1, 2)
    assert reads_or_writes(stream, state)


def test_a_batch_under_way_kafka_and_sources_without_offsets_are_told(tmp_path):
    write_checkpoint_of_query(tmp_path, "unknown", batch=4, version=1)
    (tmp_path / "offsets" / "5").write_text('v1\n{"batchTimestampMs":1}\n{"orders":{"0":17}}\n-')
    stream = read_stream(str(tmp_path))
    assert (stream.planned_batch, stream.done_batch) == (5, 4)
    assert [source.source for source in stream.sources] == ["Kafka: orders", "nothing yet"]
    assert [source.backlog_versions for source in stream.sources] == [None, None]


def test_a_folder_that_is_no_checkpoint_is_told(tmp_path):
    stream = read_stream(str(tmp_path))
    assert "is not the checkpoint of a streaming query" in stream.trouble.what
    assert "checkpointLocation" in stream.trouble.next


# --- services --------------------------------------------------------------------------------------------------------


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/well" else 500)
        self.end_headers()

    def log_message(self, *arguments):
        pass


def test_services_are_asked(tmp_path):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{server.server_port}"
        asked = [
            ask(Service.parse(text), seconds=600, now_ms=1)
            for text in (
                f"A={root}/well,{root}/",
                f"B={root}/ill,{root}/page",
                f"C=thrift://127.0.0.1:{server.server_port}",
            )
        ]
        server.shutdown()
    assert [(state.ok, state.link) for state in asked] == [
        (True, f"{root}/"),
        (False, f"{root}/page"),
        (True, None),
    ]
    assert "HTTP status 500" in asked[1].said
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    refused = ask(Service.parse(f"D=tcp://127.0.0.1:{port}"), seconds=600, now_ms=1)
    assert (refused.ok, "refused" in refused.said) == (False, True)


@pytest.mark.parametrize(
    "text", ["", "Trino", "Trino=trino:8080", "=http://x", "T=http://x:y", "T=tcp://h", "T=http://h,javascript:x"]
)
def test_what_is_not_a_service_is_refused_with_an_example(text):
    with pytest.raises(InvalidArgumentError) as failed:
        Service.parse(text)
    assert "Trino=http://" in failed.value.hint


def test_a_service_of_a_profile_is_not_started_until_its_host_has_a_name(monkeypatch):
    known = set()

    def look_up(host, *_, **__):
        if host.rstrip(".") not in known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    service = Service.parse("Presto=tcp://presto:1", optional=True)
    watch = Watch(Watched(sources=Sources(), services=[service], fresh=0.0))

    def shown():
        watch.overview()
        for job in watch._services:
            watch._jobs.settle([job], float("inf"), Deadline(0.0))
            while job.asked is not None:
                time.sleep(0.01)
        return [(state.name, state.ok) for state in watch.overview().services]

    assert shown() == [("Presto", None)]
    [state] = watch.overview().services
    assert (state.said, state.idle, state.next) == ("not started", True, None)
    assert 'class="idle"' in overview_page(watch.overview())
    known.add("presto")
    assert shown() == [("Presto", False)]
    known.clear()
    assert shown() == [("Presto", False)], "one that was there and is gone is down"


def test_no_password_of_a_service_is_shown():
    with pytest.raises(InvalidArgumentError) as failed:
        Service.parse("T=tcp://ada:hush@h")
    assert "hush" not in str(failed.value)
    assert "hush" not in ask(Service.parse("T=tcp://ada:hush@127.0.0.1:1"), seconds=600, now_ms=1).said


def test_the_scheduler_s_own_status_file_is_read(tmp_path):
    status = StatusFile(tmp_path / "schedule.json")
    status.note(0, commands="catalog_sync sync", every=60)
    status.note(
        0, since=None, ended="2026-11-23T10:00:00+00:00", command="catalog_sync sync", code=1, said="a\npassword=x no"
    )
    status.note(1, commands="compact", every=None, since="2026-11-23T10:00:00+00:00")
    status.note(2, commands="vacuum", every=None)
    states = read_schedules([str(status.path)], now_ms=1_795_428_060_000).lines
    assert [state.ok for state in states] == [False, True, True]
    assert states[0].said == "last ended 60 s ago, with exit code 1: password=(hidden) no"
    assert (states[1].said, states[2].said) == ("running for 60 s", "has not run yet")


def test_so_is_that_of_maintenance(tmp_path):
    path = tmp_path / "maintenance.json"
    unreadable = {"lake.a": ("its log has a gap", 4)}
    status = StatusOf(what="maintenance of lake", every=60, unreadable=unreadable, waiting=frozenset({"lake.b"}))
    write_status(path, status, None)
    states = read_schedules([str(path)], now_ms=1_795_428_060_000).lines
    assert [(state.name, state.ok) for state in states] == [
        ("Scheduled: maintenance of lake", True), ("Scheduled: look at lake.a", False),
        ("Scheduled: vacuum inventory of lake.b", True),
    ]  # fmt: skip
    assert "its log has a gap" in states[1].said
    assert "scripts/lake inventory" in states[2].said


NOW_MS = 1_795_428_060_000


def _schedule(tmp_path, text, env):
    """The status file of a scheduler that was just started with a schedule."""
    status = StatusFile(tmp_path / "schedule.json")
    now = dt.datetime.fromtimestamp(NOW_MS / 1000, tz=dt.UTC)
    Scheduler(parse_schedule(text, env), lambda _: Ended(code=0), lambda: now, status)
    return str(status.path)


def test_a_schedule_that_is_switched_off_is_off_neither_late_nor_red(tmp_path):
    text = "daily ${COMPACT_AT:-never} compact --all\ndaily 02:30 vacuum\nnever look\nevery 60 sync"
    path = _schedule(tmp_path, text, {})
    states = read_schedules([path], now_ms=NOW_MS).lines
    assert [(state.name.removeprefix("Scheduled: "), state.ok, state.idle, state.said) for state in states] == [
        ("compact --all", None, True, "off"),
        ("vacuum", True, False, "has not run yet, daily at 02:30 UTC"),
        ("look", None, True, "off"),
        ("sync", True, False, "has not run yet"),
    ]
    first, *_ = read_schedules([_schedule(tmp_path, text, {"COMPACT_AT": "03:00"})], now_ms=0).lines
    assert first.said == "has not run yet, daily at 03:00 UTC"


def test_the_status_of_a_program_whose_line_is_off_is_not_shown_as_late(tmp_path):
    theirs = tmp_path / "maintenance.json"
    write_status(theirs, StatusOf(what="maintenance of lake", every=60), "the store was away")
    line = f"python maintain.py --status {theirs}"
    on = read_schedules([_schedule(tmp_path, f"keep {line}", {}), str(theirs)], now_ms=NOW_MS).lines
    assert [state.ok for state in on] == [True, False]
    off = read_schedules([_schedule(tmp_path, f"never {line}", {}), str(theirs)], now_ms=NOW_MS).lines
    assert [(state.ok, state.said) for state in off] == [(None, "off")]


@pytest.mark.parametrize(
    ("facts", "ago", "late"),
    [
        ({"every": 60}, 1199, None),
        ({"every": 60}, 1201, "every 60 s"),
        ({"every": 60, "since": "2026-11-23T10:00:00+00:00"}, 90_000, None),
        ({"at": "02:30"}, 86_900, None),
        ({"at": "02:30"}, 87_100, "daily at 02:30 UTC"),
        ({"off": True, "every": 60}, 90_000, None),
        ({"off": True, "code": 1, "said": "no"}, 90_000, None),
    ],
)
def test_a_line_that_should_have_run_again_is_late(tmp_path, facts, ago, late):
    path = tmp_path / "schedule.json"
    ended = dt.datetime.fromtimestamp(NOW_MS / 1000 - ago, tz=dt.UTC).isoformat()
    path.write_text(json.dumps([{"commands": "sync", "ended": ended, "code": 0, **facts}]))
    [state] = read_schedules([str(path)], now_ms=NOW_MS).lines
    assert state.ok is (None if facts.get("off") else late is None)
    assert (f"late: it should run {late}" in state.said) == (late is not None)
    assert bool(state.next) == (late is not None)


@pytest.mark.parametrize("text", [None, "nope", "{}x", json.dumps([1])])
def test_a_status_file_that_cannot_be_read_is_told(tmp_path, text):
    path = tmp_path / "schedule.json"
    if text is not None:
        path.write_text(text)
    [state] = read_schedules([str(path)], now_ms=0).lines
    assert not state.ok
    assert "--status" in state.next


# --- words ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (words.amount(0), "0 bytes"),
        (words.amount(1024), "1.0 KiB"),
        (words.amount(1 << 60), "1024.0 PiB"),
        (words.amount(None), "–"),
        (words.number(1234567), "1,234,567"),
        (words.number(None), "–"),
        (words.of(1, "file"), "1 file"),
        (words.of(0, "file"), "0 files"),
        (words.duration(0.26), "0.3 s"),
        (words.duration(119), "119 s"),
        (words.duration(121), "2 min"),
        (words.duration(7300), "2 h"),
        (words.duration(200_000), "2 days"),
        (words.duration(None), "–"),
        (words.age(None, 0), "never"),
        (words.age(1000, 1500), "just now"),
        (words.age(0, 90_000), "90 s ago"),
        (words.age(5000, 0), "just now"),
        (words.moment(None), "–"),
        (words.moment(10**18), f"{10**18} ms"),
        (words.moment(1_700_000_000_123), "2023-11-14 22:13:20 UTC"),
    ],
)
def test_numbers_are_written_for_people(written, expected):
    assert written == expected
