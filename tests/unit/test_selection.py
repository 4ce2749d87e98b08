"""Which tests `make test` runs: together they run what all of them do."""

from __future__ import annotations

import numpy as np
import pytest
from selection.choosing import LeftOut, chosen, folded


def branches(*numbers):
    return np.array(numbers, np.int64)


def run(candidates, seconds=None, always=()):
    seconds = seconds or dict.fromkeys(candidates, 1.0)
    return chosen({name: branches(*found) for name, found in candidates.items()}, seconds, branches(*always), 9)


@pytest.mark.parametrize(
    ("candidates", "seconds", "always", "expected"),
    [
        ({"f::a": (1, 2), "f::b": (1,), "f::c": (3,)}, None, (), {"f::a", "f::c"}),
        ({"f::a": (1, 2, 3), "f::b": (1, 2), "f::c": (3,)}, {"f::a": 9, "f::b": 1, "f::c": 1}, (), {"f::b", "f::c"}),
        ({"f::a": (1,), "f::b": (2,), "f::c": (2,)}, {"f::a": 1, "f::b": 2, "f::c": 3}, (1,), {"f::a", "f::b"}),
        ({"f::a": (1, 2), "g::b": (1,), "g::c": (2,)}, {"f::a": 1, "g::b": 5, "g::c": 4}, (), {"f::a", "g::c"}),
        ({"f::a": (), "f::b": ()}, None, (), {"f::a"}),
    ],
    ids=["what others run, too", "cheapest", "what always runs", "one of each file", "nothing of ours"],
)
def test_every_branch_is_run_at_the_least_cost(candidates, seconds, always, expected):
    assert run(candidates, seconds, always) == expected


def test_functions_stand_for_all_of_their_cases():
    tests = ["f::a[1]", "f::a[2]", "f::b[1]", "f::b[2]", "f::c"]
    assert folded(["f::a[1]", "f::a[2]", "f::b[2]", "f::c"], tests) == ["f::a", "f::b[2]", "f::c"]


def test_a_test_that_is_not_listed_runs():
    left_out = LeftOut(frozenset({"f::a", "f::b[2]"}))
    tests = ["f::a[1]", "f::a[3]", "f::b[2]", "f::b[1]", "f::ab", "f::new"]
    assert [name for name in tests if name not in left_out] == ["f::b[1]", "f::ab", "f::new"]


def test_parts_of_those_left_out_are_all_of_them():
    names = [f"f::a[{number}]" for number in range(100)]
    parts = [{name for name in names if name not in LeftOut(frozenset({"f::a"}), k, 4)} for k in range(1, 5)]
    assert sum(map(len, parts)) == 100
    assert set().union(*parts) == set(names)
    assert all(len(part) > 5 for part in parts)
