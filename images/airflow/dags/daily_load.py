"""Load the sales of a day: put the file, load it, publish it for Hive's readers, and check it by Trino.

A run is about its logical date, and replaces that day in the table ``lake.daily_sales``: however often it runs, the
table has the day once. ``airflow backfill create`` loads days of the past in the same way.
"""

from __future__ import annotations

import datetime as dt
import os
import tempfile
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, chain
from lakehouse_airflow import sales
from lakehouse_airflow.operators import LakehouseCommand, LakehouseJob, TrinoCheck, day_of

TABLE = "daily_sales"
ROOT = os.environ.get("STORE_ROOT", "s3a://")
DAY = "{{ ti.xcom_pull('input')['day'] }}"
CHECK = """
SELECT count(*) = {{ ti.xcom_pull('input')['rows'] }} AS all_rows,
       coalesce(sum(amount), 0) = DECIMAL '{{ ti.xcom_pull('input')['amount'] }}' AS whole_amount,
       count_if(id IS NULL) = 0 AND count(DISTINCT id) = count(*) AS each_id_once,
       count(*) AS rows_found, {{ ti.xcom_pull('input')['rows'] }} AS rows_put, sum(amount) AS amount_found
FROM %s.daily_sales WHERE day = DATE '{{ ti.xcom_pull('input')['day'] }}'
"""


class PutSales(LakehouseCommand):
    """Put the file of a day into the place ``work``. Returns where it is, and what the table has to show of it."""

    def execute(self, context: Any) -> dict[str, Any]:
        """Make the file, the same each time, and put it."""
        day = day_of(context)
        rows = sales.sales_of(dt.date.fromisoformat(day))
        content = sales.as_csv(rows)
        place = f"{ROOT}work/airflow/daily_sales/{day}.csv"
        with tempfile.NamedTemporaryFile(suffix=".csv") as file:
            file.write(content)
            file.flush()
            put = ["bash", "-c", 'exec put "$1" "$2" <"$3"', "put", place, str(len(content)), file.name]
            self.run_command(["as-user", "spark", *put], "put")
        return {"day": day, "file": place, **sales.facts(rows)}


with DAG(
    "daily_load",
    description="The sales of a day, in the table lake.daily_sales once",
    doc_md=__doc__,
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    catchup=False,
    is_paused_upon_creation=True,
    default_args={"retries": 3, "retry_delay": dt.timedelta(seconds=20)},
    tags=["lakehouse"],
):
    chain(
        PutSales(task_id="input", command=[], repeatable=True),
        LakehouseJob(
            task_id="load",
            job="ingest",
            arguments=[
                *("--input", "{{ ti.xcom_pull('input')['file'] }}", "--format", "csv", "--option", "header=true"),
                *("--schema", sales.SCHEMA, "--table", f"lake.{TABLE}", "--partition-by", "day"),
                *("--mode", "overwrite", "--write-option", f"replaceWhere=day = '{DAY}'"),
            ],
        ),
        LakehouseCommand(
            task_id="publish",
            command=["as-user", "sync", "catalog_sync", "sync", f"lake.{TABLE}"],
            repeatable=True,
        ),
        [
            TrinoCheck(task_id=f"check_{catalog}", sql=CHECK % where)
            for catalog, where in (("delta", "delta.lake"), ("hive", "hive.lake_symlink"))
        ],
    )
