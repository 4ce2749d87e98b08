"""Manifests count the nulls of partition columns, whose values are in no file: engines skip files by these counts."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysTrue, EqualTo, IsNull, LessThanOrEqual, NotEqualTo, NotNull
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator
from pyiceberg.table import StaticTable

import pydelta
from pydelta.log import DeltaLog
from pydelta.manifests.iceberg import publish_iceberg


@pytest.fixture
def static(tmp_path):
    rows = pa.table({"id": [1, 2, 3, 4], "day": ["a", None, "b", "a"], "o": [None, None, True, None]})
    pydelta.LocalTable.create(str(tmp_path / "t"), rows, partition_by=["day", "o"])
    log = DeltaLog.for_table(str(tmp_path / "t"))
    yield StaticTable.from_metadata(publish_iceberg(log).entry.metadata_location)
    DeltaLog.clear_cache()


def test_each_file_has_all_or_none_of_its_rows_as_nulls(static):
    day, o = (static.schema().find_field(name).field_id for name in ("day", "o"))
    found = {
        task.file.partition[0]: [(task.file.value_counts[key], task.file.null_value_counts[key]) for key in (day, o)]
        for task in static.scan().plan_files()
    }
    assert found == {"a": [(2, 0), (2, 2)], None: [(1, 1), (1, 1)], "b": [(1, 0), (1, 0)]}


@pytest.mark.parametrize(
    ("condition", "days"),
    [
        (AlwaysTrue(), {"a", None, "b"}),
        (LessThanOrEqual("day", "z"), {"a", "b"}),
        (NotEqualTo("day", "a"), {"b", "a", None}),  # Iceberg's own evaluator cannot tell by counts.
        (EqualTo("day", "a"), {"a", "b"}),
        (IsNull("day"), {None}),
        (NotNull("o"), {"b"}),
    ],
)
def test_a_file_is_left_out_by_these_counts_alone(static, condition, days):
    """As Iceberg's library does it, by whose comparison of partition values a null is the least value."""
    chosen = _InclusiveMetricsEvaluator(static.schema(), condition).eval
    assert {task.file.partition[0] for task in static.scan().plan_files() if chosen(task.file)} == days
