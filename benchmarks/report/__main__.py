"""Draw the report of kept runs, or compare the latest ones with them: ``python -m benchmarks.report draw|compare``."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from benchmarks.report.compare import changed_figures, changed_targets
from benchmarks.report.page import PICTURES, page_of
from benchmarks.report.runs import KEPT, LATEST, read_runs
from benchmarks.report.targets import judge, read_targets

_PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"


def main() -> int:
    """Exit 1 when a target that the kept run met is missed by the latest one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("what", choices=["draw", "compare"])
    parser.add_argument("--beyond", type=float, default=1.25, help="show figures that changed by more times than this")
    options = parser.parse_args()
    return _draw() if options.what == "draw" else _compare(options.beyond)


def _draw() -> int:
    from benchmarks.report.pictures import draw  # with a library that comparing does without

    KEPT.mkdir(exist_ok=True)
    for path in sorted(LATEST.glob("*.json")):
        shutil.move(path, KEPT / path.name)
    runs = read_runs(KEPT)
    if not runs:
        print("There is no run to draw. Next: make bench, or make bench BENCH=NAME for one.", file=sys.stderr)
        return 2
    verdicts = judge(read_targets(), runs)
    pictures = draw(verdicts, runs, _PAGE.parent / PICTURES)
    _PAGE.write_text(page_of(verdicts, runs, pictures))
    print(f"Wrote {_PAGE} and {len(pictures)} pictures.")
    return 0


def _compare(beyond: float) -> int:
    kept, latest = read_runs(KEPT), read_runs(LATEST)
    if not kept.keys() & latest.keys():
        print(f"No benchmark has both a kept run and one in {LATEST}. Next: make bench BENCH=NAME.", file=sys.stderr)
        return 2
    for line in changed_figures(kept, latest, beyond=beyond):
        print(line)
    changed = changed_targets(read_targets(), kept, latest)
    for word, lines in changed.items():
        for line in lines:
            print(f"target {word}: {line}")
    print(f"{len(kept.keys() & latest.keys())} benchmarks compared; {len(changed['lost'])} targets lost.")
    return 1 if changed["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
