"""What the stack's fault test says of ledgers and rows."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("faults", Path(__file__).parents[1] / "stack/faults.py")
assert _spec is not None and _spec.loader is not None
faults = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(faults)

RIGHT = {(0, 0): (50, 50), (0, 1): (100, 100)}
DONE = {0: "done", 1: "done", 2: "done"}


def test_a_ledger_is_read_up_to_its_last_whole_line():
    assert faults.steps('[0, "begun"]\n[0, "done"]\n[1, "begun"]\n[1, "do') == {0: "done", 1: "begun"}


@pytest.mark.parametrize(
    ("said", "counted"),
    [
        (DONE, RIGHT),
        ({**DONE, 2: "failed"}, {**RIGHT, (0, 0): (100, 100)}),
        ({**DONE, 2: "unknown"}, RIGHT),
        ({**DONE, 2: "begun"}, {**RIGHT, (0, 0): (100, 100)}),
        ({**DONE, 1: "failed"}, {(0, 0): (50, 50)}),
        ({**DONE, 1: "unknown"}, RIGHT),
        ({**DONE, 1: "begun"}, {(0, 0): (50, 50)}),
        ({**DONE, 0: "unknown"}, {**RIGHT, (0, 0): (100, 100)}),  # it landed after the DELETE
    ],
)
def test_what_may_be(said, counted):
    assert faults.wrong([said], counted) == []


@pytest.mark.parametrize(
    ("said", "counted", "words"),
    [
        (DONE, {(0, 0): (50, 50)}, "step 1 is done: 0 rows"),  # lost
        (DONE, {**RIGHT, (0, 1): (200, 100)}, "100 rows are doubled"),
        ({**DONE, 1: "failed"}, RIGHT, "step 1 is failed: 100 rows"),  # told that nothing was committed
        (DONE, {**RIGHT, (0, 0): (100, 100)}, "step 0 is done: 100 rows, not [50]"),  # the DELETE was lost
        ({**DONE, 2: "failed"}, RIGHT, "step 0 is done: 50 rows, not [100]"),
        (DONE, {**RIGHT, (0, 2): (1, 1)}, "appends nothing"),
        (DONE, {**RIGHT, (0, 7): (100, 100)}, "began in no ledger"),
    ],
)
def test_what_may_not(said, counted, words):
    assert words in " ".join(faults.wrong([said], counted))
