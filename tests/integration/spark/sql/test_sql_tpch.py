"""The same queries over the same rows as Parquet tables and as Delta tables give the same results.

The queries of TPC-H, and those forms of SQL that it has none of. The Delta tables are what tables become in use:
written in several commits, partitioned, with deletion vectors and renamed columns, and rows that came and went.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
import tpch_data
from tpch_queries import QUERIES

from pydelta.errors import DeltaError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PARQUET, DELTA = "tpch_parquet", "tpch_delta"
LAYOUT = {
    "orders": "PARTITIONED BY (o_orderpriority)",
    "lineitem": "PARTITIONED BY (l_shipmode) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "customer": "CLUSTER BY (c_custkey)",
    "nation": "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    "partsupp": "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Both databases; the Delta one is made, filled and changed in SQL."""
    folder: Path = tmp_path_factory.mktemp("tpch")
    for database in (PARQUET, DELTA):
        spark.sql(f"CREATE DATABASE {database} LOCATION '{folder / database}'")
    for name, frame in tpch_data.frames().items():
        (folder / "source").mkdir(exist_ok=True)
        file = folder / "source" / f"{name}.parquet"
        frame.write_parquet(file)
        source = f"parquet.`{file}`"
        spark.sql(f"CREATE TABLE {PARQUET}.{name} USING parquet AS SELECT * FROM {source}")
        spark.sql(f"CREATE TABLE {DELTA}.{name} ({tpch_data.DDL[name]}) USING delta {LAYOUT.get(name, '')}")
        spark.sql(f"INSERT INTO {DELTA}.{name} BY NAME SELECT * FROM {source}")
    spark.sql(f"DELETE FROM {DELTA}.lineitem WHERE l_orderkey % 10 = 3")
    spark.sql(f"INSERT INTO {DELTA}.lineitem BY NAME SELECT * FROM {PARQUET}.lineitem WHERE l_orderkey % 10 = 3")
    spark.sql(f"UPDATE {DELTA}.orders SET o_totalprice = 0, o_comment = 'lost' WHERE o_orderkey % 4 = 1")
    spark.sql(
        f"MERGE INTO {DELTA}.orders t USING {PARQUET}.orders s ON t.o_orderkey = s.o_orderkey "
        "WHEN MATCHED AND t.o_totalprice = 0 THEN UPDATE SET *"
    )
    spark.sql(f"ALTER TABLE {DELTA}.nation RENAME COLUMN n_comment TO remark")
    spark.sql(f"ALTER TABLE {DELTA}.nation RENAME COLUMN remark TO n_comment")
    spark.sql(f"OPTIMIZE {DELTA}.partsupp ZORDER BY (ps_partkey)")
    yield
    spark.sql("USE default")
    for database in (PARQUET, DELTA):
        spark.sql(f"DROP DATABASE {database} CASCADE")


def both(spark: SparkSession, query: str) -> tuple[list, list]:
    """Columns and rows over Parquet, and over Delta."""
    found = []
    for database in (PARQUET, DELTA):
        spark.sql(f"USE {database}")
        frame = spark.sql(query)
        found.append([frame.schema.simpleString(), *frame.collect()])
    spark.sql("USE default")
    return found[0], found[1]


def assert_equal(parquet: list, delta: list, *, ordered: bool = True) -> None:
    assert len(parquet) > 1, "the query gives no rows: it shows nothing"
    assert any(value not in (None, 0, Decimal(0)) for row in parquet[1:] for value in row)
    if ordered:
        assert delta == parquet
    else:
        assert sorted(map(repr, delta)) == sorted(map(repr, parquet))


@pytest.mark.parametrize("name", QUERIES)
def test_tpch(spark, tables, name):
    assert_equal(*both(spark, QUERIES[name]))


OTHERS = {
    "window functions": """
        SELECT o_custkey, o_orderkey, rank() OVER w AS place, lag(o_totalprice, 1) OVER w AS before,
               sum(o_totalprice) OVER (PARTITION BY o_custkey ORDER BY o_orderdate, o_orderkey ROWS 2 PRECEDING) AS s,
               ntile(4) OVER (ORDER BY o_orderkey) AS quarter
        FROM orders WINDOW w AS (PARTITION BY o_custkey ORDER BY o_orderdate, o_orderkey)""",
    "qualify by a subquery": """
        SELECT * FROM (SELECT o_orderkey, row_number() OVER (PARTITION BY o_orderpriority ORDER BY o_totalprice DESC,
        o_orderkey) AS n FROM orders) WHERE n <= 2""",
    "pivot": """
        SELECT * FROM (SELECT year(o_orderdate) AS y, o_orderpriority, o_totalprice FROM orders)
        PIVOT (sum(o_totalprice) AS total, count(*) AS n
        FOR o_orderpriority IN ('1-URGENT' AS urgent, '5-LOW' AS low))""",
    "unpivot": """
        SELECT * FROM (SELECT p_partkey, p_size, cast(p_retailprice AS int) AS price FROM part)
        UNPIVOT (value FOR what IN (p_size, price))""",
    "lateral subquery": """
        SELECT c_custkey, o.o_orderkey FROM customer, LATERAL (
          SELECT o_orderkey FROM orders WHERE o_custkey = c_custkey
          ORDER BY o_totalprice DESC, o_orderkey LIMIT 1) o""",
    "lateral view": """
        SELECT word, count(*) FROM part LATERAL VIEW explode(split(p_name, ' ')) w AS word GROUP BY word""",
    "union, except, intersect": """
        (SELECT c_nationkey AS k FROM customer UNION SELECT s_nationkey FROM supplier)
        EXCEPT (SELECT n_nationkey FROM nation WHERE n_name = 'FRANCE')
        UNION ALL (SELECT p_size FROM part INTERSECT SELECT s_suppkey FROM supplier)""",
    "recursive": """
        WITH RECURSIVE chain (part, depth) AS (
          SELECT min(p_partkey), 0 FROM part
          UNION ALL SELECT ps.ps_partkey + 1, depth + 1 FROM chain JOIN partsupp ps ON ps.ps_partkey = part
            WHERE ps.ps_suppkey = (SELECT min(ps_suppkey) FROM partsupp i WHERE i.ps_partkey = ps.ps_partkey)
              AND depth < 3)
        SELECT * FROM chain""",
    "nested with": """
        WITH big AS (WITH lines AS (SELECT l_orderkey, sum(l_quantity) AS q FROM lineitem GROUP BY l_orderkey)
                     SELECT * FROM lines WHERE q > 150),
             named AS (SELECT o_custkey, q FROM big JOIN orders ON o_orderkey = l_orderkey)
        SELECT c_name, max(q) FROM named JOIN customer ON c_custkey = o_custkey GROUP BY c_name""",
    "correlated in the select list": """
        SELECT n_name, (SELECT count(*) FROM customer WHERE c_nationkey = n_nationkey) AS customers,
               n_nationkey IN (SELECT s_nationkey FROM supplier) AS sells FROM nation""",
    "rollup and grouping": """
        SELECT p_brand, p_container, grouping_id() AS g, count(*) FROM part GROUP BY ROLLUP (p_brand, p_container)""",
    "joins of every kind": """
        SELECT n_name, s.s_suppkey, c.c_custkey FROM nation FULL OUTER JOIN supplier s ON s_nationkey = n_nationkey
        LEFT ANTI JOIN region ON r_regionkey = n_nationkey
        CROSS JOIN (SELECT max(c_custkey) AS c_custkey FROM customer) c""",
    "values and higher-order functions": """
        SELECT v.k, transform(collect_list(p_size), x -> x + v.k) AS sizes FROM VALUES (1), (2) AS v (k)
        JOIN (SELECT * FROM part ORDER BY p_partkey LIMIT 1) GROUP BY v.k""",
    "null comparisons": """
        SELECT o_orderkey FROM orders WHERE o_comment IS NULL OR NOT (o_comment <=> 'regular')""",
    "statistics and nothing else": """
        SELECT count(*), count(l_comment), min(l_shipdate), max(l_quantity), min(l_comment) FROM lineitem""",
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_queries(spark, tables, name):
    assert_equal(*both(spark, OTHERS[name]), ordered=False)


def test_views_give_what_the_tables_give_and_follow_them(spark, tables):
    made = (
        "CREATE OR REPLACE TEMPORARY VIEW tpch_spent AS SELECT o_custkey, sum(o_totalprice) AS spent FROM orders "
        "GROUP BY o_custkey",
        "CREATE VIEW spenders AS SELECT c_name, spent FROM customer JOIN (SELECT o_custkey, sum(o_totalprice) AS spent "
        "FROM orders GROUP BY o_custkey) ON o_custkey = c_custkey",
        "CREATE VIEW top_spenders (who) AS SELECT c_name FROM spenders WHERE spent > (SELECT avg(spent) FROM spenders)",
    )
    found = []
    for database in (PARQUET, DELTA):
        spark.sql(f"USE {database}")
        for statement in made:
            spark.sql(statement)
        spark.sql("USE default")
        found.append(
            [
                sorted(spark.sql("SELECT * FROM tpch_spent").collect()),
                sorted(spark.sql(f"SELECT * FROM {database}.spenders").collect()),
                sorted(spark.sql(f"SELECT who FROM {database}.top_spenders").collect()),
            ]
        )
    assert found[0] == found[1]
    assert all(found[0])
    before = spark.sql("SELECT sum(spent) FROM tpch_spent").first()[0]
    spark.sql(f"INSERT INTO {DELTA}.orders (o_orderkey, o_custkey, o_totalprice) VALUES (0, 1, 1000)")
    assert spark.sql("SELECT sum(spent) FROM tpch_spent").first()[0] == before + 1000
    spark.sql(f"DELETE FROM {DELTA}.orders WHERE o_orderkey = 0")
    assert spark.sql("SELECT sum(spent) FROM tpch_spent").first()[0] == before
    spark.sql("DROP VIEW tpch_spent")


@pytest.mark.parametrize("mode", ["", "EXTENDED", "FORMATTED", "COST"])
def test_explain_names_the_scan(spark, tables, mode):
    plan = spark.sql(f"EXPLAIN {mode} SELECT count(l_tax) FROM {DELTA}.lineitem WHERE l_shipmode = 'AIR'").first()[0]
    assert "FileScan parquet" in plan or "Scan parquet" in plan
    assert "PartitionFilters" in plan
    assert "l_shipmode" in plan
    assert "Python" not in plan


def test_a_query_over_both_kinds_joins_them(spark, tables):
    query = (
        "SELECT count(*), count_if(d.l_tax <=> p.l_tax) FROM {a}.lineitem d FULL JOIN {b}.lineitem p "
        "ON d.l_orderkey = p.l_orderkey AND d.l_linenumber = p.l_linenumber"
    )
    rows = spark.sql(query.format(a=DELTA, b=PARQUET)).first()
    assert rows[0] == rows[1] > 1500


def test_a_column_that_is_not_there_is_an_error_of_sparks_own(spark, tables):
    from pyspark.errors import AnalysisException

    messages = []
    for database in (PARQUET, DELTA):
        with pytest.raises(AnalysisException) as caught:
            spark.sql(f"SELECT l_taxx FROM {database}.lineitem")
        assert not isinstance(caught.value, DeltaError)
        messages.append(caught.value.getCondition())
        assert "l_tax" in str(caught.value)
    assert messages[0] == messages[1] == "UNRESOLVED_COLUMN.WITH_SUGGESTION"
