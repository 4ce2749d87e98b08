"""Record what becomes of each test: a plugin of pytest for a suite's environment, so it takes nothing but pytest.

``PYDELTA_SUITE`` names a JSON file with ``left_out``, patterns of tests that do not run, ``part``, which of how many
parts of the classes and files runs, and ``results``, where the outcomes go.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

ASKED = json.loads(Path(os.environ["PYDELTA_SUITE"]).read_text())
FOUND: dict[str, dict[str, Any]] = {}


@pytest.hookimpl(trylast=True)  # SQLAlchemy's plugin replaces the items by one per database
def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Take the tests of the part that do not match a pattern of those to leave out."""
    left_out = [re.compile(".*".join(map(re.escape, pattern.split("*")))) for pattern in ASKED["left_out"]]
    part, parts = ASKED["part"]
    taken = []
    for item in items:
        name = item.nodeid
        if zlib.crc32(name.rpartition("::")[0].encode()) % parts != part - 1:
            continue
        if any(pattern.fullmatch(name) for pattern in left_out):
            FOUND[name] = {"outcome": "left out", "text": ""}
        else:
            taken.append(item)
    items[:] = taken


def pytest_collectreport(report: Any) -> None:
    """Record a file that could not be read as a failure."""
    if report.failed:
        FOUND[report.nodeid] = {"outcome": "failed", "text": _said(report)}


def pytest_runtest_logreport(report: Any) -> None:
    """Record the worst of a test's three phases."""
    name = report.nodeid
    before = FOUND.get(name, {}).get("outcome")
    if report.outcome == "failed":
        FOUND[name] = {"outcome": "failed", "text": _said(report)}
    elif report.outcome == "skipped" and before != "failed":
        expected = hasattr(report, "wasxfail")
        text = report.wasxfail if expected else str(report.longrepr[2] if report.longrepr else "")
        FOUND[name] = {"outcome": "expected to fail" if expected else "skipped", "text": text[:300]}
    elif before is None and report.when == "call":
        FOUND[name] = {"outcome": "passed", "text": ""}
    if report.when == "teardown":
        pytest_sessionfinish()


def pytest_sessionfinish() -> None:
    """Write the outcomes so far."""
    Path(ASKED["results"]).write_text(json.dumps(FOUND, indent=1, sort_keys=True))


def _said(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return f"{crash.message if crash else report.longrepr}\n{report.capstdout[-1500:]}"
