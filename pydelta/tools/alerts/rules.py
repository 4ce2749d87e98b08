"""List the alerts: when each begins, how bad it is, what it means and what to do. Prometheus and the webhook use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["LATE_SECONDS", "RULES", "AlertCondition", "AlertFigure", "AlertRule"]

_MINUTE: Final = 60
_HOUR: Final = 3600
LATE_SECONDS: Final = 10 * _MINUTE
"""A schedule is late once it should have begun more than this many seconds ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertFigure:
    """A number that ``/metrics`` has, for each combination of its labels.

    Args:
        metric: Name of the metric.
        labels: Labels that the series must have.
        how: ``last`` for the newest value, ``increase`` of a counter or ``delta`` of a gauge over ``seconds``.
        seconds: The time for ``increase`` and ``delta``.
    """

    metric: str
    labels: Mapping[str, str] = field(default_factory=dict)
    how: str = "last"
    seconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertCondition:
    """A comparison of a figure with a threshold.

    Args:
        figure: The figure.
        is_: ``>`` or ``==``.
        threshold: The threshold.
    """

    figure: AlertFigure
    is_: str
    threshold: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """An alert. It begins when its conditions have held for some time, and ends when they have not held for some time.

    Args:
        name: Its name, such as ``TwinIsBehind``.
        when: The conditions, all of which must hold. The first one has the value that is shown.
        on: Labels by which the series of several conditions belong together.
        for_seconds: How long they must hold.
        ends_after_seconds: How long they must not hold before it ends, so that a figure that flaps is one alert.
        severity: ``critical`` or ``warning``.
        unit: The unit of the value: ``seconds``, ``ratio`` or ``count``.
        summary: One sentence about one series: ``{name}`` is a label and ``{value}`` is the value.
        meaning: What it means, for the guide.
        next: What to do.
        by_page: Whether the page's process can notice it and post it to the webhook.
    """

    name: str
    when: tuple[AlertCondition, ...]
    on: tuple[str, ...] = ()
    for_seconds: int
    ends_after_seconds: int = 2 * _MINUTE
    severity: str = "warning"
    unit: str = "count"
    summary: str
    meaning: str
    next: str
    by_page: bool = True


def _above(metric: str, threshold: float) -> tuple[AlertCondition, ...]:
    return (AlertCondition(figure=AlertFigure(metric=metric), is_=">", threshold=threshold),)


def _equal(metric: str, threshold: float, **labels: str) -> tuple[AlertCondition, ...]:
    return (AlertCondition(figure=AlertFigure(metric=metric, labels=labels), is_="==", threshold=threshold),)


RULES: Final = (
    AlertRule(
        name="StatusPageIsGone",
        when=_equal("up", 0, job="status-page"),
        for_seconds=2 * _MINUTE,
        severity="critical",
        summary="The status page does not answer: nothing is known of tables and services.",
        meaning="Prometheus cannot read the status page. Only Prometheus can notice this, so the webhook never has it.",
        next="Run make status, then make logs SERVICE=ui.",
        by_page=False,
    ),
    AlertRule(
        name="ServiceDoesNotAnswer",
        when=_equal("pydelta_service_up", 0),
        for_seconds=_MINUTE,
        ends_after_seconds=_MINUTE,
        severity="critical",
        summary="{service} does not answer.",
        meaning="A service refuses connections, answers with an error or has not answered in time.",
        next="Run make status and make logs SERVICE=…; make up starts what is missing.",
    ),
    AlertRule(
        name="TableInTrouble",
        when=_equal("pydelta_table_trouble", 2),
        for_seconds=5 * _MINUTE,
        severity="critical",
        summary="{table}: the status page shows an error.",
        meaning="The log cannot be read, or an entry of the table cannot be brought to the newest version.",
        next="Open the table on the status page, which says what is wrong and what to do.",
    ),
    AlertRule(
        name="TwinIsBehind",
        when=_above("pydelta_table_lag_seconds", 15 * _MINUTE),
        for_seconds=5 * _MINUTE,
        unit="seconds",
        summary="Trino's hive and Presto show {table} as it was {value} ago.",
        meaning="The symlink manifests or the twin in the metastore are older than the log.",
        next="Run catalog_sync sync with the table's name; if it recurs, look at the scheduler's sync line.",
    ),
    AlertRule(
        name="NativeEntryIsBehind",
        when=_equal("pydelta_table_native_behind", 1),
        for_seconds=15 * _MINUTE,
        summary="The metastore shows other columns or properties of {table} than its newest version has.",
        meaning="The native entry is older than the log. Spark and Trino's delta catalog read the log and are right; "
        "tools that read only the metastore are not.",
        next="Run catalog_sync sync with the table's name; if it recurs, look at the scheduler's sync line.",
    ),
    AlertRule(
        name="IcebergEntryIsBehind",
        when=_above("pydelta_table_iceberg_lag_seconds", 15 * _MINUTE),
        for_seconds=5 * _MINUTE,
        unit="seconds",
        summary="Readers of the Iceberg entry see {table} as it was {value} ago.",
        meaning="The Iceberg entry is older than the log.",
        next="Run catalog_sync sync with the table's name; catalog_sync status says why it cannot, if so.",
    ),
    AlertRule(
        name="StreamIsBehind",
        when=(
            *_above("pydelta_stream_backlog_versions", 0),
            AlertCondition(
                figure=AlertFigure(metric="pydelta_stream_batch", how="delta", seconds=5 * _MINUTE),
                is_="==",
                threshold=0,
            ),
        ),
        on=("checkpoint",),
        for_seconds=30 * _MINUTE,
        summary="The stream at {checkpoint} has made no batch for half an hour, and {value} commits wait.",
        meaning="A streaming query whose checkpoint is watched has stopped, or its batches fail.",
        next="Look whether its program runs, and at its log; start it again with the same checkpoint.",
    ),
    AlertRule(
        name="ScheduleFailed",
        when=_equal("pydelta_schedule_failed", 1),
        for_seconds=5 * _MINUTE,
        summary="The last run of a schedule failed: {schedule}",
        meaning="A line of jobs/schedule.conf (sync, inventory, maintenance, VACUUM) ended with an error, "
        "and no later run succeeded.",
        next="Read its error on the status page or in make logs SERVICE=scheduler, and run the command by hand.",
    ),
    AlertRule(
        name="ScheduleIsLate",
        when=_above("pydelta_schedule_late_seconds", LATE_SECONDS),
        for_seconds=_MINUTE,
        unit="seconds",
        summary="A schedule should have begun {value} ago: {schedule}",
        meaning="The scheduler does not start a line that is due: it does not run, or it hangs.",
        next="Run make status and make logs SERVICE=scheduler; make up starts it again.",
    ),
    AlertRule(
        name="ScheduleDoesNotEnd",
        when=_above("pydelta_schedule_running_seconds", 6 * _HOUR),
        for_seconds=_MINUTE,
        unit="seconds",
        summary="A schedule has been running for {value}: {schedule}",
        meaning="One run of a line takes more than six hours, and the next one waits for it.",
        next="Look at make logs SERVICE=scheduler; docker compose restart scheduler ends the run.",
    ),
    AlertRule(
        name="MaintenanceFails",
        when=_above("pydelta_maintenance_failed_tries", 2),
        for_seconds=_MINUTE,
        summary="Maintenance failed {value} times: {action} of {table}.",
        meaning="OPTIMIZE, VACUUM or the sync of one table failed three times in a row, and is tried again.",
        next="Read the error on the status page or in the journal ops.maintenance, and mend its reason.",
    ),
    AlertRule(
        name="DiskFillsUp",
        when=_above("pydelta_disk_used_ratio", 0.85),
        for_seconds=10 * _MINUTE,
        ends_after_seconds=10 * _MINUTE,
        unit="ratio",
        summary="The disk {disk} is {value} full.",
        meaning="Less than 15 % of a disk is free. Commits fail once nothing is free, but no table is damaged.",
        next="Run VACUUM, shorten retentions, delete backups or images of Docker (docker system df), or add space.",
    ),
    AlertRule(
        name="DiskIsFull",
        when=_above("pydelta_disk_used_ratio", 0.95),
        for_seconds=_MINUTE,
        ends_after_seconds=10 * _MINUTE,
        severity="critical",
        unit="ratio",
        summary="The disk {disk} is {value} full.",
        meaning="Less than 5 % of a disk is free: writes will soon fail.",
        next="Make room at once: docker system df shows what Docker holds; then VACUUM, which needs little space.",
    ),
    AlertRule(
        name="CommitsAreRefused",
        when=(
            AlertCondition(
                figure=AlertFigure(metric="pydelta_refused_commits_total", how="increase", seconds=15 * _MINUTE),
                is_=">",
                threshold=2,
            ),
        ),
        for_seconds=0,
        ends_after_seconds=5 * _MINUTE,
        summary="Commits to {table} are refused, {value} within 15 minutes: {error}",
        meaning="Programs on the cluster gave up changes of a table, because other writers won, or because it is not "
        "known whether the commit landed.",
        next="Look at the programs' errors. For conflicts, let fewer writers change the same rows at once, or raise "
        "spark.pydelta.change.maxRetries; if the outcome is unknown, look at the history before running it again.",
    ),
    AlertRule(
        name="StatementsRunAgain",
        when=_above("pydelta_table_retries", 20),
        for_seconds=5 * _MINUTE,
        ends_after_seconds=5 * _MINUTE,
        summary="Statements on {table} were run again {value} times within 15 minutes after conflicts.",
        meaning="Writers of a table hinder each other. Their commits landed, but each retry costs its work again.",
        next="Let fewer writers change the same rows at once, or partition the table by what separates them.",
    ),
)
"""The alerts, in the order of the guide."""
