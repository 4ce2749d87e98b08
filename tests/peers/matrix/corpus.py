"""Read tables of other projects' tests by Delta Kernel, and compare them with the rows that have to be in each.

The tables are those of ``tests/conformance``. What is refused by one engine, and read by others, is in the page's notes.
"""

from __future__ import annotations

from typing import Any

from matrix.answers import SAME, said
from matrix.kernel import Kernel, KernelError, kernel
from tests.conformance.test_rows import FOLDER, _canon, _difference, _index

__all__ = ["EXPECTED", "read_corpus", "section"]

EXPECTED = {"rows": "known rows", "error": "an error", "disputed": "engines disagree"}
"""What a reader has to find. The other tables lack their data files."""
_MOST_ROWS = 150_000
"""Larger tables have no hash of their rows."""


def read_corpus() -> dict[str, dict[str, str]]:
    """Read each table; the answers by what is expected, then by name."""
    if not _index():
        raise SystemExit(
            f"There are no tables in {FOLDER}. Next: set PYDELTA_CONFORMANCE to the folder with index.json."
        )
    told: dict[str, dict[str, str]] = {expected: {} for expected in EXPECTED}
    with kernel() as process:
        for case in _index():
            if case["expect"] in told and (case.get("rows") or 0) <= _MOST_ROWS:
                told[case["expect"]][case["id"]] = corpus_answer(process, case)
    return told


def corpus_answer(process: Kernel, case: dict[str, Any]) -> str:
    """Read a table, and compare it with what the corpus says of it."""
    place = str(FOLDER / "tables" / case["id"])
    try:
        found = process.read(place)
    except KernelError as error:
        return f"refused: {said(error, place)}"
    if case["expect"] == "error":
        return f"other rows: {found.num_rows} rows of a table that has to be refused"
    problem = _difference(case, _canon().fix_types(found))
    return SAME if problem is None else f"other rows: {problem}"


def section(told: dict[str, dict[str, str]], title: str, notes: list[str]) -> list[str]:
    """The part of the page about these tables. A table that other engines read and this one does not gets a note."""
    lines = [
        f"## Tables of other projects' tests, read by {title}\n",
        "The tables of `tests/conformance` that have their data files and at most 150,000 rows. pydelta reads those with known rows, and refuses those",
        "with an error ([what is tested](tested.md)).\n",
        "| expected | tables | these rows | refused | other rows |",
        "|---|---|---|---|---|",
    ]
    for expected, words in EXPECTED.items():
        answers = [answer.partition(":")[0] for answer in told[expected].values()]
        counts = [answers.count(kind) for kind in (SAME, "refused", "other rows")]
        lines.append(f"| {words} | {len(answers)} | {' | '.join(map(str, counts))} |")
        if expected != "error":
            found = {name: answer for name, answer in told[expected].items() if answer != SAME}
            notes += [f"- {title} reads {name} of `tests/conformance`: `{answer}`" for name, answer in found.items()]
    return [*lines, ""]
