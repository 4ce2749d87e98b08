"""Generate docs/reference/interop.md from the answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matrix.cases import CASES

__all__ = ["KEPT", "PAGE", "page"]

KEPT = Path(__file__).resolve().parent.parent / "interop.json"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "interop.md"
TITLES = {
    "ours": "pydelta",
    "reference": "delta-spark 4.4",
    "delta-rs": "delta-rs 1.6",
    "duckdb": "DuckDB 1.5",
    "trino": "Trino 476",
}
HEAD = """# Who reads what

Each row is a table with one feature, made by the same statements on both Spark engines (`tests/peers/matrix/cases.py`), with updates and deletes
if the feature allows them. The rows that each engine reads are compared, value by value, with the expected ones. `make test SUITE=interop RECORD=1` makes
this page; `python -m matrix.trino` the column of Trino, over the same tables in the stack's MinIO.

- **yes**: the rows are right; **refused**: the engine refuses to read the table, so nothing is lost;
- **WRONG**: it reads other rows, without an error;
- **in part**: one column is read in its stored form (a variant as two binaries, for example); or times are cut to milliseconds, the
  precision of Trino's Delta connector;
- **–**: the writer cannot make such a table.
"""


def page(told: dict[str, Any]) -> str:
    """The whole page, of what ``matrix.__main__`` found."""
    parts = [HEAD]
    notes: list[str] = []
    for writer, names in told["written"].items():
        readers = [reader for reader in TITLES if reader in told["read"] and reader != writer]
        parts.append(f"## Written by {TITLES[writer]}\n")
        parts.append(f"| table | itself | {' | '.join(TITLES[reader] for reader in readers)} |")
        parts.append("|---" * (len(readers) + 2) + "|")
        for case in CASES:
            if names[case.name]:
                if names[case.name] != "no call for it was tried":
                    notes.append(f"- {TITLES[writer]} does not make {case.name}: `{names[case.name]}`")
                parts.append(f"| {case.name} |" + " – |" * (len(readers) + 1))
                continue
            cells = []
            for reader in (writer, *readers):
                words = told["read"][reader].get(writer, {}).get(case.name, "not asked")
                cells.append(_cell(words))
                if words not in ("same", "not asked"):
                    notes.append(f"- {TITLES[reader]} reads {case.name} by {TITLES[writer]}: `{words}`")
            parts.append(f"| {case.name} | {' | '.join(cells)} |")
        parts.append("")
    from matrix.pairs import section

    return "\n".join([*parts, *section(), "## Notes\n", *notes]) + "\n"


def _cell(words: str) -> str:
    if words == "same":
        return "yes"
    if words.startswith("same, "):
        return "in part"
    return {"refused": "refused", "other rows": "**WRONG**"}.get(words.partition(":")[0], words)
