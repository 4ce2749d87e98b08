"""Bounds of the Iceberg entry against the rows of the files: no engine may lose a row by them."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import (
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotNull,
)
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.table import StaticTable

import pydelta
from pydelta.log import DeltaLog
from pydelta.manifests.iceberg import publish_iceberg
from pydelta.manifests.iceberg.bounds import FileMetrics, file_metrics
from pydelta.manifests.iceberg.schema import EntrySchema, entry_schema
from pydelta.protocol.schema import DecimalType, PrimitiveType, StructField, StructType
from tests.iceberg.orders import orders
from tests.iceberg.readers import duck

P = PrimitiveType
INNER = StructType((StructField("x", P("long")), StructField("y", P("string"))))
DELTA_TYPES = {
    "i": P("integer"), "by": P("byte"), "sh": P("short"), "l": P("long"), "f": P("float"), "d": P("double"),
    "s": P("string"), "day": P("date"), "t": P("timestamp"), "n": P("timestamp_ntz"), "d5": DecimalType(5, 2),
    "d15": DecimalType(15, 3), "d18": DecimalType(18, 4), "d38": DecimalType(38, 10), "bo": P("boolean"),
    "bi": P("binary"), "st": INNER,
}  # fmt: skip
ARROW = pa.schema(
    [
        ("i", pa.int32()), ("by", pa.int8()), ("sh", pa.int16()), ("l", pa.int64()), ("f", pa.float32()),
        ("d", pa.float64()), ("s", pa.string()), ("day", pa.date32()), ("t", pa.timestamp("us", "UTC")),
        ("n", pa.timestamp("us")), ("d5", pa.decimal128(5, 2)), ("d15", pa.decimal128(15, 3)),
        ("d18", pa.decimal128(18, 4)), ("d38", pa.decimal128(38, 10)), ("bo", pa.bool_()), ("bi", pa.binary()),
        ("st", pa.struct([("x", pa.int64()), ("y", pa.string())])),
    ]
)  # fmt: skip
SCHEMA = StructType(tuple(StructField(name, kind) for name, kind in DELTA_TYPES.items()))


def integers(bits: int) -> st.SearchStrategy[int]:
    edge = 1 << bits - 1
    return st.one_of(st.integers(-edge, edge - 1), st.sampled_from([-edge, edge - 1, 0, -1]))


def decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    edge = 10**precision - 1
    whole = st.one_of(st.integers(-edge, edge), st.integers(-1000, 1000), st.sampled_from([edge, -edge]))
    return whole.map(lambda value: decimal.Decimal(value).scaleb(-scale, decimal.Context(prec=50)))


CHARACTERS = st.one_of(
    st.characters(exclude_categories=("Cs",), exclude_characters="\0"),
    st.sampled_from("aZ~\x7f\ud7ff\ue000\ufffd\uffff\U00010000\U0010ffff"),
)
TEXTS = st.one_of(
    st.text(CHARACTERS, max_size=5),
    st.tuples(
        st.sampled_from(["a", "\ud7ff", "\uffff", "\U0010ffff"]), st.integers(28, 40), st.text(CHARACTERS, max_size=9)
    ).map(lambda parts: parts[0] * parts[1] + parts[2]),
)
TIMES = st.one_of(
    st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
    st.datetimes(dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 3000)),
)
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "i": integers(32), "by": integers(8), "sh": integers(16), "l": integers(64), "f": st.floats(width=32),
    "d": st.floats(), "s": TEXTS, "day": st.dates(), "t": TIMES.map(lambda value: value.replace(tzinfo=dt.UTC)),
    "n": TIMES, "d5": decimals(5, 2), "d15": decimals(15, 3), "d18": decimals(18, 4), "d38": decimals(38, 10),
    "bo": st.booleans(), "bi": st.binary(max_size=4),
    "st": st.fixed_dictionaries({"x": st.none() | integers(64), "y": st.none() | TEXTS}),
}  # fmt: skip
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}), min_size=1, max_size=6
)
SLOW = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=40
)


def leaf_values(rows: Sequence[Mapping[str, Any]], path: Sequence[str]) -> list[Any]:
    found = []
    for row in rows:
        value: Any = row
        for part in path:
            value = None if value is None else value[part]
        found.append(value)
    return found


def check(metrics: FileMetrics, at: int, entry: EntrySchema, rows: Sequence[Mapping[str, Any]]) -> int:
    """Check a file's counts and bounds against its rows. Returns the number of bounds."""
    assert metrics.record_counts[at] in (None, len(rows))
    tested = 0
    for leaf in entry.leaves:
        values = leaf_values(rows, leaf.path)
        kind = entry.schema.find_field(leaf.field_id).field_type
        present = [value for value in values if value is not None]
        nulls = metrics.null_counts[at].get(leaf.field_id)
        if nulls is not None:
            assert nulls == len(values) - len(present), leaf
            assert metrics.value_counts[at][leaf.field_id] == len(values)
        for bounds, holds in ((metrics.lower, "lower"), (metrics.upper, "upper")):
            content = bounds[at].get(leaf.field_id)
            if content is None:
                continue
            bound = from_bytes(kind, content)
            assert not (isinstance(bound, float) and math.isnan(bound))
            tested += 1
            for value in present:
                if isinstance(value, float) and math.isnan(value):
                    assert holds == "lower", "NaN is above all"
                    continue
                for one, other in zip(orders(bound), orders(value), strict=True):
                    assert one <= other if holds == "lower" else one >= other, (leaf, holds, bound, value)
                    if isinstance(one, float) and one == other == 0.0:
                        assert math.copysign(1, one) <= math.copysign(1, other)
    return tested


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=ARROW)


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as they are stored: floats have lost digits."""
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def metrics_of(folder: Path) -> tuple[EntrySchema, FileMetrics, int]:
    snapshot = DeltaLog.for_table(str(folder)).update()
    entry = entry_schema(snapshot.schema, mode=snapshot.column_mapping_mode)
    stats = snapshot.files.with_stats(snapshot.files.core)["stats"]
    return entry, file_metrics(stats, entry), len(stats)


@SLOW
@given(rows=ROWS)
def test_that_bounds_of_our_files_hold_their_rows(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    folder = tmp_path / uuid.uuid4().hex
    table = table_of(rows)
    pydelta.LocalTable.create(folder, table)
    entry, metrics, files = metrics_of(folder)
    assert files == 1
    check(metrics, 0, entry, rows_of(table))


@SLOW
@given(rows=ROWS)
def test_that_bounds_of_files_of_delta_rs_hold_their_rows(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    folder = tmp_path / uuid.uuid4().hex
    table = table_of(rows)
    deltalake.write_deltalake(str(folder), table)
    entry, metrics, files = metrics_of(folder)
    assert files == 1
    check(metrics, 0, entry, rows_of(table))


# --- statistics as other writers have them ---------------------------------------------------------------------


def _cut_text(text: str, tie: str, *, top: bool) -> str:
    if len(text) <= 32:
        return text
    return text[:32] + tie if top else text[:32]


def _time_text(value: dt.datetime, minutes: int, digits: int) -> str:
    """A time cut to milliseconds or microseconds, in a zone, as Spark's session has one."""
    if value.tzinfo is not None:
        value = value.replace(tzinfo=None) + dt.timedelta(minutes=minutes)
    return f"{value.year:04d}-{value:%m-%dT%H:%M:%S}.{value.microsecond:06d}"[: 20 + digits]


def stats_text(
    rows: Sequence[Mapping[str, Any]], *, tie: str, minutes: int, digits: int, doubles: bool, wide: bool
) -> str:
    """Write statistics as other engines do: cut texts and times, decimals as doubles, NaN as the largest number."""

    def shown(value: Any, kind: Any, *, top: bool) -> str | None:
        if isinstance(value, str):
            return json.dumps(_cut_text(value, tie, top=top), ensure_ascii=False)
        if isinstance(value, dt.datetime):
            if value.tzinfo is None:
                return json.dumps(_time_text(value, 0, digits))
            sign = "-" if minutes < 0 else "+"
            zone = f"{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}" if minutes else "Z"
            return json.dumps(_time_text(value, minutes, digits) + zone)
        if isinstance(value, dt.date):
            return json.dumps(f"{value.year:04d}-{value:%m-%d}")
        if isinstance(value, decimal.Decimal):
            return json.dumps(float(value)) if doubles else format(value, "f")
        if isinstance(value, float):
            if not math.isfinite(value):
                return {math.inf: '"Infinity"', -math.inf: '"-Infinity"'}.get(value, '"NaN"')
            return pl.Series([value], dtype=pl.Float32).cast(pl.String)[0] if kind == P("float") else repr(value)
        return str(value)

    def level(schema: StructType, above: tuple[str, ...], show: Callable[[Any, tuple[str, ...]], str | None]) -> str:
        parts = []
        for item in schema.fields:
            path = (*above, item.name)
            if isinstance(item.data_type, StructType):
                parts.append(f"{json.dumps(item.name)}:{level(item.data_type, path, show)}")
            elif (text := show(item.data_type, path)) is not None:
                parts.append(f"{json.dumps(item.name)}:{text}")
        return "{" + ",".join(parts) + "}"

    def extreme(top: bool) -> Callable[[Any, tuple[str, ...]], str | None]:
        def show(kind: Any, path: tuple[str, ...]) -> str | None:
            present = [value for value in leaf_values(rows, path) if value is not None]
            if not present or kind in (P("boolean"), P("binary")):
                return None
            found = (max if top else min)(present, key=_spark_order)
            return shown(found, kind, top=top)

        return show

    def nulls(kind: Any, path: tuple[str, ...]) -> str:
        values = leaf_values(rows, path)
        count = values.count(None)
        return str(count if not wide or count in (0, len(values)) else (count + 1) % len(values) or 1)

    parts = [
        f'"numRecords":{len(rows)}',
        f'"minValues":{level(SCHEMA, (), extreme(False))}',
        f'"maxValues":{level(SCHEMA, (), extreme(True))}',
        f'"nullCount":{level(SCHEMA, (), nulls)}',
        *(['"tightBounds":false'] if wide else []),
    ]
    return "{" + ",".join(parts) + "}"


def _spark_order(value: Any) -> Any:
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


@settings(SLOW, max_examples=200)
@given(
    rows=ROWS,
    tie=st.sampled_from(["", "\U0010ffff", "\ufffd"]),
    minutes=st.sampled_from([0, 60, -330, 845]),
    digits=st.sampled_from([3, 6]),
    doubles=st.booleans(),
    wide=st.booleans(),
)
def test_that_bounds_of_other_writers_hold_their_rows(
    rows: list[dict[str, Any]], tie: str, minutes: int, digits: int, doubles: bool, wide: bool
) -> None:
    rows = rows_of(table_of(rows))
    for row in rows:  # A time that its zone moves out of the calendar has no text.
        if row["t"] is not None and not 2 < row["t"].year < 9998:
            row["t"] = None
    try:
        text = stats_text(rows, tie=tie, minutes=minutes, digits=digits, doubles=doubles, wide=wide)
    except OverflowError:
        return
    entry = entry_schema(SCHEMA, mode="none")
    check(file_metrics(pl.Series([text]), entry), 0, entry, rows)


def test_that_statistics_give_bounds_at_all() -> None:
    """The tests above would also pass if there were no bounds."""
    row = {
        "i": 1, "by": 1, "sh": 1, "l": 1, "f": 1.5, "d": 1.5, "s": "ab", "day": dt.date(2024, 1, 1),
        "t": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "n": dt.datetime(2024, 1, 1), "d5": decimal.Decimal("1.50"),
        "d15": decimal.Decimal("1.500"), "d18": decimal.Decimal("1.5000"), "d38": decimal.Decimal("1.5000000000"),
        "bo": True, "bi": b"a", "st": {"x": 1, "y": "a" * 40},
    }  # fmt: skip
    text = stats_text([row], tie="\U0010ffff", minutes=60, digits=3, doubles=False, wide=False)
    entry = entry_schema(SCHEMA, mode="none")
    metrics = file_metrics(pl.Series([text]), entry)
    names = {leaf.field_id: leaf.path for leaf in entry.leaves}
    both = {"i", "by", "sh", "l", "s", "day", "t", "n", "d5", "d15", "d18", "d38", "st"}
    assert {names[field_id][0] for field_id in metrics.upper[0]} == both
    assert {names[field_id][0] for field_id in metrics.lower[0]} == both | {"f", "d"}
    assert {names[field_id][0] for field_id in metrics.null_counts[0]} == set(DELTA_TYPES) - {"st"}


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "3", "[]", "{", '{"numRecords":-1}', '{"numRecords":"7"}', '{"numRecords":1.5}',
        '{"minValues":{"i":"1"},"maxValues":{"i":1.5}}', '{"minValues":{"i":true},"maxValues":{"i":2147483648}}',
        '{"minValues":{"l":9223372036854775808},"maxValues":{"l":1e3}}', '{"minValues":[1],"maxValues":7}',
        '{"minValues":{"d":"NaN","f":1e999,"s":1,"day":"2024-01-01T00:00:00","t":"2024-01-01","n":"2024-01-01T00:00:00Z"}}',
        '{"maxValues":{"t":"2024-01-01T00:00:00","day":"0001-01-01","s":"\\uffff","d5":"1.5","d15":1e30}}',
        '{"minValues":{"day":"1582-01-01","t":"1500-01-01T00:00:00.000Z","d5":1e999}}',
        '{"minValues":{"st":5},"maxValues":{"st":{"x":{}}},"nullCount":{"i":3,"l":-1,"s":"0","st":1}}',
        '{"maxValues":{"t":"9999-12-31T23:59:59.999Z","n":"9999-12-31T23:59:59.999"}}',
        '{"numRecords":2,"nullCount":{"i":3}}',
    ],
)  # fmt: skip
def test_that_odd_statistics_give_no_bounds(text: str) -> None:
    metrics = file_metrics(pl.Series([text]), entry_schema(SCHEMA, mode="none"))
    assert metrics.lower == metrics.upper == metrics.null_counts == metrics.value_counts == [{}]
    assert metrics.record_counts in ([None], [2])


HIGH = ["\ue000", "\U0001f600", "a\uffff", "a\U0001f600", "a\ue000b", "\U0010ffff", "ab\U0001f600", "ab\uffffz"]


@pytest.mark.parametrize("low", HIGH)
@pytest.mark.parametrize("high", HIGH)
def test_texts_that_engines_order_otherwise_are_within_the_bounds_in_each_order(low, high):
    """Engines compare texts by UTF-16, by code points or by bytes; the log's bounds are in the order of bytes."""
    entry = entry_schema(StructType((StructField("s", PrimitiveType("string")),)), mode="none")
    held = [text for text in HIGH if low.encode() <= text.encode() <= high.encode()]
    stated = {"numRecords": len(held), "minValues": {"s": low}, "maxValues": {"s": high}, "nullCount": {"s": 0}}
    metrics = file_metrics(pl.Series([json.dumps(stated)]), entry)
    (field_id,) = entry.schema.field_ids
    for text in held:
        for kind in (lambda item: item.encode("utf-16-be"), lambda item: item.encode()):
            if field_id in metrics.lower[0]:
                assert kind(metrics.lower[0][field_id].decode()) <= kind(text)
            if field_id in metrics.upper[0]:
                assert kind(metrics.upper[0][field_id].decode()) >= kind(text)


def test_a_text_that_is_cut_before_such_a_character_still_has_bounds():
    entry = entry_schema(StructType((StructField("s", PrimitiveType("string")),)), mode="none")
    stated = {"numRecords": 2, "minValues": {"s": "aa"}, "maxValues": {"s": "ab\U0001f600"}, "nullCount": {"s": 0}}
    metrics = file_metrics(pl.Series([json.dumps(stated)]), entry)
    (field_id,) = entry.schema.field_ids
    assert metrics.lower[0] == {field_id: b"aa"} and metrics.upper[0] == {field_id: b"ac"}


# --- filters through other readers -----------------------------------------------------------------------------

OPERATORS = {"eq": "=", "not-eq": "<>", "lt": "<", "gt": ">", "lt-eq": "<=", "gt-eq": ">="}


def sql_literal(value: Any, kind: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
    if isinstance(value, float):
        return f"'{value!r}'::{'FLOAT' if kind == P('float') else 'DOUBLE'}"
    if isinstance(value, dt.datetime):
        plain = f"{value.year:04d}-{value:%m-%d %H:%M:%S.%f}"
        return f"TIMESTAMPTZ '{plain}+00'" if value.tzinfo else f"TIMESTAMP '{plain}'"
    if isinstance(value, dt.date):
        return f"DATE '{value.year:04d}-{value:%m-%d}'"
    if isinstance(value, decimal.Decimal):
        return f"CAST('{value:f}' AS DECIMAL({kind.precision},{kind.scale}))"
    return str(value)


def conditions(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[tuple[str, ...], Any, str, Any]]:
    """Yield a column, its type, an operator and a value, for each column and a few values of it."""
    for name, kind in DELTA_TYPES.items():
        paths = [(name, item.name) for item in INNER.fields] if kind is INNER else [(name,)]
        for path in paths:
            leaf = INNER.field(path[1]).data_type if kind is INNER else kind  # type: ignore[union-attr]
            present = [value for value in leaf_values(rows, path) if value is not None]
            yield path, leaf, "is-null", None
            yield path, leaf, "not-null", None
            for value in {repr(value): value for value in present}.values():
                for operator in OPERATORS:
                    yield path, leaf, operator, value


EXPRESSIONS: Mapping[str, Callable[..., BooleanExpression]] = {
    "eq": EqualTo, "not-eq": NotEqualTo, "lt": LessThan, "gt": GreaterThan, "lt-eq": LessThanOrEqual,
    "gt-eq": GreaterThanOrEqual, "is-null": IsNull, "not-null": NotNull,
}  # fmt: skip


def is_literal(value: Any) -> bool:
    """Whether pyiceberg compares with the value: not with NaN, nor with times that its own literals cannot hold."""
    return not (isinstance(value, float) and not math.isfinite(value))


@settings(SLOW, max_examples=6, phases=[Phase.generate])
@given(files=st.lists(ROWS, min_size=2, max_size=3), data=st.data())
def test_that_filters_find_what_a_full_read_finds(
    files: list[list[dict[str, Any]]], data: st.DataObject, tmp_path: Path
) -> None:
    folder = tmp_path / uuid.uuid4().hex
    schema = pa.schema([pa.field("id", pa.int64()), *ARROW])
    number = 0
    table = pydelta.LocalTable.create(folder, schema)
    for rows in files:
        ids = pa.array(range(number, number + len(rows)), pa.int64())
        number += len(rows)
        table.append(table_of(rows).add_column(0, "id", ids).cast(schema))
    everything = rows_of(table.scan())
    assert len(everything) == number
    location = publish_iceberg(DeltaLog.for_table(str(folder))).entry.metadata_location
    iceberg = StaticTable.from_metadata(location)
    full = iceberg.scan().to_arrow()
    # A table of DuckDB's own, because a scan of Arrow's compares with NaN as Arrow does.
    duck().sql(f"CREATE OR REPLACE TABLE full_read AS SELECT * FROM iceberg_scan('{location}')")
    assert sorted(duck().sql("SELECT id FROM full_read").fetchall()) == [(row,) for row in range(number)]
    assert sorted(full["id"].to_pylist()) == list(range(number))
    tested = list(conditions(everything))
    for path, kind, operator, value in data.draw(st.lists(st.sampled_from(tested), min_size=20, max_size=30)):
        name = ".".join(path)
        test = {"is-null": "IS NULL", "not-null": "IS NOT NULL"}.get(operator)
        quoted = ".".join(f'"{part}"' for part in path)
        where = f"{quoted} {test or OPERATORS[operator] + ' ' + sql_literal(value, kind)}"
        found = [
            duck().sql(f"SELECT id FROM {source} WHERE {where}").fetchall()
            for source in ("full_read", f"iceberg_scan('{location}')")
        ]
        assert sorted(found[0]) == sorted(found[1]), where
        if value is None or is_literal(value):
            expression = EXPRESSIONS[operator](name, *([] if test else [value]))
            bound = bind(iceberg.schema(), expression, case_sensitive=True)
            rows = full.filter(expression_to_pyarrow(bound, iceberg.schema()))
            ids = iceberg.scan(row_filter=expression, selected_fields=("id",)).to_arrow()["id"]
            assert sorted(ids.to_pylist()) == sorted(rows["id"].to_pylist()), expression
