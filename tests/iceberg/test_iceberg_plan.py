"""What becomes of manifests, by a table of cases."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydelta.manifests.iceberg.plan import Held, ManifestPlan, Ranges, chunks, homes, plan_manifests

KEPT, LOST, EMPTY, SMALL, OLD = (
    Held(files=100),
    Held(files=100, lost=3),
    Held(files=0),
    Held(files=2),
    Held(files=2, is_current=False),
)

CASES = {
    "nothing before": ([], 5, ManifestPlan()),
    "nothing changed": ([KEPT, KEPT], 0, ManifestPlan(kept=(0, 1))),
    "new files alone": ([KEPT], 5, ManifestPlan(kept=(0,))),
    "lost files": ([KEPT, LOST, KEPT], 0, ManifestPlan(kept=(0, 2), rewritten=(1,))),
    "lost all": ([Held(files=3, lost=3)], 0, ManifestPlan(rewritten=(0,))),
    "only removed ones": ([EMPTY, KEPT], 0, ManifestPlan(kept=(1,))),
    "few small ones": ([SMALL, KEPT, SMALL], 5, ManifestPlan(kept=(0, 1, 2))),
    "many small ones": ([SMALL, KEPT, SMALL, SMALL], 5, ManifestPlan(kept=(1,), merged=(0, 2, 3))),
    "many without new files": ([SMALL] * 4, 0, ManifestPlan(merged=(0, 1, 2, 3))),
    "as many as fit": (
        [Held(files=20), SMALL, Held(files=24), Held(files=24)],
        50,
        ManifestPlan(kept=(3,), merged=(0, 1, 2)),
    ),
    "no room beside new files": ([SMALL] * 3, 99, ManifestPlan(kept=(0, 1, 2))),
    "of an old spec": ([OLD, OLD, OLD, SMALL], 1, ManifestPlan(kept=(0, 1, 2, 3))),
    "small and lost": ([Held(files=2, lost=1), SMALL, SMALL, SMALL], 1, ManifestPlan(rewritten=(0,), merged=(1, 2, 3))),
}


@pytest.mark.parametrize("name", CASES)
def test_what_becomes_of_manifests(name):
    held, new_files, expected = CASES[name]
    assert plan_manifests(held, new_files=new_files, max_files=100, many=3) == expected


MANIFESTS = st.lists(
    st.builds(Held, files=st.integers(0, 60), lost=st.integers(0, 2), is_current=st.booleans()).map(
        lambda one: Held(files=one.files, lost=min(one.files, one.lost), is_current=one.is_current)
    ),
    max_size=12,
)


@given(MANIFESTS, st.integers(0, 150))
def test_every_manifest_with_files_has_one_fate(held, new_files):
    plan = plan_manifests(held, new_files=new_files, max_files=100, many=3)
    assert sorted([*plan.kept, *plan.rewritten, *plan.merged]) == [at for at, one in enumerate(held) if one.files]
    assert all(not held[at].lost for at in (*plan.kept, *plan.merged))
    assert sum(held[at].files for at in plan.merged) + min(new_files, 100) <= 100
    assert len(plan.merged) != 1


def test_small_manifests_stay_few():
    held: list[Held] = []
    written = 0
    for _ in range(3000):
        plan = plan_manifests(held, new_files=1, max_files=1000, many=20)
        merged = sum(held[at].files for at in plan.merged)
        held = [held[at] for at in plan.kept] + [Held(files=merged + 1)]
        written += merged + 1
        assert len(held) <= 20 + 3000 // 250
    assert sum(one.files for one in held) == 3000
    assert written < 3000 * 20


def test_new_files_go_where_their_partition_lost_one():
    lost = [(4, frozenset({("a",), ("b",)})), (7, frozenset({("b",), ("c",)}))]
    assert homes(lost, [("a",), ("b",), ("c",), ("d",)]) == [4, 4, 7, None]


@given(st.integers(0, 1000), st.integers(1, 50))
def test_chunks_are_nearly_equal(count, max_files):
    found = chunks(count, max_files=max_files)
    assert [at for low, high in found for at in range(low, high)] == list(range(count))
    sizes = [high - low for low, high in found]
    assert all(0 < size <= math.ceil(1.5 * max_files) for size in sizes)
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


VALUES = st.none() | st.integers(-5, 5)
PARTITIONS = st.lists(st.tuples(VALUES, VALUES), max_size=6)


@given(PARTITIONS, PARTITIONS)
def test_a_manifest_with_one_of_the_partitions_is_searched(held, wanted):
    bounds = []
    for column in zip(*held, strict=True):
        values = [value for value in column if value is not None]
        bounds.append((None in column, min(values, default=None), max(values, default=None)))
    if set(held) & set(wanted):
        assert Ranges(wanted).may_meet(bounds)


def test_other_manifests_are_not_searched():
    wanted = Ranges([(1, "x"), (9, None)])
    assert not wanted.may_meet([(False, 2, 8), (True, "a", "z")])
    assert not wanted.may_meet([(False, 0, 9), (False, "y", "z")])
    assert not wanted.may_meet([(True, None, None), (True, "a", "z")])
    assert wanted.may_meet([(False, 0, 1), (True, None, None)])
    assert Ranges([(math.nan,)]).may_meet([(False, 1.0, 2.0)])
    assert wanted.may_meet([])
