"""The commit loop over a store that loses races, loses replies and refuses."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from pydelta import errors
from pydelta.protocol.actions import AddFile, CommitInfo, RemoveFile, SetTransaction, decode_commit, encode_commit
from pydelta.protocol.paths import commit_file
from pydelta.storage.backoff import Backoff
from pydelta.storage.interface import PutOutcome
from pydelta.storage.memory import MemoryStore
from pydelta.txn import Isolation, Operation, ReadSet, Staged
from pydelta.txn.commit import Attempts, Silent, publish
from pydelta.txn.footprint import key_frame
from pydelta.txn.prepare import Base, Intention

NOW = 1_700_000_000_000


def add(path: str) -> AddFile:
    return AddFile(path=path, partition_values={}, size=1, modification_time=0, data_change=True)


def path_of(version: int) -> str:
    return f"_delta_log/{commit_file(version)}"


@dataclass
class ScriptedStore:
    """A memory store whose puts follow a script, one entry a call; what is left out goes through.

    ``lose`` puts and says unknown; ``drop`` says unknown without putting; ``raise-lose`` and ``raise-drop`` raise a
    retryable error instead; ``refuse`` raises one that is not; ``exists`` puts and says it was there already, as a
    client library does that repeats a request by itself.
    """

    inner: MemoryStore
    puts: list[str] = field(default_factory=list)
    reads_fail: int = 0
    deletes_fail: bool = False
    before_put: list[object] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)

    @property
    def root(self) -> str:
        return self.inner.root

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self.calls.append(("put", path))
        if self.before_put:
            action = self.before_put.pop(0)
            if action is not None:
                action()
        how = self.puts.pop(0) if self.puts else ""
        if how in ("drop", "raise-drop", "refuse"):
            outcome = PutOutcome.UNKNOWN
        else:
            outcome = self.inner.put_if_absent(path, data)
        if how == "refuse":
            raise errors.StorageReadOnlyError("read-only")
        if how.startswith("raise"):
            raise errors.StorageError("no reply", retryable=True)
        if how == "exists":
            return PutOutcome.ALREADY_EXISTS
        return PutOutcome.UNKNOWN if how in ("lose", "drop") else outcome

    def read(self, path: str) -> bytes:
        self.calls.append(("read", path))
        if self.reads_fail:
            self.reads_fail -= 1
            raise errors.StorageError("cannot read", retryable=True)
        return self.inner.read(path)

    def list_from(self, start: str, *, prefix: str):
        self.calls.append(("list", start))
        return self.inner.list_from(start, prefix=prefix)

    def head(self, path: str):
        self.calls.append(("head", path))
        return self.inner.head(path)

    def delete_many(self, paths):
        if self.deletes_fail:
            raise errors.StorageError("cannot delete", retryable=True)
        return self.inner.delete_many(paths)

    def count(self, verb: str) -> int:
        return sum(1 for item in self.calls if item[0] == verb)


_NAMES = iter(range(10**9))


@pytest.fixture
def store():
    return ScriptedStore(MemoryStore(f"memory://publish{next(_NAMES)}/t"))


def win(store: ScriptedStore, version: int, *actions, operation: str = "WRITE", blind: bool = True) -> None:
    info = CommitInfo({"operation": operation, "isBlindAppend": blind, "txnId": f"winner-{version}"})
    outcome = store.inner.put_if_absent(path_of(version), encode_commit([info, *actions]))
    assert outcome is PutOutcome.CREATED


def intend(*actions, txn_id: str = "ours", level: Isolation = Isolation.WRITE_SERIALIZABLE, **changes) -> Intention:
    return Intention(
        staged=Staged.of(actions),
        operation=Operation(name="WRITE"),
        txn_id=txn_id,
        read_version=changes.pop("read_version", 0),
        level=level,
        is_blind_append=True,
        engine_info="pydelta/test",
        **changes,
    )


def run(
    store, intention, *, reads=None, attempts=50, base=0, sleeps=None, observer=None, took_long=False, clock=lambda: NOW
):
    sleeps = [] if sleeps is None else sleeps
    return publish(
        store,
        intention=intention,
        base=Base(version=base, timestamp_ms=NOW),
        reads=reads or ReadSet(),
        attempts=Attempts(
            most=attempts,
            backoff=Backoff(first_ms=10, longest_ms=80, sleep=sleeps.append, pick=lambda: 1.0),
            observer=observer or Silent(),
            clock=clock,
            took_long=lambda: took_long,
        ),
    )


def versions_with(store: ScriptedStore, txn_id: str) -> list[int]:
    found = []
    for item in store.inner.list_from("", prefix="_delta_log"):
        actions = decode_commit(store.inner.read(item.path), source=item.path)
        if any(isinstance(a, CommitInfo) and a.txn_id == txn_id for a in actions):
            found.append(int(item.path.rpartition("/")[2].split(".")[0]))
    return found


def test_without_a_race_one_put_and_nothing_else(store):
    done = run(store, intend(add("n")))
    assert done.landed.version == 1
    assert done.attempts == 1
    assert store.calls == [("put", path_of(1))]
    assert versions_with(store, "ours") == [1]


@pytest.mark.parametrize("how", ["lose", "raise-lose", "exists"])
def test_a_reply_that_was_lost_is_found_out_by_reading_back(store, how):
    store.puts = [how]
    done = run(store, intend(add("n")))
    assert done.landed.version == 1
    assert versions_with(store, "ours") == [1]
    assert store.calls == [("put", path_of(1)), ("read", path_of(1))]


@pytest.mark.parametrize("how", ["drop", "raise-drop"])
def test_a_request_that_was_lost_is_sent_again_under_the_same_version(store, how):
    store.puts = [how, how]
    sleeps = []
    done = run(store, intend(add("n")), sleeps=sleeps)
    assert done.landed.version == 1
    assert done.attempts == 1
    assert versions_with(store, "ours") == [1]
    assert sleeps == [0.01, 0.02]


def test_a_lost_request_that_arrives_late_counts_as_ours(store):
    intention = intend(add("n"))
    store.puts = ["drop"]
    late: list[bytes] = []
    original = store.inner.put_if_absent

    def arrives_late():
        original(path_of(1), late[0])

    put = store.put_if_absent

    def remember(path, data):
        late.append(data)
        return put(path, data)

    store.put_if_absent = remember
    store.before_put = [None, arrives_late]
    done = run(store, intention)
    assert done.landed.version == 1
    assert versions_with(store, "ours") == [1]


def test_an_unknown_outcome_that_turns_out_to_be_another_writers_is_a_lost_race(store):
    win(store, 1, add("w"))
    store.puts = ["drop"]
    done = run(store, intend(add("n")))
    assert done.landed.version == 2
    assert [w.commit.version for w in done.winners] == [1]


def test_what_cannot_be_read_back_is_unknown_and_says_how_to_find_out(store):
    store.puts = ["lose"] * 99
    store.reads_fail = 99
    with pytest.raises(errors.CommitStateUnknownError) as caught:
        run(store, intend(add("n")))
    assert caught.value.txn_id == "ours"
    assert caught.value.version == 1
    assert "ours" in str(caught.value)
    assert not caught.value.retryable
    assert caught.value.exit_code == 3
    assert versions_with(store, "ours") == [1]


def test_reads_that_fail_for_a_while_do_not_matter(store):
    store.puts = ["lose"]
    store.reads_fail = 3
    assert run(store, intend(add("n"))).landed.version == 1


def test_a_refusal_is_passed_on_when_the_version_is_not_there(store):
    store.puts = ["refuse"]
    with pytest.raises(errors.StorageReadOnlyError):
        run(store, intend(add("n")))
    assert versions_with(store, "ours") == []
    assert store.count("put") == 1


def test_a_refusal_is_passed_on_when_nothing_can_be_read_either(store):
    store.puts = ["refuse"]
    store.reads_fail = 1
    with pytest.raises(errors.StorageReadOnlyError):
        run(store, intend(add("n")))


def test_winners_are_read_once_each_and_oldest_first(store):
    for version in range(1, 6):
        win(store, version, add(f"w{version}"))
    done = run(store, intend(add("n")))
    assert done.landed.version == 6
    assert done.attempts == 2
    assert [w.commit.version for w in done.winners] == [1, 2, 3, 4, 5]
    assert [path for verb, path in store.calls if verb == "read"] == [path_of(v) for v in range(1, 6)]
    assert store.count("put") == 2


def test_winners_that_come_one_by_one_are_read_once_each(store):
    store.before_put = [lambda v=v: win(store, v, add(f"w{v}")) for v in (1, 2, 3)]
    sleeps = []
    done = run(store, intend(add("n")), sleeps=sleeps)
    assert done.landed.version == 4
    assert done.attempts == 4
    assert [path for verb, path in store.calls if verb == "read"] == [path_of(v) for v in (1, 2, 3)]
    assert sleeps == [0.01, 0.02, 0.04]
    assert versions_with(store, "ours") == [4]


def test_other_files_of_the_log_are_no_winners(store):
    win(store, 1, add("w"))
    for name in (f"{1:020}.crc", f"{1:020}.checkpoint.parquet", f"{2:020}.crc", "zzz.tmp"):
        store.inner.put(f"_delta_log/{name}", b"{}")
    assert run(store, intend(add("n"))).landed.version == 2


def test_the_first_conflict_of_several_winners_is_the_oldest(store):
    win(store, 1, add("w1"))
    win(store, 2, RemoveFile(path="a", data_change=True), operation="DELETE", blind=False)
    win(store, 3, SetTransaction(app_id="x", version=1), operation="STREAMING UPDATE")
    reads = ReadSet(files=key_frame([add("a").key]), app_ids=frozenset({"x"}))
    with pytest.raises(errors.ConcurrentDeleteReadException) as caught:
        run(store, intend(add("n")), reads=reads)
    assert caught.value.winning_version == 2
    assert caught.value.winning_operation == "DELETE"
    assert caught.value.table == store.root
    assert versions_with(store, "ours") == []
    assert store.count("put") == 1


def test_attempts_are_bounded_and_the_error_says_so(store):
    store.before_put = [lambda v=v: win(store, v, add(f"w{v}")) for v in range(1, 10)]
    with pytest.raises(errors.ConcurrentWriteException) as caught:
        run(store, intend(add("n")), attempts=3)
    assert caught.value.winning_version == 3
    assert "3 attempts" in str(caught.value)
    assert versions_with(store, "ours") == []


def test_the_read_version_stays_and_times_move_when_a_commit_is_rebased(store):
    info = CommitInfo({"operation": "WRITE", "isBlindAppend": True, "inCommitTimestamp": NOW + 50})
    store.inner.put_if_absent(path_of(1), encode_commit([info, add("w")]))
    done = run(store, intend(add("n"), stamped=True))
    ours = done.landed.actions[0]
    assert ours.get("readVersion") == 0
    assert ours.in_commit_timestamp == NOW + 51
    assert next(iter(ours.fields)) == "inCommitTimestamp"


def test_a_corrupt_winner_is_named_and_is_nobodys(store):
    store.inner.put(path_of(1), b'{"add":{"path":')
    with pytest.raises(errors.CommitStateUnknownError, match=commit_file(1)):
        run(store, intend(add("n")))


@pytest.mark.parametrize("version", [1, 2])
def test_a_winner_that_was_read_in_part_hides_no_conflict(store, version):
    for number in (1, 2):
        hidden = RemoveFile(path="a", data_change=True) if number == version else add("w")
        win(store, number, hidden, operation="DELETE", blind=False)
    reads = ReadSet(files=key_frame([add("a").key]))
    whole = store.inner.read

    def torn(path):
        data = whole(path)
        return data.splitlines(keepends=True)[0] if path == path_of(version) else data

    store.inner.read = torn
    with pytest.raises(errors.StorageError, match="read in part") as caught:
        run(store, intend(add("n")), reads=reads)
    store.inner.read = whole
    assert caught.value.retryable
    assert versions_with(store, "ours") == []


def test_an_observer_sees_each_attempt(store):
    win(store, 1, add("w"))
    seen = []

    class Watch:
        def at(self, phase):
            seen.append(phase)

    run(store, intend(add("n")), observer=Watch())
    assert seen == ["commit", "commit"]


@pytest.mark.parametrize("seed", range(60))
def test_any_mix_of_losses_and_winners_lands_exactly_once(store, seed):
    rng = random.Random(seed)
    store.puts = rng.choices(["", "lose", "drop", "raise-lose", "raise-drop", "exists"], k=rng.randint(0, 5))
    taken = iter(range(1, 6))

    def maybe_win():
        if rng.random() < 0.5:
            version = next(taken, None)
            if version is not None and store.inner.head(path_of(version)) is None:
                win(store, version, add(f"w{version}"))

    store.before_put = [maybe_win] * rng.randint(0, 6)
    done = run(store, intend(add("n")))
    assert versions_with(store, "ours") == [done.landed.version]
    names = [item.path for item in store.inner.list_from("", prefix="_delta_log")]
    assert names == [path_of(v) for v in range(1, len(names) + 1)]


def clean_up(store, *versions):
    report = store.inner.delete_many([path_of(version) for version in versions])
    assert report.failed == ()


def test_a_slow_transaction_does_not_commit_where_the_log_was_cleaned_up(store):
    win(store, 4, add("w"))
    with pytest.raises(errors.ConcurrentWriteException, match="cleaned up past version 0, which this transaction read"):
        run(store, intend(add("n")), took_long=True)
    assert store.count("put") == 0
    assert versions_with(store, "ours") == []


def test_a_slow_transaction_that_lands_while_the_log_is_cleaned_up_is_taken_back(store):
    win(store, 0, add("a"))
    win(store, 1, add("b"))
    store.before_put = [lambda: clean_up(store, 0, 1)]
    with pytest.raises(errors.ConcurrentWriteException, match="Nothing was committed"):
        run(store, intend(add("n")), took_long=True)
    assert store.count("put") == 1
    assert versions_with(store, "ours") == []


def test_a_slow_commit_that_cannot_be_taken_back_is_unknown(store):
    win(store, 0, add("a"))
    store.before_put = [lambda: clean_up(store, 0)]
    store.deletes_fail = True
    with pytest.raises(errors.CommitStateUnknownError, match="version 1 was committed"):
        run(store, intend(add("n")), took_long=True)


def test_a_slow_transaction_commits_where_the_log_is_whole(store):
    win(store, 0, add("a"))
    win(store, 1, add("w"))
    done = run(store, intend(add("n")), took_long=True)
    assert done.landed.version == 2
    assert [path for verb, path in store.calls if verb == "head"] == [path_of(0), path_of(1), path_of(1)]


def test_a_slow_transaction_that_creates_a_table_finds_one_whose_log_was_cleaned_up(store):
    assert run(store, intend(add("n"), read_version=-1), base=-1, took_long=True).landed.version == 0
    other = ScriptedStore(MemoryStore(f"memory://publish{next(_NAMES)}/t"))
    win(other, 7, add("w"))
    with pytest.raises(errors.ConcurrentWriteException, match="cleaned up"):
        run(other, intend(add("n"), read_version=-1), base=-1, took_long=True)
    assert versions_with(other, "ours") == []


def test_a_machine_that_slept_behind_its_put_takes_nothing_back(store):
    """Its commit may have landed well, and be the oldest one by now."""
    win(store, 0, add("a"))
    now = [NOW]

    def sleep():
        clean_up(store, 0)
        now[0] += 3_600_000

    store.before_put = [sleep]
    with pytest.raises(errors.CommitStateUnknownError, match="version 1 was committed"):
        run(store, intend(add("n")), took_long=True, clock=lambda: now[0])
    assert versions_with(store, "ours") == [1]
