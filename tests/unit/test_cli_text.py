"""``pydelta append`` and ``merge`` of CSV and NDJSON: by the table's schema; what does not fit is told or set aside."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import pydelta
from pydelta.api.cli.cli import main
from pydelta.log import DeltaLog
from pydelta.protocol.actions import Protocol
from pydelta.storage import open_store
from pydelta.testing.tables import TableBuilder

VECTORS = ("deletionVectors",)
PROTOCOL = Protocol(min_reader_version=3, min_writer_version=7, reader_features=VECTORS, writer_features=VECTORS)
COLUMNS = {"id": "long", "code": "string", "amount": "decimal(10,2)", "day": "date"}


@pytest.fixture
def table(tmp_path):
    path = str(tmp_path / "t")
    built = TableBuilder(open_store(path), columns=COLUMNS, protocol=PROTOCOL)
    kinds = [("id", pa.int64()), ("code", pa.string()), ("amount", pa.decimal128(10, 2)), ("day", pa.date32())]
    built.commit(built.file(pa.table({"id": [1], "code": ["a"], "amount": [None], "day": [None]}, pa.schema(kinds))))
    yield path
    DeltaLog.clear_cache()


def run(capsys, *words):
    with pytest.raises(SystemExit) as stopped:
        main([*words])
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


def file(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def rows(path, *columns):
    return sorted(tuple(row.values()) for row in pydelta.open(path).scan(columns=list(columns)).to_pylist())


def files_of(path):
    return sorted(str(found) for found in Path(path).rglob("*") if found.is_file())


def test_text_is_read_by_the_schema(capsys, table, tmp_path):
    messy = file(
        tmp_path, "m.CSV", '\ufeffID,code,amount\r\n2,00123,1.50\r\n\r\n3,"two\nlines",\r\n4,"",-0.5\r\n5,,\r\n'
    )
    code, out, _ = run(capsys, "append", table, messy)
    assert (code, out) == (0, "Appended in version 1: 4 rows added, 1 files added.\n")
    more = file(tmp_path, "m.txt", '{"id": 9007199254740993, "amount": 12.30}\n{"code": "6"}')
    assert run(capsys, "append", table, more, "--format", "ndjson")[0] == 0
    found = {row["id"]: (row["code"], row["amount"]) for row in pydelta.open(table).scan().to_pylist()}
    assert found == {
        1: ("a", None), 2: ("00123", Decimal("1.50")), 3: ("two\nlines", None), 4: ("", Decimal("-0.50")),
        5: (None, None), 9007199254740993: (None, Decimal("12.30")), None: ("6", None),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("f.csv", "id,day\n2,2024-01-05\n3,01/05/2024\n", "f.csv, line 3, column day: '01/05/2024' is not a date"),
        ("f.csv", "id,code\n2\n", "f.csv, line 2, column code: there are 1 values for 2 columns"),
        ("f.csv", 'id,code\n"2",a"b\n', "f.csv, line 2, column code: there is a quote within a value"),
        ("f.csv", "id,nope\n2,3\n", "line 1: the header has the column 'nope', which the table lacks"),
        ("f.csv", "id,ID\n2,3\n", "line 1: the header has the column 'ID', which the table has once"),
        ("f.csv", "", "is empty"),
        ("f.csv", "id\n9223372036854775808\n", "is not a whole number"),
        ("f.csv", b"id,code\n2,\xff\n", "line 2, column code: the byte 0xff is not UTF-8"),
        ("f.ndjson", '{"id": 2}\n\n{"id": 3, "nope": 1}\n', "line 3: the key 'nope' is not a column"),
        ("f.ndjson", '{"id": 2, "amount": 1.555}', "line 1, column amount: '1.555' is not a number that"),
        ("f.ndjson", '{"id": 2, "code": 123}', "line 1, column code: it is a number, but the column is string"),
        ("gone.csv", None, "cannot be read: No such file or directory"),
    ],
)
def test_what_does_not_fit_is_an_error_with_its_place_and_leaves_nothing(capsys, table, tmp_path, name, text, said):
    path = str(tmp_path / name) if text is None else file(tmp_path, name, text)
    before = files_of(table)
    for words in (["append", table, path], ["merge", table, path, "--on", "id"]):
        code, out, err = run(capsys, *words)
        assert (code, out) == (1, "")
        assert said in err and "Traceback" not in err
    assert files_of(table) == before


def test_rows_that_do_not_fit_are_set_aside_with_their_own_bytes(capsys, table, tmp_path):
    bad = str(tmp_path / "bad")
    path = file(tmp_path, "f.csv", "id,code\nx,1\n2,b\n3\n")
    code, out, _ = run(capsys, "append", table, path, "--bad-records", bad, "--json")
    assert (code, json.loads(out)["rowsAdded"], json.loads(out)["rowsSetAside"]) == (0, 1, 2)
    path = file(tmp_path, "f.ndjson", '{"id": 2, "code": "B"}\nnonsense\n')
    code, out, _ = run(capsys, "merge", table, path, "--on", "id", "--bad-records", bad)
    assert (code, "1 rows set aside" in out) == (0, True)
    assert rows(table, "id", "code") == [(1, "a"), (2, "B")]
    set_aside = pydelta.open(bad).scan(columns=["line", "column", "value"]).to_pylist()
    assert sorted(set_aside, key=lambda row: row["value"]) == [
        {"line": 4, "column": "code", "value": b"3"},
        {"line": 2, "column": None, "value": b"nonsense"},
        {"line": 2, "column": "id", "value": b"x,1"},
    ]
    sources = pydelta.open(bad).scan(columns=["source"])["source"].to_pylist()
    assert {Path(source).name for source in sources} == {"f.csv", "f.ndjson"}


@pytest.mark.parametrize("place", ["TABLE/bad", "TABLE/a/b", "TABLE/_delta_log/bad", "TABLE/..", "file://TABLE/bad"])
def test_bad_records_are_not_put_where_vacuum_of_a_table_would_delete_them(capsys, table, tmp_path, place):
    path = file(tmp_path, "more.csv", "id\n7\nx\n")
    code, out, err = run(capsys, "append", table, path, "--bad-records", place.replace("TABLE", table))
    assert (code, out) == (1, "") and "are nested" in err
    assert pydelta.open(table).version == 0


def test_bad_records_may_be_in_a_folder_that_is_not_the_tables(capsys, table, tmp_path):
    path = file(tmp_path, "more.csv", "id\n7\nx\n")
    assert run(capsys, "append", table, path, "--bad-records", f"{table}/_bad")[0] == 0
    assert rows(f"{table}/_bad", "line") == [(3,)]


def test_a_place_for_bad_records_that_cannot_take_them_leaves_the_table_as_it_is(capsys, table, tmp_path):
    path = file(tmp_path, "f.csv", "id\nx\n2\n")
    (tmp_path / "full").mkdir()
    file(tmp_path, "full/other.txt", "x")
    before = files_of(table)
    for place in (table, str(tmp_path / "full")):
        code, _, err = run(capsys, "append", table, path, "--bad-records", place)
        assert (code, "Traceback" in err) == (1, False)
    assert files_of(table) == before
    assert files_of(tmp_path / "full") == [str(tmp_path / "full/other.txt")]


def test_a_merge_sets_only_columns_that_some_line_names(capsys, table, tmp_path):
    path = file(tmp_path, "f.ndjson", '{"id": 1, "amount": 5}\n{"id": 7}\n')
    assert run(capsys, "merge", table, path, "--on", "id")[0] == 0
    found = {row["id"]: (row["code"], row["amount"]) for row in pydelta.open(table).scan().to_pylist()}
    assert found == {1: ("a", Decimal("5.00")), 7: (None, None)}
    path = file(tmp_path, "g.ndjson", '{"id": 1, "code": null}\n')
    assert run(capsys, "merge", table, path, "--on", "id")[0] == 0
    assert {row["code"] for row in pydelta.open(table).scan().to_pylist()} == {None}


def test_a_name_that_looks_like_a_pattern_is_one_file(capsys, table, tmp_path):
    file(tmp_path, "a.csv", "id\n2\n")
    path = file(tmp_path, "[a].csv", "id\n3\n")
    assert run(capsys, "append", table, path)[0] == 0
    assert rows(table, "id") == [(1,), (3,)]


def test_a_time_without_a_zone_takes_the_one_that_is_given(capsys, tmp_path):
    path = str(tmp_path / "times")
    TableBuilder(open_store(path), columns={"at": "timestamp"}).commit()
    rows_file = file(tmp_path, "f.csv", "at\n2024-07-01 12:00:00\n")
    code, _, err = run(capsys, "append", path, rows_file)
    assert (code, "line 2, column at" in err) == (1, True)
    assert run(capsys, "append", path, rows_file, "--time-zone", "Europe/Berlin")[0] == 0
    (found,) = pydelta.open(path).scan()["at"].to_pylist()
    assert found.isoformat() == "2024-07-01T10:00:00+00:00"
    DeltaLog.clear_cache()
