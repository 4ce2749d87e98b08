"""Local disks that are full, read-only or closed to this user: a named error, and nothing left behind.

A full disk is a mounted one of a megabyte where this process may mount, else a limit on file sizes: both end a write in
the middle. What needs another user runs in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

PRELUDE = """
import os, resource, sys
from pydelta.errors import StorageFullError, StoragePermissionError, StorageReadOnlyError
from pydelta.storage import PutOutcome, local, open_store, registry
folder, how = sys.argv[1:]
def refuses(error, call):
    try:
        call()
    except error as caught:
        assert caught.hint and not caught.retryable, repr(caught)
        return str(caught)
    raise AssertionError(f"no {error.__name__}")
def stream(path, data):
    with store.open_writer(path) as out:
        out.write(data)
def left():
    return sorted(name for _, _, names in os.walk(folder) for name in names)
"""

FULL = """
if how == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
store = open_store(f"{folder}/t")
store.put("_delta_log/0", b"x")
big = os.urandom(3 << 20)
for write in (store.put, store.put_if_absent, stream):
    message = refuses(StorageFullError, lambda: write("_delta_log/big", big))
    assert "_delta_log/big" in message, message
    assert left() == ["0"], left()
refuses(StorageFullError, lambda: store.put("_delta_log/0", big))
assert store.read("_delta_log/0") == b"x"
assert store.put_if_absent("_delta_log/1", b"y") is PutOutcome.CREATED
"""

READ_ONLY = """
store = open_store(f"{folder}/t")
for write in (store.put, store.put_if_absent, stream):
    message = refuses(StorageReadOnlyError, lambda: write("y", b"1"))
    assert "read-only" in message, message
report = store.delete_many(["x"])
assert [path for path, reason in report.failed] == ["x"] and not report.denied
assert store.read("x") == b"1" and left() == ["x"]
"""

CLOSED = """
if os.geteuid() == 0:
    os.setuid(65534)
store = open_store(folder)
for write in (store.put, store.put_if_absent, stream):
    message = refuses(StoragePermissionError, lambda: write("y", b"1"))
    assert "denied" in message, message
if how == "readable":
    assert store.read("x") == b"1" and left() == ["x"]
    report = store.delete_many(["x", "not there"])
    assert ([path for path, _ in report.failed], report.denied, report.deleted) == (["x"], True, 1), report
else:
    refuses(StoragePermissionError, lambda: list(store.list_all()))
    refuses(StoragePermissionError, lambda: list(store.list_from("", prefix="")))
"""


def _run(program: str, folder: Path, how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program, str(folder), how],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def small_disk(tmp_path):
    """A mounted disk of one megabyte, or None where this process may not mount."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True).returncode:
        yield None
        return
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_named_and_leaves_no_partial_object(small_disk, tmp_path):
    _run(FULL, small_disk or tmp_path / "plain", "mounted" if small_disk else "limit")


def test_a_file_that_may_not_grow_is_named_and_leaves_no_partial_object(tmp_path):
    _run(FULL, tmp_path, "limit")


def test_a_read_only_disk_is_named(small_disk):
    if small_disk is None:
        pytest.skip("this process may not mount; tests/unit/storage/test_local_store.py has the error itself")
    (small_disk / "t").mkdir()
    (small_disk / "t" / "x").write_bytes(b"1")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    _run(READ_ONLY, small_disk, "")


@pytest.fixture
def open_to_all():
    """A folder that another user can reach, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.parametrize(("mode", "how"), [(0o555, "readable"), (0o000, "unreadable")])
def test_a_folder_of_another_user_is_a_permission_error(open_to_all, mode, how):
    folder = open_to_all / "closed"
    folder.mkdir()
    (folder / "x").write_bytes(b"1")
    folder.chmod(mode)
    try:
        _run(CLOSED, folder, how)
    finally:
        folder.chmod(0o755)
