"""Show the life of a table in SQL: create, fill, correct, alter, read the past, clone, restore."""

from __future__ import annotations

import polars as pl
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from jobs.demo.charts import Bars
from jobs.demo.flights import all_flights, package_data
from jobs.demo.stage import Stage

_SCHEMA = "demo_sql"
_PLANE = "N813MQ"
_COLUMNS = (
    "year", "month", "day", "dep_time", "carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "distance"
)  # fmt: skip


def run(stage: Stage) -> None:
    """Run Spark SQL statements, and compare every state with Polars, which makes the same changes to the same rows."""
    state = all_flights().select(_COLUMNS)
    airlines = pl.read_csv(package_data() / "airlines.csv")
    landing = stage.folder / "landing"
    landing.mkdir(exist_ok=True)
    state.write_parquet(landing / "flights.parquet")
    airlines.write_parquet(landing / "airlines.parquet")
    sql = stage.spark.sql
    sql(f"CREATE SCHEMA IF NOT EXISTS {_SCHEMA} LOCATION '{stage.folder / _SCHEMA}'")
    try:
        sql(f"USE {_SCHEMA}")
        _tell(stage, state, airlines, str(landing))
    finally:
        sql("USE default")
        sql(f"DROP SCHEMA {_SCHEMA} CASCADE")


# This is a story from top to bottom: each step starts from the result of the previous one.
def _tell(stage: Stage, state: pl.DataFrame, airlines: pl.DataFrame, landing: str) -> None:
    sql = stage.spark.sql
    with stage.step("CREATE TABLE with rules and defaults; CREATE TABLE AS SELECT"):
        sql(
            "CREATE TABLE flights (year INT, month INT NOT NULL, day INT, dep_time INT, carrier STRING, flight INT, "
            "tailnum STRING, origin STRING, dest STRING, dep_delay INT, distance INT COMMENT 'miles', "
            "quarter INT GENERATED ALWAYS AS (CAST(ceil(month / 3) AS INT)), source STRING DEFAULT 'file', "
            "CONSTRAINT flown CHECK (distance > 0)) USING delta PARTITIONED BY (quarter) "
            "TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true')"
        )
        sql(f"CREATE TABLE airlines USING delta AS SELECT * FROM parquet.`{landing}/airlines.parquet`")
    with stage.step(f"INSERT INTO … BY NAME: {state.height:,} flights"):
        sql(f"INSERT INTO flights BY NAME SELECT * FROM parquet.`{landing}/flights.parquet`")
    state = state.with_columns(source=pl.lit("file"), quarter=(pl.col("month") + 2) // 3)
    _compare(stage, "inserted", state, sql("TABLE flights"))

    with stage.step("A query with a join, a window and a CTE"):
        found = sql(
            "WITH per AS (SELECT a.name, f.month, count(*) AS n FROM flights f JOIN airlines a USING (carrier) "
            "GROUP BY ALL) SELECT name, month, n FROM (SELECT *, rank() OVER (PARTITION BY month ORDER BY n DESC) "
            "AS place FROM per) WHERE place = 1 ORDER BY month, name"
        ).collect()
    counted = state.join(airlines, on="carrier").group_by("name", "month").agg(n=pl.len())
    best = counted.filter(pl.col("n") == pl.col("n").max().over("month")).sort("month", "name")
    stage.check("the busiest airline of each month", expected=best.rows(), found=[tuple(row) for row in found])

    with stage.step("UPDATE: United noted half of its delays on the first of a month"):
        updated = sql(
            "UPDATE flights SET dep_delay = dep_delay * 2, source = 'corrected' WHERE carrier = 'UA' AND day = 1"
        )
    hit = (pl.col("carrier") == "UA") & (pl.col("day") == 1)
    changed = {"UPDATE": _first(updated)[0]}
    stage.check("rows updated", expected=state.filter(hit).height, found=changed["UPDATE"])
    state = state.with_columns(
        dep_delay=pl.when(hit).then(pl.col("dep_delay") * 2).otherwise("dep_delay"),
        source=pl.when(hit).then(pl.lit("corrected")).otherwise("source"),
    )
    _compare(stage, "updated", state, sql("TABLE flights"))

    with stage.step("DELETE flights that never took off in the first quarter"):
        deleted = sql("DELETE FROM flights WHERE quarter = 1 AND dep_time IS NULL")
    deleted_rows = (pl.col("quarter") == 1) & pl.col("dep_time").is_null()
    changed["DELETE"] = _first(deleted)[0]
    stage.check("rows deleted", expected=state.filter(deleted_rows).height, found=changed["DELETE"])
    before, state = state, state.filter(~deleted_rows)
    _compare(stage, "deleted", state, sql("TABLE flights"))

    with stage.step("MERGE a plane's December from its log: some not flown, one new"):
        merged = sql(
            "MERGE INTO flights t USING (SELECT year, month, day, dep_time, carrier, tailnum, distance FROM "
            f"parquet.`{landing}/flights.parquet` WHERE month = 12 AND tailnum = '{_PLANE}' AND dep_time IS NOT NULL "
            f"UNION ALL SELECT 2013, 12, 31, 2359, 'MQ', '{_PLANE}', 200) s "
            "ON t.month = 12 AND t.month = s.month AND t.day = s.day AND t.tailnum = s.tailnum "
            "AND t.dep_time = s.dep_time "
            "WHEN MATCHED AND s.day = 24 THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET dep_delay = 0, source = 'log' "
            "WHEN NOT MATCHED THEN INSERT (year, month, day, dep_time, carrier, tailnum, distance) "
            "VALUES (s.year, s.month, s.day, s.dep_time, s.carrier, s.tailnum, s.distance)"
        )
    logged = (pl.col("month") == 12) & (pl.col("tailnum") == _PLANE) & pl.col("dep_time").is_not_null()
    cancelled = (logged & (pl.col("day") == 24)).fill_null(False)
    expected = (state.filter(logged & ~cancelled).height, state.filter(cancelled).height, 1)
    counts = tuple(_first(merged)[f"num_{what}_rows"] for what in ("updated", "deleted", "inserted"))
    changed |= zip(("MERGE: updated", "MERGE: deleted", "MERGE: inserted"), counts, strict=True)
    stage.chart(Bars(title="Rows that each statement changed", bars=changed))
    stage.check("rows updated, deleted, inserted", expected=expected, found=counts)
    late = {"year": 2013, "month": 12, "day": 31, "dep_time": 2359, "carrier": "MQ", "tailnum": _PLANE, "distance": 200}
    late |= {"source": "file", "quarter": 4}
    state = state.filter(~cancelled).with_columns(
        dep_delay=pl.when(logged).then(0).otherwise("dep_delay"),
        source=pl.when(logged).then(pl.lit("log")).otherwise("source"),
    )
    state = pl.concat([state, pl.DataFrame([late], schema_overrides=dict(state.schema))], how="diagonal_relaxed")
    _compare(stage, "merged", state, sql("TABLE flights"))

    with stage.step("VERSION AS OF: as it was before the DELETE"):
        _compare(stage, "in the past", before, sql("SELECT * FROM flights VERSION AS OF 2"))

    with stage.step("ALTER TABLE: rename and drop a column, rewrite no file; a rule"):
        files = _first(sql("DESCRIBE DETAIL flights"))["numFiles"]
        sql("ALTER TABLE flights RENAME COLUMN dep_delay TO delay")
        sql("ALTER TABLE flights DROP COLUMN flight")
        sql("ALTER TABLE flights ADD CONSTRAINT known CHECK (month BETWEEN 1 AND 12)")
    stage.check("files are what they were", expected=files, found=_first(sql("DESCRIBE DETAIL flights"))["numFiles"])
    state = state.rename({"dep_delay": "delay"}).drop("flight")
    _compare(stage, "renamed and dropped", state, sql("TABLE flights"), delay="delay")

    with stage.step("A view, OPTIMIZE, a clone to play with, DELETE of all, RESTORE"):
        sql("CREATE VIEW late AS SELECT carrier, count(*) AS n FROM flights WHERE delay > 60 GROUP BY carrier")
        sql("OPTIMIZE flights ZORDER BY (carrier)")
        version = _first(sql("DESCRIBE HISTORY flights LIMIT 1"))["version"]
        sql("CREATE TABLE scratch SHALLOW CLONE flights")
        sql("DELETE FROM scratch WHERE month > 1")
        sql("DELETE FROM flights")
        emptied = _first(sql("SELECT count(*) FROM late"))[0]
        sql(f"RESTORE TABLE flights TO VERSION AS OF {version}")
    stage.check("the view while the table was empty", expected=0, found=emptied)
    slow = state.filter(pl.col("delay") > 60).group_by("carrier").agg(n=pl.len()).sort("carrier").rows()
    seen = [tuple(row) for row in sql("SELECT * FROM late ORDER BY carrier").collect()]
    stage.check("the view afterwards", expected=slow, found=seen)
    january = state.filter(pl.col("month") == 1).height
    stage.check("the clone", expected=january, found=_first(sql("SELECT count(*) FROM scratch"))[0])
    _compare(stage, "restored", state, sql("TABLE flights"), delay="delay")
    stage.fact("In SQL", f"{state.height:,} flights corrected, altered, cloned and restored")
    rows = sql("DESCRIBE HISTORY flights").select("version", "operation", "operationParameters").collect()
    stage.table("DESCRIBE HISTORY flights", ["version", "operation"], [tuple(row)[:2] for row in rows])


def _first(frame: DataFrame) -> Row:
    row = frame.first()
    assert row is not None, "the statement gives one row"
    return row


def _compare(stage: Stage, name: str, expected: pl.DataFrame, found: DataFrame, *, delay: str = "dep_delay") -> None:
    """Compare rows, distance and delays per quarter, carrier and source."""
    theirs = (
        expected.group_by("quarter", "carrier", "source")
        .agg(pl.len().alias("rows"), pl.col("distance").sum(), pl.col(delay).sum())
        .sort("quarter", "carrier", "source")
        .rows()
    )
    ours = (
        found.groupBy("quarter", "carrier", "source")
        .agg(F.count("*"), F.sum("distance"), F.coalesce(F.sum(delay), F.lit(0)))
        .orderBy("quarter", "carrier", "source")
        .collect()
    )
    same = [tuple(row) for row in ours] == theirs
    stage.check(f"SQL, {name}: rows", expected=expected.height, found=sum(row[3] for row in ours))
    stage.check(f"SQL, {name}: every group", expected=len(theirs), found=len(ours) if same else "other sums")
