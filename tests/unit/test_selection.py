"""Which tests `make test` runs: together the cases run what all of them do."""

from __future__ import annotations

import numpy as np
import pytest
from selection import choosing
from selection.choosing import TURNS, LeftOut, chosen, is_its_third, is_its_turn


def branches(*numbers):
    return np.array(numbers, np.int64)


def run(candidates, seconds=None):
    seconds = seconds or dict.fromkeys(candidates, 1.0)
    return chosen({name: branches(*found) for name, found in candidates.items()}, seconds, 9)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(choosing, "FEW_BRANCHES", 1)


@pytest.mark.parametrize(
    ("candidates", "seconds", "taken", "in_turn"),
    [
        ({"t[a]": (1, 2), "t[b]": (1,), "t[c]": (3,)}, None, {"t[a]", "t[c]"}, set()),
        ({"t[a]": (1, 2, 3), "t[b]": (1, 2), "t[c]": (3,)}, {"t[a]": 9, "t[b]": 1, "t[c]": 1}, {"t[b]", "t[c]"}, set()),
        ({"t[a]": (1, 2), "u[b]": (1,), "u[c]": (2,)}, {"t[a]": 1, "u[b]": 5, "u[c]": 4}, {"t[a]"}, {"u[c]"}),
        ({"t": (1, 2, 3), "u": (1,)}, {"t": 1.4, "u": 0.4}, {"t", "u"}, set()),
        ({"t": (1,), "u": (1,)}, {"t": 0.9, "u": 0.8}, {"u"}, {"t"}),
        ({"t": (1,), "u[a]": (1,), "u[b]": (1,)}, {"t": 3, "u[a]": 0.2, "u[b]": 0.2}, {"u[a]", "u[b]"}, {"t"}),
        ({"t[a]": (), "t[b]": ()}, None, {"t[a]"}, set()),
        ({"t[a]": (1,), "t[b]": (2,), "t[c]": (2,)}, {"t[a]": 1, "t[b]": 2, "t[c]": 3}, {"t[a]"}, {"t[b]"}),
    ],
    ids=["run by others", "cheapest", "none is needed", "a part", "of two one", "cheap", "elsewhere", "slow"],
)
def test_branches_are_run_at_the_least_cost(candidates, seconds, taken, in_turn):
    choice = run(candidates, seconds)
    assert choice.taken == taken
    assert choice.in_turn == in_turn
    assert choice.left_out == candidates.keys() - taken - in_turn


def test_a_test_that_is_not_listed_runs():
    left_out = LeftOut(frozenset({"t[b]", "t[c]"}))
    assert [name for name in ("t[a]", "t[b]", "t[c]", "t[new]", "t") if name not in left_out] == ["t[a]", "t[new]", "t"]


def test_parts_of_those_left_out_are_all_of_them():
    names = [f"t[{number}]" for number in range(100)]
    parts = [{name for name in names if name not in LeftOut(frozenset(names), k, 4)} for k in range(1, 5)]
    assert sum(map(len, parts)) == 100
    assert set().union(*parts) == set(names)
    assert all(len(part) > 5 for part in parts)


def test_a_test_by_turns_runs_in_one_of_so_many_parts_and_never_without_one():
    names = [f"t{number}" for number in range(100)]
    assert [name for name in names if name not in LeftOut(frozenset(), in_turn=frozenset(names))] == []
    for name in names:
        runs = [k for k in range(1, 25) if name not in LeftOut(frozenset(), k, 24, frozenset(names))]
        assert len(runs) == 24 / TURNS


def test_a_test_of_a_server_runs_with_every_third_part_and_without_one_always():
    names = [f"tests/serve/test_dbt.py::test_{number}" for number in range(50)]
    for name in names:
        turns = [number for number in range(1, 25) if is_its_third(name, f"{number}/24")]
        assert turns in [list(range(first, 25, 3)) for first in (1, 2, 3)]
        assert is_its_third(f"{name}[case]", "5/24") == is_its_third(name, "5/24")
        assert is_its_third(name, None)
    assert 8 < sum(is_its_third(name, "1/24") for name in names) < 26


def test_each_file_has_a_turn_of_its_own_and_none_without_a_part():
    names = ["tests/serve/test_dbt.py::a", "tests/serve/test_dbt.py::b[1]", "tests/model/test_model.py::c"]
    for name in names:
        turns = [number for number in range(1, 25) if is_its_turn(name, f"{number}/24")]
        assert len(turns) == 24 / TURNS
        assert not is_its_turn(name, None)
    assert is_its_turn(names[0], "3/24") == is_its_turn(names[1], "3/24")
