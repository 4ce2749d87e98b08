"""``python -m tests.mutation``: which changes of the modules that rows depend on do the tests not notice?

Survivors that no test can notice are kept in ``survivors.txt``, each with its reason. The list may only shrink: a
survivor that is not in it fails the run, and so does a line whose mutant is noticed or gone.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.mutation.areas import AREAS, WITH_SESSION
from tests.mutation.operators import Mutant, mutants_of
from tests.mutation.runner import Runner, copy_tree, preload
from tests.mutation.session import SessionRunner
from tests.mutation.survivors import KEPT, compare, read_kept

ROOT = Path(__file__).resolve().parents[2]
_SETTINGS = {"PYTHONHASHSEED": "0", "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}


def main() -> int:
    """Runs what the command line asks for; 0 when the survivors are those of the kept list."""
    parser = argparse.ArgumentParser(prog="make test SUITE=mutants", description="Find changes that no test notices.")
    parser.add_argument("--module", action="append", help="part of a module's path; may be given several times")
    parser.add_argument("--only", help="only mutants whose name holds this text; the kept list is not compared")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once (2)")
    parser.add_argument("--list", action="store_true", help="print the mutants' names and run nothing")
    parser.add_argument("--verbose", action="store_true", help="print each mutant with the test that noticed it")
    asked = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in _SETTINGS.items()):
        os.execve(sys.executable, [sys.executable, "-m", "tests.mutation", *sys.argv[1:]], {**os.environ, **_SETTINGS})
    areas = {**AREAS, **WITH_SESSION}
    chosen = [path for path in areas if not asked.module or any(part in path for part in asked.module)]
    if not chosen:
        parser.error(f"no module matches; there are {', '.join(areas)}")
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree, scratch = Path(folder, "tree"), Path(folder, "runs")
        scratch.mkdir()
        copy_tree(ROOT, tree)
        mutants = {path: _asked_for(tree, path, asked.only) for path in chosen}
        if asked.list:
            print("\n".join(mutant.name for found in mutants.values() for mutant in found))
            return 0
        preload()
        began = time.monotonic()
        survivors: dict[str, Mutant] = {}
        for path in chosen:
            runner = (
                SessionRunner(tree, path, areas[path], scratch)
                if path in WITH_SESSION
                else Runner(tree, path, areas[path], scratch, jobs=asked.jobs)
            )
            found = _survivors(runner, path, mutants[path], verbose=asked.verbose)
            survivors.update({mutant.name: mutant for mutant in found})
    count = sum(map(len, mutants.values()))
    killed, seconds = count - len(survivors), time.monotonic() - began
    print(f"{count} mutants of {len(chosen)} modules: {killed} killed, {len(survivors)} survived; {seconds:.0f} s")
    new, stale = compare(survivors, read_kept(), [] if asked.only else chosen)
    for mutant in sorted(map(survivors.__getitem__, new), key=lambda mutant: (mutant.name.split(":")[0], mutant.line)):
        print(f"no test notices, line {mutant.line}: {mutant.name}")
    for name in stale:
        print(f"take the line out of {KEPT.name}: {name}")
    if new:
        print(f"Add a case that fails on each. What cannot be noticed goes to {KEPT.name}, with the reason.")
    return 1 if new or stale else 0


def _asked_for(tree: Path, path: str, only: str | None) -> list[Mutant]:
    found = mutants_of((tree / path).read_text(), path)
    return [mutant for mutant in found if only is None or only in mutant.name]


def _survivors(runner: Runner | SessionRunner, path: str, mutants: list[Mutant], *, verbose: bool) -> list[Mutant]:
    began = time.monotonic()
    baseline = runner.baseline()
    if not baseline.survived:
        raise SystemExit(f"{path}: its tests fail as it is: {baseline.by}")
    alive: list[Mutant] = []
    spent = 0.0
    for number, (mutant, outcome) in enumerate(runner.run([(mutant, mutant.source) for mutant in mutants]), 1):
        spent += outcome.cpu
        if outcome.survived:
            alive.append(mutant)
        if verbose:
            print(f"{outcome.cpu:5.1f} s, {outcome.by or 'survived'}: {mutant.name}", flush=True)
        elif sys.stderr.isatty():
            print(f"\r{path}: {number} of {len(mutants)}, {len(alive)} survived", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    killed, seconds = len(mutants) - len(alive), time.monotonic() - began
    took = f"{seconds:.0f} s, {spent:.0f} s of processor"
    print(f"{path}: {len(mutants)} mutants, {killed} killed, {len(alive)} survived; {took}", flush=True)
    return alive


if __name__ == "__main__":
    raise SystemExit(main())
