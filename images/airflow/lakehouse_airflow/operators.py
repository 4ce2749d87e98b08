"""Operators for DAGs of the lakehouse: a job on its cluster, a command of its schedule, a check by Trino."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.sdk.log import mask_secret

from lakehouse_airflow import jobs
from lakehouse_airflow.checks import what_is_wrong
from lakehouse_airflow.processes import Process
from lakehouse_airflow.trino import Trino, TrinoError

__all__ = ["POOL", "LakehouseCommand", "LakehouseJob", "TrinoCheck", "day_of"]

POOL = "cluster"
"""The pool whose slots are the jobs that the cluster has room for."""

_AGAIN = 2
_AGAIN_SECONDS = 30


def day_of(context: Mapping[str, Any]) -> str:
    """Return the day that a run is about, as YYYY-MM-DD: of its logical date, or of its start where it has none."""
    run = context["dag_run"]
    return str((run.logical_date or run.run_after).date())


class LakehouseCommand(BaseOperator):
    """Run a command of the stack's Spark image, as the stack's scheduler does.

    Its output goes to the task's log, and the line of JSON that it prints at its end is what the task returns. If it
    may not run twice, the task has no retries: what is known to have changed nothing (exit code 2) is repeated here.

    Args:
        command: The words of the command line; templates are filled in.
        repeatable: Whether it may run again where it is not known what it did.
    """

    template_fields: Sequence[str] = ("command",)
    ui_color = "#d5e8d4"

    def __init__(self, *, command: Sequence[str], repeatable: bool, **kwargs: Any) -> None:
        kwargs.setdefault("pool", POOL)
        if not repeatable:
            kwargs["retries"] = 0
        super().__init__(**kwargs)
        self.command = list(command)
        self.repeatable = repeatable
        self._process: Process | None = None

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any] | None:
        """Run it, and again where that is all there is to do."""
        return self.run_command(self.words(), self.task_id)

    def words(self) -> list[str]:
        """Return the command line."""
        return [str(word) for word in self.command]

    def run_command(self, words: Sequence[str], name: str) -> dict[str, Any] | None:
        """Run a command line. Returns its report, if it printed one."""
        secrets = jobs.secrets_of(os.environ)
        for secret in secrets:
            mask_secret(secret)
        for left in reversed(range(1 if self.repeatable else 1 + _AGAIN)):
            self.log.info("Runs: %s", jobs.masked(" ".join(words), secrets))
            self._process = Process(words, jobs.environment_of(os.environ))
            ended = self._process.follow(lambda line: self.log.info("%s", jobs.masked(line, secrets)))
            report = jobs.report_of(ended.last)
            following = jobs.what_next(ended.code, repeatable=self.repeatable, reported=report is not None)
            if following is jobs.Next.DONE:
                return report
            said = jobs.explained(name, ended.code, repeatable=self.repeatable, report=report)
            if following is jobs.Next.GIVE_UP:
                raise AirflowFailException(jobs.masked(said, secrets))
            if left:
                self.log.warning("%s", jobs.masked(said, secrets))
                time.sleep(_AGAIN_SECONDS)
        raise AirflowException(jobs.masked(said, secrets))

    def on_kill(self) -> None:
        """End the process and all that it started."""
        if self._process is not None:
            self._process.end()


class LakehouseJob(LakehouseCommand):
    """Run a job of ``jobs``, or a script, on the stack's cluster.

    Args:
        job: The name of a job, or a file that ends with ``.py``.
        arguments: Its arguments; templates are filled in.
        user: The user of the store whose key it gets.
        repeatable: Whether it may run again where it is not known what it did; by default by what is known of the job.
    """

    template_fields: Sequence[str] = ("job", "arguments", "user")

    def __init__(
        self,
        *,
        job: str,
        arguments: Sequence[str] = (),
        user: str = "spark",
        repeatable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        known = jobs.is_repeatable(job, list(map(str, arguments))) if repeatable is None else repeatable
        super().__init__(command=[], repeatable=known, **kwargs)
        self.job = job
        self.arguments = list(arguments)
        self.user = user

    def words(self) -> list[str]:
        """Return the command line."""
        return jobs.command_of(self.job, [str(word) for word in self.arguments], self.user)


class TrinoCheck(BaseOperator):
    """Ask Trino whether something holds. The statement returns one row, in which each boolean has to be true.

    The other columns of the row show what was found: both are in the log, and in the error. What Trino refuses or
    finds wrong fails without retries; a Trino that does not answer is asked again.

    Args:
        sql: The statement; templates are filled in.
    """

    template_fields: Sequence[str] = ("sql",)
    template_fields_renderers = {"sql": "sql"}  # noqa: RUF012 -- Airflow reads it so
    ui_color = "#dae8fc"

    def __init__(self, *, sql: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sql = sql

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Ask it once. Returns what was seen."""
        user, password = os.environ.get("TRINO_USER", "airflow"), os.environ.get("TRINO_PASSWORD")
        trino = Trino(os.environ.get("TRINO", "trino:8080"), user, password=password)
        self.log.info("Asks Trino: %s", self.sql)
        try:
            columns, rows = trino.answer(self.sql)
        except TrinoError as error:
            if error.hint is None:
                raise AirflowFailException(f"Trino refused the check: {error}") from error
            raise AirflowException(f"{error} Next: {error.hint}") from error
        wrong = what_is_wrong(columns, rows)
        if wrong is not None:
            raise AirflowFailException(f"The check {self.task_id} does not hold. {wrong}")
        seen = dict(zip(columns, rows[0], strict=True))
        self.log.info("It holds: %s", seen)
        return seen


def is_off(name: str) -> str:
    """Say that a line of the schedule is off, and how it is switched on."""
    variable = re.sub(r"\W", "_", name).upper() + "_AT"
    return f"jobs/schedule.conf has no time for {name}. Next: set one in .env, such as {variable}=03:00, then make up."
