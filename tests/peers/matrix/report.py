"""Generate docs/reference/interop.md from the answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matrix.cases import CASES

__all__ = ["ASKED_APART", "FURTHER", "KEPT", "PAGE", "page"]

KEPT = Path(__file__).resolve().parent.parent / "interop.json"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "interop.md"
TITLES = {
    "ours": "pydelta",
    "reference": "delta-spark 4.4",
    "delta-rs": "delta-rs 1.6",
    "kernel": "Delta Kernel 4.4",
    "duckdb": "DuckDB 1.5",
    "trino": "Trino 476",
}
FURTHER = {
    "polars": "Polars 2.1",
    "daft": "Daft 0.7",
    "sail": "Sail 0.7",
    "clickhouse": "ClickHouse 26.9",
    "datafusion": "DataFusion 55",
    "ray": "Ray Data 2.60",
    "delta-rs-arrow": "delta-rs, PyArrow",
}
"""Readers with an environment of their packages, ``readers.txt``: Python's data frames and what is behind them."""
BY_ENTRY = {
    "pyiceberg": "PyIceberg 0.12",
    "duckdb-iceberg": "DuckDB 1.5",
    "trino-iceberg": "Trino 476",
    "presto-iceberg": "Presto 0.287",
    "spark-iceberg": "Spark's Iceberg",
}
"""Readers through the Iceberg entry."""
ASKED_APART = ("trino", "trino-iceberg", "presto-iceberg", "spark-iceberg")
"""Readers that are asked in the stack or by another Spark; a run without them keeps their answers."""
HEAD = """# Who reads what

Each row is a table with one feature, made by the same statements on both Spark engines (`tests/peers/matrix/cases.py`), with updates and deletes
if the feature allows them. The rows that each engine reads are compared, value by value, with the expected ones. `make test SUITE=interop RECORD=1` makes
this page; `python -m matrix.trino` and `matrix.iceberg_stack` the columns of Trino and Presto, over the same tables in the stack's MinIO, and
`matrix.iceberg_spark` that of Spark's Iceberg.

- **yes**: the rows are right; **refused**: the engine refuses to read the table, so nothing is lost;
- **WRONG**: it reads other rows, without an error;
- **in part**: one column is read in its stored form (a variant as two binaries, for example); or times are cut to milliseconds, the
  precision of Trino's Delta connector, or get a time zone;
- **no entry**: Iceberg lacks a type of the table, which the sync says;
- **–**: the writer cannot make such a table.

Delta Kernel is the Java library that connectors are built on, here with its default engine. As a writer it creates tables and appends rows; it
changes the schema of tables with column mapping alone, and into these its engine writes no rows. Its Parquet files have bytes and shorts as
integers of 32 bits, which Polars refuses; the names of its folders of partitions are encoded twice, and Polars takes the values from them; its
statistics of a binary column are texts in which other bytes are replaced, and Sail shows these.
"""
_FURTHER = """Ray Data and `DeltaTable.to_pyarrow_table` read the files by the names of the table's columns, so that they find no values in a table with column
mapping, and give no error.
"""
_ENTRY = """## Through the Iceberg entry

The same tables, each with [the Iceberg entry](../guides/iceberg.md) that pydelta makes of it, of any writer. PyIceberg, DuckDB and Spark read the
entry's folder, Trino and Presto by the metastore.
"""


def page(told: dict[str, Any]) -> str:
    """The whole page, of what ``matrix.__main__`` found."""
    parts = [HEAD]
    notes: list[str] = []
    for writer, names in told["written"].items():
        parts.append(f"## Written by {TITLES[writer]}\n")
        others = [reader for reader in _asked(told, TITLES, writer) if reader != writer]
        parts += _table(told, writer, {writer: "itself"} | {reader: TITLES[reader] for reader in others}, notes)
        for case in CASES:
            if names[case.name] and names[case.name] != "no call for it was tried":
                notes.append(f"- {TITLES[writer]} does not make {case.name}: `{names[case.name]}`")
        further = _asked(told, FURTHER, writer)
        if further:
            parts.append(f"### Further readers of tables by {TITLES[writer]}\n\n{_FURTHER}")
            parts += _table(told, writer, further, notes)
    if any(reader in told["read"] for reader in BY_ENTRY):
        parts.append(_ENTRY)
        for writer in told["written"]:
            if by_entry := _asked(told, BY_ENTRY, writer):
                parts.append(f"### Tables by {TITLES[writer]}\n")
                parts += _table(told, writer, by_entry, notes, " through the entry")
    from matrix.corpus import section as of_corpus
    from matrix.pairs import section

    if "corpus" in told:
        parts += of_corpus(told["corpus"], TITLES["kernel"], notes)
    return "\n".join([*parts, *section(), "## Notes\n", *notes]) + "\n"


def _asked(told: dict[str, Any], titles: dict[str, str], writer: str) -> dict[str, str]:
    """The readers that were asked for tables of a writer."""
    return {reader: title for reader, title in titles.items() if writer in told["read"].get(reader, {})}


def _table(told: dict[str, Any], writer: str, readers: dict[str, str], notes: list[str], how: str = "") -> list[str]:
    """The lines of a table of readers; answers that need words are added to the notes."""
    parts = [f"| table | {' | '.join(readers.values())} |", "|---" * (len(readers) + 1) + "|"]
    names = told["written"][writer]
    for case in CASES:
        if names[case.name]:
            parts.append(f"| {case.name} |" + " – |" * len(readers))
            continue
        cells = []
        for reader, title in readers.items():
            words = told["read"][reader].get(writer, {}).get(case.name, "not asked")
            cells.append(_cell(words))
            if words.startswith("no entry"):
                note = f"- {case.name} by {TITLES[writer]}: `{words}`"
                notes += [note] if note not in notes else []
            elif words not in ("same", "not asked"):
                named = TITLES[writer] if reader == writer else title
                notes.append(f"- {named} reads {case.name} by {TITLES[writer]}{how}: `{words}`")
        parts.append(f"| {case.name} | {' | '.join(cells)} |")
    return [*parts, ""]


def _cell(words: str) -> str:
    if words == "same":
        return "yes"
    if words.startswith("same, "):
        return "in part"
    short = {"refused": "refused", "no entry": "no entry", "other rows": "**WRONG**"}
    return short.get(words.partition(":")[0], words)
