"""How many files of the engine an operation without a JVM enters: a reader who follows it must open them."""

from __future__ import annotations

import gc
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from pydelta.api.python.local import open_table
from pydelta.log import DeltaLog
from pydelta.testing.operations import create_table

ROOT = Path(__file__).resolve().parent.parent
OURS = tuple(f"{ROOT / package}/" for package in ("pydelta", "catalog_sync"))


def rows(*partitions):
    return pa.table({"p": [str(number) for number in partitions], "x": pa.array(partitions, pa.int64())})


TRIPS = {
    "delete one partition": (45, lambda path: open_table(path).delete("p = '1'")),
    "append one row": (54, lambda path: open_table(path).append(rows(1))),
    "scan with a condition": (42, lambda path: open_table(path).scan("x = 1")),
}
"""Operation -> the most files that it may enter, and what does it."""


def entered(run, path):
    """Return the files of which a Python function is called."""
    files = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(OURS):
            files.add(str(Path(code.co_filename).relative_to(ROOT)))

    before = sys.getprofile()
    gc.collect()
    gc.disable()  # Finalizers of other tests' objects would be called in the middle; those of Spark's are files, too.
    sys.setprofile(note)
    try:
        run(path)
    finally:
        sys.setprofile(before)
        gc.enable()
    return files


@pytest.mark.parametrize("name", TRIPS)
def test_an_operation_enters_few_files(tmp_path, name):
    most, run = TRIPS[name]
    found = set()
    made = str(tmp_path / "made")
    create_table(DeltaLog.for_table(made))
    open_table(made).append(rows(*range(10)))
    for number in range(2):  # the first run imports modules; a copy is a table that the process has not read
        found = entered(run, str(shutil.copytree(made, tmp_path / str(number))))
    assert len(found) > 20
    assert len(found) <= most, "\n".join(sorted(found))
