"""Where statements end: strings, names, comments and blocks with semicolons in them."""

from __future__ import annotations

import pytest

from pydelta.api.sql.grammar.splitting import is_blank, split_statements


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("", [], ""),
        ("SELECT 1", [], "SELECT 1"),
        ("SELECT 1;", ["SELECT 1"], ""),
        (" ; ;\n;", [], ""),
        ("SELECT 1; SELECT 2;\nSELECT", ["SELECT 1", "SELECT 2"], "\nSELECT"),
        ("SELECT ';', \";\", `;`;", ["SELECT ';', \";\", `;`"], ""),
        (r"SELECT 'it\';s';", [r"SELECT 'it\';s'"], ""),
        ("SELECT 'it'';s';", ["SELECT 'it'';s'"], ""),
        (r"SELECT r'\'; SELECT 2;", [r"SELECT r'\'", "SELECT 2"], ""),
        ("SELECT `a``;b`;", ["SELECT `a``;b`"], ""),
        ("SELECT 1 -- not; here\n;", ["SELECT 1 -- not; here"], ""),
        ("SELECT 1 /* ; /* ; */ ; */;", ["SELECT 1 /* ; /* ; */ ; */"], ""),
        ("-- nothing;\n/* here; */;", [], ""),
        ("SELECT 'open; SELECT 2;", [], "SELECT 'open; SELECT 2;"),
        ("SELECT 1; SELECT `open; ;", ["SELECT 1"], " SELECT `open; ;"),
        ("SELECT 1 /* open; ;", [], "SELECT 1 /* open; ;"),
        ("BEGIN SELECT 1; SELECT 2; END; SELECT 3;", ["BEGIN SELECT 1; SELECT 2; END", "SELECT 3"], ""),
        ("BEGIN IF a THEN SELECT 1; END IF; END;", ["BEGIN IF a THEN SELECT 1; END IF; END"], ""),
        ("BEGIN BEGIN SELECT CASE WHEN a THEN 1 END; END; SELECT 2; END;",
         ["BEGIN BEGIN SELECT CASE WHEN a THEN 1 END; END; SELECT 2; END"], ""),
        ("BEGIN CASE WHEN a THEN SELECT 1; END CASE; END; SELECT 1;",
         ["BEGIN CASE WHEN a THEN SELECT 1; END CASE; END", "SELECT 1"], ""),
        ("SELECT CASE WHEN a THEN 1; END; SELECT 2;", ["SELECT CASE WHEN a THEN 1", "END", "SELECT 2"], ""),
        ("/* a */ begin select 1; end;", ["/* a */ begin select 1; end"], ""),
    ],
)  # fmt: skip
def test_statements_end_at_semicolons_that_end_statements(text, statements, rest):
    pieces, left = split_statements(text)
    assert ([piece.text for piece in pieces], left) == (statements, rest)


def test_a_statement_knows_its_line():
    pieces, _ = split_statements("SELECT 1;\n\n-- what follows\nSELECT\n2; SELECT 3;\n;\n SELECT 4;")
    assert [piece.line for piece in pieces] == [1, 3, 5, 7]


@pytest.mark.parametrize("text", ["", " \n", "-- a", "/* a; */ -- b\n"])
def test_blank(text):
    assert is_blank(text)


@pytest.mark.parametrize("text", ["a", "-- a\nb", "'", "/* open", "/* /* */"])
def test_not_blank(text):
    assert not is_blank(text)
