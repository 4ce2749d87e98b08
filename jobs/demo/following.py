"""Show a stream of flights that is killed in the middle and restarted: no row is lost or doubled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import polars as pl
from pyspark.sql import functions as F

from jobs import ingest_stream
from jobs.demo import flights
from jobs.demo.charts import Bars
from jobs.demo.stage import Stage
from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

_FILES, _KILLED_AFTER = 4, 1  # Each file holds three months; the second value counts batches.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # A short-lived JVM is faster with one compiler.


def run(stage: Stage) -> None:
    """Stream one file per batch, and compare the final table with Polars on the CSV files alone."""
    incoming, path = stage.folder / "incoming", str(stage.folder / "followed")
    year = flights.all_flights()
    with stage.step("Put a file for each quarter where a stream looks"):
        _write_files(incoming, year)
    job = _Job(stage.folder, incoming, path)

    with stage.step("Start the stream by itself; kill -9 it within a batch"):
        first = job.killed_after(_KILLED_AFTER)
    landed = _batches(stage, path)
    stage.check("batches that it had told are in the table", expected=True, found=set(first) <= set(landed))
    stage.check("batches left to do when it was killed", expected=True, found=len(landed) < _FILES)

    with stage.step("Start it again, in this process: it goes on from its checkpoint"):
        ingest_stream.run(stage.spark, job.arguments)
    flights.compare(stage, "streamed", year, stage.spark.read.format("delta").load(path))
    stage.fact(
        "Streamed", f"{year.height:,} flights; killed after batch {len(landed)} of {_FILES}, none lost or doubled"
    )
    # A batch that was being planned when the process died may also include the next file.
    numbers = _batches(stage, path)
    stage.check("every batch is in the table once", expected=list(range(len(numbers))), found=numbers)

    stage.chart(_chart(stage, path, len(landed)))

    with stage.step("Follow that table with a query that keeps totals in another"):
        totals = _totals(stage, path)
    _compare_totals(stage, year, totals)


def _write_files(folder: Path, year: pl.DataFrame) -> None:
    folder.mkdir()
    for number in range(_FILES):
        file = folder / f"{number}.csv"
        year.filter((pl.col("month") - 1) * _FILES // 12 == number).write_csv(file, null_value="NA")
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark reads the oldest file first.


class _Job:
    """A process that runs ``jobs/ingest_stream.py`` from a folder into a table, one file per batch."""

    def __init__(self, folder: Path, incoming: Path, table: str) -> None:
        self._said = folder / "stream.log"
        self.arguments = [
            "--source", "files", "--input", str(incoming),
            "--format", "csv", "--schema", flights.SCHEMA, "--record-option", "header=true",
            "--record-option", "nullValue=NA",
            "--partition-by", "month", "--table", table, "--checkpoint", str(folder / "followed-checkpoint"),
            "--max-per-trigger", "1",
        ]  # fmt: skip

    def killed_after(self, batches: int) -> list[int]:
        """Kill the process and its JVM after it reported this many batches. Returns their numbers."""
        numbers: list[int] = []
        with self._said.open("wb") as log, self._started(log) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    numbers += [found["batch"] for found in [json.loads(line)] if "batch" in found]
                    if len(numbers) >= batches:
                        break
            finally:
                os.killpg(process.pid, signal.SIGKILL)
        if len(numbers) < batches:
            raise self._failure("before it could be killed")
        return numbers

    def _started(self, log: IO[bytes]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "jobs.ingest_stream", *self.arguments],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
            env={**os.environ, "SPARK_SUBMIT_OPTS": _SHORT_LIVED},
        )

    def _failure(self, how: str) -> DeltaError:
        last = self._said.read_text(errors="replace").strip().splitlines()[-1:]
        return DeltaError(
            f"The stream's process ended {how}. {''.join(last)}", hint="Run make demo CHAPTER=stream again."
        )


def _batches(stage: Stage, path: str) -> list[int]:
    """Return the numbers of the batches in the table's history, oldest first."""
    history = DeltaTable.forPath(stage.spark, path).history().where("operation = 'STREAMING UPDATE'")
    return sorted(int(row["operationParameters"]["epochId"]) for row in history.collect())


def _chart(stage: Stage, path: str, landed: int) -> Bars:
    """Draw the rows of each batch, and which were there when the process was killed."""
    history = DeltaTable.forPath(stage.spark, path).history().where("operation = 'STREAMING UPDATE'").collect()
    rows = {
        int(row["operationParameters"]["epochId"]): int(row["operationMetrics"]["numOutputRows"]) for row in history
    }
    names = {number: f"batch {number}, {'before' if number < landed else 'after'} kill -9" for number in sorted(rows)}
    return Bars(title="Rows of each batch of the stream", bars={name: rows[number] for number, name in names.items()})


def _totals(stage: Stage, path: str) -> Any:
    target = str(stage.folder / "totals")
    (
        stage.spark.readStream.format("delta")
        .option("maxFilesPerTrigger", 6)
        .load(path)
        .groupBy("carrier")
        .agg(F.count("*").alias("flights"), F.sum("distance").alias("distance"))
        .writeStream.format("delta")
        .outputMode("complete")
        .option("checkpointLocation", str(stage.folder / "totals-checkpoint"))
        .trigger(availableNow=True)
        .start(target)
        .awaitTermination()
    )
    return stage.spark.read.format("delta").load(target)


def _compare_totals(stage: Stage, year: pl.DataFrame, totals: Any) -> None:
    expected = year.group_by("carrier").agg(pl.len(), pl.col("distance").sum()).sort("carrier").rows()
    found = [tuple(row) for row in totals.orderBy("carrier").collect()]
    stage.check("totals of every carrier, kept by a stream", expected=expected, found=found)
    version = DeltaLog.for_table(str(stage.folder / "totals")).update().version
    stage.check("the totals were replaced batch by batch", expected=True, found=version >= 1)
