"""Rows of files with a JSON object per line: by the table's schema, the same by Arrow's reader and line by line."""

from __future__ import annotations

import datetime as dt
import io
import json
import random
from decimal import Decimal

import pytest

from pydelta.engines.arrow.tasks import json_rows
from pydelta.engines.arrow.tasks.json_rows import JsonRows
from pydelta.protocol.types import ArrayType, DecimalType, MapType, PrimitiveType, StructField, StructType


def field(name, kind, nullable=True):
    return StructField(name, PrimitiveType(kind) if isinstance(kind, str) else kind, nullable)


INSIDE = StructType((field("x", "integer"), field("Day", "date")))
COLUMNS = [
    field("id", "long"), field("name", "string"), field("amount", DecimalType(10, 2)), field("d", "double"),
    field("f", "float"), field("day", "date"), field("at", "timestamp"), field("ok", "boolean"), field("s", INSIDE),
    field("days", ArrayType(PrimitiveType("date"))), field("raw", "binary"),
]  # fmt: skip
SEEDS = (3, 41, *range(20_000, 20_030))
BROKEN = {
    '{"id": 1.5}': "1.5 is not a whole number",
    '{"id": "5"}': "it is text",
    '{"id": 9223372036854775808}': "not a whole",
    '{"nope": 1}': "'nope' is not a column",
    '{"id": 1, "id": 2}': "comes twice",
    '{"id": 1, "ID": 2}': "comes twice",
    '{"s": {"x": 1, "X": 2}}': "comes twice",
    '{"s": {"z": 1}}': "'z' is not a field",
    '{"amount": 1.234}': "holds exactly",
    '{"amount": 123456789}': "holds exactly",
    '{"amount": NaN}': "a number",
    '{"d": 1e400}': "number that double holds",
    '{"d": "abc"}': "number that double holds",
    '{"name": 5}': "it is a number",
    '{"name": {"a": 1}}': "it is an object",
    '{"name": "\\ud800"}': "half of a character",
    '{"day": "01/05/2024"}': "not a date",
    '{"day": 19000}': "a number",
    '{"at": "2024-01-01T00:00:00"}': "with its zone",
    '{"days": ["2024-13-01"]}': "not a date",
    '{"days": 5}': "a number",
    '{"days": {"a": 1}}': "an object",
    '{"ok": 1}': "a number",
    '{"raw": "Y"}': "not base64",
    "null": "it is null",
    "[1]": "it is a list",
    "17": "it is a number",
    '{"id": 1}{"id": 2}': "Extra data",
    '{"id": 1': "one JSON object",
    '{"id": 01}': "one JSON object",
    '{"name": "a\tb"}': "control character",
    "{'id': 1}": "one JSON object",
    '{"id": ' + "9" * 5000 + "}": "cannot be read|can be read|not a whole",
    '{"name": ' + "[" * 100_000: "can be read",
}


def read(data, fields=COLUMNS, *, line_by_line=False):
    """Rows, what is wrong with the others, and the columns that lines name."""
    reader = JsonRows(io.BytesIO(data.encode() if isinstance(data, str) else data), "f", fields, notes_names=True)
    reader._slow = reader._slow or line_by_line
    rows, bad = [], []
    for block in reader.blocks():
        rows += block.rows.to_pylist()
        bad += [(row.line, row.column, row.reason, row.value) for row in block.bad]
    return rows, bad, reader.named


def given(row):
    return {name: value for name, value in row.items() if value is not None}


def test_values_are_read_by_the_schema_and_not_guessed():
    lines = [
        '{"id": 9007199254740993, "d": 1.0}', "", "{}",
        '{"id":7,"name":"00123","amount":12.3,"d":9007199254740993,"day":"2024-02-29","at":"2024-01-01T00:00:00+01:00",'
        '"ok":true,"s":{"x":1,"Day":"2024-01-01"},"days":["2024-01-01",null],"raw":"YQ=="}',
        '  {"amount": "0.50", "id": null}\r',
    ]  # fmt: skip
    rows, bad, named = read("\ufeff" + "\n".join(lines))
    assert bad == []
    assert [given(row) for row in rows] == [
        {"id": 9007199254740993, "d": 1.0}, {},
        {"id": 7, "name": "00123", "amount": Decimal("12.30"), "d": 9007199254740992.0, "day": dt.date(2024, 2, 29),
         "at": dt.datetime(2023, 12, 31, 23, tzinfo=dt.UTC), "ok": True, "s": {"x": 1, "Day": dt.date(2024, 1, 1)},
         "days": [dt.date(2024, 1, 1), None], "raw": b"a"},
        {"amount": Decimal("0.50")},
    ]  # fmt: skip
    assert named == {column.name for column in COLUMNS} - {"f"}


def test_a_column_that_comes_late_is_there():
    rows, bad, _ = read("".join(f'{{"id": {number}}}\n' for number in range(500)) + '{"id": 500, "name": "late"}')
    assert (len(rows), bad, rows[-1]["name"]) == (501, [], "late")


@pytest.mark.parametrize("line", list(BROKEN))
def test_a_line_that_does_not_fit_is_told_with_its_reason_and_takes_no_other(line):
    first, last = '{"id": 1, "days": ["2024-01-01"]}', '{"ID": 2, "s": {"X": 3}}'
    rows, bad, _ = read(f"{first}\n{line}\n{last}\n")
    assert [(row["id"], row["days"], row["s"]) for row in rows] == [
        (1, [dt.date(2024, 1, 1)], None),
        (2, None, {"x": 3, "Day": None}),
    ]
    ((number, _, reason, value),) = bad
    assert (number, value) == (2, line.encode())
    assert any(part in reason for part in BROKEN[line].split("|"))


def test_bytes_that_are_not_utf_8_are_told():
    rows, bad, _ = read(b'{"name": "\xff"}\n{"id": 1}')
    assert ([row["id"] for row in rows], bad) == ([1], [(1, None, "the byte 0xff is not UTF-8", b'{"name": "\xff"}')])


def test_maps_are_objects():
    fields = [field("id", "long"), field("m", MapType(PrimitiveType("string"), DecimalType(5, 1)))]
    rows, bad, _ = read('{"m": {"a": 1.5, "b": null}}\n{"m": {"a": 1, "a": 2}}\n{"m": []}\n{"m": {"a": 1.55}}', fields)
    assert [row["m"] for row in rows] == [[("a", Decimal("1.5")), ("b", None)]]
    assert [(line, column) for line, column, _, _ in bad] == [(2, "m"), (3, "m"), (4, "m.value")]


def test_a_column_that_json_cannot_hold_is_named_with_its_type_and_others_are_read():
    numbers = field("Nums", StructType((field("m", MapType(PrimitiveType("long"), PrimitiveType("long"))),)))
    lines = b'{"id": 1}\n{"id": 2, "nums": {"m": {"1": 2}}}\n{"NUMS": null}\n'
    (block,) = JsonRows(io.BytesIO(lines), "f", COLUMNS[:1], unread=[numbers]).blocks()
    assert block.rows.to_pylist() == [{"id": 1}]
    assert [(bad.line, bad.column) for bad in block.bad] == [(2, "Nums"), (3, "Nums")]
    reason = "the column is struct<m:map<long,long>>, which JSON cannot hold (keys of maps have to be text)"
    assert {bad.reason for bad in block.bad} == {reason}


def test_a_value_that_may_not_be_null_is_asked_for_at_any_depth():
    fields = [
        field("id", "long", nullable=False),
        field("s", StructType((field("x", "long", nullable=False),))),
        field("l", ArrayType(PrimitiveType("long"), contains_null=False)),
    ]
    rows, bad, _ = read('{"id":1}\n{}\n{"id":2,"s":{}}\n{"id":3,"l":[1,null]}\n{"id":4,"s":{"x":1},"l":[]}', fields)
    assert [row["id"] for row in rows] == [1, 4]
    assert [(line, column) for line, column, _, _ in bad] == [(2, "id"), (3, "s.x"), (4, "l.element")]


def line_of(chosen):
    kinds = {
        "id": lambda: chosen.choice([0, -1, 2**63 - 1, 2**53 + 1, None]),
        "name": lambda: "".join(chosen.choices('a"\\\n\t é東\U0001f600\u2028/', k=chosen.randint(0, 6))),
        "d": lambda: chosen.choice([0.1, -1e300, 5, 1e-320, 123456789.125]),
        "ok": lambda: chosen.random() < 0.5,
        "s": lambda: chosen.choice([None, {}, {"x": 3}, {"Day": None}]),
        "f": lambda: 0.5,
    }
    names = chosen.sample(list(kinds), k=chosen.randint(0, len(kinds)))
    row = {name: kinds[name]() for name in names}
    return json.dumps(row, ensure_ascii=chosen.random() < 0.5)


def test_generated_files_have_the_rows_of_json_loads_by_either_way(monkeypatch):
    for seed in SEEDS:
        chosen = random.Random(seed)
        lines = [line_of(chosen) for _ in range(chosen.randint(1, 10))]
        ends = chosen.choice(["\n", "\r\n", "\n\n"])
        data = ends.join(lines) + chosen.choice(["", ends])
        monkeypatch.setattr(json_rows, "_BLOCK", chosen.choice([1, 30, 1 << 20]))
        rows, bad, named = read(data)
        wanted = [json.loads(line) for line in lines]
        assert bad == [], seed
        assert named == {name for row in wanted for name in row}, seed
        empty = {"x": None, "Day": None}
        for row in wanted:
            if row.get("s") is not None:
                row["s"] = empty | row["s"]
        assert [given(row) for row in rows] == [given(row) for row in wanted], seed
        assert read(data, line_by_line=True)[0] == rows, seed
