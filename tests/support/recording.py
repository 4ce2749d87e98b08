"""Keep the outcome of a run: ``python -m pytest -p tests.support.recording --record-run fast …``.

The run itself writes with which Python and Spark it ran, on which commit, and for each area how many tests passed,
failed, or were left out (skipped, or not chosen). The file is in ``build/support``; ``python -m tests.support keep``
takes it into the kept runs.
"""

from __future__ import annotations

import datetime as dt
import json
import platform
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pydelta.engines.spark_versions import installed_spark
from tests.support.areas import SUITES, area_of

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "support"


class Recording:
    """Count the outcomes of a run by area."""

    def __init__(self, suite: str) -> None:
        self.suite = suite
        self.counts: dict[str, Counter[str]] = {}
        self.began = time.monotonic()

    def count(self, nodeid: str, outcome: str) -> None:
        self.counts.setdefault(area_of(nodeid), Counter())[outcome] += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:  # in its setup or its clean-up, too
            self.count(report.nodeid, "failed")
        elif report.skipped:  # an expected failure as well
            self.count(report.nodeid, "left_out")
        elif report.when == "call":
            self.count(report.nodeid, "passed")

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        for item in items:
            self.count(item.nodeid, "left_out")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.count(report.nodeid, "failed")

    def run(self) -> dict[str, Any]:
        """The run as it is kept."""
        asked = ["git", "rev-parse", "--short=12", "HEAD"]
        commit = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
        return {
            "suite": self.suite,
            "python": platform.python_version(),
            "spark": installed_spark() if SUITES[self.suite].in_spark else None,
            "commit": commit or "unknown",
            "date": dt.datetime.now(dt.UTC).date().isoformat(),
            "seconds": round(time.monotonic() - self.began),
            "areas": {
                area: {outcome: counts[outcome] for outcome in ("passed", "failed", "left_out")}
                for area, counts in sorted(self.counts.items())
            },
        }

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return  # What was interrupted says nothing about what it did not reach.
        run = self.run()
        FOLDER.mkdir(parents=True, exist_ok=True)
        name = "-".join(filter(None, [run["suite"], f"python{run['python']}", run["spark"] and f"spark{run['spark']}"]))
        (FOLDER / f"{name}.json").write_text(json.dumps(run, indent=1) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-run", choices=sorted(SUITES), help="write the outcome to build/support, as this suite")


def pytest_configure(config: pytest.Config) -> None:
    suite = config.getoption("--record-run")
    if suite and not hasattr(config, "workerinput"):  # workers of xdist report to the process that started them
        config.pluginmanager.register(Recording(suite))
