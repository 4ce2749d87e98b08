"""``python -m tests.stores``: run certify over stores, keep the results, and draw docs/reference/stores.md."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from tests.stores.page import PAGE, page
from tests.stores.results import KEPT, Kept, StoreResult, added, merged, read_kept, verdict, write_kept
from tests.stores.rows import BY_NAME, ROWS
from tests.stores.runs import Size, packages, try_store


def main() -> int:
    """Run what is asked for. With ``--trial`` the exit code is 1 if a promise was broken, 2 if a store said nothing."""
    parser = argparse.ArgumentParser(prog="python -m tests.stores", description=__doc__)
    parser.add_argument("--stores", help="some of them, with commas (all)")
    parser.add_argument("--runs", type=int, default=10, help="seeds per store (10)")
    parser.add_argument("--first-seed", type=lambda text: int(text, 0), default=1, help="the first seed (1)")
    parser.add_argument("--operations", type=int, default=40, help="operations per run (40)")
    parser.add_argument("--minutes", type=float, default=2.0, help="after these no operation of a run begins (2)")
    parser.add_argument("--add", action="store_true", help="run only seeds that are not kept yet, and keep the others")
    parser.add_argument("--trial", action="store_true", help="keep nothing; the exit code says what was found")
    parser.add_argument("--draw", action="store_true", help="only draw the page again")
    asked = parser.parse_args()
    names = asked.stores.split(",") if asked.stores else list(BY_NAME)
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        parser.error(f"there is no store {unknown[0]}; there are {', '.join(BY_NAME)}")
    if asked.draw:
        PAGE.write_text(page(read_kept()))
        return 0
    size = Size(
        seeds=range(asked.first_seed, asked.first_seed + asked.runs),
        operations=asked.operations,
        minutes=asked.minutes,
    )
    return _trial(names, size) if asked.trial else _keep(names, size, add=asked.add)


def _say(text: str) -> None:
    print(text, flush=True)


def _keep(names: list[str], size: Size, *, add: bool) -> int:
    """Run stores, and keep what is there after each run, so that a run that is stopped loses nothing before it."""
    for name in names:
        before = read_kept() if KEPT.exists() else None
        earlier = before.stores if before is not None and add else ()
        old = next((store for store in earlier if store.name == name), None)
        done = {run.seed for run in old.runs} if old is not None else set()
        left = replace(size, seeds=[seed for seed in size.seeds if seed not in done])
        if not left.seeds:
            _say(f"{name}: has these seeds")
            continue

        def keep(found: StoreResult, before: Kept | None = before, old: StoreResult | None = old) -> None:
            new = Kept(packages=packages(), stores=(added(old, found),))
            kept = merged(before, new, [row.name for row in ROWS])
            write_kept(kept)
            PAGE.write_text(page(kept))

        found = try_store(BY_NAME[name], left, _say, keep)
        _say(f"{name}: {verdict(added(old, found).runs)}")
    return 0


def _trial(names: list[str], size: Size) -> int:
    codes = {"certified": 0, "broken": 1}
    code = 0
    for name in names:
        found = try_store(BY_NAME[name], size, _say)
        said = [codes.get(run.verdict, 2) for run in found.runs] or [2]
        code = 1 if 1 in (code, *said) else max(code, *said)
    return code


if __name__ == "__main__":
    sys.exit(main())
