"""Numbers of charts beside those of Trino."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.verify.charts import differences

NUMBERS = st.one_of(st.integers(-(10**15), 10**15), st.floats(-1e15, 1e15, allow_nan=False), st.none())


@given(st.dictionaries(st.text("abc", min_size=1), NUMBERS))
def test_what_is_alike_has_no_differences(numbers):
    assert differences(numbers, dict(numbers)) == []
    assert differences({name: None if one is None else str(one) for name, one in numbers.items()}, numbers) == []


@given(st.dictionaries(st.text("abc", min_size=1), NUMBERS, min_size=1), st.data())
def test_each_kind_of_difference_is_said(numbers, data):
    name = data.draw(st.sampled_from(sorted(numbers)))
    fewer = {key: value for key, value in numbers.items() if key != name}
    assert differences(fewer, numbers) == [f"There is no chart {name}."]
    assert differences(numbers, fewer) == [f"The chart {name} is not one that is compared."]
    other = 1 if numbers[name] is None else numbers[name] + max(1, abs(numbers[name]) // 1000)
    [said] = differences({**numbers, name: other}, numbers)
    assert said.startswith(f"The chart {name} shows ")


@pytest.mark.parametrize(("shown", "expected"), [(336776, 336775), (0, 1), (1, 0), (None, 0), (0, None), (6.9, 6.8953)])
def test_a_number_that_is_nearly_right_is_wrong(shown, expected):
    assert len(differences({"n": shown}, {"n": expected})) == 1
