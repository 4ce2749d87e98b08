"""Which sidecars of the checkpoint before are named again, and how many there come to be."""

from __future__ import annotations

import pytest

from pydelta.log.checkpoint.sidecars import SidecarRows, choose_kept


def rows(count: int, *, changed: bool = False, expired: int = 0) -> SidecarRows:
    return SidecarRows(rows=count, is_as_written=not changed, expired=expired)


@pytest.mark.parametrize(
    ("sidecars", "new_rows", "kept"),
    [
        ([], 10, set()),
        ([rows(50_000)], 10, {0}),
        ([rows(50_000)], 0, {0}),
        ([rows(50_000), rows(50_000, changed=True), rows(50_000)], 10, {0, 2}),
        ([rows(50_000, expired=25_000)], 10, {0}),
        ([rows(50_000, expired=25_001)], 10, set()),
        ([rows(0)], 10, set()),
        ([rows(20_000)], 10, {0}),  # far larger than what is new
        ([rows(40)], 10, set()),
        ([rows(41)], 10, {0}),
        ([rows(50_000), rows(200), rows(40)], 10, {0}),  # 40 joins the 10, so 200 is not much larger than the 50
        ([rows(50_000), rows(201), rows(40)], 10, {0, 1}),
        ([rows(50_000), rows(24_000)], 6_000, {0}),
        ([rows(50_000), rows(100)], 0, {0, 1}),
        ([rows(50_000, changed=True), rows(24_000)], 1, set()),
    ],
)
def test_what_is_named_again(sidecars, new_rows, kept):
    assert choose_kept(sidecars, new_rows=new_rows) == kept


def test_sidecars_stay_few_and_rows_are_written_a_few_times_however_many_checkpoints_there_are():
    sidecars: list[int] = []
    written = 0
    for _ in range(2_000):
        kept = choose_kept([rows(count) for count in sidecars], new_rows=20)
        rewritten = 20 + sum(count for number, count in enumerate(sidecars) if number not in kept)
        sidecars = [count for number, count in enumerate(sidecars) if number in kept] + [rewritten]
        written += rewritten
        assert len(sidecars) <= 6
    assert sum(sidecars) == 40_000
    assert written < 40_000 * 12
