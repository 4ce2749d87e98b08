"""The check of two versions on one table finds rows that are lost, doubled or left, and versions that differ."""

from __future__ import annotations

import pytest

from tests.upgrade.steps import BESIDE, EARLIER, IN_TURN, NOW, Step, expected_after, problems

STEP = Step(NOW, "append", 0, 3)


def read(*ids, version=1):
    return {"ids": list(ids), "version": version}


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({EARLIER: read(0, 1, 2), NOW: read(0, 1, 2)}, []),
        ({EARLIER: read(0, 2)}, [f"After append by {NOW}, {EARLIER} lacks [1], and has [] too often."]),
        ({NOW: read(0, 1, 1, 2)}, [f"After append by {NOW}, {NOW} lacks [], and has [1, 1] too often."]),
        ({NOW: read(0, 1, 2, 9)}, [f"After append by {NOW}, {NOW} lacks [], and has [9] too often."]),
    ],
    ids=["equal", "lost", "doubled", "left"],
)
def test_rows_that_differ_are_named(answers, said):
    assert problems(STEP, [0, 1, 2], answers) == said


def test_versions_that_differ_are_named():
    (said,) = problems(STEP, [0], {EARLIER: read(0), NOW: read(0, version=2)})
    assert said.startswith(f"After append by {NOW}, the versions of the table differ")


def test_what_has_to_be_there_follows_from_the_steps():
    assert expected_after([STEP, Step(NOW, "delete", 1), Step(EARLIER, "checkpoint", 0)]) == [0, 2]
    assert expected_after([Step(NOW, "many", 3, 3)]) == [3, 5]
    assert len(expected_after([*IN_TURN, *BESIDE])) == 143 + 16 + 17


def test_each_version_does_each_thing():
    assert {(step.by, step.do) for step in [*IN_TURN, *BESIDE]} == {
        (by, do) for by in (EARLIER, NOW) for do in ("append", "delete", "checkpoint", "many")
    }
