"""Explore all scenarios, then each rule's scenario without the rule: ``python -m tests.model [SCENARIO]``.

``--page`` updates docs/reference/model.md.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

from tests.model.explore import explore
from tests.model.lake import Rules
from tests.model.page import HEAD, HEAD_OF_RULES, row_of, row_of_rule
from tests.model.scenarios import SCENARIOS, SHOWN_BY

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "model.md"


def main(only: str = "") -> int:
    """Print a line for each, or for one; 1 if a promise is broken, or all are kept without a rule."""
    page, only = only == "--page", only.removeprefix("--page")
    wrong = states = steps = 0
    rows, rules = [HEAD], [HEAD_OF_RULES]
    for scenario in SCENARIOS.values():
        if only not in scenario.name:
            continue
        began = time.monotonic()
        found = explore(scenario)
        states, steps = states + found.states, steps + found.steps
        took = time.monotonic() - began
        print(
            f"{scenario.name:<32}{found.states:>9,} states {found.steps:>10,} steps {took:6.1f} s  {found.wrong}",
            flush=True,
        )
        for label in found.trace:
            print(f"    {label}")
        wrong += bool(found.wrong)
        rows.append(row_of(scenario, found))
    print(f"{'together':<32}{states:>9,} states {steps:>10,} steps")
    rows.append(f"| together | | | | | {states:,} | {steps:,} |")
    for rule, name in SHOWN_BY.items():
        if only not in name:
            continue
        found = explore(SCENARIOS[name], Rules()._replace(**{rule: False}))
        print(f"without {rule:<24}{found.wrong or 'NOTHING IS BROKEN'} after {len(found.trace)} steps", flush=True)
        wrong += not found.wrong
        rules.append(row_of_rule(rule, name, found))
    if page:
        text = PAGE.read_text()
        for first, table in ((HEAD, rows), (HEAD_OF_RULES, rules)):
            text = re.sub(
                re.escape(first.split("\n")[0]) + r"\n(\|.*\n)+", lambda _, table=table: "\n".join(table) + "\n", text
            )
        PAGE.write_text(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
