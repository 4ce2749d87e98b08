"""What every job does with its arguments, its report and its errors; and the exit code of each kind of error."""

from __future__ import annotations

import json

import pytest

from catalog_sync.errors import MetastoreError, MetastoreUnavailableError, NotOursError
from pydelta.errors import (
    CatalogSyncError,
    CommitStateUnknownError,
    ConcurrentWriteException,
    InvalidArgumentError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
)
from pydelta.tools.jobs import JobParser, JobReport, error_row, run_job


@pytest.fixture
def parser():
    parser = JobParser(prog="sweep.py", description="Sweeps.")
    parser.add_argument("--room", required=True)
    return parser


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidArgumentError("no"), 1),
        (StorageError("gone"), 1),
        (StorageError("busy", retryable=True), 2),
        (ObjectNotFoundError("not there"), 1),
        (StoragePermissionError("not yours", retryable=True), 2),
        (ConcurrentWriteException("lost"), 2),
        (CommitStateUnknownError("perhaps", txn_id="1"), 3),
        (MetastoreError("no"), 1),
        (MetastoreUnavailableError("down"), 2),
        (NotOursError("theirs"), 1),
    ],
)
def test_an_error_knows_its_exit_code(error, code):
    assert error.exit_code == code
    assert error_row(error) == {"error": error.code, "message": str(error), "exit_code": code}


def test_what_the_metastore_raises_is_a_catalog_sync_error():
    assert issubclass(MetastoreError, CatalogSyncError)
    assert issubclass(NotOursError, CatalogSyncError)


def test_a_report_is_one_line_of_json(parser, capsys):
    def work(given):
        return JobReport(line={"swept": parser.parse_args(given).room})

    assert run_job(parser, work, ["--room", "hall"]) == 0
    assert capsys.readouterr().out == '{"swept": "hall"}\n'


def test_the_worst_row_gives_the_exit_code(parser, capsys):
    rows = [{"room": "a"}, {"room": "b"} | error_row(StorageError("busy", retryable=True)), {"room": "c"}]
    assert run_job(parser, lambda given: JobReport.of_rows("rooms", rows), ["--room", "x"]) == 2
    assert json.loads(capsys.readouterr().out) == {"rooms": rows}
    assert JobReport.of_rows("rooms", []).exit_code == 0


def test_an_error_is_one_line_of_json_and_its_code(parser, capsys):
    def work(given):
        raise StorageError("busy", retryable=True, hint="Run it again.")

    assert run_job(parser, work, ["--room", "hall"]) == 2
    assert json.loads(capsys.readouterr().out) == {
        "error": "DELTA_STORAGE_ERROR",
        "message": "[DELTA_STORAGE_ERROR] busy\n  Next: Run it again.",
        "exit_code": 2,
    }


def never(given):
    raise AssertionError("the work was begun")


@pytest.mark.parametrize("arguments", [[], ["--attic"], ["--room"]])
def test_wrong_arguments_are_an_error_before_anything_is_done(parser, capsys, arguments):
    assert run_job(parser, never, arguments) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["error"], said["exit_code"], "--help" in said["message"]) == ("DELTA_INVALID_ARGUMENT", 1, True)


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--attic", "--help"]])
def test_help_is_printed_and_nothing_is_done(parser, capsys, arguments):
    assert run_job(parser, never, arguments) == 0
    assert "Sweeps." in capsys.readouterr().out


def test_arguments_of_the_process_are_taken_by_default(parser, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["sweep.py", "--room", "hall"])
    assert run_job(parser, lambda given: JobReport(line={"given": given})) == 0
    assert json.loads(capsys.readouterr().out) == {"given": ["--room", "hall"]}


def test_another_exception_is_not_hidden(parser):
    def work(given):
        raise RuntimeError("a mistake of the program")

    with pytest.raises(RuntimeError, match="mistake"):
        run_job(parser, work, ["--room", "hall"])
