"""How jobs end, for scripts/test-stack-airflow: a wrong argument and an unknown outcome are not tried again."""

from airflow.sdk import DAG
from lakehouse_airflow.operators import LakehouseCommand, LakehouseJob

with DAG("test_ends", schedule=None, is_paused_upon_creation=False, default_args={"retries": 3, "retry_delay": 1}):
    LakehouseJob(
        task_id="wrong_input", job="ingest", arguments=["--input", "x", "--format", "csw", "--table", "lake.x"]
    )
    LakehouseCommand(
        task_id="unknown",
        command=[
            "bash",
            "-c",
            """echo "of $STORE_SPARK_SECRET"; echo '{"error": "E", "message": "No reply"}'; exit 3""",
        ],
        repeatable=False,
    )
