"""When a change that lost to another writer is run again by itself, and what it then commits. No Spark."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from pydelta.commands.change.merge import ClauseAction, ClauseOn, MergeClause
from pydelta.commands.run import ANY, FOLDER, REARRANGED, runs_again
from pydelta.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
    StoragePermissionError,
)
from pydelta.log import DeltaLog
from pydelta.predicate import Column, Compare, Literal
from pydelta.settings import Settings
from pydelta.storage.memory import MemoryStore
from pydelta.testing.commands import delete, merge, update
from pydelta.testing.operations import (
    NO_PAUSE,
    add_file,
    alter,
    append,
    compact,
    create_table,
    hide_value,
    rows_of,
    update_value,
)
from pydelta.testing.row_files import LogEngine, LogUpsert
from pydelta.txn import start_transaction

_NAMES = itertools.count()
ROWS = (ConcurrentAppendException, ConcurrentDeleteReadException, ConcurrentDeleteDeleteException)
OTHERS = (
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
)
X_IS_1 = Compare("=", Column(("x",)), Literal(1, "long"))


@pytest.mark.parametrize(
    ("kinds", "rearranged", "retry_on", "retries", "again"),
    [
        (ROWS, True, REARRANGED, 0, True),
        (ROWS, True, REARRANGED, 9, True),
        (ROWS, True, REARRANGED, 10, False),  # as often as it may be
        (ROWS, False, REARRANGED, 0, False),  # rows changed: the user may want to look first
        (ROWS, True, ANY, 0, True),
        (ROWS, False, ANY, 0, True),
        (ROWS, False, ANY, 10, False),
        (OTHERS, True, REARRANGED, 0, False),
        (OTHERS, True, ANY, 0, False),  # what the statement means may be another thing, or it was done already
        (OTHERS, False, ANY, 0, False),
    ],
)
def test_which_conflicts_are_run_again(kinds, rearranged, retry_on, retries, again):
    for kind in kinds:
        lost = kind("lost")
        lost.winner_only_rearranged = rearranged
        assert runs_again(lost, retry_on=retry_on, retries=retries, most=10) is again


class Interrupted:
    """Begins transactions of a statement; before each of the first ones commits, something else is committed."""

    def __init__(self, store, *between):
        self.store, self.between, self.begun = store, list(between), 0
        self.announced = []

    def __call__(self, log):
        self.begun += 1
        operation = self.between.pop(0) if self.between else None
        self.announced.append(len(list(self.store.list_from("", prefix=FOLDER))))
        txn = start_transaction(log, backoff=NO_PAUSE)
        if operation is not None:
            operation.run(DeltaLog(self.store))
        return txn


@pytest.fixture
def store():
    store = MemoryStore(f"memory://again{next(_NAMES)}/t")
    files = [add_file("1", [1]), add_file("1", [2]), add_file("2", [3])]
    create_table(DeltaLog(store), files)
    return store


def metrics_of(store):
    (record,) = DeltaLog(store).history(1)
    return record.commit_info.get("operationMetrics")


def updated(store, *between, settings=None):
    begin = Interrupted(store, *between)
    result = update(DeltaLog(store, settings=settings), LogEngine(), (("x", 10),), X_IS_1, begin=begin)
    return begin, result


def test_an_update_of_compacted_files_is_run_again_and_says_so(store):
    begin, result = updated(store, compact("1"))
    assert (begin.begun, result.version, result.num_updated_rows) == (2, 2, 1)
    assert rows_of(DeltaLog(store).update()) == Counter({("1", 10): 1, ("1", 2): 1, ("2", 3): 1})
    told = metrics_of(store)
    assert (told["numRetries"], told["retryReason"]) == ("1", "version 1: OPTIMIZE")
    assert begin.announced == [0, 1], "maintenance can see that it is run again"
    assert not list(store.list_from("", prefix=FOLDER)), "and that it is done"


def test_one_that_met_nobody_says_nothing_of_it(store):
    begin, _ = updated(store)
    assert begin.begun == 1
    assert not {"numRetries", "retryReason"} & metrics_of(store).keys()


def test_it_sees_the_rows_that_came_before_the_version_that_it_is_run_on(store):
    class Both:
        def run(self, log):
            compact("1").run(log)
            append("2", [1, 1]).run(log)

    _, result = updated(store, Both())
    assert result.num_updated_rows == 3
    assert rows_of(DeltaLog(store).update()) == Counter({("1", 10): 1, ("1", 2): 1, ("2", 3): 1, ("2", 10): 2})


def test_the_number_of_retries_is_bounded(store):
    def rearranged():
        class Rearranged:
            def run(self, log):
                append("1", [5]).run(log)  # a file more, so that there is something to compact
                compact("1").run(log)

        return Rearranged()

    begin = [rearranged() for _ in range(5)]
    with pytest.raises(ConcurrentDeleteReadException):
        updated(store, *begin, settings=Settings(change_max_retries=2))
    assert not list(store.list_from("", prefix=FOLDER))
    assert rows_of(DeltaLog(store).update())["1", 1] == 1, "nothing of it was committed"


def test_none_at_all_where_the_setting_is_zero(store):
    with pytest.raises(ConcurrentDeleteReadException):
        updated(store, compact("1"), settings=Settings(change_max_retries=0))


def test_changed_rows_are_a_conflict_if_the_setting_says_so(store):
    with pytest.raises(ConcurrentDeleteReadException):
        updated(store, update_value(1, 7), settings=Settings(change_retry_on="rearranged"))
    assert rows_of(DeltaLog(store).update())["1", 7] == 1


def test_a_statement_follows_changed_rows_too(store):
    begin, result = updated(store, update_value(1, 7))
    assert (begin.begun, result.version) == (2, None), "the row that it was about is not there"
    assert rows_of(DeltaLog(store).update()) == Counter({("1", 7): 1, ("1", 2): 1, ("2", 3): 1})


class Waits:
    """A ``give_way`` that says what it was asked, and lets the others finish."""

    def __init__(self, store):
        self.store, self.asked = store, []

    def __call__(self, store, **asked):
        self.asked.append(asked["most_ms"])
        store.delete_many([item.path for item in store.list_from("", prefix=FOLDER)])
        return 0


def test_it_waits_once_for_others_that_are_run_again_before_it_reads(store, monkeypatch):
    waits = Waits(store)
    monkeypatch.setattr("pydelta.commands.run.give_way", waits)
    store.put(f"{FOLDER}/other", b"{}")
    begin, result = updated(store, update_value(1, 7), settings=Settings(change_give_way_ms=70))
    assert waits.asked == [70, 5_000], "the other update, too; not before it is run again: then others wait for it"
    assert begin.announced == [0, 1]
    assert result.num_updated_rows == 0


def test_one_that_is_never_run_again_waits_for_nobody(store, monkeypatch):
    waits = Waits(store)
    monkeypatch.setattr("pydelta.commands.run.give_way", waits)
    updated(store, settings=Settings(change_max_retries=0))
    assert waits.asked == []


def test_it_goes_on_when_the_others_take_too_long(store):
    store.put(f"{FOLDER}/other", b"{}")
    _, result = updated(store, settings=Settings(change_give_way_ms=120))
    assert result.num_updated_rows == 1


def test_a_definition_that_changed_after_the_compaction_ends_it_with_the_conflict(store):
    class Both:
        def run(self, log):
            compact("1").run(log)
            alter("more").run(log)

    with pytest.raises(ConcurrentDeleteReadException) as lost:
        updated(store, Both())
    assert lost.value.winning_version == 1
    assert rows_of(DeltaLog(store).update())["1", 1] == 1


def test_a_version_of_an_application_that_another_took_meanwhile_is_skipped(store):
    once = Settings(txn_app_id="job", txn_version=3)

    class Both:
        def run(self, log):
            compact("1").run(log)
            update(log, LogEngine(), (("x", 99),), X_IS_1, settings=once)

    begin = Interrupted(store, Both())
    result = update(DeltaLog(store), LogEngine(), (("x", 10),), X_IS_1, begin=begin, settings=once)
    assert (begin.begun, result.skipped, result.version) == (2, True, None)
    rows = rows_of(DeltaLog(store).update())
    assert rows == Counter({("1", 99): 1, ("1", 2): 1, ("2", 3): 1, ("txn job", 3): 1})


def test_a_delete_of_compacted_files_is_run_again(store):
    begin = Interrupted(store, compact("1"))
    result = delete(DeltaLog(store), LogEngine(), None, begin=begin)
    assert (begin.begun, result.version, result.num_touched_files) == (2, 2, 2)
    assert rows_of(DeltaLog(store).update()) == Counter()
    assert metrics_of(store)["numRetries"] == "1"


CLAUSES = (
    MergeClause(on=ClauseOn.MATCHED, action=ClauseAction.UPDATE, assignments=(("x", 10),)),
    MergeClause(on=ClauseOn.NOT_MATCHED, action=ClauseAction.INSERT, assignments=(("p", "3"), ("x", 10))),
)


class OfTheTable(LogUpsert):
    def source_reads_table(self):
        return True


def merged(store, kind, *between):
    begin = Interrupted(store, *between)
    result = merge(
        DeltaLog(store),
        LogEngine(),
        lambda snapshot: kind(snapshot, 1, 10, "3"),
        CLAUSES,
        Settings(),
        begin_transaction=begin,
    )
    return begin, result


def test_a_merge_into_compacted_files_is_run_again(store):
    begin, result = merged(store, LogUpsert, compact("1"))
    assert (begin.begun, result.num_updated_rows, result.num_inserted_rows) == (2, 1, 0)
    assert rows_of(DeltaLog(store).update()) == Counter({("1", 10): 1, ("1", 2): 1, ("2", 3): 1})
    assert metrics_of(store)["numRetries"] == "1"


def test_a_merge_whose_source_reads_the_table_is_not(store):
    with pytest.raises(ConcurrentDeleteReadException):
        merged(store, OfTheTable, compact("1"))
    assert rows_of(DeltaLog(store).update())["1", 1] == 1


def test_a_store_that_takes_no_announcement_does_not_stop_the_change(store, monkeypatch):
    def refuses(path, data):
        raise StoragePermissionError("no")

    monkeypatch.setattr(store, "put", refuses)
    begin, result = updated(store, compact("1"))
    assert (begin.begun, result.version) == (2, 2)


def test_one_that_only_hid_other_rows_is_followed_without_a_second_run():
    store = MemoryStore(f"memory://again{next(_NAMES)}/t")
    create_table(DeltaLog(store), [add_file("1", [1, 2])], delta_enableDeletionVectors="true")
    begin, result = updated(store, hide_value(2))
    assert (begin.begun, result.version) == (1, 2)
    assert rows_of(DeltaLog(store).update()) == Counter({("1", 10): 1})
