"""LocalStore where the operating system fails in ways that a disk at hand does not."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pydelta.errors import (
    StorageError,
    StorageFullError,
    StoragePermissionError,
    StorageReadOnlyError,
    UnsafeStoreError,
)
from pydelta.storage import LocalStore, PutOutcome, open_store
from pydelta.storage import local as module


@pytest.fixture
def store(tmp_path):
    return LocalStore(str(tmp_path / "t"))


def _fail_with(number):
    def fail(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    return fail


def _left(store) -> list[str]:
    folder = Path(store.root.removeprefix("file://"))
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("number", "expected", "retryable"),
    [
        (errno.ENOSPC, StorageFullError, False),
        (errno.EDQUOT, StorageFullError, False),
        (errno.EROFS, StorageReadOnlyError, False),
        (errno.EACCES, StoragePermissionError, False),
        (errno.EIO, StorageError, False),
        (errno.EAGAIN, StorageError, True),
    ],
)
@pytest.mark.parametrize("verb", ["put", "put_if_absent", "open_writer"])
def test_a_sync_that_fails_is_named_and_leaves_nothing(store, monkeypatch, number, expected, retryable, verb):
    monkeypatch.setattr(module.os, "fsync", _fail_with(number))

    def write():
        if verb == "open_writer":
            with store.open_writer("x") as stream:
                stream.write(b"1")
        else:
            getattr(store, verb)("x", b"1")

    with pytest.raises(expected) as caught:
        write()
    assert caught.value.retryable is retryable
    assert isinstance(caught.value, OSError)
    monkeypatch.undo()
    assert _left(store) == []


def test_a_link_that_the_server_made_twice_is_ours(store, monkeypatch):
    real = os.link

    def repeated(source, target):
        real(source, target)
        real(source, target)

    monkeypatch.setattr(module.os, "link", repeated)
    assert store.put_if_absent("x", b"mine") is PutOutcome.CREATED
    assert _left(store) == ["x"]


def test_a_taken_name_that_may_be_our_own_is_unknown(store, monkeypatch):
    store.put_if_absent("x", b"mine, by a request that was repeated")
    real = os.stat

    def stale(path, *args, **kwargs):
        if ".pydelta-tmp-" in str(path):
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(path, *args, **kwargs)

    monkeypatch.setattr(module.os, "stat", stale)
    assert store.put_if_absent("x", b"mine") is PutOutcome.UNKNOWN


@pytest.mark.parametrize("number", [errno.ENOTCONN, errno.EHOSTDOWN, errno.ECONNRESET, errno.EREMOTEIO, errno.EINTR])
def test_a_link_that_failed_for_another_reason_than_a_refusal_is_unknown(store, monkeypatch, number):
    monkeypatch.setattr(module.os, "link", _fail_with(number))
    assert store.put_if_absent("x", b"mine") is PutOutcome.UNKNOWN


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENAMETOOLONG])
def test_a_link_that_was_refused_was_not_made(store, monkeypatch, number):
    monkeypatch.setattr(module.os, "link", _fail_with(number))
    with pytest.raises(StorageError) as caught:
        store.put_if_absent("x", b"mine")
    assert not caught.value.retryable
    assert _left(store) == []


@pytest.mark.parametrize("number", [errno.EIO, errno.ETIMEDOUT, errno.ESTALE])
def test_a_link_without_a_certain_end_is_unknown(store, monkeypatch, number):
    monkeypatch.setattr(module.os, "link", _fail_with(number))
    assert store.put_if_absent("x", b"mine") is PutOutcome.UNKNOWN
    assert _left(store) == []


def test_a_created_name_that_may_not_survive_a_power_failure_is_unknown(store, monkeypatch):
    store.put("warm", b"")
    monkeypatch.setattr(module, "_sync_folder", _fail_with(errno.EIO))
    assert store.put_if_absent("x", b"mine") is PutOutcome.UNKNOWN
    assert store.read("x") == b"mine"


def test_a_file_system_that_syncs_no_directory_is_good_enough(store, monkeypatch):
    real = os.fsync

    def only_files(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(descriptor)

    monkeypatch.setattr(module.os, "fsync", only_files)
    assert store.put_if_absent("d/x", b"1") is PutOutcome.CREATED


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_file_system_without_hard_links_is_refused(store, monkeypatch, number):
    monkeypatch.setattr(module.os, "link", _fail_with(number))
    with pytest.raises(UnsafeStoreError, match="hard links"):
        store.put_if_absent("x", b"1")
    assert _left(store) == []


def test_an_interrupt_while_writing_leaves_nothing(store, monkeypatch):
    def interrupt(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.os, "fsync", interrupt)
    for write in (store.put, store.put_if_absent):
        with pytest.raises(KeyboardInterrupt):
            write("x", b"1")
    assert _left(store) == []


def test_what_a_killed_writer_left_is_neither_listed_nor_in_the_way(store):
    stream = store.open_writer("d/x")
    stream.write(b"half")
    assert list(store.list_all()) == []
    assert list(store.list_from("", prefix="d")) == []
    assert store.put_if_absent("d/x", b"1") is PutOutcome.CREATED
    stream.abort()
    assert [info.path for info in store.list_all()] == ["d/x"]


def test_links_are_read_and_directories_behind_links_are_not_walked(store, tmp_path):
    store.put("d/x", b"1")
    (tmp_path / "t" / "loop").symlink_to(tmp_path / "t")
    (tmp_path / "t" / "dead").symlink_to(tmp_path / "nothing")
    (tmp_path / "t" / "y").symlink_to(tmp_path / "t" / "d" / "x")
    assert sorted(info.path for info in store.list_all()) == ["d/x", "y"]
    assert [info.path for info in store.list_from("", prefix="")] == ["y"]
    assert store.read("y") == b"1"


def test_every_new_directory_is_synced_into_its_parent(store, monkeypatch, tmp_path):
    synced = []
    monkeypatch.setattr(module, "_sync_folder", synced.append)
    store.put("a/b/x", b"1")
    root = str(tmp_path)
    assert sorted(synced) == [root, f"{root}/t", f"{root}/t/a", f"{root}/t/a/b"]


@pytest.mark.parametrize("name", ["50%", "%20", "a b", "é", "#x?y", "a+b"])
def test_the_root_is_one_directory_however_it_is_spelt(tmp_path, name):
    folder = tmp_path / name
    open_store(str(folder)).put("x", b"1")
    assert (folder / "x").read_bytes() == b"1"
    assert open_store(folder.as_uri()).read("x") == b"1"
    assert open_store(str(folder)).root == folder.as_uri()


def test_a_target_that_is_a_directory_is_an_error_and_stays(store):
    store.put("d/x", b"1")
    assert store.put_if_absent("d", b"2") is PutOutcome.ALREADY_EXISTS
    with pytest.raises(StorageError):
        store.put("d", b"2")
    with pytest.raises(StorageError), store.open_writer("d") as stream:
        stream.write(b"2")
    assert _left(store) == ["d/x"]
