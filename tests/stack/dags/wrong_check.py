"""A check that does not hold, for scripts/test-stack-airflow: the run fails, with what was seen."""

from airflow.sdk import DAG
from lakehouse_airflow.operators import TrinoCheck

with DAG("test_wrong_check", schedule=None, is_paused_upon_creation=False, default_args={"retries": 3}):
    TrinoCheck(task_id="check", sql="SELECT 41 + 1 = 43 AS sum_is_right, 41 + 1 AS sum_found")
