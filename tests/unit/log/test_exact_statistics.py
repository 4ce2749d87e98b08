"""What statistics may stand for a scan: every doubt gives None, and nothing else does."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from pydelta.log import DeltaLog
from pydelta.log.exact_statistics import Bound, ExactStatistics
from pydelta.protocol.actions import AddFile, DeletionVectorDescriptor
from pydelta.storage import MemoryStore
from pydelta.testing import TableBuilder

COLUMNS = {
    "n": "long", "small": "byte", "day": "date", "text": "string", "real": "double", "single": "float",
    "price": "decimal(10,2)", "at": "timestamp", "ntz": "timestamp_ntz", "yes": "boolean",
    "p": "integer", "q": "string",
}  # fmt: skip


@pytest.fixture
def build(request):
    def made(*files, columns=None, partition_columns=("p", "q"), checkpoint=False, **properties):
        DeltaLog.clear_cache()
        store = MemoryStore(f"memory://exact-statistics/{request.node.name}-{len(made.tables)}")
        made.tables.append(store)
        table = TableBuilder(
            store, columns=columns or COLUMNS, partition_columns=partition_columns, properties=properties
        )
        for number, (stats, *rest) in enumerate(files):
            values, vector = (*rest, None, None)[:2]
            values = {"p": "1", "q": "a"} if values is None and partition_columns else values or {}
            table.commit(
                AddFile(
                    path=f"f{number}", partition_values=values, size=1, modification_time=1, data_change=True,
                    stats=stats if isinstance(stats, str | None) else json.dumps(stats), deletion_vector=vector,
                )
            )  # fmt: skip
        if not files:
            table.commit()
        log = DeltaLog(store)
        if checkpoint:
            log.checkpoint()
            log = DeltaLog(store)
        snapshot = log.update()
        exact = ExactStatistics(snapshot.files, snapshot.files.core)

        def ask(column, kind="max"):
            return exact.bound(snapshot.schema.field(column), kind)

        return exact, ask

    made.tables = []
    return made


def stats(rows, *, nulls=None, **bounds):
    """Each keyword: a column and its (min, max)."""
    found = {"numRecords": rows, "nullCount": dict.fromkeys(bounds, 0) | (nulls or {})}
    found["minValues"] = {name: both[0] for name, both in bounds.items() if both}
    found["maxValues"] = {name: both[1] for name, both in bounds.items() if both}
    return found


def vector(cardinality):
    return DeletionVectorDescriptor(
        storage_type="u",
        path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^",
        size_in_bytes=34,
        offset=1,
        cardinality=cardinality,
    )


@pytest.mark.parametrize("checkpoint", [False, True], ids=["json", "checkpoint"])
def test_what_is_exact(build, checkpoint):
    first = stats(3, n=(-5, 2**62), small=(-128, 3), day=("2024-01-01", "2024-02-29"))
    second = stats(2, n=(7, 2**63 - 1), small=(0, 127), day=("1999-12-31", "2000-01-01"))
    exact, ask = build((first, {"p": "10", "q": "é"}), (second, {"p": "9", "q": "z"}), checkpoint=checkpoint)
    assert exact.num_rows() == 5
    assert (ask("n", "min"), ask("n")) == (Bound(value=-5), Bound(value=2**63 - 1))
    assert (ask("small", "min"), ask("small")) == (Bound(value=-128), Bound(value=127))
    assert (ask("day", "min"), ask("day")) == (Bound(value=dt.date(1999, 12, 31)), Bound(value=dt.date(2024, 2, 29)))
    assert (ask("p", "min"), ask("p")) == (Bound(value=9), Bound(value=10)), "as numbers, not as texts"
    assert (ask("q", "min"), ask("q")) == (Bound(value="z"), Bound(value="é")), "by bytes, as Spark compares"


def test_an_empty_table_and_files_without_rows(build):
    exact, ask = build()
    assert (exact.num_rows(), ask("n"), ask("p", "min")) == (0, Bound(value=None), Bound(value=None))
    exact, ask = build((stats(0), {"p": "5", "q": "a"}), (stats(1, n=(1, 1)), {"p": "2", "q": "b"}))
    assert (exact.num_rows(), ask("n")) == (1, Bound(value=1))
    assert ask("p") == Bound(value=2), "a partition without rows has no value"


def test_nulls(build):
    _, ask = build((stats(2, n=None, nulls={"n": 2}),), (stats(3, n=(4, 9), nulls={"n": 1}),))
    assert (ask("n", "min"), ask("n")) == (Bound(value=4), Bound(value=9))
    _, ask = build((stats(2, n=None, nulls={"n": 2}), {"p": None, "q": None}))
    assert (ask("n"), ask("p"), ask("q")) == (Bound(value=None),) * 3
    _, ask = build((stats(2, n=None, nulls={"n": 1}),))
    assert ask("n") is None, "one row has a value, and no bound tells which"
    _, ask = build((stats(2, n=(1, 2), nulls={"n": 2}),))
    assert ask("n") is None, "statistics that contradict themselves"


@pytest.mark.parametrize("column", ["text", "real", "single", "price", "at", "ntz", "yes"])
def test_types_whose_statistics_are_not_the_values(build, column):
    values = {"text": ("a", "b"), "real": (-0.0, 1.5), "single": (0.1, 0.2), "price": (1.25, 2.5),
              "at": ("2024-01-01T00:00:00.123Z",) * 2, "ntz": ("2024-01-01T00:00:00.1",) * 2, "yes": None}  # fmt: skip
    exact, ask = build((stats(2, **{column: values[column]}),))
    assert (exact.num_rows(), ask(column, "min"), ask(column)) == (2, None, None)


@pytest.mark.parametrize(
    "bad",
    [
        None,
        "not json",
        "{}",
        {"minValues": {"n": 1}, "maxValues": {"n": 2}},
    ],
    ids=["no statistics", "broken", "empty", "no numRecords"],
)
def test_statistics_that_are_missing(build, bad):
    exact, ask = build((stats(2, n=(1, 2)),), (bad,))
    assert (exact.num_rows(), ask("n"), ask("p")) == (None, None, None)


@pytest.mark.parametrize(
    "doubt",
    [
        {**stats(2, n=(1, 2)), "tightBounds": False},
        {"numRecords": 2},
        stats(2, n=("1", "x")),
        stats(2, n=(1, 9.5)),
        stats(2, n=(1, 2**64)),
        stats(2, n=(1, 1e300)),
    ],
    ids=["wide", "count alone", "text", "fraction", "too great", "far too great"],
)
def test_bounds_in_doubt_leave_the_count(build, doubt):
    exact, ask = build((stats(2, n=(1, 2)),), (doubt,))
    assert (exact.num_rows(), ask("n"), ask("p")) == (4, None, Bound(value=1))


@pytest.mark.parametrize("day", ["2024-1-5", "1500-01-01", "10000-01-01", "2024-02-30", "2024-01-01T00:00:00"])
def test_days_that_may_mean_something_else(build, day):
    _, ask = build((stats(1, day=(day, day)),))
    assert ask("day") is None


def test_a_value_that_its_type_cannot_hold(build):
    _, ask = build((stats(1, small=(0, 128)),))
    assert (ask("small", "min"), ask("small")) == (Bound(value=0), None)


def test_deletion_vectors_leave_the_count_and_the_partitions(build):
    first, second = stats(10, n=(1, 10)), stats(4, n=(20, 30))
    exact, ask = build((first, {"p": "1", "q": "a"}, vector(3)), (second, {"p": "2", "q": "a"}))
    assert (exact.num_rows(), ask("n"), ask("p")) == (11, None, Bound(value=2))
    exact, ask = build((first, {"p": "1", "q": "a"}, vector(10)), (second, {"p": "2", "q": "a"}))
    assert (exact.num_rows(), ask("p", "min")) == (4, Bound(value=2)), "every row of partition 1 is deleted"
    exact, ask = build((first, {"p": "1", "q": "a"}, vector(11)))
    assert (exact.num_rows(), ask("p")) == (None, None), "more rows deleted than there are"


def test_partition_columns_of_types_that_are_compared_in_other_ways(build):
    _, ask = build((stats(1), {"p": "1.5"}), columns={"x": "long", "p": "double"}, partition_columns=("p",))
    assert ask("p") is None
    _, ask = build((stats(1), {"p": "no number"}), columns={"x": "long", "p": "integer"}, partition_columns=("p",))
    assert ask("p") is None
    _, ask = build((stats(1), {"p": "true"}), (stats(1), {"p": "false"}), columns={"x": "long", "p": "boolean"},
                   partition_columns=("p",))  # fmt: skip
    assert (ask("p", "min"), ask("p")) == (Bound(value=False), Bound(value=True))


def test_a_name_that_a_path_of_json_cannot_say(build):
    _, ask = build((stats(1, **{'a"b': (1, 2)}),), columns={'a"b': "long"}, partition_columns=())
    assert ask('a"b') is None
    _, ask = build((stats(1, **{"a.b": (1, 2)}),), columns={"a.b": "long"}, partition_columns=())
    assert ask("a.b") == Bound(value=2)
