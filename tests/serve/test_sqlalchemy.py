"""SQLAlchemy by PyHive's dialect, asking what a BI tool asks: names, partitions, charts by time, a cancelled query.

The statements are those of Superset's engine specifications for Hive and Spark.
"""

from __future__ import annotations

import datetime
import decimal
import threading

import pytest
import sqlalchemy as sa
from live_server import sleeping
from pyhive import hive

SCHEMA = "bi"


@pytest.fixture(scope="module")
def engine(live):
    made = sa.create_engine(f"hive://ada@127.0.0.1:{live.thrift}/{SCHEMA}")
    client = live.client("owner")
    for text in (
        f"CREATE DATABASE IF NOT EXISTS {SCHEMA}",
        f"CREATE TABLE {SCHEMA}.sales (id BIGINT, `the name` STRING, amount DECIMAL(9,2), share DOUBLE, at TIMESTAMP, "
        "tags ARRAY<STRING>, day DATE, shop STRING) USING delta PARTITIONED BY (day, shop) COMMENT 'what was sold' "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        f"INSERT INTO {SCHEMA}.sales SELECT id, concat('name ', id), CAST(id AS DECIMAL(9,2)) / 4, id / 8, "
        "timestampadd(HOUR, CAST(id * 7 AS INT), TIMESTAMP'2024-01-30 00:00:00'), array('a'), "
        "CAST(timestampadd(HOUR, CAST(id * 7 AS INT), TIMESTAMP'2024-01-30 00:00:00') AS DATE), "
        "CASE WHEN id % 2 = 0 THEN 'even' ELSE 'odd' END FROM range(20)",
        f"CREATE VIEW {SCHEMA}.big AS SELECT id, amount, at FROM {SCHEMA}.sales WHERE amount >= 4",
    ):
        client.run(text)
    client.close()
    yield made
    made.dispose()


@pytest.fixture
def ask(engine):
    """Runs a statement as text; its rows as tuples."""
    with engine.connect() as connection:
        yield lambda text: [tuple(row) for row in connection.execute(sa.text(text).execution_options())]


@pytest.fixture
def sales(engine):
    return sa.Table("sales", sa.MetaData(), autoload_with=engine, schema=SCHEMA)


def test_schemas_tables_and_views_are_listed(engine, ask):
    assert SCHEMA in sa.inspect(engine).get_schema_names()
    assert set(ask(f"SHOW TABLES IN `{SCHEMA}`")) == {(SCHEMA, "sales", False), (SCHEMA, "big", False)}
    assert ask(f"SHOW TABLES IN {SCHEMA} LIKE 'sal*'") == [(SCHEMA, "sales", False)]
    assert ask(f"SHOW VIEWS IN `{SCHEMA}`") == [(SCHEMA, "big", False)]
    assert sa.inspect(engine).has_table("sales", SCHEMA)


def test_the_dialect_takes_the_namespace_for_the_name_as_with_every_spark(engine):
    """PyHive's list is the first column of SHOW TABLES; the guide says what to do. This tells when that has changed."""
    assert set(sa.inspect(engine).get_table_names(SCHEMA)) == {SCHEMA}


def test_columns_with_types_and_the_partition_columns(engine):
    columns = {item["name"]: item["type"] for item in sa.inspect(engine).get_columns("sales", SCHEMA)}
    assert list(columns) == ["id", "the name", "amount", "share", "at", "tags", "day", "shop"]
    kinds = {name: sa.types.to_instance(kind).__class__.__name__ for name, kind in columns.items()}
    assert kinds == {
        "id": "BigInteger", "the name": "String", "amount": "HiveDecimal", "share": "Float", "at": "HiveTimestamp",
        "tags": "String", "day": "HiveDate", "shop": "String",
    }  # fmt: skip
    (partition,) = sa.inspect(engine).get_indexes("sales", SCHEMA)
    assert [name for name in partition["column_names"] if name and not name.startswith("#")] == ["day", "shop"]
    assert [item["name"] for item in sa.inspect(engine).get_columns("big", SCHEMA)] == ["id", "amount", "at"]


def test_partitions_and_the_newest_of_them(ask):
    shown = ask(f"SHOW PARTITIONS {SCHEMA}.sales")
    assert len(shown) == len(set(shown)) == 12
    assert tuple(map(str, max(shown))) == ("2024-02-04", "odd")
    newest = ask(f"SELECT id FROM {SCHEMA}.sales WHERE `day` = '2024-02-04' AND `shop` = 'odd'")
    assert newest == [(19,)]


def test_rows_come_with_python_s_types(engine, sales):
    with engine.connect() as connection:
        row = connection.execute(sa.select(sales).where(sales.c.id == 7)).one()
    assert row[:5] == (7, "name 7", decimal.Decimal("1.75"), 0.875, datetime.datetime(2024, 2, 1, 1))
    assert row[6:] == (datetime.date(2024, 2, 1), "odd")


def test_a_chart_groups_by_time_over_a_subquery_with_a_limit(engine, sales):
    month = sa.func.date_trunc("month", sales.c.at).label("__timestamp")
    inner = (
        sa.select(sales)
        .where(sales.c.at >= sa.text("CAST('2024-01-30 07:00:00.000000' AS TIMESTAMP)"))
        .subquery("virtual_table")
    )
    by_month = (
        sa.select(
            sa.func.date_trunc("month", inner.c.at).label("__timestamp"),
            sa.func.sum(inner.c.amount).label("SUM(amount)"),
        )
        .group_by(sa.func.date_trunc("month", inner.c.at))
        .order_by(sa.desc("SUM(amount)"))
        .limit(1000)
    )
    with engine.connect() as connection:
        found = [tuple(row) for row in connection.execute(by_month)]
        counts = [
            tuple(row)
            for row in connection.execute(sa.select(month, sa.func.count("*")).group_by(month).order_by(month))
        ]
    january, february = datetime.datetime(2024, 1, 1), datetime.datetime(2024, 2, 1)
    assert [(row[0], row[1]) for row in found] == [
        (february, decimal.Decimal("42.25")),
        (january, decimal.Decimal("5.25")),
    ]
    assert counts == [(january, 7), (february, 13)]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("date_trunc('second', `at`)", "2024-02-01 01:00:00"),
        ("date_trunc('minute', `at`)", "2024-02-01 01:00:00"),
        ("date_trunc('hour', `at`)", "2024-02-01 01:00:00"),
        ("date_trunc('day', `at`)", "2024-02-01 00:00:00"),
        ("date_trunc('week', `at`)", "2024-01-29 00:00:00"),
        ("date_trunc('month', `at`)", "2024-02-01 00:00:00"),
        ("date_trunc('quarter', `at`)", "2024-01-01 00:00:00"),
        ("date_trunc('year', `at`)", "2024-01-01 00:00:00"),
        ("date_trunc('week', `at` + interval '1 day') + interval '5 days'", "2024-02-03 00:00:00"),
        ("date_trunc('week', `at` + interval '1 day') - interval '1 day'", "2024-01-28 00:00:00"),
    ],
)
def test_grains_of_time(ask, expression, expected):
    text = f"SELECT CAST({expression} AS STRING) AS `__timestamp` FROM `{SCHEMA}`.`sales` WHERE `id` = 7 LIMIT 10"
    assert ask(text) == [(expected,)]


def test_a_query_of_the_user_is_put_into_another(ask):
    users = f"SELECT *, amount * 2 AS `Twice as much` FROM {SCHEMA}.big"
    text = (
        f"SELECT max(`Twice as much`) AS `MAX(Twice as much)`, count(DISTINCT id) AS `COUNT_DISTINCT(id)` "
        f"FROM ({users}) AS `virtual_table` WHERE `at` >= CAST('2024-02-01 00:00:00.000000' AS TIMESTAMP) LIMIT 50000"
    )
    assert ask(text) == [(decimal.Decimal("9.50"), 4)]


def test_what_a_query_costs_is_explained(ask):
    said = "\n".join(row[0] for row in ask(f"EXPLAIN SELECT sum(amount) FROM {SCHEMA}.sales WHERE shop = 'odd'"))
    assert "Physical Plan" in said
    assert "PartitionFilters: [isnotnull(col-" in said  # the name that the column has in folders
    assert "sizeInBytes" in ask(f"EXPLAIN COST SELECT * FROM {SCHEMA}.big")[0][0]


def test_a_query_that_runs_is_cancelled_while_another_connection_works(live, ask):
    running = hive.connect("127.0.0.1", port=live.thrift, username="ada", database=SCHEMA).cursor()
    running.execute(sleeping("superset"), async_=True)
    watcher = live.client()
    watcher.await_begin("superset")
    assert ask(f"SELECT count(*) FROM {SCHEMA}.sales") == [(20,)]
    running.cancel()
    states = hive.ttypes.TOperationState
    while (state := running.poll().operationState) in (states.RUNNING_STATE, states.PENDING_STATE):
        threading.Event().wait(0.1)
    assert state == states.CANCELED_STATE
    watcher.close()


def test_a_tool_that_acts_for_its_users_is_named_by_them(live, engine):
    """Superset's "impersonate the logged in user" sets this for the connection."""
    acting = sa.create_engine(
        f"hive://superset@127.0.0.1:{live.thrift}/{SCHEMA}",
        connect_args={"configuration": {"hive.server2.proxy.user": "grace"}},
    )
    with acting.connect() as connection:
        connection.execute(sa.text(f"CREATE TABLE {SCHEMA}.uploaded USING delta AS SELECT 1 AS id"))
        history = connection.execute(sa.text(f"DESCRIBE HISTORY {SCHEMA}.uploaded")).all()
        connection.execute(sa.text(f"DROP TABLE {SCHEMA}.uploaded"))
    acting.dispose()
    assert history[0][3] == "grace"
