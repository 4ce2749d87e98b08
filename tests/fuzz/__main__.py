"""``python -m tests.fuzz``: feed the engine with what nobody should write; see docs/reference/fuzzing.md."""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

from tests.fuzz.parent import Report, fuzz, keep, replay
from tests.fuzz.targets import TARGETS


def main() -> int:
    """Do what the command line asks for; 0 when every input kept the contract."""
    parser = argparse.ArgumentParser(prog="make test SUITE=fuzz", description="Feed the engine broken inputs.")
    parser.add_argument("--seconds", type=float, default=60.0, help="for all targets together (60)")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="may be given several times")
    parser.add_argument("--seed", type=int, help="a number; the same one draws the same inputs (drawn and printed)")
    parser.add_argument("--replay", metavar="FILE", help="run one input of a --target and show what it breaks")
    asked = parser.parse_args()
    names = asked.target or sorted(TARGETS)
    if asked.replay:
        if len(names) != 1:
            parser.error("--replay takes one --target")
        verdict = replay(names[0], [Path(asked.replay)])[0]
        print(verdict or "The contract is kept.")
        return int(verdict is not None)
    seed = secrets.randbelow(1 << 32) if asked.seed is None else asked.seed
    print(f"seed {seed}, {asked.seconds / len(names):.1f} s per target")
    reports = []
    for name in names:
        reports.append(fuzz(name, asked.seconds / len(names), seed))
        _show(reports[-1])
    runs, found = sum(report.runs for report in reports), sum(len(report.found) for report in reports)
    print(f"{runs:,} inputs, {found} failures")
    return int(found > 0)


def _show(report: Report) -> None:
    print(
        f"{report.target:14} {report.runs:>9,} inputs  {report.runs / max(report.seconds, 0.001):>7,.0f} per second  "
        f"{report.lines:>5} lines of the engine  {report.corpus:>4} inputs reached something new",
        flush=True,
    )
    for found in report.found:
        path = keep(found)
        print(f"\n  {found.signature}\n  again: make test SUITE=fuzz TARGET={found.target} FILE={path}")
        print(f"  Next: mend it, and move the file to tests/fuzz/kept/{found.target}.")
        print("    " + "\n    ".join(found.text.rstrip().splitlines()[-14:]) + "\n")


if __name__ == "__main__":
    sys.exit(main())
