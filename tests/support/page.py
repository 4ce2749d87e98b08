"""Draw docs/reference/support.md of the kept runs. A cell without a run says so."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydelta.engines.spark_versions import SPARKS
from pydelta.storage.kinds import KINDS, StoreKind
from tests.support.areas import SUITES

ROOT = Path(__file__).resolve().parents[2]
KEPT = Path(__file__).resolve().parent / "runs.json"
PAGE = ROOT / "docs" / "reference" / "support.md"
NOT_RUN = "not run"
Run = Mapping[str, Any]

OPENED_WITH = {
    "file": "",
    "memory": "one process; for tests",
    "s3": "",
    "gs": "as S3, by the same library",
    "abfs": "as S3, by the same library",
    "az": "as S3, by the same library",
    "wasb": "by Spark only",
    "hdfs": "",
    "viewfs": "by Spark only",
}
"""What the table of stores says about each kind, beside its runs."""
STORE_AREAS = {
    "file": ("store: local disk",),
    "memory": ("store: memory",),
    "s3": ("store: S3, imitated", "store: MinIO", "store: Versity's gateway"),
    "hdfs": ("store: HDFS",),
}


def kept_runs(path: Path = KEPT) -> list[Run]:
    """The kept runs, oldest first."""
    return json.loads(path.read_text())


def keep(kept: Iterable[Run], new: Iterable[Run]) -> list[Run]:
    """Add runs; their areas replace those of earlier runs of the same suite and versions.

    Runs of one commit and one day become one, so that a suite may be run part by part.
    """
    found = [dict(run) for run in kept]
    for run in new:
        for old in found:
            if _versions(old) == _versions(run):
                old["areas"] = {area: counts for area, counts in old["areas"].items() if area not in run["areas"]}
        same = [old for old in found if _versions(old) == _versions(run) and _when(old) == _when(run)]
        if same:
            same[0]["areas"] = dict(sorted({**same[0]["areas"], **run["areas"]}.items()))
            same[0]["seconds"] += run["seconds"]
        else:
            found.append(dict(run))
    left = [run for run in found if run["areas"]]
    return sorted(left, key=lambda run: (run["date"], run["suite"], _numbers(run["python"]), _numbers(run["spark"])))


def pythons() -> list[str]:
    """The minor versions of Python that the project declares, oldest first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [re.fullmatch(r"Programming Language :: Python :: (\d+\.\d+)", item) for item in project["classifiers"]]
    return sorted((match[1] for match in found if match), key=_numbers)


def sparks() -> list[str]:
    """The lines of Spark that the engine takes."""
    return [f"{major}.{minor}" for major, minor in SPARKS]


def cell(runs: Iterable[Run], areas: Iterable[str] | None = None) -> str:
    """What a cell says of the given runs and areas, or that there was none. Kept runs have each area once."""
    wanted = None if areas is None else set(areas)
    counted = [counts for run in runs for area, counts in run["areas"].items() if wanted is None or area in wanted]
    return _outcome(counted) if counted else NOT_RUN


def _outcome(counts: Sequence[Mapping[str, int]]) -> str:
    passed, failed, left_out = (sum(it[name] for it in counts) for name in ("passed", "failed", "left_out"))
    words = [
        f"**{failed:,} failed**" if failed else "",
        f"{passed:,} passed",
        f"{left_out:,} left out" if left_out else "",
    ]
    return ", ".join(filter(None, words))


_BEGIN = """\
# Spark, Python and stores

The versions and stores with which the tests ran, and how many passed, failed or were left out: drawn by
`python -m tests.support` of the kept runs in `tests/support/runs.json`, never written by hand.
"""
_WITHOUT_SPARK = """
## Without Spark

`tests/unit`, `tests/property` and `tests/contracts`: all that needs no JVM, and of Spark's side what starts none.
Left out is what `make test` leaves out, too: slow cases that add no coverage.
"""
_IN_SPARK = """
## In Spark

A few tests of each kind, the same for every version; the others of their files are left out. The whole suite runs
with the version of `constraints.txt` only ([which](tested.md)).
"""
_STORES = """
## Stores
"""
_RUNS = """
Real services of Amazon, Google and Azure were not tried: [`pydelta certify`](../guides/certify.md) tests yours.

## The runs
"""
_END = """
A test that lacks something on its machine is left out, with a reason in the output of its run. To run one again:

```sh
scripts/test-python-version 3.13     # a venv of that Python, then the suite without Spark
scripts/test-spark-version 4.2       # the newest 4.2; or one version, such as 4.1.0
make test SUITE=store-servers               # HDFS, MinIO and Versity's gateway
.venv/bin/python -m tests.support keep build/support/*.json    # keeps the outcomes, and draws this page
```

CI runs one version of Spark and one of Python with every fourth commit, in turns.
"""


def support_page(runs: Sequence[Run]) -> str:
    """Format the page."""
    parts = [
        _BEGIN.splitlines(),
        _WITHOUT_SPARK.splitlines(),
        ["", *_python_table(runs)],
        _IN_SPARK.splitlines(),
        ["", *_spark_tables(runs)],
        _STORES.splitlines(),
        ["", *_store_table(runs)],
        _RUNS.splitlines(),
        ["", *_run_table(runs)],
        _END.splitlines(),
    ]
    return "\n".join(line for part in parts for line in part) + "\n"


def _python_table(runs: Sequence[Run]) -> list[str]:
    own = [run for run in runs if run["suite"] == "fast"]
    newest = {_line(run["python"]): run["python"] for run in own}
    lines = [_row(["", *(f"Python {newest.get(python, python)}" for python in pythons())]), _rule(len(pythons()))]
    for area in sorted({area for run in own for area in run["areas"]}) or ["all"]:
        cells = [cell([run for run in own if run["python"] == newest.get(python)], [area]) for python in pythons()]
        lines.append(_row([area, *cells]))
    return lines


def _spark_tables(runs: Sequence[Run]) -> list[str]:
    own = [run for run in runs if run["suite"] == "spark"]
    tried = {run["spark"] for run in own}
    versions = sorted(tried | {line for line in sparks() if line not in map(_line, tried)}, key=_numbers)
    lines = [_row(["Spark", *(f"Python {python}" for python in pythons())]), _rule(len(pythons()))]
    for version in versions:
        here = [run for run in own if run["spark"] == version]
        cells = [cell([run for run in here if _line(run["python"]) == python]) for python in pythons()]
        lines.append(_row([version, *cells]))
    areas = sorted({area for run in own for area in run["areas"]})
    lines += ["", "By what they try, each with the newest run:", ""]
    lines += [_row(["", *(f"Spark {version}" for version in versions)]), _rule(len(versions))]
    for area in areas:
        cells = [cell([run for run in own if run["spark"] == version], [area]) for version in versions]
        lines.append(_row([area, *cells]))
    return lines


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(columns: int) -> str:
    return "|---|" + "---|" * columns


def _store_table(runs: Sequence[Run]) -> list[str]:
    lines = ["| store | schemes | tried with | outcome |", "|---|---|---|---|"]
    for kind in KINDS:
        schemes = ", ".join(f"`{scheme}`" for scheme in kind.schemes)
        for area in STORE_AREAS.get(kind.name, (None,)):
            newest = [run for run in runs if area in run["areas"]][-1:]
            outcome = cell(newest, [str(area)])
            lines.append(f"| {kind.name} | {schemes} | {_tried(kind, area)} | {outcome} |")
    return lines


def _tried(kind: StoreKind, area: str | None) -> str:
    server = "" if area is None else area.removeprefix("store: ")
    return "; ".join(filter(None, [server, OPENED_WITH[kind.name]]))


def _run_table(runs: Sequence[Run]) -> list[str]:
    lines = ["| suite | Python | Spark | date | commit | outcome | minutes |", "|---|---|---|---|---|---|---|"]
    for run in runs:
        where = [SUITES[run["suite"]].shown, run["python"], run["spark"] or "–", run["date"], f"`{run['commit']}`"]
        lines.append(f"| {' | '.join(where)} | {cell([run])} | {run['seconds'] / 60:.0f} |")
    return lines


def _versions(run: Run) -> tuple[Any, ...]:
    return run["suite"], run["python"], run["spark"]


def _when(run: Run) -> tuple[str, str]:
    return run["date"], run["commit"]


def _line(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _numbers(version: str | None) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version or "")))
