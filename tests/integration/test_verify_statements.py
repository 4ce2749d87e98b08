"""The changes of make verify, each as SQL and as Polars: both come to the same rows, and to as many changed ones."""

from __future__ import annotations

import polars as pl
import pytest

from jobs.verify import rows
from jobs.verify.hops import COLUMNS, changes

pytestmark = pytest.mark.spark

COUNT = 300


@pytest.fixture
def view(spark, tmp_path):
    """Makes a view of rows from the CSV file that the stack's store would get."""

    def make(name, frame):
        file = tmp_path / f"{name}.csv"
        file.write_bytes(rows.write_csv(frame))
        reader = spark.read.options(header="true", quote='"', escape='"', encoding="UTF-8")
        reader.schema(COLUMNS).csv(str(file)).createOrReplaceTempView(name)

    return make


def read(spark, table, columns):
    shown = [f"date_format({n}, 'yyyy-MM-dd HH:mm:ss') AS at" if n == "at" else f"CAST({n} AS STRING)" for n in columns]
    return pl.from_arrow(spark.sql(f"SELECT {', '.join(shown)} FROM {table}").toArrow())


def test_each_change_in_sql_and_in_polars_comes_to_the_same_rows(spark, tmp_path, view):
    table = f"delta.`{tmp_path}/orders`"
    view("verify_orders", rows.first_rows(COUNT))
    view("verify_merge", rows.merge_source(COUNT))
    spark.sql(f"CREATE TABLE {table} ({COLUMNS}) USING DELTA PARTITIONED BY (city)")
    spark.sql(f"INSERT INTO {table} SELECT * FROM verify_orders")
    state = rows.first_rows(COUNT)
    for name, change in changes(rows.merge_source(COUNT)).items():
        for statement in change.statements:
            result = spark.sql(statement.format(table=table)).collect()
        before, state = state, change.apply(state)
        assert result[0][0] == change.changed(before, state) > 0, name
        assert rows.difference(rows.as_texts(state), read(spark, table, state.columns)) is None, name
        assert rows.difference(rows.as_texts(before), rows.as_texts(state)) is not None, "it changes something"
