"""``python -m tests.simulation --seeds 1000 --from N``: run seeds and print what broke."""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context

_SETTINGS = {"PYTHONHASHSEED": "0", "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
_CHUNK = 10


def main() -> int:
    """Do what the command line asks for; 0 when every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Run the engine by seeds.")
    parser.add_argument("--seeds", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--seconds", type=float, help="start none after this time")
    parser.add_argument("--from", dest="first", default="0", help="the first: a number, or a commit's hash")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once (1); 0: one per processor")
    parser.add_argument("--show", action="store_true", help="print the trace of each seed")
    parser.add_argument("--routes", action="store_true", help="the same commands by every way into the engine")
    parser.add_argument("--connect", action="store_true", help="with --routes: by Spark Connect")
    asked = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in _SETTINGS.items()):
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], {**os.environ, **_SETTINGS}
        )
    jobs = asked.jobs or len(os.sched_getaffinity(0))
    first = int(asked.first) if asked.first.isdigit() and len(asked.first) < 12 else int(asked.first[:7], 16)
    if asked.routes:
        return _routes(asked, first)
    began = time.monotonic()
    ends = None if asked.seconds is None else began + asked.seconds
    count = versions = 0
    broken: list[int] = []
    for seed, wrong, made, trace in _results(range(first, first + asked.seeds), jobs, ends):
        count, versions = count + 1, versions + made
        if asked.show:
            print("\n".join([f"seed {seed}", *trace]))
        if wrong:
            broken.append(seed)
            _tell(seed)
    seconds = max(time.monotonic() - began, 0.001)
    rate = f"{count} in {seconds:.0f} s ({60 * count / seconds:,.0f} a minute), {versions:,} versions"
    named = f": {' '.join(map(str, sorted(broken)))}" if broken else ""
    print(f"seeds {first} to {first + count - 1}: {rate}, {len(broken)} broken{named}")
    return int(bool(broken))


def _routes(asked: argparse.Namespace, first: int) -> int:
    """Run seeds of ``tests.routes`` instead, which start a session and a server."""
    from tests.routes.__main__ import main as run

    seconds = ["--seconds", str(asked.seconds)] if asked.seconds else []
    flags = [flag for flag, given in (("--show", asked.show), ("--connect", asked.connect)) if given]
    return run([*seconds, "--from", str(first), "--seeds", str(asked.seeds), *flags])


_Result = tuple[int, str, int, list[str]]


def _results(seeds: range, jobs: int, ends: float | None) -> Iterator[_Result]:
    """What becomes of seeds, in chunks without a gap; no chunk begins after the end."""
    from tests.simulation.run import run_chunk

    chunks = (seeds[start : start + _CHUNK] for start in itertools.count(0, _CHUNK))
    left = itertools.takewhile(lambda chunk: len(chunk) and (ends is None or time.monotonic() < ends), chunks)
    if jobs == 1:
        for chunk in left:
            yield from run_chunk(chunk)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running: set[Future[list[_Result]]] = {pool.submit(run_chunk, chunk) for chunk in itertools.islice(left, jobs)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield from future.result()
            running |= {pool.submit(run_chunk, chunk) for chunk in itertools.islice(left, len(done))}


def _tell(seed: int) -> None:
    """Print a seed's failure, with only the operations that it takes."""
    from tests.simulation.run import named, run_seed, shrink

    logging.disable(logging.CRITICAL)
    outcome = run_seed(named(seed))
    small = shrink(outcome)
    print(f"seed {seed}: {outcome.wrong}\nby {len(small.steps)} of its {len(outcome.steps)} operations:")
    print("\n".join(f"  {line}" for line in [*small.trace, small.wrong]))
    print(f"again: python -m tests.simulation --seeds 1 --from {seed}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
