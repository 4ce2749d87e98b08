"""Rows of CSV files beside Python's csv module: the same rows, whatever the quotes, the line ends and the blocks."""

from __future__ import annotations

import csv
import io
import random

import pytest

from pydelta.engines.arrow.tasks import csv_rows
from pydelta.engines.arrow.tasks.csv_rows import CsvRows, CsvShape
from pydelta.engines.arrow.tasks.text_values import TextRules
from pydelta.errors import InvalidArgumentError
from pydelta.protocol.types import PrimitiveType, StructField

SEEDS = (7, 23, 1204, 5311, *range(10_000, 10_300))  # the first ones failed once
COLUMNS = [StructField("a", PrimitiveType("string")), StructField("b", PrimitiveType("string")),
           StructField("n", PrimitiveType("long"))]  # fmt: skip


def read(data, fields=None, **how):
    """Rows as tuples, and what is wrong with the others: line, column, reason, bytes."""
    columns = fields or COLUMNS
    by_name = {field.name: field for field in columns}
    reader = CsvRows(io.BytesIO(data), "f.csv", lambda names: [by_name[name] for name in names] or columns, **how)
    rows, bad = [], []
    for block in reader.blocks():
        rows += [tuple(row.values()) for row in block.rows.to_pylist()]
        bad += [(row.line, row.column, row.reason, row.value) for row in block.bad]
    return rows, bad


def written(rows, chosen):
    """The rows as RFC 4180 lets them be written: quotes where they are needed, and now and then where they are not."""
    ends = chosen.choice([["\n"], ["\r\n"], ["\r"], ["\n", "\r\n", "\r"], ["\n\n", "\r\n\r\n"]])

    def value(text):
        needed = set(text) & set('",\r\n') or (not text and len(rows[0]) == 1)
        return '"' + text.replace('"', '""') + '"' if needed or chosen.random() < 0.2 else text

    text = "".join(",".join(map(value, row)) + chosen.choice(ends) for row in rows)
    return text[:-1] if chosen.random() < 0.3 else text


def texts(width):
    return [StructField(f"c{place}", PrimitiveType("string")) for place in range(width)]


@pytest.mark.parametrize("part", range(4))
def test_generated_files_have_the_rows_of_the_csv_module(monkeypatch, part):
    for seed in SEEDS[part::4]:
        chosen = random.Random(seed)
        width = chosen.randint(1, 4)
        alphabet = chosen.choice(['ab",\n\r é', 'a"', '\r\n"', "東,\U0001f600x"])
        rows = [["".join(chosen.choices(alphabet, k=chosen.randint(0, 4))) for _ in range(width)]
                for _ in range(chosen.randint(0, 12))]  # fmt: skip
        text = written([[f"c{place}" for place in range(width)], *rows], chosen)
        monkeypatch.setattr(csv_rows, "_BLOCK", chosen.choice([1, 2, 5, 16, 1 << 20]))
        found, bad = read(text.encode(), texts(width))
        wanted = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row][1:]
        assert ([[value or "" for value in row] for row in found], bad) == (wanted, []), seed


@pytest.mark.parametrize("part", range(4))
def test_what_is_malformed_is_the_same_whatever_the_blocks(monkeypatch, part):
    for seed in SEEDS[part::4]:
        chosen = random.Random(seed)
        data = b"a,b,n\n" + bytes(chosen.choices(b'a"1,,\n\n\r\xff"', k=chosen.randint(0, 60)))
        answers = []
        for size in (1 << 20, 1, 3, 17):
            monkeypatch.setattr(csv_rows, "_BLOCK", size)
            answers.append(read(data))
        assert all(answer == answers[0] for answer in answers), seed
        lines = data.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for line, _, _, value in answers[0][1]:
            assert lines[line - 1].startswith(value.decode(errors="replace").replace("\r", "\n").split("\n")[0]), seed


def test_a_row_that_does_not_fit_has_its_line_its_column_and_its_reason():
    data = b'\xef\xbb\xbfa,b,n\r\n1,"x\r\ny",3\n\n2,,4\n"q""",z,x\n5\n6,7,8,9\na"b,c,1\n"a"b,c,1\n\xff,b,1\nlast,"",7'
    rows, bad = read(data)
    assert rows == [("1", "x\r\ny", 3), ("2", None, 4), ("last", "", 7)]
    assert bad == [
        (6, "n", "'x' is not a whole number of type long", b'"q""",z,x'),
        (7, "b", "there are 1 values for 3 columns", b"5"),
        (8, None, "there are 4 values for 3 columns", b"6,7,8,9"),
        (9, "a", "there is a quote within a value that does not begin with one", b'a"b,c,1'),
        (10, "a", "there is text behind a closing quote", b'"a"b,c,1'),
        (11, "a", "the byte 0xff is not UTF-8", b"\xff,b,1"),
    ]


def test_a_quote_that_is_never_closed_takes_no_row_before_it(monkeypatch):
    data = b'a,b,n\n1,x,1\n2,"x,2\n3,y,3\n'
    assert read(data) == ([("1", "x", 1)], [(3, "b", "a quote is opened and never closed", b'2,"x,2\n3,y,3\n')])
    monkeypatch.setattr(csv_rows, "_LONGEST", 8)
    monkeypatch.setattr(csv_rows, "_BLOCK", 4)
    with pytest.raises(InvalidArgumentError, match="line 3: a record is longer than"):
        read(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        ("a,b".encode("utf-16"), "not UTF-8"),
        (b'a,"b\n1', "never closed"),
        (b"a,\xff\n1,2\n", "0xff is not UTF-8"),
    ],
)
def test_a_header_that_cannot_be_read_is_an_error(data, said):
    with pytest.raises(InvalidArgumentError, match=said):
        read(data)


def test_another_delimiter_and_no_header():
    assert read(b"x;1,5;2\n", shape=CsvShape(header=False, delimiter=";")) == ([("x", "1,5", 2)], [])


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_an_empty_value_of_a_partition_column_that_is_not_null_is_told(kind):
    fields = [StructField("p", PrimitiveType(kind), False), StructField("n", PrimitiveType("long"))]
    rows, bad = read(b'p,n\n"",1\nx,2\n', fields, rules=TextRules(partitions=frozenset({"p"})))
    assert [row[1] for row in rows] == [2]
    assert bad == [(2, "p", "there is no value, and the column is NOT NULL", b'"",1')]
    assert read(b'p,n\n"",1\n', fields)[1] == []
