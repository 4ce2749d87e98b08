"""Presto reads twins: the rows that were written, and those that Trino reads, whatever happened to rows and columns."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request

import pytest
from conftest import DATABASE, ORDERS

from catalog_sync.names import TableName, twin_name

pytestmark = pytest.mark.presto

NAME = TableName(database=DATABASE, name="read_by_presto")
TYPES = TableName(database=DATABASE, name="types_for_presto")
INPUT = f"s3a://work/{DATABASE}/orders_for_presto.csv"
SCHEMA = "id bigint, customer string, amount decimal(10,2), at timestamp, day date"
SHOWN = """id, customer, CAST(amount AS varchar), date_format("at", '%Y-%m-%d %H:%i:%s'), CAST(day AS varchar)"""

# A row with a value in each column, one with none, and the ends of what a type holds.
VALUES = """
    SELECT CAST(1 AS tinyint) AS tiny, CAST(-2 AS smallint) AS small, 3 AS whole, 9223372036854775807L AS big,
           CAST(1.5 AS float) AS single, CAST(-0.1 AS double) AS ratio, true AS yes,
           CAST('12345678901234567890123456.789' AS decimal(38,3)) AS wide, CAST('-0.01' AS decimal(9,2)) AS narrow,
           'é 中 "quoted"' AS text, CAST('abc' AS binary) AS raw, DATE'1969-12-31' AS day,
           TIMESTAMP'2024-02-29 23:59:59.123456' AS at, array(1, null, 3) AS numbers,
           named_struct('a', 1, 'b', 'x') AS pair, map('k', 1.25d) AS counts, 'a/b c=%' AS part
    UNION ALL
    SELECT null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null
    UNION ALL
    SELECT CAST(-128 AS tinyint), CAST(32767 AS smallint), CAST(-2147483648 AS int), 0L, CAST('NaN' AS float),
           CAST('Infinity' AS double), false, CAST('-99999999999999999999999999999999999.999' AS decimal(38,3)),
           CAST('9999999.99' AS decimal(9,2)), '', CAST('' AS binary), DATE'9999-12-31', TIMESTAMP'1970-01-01 00:00:00',
           array(), named_struct('a', null, 'b', null), map(), 'é'
"""
# Numbers are compared as JSON has them, all else as texts that both engines write alike.
COMPARED = """
    tiny, small, whole, big, single, ratio, yes, CAST(wide AS varchar), CAST(narrow AS varchar), text, to_hex(raw),
    CAST(day AS varchar), date_format("at", '%Y-%m-%d %H:%i:%s'), json_format(CAST(numbers AS json)), pair.a, pair.b,
    json_format(CAST(counts AS json)), part
"""


@pytest.fixture(scope="module")
def presto():
    """Runs a statement on Presto; rows come back as lists."""
    from jobs.verify.trino import Trino  # on the path in this phase alone

    return Trino("presto:8080", "tests", "Presto").rows


@pytest.fixture(scope="module")
def trino():
    """The same of Trino, by the same client: values come in one form."""
    from jobs.verify.trino import Trino

    return Trino(os.environ["TRINO"], "tests").rows


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def sync(name):
    run("catalog_sync", "sync", str(name))


def rows_of(found):
    return sorted(tuple(row) for row in found)


@pytest.fixture(scope="module", autouse=True)
def _written(store_at, submit):
    """One table as a job writes it, and one with a column of each type that a twin can have."""
    lines = ["id,customer,amount,at,day", *(",".join(map(str, row)) for row in ORDERS)]
    store_at(f"s3a://work/{DATABASE}").put("orders_for_presto.csv", "\n".join(lines).encode())
    arguments = ["--input", INPUT, "--format", "csv", "--option", "header=true", "--schema", SCHEMA]
    done = submit("ingest", *arguments, "--table", str(NAME), "--partition-by", "day")
    assert done.code == 0, done.errors
    run("pydelta", "sql", "-e", f"CREATE TABLE {TYPES} USING DELTA PARTITIONED BY (part) AS {VALUES}")
    sync(NAME)
    sync(TYPES)


def test_presto_reads_equal_rows(presto):
    assert rows_of(presto(f"SELECT {SHOWN} FROM hive.{twin_name(NAME)}")) == sorted(ORDERS)


def test_a_filter_on_the_partition_column_gives_that_partition(presto):
    days = sorted({row[4] for row in ORDERS})
    found = presto(f"SELECT {SHOWN} FROM hive.{twin_name(NAME)} WHERE day = DATE'{days[0]}'")
    assert rows_of(found) == sorted(row for row in ORDERS if row[4] == days[0])


def test_every_type_is_what_trino_reads(presto, trino):
    statement = f"SELECT {COMPARED} FROM hive.{twin_name(TYPES)}"
    found = presto(statement)
    assert len(found) == 3
    assert sorted(map(repr, found)) == sorted(map(repr, trino(statement)))
    assert [row[-1] for row in found if row[9] == 'é 中 "quoted"'] == ["a/b c=%"]


def test_a_twin_follows_changed_rows_and_columns_by_their_names(presto, trino):
    """The column that comes first stands in new files alone: by position, old files would be read wrongly."""
    changes = [
        f"CREATE TABLE {NAME}_changed USING DELTA PARTITIONED BY (day) AS SELECT * FROM {NAME}",
        f"DELETE FROM {NAME}_changed WHERE id % 3 = 0",
        f"UPDATE {NAME}_changed SET amount = amount + 1 WHERE id % 7 = 1",
        f"ALTER TABLE {NAME}_changed ADD COLUMNS (note STRING FIRST)",
        f"UPDATE {NAME}_changed SET note = concat('n', id) WHERE id % 5 = 0",
    ]
    run("pydelta", "sql", "-e", "; ".join(changes))
    changed = TableName(database=NAME.database, name=f"{NAME.name}_changed")
    sync(changed)
    shown = f"note, {SHOWN}"
    found = presto(f"SELECT {shown} FROM hive.{twin_name(changed)}")
    expected = []
    for number, customer, amount, at, day in ORDERS:
        if number % 3:
            more = f"{float(amount) + (number % 7 == 1):.2f}"
            expected.append((f"n{number}" if number % 5 == 0 else None, number, customer, more, at, day))
    assert sorted(map(repr, map(tuple, found))) == sorted(map(repr, expected))
    theirs = trino(f"SELECT {shown} FROM hive.{twin_name(changed)}")
    assert sorted(map(repr, found)) == sorted(map(repr, theirs))
    columns = "SELECT column_name FROM hive.information_schema.columns WHERE table_schema = '{}' AND table_name = '{}'"
    twin = twin_name(changed)
    first = presto(columns.format(twin.database, twin.name) + " ORDER BY ordinal_position")
    assert first[0] == ["note"]


def test_what_cannot_be_published_is_an_error_with_the_reason_and_no_old_rows(presto):
    from jobs.verify.trino import TrinoError

    blocked = TableName(database=DATABASE, name="blocked_for_presto")
    run("pydelta", "sql", "-e", f"CREATE TABLE {blocked} USING DELTA AS SELECT 1L AS id")
    sync(blocked)
    assert presto(f"SELECT id FROM hive.{twin_name(blocked)}") == [[1]]
    run(
        "pydelta", "sql", "-e",
        f"ALTER TABLE {blocked} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name'); "
        f"ALTER TABLE {blocked} RENAME COLUMN id TO number",
    )  # fmt: skip
    done = subprocess.run(["catalog_sync", "sync", str(blocked)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    with pytest.raises(TrinoError, match=r"is not readable: version \d+ of the Delta table"):
        presto(f"SELECT * FROM hive.{twin_name(blocked)}")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE hive.{0}.refused (id bigint)",
        "INSERT INTO hive.{1} SELECT * FROM hive.{1}",
        "DELETE FROM hive.{1}",
        "DROP TABLE hive.{1}",
        "CREATE SCHEMA hive.refused",
    ],
)
def test_the_catalog_is_read_only(presto, statement):
    from jobs.verify.trino import TrinoError

    with pytest.raises(TrinoError, match=r"(?i)access denied|permission"):
        presto(statement.format(twin_name(NAME).database, twin_name(NAME)))
    assert presto(f"SELECT count(*) FROM hive.{twin_name(NAME)}") == [[len(ORDERS)]]


def test_columns_are_found_by_name_and_column_indexes_not_used(presto):
    found = {row[0]: row[1] for row in presto("SHOW SESSION") if row[0].startswith("hive.parquet")}
    assert found["hive.parquet_use_column_names"] == "true"
    assert found.get("hive.parquet_column_index_filter_enabled", "false") == "false"


def test_it_is_the_version_that_the_guide_names():
    with urllib.request.urlopen("http://presto:8080/v1/info") as answer:
        assert json.load(answer)["nodeVersion"]["version"].startswith("0.287")
