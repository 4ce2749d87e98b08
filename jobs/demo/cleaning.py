"""Show VACUUM: an inventory finds the files that no version needs, and three tables are cleaned with it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from pyspark.sql import functions as F

from jobs import inventory, load_inventory, vacuum
from jobs.demo.charts import Bars
from jobs.demo.stage import Stage
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

_DAYS, _ROWS = 30, 9_000
_NAMES = ("gauges", "meters", "valves")
_WEEK_MS = 8 * 86_400_000


def run(stage: Stage) -> None:
    """List, load, look and delete, comparing each step with the files on disk."""
    lake, reports = stage.folder / "lake", stage.folder / "inventory"
    with stage.step(f"Write {len(_NAMES)} tables, change rows, leave what dead writers left"):
        for number, name in enumerate(_NAMES):
            _history(stage, str(lake / name), number)
    table, locations = str(stage.folder / "datalake_report"), [f"--table-location=demo.{n}={lake / n}" for n in _NAMES]

    with stage.step("List the lake in the layout of S3 Inventory"):
        (made,) = inventory.run({}, ["--source", str(lake), "--destination", str(reports)])
    stage.check("files and directories listed", expected=len(list(lake.rglob("*"))), found=made["objects"])
    arguments = ["--source", str(reports), "--location", table, *locations]
    with stage.step("Load it into the inventory table, and once more: it counts once"):
        loaded = load_inventory.run({}, arguments)
        again = load_inventory.run({}, arguments)
    stage.check("a repeated delivery commits nothing", expected=None, found=again["version"])
    rows = stage.spark.read.format("delta").load(table).where("NOT isDir").groupBy("table").count().collect()
    expected = {f"demo.{name}": sum(path.is_file() for path in (lake / name).rglob("*")) for name in _NAMES}
    stage.check("files of each table in it", expected=expected, found={row["table"]: row["count"] for row in rows})

    named = [str(lake / name) for name in _NAMES]
    later = loaded["buckets"][0]["created_ms"] + _WEEK_MS
    (refused, *_) = vacuum.run({}, [*named, "--inventory", table, "--retention-hours", "1"], now_ms=later)
    stage.check("an hour of retention is refused", expected=1, found=refused["exit_code"])
    before = {name: stage.spark.read.format("delta").load(str(lake / name)).count() for name in _NAMES}
    doomed = {name: _unneeded(lake / name) for name in _NAMES}
    with stage.step("Eight days later: what would go? One inventory for all tables"):
        planned = vacuum.run({}, [*named, "--inventory", table, "--dry-run"], now_ms=later)
    found = {Path(row["location"]).name: set(row["files"]) for row in planned}
    stage.check("a dry run names what no version needs", expected=doomed, found=found)
    with stage.step("Delete it"):
        done = vacuum.run({}, [*named, "--inventory", table], now_ms=later)
    left = {name: _unneeded(lake / name) for name in _NAMES}
    stage.check("nothing is left that no version needs", expected={name: set() for name in _NAMES}, found=left)
    after = {name: stage.spark.read.format("delta").load(str(lake / name)).count() for name in _NAMES}
    stage.check("rows are what they were", expected=before, found=after)
    requests = {Path(row["location"]).name: row["list_requests"] for row in done}
    # A folder that is about to lose files is checked for a table in it, because an inventory cannot show one.
    folders = {name: len({Path(path).parent for path in files if "/" in path}) for name, files in doomed.items()}
    stage.check("one request for each folder that loses files, no listing", expected=folders, found=requests)
    deleted = sum(row["deleted"] for row in done)
    stage.fact(
        "Vacuumed",
        f"{deleted:,} files of {len(done)} tables by one inventory; {sum(requests.values())} requests, no listing",
    )
    counts = {f"{Path(row['location']).name}: {what}": row[what] for row in done for what in ("listed", "deleted")}
    stage.chart(Bars(title="Files that VACUUM was shown, and deleted", bars=counts))
    history = DeltaTable.forPath(stage.spark, named[0]).history(2).select("operation").collect()
    stage.check("the history tells", expected=["VACUUM END", "VACUUM START"], found=[row[0] for row in history])
    stage.table(
        "VACUUM … USING INVENTORY",
        ["table", "listed", "deleted", "bytes", "requests", "a walk would have made"],
        [
            (Path(row["location"]).name, row["listed"], row["deleted"], row["bytes"], row["list_requests"],
             row["directory_requests"])
            for row in done
        ],
    )  # fmt: skip


def _history(stage: Stage, path: str, number: int) -> None:
    rows = stage.spark.range(_ROWS).select(
        "id",
        (F.col("id") % 500 / 4).alias("value"),
        F.date_add(F.lit("2024-01-01").cast("date"), (F.col("id") % _DAYS).cast("int")).alias("day"),
    )
    rows.repartition("day").write.format("delta").partitionBy("day").save(path)
    table = DeltaTable.forPath(stage.spark, path)
    table.delete(f"day < DATE'2024-01-0{number + 3}'")
    table.update(f"id % {number + 7} = 0 AND day < DATE'2024-01-15'", {"value": F.lit(0.0)})
    for lost in range(number + 1):
        Path(path, "day=2024-01-20", f"part-lost-{lost}.parquet").write_bytes(b"half a file")


def _unneeded(table: Path) -> set[str]:
    """Return the data files on disk that the newest version does not name."""
    snapshot = DeltaLog.for_table(str(table)).update()
    live = {unquote(path) for path in snapshot.files.core["path"]}
    found = {str(path.relative_to(table)) for path in table.rglob("*.parquet") if "_delta_log" not in path.parts}
    return found - live
