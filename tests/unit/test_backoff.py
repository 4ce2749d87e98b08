"""Pauses between attempts: how they grow, how much of them is random, where they end."""

from __future__ import annotations

import pytest

from pydelta.storage.backoff import Backoff


@pytest.mark.parametrize(
    ("jitter", "picked", "expected"),
    [
        (0.0, 0.3, [0.1, 0.3, 0.9, 1.0, 1.0]),
        (1.0, 0.5, [0.05, 0.15, 0.45, 0.5, 0.5]),
        (0.5, 0.0, [0.05, 0.15, 0.45, 0.5, 0.5]),
        (0.5, 0.5, [0.075, 0.225, 0.675, 0.75, 0.75]),
    ],
)
def test_a_pause_is_a_function_of_the_attempt_and_of_what_was_picked(jitter, picked, expected):
    backoff = Backoff(first_ms=100, factor=3, longest_ms=1000, jitter=jitter, pick=lambda: picked)
    assert [backoff.seconds(attempt) for attempt in (1, 2, 3, 4, 100_000)] == pytest.approx(expected)


def test_there_is_no_pause_before_the_first_attempt():
    assert Backoff(first_ms=100, jitter=0).seconds(0) == 0.0


def test_pauses_are_jittered_and_bounded():
    pauses: list[float] = []
    backoff = Backoff(first_ms=10, longest_ms=100, sleep=pauses.append, pick=lambda: 0.5)
    for attempt in (1, 2, 3, 4, 5, 60):
        backoff.pause(attempt)
    assert pauses == [0.005, 0.01, 0.02, 0.04, 0.05, 0.05]
    real = Backoff(first_ms=10, sleep=pauses.append)
    for _ in range(20):
        real.pause(3)
    assert len(set(pauses[6:])) > 10
    assert all(0 <= pause <= 0.04 for pause in pauses[6:])
