"""Run ``pydelta certify`` and ``pydelta doctor`` over a store by their command lines, and keep what they say."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pydelta.tools.certify.promises import Broken
from pydelta.tools.certify.report import Report, read_report
from tests.stores.places import NotRun, Place, work_folder
from tests.stores.results import BrokenPromise, Doctor, RunResult, StoreResult
from tests.stores.rows import StoreRow

__all__ = ["Size", "packages", "try_store"]

ROOT = Path(__file__).resolve().parents[2]
REPORTS = ROOT / "build" / "stores"
_PACKAGES = ("pyarrow", "polars", "obstore", "hdfs-native", "deltalake")
_TRIAL_FOLDER = "doctor"
_RANDOM = re.compile(r"\b(probe-|doctor-|certify-\d+-)[0-9a-f]{8}[0-9a-f-]*")


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is run: the seeds, and the operations and minutes of each run."""

    seeds: Sequence[int]
    operations: int
    minutes: float

    @property
    def arguments(self) -> list[str]:
        """Those of certify that are the same for every run."""
        return ["--operations", str(self.operations), "--minutes", f"{self.minutes:g}"]


def packages() -> dict[str, str]:
    """List the versions of what the runs depend on."""
    found = {"Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def try_store(
    row: StoreRow, size: Size, say: Callable[[str], None], keep: Callable[[StoreResult], None] = lambda result: None
) -> StoreResult:
    """Start a store, ask doctor, run certify with each seed, and end the store. Keep what is there after each run."""
    today = dt.datetime.now(dt.UTC).date().isoformat()
    with work_folder(row.name) as folder:
        try:
            with row.start(folder) as place:
                say(f"{row.name}: {place.version}")
                doctor = ask_doctor(place)
                say(f"{row.name}: doctor: {doctor.says}")
                result = StoreResult(
                    name=row.name,
                    version=place.version,
                    command=shown_command(row, place, size),
                    doctor=doctor,
                    made_at=today,
                )
                for seed in size.seeds:
                    run = run_once(row, place, seed, size)
                    say(f"{row.name}: {_line(run)}")
                    result = msgspec.structs.replace(result, runs=(*result.runs, run))
                    keep(result)
                return result
        except NotRun as error:
            say(f"{row.name}: not run: {error}")
            result = StoreResult(name=row.name, not_run=str(error).replace(str(folder), "FOLDER"), made_at=today)
            keep(result)
            return result


def _line(run: RunResult) -> str:
    broken = f", {', '.join(item.promise for item in run.broken)}" if run.broken else ""
    more = f": {run.says}" if run.says else ""
    return (
        f"seed {run.seed}: {run.verdict}{broken}, {run.versions} versions, {sum(run.faults.values())} faults, "
        f"{run.seconds:.0f} s{more}"
    )


def shown_command(row: StoreRow, place: Place, size: Size) -> str:
    """Write the command of a row without what differs by machine and by run."""
    options = []
    for name, value in place.options.items():
        options += ["-o", f"{name}={'http://HOST:PORT' if value.startswith('http://') else value}"]
    return " ".join(["pydelta certify", place.shown, *options, *row.arguments, *size.arguments])


def _pydelta(place: Place, *arguments: str) -> subprocess.CompletedProcess[str]:
    options = [word for name, value in place.options.items() for word in ("-o", f"{name}={value}")]
    return subprocess.run(
        [sys.executable, "-m", "pydelta.api.cli.cli", *arguments, *options],
        env=os.environ | dict(place.environment),
        capture_output=True,
        text=True,
        check=False,
    )


def ask_doctor(place: Place) -> Doctor:
    """Ask ``pydelta doctor`` about a place. A local one must exist for it."""
    made = None
    if "://" not in place.uri:
        made = Path(place.uri).with_name(_TRIAL_FOLDER)
        made.mkdir()
    done = _pydelta(place, "doctor", str(made) if made is not None else place.uri, "--json")
    if made is not None:
        shutil.rmtree(made, ignore_errors=True)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    race = checks["put-if-absent"]
    says = race["says"] if race["state"] != "skipped" else checks["write"]["says"]
    return Doctor(safe=race["state"] == "ok", says=_anywhere(says, place))


def run_once(row: StoreRow, place: Place, seed: int, size: Size) -> RunResult:
    """Run certify with a seed. Its report stays in ``build/stores`` if a promise was broken."""
    folder = REPORTS / row.name / f"seed-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    done = _pydelta(
        place, "certify", f"{place.uri}-{seed}", *row.arguments, *size.arguments, "--seed", str(seed), "--shrink", "0",
        "--report", str(folder),
    )  # fmt: skip
    seconds = round(time.monotonic() - began, 1)
    (data,) = list(folder.glob("certify-*.json")) or [None]
    if data is None:
        return without_report(seed, seconds, _anywhere(done.stderr.strip() or done.stdout.strip(), place))
    report = read_report(str(data))
    if report.verdict != "broken":
        shutil.rmtree(folder)
    return of_report(report, seconds, lambda text: _anywhere(text, place))


def without_report(seed: int, seconds: float, said: str) -> RunResult:
    """Keep a run that ended with an error: a refusal, if this engine calls the store unsafe."""
    lines = [line for line in said.splitlines() if line.strip()]
    refused = "DELTA_UNSAFE_STORE" in said
    says = " ".join(" ".join(lines[:2]).split())
    return RunResult(seed=seed, verdict="refused" if refused else "nothing to say", seconds=seconds, says=says)


def of_report(report: Report, seconds: float, anywhere: Callable[[str], str]) -> RunResult:
    """Keep what the page needs of a report."""
    return RunResult(
        seed=report.plan.seed,
        verdict=report.verdict,  # type: ignore[arg-type]
        seconds=seconds,
        operations=len({event.step.op for event in report.history.events}),
        versions=max(len(report.history.commits) - 1, 0),
        faults=report.faults,
        broken=tuple(_first_of_each(report.broken, anywhere)),
    )


def _first_of_each(broken: Sequence[Broken], anywhere: Callable[[str], str]) -> list[BrokenPromise]:
    first: dict[str, str] = {}
    for item in broken:
        first.setdefault(item.promise, anywhere(item.says))
    counts = {name: sum(item.promise == name for item in broken) for name in first}
    return [BrokenPromise(promise=name, says=says, count=counts[name]) for name, says in first.items()]


def _anywhere(text: str, place: Place) -> str:
    """Take out of a message what differs by machine."""
    text = _RANDOM.sub(r"\1…", text)
    endpoint = place.options.get("fs.s3a.endpoint", "")
    if "://" not in place.uri:
        text = text.replace(str(Path(place.uri).parent), "FOLDER")
    return text.replace(endpoint, "http://HOST:PORT") if endpoint else text
