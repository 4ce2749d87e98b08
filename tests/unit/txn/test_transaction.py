"""Transactions over a real log in a memory store: what lands in it, and what never does."""

from __future__ import annotations

import itertools
import json
import logging

import pytest

from pydelta import errors
from pydelta.log import DeltaLog
from pydelta.predicate import Column, Compare, Literal
from pydelta.protocol.actions import (
    AddCDCFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
    decode_commit,
)
from pydelta.protocol.paths import checksum_file, commit_file
from pydelta.settings import Settings
from pydelta.storage.backoff import Backoff
from pydelta.storage.memory import MemoryStore
from pydelta.testing import Fault, FaultKind, FaultyStore
from pydelta.testing.operations import add_file, append, create_table, rows_of, table_metadata
from pydelta.txn import Operation, TransactionState, start_transaction
from pydelta.txn.commit import author, committing_for, engine_info
from pydelta.txn.hooks import HookContext, after_commits_where, environment_has, run_hooks, table_says

_NAMES = itertools.count()
NO_PAUSE = Backoff(first_ms=0, sleep=lambda seconds: None)
WRITE = Operation(name="WRITE", parameters={"mode": "Append"})
P1 = Compare("=", Column(("p",)), Literal("1", "string"))


@pytest.fixture
def store():
    return MemoryStore(f"memory://transaction{next(_NAMES)}/t")


@pytest.fixture
def log(store):
    return DeltaLog(store)


def begin(log, **options):
    return start_transaction(log, **{"backoff": NO_PAUSE, **options})


def commit_of(store, version):
    name = commit_file(version)
    return decode_commit(store.read(f"_delta_log/{name}"), source=name)


def info_of(store, version) -> CommitInfo:
    return next(action for action in commit_of(store, version) if isinstance(action, CommitInfo))


def names(store):
    return [item.path.rpartition("/")[2] for item in store.list_from("", prefix="_delta_log")]


def test_the_first_commit_creates_the_table_with_the_protocol_it_needs(log, store):
    done = create_table(log, [add_file("1", [1])])
    assert done.version == 0
    kinds = [action.kind for action in commit_of(store, 0)]
    assert kinds == ["commitInfo", "protocol", "metaData", "add"]
    assert done.snapshot.protocol == Protocol(min_reader_version=1, min_writer_version=2)
    info = info_of(store, 0)
    assert "readVersion" not in info.fields
    assert info.get("operation") == "CREATE TABLE AS SELECT"
    assert info.get("isBlindAppend") is True
    assert info.get("engineInfo") == engine_info() != "pydelta/unknown"


def test_a_table_that_is_not_there_is_not_written_to(log, store):
    with pytest.raises(errors.TableNotFoundError, match="no Delta table"):
        begin(log).commit([add_file("1", [1])], WRITE)
    assert names(store) == []


def test_the_committed_snapshot_is_the_state_that_a_fresh_reader_sees(log, store):
    create_table(log, [add_file("1", [1, 2])])
    done = append("2", [3]).run(log)
    fresh = DeltaLog(store).update()
    assert done.snapshot.version == fresh.version == 1
    assert rows_of(done.snapshot) == rows_of(fresh) == rows_of(log.update())
    assert done.attempts == 1
    assert done.hook_failures == ()


def test_commit_info_tells_what_was_done(log, store):
    create_table(log, [add_file("1", [1])])
    txn = begin(log)
    txn.commit(
        [add_file("1", [2])],
        Operation(name="WRITE", parameters={"mode": "Append", "partitionBy": ["p"]}, metrics={"numFiles": 1}),
        user_metadata="nightly",
        tags={"a": "b"},
    )
    info = info_of(store, 1)
    assert info.txn_id == txn.txn_id
    assert info.get("operationParameters") == {"mode": "Append", "partitionBy": '["p"]'}
    assert info.get("operationMetrics") == {"numFiles": "1"}
    assert info.get("readVersion") == 0
    assert info.get("isolationLevel") == "Serializable"
    assert info.get("userMetadata") == "nightly"
    assert info.get("tags") == {"a": "b"}
    record = log.history(limit=1)[0]
    assert (record.version, record.commit_info.operation) == (1, "WRITE")


def test_a_store_is_raced_before_a_commit_unless_its_put_if_absent_is_one_step(log, store, monkeypatch):
    raced = []
    monkeypatch.setattr("pydelta.txn.transaction.ensure_safe", raced.append)
    create_table(log, [add_file("1", [1])])
    assert raced == []
    monkeypatch.setattr(MemoryStore, "put_if_absent_is_atomic", False)
    append("2", [3]).run(log)
    assert raced == [store]


def _read_files(txn):
    txn.read_files(partition_filters=[P1])


@pytest.mark.parametrize(
    ("prepare", "actions", "expected"),
    [
        (lambda txn: None, [add_file("1", [2])], True),
        (lambda txn: None, [], True),
        (lambda txn: txn.txn_version("job"), [add_file("1", [2])], True),
        (_read_files, [add_file("1", [2])], False),
        (lambda txn: txn.read_whole_table(), [add_file("1", [2])], False),
        (lambda txn: txn.mark_read(txn.snapshot.files.core), [add_file("1", [2])], False),
        (lambda txn: None, [AddCDCFile(path="_change_data/c", partition_values={"p": "1"}, size=1)], False),
    ],
)
def test_a_blind_append_is_one_that_read_no_file_and_only_adds(log, store, prepare, actions, expected):
    create_table(log, [add_file("1", [1])])
    txn = begin(log)
    prepare(txn)
    txn.commit(actions, WRITE)
    assert info_of(store, 1).get("isBlindAppend") is expected


def test_the_caller_may_say_whether_it_is_a_blind_append(log, store):
    created = create_table(log, [add_file("1", [1])])
    txn = begin(log)
    txn.read_whole_table()
    txn.commit([add_file("1", [2])], WRITE, blind_append=True)
    assert info_of(store, 1).get("isBlindAppend") is True
    gone = created.snapshot.files.adds(created.snapshot.files.core)[0].remove(deletion_timestamp=1)
    with pytest.raises(errors.InvalidArgumentError, match="blind append"):
        begin(log).commit([gone], WRITE, blind_append=True)


def test_a_compaction_says_that_snapshot_isolation_was_enough(log, store):
    created = create_table(log, [add_file("1", [1]), add_file("1", [2])], delta_isolationLevel="Serializable")
    gone = [
        add.remove(deletion_timestamp=1, data_change=False)
        for add in created.snapshot.files.adds(created.snapshot.files.core)
    ]
    begin(log).commit([*gone, add_file("1", [1, 2], data_change=False)], Operation(name="OPTIMIZE"))
    assert info_of(store, 1).get("isolationLevel") == "SnapshotIsolation"
    append("1", [3]).run(log)
    assert info_of(store, 2).get("isolationLevel") == "Serializable"


def test_an_append_only_table_keeps_its_rows(log, store):
    created = create_table(log, [add_file("1", [1])], delta_appendOnly="true")
    gone = created.snapshot.files.adds(created.snapshot.files.core)[0]
    with pytest.raises(errors.UnsafeOperationError, match="append-only"):
        begin(log).commit([gone.remove(deletion_timestamp=1)], Operation(name="DELETE"))
    assert log.update().version == 0
    moved = [gone.remove(deletion_timestamp=1, data_change=False), add_file("1", [1], data_change=False)]
    assert begin(log).commit(moved, Operation(name="OPTIMIZE")).version == 1


def test_a_feature_that_cannot_be_written_is_refused_by_name(log, store):
    create_table(log)
    unknown = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("appendOnly", "someFeature"))
    txn = begin(log)
    txn.update_protocol(unknown)
    with pytest.raises(errors.UnsupportedFeatureError, match="someFeature"):
        txn.commit([], WRITE)
    store.put("_delta_log/" + commit_file(1), b'{"protocol":{"minReaderVersion":1,"minWriterVersion":7,'
              b'"writerFeatures":["appendOnly","someFeature"]}}\n')  # fmt: skip
    with pytest.raises(errors.UnsupportedFeatureError, match="someFeature"):
        append("1", [1]).run(log)


def test_metadata_that_needs_a_feature_brings_the_protocol_along(log, store):
    created = create_table(log)
    txn = begin(log)
    configuration = {"delta.enableInCommitTimestamps": "true", "delta.feature.domainMetadata": "supported"}
    txn.update_metadata(created.snapshot.metadata.replace(configuration=configuration))
    done = txn.commit([], Operation(name="SET TBLPROPERTIES"))
    assert {"inCommitTimestamp", "domainMetadata"} <= set(done.snapshot.protocol.writer_features)
    assert {"appendOnly", "invariants"} <= set(done.snapshot.protocol.writer_features)


def test_metadata_and_protocol_that_stay_the_same_are_left_out(log, store):
    created = create_table(log)
    txn = begin(log)
    txn.update_metadata(created.snapshot.metadata)
    txn.update_protocol(created.snapshot.protocol)
    txn.commit([add_file("1", [1])], WRITE)
    assert [action.kind for action in commit_of(store, 1)] == ["commitInfo", "add"]
    assert txn.metadata == created.snapshot.metadata
    assert txn.protocol == created.snapshot.protocol


def test_a_transaction_is_for_one_commit(log, store):
    create_table(log)
    txn = begin(log)
    assert txn.state is TransactionState.OPEN
    txn.commit([], WRITE)
    assert txn.state is TransactionState.COMMITTED
    for use in (lambda: txn.commit([], WRITE), txn.read_files, txn.read_whole_table, lambda: txn.txn_version("a")):
        with pytest.raises(errors.InvalidArgumentError, match="has ended"):
            use()


def test_application_versions_are_kept_and_looked_up(log, store):
    create_table(log)
    txn = begin(log)
    assert txn.txn_version("job") is None
    txn.commit([SetTransaction(app_id="job", version=7)], WRITE)
    assert begin(log).txn_version("job") == 7


def test_the_loser_of_a_race_is_moved_behind_the_winner(log, store):
    create_table(log, [add_file("1", [1])])
    txn = begin(log)
    other = DeltaLog(store)
    for value in (2, 3):
        append("2", [value]).run(other)
    done = txn.commit([add_file("1", [4])], WRITE)
    assert (done.version, done.attempts) == (3, 2)
    assert info_of(store, 3).get("readVersion") == 0
    assert rows_of(done.snapshot) == rows_of(DeltaLog(store).update())


@pytest.mark.parametrize(
    ("other", "conflicts"), [("1", True), ("2", False)], ids=["same partition", "another partition"]
)
def test_conflicts_go_by_partition(log, store, other, conflicts):
    create_table(log, [add_file("1", [1]), add_file("2", [2])], delta_isolationLevel="Serializable")
    txn = begin(log)
    found = txn.read_files(partition_filters=[P1])
    append(other, [9]).run(DeltaLog(store))
    gone = [add.remove(deletion_timestamp=1) for add in txn.snapshot.files.adds(found)]
    if not conflicts:
        assert txn.commit(gone, Operation(name="DELETE")).version == 2
        return
    with pytest.raises(errors.ConcurrentAppendException) as caught:
        txn.commit(gone, Operation(name="DELETE"))
    assert txn.state is TransactionState.LOST
    assert caught.value.winning_version == 1
    assert "WRITE" in str(caught.value)
    assert "[p=1]" in str(caught.value)
    assert store.root in str(caught.value)


@pytest.mark.parametrize(("value", "conflicts"), [(5, True), (50, False)])
def test_conflicts_go_by_statistics_too(log, store, value, conflicts):
    create_table(log, [add_file("1", [1, 9])], delta_isolationLevel="Serializable")
    txn = begin(log)
    found = txn.read_files(data_filters=[Compare("=", Column(("x",)), Literal(value, "long"))])
    assert found.height == (1 if value == 5 else 0)
    append("2", [4, 6]).run(DeltaLog(store))
    if conflicts:
        with pytest.raises(errors.ConcurrentAppendException):
            txn.commit([add_file("3", [1])], WRITE)
    else:
        assert txn.commit([add_file("3", [1])], WRITE).version == 2


def test_two_that_create_a_table_do_not_both_succeed(log, store):
    first, second = begin(log), begin(DeltaLog(store))
    for txn in (first, second):
        txn.update_metadata(table_metadata())
    first.commit([add_file("1", [1])], Operation(name="CREATE TABLE"))
    with pytest.raises(errors.ProtocolChangedException, match="created the table"):
        second.commit([add_file("1", [2])], Operation(name="CREATE TABLE"))
    assert names(store).count(commit_file(0)) == 1


def test_in_commit_timestamps_grow_even_when_the_clock_does_not(log, store):
    create_table(log, delta_enableInCommitTimestamps="true")
    stamps = [info_of(store, 0).in_commit_timestamp]
    for version in (1, 2, 3):
        done = begin(log, clock=lambda: 1_000).commit([add_file("1", [version])], WRITE)
        stamps.append(info_of(store, version).in_commit_timestamp)
        assert done.snapshot.timestamp_ms == stamps[-1]
    assert [later - earlier for earlier, later in itertools.pairwise(stamps)] == [1, 1, 1]


def test_turning_in_commit_timestamps_on_is_recorded_even_behind_a_winner(log, store):
    created = create_table(log)
    txn = begin(log)
    metadata: Metadata = created.snapshot.metadata
    txn.update_metadata(metadata.replace(configuration={"delta.enableInCommitTimestamps": "true"}))
    append("1", [1]).run(DeltaLog(store))
    done = txn.commit([], Operation(name="SET TBLPROPERTIES"))
    assert done.version == 2
    stamp = info_of(store, 2).in_commit_timestamp
    winner = store.head("_delta_log/" + commit_file(1))
    assert stamp > winner.modification_time_ms
    assert done.snapshot.metadata.configuration == {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "2",
        "delta.inCommitTimestampEnablementTimestamp": str(stamp),
    }


def test_domains_are_kept(log, store):
    create_table(log, delta_feature_domainMetadata="supported")
    begin(log).commit([DomainMetadata(domain="d", configuration="c", removed=False)], WRITE)
    assert log.update().domain_metadata["d"].configuration == "c"


def test_each_commit_leaves_a_checksum_and_each_interval_a_checkpoint(log, store):
    create_table(log, delta_checkpointInterval="3")
    for value in range(7):
        assert append("1", [value]).run(log).hook_failures == ()
    listed = names(store)
    assert [name for name in listed if name.endswith(".crc")] == [checksum_file(version) for version in range(8)]
    assert [int(name.split(".")[0]) for name in listed if ".checkpoint." in name] == [3, 6]
    assert "_last_checkpoint" in listed


@pytest.mark.parametrize(
    ("error", "traced"),
    [(RuntimeError("no metastore"), True), (errors.StorageError("no metastore", hint="Ask it."), False)],
)
def test_a_hook_that_fails_is_reported_and_stops_nothing(log, store, caplog, error, traced):
    create_table(log)
    seen = []

    def broken(context):
        raise error

    def fine(context):
        seen.append((context.snapshot.version, context.previous.version, len(context.actions)))

    with caplog.at_level(logging.WARNING, logger="pydelta.txn.hooks"):
        done = begin(log, hooks=[("sync", broken), ("other", fine)]).commit([add_file("1", [1])], WRITE)
    assert done.version == 1
    assert seen == [(1, 0, 2)]
    [failure] = done.hook_failures
    assert (failure.name, failure.error) == ("sync", error)
    [told] = [record for record in caplog.records if record.levelno == logging.WARNING]
    said = told.getMessage()  # how it is formatted is the affair of whoever installed a handler: PySpark has one
    assert "sync" in said
    assert (told.exc_info, "no metastore" in said, "Ask it." in said) == (
        (type(error), error, error.__traceback__) if traced else None,
        not traced,
        not traced,
    )
    assert log.update().version == 1


def test_each_hook_has_a_deadline_of_its_own(store):
    log = DeltaLog(store, settings=Settings.resolve({"spark.pydelta.hooks.timeout": "7s"}))
    now, left = [100.0], []

    def slow(context):
        left.append(context.deadline.remaining())
        now[0] += 5
        left.append(context.deadline.remaining())
        now[0] += 5
        left.append(context.deadline.remaining())

    done = create_table(log, [add_file("1", [1])])
    context = HookContext(log=log, snapshot=done.snapshot, previous=done.snapshot, actions=(), now_ms=0)
    assert run_hooks(context, hooks=[("one", slow), ("two", slow)], clock=lambda: now[0]) == ()
    assert left == [7, 2, 0] * 2


def test_installed_hooks_run_after_the_built_in_ones(log, store, monkeypatch):
    ran = []

    class Entry:
        name = "installed"

        def load(self):
            return lambda context: ran.append(names(store))

    class Broken:
        name = "broken"

        def load(self):
            raise ImportError("gone")

    from pydelta.txn import hooks

    hooks._installed_hooks.cache_clear()
    monkeypatch.setattr(hooks, "entry_points", lambda group: [Entry(), Broken()] if group == "pydelta.hooks" else [])
    try:
        done = create_table(log)
    finally:
        hooks._installed_hooks.cache_clear()
    assert [failure.name for failure in done.hook_failures] == ["broken"]
    assert ran == [[checksum_file(0), commit_file(0)]]
    assert run_hooks.__doc__


def test_a_hook_is_entered_after_the_commits_alone_that_concern_it(log, monkeypatch):
    seen = []
    by_table = after_commits_where(table_says("my.wish"))(lambda context: seen.append(context.snapshot.version))
    by_process = after_commits_where(environment_has("MY_WISH"))(lambda context: seen.append("process"))
    hooks = [("table", by_table), ("process", by_process)]
    monkeypatch.delenv("MY_WISH", raising=False)
    create_table(log)
    txn = begin(log, hooks=hooks)
    txn.commit([add_file("1", [1])], WRITE)
    txn = begin(log, hooks=hooks)
    txn.update_metadata(txn.snapshot.metadata.replace(configuration={"my.wish": " TRUE "}))
    assert txn.commit([], WRITE).hook_failures == ()
    assert seen == [2]
    monkeypatch.setenv("MY_WISH", "yes")
    begin(log, hooks=hooks).commit([add_file("1", [2])], WRITE)
    assert seen == [2, 3, "process"]


def test_observers_see_the_committed_state_once_and_after_the_hooks(log, store):
    create_table(log, [add_file("1", [1])])
    seen = []
    txn = begin(
        log,
        hooks=[("first", lambda context: seen.append(("hook", context.snapshot.version)))],
    )
    for name in ("one", "two"):
        txn.notifying(lambda snapshot, name=name: seen.append((name, snapshot.version)))
    append("2", [2]).run(DeltaLog(store))
    assert txn.commit([add_file("1", [3])], WRITE).version == 2
    assert seen == [("hook", 2), ("one", 2), ("two", 2)]


def test_observers_hear_nothing_of_a_transaction_that_lost(log, store):
    create_table(log, [add_file("1", [1])])
    seen = []
    txn = begin(log).notifying(seen.append)
    txn.read_whole_table()
    append("1", [2]).run(DeltaLog(store))
    with pytest.raises(errors.DeltaConcurrentModificationException):
        txn.commit([add_file("1", [3])], WRITE)
    assert seen == []


def test_a_commit_over_a_damaged_winner_says_which_file(log, store):
    create_table(log)
    txn = begin(log)
    store.put("_delta_log/" + commit_file(1), b"{")
    with pytest.raises(errors.CommitStateUnknownError, match=f"{commit_file(1)} \\(1 bytes\\) is not a whole commit"):
        txn.commit([add_file("1", [1])], WRITE)
    assert not txn.surely_not_landed, "it may be the beginning of our own"


def test_every_line_of_a_commit_is_one_json_object(log, store):
    create_table(log, [add_file("1", [1])])
    lines = store.read("_delta_log/" + commit_file(0)).decode().splitlines()
    assert [len(json.loads(line)) for line in lines] == [1, 1, 1, 1]


def test_a_commit_for_a_client_names_its_user_and_others_nobody(store):
    log = DeltaLog(store)
    create_table(log)
    with committing_for("ada"):
        begin(log).commit([], WRITE)
        with committing_for(None):
            begin(log).commit([], WRITE)
        begin(log).commit([], WRITE)
    begin(log).commit([], WRITE)
    assert [info_of(store, version).get("userName") for version in range(1, 5)] == ["ada", None, "ada", None]
    assert author() is None


def test_the_sessions_user_metadata_is_the_default(store):
    log = DeltaLog(store, settings=Settings(user_metadata="session"))
    create_table(log)
    append("1", [1]).run(log)
    begin(log).commit([], WRITE, user_metadata="own")
    assert [info_of(store, version).get("userMetadata") for version in (0, 1, 2)] == ["session", "session", "own"]


def test_an_outcome_that_stays_unknown_leaves_the_transaction_so(store):
    create_table(DeltaLog(store))
    reply_lost = Fault(kind=FaultKind.LOSE_REPLY, call=0, verb="put_if_absent")
    no_reads = [Fault(kind=FaultKind.FAIL, call=call, verb="read") for call in range(99)]
    faulty = FaultyStore(store, reply_lost, *no_reads)
    txn = begin(DeltaLog(faulty), snapshot=DeltaLog(store).update())
    with pytest.raises(errors.CommitStateUnknownError) as caught:
        txn.commit([add_file("1", [1])], WRITE)
    assert txn.state is TransactionState.UNKNOWN
    assert caught.value.txn_id == txn.txn_id
    assert info_of(store, 1).txn_id == txn.txn_id


def test_a_time_that_cannot_be_looked_up_after_the_commit_is_taken_from_the_clock(store):
    create_table(DeltaLog(store))
    faulty = FaultyStore(store, Fault(kind=FaultKind.FAIL, call=2, verb="head"))
    txn = begin(DeltaLog(faulty), snapshot=DeltaLog(store).update(), clock=lambda: 5_000_000_000_000)
    assert txn.commit([add_file("1", [1])], WRITE).snapshot.timestamp_ms == 5_000_000_000_000


@pytest.mark.parametrize(("failures", "reported"), [(3, False), (4, True)])
def test_a_state_that_cannot_be_read_back_does_not_make_the_commit_look_failed(
    log, store, monkeypatch, failures, reported
):
    create_table(log)
    txn = begin(log)
    apply_commit, left = log.apply_commit, [failures]

    def failing(*args):
        if left[0]:
            left[0] -= 1
            raise errors.StorageError("cannot read", retryable=True)
        return apply_commit(*args)

    monkeypatch.setattr(log, "apply_commit", failing)
    if reported:
        with pytest.raises(errors.StorageError, match="was committed") as caught:
            txn.commit([add_file("1", [1])], WRITE)
        assert not caught.value.retryable
        assert txn.txn_id in str(caught.value)
    else:
        assert txn.commit([add_file("1", [1])], WRITE).version == 1
    assert txn.state is TransactionState.COMMITTED
    assert info_of(store, 1).txn_id == txn.txn_id


def test_a_crash_in_the_middle_leaves_the_transaction_unknown(store):
    create_table(DeltaLog(store))
    faulty = FaultyStore(store, Fault(kind=FaultKind.DIE_AFTER, call=0, verb="put_if_absent"))
    txn = begin(DeltaLog(faulty), snapshot=DeltaLog(store).update())
    with pytest.raises(BaseException, match="after put_if_absent"):
        txn.commit([add_file("1", [1])], WRITE)
    assert txn.state is TransactionState.UNKNOWN


def test_a_transaction_that_outlasts_the_log_is_refused_and_leaves_no_trace(log, store):
    """Its next version is free again: without a look, the commit would be acknowledged and read by nobody."""
    create_table(log, [add_file("1", [1])])
    now = [1_700_000_000_000]
    slow = begin(DeltaLog(store), clock=lambda: now[0])
    for number in range(2, 6):
        append(str(number), [number]).run(log)
    log.checkpoint(log.update())
    store.delete_many([f"_delta_log/{commit_file(version)}" for version in range(4)])
    now[0] += 61_000
    before = names(store)
    with pytest.raises(errors.ConcurrentWriteException, match="cleaned up past version 0") as refused:
        slow.commit([add_file("late", [9])], WRITE)
    assert "Run it again" in refused.value.hint
    assert slow.state is TransactionState.LOST
    assert names(store) == before
    done = begin(DeltaLog(store)).commit([add_file("late", [9])], WRITE)
    assert done.version == 5
