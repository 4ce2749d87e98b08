"""``pydelta maintain``: what a table needs and why, and what it says to those who ask wrongly."""

from __future__ import annotations

import json
import time

import pytest

from catalog_sync.names import TableName
from catalog_sync.native import sync_native
from catalog_sync.thrift.memory import MemoryMetastore
from catalog_sync.watching import WatchedMetastore
from pydelta.api.cli.cli import main
from pydelta.log import DeltaLog
from pydelta.testing.operations import add_file, append, create_table
from pydelta.tools.maintenance.journal import Journal, Row


@pytest.fixture
def log(tmp_path):
    log = DeltaLog.for_table(str(tmp_path / "t"))
    create_table(log, [add_file("a", [n]) for n in range(60)])
    yield log
    DeltaLog.clear_cache()


def run(capsys, *argv):
    with pytest.raises(SystemExit) as stopped:
        main(["maintain", *argv])
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


def test_it_says_what_is_due_and_why(capsys, log):
    code, out, err = run(capsys, log.uri, "--dry-run")
    assert (code, err) == (0, "")
    first, second = out.splitlines()
    assert first.endswith("version 0: 60 files, 5.9 KiB")
    assert second.startswith("compact: 60 files below 32.0 MiB (5.9 KiB) can become 1: 59 fewer; the bound is 50")
    assert log.update().version == 0


def test_as_json_with_defaults(capsys, log):
    code, out, _ = run(capsys, log.uri, "--dry-run", "--json", "--default", "compact.minFiles=60")
    found = json.loads(out)
    assert (code, found["actions"], found["files"]) == (0, [], 60)
    assert found["policy"]["compact_min_files"] == 60


def test_it_says_how_far_a_table_is_from_its_bound(capsys, log):
    _, out, _ = run(capsys, log.uri, "--dry-run", "--default", "compact.minFiles=60")
    assert "nothing is due: merging small files would save 59 files, and the bound is 60; VACUUM is off" in out
    _, out, _ = run(capsys, log.uri, "--dry-run", "--default", "enabled=false")
    assert "the table is left alone" in out


def test_the_book_tells_of_failures(capsys, log, tmp_path):
    book = Journal(DeltaLog.for_table(str(tmp_path / "book")))
    now_ms = time.time_ns() // 1_000_000
    book.note(
        Row(
            at_ms=now_ms, table="t", location=log.uri, action="compact", reason="r", outcome="failed", error="full disk"
        )
    )
    book.write()
    _, out, _ = run(capsys, log.uri, "--dry-run", "--journal", book.log.uri)
    assert "  not yet: it failed once, the next try is at" in out
    assert out.rstrip().endswith("full disk")


def test_a_table_by_its_name_with_the_book_that_the_metastore_knows(capsys, log, tmp_path, monkeypatch):
    book = Journal(DeltaLog.for_table(str(tmp_path / "book")))
    book.note(
        Row(
            at_ms=time.time_ns() // 1_000_000, table="t", location=log.uri, action="compact", reason="r", outcome="done"
        )
    )
    book.write()
    metastore = MemoryMetastore()
    sync_native(metastore, TableName.parse("lake.t"), log.update())
    sync_native(metastore, TableName.parse("ops.maintenance"), book.log.update())
    catalog = WatchedMetastore(lambda: metastore, ["lake", "ops"], "{database}_symlink")
    monkeypatch.setattr("pydelta.tools.ui.sources.open_catalog", lambda *_: catalog)
    code, out, _ = run(capsys, "lake.t", "--dry-run", "--metastore", "thrift://there:9083")
    assert (code, out.splitlines()[0]) == (0, "lake.t, version 0: 60 files, 5.9 KiB")
    assert "nothing is due" in out  # it was done a moment ago
    append("a", [1]).run(log)
    code, _, err = run(capsys, "lake.none", "--dry-run", "--metastore", "thrift://there:9083")
    assert code == 1
    assert "The metastore has no Delta table lake.none" in err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["/t"], "Add --dry-run. To do it now, run: python jobs/maintain.py /t"),
        (["lake.t", "--dry-run"], "Give the table's location, or --metastore"),
        (["/no/such/table", "--dry-run"], "There is no Delta table at"),
        (["/t", "--dry-run", "--default", "vacum=lite"], "Did you mean 'vacuum'"),
    ],
)
def test_what_cannot_be_answered_says_what_to_do(capsys, tmp_path, monkeypatch, argv, said):
    monkeypatch.delenv("PYDELTA_METASTORE", raising=False)
    if "--default" in argv:
        log = DeltaLog.for_table(str(tmp_path / "t"))
        create_table(log)
        argv = [log.uri, *argv[1:]]
    code, out, err = run(capsys, *argv)
    assert (code, out) == (1, "")
    assert said in err
    assert "Traceback" not in err
