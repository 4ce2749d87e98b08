"""Show corrections by MERGE, the erasure of a person's data, and the change feed that keeps a copy up to date."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.demo.charts import Bars
from jobs.demo.stage import Stage
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

_ROWS = 40_000
_FORGOTTEN = "customer-13"
_PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}


def run(stage: Stage) -> None:
    """Compare every state with Polars, which applies the same changes to the same rows."""
    path = str(stage.folder / "payments")
    state = pl.DataFrame({"id": range(_ROWS)}).with_columns(
        customer=pl.format("customer-{}", pl.col("id") % 97), amount=pl.col("id") % 1000, note=pl.lit("as booked")
    )
    with stage.step(f"Write {_ROWS:,} payments: deletion vectors, a change feed"):
        _create(stage, path)
        stage.spark.createDataFrame(state.to_arrow()).coalesce(4).write.format("delta").mode("append").save(path)
    table = DeltaTable.forPath(stage.spark, path)
    loaded = DeltaLog.for_table(path).update().version

    with stage.step("MERGE: amounts changed, bookings cancelled, new ones; one commit"):
        changes = pl.DataFrame({"id": range(0, _ROWS + 500, 50)}).with_columns(
            customer=pl.format("customer-{}", pl.col("id") % 97),
            amount=pl.col("id") % 7,
            cancelled=pl.col("id") % 1000 == 0,
        )
        source = stage.spark.createDataFrame(changes.to_arrow()).alias("c")
        note = F.lit("corrected")
        merged = (
            table.alias("p")
            .merge(source, "p.id = c.id")
            .whenMatchedDelete("c.cancelled")
            .whenMatchedUpdate(set={"amount": "c.amount", "note": note})
            .whenNotMatchedInsert(
                "NOT c.cancelled",
                {"id": "c.id", "customer": "c.customer", "amount": "c.amount", "note": F.lit("late")},
            )
            .run()
        )
    state = _merge(state, changes)
    _compare(stage, "corrections merged", state, _read(stage, path))
    stage.check("rows copied by the merge", expected=0, found=merged.num_copied_rows)

    with stage.step(f"Forget {_FORGOTTEN}: a deletion vector hides the rows at once"):
        hidden = table.delete(f"customer = '{_FORGOTTEN}'")
    state = state.filter(pl.col("customer") != _FORGOTTEN)
    _compare(stage, "the person is gone from every query", state, _read(stage, path))
    stage.check("data files rewritten for it", expected=0, found=hidden.num_rewritten_files)
    with stage.step("Purge: files that still hold the hidden rows are rewritten"):
        table.purge()
    _compare(stage, "nothing else changed", state, _read(stage, path))
    stage.check("rows of the person in the table's files", expected=0, found=_rows_in_files(path))

    with stage.step("Apply the change feed to a copy of the first version"):
        copy = _replayed(stage, path, loaded)
    _compare(stage, "a copy that followed the feed", state, copy)
    forgotten = hidden.num_deleted_rows or 0
    stage.fact(
        "Forgotten",
        f"{forgotten:,} payments of {_FORGOTTEN}: hidden, then gone from the files",
    )
    changed = {
        "MERGE: corrected": merged.num_updated_rows,
        "MERGE: cancelled": merged.num_deleted_rows,
        "MERGE: new": merged.num_inserted_rows,
        "DELETE: forgotten": forgotten,
    }
    stage.chart(Bars(title="Rows that each change touched", bars=changed))


def _create(stage: Stage, path: str) -> None:
    builder = DeltaTable.create(stage.spark).location(path)
    for column, kind in (("id", "long"), ("customer", "string"), ("amount", "long"), ("note", "string")):
        builder = builder.addColumn(column, kind)
    for key, value in _PROPERTIES.items():
        builder = builder.property(key, value)
    builder.execute()


def _merge(state: pl.DataFrame, changes: pl.DataFrame) -> pl.DataFrame:
    cancelled = changes.filter("cancelled").select("id")
    remaining = state.join(cancelled, on="id", how="anti")
    new = changes.filter(~pl.col("cancelled")).select("id", "customer", "amount")
    updated = remaining.join(new.select("id", fresh="amount"), on="id", how="left").with_columns(
        amount=pl.coalesce("fresh", "amount"),
        note=pl.when(pl.col("fresh").is_not_null()).then(pl.lit("corrected")).otherwise("note"),
    )
    inserted = new.join(state.select("id"), on="id", how="anti").with_columns(note=pl.lit("late"))
    return pl.concat([updated.select(state.columns), inserted.select(state.columns)])


def _replayed(stage: Stage, path: str, version: int) -> DataFrame:
    """Apply the feed to the table as of a version, as a downstream system would."""
    reader = stage.spark.read.format("delta")
    first = reader.option("versionAsOf", version).load(path)
    feed = (
        stage.spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", version + 1)
        .load(path)
    )
    removed = feed.where("_change_type IN ('delete', 'update_preimage')").select("id").distinct()
    last = feed.where("_change_type IN ('insert', 'update_postimage')")
    newest = last.groupBy("id").agg(F.max_by(F.struct("customer", "amount", "note"), "_commit_version").alias("row"))
    deleted = feed.groupBy("id").agg(F.max_by("_change_type", "_commit_version").alias("kind")).where("kind = 'delete'")
    arrived = newest.join(deleted, "id", "left_anti").select("id", "row.customer", "row.amount", "row.note")
    return first.join(removed, "id", "left_anti").unionByName(arrived)


def _rows_in_files(path: str) -> int:
    """Count the person's rows that the live files still contain, including hidden ones."""
    files = DeltaLog.for_table(path).update().files.core["path"]
    frames = [pl.read_parquet(Path(path) / file, columns=["customer"]) for file in files]
    return sum(frame.filter(pl.col("customer") == _FORGOTTEN).height for frame in frames)


def _read(stage: Stage, path: str) -> DataFrame:
    return stage.spark.read.format("delta").load(path)


def _compare(stage: Stage, name: str, expected: pl.DataFrame, found: DataFrame) -> None:
    rows = pl.from_arrow(found.select(*expected.columns).toArrow())
    assert isinstance(rows, pl.DataFrame)
    equal = rows.sort("id").equals(expected.select(pl.all()).cast(rows.schema).sort("id"))
    stage.check(f"{name}: {expected.height:,} rows", expected=True, found=equal)
