"""Compare charts of Superset with what they are about: ``python -m jobs.verify.charts [--follow DASHBOARD CHART]``.

Without an option, each number of the dashboard of flights has to be what Trino answers. With ``--follow`` it reads
numbers from standard input, a line each, and prints when the chart first showed that much more than at the start, in
epoch seconds, in their order. Exit codes: 0 all were right; 1 an argument is wrong; 2 Superset or Trino does not
answer, run it again; 4 a check failed: a number was not right, or did not come.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from jobs.verify.changes import seen
from jobs.verify.superset import Chart, Superset, SupersetError
from jobs.verify.trino import Trino, TrinoError

__all__ = ["differences", "main"]

_PATIENCE_SECONDS: Final = 240.0
FLIGHTS: Final = {
    "Flights": "SELECT count(*) FROM delta.lake.flights",
    "Cancelled": "SELECT count(*) - count(dep_time) FROM delta.lake.flights",
    "Minutes late on arrival": "SELECT CAST(sum(arr_delay) AS DOUBLE) / count(arr_delay) FROM delta.lake.flights",
}
"""What each number of the dashboard of flights is about, in other words than the chart's."""


def differences(shown: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Compare the numbers of charts with those that Trino answers.

    Args:
        shown: The number of each chart, by its name.
        expected: The number that each should have.

    Returns:
        A sentence for each chart that is missing, unknown or differs by more than a billionth.
    """
    found = [f"There is no chart {name}." for name in expected if name not in shown]
    found += [f"The chart {name} is not one that is compared." for name in shown if name not in expected]
    for name in expected.keys() & shown.keys():
        if not _is_same(shown[name], expected[name]):
            found.append(f"The chart {name} shows {shown[name]}, and Trino answers {expected[name]}.")
    return sorted(found)


def _is_same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    first, second = Decimal(str(one)), Decimal(str(other))
    return abs(first - second) * 1_000_000_000 <= abs(second)


def main() -> int:
    """Compare, and return the exit code."""
    parser = argparse.ArgumentParser(prog="make verify", description="Compare charts with what they are about.")
    parser.add_argument("--follow", nargs=2, metavar=("DASHBOARD", "CHART"))
    asked = parser.parse_args()
    try:
        superset = Superset(os.environ["SUPERSET"], os.environ["SUPERSET_USER"], os.environ["SUPERSET_PASSWORD"])
        if asked.follow is not None:
            return _follow(superset, *asked.follow)
        trino = Trino(
            os.environ.get("TRINO") or "trino:8080",
            os.environ.get("TRINO_USER") or "verify",
            password=os.environ.get("TRINO_PASSWORD"),
        )
        shown = {chart.name: superset.number(chart) for chart in superset.charts("flights")}
        expected = {name: trino.rows(statement)[0][0] for name, statement in FLIGHTS.items()}
    except (SupersetError, TrinoError) as error:
        print(f"{error} Next: make status, make logs SERVICE=superset", file=sys.stderr)
        return 2
    found = differences(shown, expected)
    for line in found or [f"{name}: {shown[name]}, as Trino answers" for name in sorted(shown)]:
        print(f"  {line}")
    return 4 if found else 0


def _follow(superset: Superset, dashboard: str, name: str) -> int:
    """Wait for a chart to show what each line says; the exit code."""
    chart, start = _at_start(superset, dashboard, name)

    def shows(more: str) -> int:
        try:
            return int(superset.number(chart) == start + int(more))
        except SupersetError:
            return 0  # Trino may be about to read a new version.

    lines = (line.strip() for line in sys.stdin if line.strip())
    for moment in seen(lines, shows, time.time, time.sleep):
        print("never" if moment is None else f"{moment:.3f}", flush=True)
        if moment is None:
            return 4
    return 0


def _at_start(
    superset: Superset, dashboard: str, name: str, clock: Callable[[], float] = time.monotonic
) -> tuple[Chart, Any]:
    """Find a chart and the number that it shows. A table's first capture takes a while."""
    give_up = clock() + _PATIENCE_SECONDS
    while True:
        try:
            chart = next(chart for chart in superset.charts(dashboard) if chart.name == name)
            return chart, superset.number(chart)
        except StopIteration:
            raise SupersetError(f"The dashboard {dashboard} has no chart {name}.") from None
        except SupersetError:
            if clock() > give_up:
                raise
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
