"""The page of stores is what the kept runs give, and a verdict follows from its runs alone."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pydelta.tools.certify.history import Commit, Event, History, PlannedStep
from pydelta.tools.certify.plan import make_plan
from pydelta.tools.certify.promises import PROMISES, Broken
from pydelta.tools.certify.report import Report
from tests.stores import __main__ as program
from tests.stores import runs as running
from tests.stores.page import PAGE, page
from tests.stores.places import NotRun, process
from tests.stores.results import (
    KEPT,
    BrokenPromise,
    Doctor,
    Kept,
    RunResult,
    StoreResult,
    added,
    broken_promises,
    contradicts,
    merged,
    read_kept,
    verdict,
    write_kept,
)
from tests.stores.rows import BY_NAME, ROWS
from tests.stores.runs import Size, try_store
from tests.stores.servers import balanced

SAFE, UNSAFE = Doctor(safe=True, says="SAFE"), Doctor(safe=False, says="UNSAFE")


def run(found="certified", seed=1, versions=20, **more) -> RunResult:
    return RunResult(seed=seed, verdict=found, seconds=1.5, versions=versions, operations=30, **more)


def lost(seed=7, promise="durable", says="APPEND 1-4 is lost") -> RunResult:
    return run("broken", seed, broken=(BrokenPromise(promise=promise, says=says),))


# --- the verdict ---


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([], "not run"),
        ([run()] * 10, "safe"),
        ([run()] * 12, "safe"),
        ([run()] * 9, "no verdict"),
        ([run()] * 9 + [run(versions=9)], "no verdict"),
        ([run()] * 9 + [run("nothing to say", versions=0)], "no verdict"),
        ([run()] * 9 + [run("refused", versions=0)], "no verdict"),
        ([run()] * 9 + [lost()], "broken"),
        ([lost()] + [run()] * 20, "broken"),
        ([lost()], "broken"),
        ([run("refused", versions=0), lost()], "broken"),
        ([run("refused", versions=0)] * 10, "refused"),
        ([run("refused", versions=0)], "refused"),
        ([run("nothing to say", versions=0)] * 10, "no verdict"),
        ([run("refused", versions=0), run("nothing to say", versions=0)], "no verdict"),
    ],
)
def test_a_verdict_follows_from_the_runs(runs, expected):
    assert verdict(runs) == expected


@pytest.mark.parametrize(
    ("judged", "doctor", "expected"),
    [
        ("safe", SAFE, False),
        ("safe", UNSAFE, True),
        ("safe", None, True),
        ("broken", SAFE, False),
        ("broken", UNSAFE, False),
        ("broken", None, True),
        ("refused", UNSAFE, False),
        ("refused", SAFE, True),
        ("no verdict", SAFE, False),
        ("no verdict", UNSAFE, False),
        ("not run", None, False),
        ("not run", SAFE, True),
    ],
)
def test_doctor_and_the_runs_contradict_each_other_or_not(judged, doctor, expected):
    assert contradicts(judged, doctor) is expected


def test_each_broken_promise_is_shown_once_with_its_first_run_and_how_many_runs_broke_it():
    both = run(
        "broken", 9, broken=(BrokenPromise(promise="once", says="b"), BrokenPromise(promise="durable", says="c"))
    )
    found = broken_promises([run(), lost(7), both])
    assert {name: (often, seen.seed, item.says) for name, (often, seen, item) in found.items()} == {
        "durable": (2, 7, "APPEND 1-4 is lost"),
        "once": (1, 9, "b"),
    }


# --- what is kept ---


def test_the_page_is_what_the_kept_runs_give():
    assert PAGE.read_text() == page(read_kept())


def test_every_row_is_kept_or_listed_with_the_reason_and_doctor_agrees():
    kept = {store.name: store for store in read_kept().stores}
    assert list(kept) == [row.name for row in ROWS]
    assert len(BY_NAME) == len(ROWS)
    for name, store in kept.items():
        judged = verdict(store.runs)
        assert (judged == "not run") == bool(store.not_run), name
        assert not contradicts(judged, store.doctor), f"{name}: {judged}, but doctor: {store.doctor}"
        seeds = [seen.seed for seen in store.runs]
        assert len(set(seeds)) == len(seeds), name
        assert {item.promise for seen in store.runs for item in seen.broken} <= set(PROMISES), name
        assert all(bool(seen.broken) == (seen.verdict == "broken") for seen in store.runs), name


def test_nothing_of_the_machine_or_of_its_keys_is_kept():
    text = KEPT.read_text()
    assert [word for word in ("/tmp/", "/home/", "/root/", "127.0.0.1:", "hush-") if word in text] == []


def test_stores_that_ran_again_replace_their_old_results_in_the_order_of_the_rows():
    old = Kept(packages={"a": "1"}, stores=(StoreResult(name="z", version="1"), StoreResult(name="x", version="1")))
    new = Kept(packages={"a": "2"}, stores=(StoreResult(name="y", version="2"), StoreResult(name="x", version="2")))
    both = merged(old, new, ["x", "y", "z"])
    assert [(store.name, store.version) for store in both.stores] == [("x", "2"), ("y", "2"), ("z", "1")]
    assert both.packages == {"a": "2"}
    assert merged(None, new, ["x", "y", "z"]).stores == (new.stores[1], new.stores[0])


@pytest.mark.parametrize(
    ("before", "seeds"),
    [
        (None, [2]),
        (StoreResult(name="x", version="1", command="c", runs=(run(seed=3), run(seed=1))), [1, 2, 3]),
        (StoreResult(name="x", version="1", command="c", runs=(lost(2), run(seed=1))), [1, 2]),
        (StoreResult(name="x", version="0", command="c", runs=(run(seed=3),)), [2]),
        (StoreResult(name="x", version="1", command="d", runs=(run(seed=3),)), [2]),
        (StoreResult(name="x", not_run="no program"), [2]),
    ],
)
def test_runs_are_added_to_those_of_the_same_version_and_command(before, seeds):
    found = added(before, StoreResult(name="x", version="1", command="c", runs=(run(seed=2),)))
    assert [seen.seed for seen in found.runs] == seeds
    assert {seen.verdict for seen in found.runs} == {"certified"}


# --- the page ---


def kept_of(*stores: StoreResult) -> Kept:
    return Kept(packages={"Python": "3.11"}, stores=stores)


def test_the_page_shows_a_failure_in_words_with_its_seed_and_both_commands():
    store = StoreResult(
        name="moto", version="5", command="pydelta certify s3a://b/trial", runs=(run(), lost(7)), doctor=UNSAFE
    )
    text = page(kept_of(store))
    assert "| moto | 5 | its own server, with threads | **NOT safe** | 2 | 60 | 40 | 0 | unsafe |" in text
    assert "1 of 2 runs broke a promise." in text
    assert "**No acknowledged commit is lost**: broken in 1 of 2 runs." in text
    assert "With seed 7:\n\n```text\nAPPEND 1-4 is lost\n```\n" in text
    assert 'make test SUITE=stores ARGS="--trial --stores moto --first-seed 7 --runs 1"' in text
    assert "pydelta certify s3a://b/trial --seed 7" in text


def test_the_page_shows_why_a_store_was_refused_not_run_or_has_no_verdict():
    refused = StoreResult(
        name="s3fs", version="1.90", runs=(run("refused", versions=0, says="no hard links"),), doctor=UNSAFE
    )
    text = page(
        kept_of(
            StoreResult(name="nfs", not_run="no client"), refused, StoreResult(name="xfs", runs=(run(),), doctor=SAFE)
        )
    )
    assert "not run: no client | – |" in text
    assert "**s3fs over MinIO**, in 1 of 1 runs:\n\n```text\nno hard links\n```\n" in text
    assert "- **XFS** (in a loop image): 1 of 1 runs held every promise." in text
    assert "## How each failed" not in text


# --- running ---


def report_of(**more) -> Report:
    step = PlannedStep(op="1-1", kind="append", rows=1, key=2)
    event = Event(step=step, process=1, invoked_ns=0, returned_ns=1, outcome="ok", version=1)
    history = History(events=(event, event), commits=(Commit(version=0, op="setup"), Commit(version=1, op="1-1")))
    plan = make_plan(4, engines=["pydelta"], operations=3)
    known = {"verdict": "broken", "uri": "u", "made_at": "t", "seconds": 3.0, "engines": (), "readers": ()}
    return Report(**(known | {"plan": plan, "history": history, "faults": {"lose": 2}} | more))


def test_of_a_report_the_first_of_each_broken_promise_is_kept_and_nothing_of_the_place():
    broken = [Broken(promise="durable", says=says) for says in ("at /here/trial", "b")]
    broken.append(Broken(promise="once", says="c"))
    found = running.of_report(report_of(broken=tuple(broken)), 2.5, lambda text: text.replace("/here", "FOLDER"))
    assert found == RunResult(
        seed=4,
        verdict="broken",
        seconds=2.5,
        operations=1,
        versions=1,
        faults={"lose": 2},
        broken=(
            BrokenPromise(promise="durable", says="at FOLDER/trial", count=2),
            BrokenPromise(promise="once", says="c", count=1),
        ),
    )


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("error: x has no hard links [DELTA_UNSAFE_STORE]\nNext: move it\nmore", ("refused", "Next: move it")),
        ("error: no answer [DELTA_STORAGE_ERROR]", ("nothing to say", "no answer")),
    ],
)
def test_a_run_without_a_report_was_refused_or_says_nothing(said, expected):
    found = running.without_report(3, 1.0, said)
    assert (found.verdict, expected[1] in found.says) == (expected[0], True)
    assert "more" not in found.says


def test_a_store_that_cannot_be_started_is_not_run_with_the_reason():
    def start(folder: Path):
        raise NotRun(f"{folder}/x is not there")

    said: list[str] = []
    found = try_store(replace(BY_NAME["minio"], start=start), Size(seeds=[1], operations=1, minutes=1), said.append)
    assert (found.name, found.not_run, found.runs) == ("minio", "FOLDER/x is not there", ())
    assert len(said) == 1


@pytest.mark.parametrize(
    ("script", "ready", "says"),
    [("echo no disk; exit 3", False, "sh ended: no disk"), ("exit 3", False, "exit code 3"), ("exit 0", True, "ended")],
)
def test_a_program_that_ends_by_itself_leaves_its_store_not_run(tmp_path, script, ready, says):
    entered = []
    with pytest.raises(NotRun, match=says), process(tmp_path, ["sh", "-c", script], lambda: ready) as started:
        entered.append(started.wait())
    assert bool(entered) == ready


def test_a_program_runs_as_long_as_the_block_and_is_ended_by_it(tmp_path):
    mark = tmp_path / "ready"
    with process(tmp_path, ["sh", "-c", "touch ready; exec sleep 600"], mark.exists) as started:
        assert started.poll() is None
    assert started.poll() is not None


def test_a_balancer_gives_connections_to_its_servers_in_turn():
    with ExitStack() as stack:
        ports = []
        for name in (b"first", b"second"):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            ports.append(listener.getsockname()[1])
            threading.Thread(target=answer_all, args=(listener, name), daemon=True).start()
        address = urlsplit(stack.enter_context(balanced(ports)))
        got = []
        for _ in range(4):
            with socket.create_connection((address.hostname, address.port)) as client:
                client.sendall(b"to ")
                client.shutdown(socket.SHUT_WR)
                got.append(client.makefile("rb").read())
        assert got == [b"to first", b"to second"] * 2


def answer_all(listener: socket.socket, name: bytes) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # It was closed: the test is over.
            return
        with connection:
            connection.sendall(connection.makefile("rb").read() + name)


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [(["certified"], 0), (["certified", "broken"], 1), (["nothing to say"], 2), (["broken", "refused"], 1), ([], 2)],
)
def test_a_trial_keeps_nothing_and_its_exit_code_says_what_was_found(monkeypatch, verdicts, code):
    monkeypatch.setattr(
        program, "try_store", lambda *_: StoreResult(name="xfs", runs=tuple(run(found) for found in verdicts))
    )
    monkeypatch.setattr("sys.argv", ["stores", "--trial", "--stores", "xfs", "--runs", "1"])
    before = KEPT.read_bytes()
    assert program.main() == code
    assert KEPT.read_bytes() == before


def test_a_run_is_kept_as_soon_as_its_store_is_done_and_the_page_is_drawn(monkeypatch, tmp_path):
    kept, shown = tmp_path / "stores.json", tmp_path / "stores.md"
    for module in ("tests.stores.results", "tests.stores.__main__"):
        monkeypatch.setattr(f"{module}.KEPT", kept)
    monkeypatch.setattr(program, "PAGE", shown)
    asked = []

    def tried(row, size, say, keep=lambda result: None):
        asked.append((row.name, list(size.seeds), size.operations, size.minutes))
        result = StoreResult(name=row.name, runs=(run(seed=size.seeds[0]),), doctor=SAFE)
        keep(result)
        assert kept.exists()
        return result

    monkeypatch.setattr(program, "try_store", tried)
    words = "stores --stores xfs,local --runs 2 --first-seed 0x10 --operations 5 --minutes 0.5"
    monkeypatch.setattr("sys.argv", words.split())
    assert program.main() == 0
    assert asked == [("xfs", [16, 17], 5, 0.5), ("local", [16, 17], 5, 0.5)]
    assert [store.name for store in read_kept().stores] == ["local", "xfs"]
    assert shown.read_text() == page(read_kept())
    for more, seeds in (("--add", [2, 16]), ("--trial", [2, 16]), ("", [3])):
        monkeypatch.setattr("sys.argv", f"stores --stores xfs {more} --first-seed {2 if more else 3}".split())
        program.main()
        assert [seen.seed for seen in read_kept().stores[1].runs] == seeds
    assert asked[-3:] == [("xfs", list(range(2, 12)), 40, 2.0)] * 2 + [("xfs", list(range(3, 13)), 40, 2.0)]
    monkeypatch.setattr("sys.argv", ["stores", "--stores", "xfs", "--add", "--first-seed", "3", "--runs", "3"])
    program.main()
    assert asked[-1] == ("xfs", [4, 5], 40, 2.0)
    monkeypatch.setattr("sys.argv", ["stores", "--stores", "xfs", "--add", "--first-seed", "3", "--runs", "1"])
    program.main()
    assert len(asked) == 6
    write_kept(kept_of(StoreResult(name="nfs", not_run="no client")))
    monkeypatch.setattr("sys.argv", ["stores", "--draw"])
    assert program.main() == 0
    assert "no client" in shown.read_text()


def test_a_store_that_is_not_known_is_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["stores", "--stores", "floppy"])
    with pytest.raises(SystemExit):
        program.main()
    assert "there is no store floppy" in capsys.readouterr().err


@pytest.mark.ci
def test_this_disk_is_certified_by_the_command_line_and_doctor_agrees(monkeypatch, tmp_path):
    monkeypatch.setattr(running, "REPORTS", tmp_path / "reports")
    said: list[str] = []
    found = try_store(BY_NAME["local"], Size(seeds=[5], operations=12, minutes=30), said.append)
    assert [seen.verdict for seen in found.runs] == ["certified"], said
    assert (found.runs[0].operations, found.runs[0].broken) == (12, ())
    assert found.runs[0].versions > 0
    assert found.doctor is not None and found.doctor.safe
    assert found.command == "pydelta certify FOLDER/trial --operations 12 --minutes 30"
    assert list((tmp_path / "reports").rglob("*.json")) == []


@pytest.mark.ci
def test_a_store_that_ignores_conditions_is_broken_and_its_report_stays(monkeypatch, tmp_path):
    monkeypatch.setattr(running, "REPORTS", tmp_path / "reports")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    found = try_store(BY_NAME["moto-deaf"], Size(seeds=[5], operations=12, minutes=30), [].append)
    assert verdict(found.runs) == "broken"
    assert [item.promise for item in found.runs[0].broken] == ["put-if-absent"]
    assert found.doctor is not None and not found.doctor.safe
    assert not contradicts("broken", found.doctor)
    (kept,) = (tmp_path / "reports").rglob("*.json")
    assert json.loads(kept.read_text())["verdict"] == "broken"
