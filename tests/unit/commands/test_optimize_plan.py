"""Which files OPTIMIZE rewrites, and which of them together."""

from __future__ import annotations

import time

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydelta.commands.optimize.plan import BIN, SizeLimits, pack, plan_compaction, plan_layout, size_summary


def files(sizes, partitions=None, deleted=None):
    count = len(sizes)
    return pl.DataFrame(
        {
            "path": [f"f{number:04d}" for number in range(count)],
            "size": pl.Series(sizes, dtype=pl.Int64),
            "pv:p": pl.Series(partitions or ["a"] * count, dtype=pl.String),
            "deleted_ratio": pl.Series(deleted or [0.0] * count, dtype=pl.Float64),
        }
    )


def bins(frame):
    """Paths by bin, sorted."""
    return sorted(sorted(part["path"].to_list()) for part in frame.partition_by(BIN))


def limits(target=100, minimum=100, **others):
    return SizeLimits(target_bytes=target, min_bytes=minimum, **others)


def compacted(frame, **others):
    return bins(plan_compaction(frame, partition_by=["pv:p"], limits=limits(**others)))


@pytest.mark.parametrize(
    ("frame", "options", "expected"),
    [
        (files([]), {}, []),
        (files([10]), {}, []),
        (files([10, 10]), {}, [["f0000", "f0001"]]),
        (files([10, 200]), {}, []),
        (files([60, 50, 40]), {}, [["f0001", "f0002"]]),
        (files([60, 50, 40, 60]), {}, [["f0001", "f0002"]]),
        (files([50, 50, 50, 50]), {}, [["f0000", "f0001"], ["f0002", "f0003"]]),
        (files([10, 10], ["a", "b"]), {}, []),
        (files([10, 10, 10, 10], ["a", "b", "a", "b"]), {}, [["f0000", "f0002"], ["f0001", "f0003"]]),
        (files([10, 10, 10, 10], [None, "b", None, "b"]), {}, [["f0000", "f0002"], ["f0001", "f0003"]]),
        (files([10, 10, 10]), {"minimum": 10}, []),
        (files([30, 30, 30]), {"min_files": 4}, []),
        (files([30, 30, 30, 30]), {"min_files": 4}, [["f0000", "f0001", "f0002"]]),
        (files([30, 30, 30], ["a", "a", "b"]), {"min_files": 3}, []),
        (files([200], deleted=[0.5]), {}, [["f0000"]]),
        (files([200, 10], deleted=[0.5, 0.0]), {}, [["f0000"]]),
        (files([200], deleted=[0.05]), {}, []),
        (files([30, 20, 10, 40]), {"max_files_per_partition": 2}, [["f0001", "f0002"]]),
        (files([30, 20, 10], ["a", "a", "b"]), {"max_files_per_partition": 2}, [["f0000", "f0001"]]),
        (files([0, 0, 0]), {}, [["f0000", "f0001", "f0002"]]),
    ],
)
def test_compaction_takes_what_is_worth_it(frame, options, expected):
    assert compacted(frame, **options) == expected


def test_an_unpartitioned_table_is_one_partition():
    frame = files([10, 10, 10]).drop("pv:p")
    assert bins(plan_compaction(frame, partition_by=[], limits=limits())) == [["f0000", "f0001", "f0002"]]
    few = plan_compaction(frame, partition_by=[], limits=limits(max_files_per_partition=2))
    assert bins(few) == [["f0000", "f0001"]]


@given(
    sizes=st.lists(st.integers(0, 150), max_size=60),
    partitions=st.lists(st.sampled_from(["a", "b", None]), min_size=60, max_size=60),
    seed=st.integers(0, 5),
)
def test_bins_hold_one_partition_and_no_more_than_the_target(sizes, partitions, seed):
    frame = files(sizes, partitions[: len(sizes)])
    packed = pack(frame, partition_by=["pv:p"], target_bytes=100)
    assert sorted(packed["path"].to_list()) == frame["path"].to_list()
    for part in packed.partition_by(BIN):
        assert part["pv:p"].n_unique() == 1
        assert part["size"].sum() <= 100 or part.height == 1
    numbers = packed[BIN].unique().sort().to_list()
    assert numbers == list(range(len(numbers)))
    shuffled = pack(frame.sample(fraction=1, shuffle=True, seed=seed), partition_by=["pv:p"], target_bytes=100)
    assert shuffled.equals(packed)


@given(sizes=st.lists(st.integers(1, 150), max_size=40))
def test_what_a_compaction_leaves_is_left_by_the_next_one(sizes):
    frame = files(sizes)
    for _ in range(40):  # new files weigh what went into them
        plan = plan_compaction(frame, partition_by=["pv:p"], limits=limits())
        if plan.is_empty():
            break
        kept = frame.filter(~pl.col("path").is_in(plan["path"].implode()))
        merged = plan.group_by(BIN).agg(pl.col("size").sum())["size"].to_list()
        assert len(merged) < plan.height
        frame = files([*kept["size"].to_list(), *merged])
    else:
        pytest.fail("it never came to an end")


def test_a_million_files_are_planned_in_a_moment():
    count = 1_000_000
    frame = pl.DataFrame(
        {
            "path": pl.int_range(count, eager=True).cast(pl.String),
            "size": pl.int_range(count, eager=True) % 100 + 1,
            "pv:p": (pl.int_range(count, eager=True) % 1000).cast(pl.String),
            "deleted_ratio": pl.repeat(0.0, count, eager=True),
        }
    )
    started = time.process_time()
    plan = plan_compaction(frame, partition_by=["pv:p"], limits=limits(target=5_000))
    assert time.process_time() - started < 20
    assert plan.height > 900_000


def ordered(sizes, groups, foreign=None):
    count = len(sizes)
    return files(sizes).with_columns(
        pl.Series("group", groups, dtype=pl.String), pl.Series("foreign", foreign or [False] * count, dtype=pl.Boolean)
    )


@pytest.mark.parametrize(
    ("frame", "incremental", "expected"),
    [
        (ordered([10, 500], [None, None]), True, [["f0000", "f0001"]]),
        (ordered([10, 500], [None, "one"]), True, [["f0000"]]),
        (ordered([10, 20], [None, "one"]), True, [["f0000", "f0001"]]),
        (ordered([10, 20], ["one", "one"]), True, []),
        (ordered([10, 20], ["one", "two"]), True, [["f0000", "f0001"]]),
        (ordered([500, 600], ["one", "two"]), True, []),
        (ordered([10, 10], [None, None], [False, True]), True, [["f0000"]]),
        (ordered([10, 500], ["one", "one"], [False, True]), False, [["f0000", "f0001"]]),
        (ordered([], []), True, []),
        (ordered([], []), False, []),
    ],
)
def test_ordering_takes_what_is_not_in_order(frame, incremental, expected):
    plan = plan_layout(frame, partition_by=["pv:p"], small_bytes=100, incremental=incremental)
    assert bins(plan) == expected
    unpartitioned = plan_layout(frame.drop("pv:p"), partition_by=[], small_bytes=100, incremental=incremental)
    assert bins(unpartitioned) == expected


def test_sizes_are_summed_up_as_the_reference_engine_does():
    assert size_summary([10, 30]) == {"min": 10, "max": 30, "avg": 20.0, "totalFiles": 2, "totalSize": 40}
    assert size_summary([]) == {"min": None, "max": None, "avg": 0.0, "totalFiles": 0, "totalSize": 0}
