"""The initial snapshot of a stream by event time: slices, their files, and offsets between them."""

from __future__ import annotations

import polars as pl
import pytest
from stream_table import Table

from pydelta.commands.stream.admission import AdmissionBudget
from pydelta.commands.stream.event_time import EventTimes
from pydelta.commands.stream.offsets import StreamOffset
from pydelta.commands.stream.options import SourceOptions
from pydelta.commands.stream.source import TableStream
from pydelta.errors import InvalidArgumentError
from pydelta.protocol.actions import encode_json


def times(*spans, slices):
    files = pl.DataFrame({"path": [str(number) for number in range(len(spans))]})
    first, last = (pl.Series([span[side] for span in spans], dtype=pl.Int64) for side in (0, 1))
    return EventTimes(files, first, last, slices)


def walk(found):
    """The slices from the beginning to the end: where each ends, and its files."""
    seen, at = [], None
    while True:
        end = found.end_after(at)
        seen.append((end, "".join(found.between(at, end)["path"])))
        if end is None:
            return seen
        at = end


def test_slices_have_one_length_and_the_files_that_may_have_rows_of_them():
    assert walk(times((0, 9), (5, 29), (20, 39), slices=4)) == [(10, "01"), (20, "1"), (30, "12"), (None, "2")]


def test_slices_without_files_are_passed():
    assert walk(times((0, 1), (90, 99), slices=10)) == [(10, "0"), (None, "1")]


@pytest.mark.parametrize("spans", [((3, 3), (3, 3)), ((None, None), (None, 5)), ()])
def test_without_a_span_of_time_there_is_one_slice(spans):
    assert walk(times(*spans, slices=5)) == [(None, "".join(map(str, range(len(spans)))))]


def test_files_of_unknown_time_are_read_in_every_slice():
    assert walk(times((0, 9), (None, None), (10, 19), slices=2)) == [(10, "01"), (None, "12")]


class Timed(Table):
    """A table of one timestamp column, whose files span hours of a day."""

    def __init__(self):
        super().__init__()
        fields = [{"name": "x", "type": "timestamp", "nullable": True, "metadata": {}}]
        schema = encode_json({"type": "struct", "fields": fields})
        self.builder.metadata = self.builder.metadata.replace(schema_string=schema)
        adds = [self.hours(name, *span) for name, span in {"a": (13, 18), "b": (0, 5), "c": (4, 11)}.items()]
        self.builder.commit(*adds)

    def hours(self, name, first, last):
        texts = {"minValues": f"2024-05-01T{first:02d}:00:00.000Z", "maxValues": f"2024-05-01T{last:02d}:00:00.000Z"}
        stats = {"numRecords": 2, "nullCount": {"x": 0}} | {kind: {"x": text} for kind, text in texts.items()}
        return self.file(name, stats=encode_json(stats))

    def stream(self, **options):
        made = super().stream(withEventTimeOrder="true", **options)
        made.order_by("x")
        return made


def test_the_initial_snapshot_comes_slice_by_slice_and_again_as_it_was():
    table = Timed()
    given = SourceOptions.parse({"withEventTimeOrder": "true", "maxFilesPerTrigger": "1"})
    start, seen = None, []
    while True:
        stream = TableStream(table.log, given, table.log.update())
        stream.order_by("x")
        end = stream.latest(start, AdmissionBudget(max_files=1))
        if end == start:
            break
        seen.append((table.batch(stream, start, end), stream.batch(start, end).rows))
        assert StreamOffset.parse(end.to_json()) == end
        assert start is None or start.position < end.position
        start = end
    assert [names for names, _ in seen] == ["bc", "c", "a"]
    slices = [rows for _, rows in seen]
    assert slices[0].first is None
    assert slices[-1].end is None
    assert [rows.end for rows in slices[:-1]] == [rows.first for rows in slices[1:]]
    assert start == table.offset(1)


def test_the_order_cannot_change_while_the_snapshot_is_read():
    table = Timed()
    by_time = table.stream(maxFilesPerTrigger=1)
    offset = by_time.latest(None, AdmissionBudget(max_files=1))
    assert offset.is_initial
    assert '"sourceVersion":1000' in offset.to_json()
    plain = TableStream(table.log, SourceOptions.parse({}), table.log.update())
    with pytest.raises(InvalidArgumentError, match="order cannot change"):
        plain.latest(offset, AdmissionBudget())
    with pytest.raises(InvalidArgumentError, match="order cannot change"):
        plain.batch(None, offset)
    with pytest.raises(InvalidArgumentError, match="order cannot change"):
        by_time.latest(table.offset(0, 1, initial=True), AdmissionBudget())
    assert by_time.backlog(offset).num_files == 2
