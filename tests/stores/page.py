"""Draw docs/reference/stores.md from the kept results."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydelta.tools.certify.promises import PROMISES
from tests.stores.results import ENOUGH_RUNS, ENOUGH_VERSIONS, Kept, StoreResult, broken_promises, verdict
from tests.stores.rows import BY_NAME, ROWS, StoreRow

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "stores.md"
WORDS = {
    "safe": "**safe**",
    "broken": "**NOT safe**",
    "refused": "**refused**",
    "no verdict": "no verdict",
    "not run": "not run",
}
HEAD = """# Which stores are safe

`make test SUITE=stores` starts each store, gives it to [`pydelta certify`](../guides/certify.md) with {runs} seeds, and
writes this page: in each run several processes write, change, compact, restore and read one table, while calls fail,
replies are lost and processes are killed.

- **safe**: every promise held in {runs} runs or more, each of which wrote at least {versions} versions;
- **NOT safe**: at least one run broke a promise;
- **refused**: this engine does not write there, so nothing is lost;
- **no verdict**: too few runs, or runs that ended with another error.

A run cannot prove that nothing ever breaks. Each store ran on one machine, with the versions named; nothing cut its
power, filled its disk or parted its machines. VACUUM ran, but a run is shorter than its retention, so it deleted
nothing. The column doctor has the answer of `pydelta doctor`, which races one create and tries nothing else. Made with
{packages}.
"""
REPEATING = """`make test SUITE=stores` runs all stores again and writes this page. `ARGS="--stores minio,versity"` runs
some, and keeps the results of the others; `ARGS=--add` runs only the seeds that are missing; with `--trial` nothing is
kept. A store whose programs, rights or kernel are not there is listed with the reason. [stores.json](stores.json) has
each run. Capital letters stand for what differs from machine to machine.
"""


def page(kept: Kept) -> str:
    """Write the whole page."""
    parts = [
        HEAD.format(
            runs=ENOUGH_RUNS,
            versions=ENOUGH_VERSIONS,
            packages=", ".join(f"{name} {version}" for name, version in kept.packages.items()),
        )
    ]
    for kind in dict.fromkeys(row.kind for row in ROWS):
        stores = [store for store in kept.stores if BY_NAME[store.name].kind == kind]
        if stores:
            parts.append(f"## {kind}\n")
            parts += [*_table(stores), ""]
    judged = [(store, verdict(store.runs)) for store in kept.stores]
    failed = [store for store, found in judged if found == "broken"]
    if failed:
        parts.append("## How each failed\n")
        parts += [line for store in failed for line in _failure(store)]
    refused = [store for store, found in judged if found == "refused"]
    if refused:
        parts.append("## Why some are refused\n")
        for store in refused:
            parts += [
                f"{_named(store)}, in {len(store.runs)} of {len(store.runs)} runs:\n",
                *_quoted(store.runs[0].says),
            ]
    unclear = [store for store, found in judged if found == "no verdict"]
    if unclear:
        parts.append("## Without a verdict\n")
        parts += [f"- {_named(store)}: {_unclear(store)}" for store in unclear]
        parts.append("")
    parts += _repeating(kept)
    return "\n".join(parts).rstrip("\n") + "\n"


def _table(stores: Sequence[StoreResult]) -> Iterator[str]:
    yield "| store | version | settings | verdict | runs | operations | versions | faults | doctor |"
    yield "|---" * 9 + "|"
    for store in stores:
        row, judged = BY_NAME[store.name], verdict(store.runs)
        first = f"| {row.title} | {store.version or '–'} | {row.settings or 'defaults'} | {WORDS[judged]}"
        if judged == "not run":
            yield f"{first}: {store.not_run} | – | – | – | – | – |"
            continue
        counts = [
            len(store.runs),
            sum(run.operations for run in store.runs),
            sum(run.versions for run in store.runs),
            sum(sum(run.faults.values()) for run in store.runs),
        ]
        doctor = "safe" if store.doctor is not None and store.doctor.safe else "unsafe"
        yield f"{first} | {' | '.join(f'{count:,}' for count in counts)} | {doctor} |"


def _named(store: StoreResult) -> str:
    row: StoreRow = BY_NAME[store.name]
    return f"**{row.title}**" + (f" ({row.settings})" if row.settings else "")


def _failure(store: StoreResult) -> Iterator[str]:
    row = BY_NAME[store.name]
    yield f"### {row.title}" + (f": {row.settings}" if row.settings else "") + "\n"
    broke = sum(run.verdict == "broken" for run in store.runs)
    yield f"{broke} of {len(store.runs)} runs broke a promise.\n"
    for promise, (often, run, item) in broken_promises(store.runs).items():
        title, cost = PROMISES[promise]
        yield f"**{title}**: broken in {often} of {len(store.runs)} runs. {cost} With seed {run.seed}:\n"
        yield from _quoted(item.says)
    first = next(run for run in store.runs if run.broken)
    yield "Again:\n"
    yield "```sh"
    yield f'make test SUITE=stores ARGS="--trial --stores {store.name} --first-seed {first.seed} --runs 1"'
    yield f"{store.command} --seed {first.seed}"
    yield "```"
    yield ""


def _quoted(text: str) -> Iterator[str]:
    """Show what a program said as it said it."""
    yield "```text"
    yield from textwrap.wrap(text, 150)
    yield "```\n"


def _unclear(store: StoreResult) -> str:
    certified = sum(run.verdict == "certified" for run in store.runs)
    other = next((run for run in store.runs if run.verdict != "certified"), None)
    more = f" Seed {other.seed}: {other.verdict}. {other.says}" if other is not None else ""
    return f"{certified} of {len(store.runs)} runs held every promise.{more}"


def _repeating(kept: Kept) -> Iterator[str]:
    yield "## The runs\n"
    yield REPEATING
    yield "| store | seeds | day | command |"
    yield "|---|---|---|---|"
    for store in kept.stores:
        if store.runs:
            seeds = f"{store.runs[0].seed} to {store.runs[-1].seed}"
            row = BY_NAME[store.name]
            title = row.title + (f", {row.settings}" if row.settings else "")
            yield f"| {title} | {seeds} | {store.made_at} | `{store.command}` |"
