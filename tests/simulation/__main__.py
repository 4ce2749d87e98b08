"""``python -m tests.simulation --seeds 1000 --from N``: run seeds and print what broke."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time

_SETTINGS = {"PYTHONHASHSEED": "0", "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}


def main() -> int:
    """Do what the command line asks for; 0 when every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Run the engine by seeds.")
    parser.add_argument("--seeds", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--seconds", type=float, help="stop after this time, whatever was asked for")
    parser.add_argument(
        "--from", dest="first", default="0", help="the first: a number, or hexadecimal digits of a commit"
    )
    parser.add_argument("--show", action="store_true", help="print the trace of each seed")
    asked = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in _SETTINGS.items()):
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], {**os.environ, **_SETTINGS}
        )
    from tests.simulation.run import run_seed, shrink

    logging.disable(logging.CRITICAL)
    first = int(asked.first) if asked.first.isdigit() and len(asked.first) < 12 else int(asked.first[:7], 16)
    began, broken, versions, seed = time.monotonic(), [], 0, first
    for seed in range(first, first + asked.seeds):
        outcome = run_seed(str(seed))
        versions += outcome.versions
        if asked.show:
            print("\n".join([f"seed {seed}", *outcome.trace]))
        if outcome.wrong:
            broken.append(seed)
            small = shrink(outcome)
            print(f"seed {seed}: {outcome.wrong}\nby {len(small.steps)} of its {len(outcome.steps)} operations:")
            print(
                "  "
                + "\n  ".join(small.trace)
                + f"\n  {small.wrong}\nagain: python -m tests.simulation --seeds 1 --from {seed}"
            )
        if asked.seconds is not None and time.monotonic() - began > asked.seconds:
            break
    seconds, count = time.monotonic() - began, seed - first + 1
    rate = f"{count} in {seconds:.0f} s ({60 * count / seconds:,.0f} a minute), {versions:,} versions"
    print(f"seeds {first} to {seed}: {rate}, {len(broken)} broken{': ' if broken else ''}{' '.join(map(str, broken))}")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
