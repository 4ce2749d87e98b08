"""What the program with Delta Kernel prints becomes the rows that cases of the matrix have; readers are named."""

from __future__ import annotations

import io
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

PEERS = Path(__file__).resolve().parents[1] / "peers"


@pytest.fixture
def matrix(monkeypatch):
    monkeypatch.syspath_prepend(str(PEERS))
    from matrix import __main__, answers, cases, corpus, kernel, kernel_writer, libraries

    rooms = {"main": __main__, "answers": answers, "cases": cases, "kernel": kernel, "writer": kernel_writer}
    yield SimpleNamespace(**rooms, libraries=libraries, corpus=corpus)
    for name in [name for name in sys.modules if name == "matrix" or name.startswith("matrix.")]:
        del sys.modules[name]


def _schema(**kinds):
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    return {"type": "struct", "fields": fields}


def _rows(matrix, name):
    return next(case.rows for case in matrix.cases.CASES if case.name == name)


def test_each_primitive_type_has_the_value_of_its_case(matrix):
    kinds = ["boolean", "byte", "short", "integer", "long", "float", "double", "decimal(38,10)", "string", "binary"]
    schema = _schema(**dict(zip("abcdefghijkl", [*kinds, "date", "timestamp"], strict=True)))
    printed = [True, -128, -32768, -2147483648, -9223372036854775808, 1.5, 1e300]
    printed += ["-1234567890123456789012345678.0123456789", "ü", "00ff", -25567, 9225014400000001]
    table = matrix.kernel.arrow(schema, [printed])
    assert matrix.answers.values(table) == _rows(matrix, "every primitive type")
    assert table.schema.field("h").type == pa.decimal128(38, 10)


def test_nested_values_have_the_names_that_the_schema_gives_them(matrix):
    struct = _schema(x="integer", y="string")
    array = {"type": "array", "elementType": _schema(x="integer"), "containsNull": True}
    inner = {"type": "array", "elementType": "integer", "containsNull": True}
    held = {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}
    printed = [1, [1, "y"], [[2], None], [["k"], [[3, None]]]]
    table = matrix.kernel.arrow(_schema(id="integer", s=struct, a=array, m=held), [printed])
    assert matrix.answers.values(table) == _rows(matrix, "nested types")


def test_null_a_time_without_zone_and_what_json_has_no_number_for(matrix):
    schema = _schema(id="integer", t="timestamp_ntz")
    table = matrix.kernel.arrow(schema, [[1, 1711852200500000], [2, None]])
    assert matrix.answers.values(table) == _rows(matrix, "timestampNtz")
    assert math.isnan(matrix.kernel.arrow(_schema(d="double"), [["NaN"]]).column("d")[0].as_py())
    assert matrix.kernel.arrow(_schema(d="float"), [["-Infinity"]]).to_pylist() == [{"d": -math.inf}]


def test_a_table_without_rows_has_its_columns(matrix):
    assert matrix.kernel.arrow(_schema(id="long"), []).schema == pa.schema([("id", pa.int64())])


def test_rows_that_are_printed_for_the_kernel_are_read_as_they_were(matrix):
    for table in (matrix.libraries.primitive_row(), matrix.libraries.nested_row()):
        schema = matrix.writer.schema_of(table.schema)
        rows = [
            [matrix.writer.printed(field.type, row[field.name]) for field in table.schema] for row in table.to_pylist()
        ]
        assert json.loads(json.dumps(rows)) == rows
        assert matrix.kernel.arrow(schema, rows).equals(table)


def _process(matrix, *answers):
    said = io.StringIO("".join(f"{json.dumps(answer)}\n" for answer in answers))
    return matrix.kernel.Kernel(SimpleNamespace(stdin=io.StringIO(), stdout=said), io.BytesIO(b"out of memory"))


def _requests(process):
    return [json.loads(line) for line in process._process.stdin.getvalue().splitlines()]


def test_a_partitioned_table_is_written_with_a_file_per_partition(matrix):
    process = _process(matrix, {"version": 0}, {"version": 1}, {"version": 2})
    case = next(case for case in matrix.cases.CASES if case.name == "partitions with special characters")
    assert matrix.writer._written(process, case, "/t")
    created, *appended = _requests(process)
    assert (created["create"], created["partitioned"], created["clustered"]) == ("/t", ["p", "d"], [])
    first = {"partition": {"p": "a/b=c d%41", "d": 19782}, "rows": [[1, "a/b=c d%41", 19782]]}
    rest = [{"partition": {"p": None, "d": None}, "rows": [[2, None, None]]}]
    rest.append({"partition": {"p": "ü:", "d": -1}, "rows": [[3, "ü:", -1]]})
    assert appended == [{"append": "/t", "files": [first]}, {"append": "/t", "files": rest}]


def test_what_the_kernel_has_no_call_for_is_not_asked_of_it(matrix):
    process = _process(matrix)
    tried = {case.name: matrix.writer._written(process, case, "/t") for case in matrix.cases.CASES[-1:]}
    assert tried == {"collations": False}
    assert _requests(process) == []


def test_what_the_kernel_threw_is_why_it_refuses(matrix):
    process = _process(matrix, {"kind": "UnsupportedOperationException", "error": "variant is not supported in /t"})
    told = matrix.kernel.answer_of(process, "/t", matrix.cases.CASES[0])
    assert told == "refused: UnsupportedOperationException: variant is not supported in …"


def test_other_rows_than_expected_are_found(matrix):
    schema, rows = _schema(id="integer", name="string"), [[1, "c"], [3, None]]
    process = _process(matrix, *({"schema": schema, "rows": some} for some in (rows, rows[:1])))
    assert matrix.kernel.answer_of(process, "/t", matrix.cases.CASES[0]) == "same"
    assert matrix.kernel.answer_of(process, "/t", matrix.cases.CASES[0]) == 'other rows: {"id": 1, "name": "c"}'


def test_a_process_that_ended_is_not_taken_for_a_refusal_by_the_kernel(matrix):
    with pytest.raises(AssertionError, match="out of memory"):
        matrix.kernel.answer_of(_process(matrix), "/t", matrix.cases.CASES[0])


def test_a_reader_that_is_not_there_is_named_before_anything_is_written(matrix, tmp_path):
    with pytest.raises(SystemExit, match=r"no reader kernle\. Those there are: ours, reference, kernel, delta-rs"):
        matrix.main.filled(tmp_path / "new", "python", ["kernle"])
    assert not (tmp_path / "new").exists()


def test_a_table_of_the_corpus_is_compared_with_its_rows_and_one_that_has_to_be_refused_must_be(matrix):
    schema = _schema(id="integer")
    two, refused = {"schema": schema, "rows": [[1], [2]]}, {"kind": "IllegalStateException", "error": "No protocol"}
    process = _process(matrix, two, two, two, refused)
    known, error = {"id": "t", "expect": "rows", "rows": 2}, {"id": "t", "expect": "error"}
    assert matrix.corpus.corpus_answer(process, known) == "same"
    assert matrix.corpus.corpus_answer(process, known | {"rows": 3}) == "other rows: 2 rows, expected 3"
    assert matrix.corpus.corpus_answer(process, error) == "other rows: 2 rows of a table that has to be refused"
    assert matrix.corpus.corpus_answer(process, error) == "refused: IllegalStateException: No protocol"


def test_the_page_counts_the_tables_of_the_corpus_and_has_a_note_for_each_that_is_not_read(matrix):
    notes: list[str] = []
    told = {
        "rows": {"a": "same", "b": "refused: no", "c": "other rows: 1"},
        "error": {"d": "refused: x"},
        "disputed": {},
    }
    lines = matrix.corpus.section(told, "Delta Kernel 4.4", notes)
    assert "| known rows | 3 | 1 | 1 | 1 |" in lines
    assert "| an error | 1 | 0 | 1 | 0 |" in lines
    assert [note.split("`")[3] for note in notes] == ["refused: no", "other rows: 1"]


def test_an_answer_about_the_corpus_that_changed_is_found(matrix):
    told = {"written": {}, "read": {}, "corpus": {"rows": {"a": "refused: no", "b": "same"}}}
    kept = {"written": {}, "read": {}, "corpus": {"rows": {"a": "same", "b": "same"}}}
    assert matrix.main.differing(told, told) == []
    assert matrix.main.differing(told, kept) == ["kernel reads a of the corpus: refused: no, and was: same"]
