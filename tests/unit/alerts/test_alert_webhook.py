"""The webhook: one message when an alert begins, one when it ends, whatever its receiver does and over restarts."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

import pytest
from leaks import secret
from webhook_receiver import receiving, until

from pydelta.errors import InvalidArgumentError
from pydelta.tools.alerts.evaluate import MetricSample
from pydelta.tools.alerts.queue import AlertQueue
from pydelta.tools.alerts.rules import RULES
from pydelta.tools.alerts.webhook import AlertWatch, Pace
from pydelta.tools.ui.command import watch_alerts
from pydelta.tools.ui.server import Application
from pydelta.tools.ui.sources import Sources
from pydelta.tools.ui.watch import Watch, Watched

QUICK = Pace(every=0.01, timeout=30.0, tries=3, pause=0.01, most_pause=0.02)
BEGAN, ENDED = ("ServiceDoesNotAnswer", "firing"), ("ServiceDoesNotAnswer", "resolved")


class Stage:
    """A clock and figures that a test sets, and the alerts that are watched over them."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.up: dict[str, float] = {}
        self.looks = 0

    def samples(self):
        self.looks += 1
        return [MetricSample("pydelta_service_up", {"service": name}, value) for name, value in self.up.items()]

    def watch(self, url, path=None, pace=QUICK):
        return AlertWatch(url, self.samples, path=path, rules=RULES, pace=pace, clock=lambda: self.now)

    def pass_by(self, seconds):
        """Let time pass, with a look before and two after it."""
        for step in (0, seconds, 0):
            self.now += step
            before = self.looks
            until(lambda before=before: self.looks > before + 1)


@pytest.fixture
def stage():
    return Stage()


@contextmanager
def running(watch):
    watch.start()
    try:
        yield watch
    finally:
        watch.stop(seconds=30)


def test_a_beginning_and_an_end_are_posted_once_each(stage, tmp_path):
    with receiving() as receiver, running(stage.watch(receiver.url)) as watch:
        stage.pass_by(200)
        stage.up = {"Trino": 0.0, "Presto": 1.0}
        stage.pass_by(30)
        assert receiver.seen == []
        stage.pass_by(40)
        [begun] = receiver.wait(1)
        for _ in range(3):
            stage.pass_by(60)
        stage.up["Trino"] = 1.0
        stage.pass_by(70)
        [_, ended] = receiver.wait(2)
        stage.pass_by(100)
        assert receiver.seen == [BEGAN, ENDED]
        until(lambda: watch.state().sent == 2)
        assert watch.state().begun == 0
    assert begun["labels"] == {"service": "Trino"}
    assert begun["text"] == (
        "[critical] ServiceDoesNotAnswer: Trino does not answer. Next: Run make status and make logs SERVICE=…; "
        "make up starts what is missing."
    )
    assert (begun["endsAt"], begun["severity"]) == (None, "critical")
    assert re.fullmatch(r"2027-01-15T08:0\d:\d\dZ", begun["startsAt"])
    assert (ended["id"], ended["startsAt"]) == (begun["id"], begun["startsAt"])
    assert ended["endsAt"] > ended["startsAt"]
    assert ended["text"].startswith("[ended] ServiceDoesNotAnswer, since ")


def test_a_figure_that_flaps_or_is_absent_for_a_moment_is_one_alert(stage):
    with receiving() as receiver, running(stage.watch(receiver.url)):
        stage.pass_by(200)
        stage.up = {"Trino": 0.0}
        stage.pass_by(70)
        for calm in ({"Trino": 1.0}, {}, {"Trino": 1.0}):
            stage.up = calm
            stage.pass_by(40)
            stage.up = {"Trino": 0.0}
            stage.pass_by(30)
        stage.up = {}
        stage.pass_by(61)
        receiver.wait(2)
        assert receiver.seen == [BEGAN, ENDED]


def test_a_restart_posts_nothing_again_and_the_end_even_if_the_alert_ended_in_between(stage, tmp_path):
    path = tmp_path / "alerts.json"
    with receiving() as receiver:
        stage.up = {"Trino": 0.0, "Presto": 0.0}
        with running(stage.watch(receiver.url, path)) as watch:
            stage.pass_by(70)
            receiver.wait(2)
            until(lambda: watch.state().waiting == 0)
        stage.now += 3600
        stage.up = {}
        with running(stage.watch(receiver.url, path)) as again:
            stage.pass_by(60)
            assert again.state().begun == 2, "nothing is known yet"
            stage.up = {"Trino": 0.0, "Presto": 1.0}
            stage.pass_by(70)
            stage.pass_by(70)
            receiver.wait(3)
        assert [(document["labels"]["service"], document["status"]) for document in receiver.posted] == [
            ("Presto", "firing"), ("Trino", "firing"), ("Presto", "resolved")
        ]  # fmt: skip
        assert [row["begun"]["labels"] for row in json.loads(path.read_text())["standing"]] == [{"service": "Trino"}]


def test_what_was_not_accepted_is_posted_after_a_restart(stage, tmp_path):
    path = tmp_path / "alerts.json"
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}/hook"
    stage.up = {"Trino": 0.0}
    patient = Pace(every=0.01, tries=1000, pause=0.01, most_pause=0.02)
    with running(stage.watch(nobody, path, patient)) as watch:
        stage.pass_by(70)
        until(lambda: watch.state().problem is not None)
        assert watch.state().problem == "Connection refused"
    with receiving() as receiver, running(stage.watch(receiver.url, path)) as watch:
        receiver.wait(1)
        until(lambda: watch.state().sent == 1)
        assert receiver.seen == [BEGAN]
        assert watch.state().problem is None


@pytest.mark.parametrize(
    ("answers", "seen", "sent", "dropped"),
    [
        ([500, 503], 3, 1, 0),
        ([429, 200], 2, 1, 0),
        ([500] * 9, 3, 0, 1),
        ([404], 1, 0, 1),
        ([302], 1, 0, 1),
        ([307], 1, 0, 1),
    ],
)
def test_failures_are_tried_again_and_refusals_are_not(stage, caplog, answers, seen, sent, dropped):
    hook = secret("hook")
    with receiving(f"/services/{hook}?token={hook}") as receiver, running(stage.watch(receiver.url)) as watch:
        receiver.answers = answers
        stage.up = {"Trino": 0.0}
        stage.pass_by(70)
        until(lambda: watch.state().sent + watch.state().dropped == 1)
        assert (watch.state().sent, watch.state().dropped) == (sent, dropped)
        assert len(receiver.wait(seen)) == seen
        assert receiver.seen == [BEGAN] * seen
        assert len({document["id"] for document in receiver.posted}) == 1
    assert hook not in caplog.text
    assert "127.0.0.1" not in caplog.text
    assert bool(dropped) == ("is given up" in caplog.text)


def test_a_receiver_that_never_answers_holds_nothing_up(stage, caplog):
    impatient = Pace(every=0.01, timeout=0.2, tries=2, pause=0.01, most_pause=0.02)
    with receiving() as receiver, running(stage.watch(receiver.url, pace=impatient)) as watch:
        receiver.answers = [0, 0]
        stage.up = {"Trino": 0.0}
        stage.pass_by(70)
        receiver.wait(1)
        looks = stage.looks
        until(lambda: stage.looks > looks + 3)
        until(lambda: watch.state().dropped == 1)
        assert watch.state().problem == "it has not answered in time"
        stage.up = {"Trino": 0.0, "Presto": 0.0}
        stage.pass_by(70)
        until(lambda: watch.state().sent == 1)
        assert receiver.posted[-1]["labels"] == {"service": "Presto"}


def test_names_cannot_write_markup_or_a_secret_into_a_message(stage):
    hush = secret("pw")
    with receiving() as receiver, running(stage.watch(receiver.url)):
        stage.up = {f"<!channel> & password={hush} {'x' * 300}": 0.0}
        stage.pass_by(70)
        [begun] = receiver.wait(1)
    assert "&lt;!channel&gt; &amp; password=" in begun["text"]
    assert "<" not in begun["text"]
    assert hush not in json.dumps(begun)
    assert len(begun["labels"]["service"]) == 200


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '{"standing": [{}], "waiting": []}'])
def test_a_file_of_alerts_that_cannot_be_read_is_replaced(stage, tmp_path, caplog, text):
    path = tmp_path / "alerts.json"
    path.write_text(text)
    queue = AlertQueue(path, now=stage.now)
    assert "is not a file of alerts" in caplog.text
    queue.note([], stage.now)
    assert (queue.begun, queue.waiting) == (0, 0)


def test_a_file_that_cannot_be_written_is_told_and_alerts_go_on(stage, tmp_path, caplog):
    path = tmp_path / "gone" / "alerts.json"
    with receiving() as receiver, running(stage.watch(receiver.url, path)) as watch:
        stage.up = {"Trino": 0.0}
        stage.pass_by(70)
        receiver.wait(1)
        assert watch.state().unsaved == "No such file or directory"
        path.parent.mkdir()
        until(lambda: watch.state().unsaved is None)
        assert path.exists()
    assert caplog.text.count("cannot be written") == 1


def test_the_oldest_of_too_many_messages_are_dropped(stage):
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}/"
    watch = stage.watch(nobody)
    stage.up = {f"service {number}": 0.0 for number in range(250)}
    watch.look()
    stage.now += 60
    watch.look()
    assert (watch.state().begun, watch.state().waiting, watch.state().dropped) == (250, 200, 50)


def test_an_error_of_a_look_does_not_end_the_looking(stage, caplog):
    broken = [True]

    def samples():
        if broken:
            broken.clear()
            raise ValueError("for a test")
        return stage.samples()

    with receiving() as receiver:
        watch = AlertWatch(receiver.url, samples, pace=QUICK, clock=lambda: stage.now)
        with running(watch):
            until(lambda: stage.looks > 2)
    assert "could not be evaluated" in caplog.text


@pytest.mark.parametrize("address", ["hooks.example", "ftp://h/x", "http://", "https://ada:{}@hooks.example/x"])
def test_an_address_that_cannot_be_right_is_refused_without_being_shown(address):
    hush = secret("hook")
    watch = Watch(Watched(sources=Sources()))
    with pytest.raises(InvalidArgumentError) as refused:
        watch_alerts(watch, None, {"PYDELTA_ALERT_WEBHOOK": address.format(hush) + f"/{hush}"})
    assert "PYDELTA_ALERT_WEBHOOK" in refused.value.message
    assert refused.value.hint
    assert hush not in str(refused.value)


def test_without_a_webhook_nothing_is_watched_and_a_folder_that_is_missing_is_told(tmp_path):
    watch = Watch(Watched(sources=Sources()))
    assert watch_alerts(watch, None, {"PYDELTA_ALERT_WEBHOOK": " "}) is None
    assert watch.overview().webhook is None
    with pytest.raises(InvalidArgumentError, match="does not exist"):
        watch_alerts(watch, tmp_path / "gone" / "x.json", {})


def test_the_page_says_that_the_webhook_fails_without_its_address(stage):
    hush = secret("hook")
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}/{hush}"
    page = Watch(Watched(sources=Sources(), patience=60))
    alerts = stage.watch(nobody)
    page.webhook = alerts.state
    application = Application(page)

    def asked(path):
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "HTTP_HOST": "127.0.0.1:8088"}
        return b"".join(application(environ, lambda *_: None)).decode()

    with running(alerts):
        stage.up = {"Trino": 0.0}
        stage.pass_by(70)
        until(lambda: alerts.state().dropped == 1)
        told = "The alert webhook did not accept the last message: Connection refused. 0 wait, 1 were given up."
        pages = {path: asked(path) for path in ("/", "/health", "/api/tables", "/metrics")}
    assert told in pages["/"]
    assert told in pages["/health"]
    assert 'pydelta_alert_posts_total{outcome="dropped"} 1.0' in pages["/metrics"]
    assert "pydelta_alerts 1.0" in pages["/metrics"]
    assert hush not in "".join(pages.values())


def _page(folder, url, port):
    state = folder / "alerts.json"
    command = [
        sys.executable, "-c", "from pydelta.api.cli.cli import main; main()", "ui", "--service", "Gone=tcp://127.0.0.1:1",
        "--port", str(port), "--alert-state", str(state), "--patience", "60",
    ]  # fmt: skip
    env = os.environ | {"PYDELTA_ALERT_WEBHOOK": url, "JAVA_HOME": "/nowhere"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def test_the_page_s_process_posts_and_answers_meanwhile_and_a_second_one_posts_nothing_again(tmp_path):
    hush = secret("hook")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # The condition has held for an hour, so that this test need not wait a minute.
    standing = {"rule": BEGAN[0], "labels": [["service", "Gone"]], "since": 0, "endsAfter": 60, "begun": None}
    (tmp_path / "alerts.json").write_text(json.dumps({"standing": [standing], "waiting": []}))

    def metrics():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            return answer.read().decode()

    with receiving(f"/{hush}") as receiver:
        for run in range(2):
            receiver.answers = [0] if run == 0 else []
            process = _page(tmp_path, receiver.url, port)
            assert f"127.0.0.1:{port}" in process.stdout.readline()
            assert "PYDELTA_ALERT_WEBHOOK" in process.stdout.readline()
            receiver.wait(1)
            assert 'pydelta_service_up{service="Gone"} 0.0' in metrics(), "it answers while the receiver does not"
            receiver.released.set()
            until(lambda run=run: f'pydelta_alert_posts_total{{outcome="sent"}} {1.0 - run}' in metrics())
            assert "pydelta_alerts 1.0" in metrics()
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=60)
            assert (process.returncode, err) == (0, ""), err
            assert hush not in out
        assert receiver.seen == [BEGAN]
        assert receiver.paths == [f"/{hush}"]


def test_nothing_is_logged_while_all_is_well(stage, caplog):
    caplog.set_level(logging.DEBUG, logger="pydelta.tools.alerts")
    with receiving() as receiver, running(stage.watch(receiver.url)) as watch:
        stage.up = {"Trino": 0.0}
        stage.pass_by(70)
        receiver.wait(1)
        until(lambda: watch.state().sent == 1)
    assert [record for record in caplog.records if record.name.startswith("pydelta.tools.alerts")] == []
