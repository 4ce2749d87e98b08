"""A command whose report cannot be printed: what it did stays done, and its exit code says so."""

from __future__ import annotations

import os
import subprocess
import sys

import polars as pl
import pyarrow as pa
import pytest

import catalog_sync.cli
import pydelta
from pydelta.api.cli import cli, entry
from pydelta.errors import CommitStateUnknownError
from pydelta.log import DeltaLog
from pydelta.protocol.actions import Protocol
from pydelta.storage import open_store
from pydelta.testing.tables import TableBuilder
from pydelta.tools.jobs import JobParser, JobReport, run_job

VECTORS = ("deletionVectors",)
PROTOCOL = Protocol(min_reader_version=3, min_writer_version=7, reader_features=VECTORS, writer_features=VECTORS)
CHANGING = {
    "delete": ["delete", "{table}", "--where", "id = 2"],
    "update": ["update", "{table}", "--set", "s='x'", "--all-rows", "--json"],
    "append": ["append", "{table}", "{rows}"],
    "merge": ["merge", "{table}", "{rows}", "--on", "id"],
    "optimize": ["optimize", "{table}", "--zorder-by", "id"],
    "checkpoint": ["checkpoint", "{table}"],
    "cleanup": ["cleanup", "{table}"],
    "generate": ["generate", "{table}"],
    "vacuum": ["vacuum", "{table}", "--dry-run"],
    "fsck": ["fsck", "{table}"],
    "maintain": ["maintain", "{table}", "--dry-run"],
}
PRINTING = {
    "history": (entry.main, ["history", "{table}"]),
    "history by Typer": (cli.main, ["history", "{table}"]),
    "detail": (cli.main, ["detail", "{table}"]),
    "files": (cli.main, ["files", "{table}", "--json"]),
    "ddl": (catalog_sync.cli.main, ["ddl", "{table}", "--entry", "d.t"]),
}


@pytest.fixture
def table(tmp_path):
    path = str(tmp_path / "t")
    built = TableBuilder(open_store(path), columns={"id": "long", "s": "string"}, protocol=PROTOCOL)
    schema = pa.schema([("id", pa.int64()), ("s", pa.string())])
    for ids in ([1, 2], [3, 4]):
        built.commit(built.file(pa.table({"id": ids, "s": ["a", "b"]}, schema=schema)))
    pl.DataFrame({"id": [3, 9], "s": ["b", "new"]}).write_parquet(tmp_path / "rows.parquet")
    yield path
    DeltaLog.clear_cache()


def full():
    return os.open("/dev/full", os.O_WRONLY)


def closed_pipe():
    read, write = os.pipe()
    os.close(read)
    return write


def outcome(monkeypatch, capsys, number, main, arguments, table):
    """Exit code and standard error of a command that prints to a file descriptor."""
    words = [word.format(table=table, rows=os.path.join(os.path.dirname(table), "rows.parquet")) for word in arguments]
    with os.fdopen(number, "w") as out, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", out)
        try:
            main(words)
            code = 0
        except SystemExit as stopped:
            code = stopped.code or 0
    return code, capsys.readouterr().err


@pytest.mark.parametrize("where", [full, closed_pipe])
@pytest.mark.parametrize("name", list(CHANGING))
def test_a_command_that_did_its_work_ends_with_0_where_its_report_cannot_be_printed(
    monkeypatch, capsys, table, name, where
):
    code, err = outcome(monkeypatch, capsys, where(), entry.main, CHANGING[name], table)
    assert code == 0
    assert "Standard output could not be written (" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("name", list(PRINTING))
def test_a_command_that_only_prints_ends_with_1_on_a_full_disk_and_with_0_where_nobody_reads(
    monkeypatch, capsys, table, name
):
    code, err = outcome(monkeypatch, capsys, full(), *PRINTING[name], table)
    assert (code, "No space left on device" in err) == (1, True)
    assert outcome(monkeypatch, capsys, closed_pipe(), *PRINTING[name], table)[0] == 0


def test_an_error_keeps_its_code_where_nothing_can_be_printed(monkeypatch, capsys, table):
    code, err = outcome(monkeypatch, capsys, full(), entry.main, ["delete", table, "--where", "nope = 1"], table)
    assert (code, err.startswith("Error: ")) == (1, True)
    assert pydelta.open(table).version == 1


@pytest.mark.parametrize(("error", "expected"), [(None, 0), (CommitStateUnknownError("perhaps", txn_id="1"), 3)])
def test_a_job_keeps_its_code_where_its_line_cannot_be_printed(monkeypatch, capsys, error, expected):
    def work(given):
        if error is not None:
            raise error
        return JobReport(line={"rows": 1})

    with os.fdopen(full(), "w") as out, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", out)
        assert run_job(JobParser(prog="sweep.py"), work, []) == expected
    assert "Standard output could not be written" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ['"$@" > /dev/full 2> /dev/full', '"$@" >&- 2>&-'])
def test_a_process_that_committed_ends_with_0_whatever_became_of_its_output(table, shell):
    command = ["bash", "-c", shell, "-", sys.executable, "-m", "pydelta", "delete", table, "--where", "id = 2"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert (ended.returncode, "Traceback" in ended.stderr, "Exception ignored" in ended.stderr) == (0, False, False)
    assert (pydelta.open(table).version, pydelta.open(table).scan().num_rows) == (2, 3)


def test_a_process_whose_reader_is_gone_ends_with_0(table):
    command = f"set -o pipefail; ({sys.executable} -m pydelta update {table} --set s=\"'x'\" --all-rows) | true"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False)
    assert pydelta.open(table).version == 2
