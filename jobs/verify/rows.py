"""Compute with Polars alone what a table must hold: its first rows, and the rows after each change.

No engine is involved. ``difference`` compares two frames of strings by their ``id``.
"""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote

import polars as pl

__all__ = [
    "CITIES",
    "SCHEMA",
    "added_column",
    "appended",
    "as_texts",
    "deleted",
    "difference",
    "first_rows",
    "live_files",
    "merge_source",
    "merged",
    "read_csv",
    "updated",
    "useless_files",
    "write_csv",
]

CITIES: Final = ("Aachen", "b c", "50%", "x=y", "a/b", "é中", None)
"""Partition values that folder names, manifests and metastores must escape, and a null."""

SCHEMA: Final = pl.Schema(
    {
        "id": pl.Int64(),
        "customer": pl.String(),
        "amount": pl.Decimal(12, 2),
        "day": pl.Date(),
        "at": pl.Datetime("us"),
        "city": pl.String(),
    }
)

_SHOWN: Final = 3
_DAYS: Final = 400


def first_rows(count: int) -> pl.DataFrame:
    """Build the input rows, with quotes, commas, non-ASCII letters, nulls and cents."""
    numbers = range(count)
    start = dt.datetime(2024, 1, 1, 12)
    return pl.DataFrame(
        {
            "id": list(numbers),
            "customer": [None if n % 11 == 0 else f'Zoë "Z" O\'Neil, {n % 97}' for n in numbers],
            "amount": [_amount(n * 3_737 % 100_003) for n in numbers],
            "day": [dt.date(2023, 12, 31) + dt.timedelta(days=n % _DAYS) for n in numbers],
            "at": [start + dt.timedelta(seconds=n * 61) for n in numbers],
            "city": [CITIES[n % len(CITIES)] for n in numbers],
        }
    ).cast(SCHEMA)


def _amount(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02}"


def write_csv(rows: pl.DataFrame) -> bytes:
    """Format rows as the CSV file that is put into the store. A null is an empty field."""
    return rows.write_csv(datetime_format="%Y-%m-%d %H:%M:%S").encode()


def read_csv(content: bytes) -> pl.DataFrame:
    """Parse such a file into the types of ``SCHEMA``."""
    texts = pl.read_csv(io.BytesIO(content), infer_schema=False)
    at = pl.col("at").str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us")
    return texts.with_columns(at, day=pl.col("day").str.to_date()).cast(SCHEMA)


def deleted(rows: pl.DataFrame) -> pl.DataFrame:
    """Apply ``DELETE … WHERE id % 7 = 3 OR amount > 900``, which removes a whole partition and rows of others."""
    return rows.filter(((pl.col("id") % 7 == 3) | (pl.col("amount") > 900)).fill_null(value=False).not_())


def updated(rows: pl.DataFrame) -> pl.DataFrame:
    """Apply ``UPDATE … SET customer = 'changed', amount = amount + 1 WHERE day < DATE'2024-02-01'``."""
    hit = pl.col("day") < dt.date(2024, 2, 1)
    return rows.with_columns(
        customer=pl.when(hit).then(pl.lit("changed")).otherwise("customer"),
        amount=pl.when(hit).then(pl.col("amount") + 1).otherwise("amount").cast(SCHEMA["amount"]),
    )


def merge_source(count: int) -> pl.DataFrame:
    """Build the source rows of the MERGE: every tenth id of the table, and an equal number of new ids."""
    ids = [*range(0, count, 10), *range(count, count + count // 10)]
    return first_rows(count + count // 10).filter(pl.col("id").is_in(ids)).with_columns(customer=pl.lit("merged"))


def merged(rows: pl.DataFrame, source: pl.DataFrame) -> pl.DataFrame:
    """Apply MERGE by id: delete matches with ``id % 20 = 0``, update the customer of the others, insert new rows."""
    matched = pl.col("fresh").is_not_null()
    joined = rows.join(source.select("id", fresh="customer"), on="id", how="left")
    remaining = joined.filter((matched & (pl.col("id") % 20 == 0)).not_())
    remaining = remaining.with_columns(customer=pl.when(matched).then("fresh").otherwise("customer")).drop("fresh")
    return pl.concat([remaining, source.join(rows, on="id", how="anti").select(remaining.columns)])


def appended(rows: pl.DataFrame, number: int, customer: str, city: str) -> pl.DataFrame:
    """Append the row that a measured commit inserts."""
    row = {
        "id": number,
        "customer": customer,
        "amount": "1.25",
        "day": dt.date(2024, 5, 1),
        "at": dt.datetime(2024, 5, 1),
        "city": city,
    }
    amount = pl.col("amount").cast(SCHEMA["amount"])
    return pl.concat([rows, pl.DataFrame([row]).with_columns(amount).cast(SCHEMA)])


def added_column(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the column ``note``, null unless ``UPDATE … SET note = concat('n', id) WHERE id % 5 = 0`` sets it."""
    note = pl.when(pl.col("id") % 5 == 0).then(pl.format("n{}", pl.col("id")))
    return rows.with_columns(note=note.otherwise(None))


def as_texts(rows: pl.DataFrame) -> pl.DataFrame:
    """Convert every value to the text that each engine returns, so that nothing is compared as a float."""
    return rows.with_columns(
        pl.col(name).dt.strftime("%Y-%m-%d %H:%M:%S") if isinstance(kind, pl.Datetime) else pl.col(name).cast(pl.String)
        for name, kind in rows.schema.items()
    )


def difference(expected: pl.DataFrame, found: pl.DataFrame, key: str = "id") -> str | None:
    """Describe how rows differ from the expected ones, naming the first keys. Returns None if they are equal.

    Args:
        expected: Frames of strings, one row per key.
        found: A frame with the same columns, with rows in any order.
        key: The column that identifies rows.
    """
    if expected.columns != found.columns:
        return f"the columns {', '.join(found.columns)}"
    parts = []
    twice = found.filter(pl.col(key).is_duplicated()).get_column(key).unique()
    missing = expected.join(found, on=key, how="anti", nulls_equal=True).get_column(key)
    more = found.join(expected, on=key, how="anti", nulls_equal=True).get_column(key)
    for keys, word in ((missing, "missing"), (more, "not expected"), (twice, "there more than once")):
        if keys.len():
            parts.append(f"{keys.len():,} {word} ({_named(keys, key)})")
    both = expected.join(found, on=key, how="inner", suffix=" found")
    for name in expected.columns:
        if name == key:
            continue
        other = both.filter(pl.col(name).ne_missing(pl.col(f"{name} found")))
        if other.height:
            row = other.row(0, named=True)
            parts.append(
                f"{other.height:,} with another {name} ({key} {row[key]}: {row[f'{name} found']!r} for {row[name]!r})"
            )
    return f"{found.height:,} rows: {'; '.join(parts)}" if parts else None


def _named(keys: pl.Series, key: str) -> str:
    shown = keys.sort().head(_SHOWN).to_list()
    return f"{key} {', '.join(map(str, shown))}{' …' if keys.len() > _SHOWN else ''}"


def live_files(commits: Iterable[bytes]) -> dict[str, Mapping[str, str | None]]:
    """Find the live data files and their partition values from all commits of a log, oldest first."""
    live: dict[str, Mapping[str, str | None]] = {}
    for commit in commits:
        for line in filter(None, commit.splitlines()):
            action = json.loads(line)
            if "add" in action:
                live[unquote(action["add"]["path"])] = action["add"]["partitionValues"]
            elif "remove" in action:
                live.pop(unquote(action["remove"]["path"]), None)
    return live


def useless_files(listed: Iterable[str], live: Iterable[str]) -> list[str]:
    """List data files outside the newest version. Folders that begin with ``_`` hold no data files."""
    return sorted({path for path in listed if not path.startswith("_")} - set(live))
