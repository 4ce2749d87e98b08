"""Run the lakehouse's jobs and checks from Airflow, by the operators of ``lakehouse_airflow.operators``.

::

    operators.py   the operators; it alone imports Airflow
    jobs.py        what is run, in which environment, and what its exit code means
    processes.py   a process that ends with its task
    schedule.py    the lines of jobs/schedule.conf as tasks
    checks.py      what a row of a check says
    sales.py       a day of sales, for the DAG daily_load
    trino.py       statements on Trino: jobs/verify/trino.py
"""
