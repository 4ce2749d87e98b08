"""``pydelta vacuum``: the files, the totals, the requests, the last sentence."""

from __future__ import annotations

import json
import time

import pytest

from pydelta.api.cli.cli import main
from pydelta.log import DeltaLog
from pydelta.storage.local import LocalStore
from pydelta.testing.garbage import Yard


@pytest.fixture
def yard(tmp_path):
    made = Yard(LocalStore(str(tmp_path / "t")), partition_columns=("p",), now_ms=time.time_ns() // 1_000_000)
    old = made.add("p=1/old", age=900)
    made.commit(made.add("p=1/live", age=900), old, age=900)
    made.commit(made.remove(old, age=800), age=800)
    made.put("p=2/aborted", age=800, size=50)
    made.backdate("p=2", age=1)
    yield made
    DeltaLog.clear_cache()


def run(capsys, yard, *argv):
    with pytest.raises(SystemExit) as stopped:
        main(["vacuum", yard.store.root.removeprefix("file://"), *argv])
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


def test_a_dry_run_shows_files_and_totals(capsys, yard):
    code, out, err = run(capsys, yard, "--dry-run")
    assert (code, err) == (0, "")
    for text in ("p=1/old", "p=2/aborted", "p=1", "50", "60 bytes to free", "Found 2 files and directories"):
        assert text in out
    assert yard.files() == {"p=1/old", "p=1/live", "p=2/aborted"}
    _, out, _ = run(capsys, yard, "--dry-run", "--json", "--where", "p = '2'")
    row = json.loads(out)
    assert row["files"] == ["p=2/aborted"]
    assert row["partitions"] == [{"partition": "p=2", "files": 1, "bytes": 50}]


def test_a_run_ends_with_what_was_deleted(capsys, yard):
    code, out, err = run(capsys, yard)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "Deleted 2 files and directories in a total of 3 directories."
    assert "1 DELETE requests" in out
    assert "60 bytes freed" in out
    assert yard.files() == {"p=1/live"}


def test_lite_says_what_listing_would_have_taken(capsys, yard):
    code, out, _ = run(capsys, yard, "--lite")
    assert code == 0
    assert "A listing would have taken 1 LIST requests" in out
    assert yard.files() == {"p=1/live", "p=2/aborted"}


def test_an_inventory_is_a_file_or_a_table(capsys, yard, tmp_path):
    at = yard.now_ms - 3_600_000 * 800
    (tmp_path / "list.csv").write_text(f"path,length,isDir,modificationTime\np=2/aborted,50,false,{at}\n")
    code, out, err = run(capsys, yard, "--inventory", str(tmp_path / "list.csv"))
    assert code == 0
    assert "days old" in err
    assert "1 LIST and 1 DELETE requests" in out
    assert yard.files() == {"p=1/old", "p=1/live"}
    code, _, err = run(capsys, yard, "--inventory", str(tmp_path / "nothing"))
    assert code == 1
    assert "no .parquet file" in err
    code, _, err = run(capsys, yard, "--inventory", str(tmp_path / "list.csv"), "--lite")
    assert code == 1
    assert "LITE" in err


def test_a_retention_that_is_too_short_is_an_error_with_a_way_out(capsys, yard):
    code, _, err = run(capsys, yard, "--retention-hours", "1")
    assert code == 1
    assert "168 hours" in err
    assert "Next:" in err
    code, out, _ = run(capsys, yard, "--retention-hours", "1", "--no-retention-check")
    assert code == 0
    assert "Deleted 3 files and directories" in out, "the directory, too"
