"""Run as a program by ``test_write_reconcile``: a cluster of two workers in this process, with speculation.

Spark starts a second attempt on another host only, so the workers have two addresses of the loopback.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

ROWS = 400
SETTINGS = {
    "spark.app.name": "attempts",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.task.maxFailures": "4",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.minTaskRuntime": "10ms",
    "spark.sql.shuffle.partitions": "4",
}


def start_cluster(folder: Path) -> SparkSession:
    settings = SparkConf(loadDefaults=False).setAll([*SETTINGS.items(), ("spark.sql.warehouse.dir", str(folder / "w"))])
    gateway = launch_gateway(settings)
    jvm = gateway.jvm
    conf = jvm.org.apache.spark.SparkConf()
    none = jvm.scala.Option.empty()
    deploy = jvm.org.apache.spark.deploy
    address = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, conf)._1().address()
    url = f"spark://{address.hostPort()}"
    masters = gateway.new_array(jvm.java.lang.String, 1)
    masters[0] = url
    for number, host in enumerate(("127.0.0.1", "127.0.0.2")):
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            host, 0, 0, 1, 600, masters, str(folder / "workers"), jvm.scala.Option.apply(number), conf, none
        )
    return SparkSession(SparkContext(conf=settings.setMaster(url), gateway=gateway))


def main(folder: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = start_cluster(folder)
    spark.sparkContext.setLogLevel("ERROR")
    import pydelta
    from pydelta.engines.spark.write import writer
    from pydelta.errors import DeltaError

    pydelta.enable(spark)
    marks = folder / "marks"
    marks.mkdir()

    def wait_for(path: Path) -> None:
        for _ in range(1_200):
            if path.exists():
                return
            time.sleep(0.05)

    def fails_first(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batches
        if context.attemptNumber() == 0 and context.partitionId() == 1:
            raise RuntimeError("the first attempt dies after its last row")

    def is_overtaken(batches):
        """The first attempt of one task has handed on all rows and waits until another attempt has begun."""
        from pyspark import TaskContext

        context = TaskContext.get()
        if context.partitionId() == 3 and context.attemptNumber() > 0:
            (marks / "second").touch()
        yield from batches
        if context.partitionId() == 3 and context.attemptNumber() == 0:
            wait_for(marks / "second")

    def takes_the_executor_along(batches):
        from pyspark import TaskContext

        yield from batches
        if TaskContext.get().partitionId() == 2 and not (marks / "killed").exists():
            (marks / "killed").touch()
            worker_daemon = os.getppid()
            executor = int(Path(f"/proc/{worker_daemon}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(executor, signal.SIGKILL)

    def written(name: str, rows) -> list[int]:
        path = str(folder / name)
        rows.write.format("delta").save(path)
        return sorted(row[0] for row in spark.read.format("delta").load(path).collect())

    ids = spark.range(0, ROWS, 1, 4)
    found: dict[str, object] = {"expected": list(range(ROWS))}
    found["retried"] = written("retried", ids.mapInArrow(fails_first, "id long"))
    found["speculated"] = written("speculated", ids.mapInArrow(is_overtaken, "id long"))
    found["second attempts"] = len(list(marks.glob("second")))
    # A shuffle first, whose blocks go with the executor: stages are run again.
    found["lost executor"] = written("lost", ids.repartition(4, "id").mapInArrow(takes_the_executor_along, "id long"))

    original = writer.run_task

    def loses_one(batches, task, *, partition_id):
        from pydelta.engines.arrow.tasks.write_files import run_task

        rows = (batch.slice(1) if partition_id == 0 else batch for batch in batches)
        return run_task(rows, task, partition_id=partition_id)

    writer.run_task = loses_one
    try:
        written("mismatch", ids.mapInArrow(fails_first, "id long"))
    except DeltaError as error:
        found["mismatch"] = str(error)
    writer.run_task = original
    spark.stop()
    print("RESULT " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
