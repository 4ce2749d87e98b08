"""Conditions as text: what each of its parts may be, and where a mistake is shown."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from pydelta.engines.arrow.exact import assigned, exact, fitting, simple_value
from pydelta.engines.arrow.expressions import NotHere
from pydelta.errors import BindError, DeltaError, InvalidArgumentError, ParseError, UnsupportedFeatureError
from pydelta.predicate import (
    And,
    Column,
    Compare,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    TextTest,
    parse_predicate,
    parse_value,
    parsing,
)
from pydelta.predicate.expressions import Cast
from pydelta.predicate.lexing import NotRead, number_of, text_of, tokens
from pydelta.protocol.types import DecimalType, PrimitiveType, StructField, StructType, parse_type

_CHAR = "__CHAR_VARCHAR_TYPE_STRING"
COLUMNS = {
    "i": "integer",
    "l": "long",
    "x": "double",
    "f": "float",
    "n": "decimal(10,2)",
    "s": "string",
    "b": "boolean",
    "d": "date",
    "t": "timestamp",
    "z": "timestamp_ntz",
    "c": "binary",
    "p": "string",
    "v": "string",
    "u": "string",
}
METADATA = {"p": {_CHAR: "char(3)"}, "v": {_CHAR: "varchar(3)"}, "u": {"__COLLATIONS": {"u": "ICU.UNICODE"}}}
SCHEMA = StructType(
    (
        *(StructField(name, parse_type(kind), True, METADATA.get(name, {})) for name, kind in COLUMNS.items()),
        StructField("o", StructType((StructField("k", PrimitiveType("long")),)), True, {_CHAR: "struct<k:char(2)>"}),
        StructField("q", StructType((StructField("k", PrimitiveType("long")),))),
    )
)  # fmt: skip


def parsed(text, **how):
    return parse_predicate(text, SCHEMA, **how)


WORDS = [
    "AND", "BETWEEN", "CASE", "CAST", "DISTINCT", "DIV", "ESCAPE", "EXISTS", "FALSE", "FROM", "ILIKE", "IN", "INTERVAL",
    "IS", "LIKE", "NOT", "NULL", "OR", "REGEXP", "RLIKE", "TRUE", "UNKNOWN",
]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["l\u0131ke", "\u00e9\u00b2", "a\u0301", "a # /* x */ b", "a */ b", "/* a", "/*+ a */", ";"]
)
def test_what_spark_may_read_as_something_else_is_no_token(text):
    with pytest.raises(NotRead):
        tokens(text)


def test_letters_of_any_script_are_a_name_and_nothing_is_the_end():
    assert [item[:2] for item in tokens("\u00e9_1 = \u540d -- a\n/* b /* c */ d */")] == [
        ("name", "\u00e9_1"), ("operator", "="), ("name", "\u540d"), ("end", ""),
    ]  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
def test_a_word_of_sparks_grammar_is_a_name_between_backquotes_alone(word):
    assert [tokens(written)[0][:2] for written in (word, word.lower(), word.title())] == [("word", word)] * 3
    assert tokens(f"`{word}`")[0][:2] == ("name", word)
    assert parse_predicate(f"`{word}` IS NULL", StructType((StructField(word, PrimitiveType("long")),))) == IsNull(
        Column((word,))
    )


@pytest.mark.parametrize(
    ("sign", "text", "value", "kind"),
    [
        ("", "7", 7, "integer"), ("-", "7", -7, "integer"), ("", "999999999", 999_999_999, "integer"),
        ("", "2147483647", 2**31 - 1, "integer"), ("", "2147483648", 2**31, "long"),
        ("-", "2147483648", -(2**31), "integer"), ("-", "2147483649", -(2**31) - 1, "long"),
        ("-", "9223372036854775809", -(2**63) - 1, "decimal"),
        ("", "9223372036854775808", 2**63, "decimal"), ("-", "9223372036854775808", -(2**63), "long"),
        ("", "007", 7, "integer"), ("", "5L", 5, "long"), ("", "5l", 5, "long"), ("", "5S", 5, "short"),
        ("", "32767S", 2**15 - 1, "short"), ("-", "32768s", -(2**15), "short"), ("", "999999999L", 999_999_999, "long"),
        ("-", "128Y", -128, "byte"), ("", "1.50", Decimal("1.50"), "decimal"),
        ("-", ".5", Decimal("-0.5"), "decimal"),
        ("", "1.", Decimal(1), "decimal"), ("", "5BD", Decimal(5), "decimal"),
        ("", "1.5bd", Decimal("1.5"), "decimal"),
        ("", "1e3", 1000.0, "double"), ("-", "1.5E+2", -150.0, "double"), ("", "5D", 5.0, "double"),
        ("", "1.5d", 1.5, "double"),
        ("", "1.5F", 1.5, "float"), ("", "1e1F", 10.0, "float"), ("", "9" * 38, int("9" * 38), "decimal"),
        ("", "0" * 40 + "1", 1, "integer"), ("", "0." + "1" * 38, Decimal("0." + "1" * 38), "decimal"),
    ],
)  # fmt: skip
def test_a_number_has_the_type_that_spark_gives_it(sign, text, value, kind):
    assert number_of(sign, text) == (value, kind)


@pytest.mark.parametrize(
    "text",
    ["128Y", "32768S", "9223372036854775808L", "9" * 39, "0." + "1" * 39, "1e400", "1e39F", "1" * 401],
)
def test_a_number_that_no_type_holds_is_refused(text):
    with pytest.raises(ValueError):
        number_of("", text)
    with pytest.raises(BindError, match=f"number {text[:10]}"):
        parsed(f"x = {text}")


@pytest.mark.parametrize("text", ["0.1F", "1e5BD", "DATE '+10000-01-01'", "TIMESTAMP_NTZ '-0001-01-01 00:00:00'"])
def test_a_value_that_spark_takes_and_that_is_not_known_here_is_refused_as_one_for_a_session(text):
    with pytest.raises(UnsupportedFeatureError, match="Only Spark is sure"):
        parsed(f"{'d' if 'DATE' in text else 'z' if 'NTZ' in text else 'x'} = {text}")


def test_a_number_of_more_characters_than_any_has_is_not_looked_at():
    for many, word in ((400, "digits"), (401, "401 characters")):
        with pytest.raises(ValueError, match=word):
            number_of("", "1" * many)


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        ("'a'", "a"), ("''", ""), ("'it''s'", "it's"), ('"q""q"', 'q"q'), ("'a\"b'", 'a"b'),
        (r"'\n\r\t\b\0\Z'", "\n\r\t\b\0\x1a"),
        (r"'\%\_\\\'\"\x'", "\\%\\_\\'\"x"), (r"'\u0041\U00000042\103'", "ABC"),
        (r"'\u12\U123\18\400\08'", "u12U12318400\x008"),
        (r"'\''''", "''"), (r"r'\n'", r"\n"), ('R"a\\"', "a\\"), (r"'\ud83d\ude00'", "\U0001f600"),
        (r"'\177\200'", "\x7f200"),
        (r"'\U0010FFFF'", "\U0010ffff"), ("'\u00e9'", "\u00e9"), (r"'a''\'''b'", "a'''b"),
        ("'a\\\nb'", "a\nb"), ('"\\\n"', "\n"),
    ],
)  # fmt: skip
def test_a_text_holds_what_its_escapes_stand_for(literal, text):
    assert tokens(literal)[0][:2] == ("string", literal)
    assert text_of(literal) == text


@pytest.mark.parametrize("literal", [r"'\ud83d'", r"'\ude00\ud83d'", r"'\U00110000'", r"'\UFFFFFFFF'"])
def test_half_a_character_is_refused(literal):
    with pytest.raises(ValueError):
        text_of(literal)
    with pytest.raises(BindError, match="half of a character"):
        parsed(f"s = {literal}")


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("1_000 = 5a", "name operator name"), ("1e5 1e 1.5e+3D", "number name number"),
        ("a.b `c.d`", "name operator name name"),
        ("a--b\n c -- d", "name name"), ("a --b\\\nc", "name"), ("a/*b/*c*/d*/e", "name name"),
        ("aNd Or x", "word word name"),
        ("<=><=>=<>!====!>!<", " ".join(["operator"] * 9)), ("'a''b' r'c' \"d\"", "string string string"), ("", ""),
        ("\u00fcber \u4e2d", "name name"), ("5L 5BD 5X", "number number name"),
        ("(1,2)", "operator number operator number operator"),
    ],
)  # fmt: skip
def test_text_is_split_where_spark_splits_it(text, kinds):
    *found, end = tokens(text)
    assert " ".join(item.kind for item in found) == kinds
    assert (end.kind, end.start) == ("end", len(text.rstrip()))


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("i = 1\r\nAND (s = ", 2, 9), ("i = $\r\nAND b", 1, 5),
        ("i = 1 $", 1, 7), ("i = 1 /* x", 1, 7), ("i = 1 /* /*+ x */ */", 1, 7),
        ("i = 'x", 1, 5),
        ("i \u00a0= 1", 1, 3), ("i = 1 2", 1, 7), ("i = -s", 1, 6), ("upper(s) = 'a'", 1, 1), ("i NOT = 1", 1, 7),
        ("i IS 5", 1, 6), ("i IS `NULL`", 1, 6), ("i IN `(` 1)", 1, 6), ("i IN (1 `,` 2)", 1, 9),
        ("i = i 'x'", 1, 7), ("i `(` = 1", 1, 3),
        ("b NOT AND b", 1, 7), ("s LIKE 'a' ESCAPE abc", 1, 19), ("s LIKE 'a' ESCAPE 123", 1, 19),
        ("s LIKE 'a' ESCAPE 'ab'", 1, 19), ("s LIKE 'a' ESCAPE 5", 1, 19), ("i IN (1 2)", 1, 9), ("i.1 = 1", 1, 2),
        ("i = )", 1, 5),
        ("i. = 1", 1, 4), ("DATE = '2024-01-01", 1, 8), ("`` = 1", 1, 1), ("\u0131n = 1", 1, 1),
        ("a\u0300 = 1", 1, 2), ("i = !b", 1, 5),
        ("i BETWEEN 1 OR 2", 1, 13), ("i = 1 AND", 1, 10), ("INTERVAL = 1", 1, 1), ("i, l = 1", 1, 2),
        ("i = and", 1, 5),
        ("(i = 1", 1, 7), ("i IN 1", 1, 6), ("i IS DISTINCT 1", 1, 6), ("i == == 1", 1, 6), ("c = x'1' 'a'", 1, 10),
    ],
)  # fmt: skip
def test_a_text_that_is_no_condition_shows_where(text, line, column):
    with pytest.raises(ParseError) as caught:
        parsed(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    shown = text.replace("\r\n", "\n").split("\n")[line - 1]
    assert f"\n  {shown}\n  {' ' * (column - 1)}^" in str(caught.value)


def test_a_condition_is_nested_a_hundred_levels_deep_and_no_deeper():
    def chained(levels):
        text = "i = 0"
        for level in range(levels):
            text = f"(i = 1 {'OR' if level % 2 else 'AND'} {text})"
        return text

    def negated(pairs):
        return "NOT (i = 1 AND " * pairs + "i = 0" + ")" * pairs

    for text in (chained(100), negated(50), f"NOT {chained(99)}"):
        assert parsed(text) == parsed(f"({text})")
    for text in (chained(101), f"(b OR {negated(50)})", f"NOT {chained(100)}"):
        with pytest.raises(ParseError, match="nested too deeply"):
            parsed(text)


def test_precedence_is_that_of_spark():
    a, b, c, d = (Compare("=", Column(("i",)), Literal(number, "integer")) for number in (1, 2, 3, 4))
    assert parsed("i = 1 OR i = 2 AND i = 3") == Or(a, And(b, c))
    assert parsed("NOT i = 1 AND i = 2") == And(Not(a), b)
    assert parsed("NOT (i = 1 AND i = 2)") == Not(And(a, b))
    assert parsed("! NOT i = 1") == a
    assert parsed("NOT NOT (NOT i = 1)") == Not(a)
    assert parsed("NOT (NOT i = 1)") == a
    assert parsed("i = 1 AND i = 2 AND i = 3 AND i = 4") == And(And(a, b), And(c, d))
    assert parsed("i = 1 AND (i = 2 AND i = 3)") == And(And(a, b), c)
    assert parsed("(i = 1 OR i = 2) AND i = 3") == And(Or(a, b), c)
    assert parsed("i NOT BETWEEN 1 AND 2 AND i = 3") == And(
        Not(And(Compare(">=", a.left, a.right), Compare("<=", b.left, b.right))), c
    )
    assert parsed("i != 1") == parsed("i <> 1") == Not(a)
    assert parsed("i !> 1") == parsed("i <= 1")
    assert parsed("i !< 1") == parsed("i >= 1") == Compare(">=", a.left, a.right)
    assert parsed("i IS NOT DISTINCT FROM 1") == Compare("<=>", a.left, a.right)
    assert parsed("b IS FALSE") == Compare("<=>", Column(("b",)), Literal(False, "boolean"))
    assert parsed("b IS NOT TRUE") == Not(Compare("<=>", Column(("b",)), Literal(True, "boolean")))


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        ("s LIKE 'a%'", "a"), (r"s LIKE 'a\\%%'", "a%"), ("s LIKE 'a!%%' ESCAPE '!'", "a%"), ("s LIKE '%'", ""),
        ("s LIKE 'a%%'", "a"),
        ("s LIKE 'a!!%' ESCAPE '!'", "a!"), ("s LIKE 'a!_%' ESCAPE '!'", "a_"), ("s LIKE 'a' '%'", "a"),
        ("v LIKE 'a%'", "a"),
    ],
)  # fmt: skip
def test_a_pattern_is_a_text_and_what_may_follow(text, prefix):
    assert parsed(text) == TextTest("starts", Column((text[0],)), prefix)


@pytest.mark.parametrize(
    ("text", "error", "word"),
    [
        ("s LIKE '%a'", InvalidArgumentError, "'%a' is not supported"),
        ("s LIKE 'a_'", InvalidArgumentError, "not supported"),
        ("s LIKE 'a%b'", InvalidArgumentError, "not supported"), (r"s LIKE 'a\\'", InvalidArgumentError, "neither"),
        ("s LIKE 'a!b' ESCAPE '!'", InvalidArgumentError, "neither"),
        ("i LIKE '1%'", UnsupportedFeatureError, "integer"),
        ("s LIKE s", UnsupportedFeatureError, "LIKE"), ("s LIKE 5", UnsupportedFeatureError, "LIKE"),
        ("s LIKE NULL", UnsupportedFeatureError, ""),
        ("'a' LIKE 'a'", UnsupportedFeatureError, "LIKE"), ("p LIKE 'a%'", UnsupportedFeatureError, "p, whose"),
        ("p = 'a'", UnsupportedFeatureError, "p, whose"), ("u = 'a'", UnsupportedFeatureError, "u, whose"),
        ("p = s", UnsupportedFeatureError, "p,"),
        ("s = p", UnsupportedFeatureError, "p,"), ("o.k = 1", UnsupportedFeatureError, "o.k"),
        ("s = i", UnsupportedFeatureError, "string with"),
        ("n = '1.5'", UnsupportedFeatureError, "decimal"), ("n = 1e0", UnsupportedFeatureError, "decimal"),
        ("i = 1.5", UnsupportedFeatureError, "integer"),
        ("i = 1.5D", UnsupportedFeatureError, "integer"), ("i = 1F", UnsupportedFeatureError, "integer"),
        ("l = 9007199254740992D", UnsupportedFeatureError, ""), ("n = 1F", UnsupportedFeatureError, "decimal"),
        ("l = -9007199254740992D", UnsupportedFeatureError, ""), ("q = 'a'", BindError, "'q' is struct"),
        ("s LIKE (b AND b)", UnsupportedFeatureError, "LIKE of"),
        ("l = 5." + "0" * 19, UnsupportedFeatureError, ""), ("1 < 2", UnsupportedFeatureError, "two constants"),
        ("1 <=> NULL", UnsupportedFeatureError, "two constants"),
        ("1 = 'a'", UnsupportedFeatureError, ""),
        ("TRUE = TRUE", UnsupportedFeatureError, ""),
        ("(i = 1) = TRUE", UnsupportedFeatureError, "with a condition"),
        ("(i = 1) IS NULL", UnsupportedFeatureError, "IS of"),
        ("1 IN (1)", UnsupportedFeatureError, "IN of"), ("i IN (l)", UnsupportedFeatureError, "IN of"),
        ("i IN (1, '1')", UnsupportedFeatureError, "several types"),
        ("d IN ('2024-01-01', DATE '2024-01-01')", UnsupportedFeatureError, "several"),
        ("f IN (1.5F, 1)", UnsupportedFeatureError, "several"),
        ("f IN (" + ", ".join(["1"] * 11) + ")", UnsupportedFeatureError, "long IN"),
        ("s = 5", BindError, "'s' is string"), ("s IN (5)", BindError, "string"),
        ("b = 1", BindError, "boolean"), ("d = TIMESTAMP '2024-01-01 00:00:00Z'", BindError, "'d' is date"),
        ("z = TIMESTAMP '2024-01-01 00:00:00Z'", BindError, "'z'"),
        ("t = DATE '2024-01-01'", BindError, "'t' is timestamp"), ("q = 1", BindError, "'q' is struct"),
        ("x = '1_000'", BindError, "not a valid double"),
        ("d = '2_024-01-05'", BindError, "not a valid date"), ("i = ''", BindError, "not a valid"),
        ("i = '  '", BindError, "not a valid"), ("`(`i = 1)", BindError, "no column"),
        ("i = `-` 1", BindError, "no column"),
        ("i = `+` 1", BindError, "no column"), ("`DATE`'2024-01-01' = d", BindError, "no column"),
        ("i = '-x'", BindError, "not a valid integer"), ("(i = 1) = b", UnsupportedFeatureError, "with a condition"),
        ("b = (i = 1)", UnsupportedFeatureError, "with a condition"),
        ("TRUE = (i = 1)", UnsupportedFeatureError, "with a condition"), ("i IN (1, l)", UnsupportedFeatureError, "IN"),
        ("i = '1.0'", BindError, "not a valid"), ("i = '2147483648'", BindError, ""),
        ("z = '2024-01-01 00:00:00Z'", BindError, "2024-05-01 12:00:00"),
        ("z = TIMESTAMP_NTZ '2024-01-01 00:00:00Z'", BindError, "not a valid"), ("c = X'6g'", BindError, "X'6g'"),
        ("t = '2024-01-01'", BindError, "names no time zone"),
        ("t = TIMESTAMP '2024-01-01'", BindError, "names no time zone"), ("t = 'x'", BindError, "names no"),
        ("i IS TRUE", BindError, "not a condition"), ("s AND b", BindError, "s is not a condition"),
        ("5 OR b", BindError, "5 is not"), ("NOT 5", BindError, "5"),
        ("qq.k = 1", BindError, "Did you mean"), ("q.z = 1", BindError, "fields are: k"),
        ("i.k = 1", BindError, "no fields"), ("NOT i", BindError, "i is not"), ("i", BindError, "i"),
    ],
)  # fmt: skip
def test_what_is_not_surely_what_spark_makes_of_it_is_refused_with_the_reason(text, error, word):
    with pytest.raises(error) as caught:
        parsed(text)
    assert type(caught.value) is error
    assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value", "kind"),
    [
        ("i = '5'", 5, "integer"), ("l = 5.00", 5, "long"), ("l = 9007199254740991D", 2**53 - 1, "long"),
        ("l = 5." + "0" * 18, 5, "long"),
        ("x = 5", 5.0, "double"), ("x = 1.5", 1.5, "double"), ("f = '0.1'", 0.1, "double"),
        ("n = 5", Decimal(5), "decimal(10,2)"), ("f = 1.5F", 1.5, "double"),
        ("c = X'1F0'", b"\x01\xf0", "binary"), ("c = 'a'", b"a", "binary"), ("c = ''", b"", "binary"),
        ("b = 'yes'", True, "boolean"), ("b = TRUE", True, "boolean"),
        ("d = '2024-1-5'", dt.date(2024, 1, 5), "date"), ("d = DATE'2024-01-05'", dt.date(2024, 1, 5), "date"),
        ("v = 'a'", "a", "string"), ("s = 'a' \"b\"", "ab", "string"),
        ("t = '2024-01-05 12:00:00+01:00'", dt.datetime(2024, 1, 5, 11, tzinfo=dt.UTC), "timestamp"),
        ("z = '2024-01-05'", dt.datetime(2024, 1, 5), "timestamp_ntz"),
        ("t = TIMESTAMP_LTZ '2024-01-05 12:00:00 UTC'", dt.datetime(2024, 1, 5, 12, tzinfo=dt.UTC), "timestamp"),
        ("i = NULL", None, None), ("s <=> NULL", None, None),
        ("z = timestamp_ntz'2024-01-05'", dt.datetime(2024, 1, 5), "timestamp_ntz"), ("i = +5", 5, "integer"),
        ("i = - 5", -5, "integer"), ("l = 5S", 5, "long"),
    ],
)  # fmt: skip
def test_a_constant_is_in_the_type_in_which_it_is_compared(text, value, kind):
    found = parsed(text).right
    assert (found, type(found.value)) == (Literal(value, kind), type(value))
    flipped = text.partition(" ")[2].partition(" ")
    assert parsed(f"{flipped[2]} {flipped[0]} {text[0]}").left == found


def test_a_column_that_is_missing_is_named_with_the_columns_that_there_are():
    with pytest.raises(BindError) as caught:
        parsed("q.kk = 1")
    condition = caught.value.condition
    assert (condition.name, condition.parameters) == (
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        {"objectName": "q.kk", "proposal": "k"},
    )


@pytest.mark.parametrize("kind", ["byte", "short", "integer", "long", "float", "double"])
def test_a_text_is_a_number_where_the_column_is_one(kind):
    schema = StructType((StructField("c", PrimitiveType(kind)),))
    assert parse_predicate("c = '7'", schema).right.value == 7


def test_a_list_holds_its_constants_and_a_null():
    assert parsed("i IN (1, 2L, NULL, -3, 4.0)") == In(Column(("i",)), (1, 2, None, -3, 4))
    assert parsed("x IN (1Y, 2S, 3, 4L, 5.0, 6D, NULL)") == In(Column(("x",)), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, None))
    assert parsed("d NOT IN ('2024-01-05')") == Not(In(Column(("d",)), (dt.date(2024, 1, 5),)))
    assert parsed("f IN (1, NULL)") == Or(parsed("f = 1"), parsed("f = NULL"))
    assert isinstance(parsed("f IN (" + ", ".join(["1"] * 10) + ")"), Or)


@pytest.mark.parametrize("constants", [["7"] * 1_000, ["'a'"] * 1_000], ids=["numbers", "texts"])
def test_the_constants_of_a_long_list_are_not_parsed_as_conditions(constants, monkeypatch):
    calls, parse = [], parsing._Parser._boolean
    monkeypatch.setattr(parsing._Parser, "_boolean", lambda self: calls.append(1) or parse(self))
    found = parsed(f"{'i' if constants[0] == '7' else 's'} IN ({', '.join(constants)})")
    assert len(found.values) == 1_000
    assert len(calls) == 2  # the whole text, and the constant that no comma follows


def test_two_constants_are_compared_where_that_needs_no_cast():
    assert [parsed(text) for text in ("1 = 1", "1 = 2L", "'a' = 'a'", "1 <=> 1", "1 <> 1")] == [
        Literal(True, "boolean"), Literal(False, "boolean"), Literal(True, "boolean"), Literal(True, "boolean"),
        Literal(False, "boolean"),
    ]  # fmt: skip
    assert parsed("1 = NULL") == parsed("NULL < 1") == parsed("1 <> NULL") == Literal(None)


def test_an_error_shows_a_long_number_by_its_beginning_and_how_a_time_is_written():
    for digits, shown in ((40, "1" * 40), (41, "1" * 20 + "…")):
        with pytest.raises(BindError, match=f"The number -{shown} has"):
            parsed("i = -" + "1" * digits)
    with pytest.raises(BindError, match="not a valid timestamp") as caught:
        parsed("t = 'x'", time_zone="UTC")
    assert "Write times as" in caught.value.hint


def test_a_value_is_a_constant_or_a_column_and_nothing_more():
    assert parse_value("-5", SCHEMA) == Literal(-5, "integer")
    assert parse_value("-1.50", SCHEMA).type == DecimalType(3, 2)
    assert parse_value("0.001", SCHEMA).type == DecimalType(3, 3)
    assert parse_value("9223372036854775808", SCHEMA).type == DecimalType(19, 0)
    assert parse_value("(`I`)", SCHEMA) == Column(("i",))
    assert parse_value("q.K -- the key", SCHEMA) == Column(("q", "k"))
    for text in ("1 = 1", "i OR b", "i 5", "'a' LIKE 'a'", "(i = 1)", "(b AND i = 1)"):
        assert parse_value(text, SCHEMA) is None
    moment = dt.datetime(2024, 1, 5, 11, tzinfo=dt.UTC)
    assert parse_value("TIMESTAMP '2024-01-05 12:00:00'", SCHEMA, time_zone="+01:00") == Literal(moment, "timestamp")
    assert parsed("t = '2024-01-05 12:00:00'", time_zone="+01:00").right.value == moment
    with pytest.raises(ParseError, match="column 1"):
        parse_value("upper(s)", SCHEMA)


def test_a_condition_that_is_exact_here_has_the_values_that_files_have():
    whole = PrimitiveType("long")
    assert exact(parsed("i IN (1, 2)"), SCHEMA).values == (1, 2)
    assert exact(parsed("i IN (NULL)"), SCHEMA).values == (None,)
    assert exact(parsed("1 < i"), SCHEMA).op == ">"
    assert exact(parsed("1 <= l"), SCHEMA).right == Literal(1, whole)
    assert exact(parsed("x = 5"), SCHEMA).right == Literal(5.0, PrimitiveType("double"))
    assert exact(parsed("n = 1.5"), SCHEMA).right == Literal(Decimal("1.5"), DecimalType(10, 2))
    assert exact(parsed("d = '1970-01-03'"), SCHEMA).right == Literal(2, PrimitiveType("date"))
    assert exact(parsed("t = '1970-01-01 01:00:00.000001+01:00'"), SCHEMA).right.value == 1
    assert exact(parsed("i = 5"), SCHEMA).left == Column(("i",), PrimitiveType("integer"))
    assert exact(parsed("i = 5L"), SCHEMA).left == Cast(Column(("i",), PrimitiveType("integer")), whole)
    assert exact(parsed("f = 5"), SCHEMA).left == Cast(Column(("f",), PrimitiveType("float")), PrimitiveType("double"))
    assert exact(parsed("i IN (2147483647)"), SCHEMA).child == Column(("i",), PrimitiveType("integer"))
    assert exact(parsed("i IN (NULL, 2147483648)"), SCHEMA).child == Cast(
        Column(("i",), PrimitiveType("integer")), whole
    )
    assert exact(parsed("NULL"), SCHEMA) == Literal(None, "boolean")
    assert exact(parsed("NULL OR NOT NULL"), SCHEMA).left == Literal(None, "boolean")
    assert exact(parsed("d <=> NULL"), SCHEMA).right == Literal(None, "date")
    assert exact(parsed("l = 9223372036854775807"), SCHEMA).right.value == 2**63 - 1
    assert exact(parsed("l > -9223372036854775808"), SCHEMA).right.value == -(2**63)
    for text in (
        "l = 9223372036854775808",
        "i IN (9223372036854775808)",
        "l < -9223372036854775809",
        "n = 1.555",
        "q IS NULL",
        "s LIKE '%'",
        "i = x",
    ):
        with pytest.raises((NotHere, DeltaError)):
            exact(parsed(text), SCHEMA)


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        ("i", "5", 5), ("i", "'5'", 5), ("i", "-2147483648", -(2**31)), ("i", "2147483647", 2**31 - 1),
        ("l", "2147483648", 2**31), ("x", "5", 5.0), ("x", "1.5", 1.5), ("f", "0.5", 0.5),
        ("f", "16777216", 16777216.0),
        ("n", "1.5", Decimal("1.5")), ("n", "7", Decimal(7)), ("s", "'a'", "a"), ("s", "''", ""), ("c", "''", b""),
        ("b", "TRUE", True),
        ("b", "'no'", False), ("c", "X'ff'", b"\xff"),
        ("d", "'1970-01-03'", 2), ("z", "'1970-01-01 00:00:00.000002'", 2), ("t", "'1970-01-01 00:00:01Z'", 10**6),
        ("d", "NULL", None), ("n", "NULL", None),
    ],
)  # fmt: skip
def test_what_a_column_is_set_to_is_a_value_of_its_type(column, text, value):
    found = assigned(column, text, SCHEMA)
    assert (found, type(found.value)) == (Literal(value, SCHEMA.field(column).data_type), type(value))


@pytest.mark.parametrize(
    ("column", "text", "why"),
    [
        ("i", "2147483648", "a number beyond integer"), ("i", "-2147483649", "beyond"), ("i", "5.0", "such a constant"),
        ("i", "TRUE", "such a constant"), ("f", "0.1", "would round"), ("f", "16777217", "would round"),
        ("n", "1.555", "digits"),
        ("n", "1e0", "such"), ("x", "TRUE", "such"), ("d", "5", "such"), ("t", "5", "such"), ("z", "5", "such"),
        ("b", "1", "such"), ("s", "5", "such"), ("c", "5", "such"), ("i", "l", "cast"), ("q", "NULL", "struct"),
        ("b", "i = 1", "not a constant or a column"), ("i", "s", "cast"),
    ],
)  # fmt: skip
def test_what_a_column_would_hold_otherwise_is_left_to_spark(column, text, why):
    with pytest.raises(NotHere, match=why):
        assigned(column, text, SCHEMA)


def test_a_column_is_set_to_another_one_in_its_own_type():
    assert assigned("i", "I", SCHEMA) == Column(("i",), PrimitiveType("integer"))
    assert assigned("l", "q.K", SCHEMA) == Column(("q", "k"), PrimitiveType("long"))
    assert assigned("l", "i", SCHEMA) == Cast(Column(("i",), PrimitiveType("integer")), PrimitiveType("long"))


@pytest.mark.parametrize(
    ("value", "name"),
    [("a", "date"), (True, "string"), (b"a", "string"), (dt.datetime(2024, 1, 5), "date"),
    (dt.date(2024, 1, 5), "timestamp"),
    (dt.datetime(2024, 1, 5), "timestamp"), (dt.datetime(2024, 1, 5, tzinfo=dt.UTC), "timestamp_ntz"),
    (1, "boolean"), ("a", "binary")],
)  # fmt: skip
def test_a_value_of_another_type_has_no_simple_form(value, name):
    assert simple_value(value, name) is None


@pytest.mark.parametrize(
    ("text", "fits"),
    [("99999999.99", True), ("1E+7", True), ("1E+8", False), ("0.001", False), ("1.500", True), ("0E-9", True)],
)
def test_a_decimal_fits_to_its_last_digit(text, fits):
    value, kind = Decimal(text), DecimalType(10, 2)
    if fits:
        assert fitting(value, kind) is value
    else:
        with pytest.raises(NotHere, match="digits"):
            fitting(value, kind)
