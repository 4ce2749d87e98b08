"""pydelta certify as an operator runs it: real processes over a disk and over S3, its report, its exit codes."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from leaks import secret
from s3_server import S3Server

from pydelta.api.cli.cli import main
from pydelta.tools.certify.checker import check
from pydelta.tools.certify.command import Wish
from pydelta.tools.certify.command import certify as run
from pydelta.tools.certify.history import Commit, Event, History, PlannedStep
from pydelta.tools.certify.plan import make_plan
from pydelta.tools.certify.promises import Broken
from pydelta.tools.certify.report import Report, page, read_report, verdict_of
from pydelta.tools.certify.run import Ran

HERE = str(Path(__file__).parent)


def command(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["certify", *arguments])
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err


def report_of(**more) -> Report:
    step = PlannedStep(op="1-1", kind="append", rows=1, key=2)
    event = Event(
        step=step, process=1, invoked_ns=0, returned_ns=None, outcome="unknown", error="<b>E</b>: x", version=1
    )
    history = History(events=(event,), commits=(Commit(version=0, op="setup"),))
    plan = make_plan(4, engines=["pydelta"], operations=3)
    known = {"verdict": "broken", "uri": "s3a://b/<i>", "made_at": "2026-01-02T03:04:05+00:00", "seconds": 3.0}
    known |= {"engines": ("pydelta",), "readers": (), "plan": plan, "history": history}
    return Report(**(known | more))


# --- a run, from the prompt ------------------------------------------------------------------------------------------


def test_a_disk_is_certified_and_left_as_it_was(tmp_path, capsys):
    place, folder = tmp_path / "place", tmp_path / "reports"
    arguments = [str(place), "--operations", "24", "--processes", "2", "--seed", "11", "--report", str(folder)]
    code, out, err = command(capsys, *arguments)
    assert (code, err) == (0, "")
    assert out.startswith("Seed 11: 24 operations of 2 processes (pydelta)")
    assert "Every promise held" in out
    assert not place.exists()
    (data,) = folder.glob("*.json")
    (shown,) = folder.glob("*.html")
    report = read_report(str(data))
    assert (report.verdict, report.plan.seed, report.broken) == ("certified", 11, ())
    assert len({event.step.op for event in report.history.events}) == 24
    assert len(report.history.commits) > 5
    assert "Every promise held" in shown.read_text()
    assert command(capsys, "--replay", str(data))[0] == 0


def test_a_store_that_lies_breaks_a_promise_and_the_report_runs_it_again(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", [HERE, *sys.path])
    liar = ["--option", "spark.pydelta.logStore.file=certify_liars:careless", "--no-faults"]
    folder = tmp_path / "reports"
    sizes = ["--operations", "16", "--processes", "1", "--seed", "3", "--shrink", "3"]
    code, out, _ = command(capsys, str(tmp_path / "place"), *sizes, *liar, "--report", str(folder))
    assert code == 1
    assert "BROKEN  No acknowledged commit is lost: " in out
    assert "A promise was broken." in out
    (data,) = folder.glob("*.json")
    report = read_report(str(data))
    assert report.verdict == "broken"
    assert report.smallest is None or report.smallest.operations < 16
    assert command(capsys, "--replay", str(data))[0] == 1, "its history is judged as before, without the store"
    again = [
        str(tmp_path / "place"),
        "--replay",
        str(data),
        "--shrink",
        "0",
        *liar,
        "--report",
        str(tmp_path / "again"),
    ]
    assert command(capsys, *again)[0] == 1
    (repeated,) = (tmp_path / "again").glob("*.json")
    assert read_report(str(repeated)).plan == (report.smallest or report.plan)


@pytest.fixture
def s3(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = S3Server()
    request = urllib.request.Request(f"{server.endpoint}/trials", method="PUT")
    urllib.request.urlopen(request, timeout=30).close()
    yield server
    server.stop()


def wish(server: S3Server, tmp_path: Path, **more) -> Wish:
    known = {"uri": "s3a://trials/here", "options": server.options(), "report": tmp_path, "minutes": 10, "shrink": 0}
    return Wish(**(known | more))


def test_s3_is_certified_through_the_proxy_and_with_delta_rs(s3, tmp_path):
    said: list[str] = []
    without = ("delta-rs:optimize",)  # beside another OPTIMIZE it doubles rows, up to delta-rs 1.6.6 at least
    sizes = {"operations": 30, "processes": 2, "seed": 2}
    code = run(wish(s3, tmp_path, engines=("delta-rs",), without=without, **sizes), None, said.append)
    assert code == 0, said
    (data,) = tmp_path.glob("*.json")
    report = read_report(str(data))
    assert {event.engine for event in report.history.events} == {"pydelta", "delta-rs"}
    assert {read.engine for read in report.history.reads} == {"pydelta", "delta-rs"}
    assert sum(report.faults.get(name, 0) for name in ("slow reply", "no reply", "cut reply", "refused")) > 0
    assert secret("s3") not in data.read_text()
    assert secret("s3") not in "".join(said)
    listed = urllib.request.urlopen(f"{s3.endpoint}/trials?list-type=2", timeout=30).read()
    assert b"<Key>" not in listed, "nothing is left in the bucket"


def test_s3_that_ignores_conditions_fails_the_race(s3, tmp_path):
    s3.ignore_conditions = True
    said: list[str] = []
    assert run(wish(s3, tmp_path), None, said.append) == 1
    assert "Of writers that race to create one object, one wins: Of 64 writers" in "".join(said)
    (shown,) = tmp_path.glob("*.html")
    assert "not tried" in shown.read_text()


# --- what cannot be said ---


def test_a_place_that_holds_something_is_refused_and_left_alone(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("x")
    code, _, err = command(capsys, str(tmp_path))
    assert code == 2
    assert "holds mine.txt, and pydelta certify needs an empty location" in err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "No location to certify was given"),
        (["PLACE", "--with", "duckdb"], "There is no engine 'duckdb'"),
        (["PLACE", "--with", "trino"], "--with trino and --trino belong together"),
        (["PLACE", "--trino", "http://127.0.0.1:1"], "--with trino and --trino belong together"),
        (["PLACE", "--trino-writes"], "--trino-writes is given, but no Trino"),
        (
            ["PLACE", "--with", "trino", "--trino", "http://127.0.0.1:1", "--trino-schema", "x"],
            "is not a schema of Trino",
        ),
        (["PLACE", "--property", "delta.isolationLevl=Serializable"], "delta.isolationLevl"),
        (["PLACE", "--property", "delta.isolationLevel"], "A property has no value"),
        (["PLACE", "--without", "duckdb:append"], "There is no operation 'duckdb:append'"),
        (["PLACE", "--without", "delta-rs:vacuum"], "There is no operation 'delta-rs:vacuum'"),
        (["PLACE", "--without", "append,stream"], "Nothing that pydelta does would write rows"),
        (["PLACE", "--replay", "NONE"], "cannot be read: No such file"),
        (["--replay", "BAD"], "is not a report of pydelta certify"),
        (["memory://x/y"], "memory:// is not shared by processes"),
        (["gopher://x/y"], "There is no store for the scheme 'gopher'"),
    ],
)
def test_wrong_use_is_said_and_nothing_is_made(tmp_path, capsys, arguments, says):
    (tmp_path / "bad.json").write_text("{}")
    words = {"PLACE": str(tmp_path / "place"), "NONE": str(tmp_path / "none"), "BAD": str(tmp_path / "bad.json")}
    code, _, err = command(capsys, *(words.get(word, word) for word in arguments))
    assert code == 2
    assert says in err
    assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["bad.json"]


@pytest.mark.parametrize(
    ("error", "says"),
    [(KeyboardInterrupt(), "Stopped before there was a verdict"), (ValueError("secret=x"), "itself failed")],
)
def test_what_ends_a_run_is_not_taken_for_a_broken_promise(tmp_path, capsys, monkeypatch, error, says):
    def ends(plan, request):
        raise error

    monkeypatch.setattr("pydelta.tools.certify.command.run_plan", ends)
    code, _, err = command(capsys, str(tmp_path / "place"), "--report", str(tmp_path))
    assert code == 2
    assert says in err
    assert "secret=x" not in err


def test_a_search_for_a_smaller_plan_that_is_stopped_leaves_the_verdict(tmp_path, capsys, monkeypatch):
    runs = []

    def once(plan, request):
        runs.append(plan)
        if len(runs) > 1:
            raise KeyboardInterrupt
        race = History(race="two of 64 writers were told that they created the object")
        return Ran(history=race, table="t", faults=Counter())

    monkeypatch.setattr("pydelta.tools.certify.command.run_plan", once)
    code, out, _ = command(capsys, str(tmp_path / "place"), "--report", str(tmp_path))
    assert (code, len(runs)) == (1, 2)
    assert "Stopped looking: the verdict stands." in out
    assert len(list(tmp_path.glob("*.json"))) == 1


def test_a_run_without_a_write_says_nothing():
    assert verdict_of(History(), ()) == "nothing to say"
    assert verdict_of(History(), (Broken(promise="durable", says="x"),)) == "broken"
    failed = report_of().history
    assert verdict_of(failed, check(failed)) == "nothing to say"


# --- the report ---


def test_the_page_shows_what_broke_and_escapes_what_others_wrote():
    broken = (Broken(promise="durable", says="APPEND 1-1 <lost>", versions=(1,), ops=("1-1",)),)
    text = page(report_of(broken=broken, smallest=make_plan(4, engines=["pydelta"], operations=1)), "r.json")
    assert "A promise was broken" in text
    assert "APPEND 1-1 &lt;lost&gt;" in text
    assert "&lt;b&gt;E&lt;/b&gt;" in text and "<b>" not in text and "<i>" not in text
    assert "The smallest plan that still breaks a promise" in text
    assert "never" in text, "an operation that was not answered"
    assert "http" not in text.replace("http-equiv", ""), "it needs nothing of the network"


def test_a_report_is_itself_after_json():
    report = report_of(
        broken=(Broken(promise="durable", says="x"),), smallest=make_plan(4, engines=["spark"], operations=2)
    )
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
    assert json.loads(msgspec.json.encode(report))["plan"]["seed"] == 4
