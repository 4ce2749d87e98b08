"""Let two engines write one table at once, each pair: ``python -m matrix.pairs --python PEER [--record]``.

The operations, the table and the verdict are those of ``pydelta certify``: every row carries the operation that wrote it,
every version is compared with what its operation does, acknowledged commits have to be there once, in a serial order, and
pydelta and delta-rs read what is left. ``--record`` keeps the counts in ``pairs.json``, of which the page is made.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from matrix.pair_worker import REFERENCE
from pydelta.tools.certify import children
from pydelta.tools.certify.checker import check
from pydelta.tools.certify.plan import _WEIGHTS, make_plan
from pydelta.tools.certify.promises import PROMISES
from pydelta.tools.certify.run import Request, run_plan

HERE = Path(__file__).resolve().parent
KEPT = HERE.parent / "pairs.json"
PAIRS = (("pydelta", REFERENCE), ("pydelta", "delta-rs"), (REFERENCE, "delta-rs"))
_DOUBLES = "delta-rs"
"""Its OPTIMIZE is left out: beside another one it doubles rows, which the guide of certify tells."""


def tried(pair: tuple[str, str], python: str, operations: int, seed: int) -> dict[str, Any]:
    """Run a plan of two writers; what was done, what became of it, what broke."""
    kinds = dict(_WEIGHTS) | {REFERENCE: _WEIGHTS["spark"]}
    kinds[_DOUBLES] = {kind: weight for kind, weight in kinds[_DOUBLES].items() if kind != "optimize"}
    properties = {"delta.isolationLevel": "Serializable"}
    plan = make_plan(seed, engines=pair, operations=operations, properties=properties, faults=False, kinds=kinds)
    plan = msgspec.structs.replace(plan, retention_seconds=3600)

    def start(errors: Any) -> Any:
        return children.subprocess.Popen(
            [sys.executable, str(HERE / "pair_worker.py"), python],
            stdin=children.subprocess.PIPE, stdout=children.subprocess.PIPE, stderr=errors,
            env=children.os.environ | {"PYTHONPATH": children.os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip

    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pairs-") as folder, mock.patch.object(children, "_start", start):
        ran = run_plan(plan, Request(uri=f"{folder}/place", minutes=10, readers=("delta-rs",)))
    history = ran.history
    broken = check(history)
    outcomes = Counter(
        (event.engine, _named(event.outcome, event.trouble)) for event in history.events if event.step.kind != "read"
    )
    return {
        "seed": seed,
        "seconds": round(time.monotonic() - began),
        "versions": max(commit.version for commit in history.commits),
        "commits": dict(Counter(_writer(commit.op, pair) for commit in history.commits if commit.version)),
        "outcomes": {
            engine: {what: count for (of, what), count in outcomes.items() if of == engine} for engine in pair
        },
        "reads": sum(event.step.kind == "read" and event.outcome == "ok" for event in history.events),
        "broken": [f"{PROMISES[item.promise][0]}: {item.says}" for item in broken],
        "said": sorted({event.error[:160] for event in history.events if event.outcome == "unknown"})[:3],
    }


def _named(outcome: str, trouble: str) -> str:
    return trouble if outcome == "failed" else outcome


def _writer(op: str, pair: tuple[str, str]) -> str:
    process = op.partition("-")[0]
    return pair[int(process) - 1] if process.isdigit() else op


def section() -> list[str]:
    """The part of the page about writers that work at the same time, of what is kept."""
    if not KEPT.exists():
        return []
    kept = json.loads(KEPT.read_text())
    lines = [
        "## Two engines write at once\n",
        "One process of each engine, both on one table on a local disk with `delta.isolationLevel=Serializable`: appends, deletes, updates,",
        "merges, replaceWhere, OPTIMIZE (not by delta-rs, [since it doubles rows](../guides/certify.md#found-with-it)), checkpoints, VACUUM,",
        "RESTORE and reads. The promises are those of [certify](../guides/certify.md): no acknowledged commit is lost or doubled, a failed one",
        "left nothing, each version follows from the one before in a serial order, and delta-rs reads the same rows at the end.",
        "Made by `make test SUITE=interop-pairs RECORD=1`. Trino with Spark, delta-rs and pydelta: [a run over MinIO](certify-report.html).\n",
        "| pair | attempted writes | versions | by the first | by the second | conflicts | other failures | reads | what broke |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, told in kept.items():
        pair = name.split(" / ")
        outcomes = [Counter(told["outcomes"][engine]) for engine in pair]
        both = outcomes[0] + outcomes[1]
        others = sum(both.values()) - both["ok"] - both["conflict"]
        commits = [told["commits"].get(engine, 0) for engine in pair]
        broken = "nothing" if not told["broken"] else f"{len(told['broken'])}: {told['broken'][0]}"
        cells = [name, sum(both.values()), told["versions"], *commits, both["conflict"], others, told["reads"], broken]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return [*lines, ""]


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m matrix.pairs", description="Two engines write one table at once.")
    parser.add_argument("--python", required=True, help="the interpreter of the reference engine's environment")
    parser.add_argument("--operations", type=int, default=120, help="of both together (120)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="one pair, such as 'pydelta / delta-rs'")
    parser.add_argument("--record", action="store_true", help="keep the counts, and make the page of them")
    asked = parser.parse_args()
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    found = {}
    for pair in PAIRS:
        name = " / ".join(pair)
        if asked.only in (None, name):
            found[name] = tried(pair, asked.python, asked.operations, asked.seed)
            print(f"{name}: {json.dumps(found[name], indent=1)}", flush=True)
    if asked.record:
        from matrix.report import KEPT as ANSWERS
        from matrix.report import PAGE, page

        both = kept | found
        ordered = {name: both[name] for name in map(" / ".join, PAIRS) if name in both}
        KEPT.write_text(json.dumps(ordered, indent=1) + "\n")

        PAGE.write_text(page(json.loads(ANSWERS.read_text())))
    return int(any(told["broken"] for told in found.values()))


if __name__ == "__main__":
    sys.exit(main())
