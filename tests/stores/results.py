"""What is kept of the runs of ``pydelta certify`` over each store, and the verdict that follows from it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

__all__ = [
    "ENOUGH_RUNS", "ENOUGH_VERSIONS", "KEPT", "BrokenPromise", "Doctor", "Kept", "RunResult", "StoreResult", "added",
    "broken_promises", "contradicts", "merged", "read_kept", "verdict", "write_kept",
]  # fmt: skip

KEPT = Path(__file__).resolve().parents[2] / "docs" / "reference" / "stores.json"
ENOUGH_RUNS = 10
ENOUGH_VERSIONS = 10
"""Versions that each run must have written."""

RunVerdict: TypeAlias = Literal["certified", "broken", "refused", "nothing to say"]
StoreVerdict: TypeAlias = Literal["safe", "broken", "refused", "no verdict", "not run"]


class BrokenPromise(msgspec.Struct, frozen=True, kw_only=True):
    """A promise that did not hold in a run.

    Args:
        promise: Its name in ``pydelta.tools.certify.promises``.
        says: What was seen, the first time in this run.
        count: How often it was seen in this run.
    """

    promise: str
    says: str
    count: int = 1


class RunResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of certify.

    Args:
        seed: Its seed.
        verdict: That of its report, or ``refused`` if the engine would not write to the store.
        seconds: How long it took.
        operations: Operations that began.
        versions: Versions that it wrote.
        faults: Faults on purpose, by kind.
        broken: The promises that did not hold.
        says: The error of a run that has no report.
    """

    seed: int
    verdict: RunVerdict
    seconds: float
    operations: int = 0
    versions: int = 0
    faults: dict[str, int] = {}
    broken: tuple[BrokenPromise, ...] = ()
    says: str = ""


class Doctor(msgspec.Struct, frozen=True, kw_only=True):
    """What ``pydelta doctor`` says of the same place: whether its race of one create was won by one, and its words."""

    safe: bool
    says: str


class StoreResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A store with its settings, and all its runs.

    Args:
        name: That of its row in ``tests/stores/rows.py``.
        version: What its programs say of themselves.
        command: The command of its runs, with the seed left out and words in capitals for what differs by machine.
        runs: Its runs, by seed.
        doctor: What ``pydelta doctor`` said of it; None if the store was not started.
        not_run: Why it was not started.
        made_at: The day of the runs, ISO 8601.
    """

    name: str
    version: str = ""
    command: str = ""
    runs: tuple[RunResult, ...] = ()
    doctor: Doctor | None = None
    not_run: str = ""
    made_at: str = ""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """All stores, and the versions of the packages that they were tried with."""

    packages: dict[str, str]
    stores: tuple[StoreResult, ...]


def verdict(runs: Sequence[RunResult]) -> StoreVerdict:
    """Judge a store by its runs.

    One broken promise is enough to call it broken. It is safe only if there are enough runs, each wrote enough, and
    every promise held in all of them; refused if this engine wrote nothing to it in any run.
    """
    if not runs:
        return "not run"
    found = {run.verdict for run in runs}
    if "broken" in found:
        return "broken"
    if found == {"refused"}:
        return "refused"
    enough = len(runs) >= ENOUGH_RUNS and all(run.versions >= ENOUGH_VERSIONS for run in runs)
    return "safe" if enough and found == {"certified"} else "no verdict"


def contradicts(judged: StoreVerdict, doctor: Doctor | None) -> bool:
    """Return whether ``pydelta doctor`` says something else: safe and unsafe at once, or only one of them refuses.

    A store whose race doctor found safe may still break a promise: doctor tries nothing else.
    """
    if judged == "not run":
        return doctor is not None
    if doctor is None:
        return True
    return doctor.safe if judged == "refused" else judged == "safe" and not doctor.safe


def broken_promises(runs: Sequence[RunResult]) -> dict[str, tuple[int, RunResult, BrokenPromise]]:
    """Find each promise that was broken: in how many runs, and the first of these with what it says."""
    often = Counter(item.promise for run in runs for item in run.broken)
    first: dict[str, tuple[RunResult, BrokenPromise]] = {}
    for run in runs:
        for item in run.broken:
            first.setdefault(item.promise, (run, item))
    return {promise: (often[promise], *first[promise]) for promise in first}


def merged(kept: Kept | None, found: Kept, order: Sequence[str]) -> Kept:
    """Replace the stores that were run again, and keep the others, in the order of the rows."""
    stores = {store.name: store for part in (kept, found) if part is not None for store in part.stores}
    return Kept(packages=found.packages, stores=tuple(stores[name] for name in order if name in stores))


def added(before: StoreResult | None, found: StoreResult) -> StoreResult:
    """Add runs to those that were kept of the same version and command, if there are any. New runs replace old ones."""
    if before is None or (before.version, before.command) != (found.version, found.command):
        return found
    runs = {run.seed: run for run in (*before.runs, *found.runs)}
    return msgspec.structs.replace(found, runs=tuple(runs[seed] for seed in sorted(runs)))


def read_kept() -> Kept:
    """Read the kept results."""
    return msgspec.json.decode(KEPT.read_bytes(), type=Kept)


def write_kept(kept: Kept) -> None:
    """Write the results that the page is made from, one run per line."""
    stores = ",\n".join(_lines(store) for store in kept.stores)
    KEPT.write_text(f'{{"packages": {_json(kept.packages)}, "stores": [\n{stores}\n]}}\n')


def _lines(store: StoreResult) -> str:
    head = _json(msgspec.structs.replace(store, runs=()))
    if not store.runs:
        return head
    runs = ",\n ".join(_json(run) for run in store.runs)
    return f'{head[:-1]},"runs":[\n {runs}]}}'


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
