"""``_last_checkpoint``: its checksum, and that it is never more than a hint."""

from __future__ import annotations

import pytest
from log_tables import append_until, create, log_of, new_store

from pydelta.log.side_files import CheckpointHint, canonical_form, decode_hint, encode_hint, hint_checksum
from pydelta.protocol.paths import commit_file
from pydelta.testing import CountingStore

HINT = "_delta_log/_last_checkpoint"

DOCUMENT = (
    '{"k0":"\'v 0\'","checksum":"adsaskfljadfkjadfkj",'
    '"k1":{"k2":2,"k3":["v3",[1,2],{"k4":"v4","k5":["v5","v6","v7"]}]}}'
)


def test_the_checksum_is_that_of_the_specification():
    assert hint_checksum(DOCUMENT) == "6a92d155a59bf2eecbd4b4ec7fd1f875"


def test_the_canonical_form_sorts_quotes_and_encodes():
    assert (
        canonical_form('{"b":[true,null,1.50],"a":"x y","checksum":"z"}')
        == '"a"="x%20y","b"+0=true,"b"+1=null,"b"+2=1.50'
    )


def test_a_key_twice_has_no_checksum():
    with pytest.raises(ValueError, match="twice"):
        hint_checksum('{"a":1,"a":2}')


def test_a_hint_round_trips():
    hint = CheckpointHint(version=20, size=31, size_in_bytes=1000, num_of_add_files=29)
    found = decode_hint(encode_hint(hint))
    assert found is not None
    assert (found.version, found.size) == (20, 31)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"null", b'{"size":1}', b'{"version":"20","size":1}', b'{"version":-1,"size":1}', b"\xff\xfe",
     b'{"version":20,"size":1,"checksum":"0"}', b'{"version":true,"size":1}'],
)  # fmt: skip
def test_what_makes_no_sense_is_no_hint(text: bytes):
    assert decode_hint(text) is None


def _table(last: int):
    store = new_store()
    create(store)
    append_until(store, 1, 10)
    log_of(store).checkpoint()
    append_until(store, 11, last)
    return store


@pytest.mark.parametrize(
    "text",
    [None, b"", b'{"version":1', b'{"version":99,"size":5}', b'{"version":12,"size":5}', b'{"version":0,"size":5}',
     b'{"version":11,"size":5,"parts":3}'],
    ids=["missing", "empty", "truncated", "beyond the end", "no such checkpoint", "stale", "lying"],
)  # fmt: skip
def test_whatever_the_hint_says_the_table_reads(text: bytes | None):
    store = _table(13)
    if text is None:
        store.delete_many([HINT])
    else:
        store.put(HINT, text)
    snapshot = log_of(store).snapshot()
    assert (snapshot.version, snapshot.num_files) == (13, 13)
    assert snapshot.segment.checkpoint_version == 10


def test_a_stale_hint_still_finds_the_newer_checkpoint():
    store = _table(25)
    log_of(store).checkpoint(log_of(store).snapshot(version=20))
    store.put(HINT, encode_hint(CheckpointHint(version=10, size=12)))
    assert log_of(store).snapshot().segment.checkpoint_version == 20


def test_replay_reads_the_nearest_checkpoint_and_the_commits_after_it_and_nothing_else():
    store = _table(20)
    log_of(store).checkpoint()
    append_until(store, 21, 23)
    counting = CountingStore(store)
    log = log_of(counting)
    snapshot = log.snapshot()
    assert (snapshot.version, snapshot.num_files) == (23, 23)
    read = {path for verb, path in counting.calls if verb in ("read", "read_range")}
    assert read == {
        HINT,
        "_delta_log/00000000000000000020.checkpoint.parquet",
        *(f"_delta_log/{commit_file(version)}" for version in (21, 22, 23)),
    }
    counting.calls.clear()
    append_until(store, 24, 24)
    assert log.update().num_files == 24
    assert [path for verb, path in counting.calls if verb.startswith("read")] == [f"_delta_log/{commit_file(24)}"]
    counting.calls.clear()
    assert log.update().version == 24
    assert [verb for verb, _ in counting.calls] == ["list_from"]
