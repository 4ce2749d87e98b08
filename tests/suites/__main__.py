"""Run the suites of other projects: ``python -m tests.suites [NAME …] [--part K/N] [--record]``.

Each runs in an environment that is made for it, and fails if a test fails without a reason, if a reason is no longer
needed, or if an outcome differs from the one that is kept. ``--record`` keeps the outcomes, and draws the page of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from tests.suites.judge import complaints, differences
from tests.suites.page import PAGE, page
from tests.suites.rows import Outcomes, Suite, suites
from tests.suites.run import outcomes


def main() -> int:
    """See above."""
    there = suites()
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description="Suites of other projects.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(there)}; without one all run")
    parser.add_argument("--part", metavar="K/N", help="the K-th of N parts, by the names of classes and files")
    parser.add_argument("--turn", type=int, metavar="NUMBER", help="of the parts in suites.toml the one of this number")
    parser.add_argument(
        "--record", action="store_true", help="keep the outcomes, and draw the page of all that are kept"
    )
    parser.add_argument("--only", metavar="TEXT", help="only tests that pytest's -k takes; nothing is compared")
    asked = parser.parse_args()
    if unknown := [name for name in asked.names if name not in there]:
        parser.error(f"There is no suite {', '.join(unknown)}; there are {', '.join(there)}.")
    if asked.record and (asked.part or asked.turn is not None or asked.only):
        parser.error("Only a whole run can be kept.")
    failed = False
    for name in asked.names or there:
        failed |= not _run(there[name], asked)
    if asked.record:
        PAGE.write_text(page(there.values()))
    return int(failed)


def _run(suite: Suite, asked: argparse.Namespace) -> bool:
    """Run a suite, print how it went, and return whether all is as it should be."""
    part, parts = _part(suite, asked)
    began = time.monotonic()
    found = outcomes(suite, (part, parts), asked.only)
    counts = {kind: sum(item["outcome"] == kind for item in found.values()) for kind in sorted(_kinds(found))}
    said = ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "no test"
    print(f"{suite.name} {suite.version}, part {part}/{parts}: {said}. {time.monotonic() - began:.0f} s.")
    if asked.only:
        print("\n".join(f"{name}: {item['outcome']} {item['text']}" for name, item in found.items()))
        return True
    wrong = complaints(found, suite.reasons(), whole=parts == 1)
    if asked.record:
        suite.kept.parent.mkdir(exist_ok=True)
        suite.kept.write_text(json.dumps(_shortened(found), indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    else:
        wrong += differences(found, suite.outcomes(), whole=parts == 1)
    print("".join(f"{suite.name}: {line}\n" for line in wrong), end="")
    return not wrong


def _part(suite: Suite, asked: argparse.Namespace) -> tuple[int, int]:
    if asked.turn is not None:
        return asked.turn % suite.parts + 1, suite.parts
    if asked.part is None:
        return 1, 1
    part, _, parts = asked.part.partition("/")
    return int(part), int(parts)


def _kinds(found: Outcomes) -> set[str]:
    return {item["outcome"] for item in found.values()}


def _shortened(found: Outcomes) -> Outcomes:
    """Keep what an outcome is, and of the text only what a suite says of a test that it leaves out itself."""
    return {
        name: {"outcome": item["outcome"]}
        | ({"text": _first_line(name, item["text"])} if item["outcome"] == "skipped" and item["text"] else {})
        for name, item in found.items()
    }


def _first_line(name: str, text: str) -> str:
    """Return the first line of a text without the test's name, which SQLAlchemy's suite puts before its reasons."""
    return text.splitlines()[0].replace(f"'{name} (call)' : ", "")[:160]


if __name__ == "__main__":
    sys.exit(main())
