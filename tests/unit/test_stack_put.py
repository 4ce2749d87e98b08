"""The program behind make put, as the client container runs it: a whole file or nothing, and never into a table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pydelta.log import DeltaLog
from pydelta.testing.operations import add_file, create_table

PROGRAM = Path(__file__).resolve().parents[2] / "images" / "spark" / "bin" / "put"
TEXT = "id,name\n1,Zürich 東京 🦆\n".encode()


def put(uri, size, data=TEXT):
    done = subprocess.run([sys.executable, PROGRAM, uri, str(size)], input=data, capture_output=True, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


def test_a_file_arrives_as_it_is(tmp_path):
    target = tmp_path / "days" / "Zürich 1.csv"
    assert put(f"file://{target}", len(TEXT)) == (0, f"file://{target}: {len(TEXT)} bytes\n")
    assert target.read_bytes() == TEXT


@pytest.mark.parametrize("sent", [TEXT[:10], b"", TEXT + b"more"])
def test_what_is_not_of_the_size_that_was_announced_is_not_written(tmp_path, sent):
    """A client that is killed ends the input as one that is done does."""
    (tmp_path / "day.csv").write_bytes(b"of before")
    code, said = put(f"file://{tmp_path}/day.csv", len(TEXT), sent)
    assert code == 2
    assert f"{len(sent)} of {len(TEXT)} bytes arrived" in said
    assert [path.name for path in tmp_path.iterdir()] == ["day.csv"]
    assert (tmp_path / "day.csv").read_bytes() == b"of before"


@pytest.mark.parametrize(
    "inside", ["x.csv", "_delta_log/x.csv", "_delta_log/00000000000000000009.json", "day=1/deep/x.csv"]
)
def test_nothing_is_put_into_a_table(tmp_path, inside):
    table = tmp_path / "lake" / "orders"
    create_table(DeltaLog.for_table(str(table)), [add_file("a", [1])])
    before = sorted(path.name for path in table.rglob("*"))
    code, said = put(f"file://{table}/{inside}", len(TEXT))
    assert code == 1
    assert f"is in the folder of a table, file://{table}." in said
    assert "make submit JOB=ingest" in said
    assert sorted(path.name for path in table.rglob("*")) == before
    assert put(f"file://{tmp_path}/lake/orders.csv", len(TEXT))[0] == 0, "beside a table is not inside it"


@pytest.mark.parametrize("words", [("day.csv", "3"), ("s3a://work/", "3"), ("s3a://work/day.csv", "three"), ("",)])
def test_an_address_or_a_size_that_is_none_is_said(words):
    done = subprocess.run([sys.executable, PROGRAM, *words], input=b"abc", capture_output=True, check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (1, False)
    assert b"put takes the address of one object" in done.stderr
