"""Statements that Spark does not know: what they mean, and where they are wrong."""

from __future__ import annotations

import pytest

from pydelta.api.sql.grammar import is_ours, parse_statement
from pydelta.api.sql.grammar.parsing import unquote_string
from pydelta.api.sql.grammar.statements import (
    CloneStatement,
    ConvertToDelta,
    DescribeDetail,
    DescribeHistory,
    DropFeatureStatement,
    ExplainOptimize,
    FsckStatement,
    GenerateStatement,
    OptimizeStatement,
    Reorg,
    RestoreStatement,
    Travel,
    VacuumStatement,
)
from pydelta.errors import ParseError

T = ("t",)
PATH = ("delta", "/a b/c")

STATEMENTS = {
    "VACUUM t": VacuumStatement(table=T),
    "vacuum table lake.`odd ``name`": VacuumStatement(table=("lake", "odd `name")),
    "VACUUM delta.`/a b/c` RETAIN 100 HOURS DRY RUN": VacuumStatement(table=PATH, retain_hours=100.0, dry_run=True),
    "VACUUM t DRY RUN LITE RETAIN 0.5 HOURS": VacuumStatement(table=T, retain_hours=0.5, dry_run=True, mode="LITE"),
    "VACUUM t FULL WHERE p = 1 AND q IN ('DRY RUN', 'x')": VacuumStatement(
        table=T, mode="FULL", where="p = 1 AND q IN ('DRY RUN', 'x')"
    ),
    "VACUUM t WHERE p = 1 RETAIN 1 HOUR": VacuumStatement(table=T, where="p = 1", retain_hours=1.0),
    "VACUUM t USING INVENTORY inventory.datalake_report": VacuumStatement(
        table=T, inventory=("inventory", "datalake_report")
    ),
    "VACUUM t USING INVENTORY (SELECT path, 1 AS length FROM u WHERE full = (SELECT 1)) DRY RUN": VacuumStatement(
        table=T, inventory_query="SELECT path, 1 AS length FROM u WHERE full = (SELECT 1)", dry_run=True
    ),
    "VACUUM '/a b/c' USING INVENTORY i.t DRY RUN": VacuumStatement(table=PATH, inventory=("i", "t"), dry_run=True),
    "OPTIMIZE TABLE '/a b/c' ZORDER BY (id)": OptimizeStatement(table=PATH, zorder_by=("id",)),
    'DESCRIBE HISTORY "/a b/c" LIMIT 2': DescribeHistory(table=PATH, limit=2),
    "DESC DETAIL '/a b/c'": DescribeDetail(table=PATH),
    "VACUUM full": VacuumStatement(table=("full",)),
    "VACUUM history.detail": VacuumStatement(table=("history", "detail")),
    "GENERATE symlink_format_manifest FOR TABLE t": GenerateStatement(mode="symlink_format_manifest", table=T),
    "generate x for table t where day >= '2024-01-01'": GenerateStatement(
        mode="x", table=T, where="day >= '2024-01-01'"
    ),
    "OPTIMIZE t": OptimizeStatement(table=T),
    "OPTIMIZE t FULL": OptimizeStatement(table=T, full=True),
    "OPTIMIZE t WHERE p >= '2020' AND (q = 1 OR q IS NULL) ZORDER BY (a, b.c)": OptimizeStatement(
        table=T, where="p >= '2020' AND (q = 1 OR q IS NULL)", zorder_by=("a", "b.c")
    ),
    "OPTIMIZE t ZORDER BY a, `b c`": OptimizeStatement(table=T, zorder_by=("a", "`b c`")),
    "EXPLAIN OPTIMIZE t": ExplainOptimize(explained=OptimizeStatement(table=T)),
    "explain -- why\n formatted optimize t zorder by (a)": ExplainOptimize(
        explained=OptimizeStatement(table=T, zorder_by=("a",))
    ),
    "OPTIMIZE explain": OptimizeStatement(table=("explain",)),
    "OPTIMIZE cost WHERE formatted = 1": OptimizeStatement(table=("cost",), where="formatted = 1"),
    "DESCRIBE HISTORY t": DescribeHistory(table=T),
    "DESC HISTORY delta.`/a b/c` LIMIT 5": DescribeHistory(table=PATH, limit=5),
    "describe detail lake.t;": DescribeDetail(table=("lake", "t")),
    "RESTORE TABLE t TO VERSION AS OF 3": RestoreStatement(table=T, to=Travel(version=3)),
    "RESTORE t VERSION AS OF '3'": RestoreStatement(table=T, to=Travel(version=3)),
    "RESTORE t TO TIMESTAMP AS OF '2020-01-01'": RestoreStatement(table=T, to=Travel(timestamp_sql="'2020-01-01'")),
    "RESTORE t TO TIMESTAMP AS OF current_timestamp() - INTERVAL 1 DAY": RestoreStatement(
        table=T, to=Travel(timestamp_sql="current_timestamp() - INTERVAL 1 DAY")
    ),
    "CONVERT TO DELTA parquet.`/x`": ConvertToDelta(table=("parquet", "/x")),
    "CONVERT TO DELTA parquet.`/x` NO STATISTICS PARTITIONED BY (a INT, b DECIMAL(10,2))": ConvertToDelta(
        table=("parquet", "/x"), statistics=False, partition_schema="a INT, b DECIMAL(10,2)"
    ),
    "CREATE TABLE a.t SHALLOW CLONE b.c": CloneStatement(table=("a", "t"), source=("b", "c"), shallow=True),
    "CREATE TABLE IF NOT EXISTS t DEEP CLONE s": CloneStatement(
        table=T, source=("s",), shallow=False, if_not_exists=True
    ),
    "CREATE TABLE t CLONE delta.`/a b/c`": CloneStatement(table=T, source=PATH, shallow=False),
    "CREATE OR REPLACE TABLE t SHALLOW CLONE s TIMESTAMP AS OF '2024-01-01' TBLPROPERTIES ('a'='b', c.d = \"e\") "
    "LOCATION '/x'": CloneStatement(
        table=T,
        source=("s",),
        shallow=True,
        replace=True,
        at=Travel(timestamp_sql="'2024-01-01'"),
        properties={"a": "b", "c.d": "e"},
        location="/x",
    ),
    "CREATE TABLE t SHALLOW CLONE s TBLPROPERTIES ('a' = TRUE, b.c false, d = -3, 'e' 1.5)": CloneStatement(
        table=T, source=("s",), shallow=True, properties={"a": "true", "b.c": "false", "d": "-3", "e": "1.5"}
    ),
    "REORG TABLE t APPLY (PURGE)": Reorg(table=T),
    "REORG TABLE t WHERE p = 'x)' APPLY (PURGE)": Reorg(table=T, where="p = 'x)'"),
    "ALTER TABLE t DROP FEATURE deletionVectors": DropFeatureStatement(table=T, feature="deletionVectors"),
    "ALTER TABLE t DROP FEATURE 'a-b' TRUNCATE HISTORY": DropFeatureStatement(
        table=T, feature="a-b", truncate_history=True
    ),
    "FSCK REPAIR TABLE t DRY RUN": FsckStatement(table=T, dry_run=True),
    "/* why */ VACUUM -- not\n t -- at all": VacuumStatement(table=T),
}


@pytest.mark.parametrize("text", STATEMENTS)
def test_statements(text):
    assert parse_statement(text) == STATEMENTS[text]
    assert is_ours(text, spark_refuses=True)


WRONG = {
    "VACUUM": ("the end of the statement", 1, 6),
    "VACUUM t RETAIN HOURS": ("'HOURS'", 1, 16),
    "VACUUM t\n  RETAIN 5 DAYS": ("'DAYS'", 2, 11),
    "VACUUM t FULL LITE": ("FULL or LITE: it is given twice", 1, 14),
    "VACUUM t DRY RUN DRY RUN": ("DRY RUN: it is given twice", 1, 17),
    "VACUUM t ???": ("'?'", 1, 9),
    "OPTIMIZE t WHERE": ("the end of the statement", 1, 16),
    "OPTIMIZE t WHERE a = 'x": ('"\'"', 1, 21),
    "OPTIMIZE t ZORDER (a)": ("'(': expected BY", 1, 18),
    "RESTORE t TO 3": ("'3'", 1, 13),
    "RESTORE t TO VERSION AS OF 'three'": ("a version is a number", 1, 27),
    "GENERATE x FOR t": ("'t': expected TABLE", 1, 15),
    "REORG TABLE t APPLY (UPGRADE)": ("'UPGRADE': expected PURGE", 1, 21),
    "DESCRIBE HISTORY t LIMIT x": ("'x': expected a number", 1, 25),
    "DESCRIBE HISTORY t u": ("'u'", 1, 19),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_mistake_is_shown_at_its_token(text):
    words, line, position = WRONG[text]
    with pytest.raises(ParseError) as caught:
        parse_statement(text)
    message = str(caught.value)
    assert words in message
    assert f"(line {line}, pos {position})" in message
    assert (caught.value.line, caught.value.column) == (line, position + 1)
    shown = message.split("== SQL ==\n")[1].splitlines()
    assert shown[line] == "-" * position + "^^^"
    assert shown[line - 1] == text.splitlines()[line - 1]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM vacuum",
        "DESCRIBE history",
        "DESCRIBE EXTENDED detail",
        "WITH optimize AS (SELECT 1) SELECT * FROM optimize",
        "vacuumed",
        "CONVERTED TO x",
    ],
)
def test_what_spark_knows_is_left_to_it(text):
    assert not is_ours(text)


def test_a_clone_is_looked_at_only_when_spark_has_refused():
    text = "CREATE TABLE t SHALLOW CLONE s"
    assert not is_ours(text)
    assert is_ours(text, spark_refuses=True)


@pytest.mark.parametrize(
    ("literal", "value"),
    [("'a'", "a"), ("'it''s'", "it's"), (r"'it\'s'", "it's"), (r'"a\tb"', "a\tb"), ('"say ""x"""', 'say "x"')],
)
def test_string_literals(literal, value):
    assert unquote_string(literal) == value
