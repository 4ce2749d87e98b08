"""Run as a program by ``test_write_faults``: a session of its own (retries, event log, a limit on file sizes)."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

SECRET = "of-a-job-hush-q7Zk"  # leaks.MARK is in it


def fails_on_the_first_attempt(batches):
    """Hand on some rows, then fail, unless this is a second attempt."""
    from pyspark import TaskContext

    for batch in batches:
        yield batch.slice(0, batch.num_rows // 2)
        if TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("the first attempt dies in the middle")
        yield batch.slice(batch.num_rows // 2)


def grows_with_its_partition(batches):
    """Incompressible text; the last of four partitions is far larger than the others."""
    from pyspark import TaskContext

    rows = 40_000 if TaskContext.get().partitionId() == 3 else 10
    for _ in batches:
        yield pa.record_batch({"t": pa.array([os.urandom(100).hex() for _ in range(rows)])})


def main(folder: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))
    events = folder / "events"
    events.mkdir()
    spark = (
        SparkSession.builder.master("local[1,3]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", events.as_uri())
        .config("spark.eventLog.rolling.enabled", "false")
        .config("spark.eventLog.compress", "false")
        .config("spark.hadoop.fs.s3a.access.key", "someone")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext._jsc.hadoopConfiguration().set("fs.s3a.secret.key", SECRET)
    import pydelta
    from pydelta.errors import StorageFullError
    from pydelta.log import DeltaLog

    pydelta.enable(spark)
    found: dict[str, object] = {}

    retried = folder / "retried"
    rows = spark.range(0, 1_000, 1, 2).mapInArrow(fails_on_the_first_attempt, "id long")
    rows.write.format("delta").option("maxRecordsPerFile", 50).save(str(retried))
    found["rows"] = sorted(row[0] for row in spark.read.format("delta").load(str(retried)).collect()) == list(
        range(1_000)
    )
    found["files_of_the_version"] = DeltaLog.for_table(str(retried)).update().num_files

    full = folder / "full"
    rows = spark.range(0, 4, 1, 4).mapInArrow(grows_with_its_partition, "t string")
    try:
        rows.write.format("delta").save(str(full))
    except StorageFullError as error:
        found["full"] = str(error)
    found["left"] = [str(path.relative_to(full)) for path in full.rglob("*") if path.is_file()]
    spark.range(3).write.format("delta").save(str(full))
    found["afterwards"] = spark.read.format("delta").load(str(full)).count()

    spark.stop()
    logged = "".join(path.read_text() for path in events.rglob("*") if path.is_file())
    found["event_log_has_the_plan"] = "MapInArrow" in logged
    found["secret_in_event_log"] = SECRET in logged
    print("RESULT " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
