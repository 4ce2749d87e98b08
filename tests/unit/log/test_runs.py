"""Many file actions as columns: what is written, read and decided is what objects would give."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_tables import PROTOCOL, add, create, info, log_of, metadata, new_store

from pydelta.log import runs
from pydelta.log.deltas import build_delta
from pydelta.log.runs import (
    ActionList,
    AddRun,
    RemoveRun,
    changing,
    decode_actions,
    encode_actions,
    gathered,
    joined,
    key_columns,
    num_bytes,
    objects_of,
    of_kind,
    other_than,
    removes_of,
    runs_of,
)
from pydelta.log.snapshot import change_of
from pydelta.protocol.actions import (
    AddFile,
    CommitInfo,
    DeletionVectorDescriptor,
    Metadata,
    RemoveFile,
    decode_commit,
    encode_commit,
)
from pydelta.testing.commands import restore
from pydelta.txn import Operation, start_transaction

VECTOR = DeletionVectorDescriptor(storage_type="u", path_or_inline_dv="ab", offset=1, size_in_bytes=3, cardinality=2)
ODD_TEXTS = [
    "",
    "a",
    'say "x"',
    "back\\slash",
    "tab\tnew\nline",
    "\x00\x1f\x7f",
    "é漢\U0001f600",
    "\u2028",
    "%20",
    "\\u0041",
]


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch):
    monkeypatch.setattr(runs, "RUN_LENGTH", 1)
    monkeypatch.setattr(runs, "_LARGE_BYTES", 0)
    for module in ("pydelta.log.files", "pydelta.log.checkpoint.rows"):
        monkeypatch.setattr(f"{module}.RUN_LENGTH", 1)


def normal(action):
    """The action with nulls for empty partition values, which mean the same."""
    if not isinstance(action, (AddFile, RemoveFile)) or action.partition_values is None:
        return action
    return action.replace(
        partition_values={name: text or None for name, text in sorted(action.partition_values.items())}
    )


def as_set(actions):
    return sorted(repr(normal(action)) for action in actions)


texts = st.one_of(st.sampled_from(ODD_TEXTS), st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
longs = st.integers(-(1 << 63), (1 << 63) - 1)
values = st.fixed_dictionaries({"p": st.none() | texts, 'odd "name"\\': st.none() | texts})
adds = st.builds(
    AddFile,
    path=texts, partition_values=values, size=longs, modification_time=longs, data_change=st.booleans(),
    stats=st.none() | texts, base_row_id=st.sampled_from([None, None, None, 5]),
    deletion_vector=st.sampled_from([None, None, VECTOR]), tags=st.sampled_from([None, None, {"a": "b"}]),
)  # fmt: skip


@given(st.lists(adds, max_size=12))
def test_lines_and_objects_say_the_same(files):
    held = gathered([CommitInfo({"operation": "WRITE"}), *files])
    assert as_set(held) == as_set([CommitInfo({"operation": "WRITE"}), *files])
    for actions in (held, removes_of(of_kind(held, AddFile), deletion_timestamp=7, data_change=False)):
        data = encode_actions(actions)
        expected = as_set(actions)
        assert as_set(decode_commit(data, source="x")) == expected
        assert as_set(decode_actions(data, source="x")) == expected
        assert as_set(decode_commit(encode_commit(actions), source="x")) == expected


def line(kind: str = "add", **changes: object) -> bytes:
    body = {"path": "a", "partitionValues": {"p": "1"}, "size": 1, "modificationTime": 2, "dataChange": True}
    if kind == "remove":
        body |= {"deletionTimestamp": 5, "extendedFileMetadata": True}
        del body["modificationTime"]
    return json.dumps({kind: {**body, **changes}}, separators=(",", ":")).encode()


def with_all_columns(action):
    """The action with a null for each partition column that it leaves out, which means the same."""
    return (
        action.replace(partition_values={"p": None, **action.partition_values})
        if isinstance(action, AddFile)
        else action
    )


USUAL = [line(path=f"f{number}") for number in range(3)]


@pytest.mark.parametrize(
    ("lines", "as_runs"),
    [
        (USUAL, True),
        ([b'{"commitInfo":{"a":{"add":1}}}', *USUAL], True),
        ([*USUAL, b'{"commitInfo":{}}', line(path="later")], True),
        ([*USUAL, line("remove", path="gone"), line(path="again")], True),
        ([*USUAL, line(path="moved", dataChange=False)], True),
        ([*USUAL, line(path="x", tags={"a": "b"})], True),
        ([*USUAL, line(path="x", baseRowId=1)], True),
        ([*USUAL, line(path="x", stats='{"numRecords":1,"tags":"\\u0001"}')], True),
        ([*USUAL, line(path="x", partitionValues={"p": ""})], True),
        ([*USUAL, line(path="x", partitionValues={})], True),
        ([*USUAL, line(path="y") + b" "], True),
        ([*USUAL, b'{"txn":{"appId":"a","version":1}}'], True),
        ([*USUAL, line(path="x", size="12")], False),
        ([*USUAL, line(path="x", ofLater=1)], False),
        ([*USUAL, line(path="x", partitionValues={"q": "1"})], False),
        ([*USUAL, line(path="\ud800")], False),
        ([*USUAL, line(path="x") + b" trailing"], False),
        ([*USUAL, line("remove", path="x", extendedFileMetadata=False)], False),
        ([*USUAL, line("remove", path="x", deletionTimestamp=None)], False),
        ([b'{"commitInfo":{}}', line(path="y").replace(b":", b" : ", 1)], False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", [b"\n", b""])
def test_usual_lines_are_read_as_runs_and_every_other_form_as_it_always_was(lines, as_runs, end):
    data = b"\n".join(lines) + end
    try:
        expected = as_set(decode_commit(data, source="x"))
    except msgspec.MsgspecError:
        raise AssertionError("the case itself is not a commit") from None
    found = decode_actions(data, source="x")
    assert as_set(found) in (expected, as_set(map(with_all_columns, decode_commit(data, source="x"))))
    assert bool(runs_of(found)) is as_runs


@pytest.mark.parametrize(
    "broken",
    [
        line(path="x")[:-5],
        b'{"add":{"path":"x"}}',
        b'{"add":{"path":"x","partitionValues":null,"size":1,"modificationTime":1,"dataChange":true}}',
        line(path=None),
        line(size=1.5),
        line(size=1 << 63),
        line(dataChange="yes"),
        b'{"add":{"path":"\xff","partitionValues":{"p":"1"},"size":1,"modificationTime":1,"dataChange":true}}',
        b"nonsense",
        b'{"add":{}}',
    ],
)
def test_a_damaged_line_is_named_however_many_there_are(broken):
    data = b"\n".join([*USUAL, broken, *USUAL])
    with pytest.raises(Exception, match="Line 4 of x") as by_line:
        decode_commit(data, source="x")
    with pytest.raises(type(by_line.value), match="Line 4 of x"):
        decode_actions(data, source="x")


FILES = [add(number, day) for number, day in enumerate([None, "2024-05-01", "2024-05-02", "a b/é"])]


def test_a_run_is_a_sequence_of_actions():
    run = gathered(FILES)
    assert isinstance(run, AddRun)
    assert (len(run), list(run), run[1], run[-1], run[1:3]) == (4, FILES, FILES[1], FILES[3], FILES[1:3])
    with pytest.raises(IndexError):
        run[4]
    removed = run.removed(deletion_timestamp=9)
    assert isinstance(removed, RemoveRun)
    assert list(removed) == [file.remove(deletion_timestamp=9) for file in FILES]
    mixed = joined([info()], run, [metadata()])
    assert isinstance(mixed, ActionList)
    assert list(mixed) == [info(), *FILES, metadata()]
    assert [mixed[at] for at in range(-6, 6)] == list(mixed) * 2
    assert mixed[::2] == list(mixed)[::2]


def test_few_actions_stay_a_tuple():
    assert joined([info()], (), [metadata()]) == (info(), metadata())
    assert joined() == ()


def test_what_is_asked_of_actions_is_answered_by_columns():
    vector = add(9).replace(deletion_vector=VECTOR)
    held = joined([info(), vector], gathered(FILES), removes_of(gathered(FILES[:2]), deletion_timestamp=1))
    assert list(objects_of(held)) == [info(), vector]
    assert as_set(of_kind(held, AddFile)) == as_set([vector, *FILES])
    assert len(of_kind(held, RemoveFile)) == 2
    assert list(of_kind(held, CommitInfo)) == [info()]
    assert as_set(other_than(held, CommitInfo, metadata())) == as_set([metadata(), *[a for a in held if a != info()]])
    assert num_bytes(of_kind(held, AddFile)) == sum(file.size for file in [vector, *FILES])
    keys = key_columns(of_kind(held, AddFile))
    assert sorted(keys.rows(), key=str) == sorted([(a.key.path, a.key.dv_id) for a in [vector, *FILES]], key=str)
    assert {file.data_change for file in changing(gathered(FILES), False)} == {False}


@pytest.mark.parametrize(
    "actions",
    [
        [*FILES],
        [*FILES, *(file.remove(deletion_timestamp=3) for file in FILES[2:])],
        [*(file.remove(deletion_timestamp=3) for file in FILES[:2]), *FILES[2:]],
        [add(0).replace(deletion_vector=VECTOR), *FILES[1:]],
        [*FILES, FILES[0].replace(size=5)],
        [FILES[0].replace(path="day=%61/x"), FILES[1].replace(path="day=a/x")],
    ],
)
def test_a_delta_of_runs_is_the_delta_of_their_objects(actions):
    adds_and_removes = [a for a in actions if isinstance(a, AddFile)], [a for a in actions if isinstance(a, RemoveFile)]
    held = joined(gathered(adds_and_removes[0]), adds_and_removes[1])
    how = {"version": 3, "partition_names": ["day"], "root": "memory://x"}
    by_columns, by_objects = build_delta(held, **how), build_delta(tuple(held), **how)
    for name in ("adds", "removes"):
        first, second = getattr(by_columns, name).drop("row"), getattr(by_objects, name).drop("row")
        assert first.sort("key").equals(second.select(first.columns).sort("key"))
        assert getattr(by_columns, name)["row"].n_unique() == first.height
    assert change_of(held) == change_of(tuple(held))


def test_a_run_with_other_partition_columns_than_the_table_is_read_by_objects():
    other = [FILES[0].replace(partition_values={"day": "x", "more": "y"})]
    how = {"version": 3, "partition_names": ["day"], "root": "memory://x"}
    delta = build_delta(gathered(other), **how)
    assert json.loads(delta.adds["rest"][0])["partitionValues"] == {"day": "x", "more": "y"}


def test_a_table_of_runs_is_written_restored_checkpointed_and_read_again():
    store = new_store()
    create(store)
    log = log_of(store)
    first = [*FILES, add(9).replace(deletion_vector=VECTOR, tags={"a": "b"})]
    start_transaction(log).commit(first, Operation(name="WRITE"))
    start_transaction(log).commit(
        [*(file.remove(deletion_timestamp=2_000_000_000_000) for file in FILES[:3]), add(20)], Operation(name="DELETE")
    )
    assert runs_of(log.actions(1)) != []
    before = log.snapshot(version=1)
    log.file_exists = lambda path: True
    result = restore(log, version=1)
    assert (result.num_restored_files, result.num_removed_files) == (3, 1)
    log.checkpoint()
    after = log_of(store).snapshot()
    assert after.segment.checkpoint_version == 3
    assert as_set(after.files.adds(after.files.core)) == as_set(before.files.adds(before.files.core))
    assert sorted(after.tombstones()["path"]) == [add(20).path]
    assert as_set(after.files.add_actions(after.files.core)) == as_set(before.files.adds(before.files.core))
    assert log_of(store).snapshot(version=2).num_files == 3
    assert isinstance(before.metadata, Metadata) and after.protocol == PROTOCOL
