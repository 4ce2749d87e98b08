"""Files that a killed writer began and never finished: found, waited for, and deleted once no writer can need them."""

from __future__ import annotations

import io
import os
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pydelta.api.python.local import LocalTable
from pydelta.commands.erase import command
from pydelta.storage.pages import UNFINISHED_PREFIX
from tests.unit.commands.erase.test_erase import KEY, counted, erase, rows

_WEEKS_MS = 30 * 86_400_000


def parquet_of(*who: str) -> bytes:
    out = io.BytesIO()
    pq.write_table(rows(*who), out, compression="zstd")
    return out.getvalue()


@pytest.fixture
def table(tmp_path):
    table = LocalTable.create(str(tmp_path / "t"), rows("bob", KEY, "eve"))
    table.append(rows("zoe", "dan", first=10))
    return table


def put(folder: Path, name: str, data: bytes, *, old: bool) -> Path:
    path = folder / name
    path.write_bytes(data)
    if old:
        now = path.stat().st_mtime_ns // 1_000_000
        os.utime(path, ns=((now - _WEEKS_MS) * 1_000_000,) * 2)
    return path


def unfinished() -> str:
    return f"{UNFINISHED_PREFIX}{uuid.uuid4()}"


TORN = parquet_of("tom", KEY)[:-20]
LEFT = {
    "half a data file": ("", unfinished(), TORN),
    "half a data file with its name": ("", "part-00000.parquet", TORN),
    "a whole data file": ("", unfinished(), parquet_of("tom", KEY)),
    "a commit": ("_delta_log", unfinished(), f'{{"commitInfo":{{"who":"{KEY}"}}}}'.encode()),
    "half a checkpoint": ("_delta_log", unfinished(), TORN),
}


@pytest.mark.parametrize("name", LEFT)
def test_an_old_one_is_deleted_and_a_young_one_is_reported(table, tmp_path, name):
    folder, file, data = LEFT[name]
    path = put(tmp_path / "t" / folder, file, data, old=False)
    done = erase(table)
    assert not done.is_proven
    assert path.exists()
    reported = [*done.left.files["path"], *(place.path for place in done.left.places), *dict(done.left.unread)]
    assert [Path(item).name for item in reported] == [file]
    assert done.result.num_left == 1
    put(tmp_path / "t" / folder, file, data, old=True)
    done = erase(table)
    assert done.is_proven
    assert not path.exists()
    assert sum(counted(table).values()) == 4


@pytest.mark.parametrize("name", [name for name in LEFT if name != "a whole data file"])
def test_no_history_is_given_up_for_one_that_says_nothing(table, tmp_path, name):
    folder, file, data = LEFT[name]
    put(tmp_path / "t" / folder, file, data.replace(KEY.encode(), b"nobody"), old=True)
    planned = erase(table, {"who": ["nobody"]}, dry_run=True)
    assert (planned.plan.is_needed, planned.plan.look.abandoned.height, planned.left.is_clean) == (False, 1, False)
    done = erase(table, {"who": ["nobody"]}, history=None)
    assert (done.is_proven, done.given_up, done.version, done.deleted_files) == (True, None, 1, 1)
    assert list((tmp_path / "t" / folder).glob(file)) == []


def test_a_damaged_file_that_only_a_clone_names_stays_and_nothing_is_proven(tmp_path):
    root = tmp_path / "t"
    none = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
    table = LocalTable.create(str(root), rows("bob", KEY, "eve"), properties=none)
    table.clone(str(tmp_path / "clone"), shallow=True)
    [file] = root.glob("*.parquet")
    table.delete("true")
    table.append(rows("new", first=50))
    table.checkpoint()
    for path in (root / "_delta_log").glob("*.json"):
        os.utime(path, (0, 0))
    table.cleanup()
    assert not list((root / "_delta_log").glob("*0.json")), "no version of the table names the file"
    put(root, file.name, TORN, old=True)
    done = erase(table)
    assert file.exists()
    assert not done.is_proven
    assert list(dict(done.left.unread)) == [file.name]


def test_one_that_a_writer_began_since_the_first_look_is_passed_over(table, tmp_path, monkeypatch):
    begun = []
    original = command.files_with_keys

    def meanwhile(*args, **kwargs):
        begun.append(put(tmp_path / "t", unfinished(), TORN, old=False))
        return original(*args, **kwargs)

    monkeypatch.setattr(command, "files_with_keys", meanwhile)
    assert erase(table).is_proven
    assert [path.exists() for path in begun] == [True]


def test_vacuum_deletes_old_ones_and_no_young_one(table, tmp_path):
    root = tmp_path / "t"
    (root / "part=1").mkdir()
    old = [put(folder, unfinished(), TORN, old=True) for folder in (root, root / "part=1")]
    young = put(root, unfinished(), TORN, old=False)
    table.vacuum()
    assert [path.exists() for path in (*old, young)] == [False, False, True]


def test_a_cleanup_of_the_log_deletes_old_ones(table, tmp_path):
    log = tmp_path / "t" / "_delta_log"
    kept = put(log, unfinished(), b"{", old=False)
    table.checkpoint()
    table.append(pa.table({"who": ["x"], "n": [1], "part": ["p"]}))
    for path in log.glob("*.json"):
        os.utime(path, (0, 0))
    gone = put(log, unfinished(), TORN, old=True)
    os.utime(gone, (0, 0))
    table.cleanup()
    assert (gone.exists(), kept.exists()) == (False, True)
