"""Explore all scenarios, then each one that a rule is for without that rule: ``python -m tests.model [SCENARIO]``."""

from __future__ import annotations

import sys
import time

from tests.model.explore import explore
from tests.model.lake import Rules
from tests.model.scenarios import SCENARIOS, SHOWN_BY


def main(only: str = "") -> int:
    """Print a line for each, or for one; 1 if a promise is broken, or all are kept without a rule."""
    wrong = states = steps = 0
    for scenario in SCENARIOS.values():
        if only not in scenario.name:
            continue
        began = time.monotonic()
        found = explore(scenario)
        states, steps = states + found.states, steps + found.steps
        took = time.monotonic() - began
        print(f"{scenario.name:<26}{found.states:>9,} states {found.steps:>10,} steps {took:6.1f} s  {found.wrong}", flush=True)
        for label in found.trace:
            print(f"    {label}")
        wrong += bool(found.wrong)
    print(f"{'together':<26}{states:>9,} states {steps:>10,} steps")
    for rule, name in SHOWN_BY.items():
        if only not in name:
            continue
        found = explore(SCENARIOS[name], Rules()._replace(**{rule: False}))
        print(f"without {rule:<20}{name:<26}{found.wrong or 'NOTHING IS BROKEN'} after {len(found.trace)} steps", flush=True)
        wrong += not found.wrong
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
