"""The engine without a JVM keeps its promises where disk, paths and Python's modules are those of macOS or Windows.

Neither is here: a folder that ignores case and the encoding of accents is made of a local one, and a process is denied
what Windows lacks.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
import unicodedata
from pathlib import Path

import pyarrow as pa
import pytest

from pydelta.api.python.local import LocalTable, open_table
from pydelta.errors import InvalidArgumentError
from pydelta.storage import local, register_store
from pydelta.storage.uris import POSIX, WINDOWS, normalize_uri, scheme_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("location", "uri"),
    [
        (r"C:\data\a b", "file:///C:/data/a%20b"),
        ("c:/data/t/", "file:///c:/data/t"),
        (r"C:\data\p=50%", "file:///C:/data/p%3D50%25"),
        ("file:///C:/data/a%20b", "file:///C:/data/a%20b"),
        ("file:/C:/data/a%20b", "file:///C:/data/a%20b"),
        ("file://localhost/C:/data", "file:///C:/data"),
        ("file:C:/data", "file:///C:/data"),
        (r"C:\data\..\t", "file:///C:/t"),
        ("s3a://bucket/t/", "s3a://bucket/t"),
        ("hdfs://namenode:8020/t", "hdfs://namenode:8020/t"),
    ],
)
def test_locations_on_windows(location, uri):
    assert normalize_uri(location, rules=WINDOWS) == uri
    assert normalize_uri(uri, rules=WINDOWS) == uri


def test_a_drive_is_no_scheme_on_windows_alone():
    assert scheme_of(r"C:\data", rules=WINDOWS) == "file"
    assert scheme_of("C:/data", rules=POSIX) == "c"
    assert scheme_of("s3a://b/t", rules=WINDOWS) == "s3a"


@pytest.mark.parametrize("location", [r"\\server\share\t", "file://server/share/t"])
def test_another_hosts_folder_is_refused_on_windows(location):
    with pytest.raises(InvalidArgumentError, match="the host 'server'"):
        normalize_uri(location, rules=WINDOWS)


@pytest.mark.parametrize("rules", [POSIX, WINDOWS])
def test_a_path_comes_back_from_its_uri(rules):
    start = "C:/" if rules.drives else "/"
    for name in ("plain", "a b", "50%", "%41", "é中", "a#b", "a?b", "a=b;c", "C:x"):
        path = f"{start}data/{name}"
        assert rules.path(rules.uri(path).removeprefix("file://")) == path


class FoldingStore(local.LocalStore):
    """A folder that takes names for the same if they differ in case or in the encoding of accents, as APFS does."""

    def _path(self, path):
        there = self._folder
        for name in path.split("/"):
            there = f"{there}/{self._existing(there, name)}"
        return there

    def _existing(self, folder, name):
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return next((found for found in names if self._fold(found) == self._fold(name)), name)

    @staticmethod
    def _fold(name):
        return unicodedata.normalize("NFD", name).casefold()


register_store("folding", lambda uri, options: FoldingStore(uri.removeprefix("folding://")))

PARTITIONS = ["a", "A", "Straße", "STRASSE", "é", "e\N{COMBINING ACUTE ACCENT}", "É", "b"]


def shown(uri):
    return sorted(open_table(uri).scan().to_pylist(), key=lambda row: (row["p"], row["x"]))


def test_partitions_whose_folders_are_the_same_keep_their_files(tmp_path):
    uri = f"folding://{tmp_path}/t"
    rows = pa.table({"p": PARTITIONS, "x": pa.array(range(len(PARTITIONS)), pa.int64())})
    table = LocalTable.create(uri, rows, partition_by=["p"])
    before = shown(uri)
    assert len(before) == len(PARTITIONS)
    folders = {path.parent.name for path in (tmp_path / "t").rglob("*.parquet")}
    assert 1 < len(folders) < len(PARTITIONS)
    garbage = next((tmp_path / "t").rglob("*.parquet")).with_name("part-garbage.parquet")
    garbage.write_bytes(b"PAR1")
    for path in (tmp_path / "t").rglob("*.parquet"):
        os.utime(path, (1, 1))
    assert table.vacuum().files["path"].to_list() == [garbage.relative_to(tmp_path / "t").as_posix()]
    assert not garbage.exists()
    assert shown(uri) == before


def test_a_file_that_somebody_reads_is_replaced_after_that(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "HERE", dataclasses.replace(POSIX, replaces_open_files=False))
    monkeypatch.setattr(local, "_READERS_WAITS", (0.0,) * 5)
    tries, replace = [], os.replace

    def held(source, target):
        tries.append(target)
        if len(tries) < 4:
            raise PermissionError(13, "The process cannot access the file because it is being used by another process")
        replace(source, target)

    monkeypatch.setattr(os, "replace", held)
    store = local.LocalStore(str(tmp_path))
    store.put("_delta_log/_last_checkpoint", b"{}")
    assert len(tries) == 4
    assert store.read("_delta_log/_last_checkpoint") == b"{}"
    assert [path.name for path in (tmp_path / "_delta_log").iterdir()] == ["_last_checkpoint"]


def test_of_many_creators_one_wins_where_folders_cannot_be_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "HERE", dataclasses.replace(POSIX, syncs_folders=False))
    opened = os.open

    def refuse_folders(path, *rest, **named):
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied")
        return opened(path, *rest, **named)

    monkeypatch.setattr(os, "open", refuse_folders)
    store = local.LocalStore(str(tmp_path))
    outcomes = []
    threads = [
        threading.Thread(target=lambda n=n: outcomes.append(store.put_if_absent("d/1.json", b"%d" % n)))
        for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [outcome.name for outcome in outcomes].count("CREATED") == 1
    assert {outcome.name for outcome in outcomes} == {"CREATED", "ALREADY_EXISTS"}


WITHOUT_POSIX = """
import sys
for name in ("fcntl", "grp", "pwd", "resource", "termios", "pty", "posix_ipc", "syslog"):
    sys.modules[name] = None
import os, signal
for name in ("fork", "getuid", "geteuid", "getgid", "getpgid", "killpg", "mkfifo", "statvfs", "fchmod", "chown"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("O_CLOEXEC", "O_NONBLOCK", "O_DIRECTORY", "O_NOFOLLOW", "O_SYNC"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGALRM", "SIGPIPE"):
    if hasattr(signal, name):
        delattr(signal, name)
import dataclasses, errno
from pydelta.storage import local
from pydelta.storage.uris import POSIX
local.HERE = dataclasses.replace(POSIX, syncs_folders=False, replaces_open_files=False)
opened = os.open
def no_folder(path, *rest, **named):
    if not isinstance(path, int) and os.path.isdir(path):
        raise PermissionError(errno.EACCES, "Permission denied")
    return opened(path, *rest, **named)
os.open = no_folder
import pyarrow as pa
import pydelta
from pydelta.api.cli.cli import main
place = sys.argv[1]
rows = pa.table({"id": pa.array(range(100), pa.int64()), "p": ["a", "b"] * 50})
table = pydelta.LocalTable.create(place, rows, partition_by=["p"])
table.delete("id < 10")
table.update({"p": "'c'"}, where="id >= 90")
table.merge(rows.slice(0, 20), on=["id"])
table.optimize()
table.vacuum()
table.checkpoint()
assert sorted(pydelta.open(place).scan()["id"].to_pylist()) == list(range(100))
assert pydelta.open(place).scan(version=0).num_rows == 100
for verb in (["history"], ["files"], ["fsck"], ["vacuum", "--dry-run"], ["doctor"]):
    code = main([verb[0], place, *verb[1:]])
    assert code == 0, (verb, code)
"""


def test_the_part_without_a_jvm_needs_nothing_that_posix_alone_has(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX, str(tmp_path / "t")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
