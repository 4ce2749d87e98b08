"""How many files a trigger takes."""

from __future__ import annotations

import pytest

from pydelta.commands.stream.admission import AdmissionBudget


@pytest.mark.parametrize(
    ("limits", "sizes", "taken"),
    [
        ({}, [5, 5, 5], 3),
        ({"max_files": 2}, [5, 5, 5], 2),
        ({"max_files": 9}, [5, 5, 5], 3),
        ({"max_bytes": 1}, [5, 5, 5], 1),
        ({"max_bytes": 5}, [5, 5, 5], 1),
        ({"max_bytes": 6}, [5, 5, 5], 2),
        ({"max_bytes": 99}, [5, 5, 5], 3),
        ({"max_bytes": 11, "max_files": 2}, [5, 5, 5], 2),
        ({"max_bytes": 4, "max_files": 2}, [5, 5, 5], 1),
        ({"max_bytes": 6}, [0, 0, 9, 1], 3),
        ({"max_files": 1}, [], 0),
    ],
)
def test_files_are_taken_while_something_of_both_limits_is_left(limits, sizes, taken):
    assert AdmissionBudget(**limits).take(sizes) == taken


def test_a_spent_budget_takes_nothing():
    budget = AdmissionBudget(max_files=2)
    assert budget.take([1]) == 1
    assert not budget.is_spent
    assert budget.take([1, 1]) == 1
    assert budget.is_spent
    assert budget.take([1]) == 0
    assert not budget.take_whole([1])


def test_files_that_belong_together_are_taken_whole_even_beyond_the_limit():
    budget = AdmissionBudget(max_files=2, max_bytes=100)
    assert budget.take_whole([1, 1, 1])
    assert budget.is_spent
