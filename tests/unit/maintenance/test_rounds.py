"""Going round real tables without Spark: what a tick starts, what it notes, and what a second one leaves alone."""

from __future__ import annotations

import json
import threading
import time
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from jobs.schedule import problems, warnings
from pydelta.commands.optimize.command import Optimize
from pydelta.commands.vacuum.command import Vacuum
from pydelta.errors import ConcurrentDeleteReadException, SchemaMismatchError, TableNotFoundError
from pydelta.log import DeltaLog
from pydelta.predicate import parse_predicate
from pydelta.settings import Settings
from pydelta.storage import MemoryStore
from pydelta.testing.commands import optimize, vacuum
from pydelta.testing.garbage import Yard
from pydelta.testing.operations import add_file, append, create_table, delete_partition
from pydelta.testing.row_files import LogEngine, rows_of
from pydelta.tools.maintenance.decide import NO_INVENTORY, Action, DailyBudget
from pydelta.tools.maintenance.journal import Journal, Outcome, Row, read_rows
from pydelta.tools.maintenance.scheduler import ActionDone, Looked, Scheduler, TablePlace
from pydelta.tools.maintenance.state import ActionKind, last_runs, later_removals
from pydelta.tools.maintenance.status import StatusOf, write_status
from pydelta.tools.maintenance.watch import Known, TableWatcher

HOUR = 3_600_000
PREFIX = "pydelta.maintenance."


def now_ms():
    return time.time_ns() // 1_000_000


@pytest.fixture
def lake():
    """A place of its own in memory."""
    yield f"memory://maintained-{uuid.uuid4()}"
    DeltaLog.clear_cache()


def table_of(lake, files=6, **properties):
    """A table of small files in one partition; its rows are in its log."""
    log = DeltaLog.for_table(f"{lake}/t")
    create_table(log, **{PREFIX + name: value for name, value in properties.items()})
    for number in range(files):
        append("a", [number]).run(log)
    return log


def do_here(order):
    """OPTIMIZE and VACUUM themselves."""
    log = DeltaLog.for_table(order.place.location)
    if order.action.kind in ActionKind.VACUUMS:
        result = vacuum(log, Vacuum(mode="lite" if order.action.kind == ActionKind.LITE else "full"))
        facts = {"files_removed": result.deleted, "bytes_removed": result.bytes, "version_after": result.end_version}
        return ActionDone(outcome=Outcome.DONE if result.deleted else Outcome.NOTHING, facts=facts)
    done = optimize(log, LogEngine(), Settings(optimize_min_file_bytes=order.policy.small_file_bytes), Optimize())
    return ActionDone(
        facts={
            "version_after": done.version,
            "files_read": len(done.removed),
            "bytes_read": sum(add.size for add in done.removed),
            "saved_files": len(done.removed) - len(done.added),
        }
    )


def rounds_of(lake, do=do_here, **options):
    return Scheduler(Journal(DeltaLog.for_table(f"{lake}/ops/maintenance")), do, **options)


def turn(rounds, *logs, at_ms=None, **options):
    places = [TablePlace(name=log.uri.rpartition("/")[2], location=log.uri, registered=True) for log in logs]
    found = rounds.tick(places, now_ms=at_ms or now_ms(), **options)
    assert rounds.finish() is None
    return found


def book_rows(lake):
    return read_rows(DeltaLog.for_table(f"{lake}/ops/maintenance"), since_ms=0)


def test_a_table_past_its_bound_is_compacted_once_and_it_is_in_the_book(lake):
    log = table_of(lake, **{"compact.minFiles": "5"})
    before = rows_of(log.update())
    rounds = rounds_of(lake)
    turn(rounds, log)
    snapshot = log.update()
    assert (snapshot.num_files, snapshot.version) == (1, 7)
    assert rows_of(snapshot) == before
    [row] = book_rows(lake)
    assert (row.table, row.location, row.action, row.outcome, row.attempt) == ("t", log.uri, "compact", "done", 1)
    assert (row.version_before, row.version_after) == (6, 7)
    assert (row.files_read, row.saved_files, row.bytes_read) == (6, 5, 6 * 101)
    assert "6 files below 32.0 MiB (606 B) can become 1: 5 fewer; the bound is 5" in row.reason
    assert abs(row.at_ms - now_ms()) < HOUR

    turn(rounds, log)
    assert (log.update().version, len(book_rows(lake))) == (7, 1)
    turn(rounds_of(lake), log)  # a process that begins anew knows it from the book and the tables
    assert (log.update().version, len(book_rows(lake))) == (7, 1)


def test_a_table_below_its_bound_and_one_left_alone_are_not_touched(lake):
    log = table_of(lake, **{"compact.minFiles": "6"})
    [looked] = turn(rounds_of(lake), log)
    assert (looked.actions, log.update().version, book_rows(lake)) == ((), 6, [])
    other = DeltaLog.for_table(f"{lake}/u")
    create_table(other, [add_file("a", [n]) for n in range(60)], **{PREFIX + "enabled": "false"})
    [looked] = turn(rounds_of(lake), other)
    assert (looked.actions, other.update().version) == ((), 0)


def test_garbage_goes_when_it_is_due_and_not_again(lake):
    yard = Yard(MemoryStore(f"{lake}/t"), now_ms=now_ms(), properties={PREFIX + "vacuum": "lite"})
    old = yard.add("old", age=400)
    yard.commit(yard.add("live", age=400), old, age=400)
    yard.commit(yard.remove(old, age=300), age=300)
    log = DeltaLog.for_table(f"{lake}/t")
    rounds = rounds_of(lake)
    turn(rounds, log)
    assert "old" not in yard.files()
    [row] = book_rows(lake)
    assert (row.action, row.outcome, row.files_removed, row.bytes_removed) == ("vacuum lite", "done", 1, 10)
    assert "1 files (10 B) were removed more than 7 days ago" in row.reason
    version = log.update().version
    turn(rounds, log)
    turn(rounds, log, at_ms=now_ms() + 2 * 24 * HOUR)
    turn(rounds_of(lake), log, at_ms=now_ms() + 2 * 24 * HOUR)
    assert (log.update().version, len(book_rows(lake))) == (version, 1)


def test_a_failure_waits_comes_again_and_is_forgotten_when_it_ends_well(lake):
    log = table_of(lake, **{"compact.minFiles": "2"})
    fails = [True]

    def do(order):
        if fails:
            raise ConcurrentDeleteReadException("A file was deleted.", hint="Run it again.")
        return do_here(order)

    rounds = rounds_of(lake, do)
    turn(rounds, log)
    [row] = book_rows(lake)
    assert (row.outcome, row.attempt) == ("failed", 1)
    assert (row.error_code or "").startswith("DELTA_CONCURRENT_DELETE_READ")
    assert row.error.endswith("Next: Run it again.")
    assert "\n" not in row.error
    assert rounds.exit_code == 2
    [looked] = turn(rounds, log)
    assert "it failed once, the next try is at" in looked.actions[0].held
    turn(rounds, log, at_ms=now_ms() + 6 * 60_000)
    assert [row.attempt for row in book_rows(lake)] == [1, 2]
    [row] = rounds_of(lake).journal.failing()
    assert row.attempt == 2
    fails.clear()
    fresh = rounds_of(lake, do)  # as after a restart
    assert "it failed 2 times" in turn(fresh, log)[0].actions[0].held
    turn(fresh, log, at_ms=now_ms() + 11 * 60_000)
    assert [(row.outcome, row.attempt) for row in book_rows(lake)][-1] == ("done", 3)
    assert fresh.journal.failing() == []


def test_an_error_that_nobody_expected_is_a_failure_of_the_action_alone(lake, caplog):
    first, second = table_of(lake, **{"compact.minFiles": "2"}), DeltaLog.for_table(f"{lake}/u")
    create_table(second, [add_file("a", [n]) for n in range(60)])

    def do(order):
        if order.place.name == "t":
            raise RuntimeError("two\nlines")
        return do_here(order)

    turn(rounds_of(lake, do), first, second)
    assert {row.table: (row.outcome, row.error) for row in book_rows(lake)} == {
        "t": ("failed", "RuntimeError: two lines"),
        "u": ("done", None),
    }


def test_what_cannot_be_looked_at_stops_no_other(lake):
    log = table_of(lake, **{"compact.minFiles": "2"})
    wrong = DeltaLog.for_table(f"{lake}/wrong")
    create_table(wrong, **{PREFIX + "vacuum": "allways"})  # as another engine lets it be set
    gone, bad, good = turn(rounds_of(lake), DeltaLog.for_table(f"{lake}/gone"), wrong, log)
    assert "There is no Delta table at" in gone.error
    assert "pydelta.maintenance.vacuum is 'allways'" in bad.error
    assert (gone.exit_code, bad.exit_code, good.exit_code) == (1, 1, 0)
    assert log.update().num_files == 1
    with pytest.raises(TableNotFoundError, match="drop its entry"):
        TableWatcher("gone", DeltaLog.for_table(f"{lake}/gone")).look(Known(), now_ms=0)


def test_the_day_s_budget_is_counted_from_the_book(lake):
    log = table_of(lake, **{"compact.minFiles": "2", "compact.minAge": "0 seconds"})
    limit = DailyBudget(bytes=1000)
    turn(rounds_of(lake, budget=limit), log)
    for number in range(6):
        append("a", [number]).run(log)
    [looked] = turn(rounds_of(lake, budget=limit), log)
    [action] = looked.actions
    assert action.held == f"it would read {action.bytes} B, and today's budget has 394 B left"
    book = rounds_of(lake).journal
    assert book.left(limit) == DailyBudget(bytes=394)
    assert book.left(limit, "memory://another") == limit
    tomorrow = Journal(book.log, clock=lambda: now_ms() + 25 * HOUR)
    assert tomorrow.left(limit) == limit


def test_an_announced_commit_is_synced_at_once_and_the_lane_of_another_table_does_not_keep_it_waiting(lake):
    log = table_of(lake, **{"compact.minFiles": "2"})
    release, synced = threading.Event(), threading.Event()

    def do(order):
        if order.action.kind == ActionKind.SYNC:
            synced.set()
            return ActionDone()
        release.wait(60)
        return do_here(order)

    rounds = rounds_of(lake, do)
    place = TablePlace(name="lake.t", location=log.uri, registered=True)
    rounds.tick([place], now_ms=now_ms())  # the OPTIMIZE runs, and waits
    rounds.tick([place], announced=frozenset({log.uri}), now_ms=now_ms(), forget=False)
    assert synced.wait(60)
    release.set()
    assert rounds.finish() is None
    assert sorted(row.action for row in book_rows(lake)) == ["compact", "sync"]
    rounds.close()


def test_a_look_sums_up_again_only_when_something_changed(lake):
    log = table_of(lake, **{"compact.minAge": "interval 1 day"})
    watcher = TableWatcher("t", log)
    start = 1_700_000_000_000 + HOUR  # an hour after the files were written
    state, _ = watcher.look(Known(), now_ms=start)
    assert (state.compaction.files, state.compaction.ripens_ms) == (0, 1_700_000_000_000 + 24 * HOUR)
    for _ in range(3):
        watcher.look(Known(), now_ms=start)
    assert watcher.sums == 1
    state, _ = watcher.look(Known(), now_ms=start + 24 * HOUR)
    assert (watcher.sums, state.compaction.files) == (2, 6)
    append("a", [7]).run(log)
    state, _ = watcher.look(Known(), now_ms=start + 24 * HOUR)
    assert (watcher.sums, state.compaction.files, state.version) == (3, 7, 7)


def test_removals_that_a_checkpoint_has_left_out_are_still_known(lake):
    log = table_of(lake, vacuum="lite")
    delete_partition("a").run(log)
    watcher = TableWatcher("t", log)
    state, _ = watcher.look(Known(), now_ms=now_ms())
    assert [item.files for item in state.removals] == [6]
    assert later_removals(state.removals, ()) == state.removals
    assert later_removals((), state.removals) == state.removals


def test_the_history_tells_who_ran_what_last(lake):
    log = table_of(lake)
    optimize(log, LogEngine(), Settings(), Optimize())
    vacuum(log, Vacuum(mode="lite"))
    found = last_runs(log.history())
    assert set(found) == {ActionKind.COMPACT, ActionKind.LITE}
    assert found[ActionKind.LITE] >= found[ActionKind.COMPACT]


# --- the book ---------------------------------------------------------------------------------------------------


def test_rows_that_could_not_be_written_are_written_the_next_time(lake, monkeypatch):
    book = Journal(DeltaLog.for_table(f"{lake}/book"))
    row = Row(at_ms=now_ms(), table="t", location="l", action="compact", reason="r", outcome="done", seconds=1.5)
    book.note(row)
    with monkeypatch.context() as patched:
        patched.setattr("pydelta.tools.maintenance.journal.append_rows", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            book.write()
    assert book.write() == 0
    assert book.write() is None
    assert read_rows(book.log, since_ms=0) == [row]


def test_a_table_that_is_not_a_book_is_refused(lake):
    log = table_of(lake)
    book = Journal(log)
    with pytest.raises(SchemaMismatchError, match="is not a journal of maintenance: at timestamp"):
        book.known("l")
    with pytest.raises(SchemaMismatchError, match="Name another table"):
        Journal(log).note(Row(at_ms=0, table="t", location="l", action="a", reason="r", outcome="done"))


def test_a_book_can_be_read_by_the_statistics_of_its_files(lake):
    book = Journal(DeltaLog.for_table(f"{lake}/book"))
    for name in ("a", "b"):
        book.note(Row(at_ms=now_ms(), table=name, location="l", action="compact", reason="r", outcome="done"))
        book.write()
    snapshot = book.log.update()
    assert snapshot.num_files == 2
    assert snapshot.files.select(None, [parse_predicate("table = 'b'", snapshot.schema)]).height == 1


# --- the status -------------------------------------------------------------------------------------------------


def test_the_status_tells_what_failed_what_cannot_be_read_and_that_turns_are_made(lake, tmp_path):
    log = table_of(lake, **{"compact.minFiles": "2"})

    def do(order):
        raise ConcurrentDeleteReadException("A file was deleted.", hint="Run it again.")

    rounds = rounds_of(lake, do)
    found = turn(rounds, log, DeltaLog.for_table(f"{lake}/gone"))
    status = StatusOf(what="maintenance of lake", every=60.0).after(found, rounds.journal.failing(), all_of_them=True)
    path = tmp_path / "maintenance.json"
    write_status(path, status, None)
    assert problems(json.loads(path.read_text()), datetime.now(UTC)) == [], "the service itself works"
    said = warnings(json.loads(path.read_text()))
    assert len(said) == 2
    assert said[0].startswith("Warning: look at gone: ")
    assert said[1].startswith("Warning: compact of t (try 1): ")
    assert "A file was deleted" in said[1]
    late = problems(json.loads(path.read_text()), datetime.now(UTC) + timedelta(hours=1))
    assert any("maintenance of lake has not run since" in text for text in late)
    write_status(path, status.after([], [], all_of_them=True), "the metastore does not answer")
    assert "the metastore does not answer" in problems(json.loads(path.read_text()), datetime.now(UTC))[0]
    assert status.after([], rounds.journal.failing(), all_of_them=True).failing == ()  # of tables that are gone
    assert len(status.after([], rounds.journal.failing(), all_of_them=False).failing) == 1
    assert len(status.after(turn(rounds, log), rounds.journal.failing(), all_of_them=False).failing) == 1
    waits = Action(kind=ActionKind.INVENTORY, reason="it is time", held=NO_INVENTORY)
    waiting = status.after([Looked(place=found[0].place, actions=(waits,))], [], all_of_them=True)
    write_status(path, waiting, None)
    [said] = warnings(json.loads(path.read_text()))
    assert said.startswith("Warning: vacuum inventory of t: no inventory of its bucket has been loaded. Make one now: ")
    assert waiting.after([], [], all_of_them=False).waiting == {"t"}
    assert waiting.after([], [], all_of_them=True).waiting == frozenset()
    quiet = [Looked(place=found[0].place)]  # it asks for nothing any more
    assert status.after(quiet, rounds.journal.failing(), all_of_them=False).failing == ()
