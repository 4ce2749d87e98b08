"""Draw ``docs/reference/suites.md`` from the outcomes that are kept and the reasons beside them."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.suites.rows import Outcomes, Reason, Suite

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "suites.md"
HEAD = """\
# Suites of other projects

What other projects do with tables that pydelta stores: each suite runs in an environment that `make test SUITE=others`
makes from PyPI. `ARGS=mlflow` runs one of them. A run fails if a test fails without a reason in `tests/suites`,
if a reason is no longer needed, or if an outcome differs from the one that is kept. `ARGS=--record` keeps the outcomes
and draws this page.

- **left out**: does not run here, for a reason given below;
- **skipped**: the suite itself leaves it out, for this kind of engine or because its own environment lacks something;
- **expected**: fails, as the suite itself expects of Spark.

"""
COLUMNS = ("passed", "failed", "left out", "skipped", "expected to fail")


def page(suites: Iterable[Suite]) -> str:
    """Return the text of the page."""
    found = [(suite, suite.outcomes(), suite.reasons()) for suite in suites]
    lines = ["| suite | version | passed | failed | left out | skipped | expected |", "|---|---|---|---|---|---|---|"]
    for suite, outcomes, _ in found:
        counts = Counter(item["outcome"] for item in outcomes.values())
        numbers = " | ".join(f"{counts[column]:,}" for column in COLUMNS)
        lines.append(f"| {suite.title} | {suite.package} {suite.version} | {numbers} |")
    sections = [text for suite, outcomes, reasons in found for text in _section(suite, outcomes, reasons)]
    return HEAD + "\n".join([*lines, *sections]) + "\n"


def _section(suite: Suite, outcomes: Outcomes, reasons: list[Reason]) -> list[str]:
    """Draw a suite's note, and what fails and what is left out, with the number of tests per reason."""
    lines = ["", *textwrap.wrap(suite.note, 120)] if suite.note else []
    for kind, outcome, title in (("fails", "failed", "Fails"), ("left_out", "left out", "Left out")):
        rows = [reason for reason in reasons if reason.kind == kind]
        if rows:
            lines += ["", f"| {title.lower()} | tests | why |", "|---|---|---|"]
        for reason in rows:
            names = [name for name, item in outcomes.items() if item["outcome"] == outcome and reason.about(name)]
            lines.append(f"| {_patterns(reason.tests)} | {len(names)} | {' '.join(reason.reason.split())} |")
    return ["", f"## {suite.title}", *lines] if lines else []


def _patterns(patterns: tuple[str, ...]) -> str:
    """Show at most three patterns, without the stars around them."""
    shown = [f"`{pattern.strip('*').replace('|', ' ')}`" for pattern in patterns[:3]]
    more = len(patterns) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
