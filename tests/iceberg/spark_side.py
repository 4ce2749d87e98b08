"""Read Iceberg tables by Spark's Iceberg, one request per line of standard input. It imports nothing of the project.

A request is JSON: ``location`` of the table, ``out`` for its rows as an Arrow file, ``where`` with conditions, for the
ids of whose rows it asks, ``row_ids`` to count the ids that version 3 gives to rows. The answer is JSON in a line.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
"""Apache Iceberg's library for Spark 4.1, the newest Spark that it is published for."""


def main() -> int:
    """See above."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # Spark's own words.
    spark = _session()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = _answer(spark, request)
        except (PySparkException, Py4JError, pa.ArrowException, ValueError, OSError) as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


def _session() -> Any:
    settings = {
        "spark.jars.packages": PACKAGE,
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.host": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[1]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _answer(spark: Any, request: dict[str, Any]) -> dict[str, Any]:
    table = spark.read.format("iceberg").load(request["location"])
    answer: dict[str, Any] = {}
    if request.get("out"):
        rows = table.toArrow()
        with pa.OSFile(request["out"], "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
    if request.get("where"):
        answer["ids"] = [[row[0] for row in table.where(text).select("id").collect()] for text in request["where"]]
    if request.get("row_ids"):
        ids = [row[0] for row in table.select("_row_id").collect()]
        answer["row_ids"] = {"rows": len(ids), "different": len(set(ids)), "null": ids.count(None)}
    return answer


if __name__ == "__main__":
    sys.exit(main())
