"""Run the named benchmarks, or all but those that take hours or 35 GB of disk: ``python -m benchmarks [NAME …]``.

Each prints a table and one JSON line, and leaves its run in ``build/bench`` for ``make bench BENCH=compare`` and
``make bench BENCH=report``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
import time

import benchmarks
from benchmarks.report.runs import LATEST, machine, write_run


def main() -> int:
    """Run, print, and exit 0; a benchmark reports its losses and fails only when it cannot run."""
    names = sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if not m.ispkg and m.name[0] != "_")
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(names)}")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in names]
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are: {', '.join(names)}")
    for name in options.names or names:
        module = importlib.import_module(f"benchmarks.{name}")
        if not options.names and getattr(module, "ONLY_IF_NAMED", False):
            continue
        before, began = machine(), time.perf_counter()
        result = module.run()
        if result:  # Without a server that it needs, a benchmark has none.
            print(json.dumps({"benchmark": name, **result}, default=str), flush=True)
            write_run(LATEST, name, before, time.perf_counter() - began, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
