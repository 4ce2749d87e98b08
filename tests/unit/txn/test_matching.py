"""Which added files a scan would have met: decided by the pruning that chooses what is read."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from pydelta.predicate import And, Column, Compare, IsNull, Literal, Or, Unknown
from pydelta.protocol.actions import AddFile, Metadata
from pydelta.txn import ReadPredicate
from pydelta.txn.footprint import matcher_for

ROOT = "memory://matching/t"


def field(name: str, kind: str, number: int) -> dict:
    mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    return {"name": name, "type": kind, "nullable": True, "metadata": mapping}


SCHEMA = json.dumps({"type": "struct", "fields": [field("day", "date", 1), field("x", "long", 2)]})
PLAIN = Metadata(id="t", schema_string=SCHEMA, partition_columns=("day",))
MAPPED = PLAIN.replace(configuration={"delta.columnMapping.mode": "name"})


def add(
    path: str, day: str | None, low: int | None = None, high: int | None = None, *, mapped: bool = False
) -> AddFile:
    x = "col-2" if mapped else "x"
    stats = None
    if low is not None:
        stats = json.dumps({"numRecords": 2, "minValues": {x: low}, "maxValues": {x: high}, "nullCount": {x: 0}})
    values = {"col-1" if mapped else "day": day}
    return AddFile(path=path, partition_values=values, size=1, modification_time=0, data_change=True, stats=stats)


def day(text: str) -> Compare:
    return Compare("=", Column(("day",)), Literal(dt.date.fromisoformat(text), "date"))


def x(op: str, value: int) -> Compare:
    return Compare(op, Column(("x",)), Literal(value, "long"))


FILES = [("a", "2024-01-01", 1, 5), ("b", "2024-01-02", 3, 9), ("c", None, 20, 30), ("d", "2024-01-02", None, None)]

CASES = [
    ([], [], "a"),
    ([day("2024-01-02")], [], "b"),
    ([day("2024-01-03")], [], None),
    ([IsNull(Column(("day",)))], [], "c"),
    ([], [x(">", 25)], "c"),
    ([day("2024-01-01")], [x(">", 25)], None),
    ([day("2024-01-02")], [x(">", 25)], "d"),  # no statistics rule nothing out
    ([], [And(day("2024-01-01"), x("=", 4))], "a"),
    ([], [Or(day("2024-01-01"), x("=", 25))], "a"),
    ([], [Unknown("rand() > 1")], "a"),
    ([day("2024-01-02")], [Unknown("f(x)"), x("=", 4)], "b"),
]


@pytest.mark.parametrize("mapped", [False, True], ids=["by name", "column mapping"])
@pytest.mark.parametrize(("partition_filters", "data_filters", "expected"), CASES)
def test_the_first_file_that_a_scan_would_have_met(partition_filters, data_filters, expected, mapped):
    metadata = MAPPED if mapped else PLAIN
    adds = [add(*item, mapped=mapped) for item in FILES]
    scan = ReadPredicate(partition_filters=tuple(partition_filters), data_filters=tuple(data_filters))
    found = matcher_for(metadata, root=ROOT, mode="name" if metadata is MAPPED else "none")(scan, adds)
    assert (found.path if found else None) == expected


def test_nothing_was_added():
    assert matcher_for(PLAIN, root=ROOT, mode="none")(ReadPredicate(), []) is None
    assert matcher_for(PLAIN, root=ROOT, mode="none")(ReadPredicate(data_filters=(x("=", 1),)), []) is None


def test_column_mapping_counts_only_where_the_protocol_supports_it():
    matcher = matcher_for(MAPPED, root=ROOT, mode="none")
    predicate = ReadPredicate(partition_filters=(day("2024-01-01"),))
    assert matcher(predicate, [add("a", "2024-01-01")]) is not None
    assert matcher(predicate, [add("a", "2024-01-02")]) is None
