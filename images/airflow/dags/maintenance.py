"""Run what jobs/schedule.conf has by the clock: one task per command, each line when the one before it has ended.

It has a schedule only with ``MAINTENANCE_BY=airflow`` in ``.env``. Then the stack's scheduler leaves these lines, so
that nothing is done twice. A line without a time is skipped.
"""

from __future__ import annotations

import datetime as dt
import os
from typing import Any

from airflow.sdk import DAG, CronTriggerTimetable, TriggerRule, chain
from airflow.sdk.exceptions import AirflowSkipException
from lakehouse_airflow.operators import LakehouseCommand, is_off
from lakehouse_airflow.schedule import Line, cron_of, read_schedule


class ScheduledCommand(LakehouseCommand):
    """A command of the schedule; skipped where its line is off."""

    def __init__(self, *, at: str | None, **kwargs: Any) -> None:
        super().__init__(repeatable=True, **kwargs)
        self.at = at

    def execute(self, context: Any) -> dict[str, Any] | None:
        """Run it, if its line has a time."""
        if self.at is None:
            raise AirflowSkipException(is_off(self.task_id))
        return super().execute(context)


def tasks_of(lines: list[Line]) -> list[ScheduledCommand]:
    """Make the tasks. Those of a line that is off run none of their commands."""
    return [
        ScheduledCommand(task_id=step.name, command=step.command, at=line.at, trigger_rule=TriggerRule.NONE_FAILED)
        for line in lines
        for step in line.steps
    ]


found = read_schedule(os.environ)
cron = cron_of(found) if os.environ.get("MAINTENANCE_BY") == "airflow" else None
# A time of the past is not made up for: the first run waits for its time of day, and there is no start date.
waiting = None if cron is None else CronTriggerTimetable(cron, timezone="UTC", run_immediately=dt.timedelta())
with DAG(
    "maintenance",
    description="What jobs/schedule.conf has by the clock: inventory, compaction, VACUUM",
    doc_md=__doc__,
    schedule=waiting,
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=False,
    default_args={"retries": 2, "retry_delay": dt.timedelta(minutes=2)},
    tags=["lakehouse"],
):
    chain(*tasks_of(found))
