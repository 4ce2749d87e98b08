"""Plan the hops of the store's maintenance: a list of the bucket, VACUUM with it, and all readers again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import polars as pl

from jobs import inventory, load_inventory, vacuum
from jobs.verify import rows
from jobs.verify.answers import HINTS, reading_hops, same, same_paths
from jobs.verify.hops import storing_hops
from jobs.verify.lake import Lake
from jobs.verify.plan import Answer, Hop
from pydelta.errors import DeltaError
from pydelta.storage.uris import bucket_of

__all__ = ["cleaning_hops"]

_STRAY: Final = "city=b c/part-stray é%41.parquet"
"""A file that a dead writer might leave. VACUUM must find it by its exact name in the store."""


def cleaning_hops(lake: Lake) -> Iterator[Hop]:
    """Plan inventory and VACUUM, followed by all readers."""
    yield Hop(name="inventory", work=lambda: _inventory(lake), hint=HINTS["inventory"], needs=("load",))
    yield Hop(
        name="inventory: Trino, catalog delta",
        work=lambda: _report(lake),
        hint=HINTS["inventory"],
        needs=("load", "inventory"),
    )
    yield Hop(name="VACUUM", work=lambda: _vacuum(lake), hint=HINTS["vacuum"], needs=("load", "inventory"))
    needs = ("load", "VACUUM")
    yield from reading_hops(lake, lake.names.orders, "VACUUM", needs)
    yield from storing_hops(lake, "VACUUM", needs)


def _inventory(lake: Lake) -> Answer:
    """Compare the bytes in a listing of the bucket with those that the inventory job delivers."""
    lake.table_store(lake.names.orders).put(_STRAY, b"123")
    source, deliveries = lake.place("warehouse"), lake.place("inventory")
    # Leave out the empty markers of folders.
    listed = {info.path: info.size for info in lake.store(source).list_all() if info.size}
    (found,) = inventory.run(lake.conf_of("inventory"), ["--source", source, "--destination", deliveries])
    _raise(found)
    lake.listed = pl.DataFrame(
        {"key": [f"{bucket_of(source).key}/{path}" for path in listed], "length": list(listed.values())},
        schema={"key": pl.String(), "length": pl.Int64()},
    )
    loaded = load_inventory.run(lake.conf, ["--source", deliveries, "--table", str(lake.names.report)])
    for problem in loaded["problems"]:
        _raise(problem)
    return same(
        f"{lake.listed.get_column('length').sum():,} bytes in the list of the bucket",
        f"{found['bytes']:,} bytes in the list of the bucket",
    )


def _raise(row: dict[str, object]) -> None:
    if "error" in row:
        raise DeltaError(str(row["message"]))


def _report(lake: Lake) -> Answer:
    """Check that the inventory table has every listed object with its size."""
    assert lake.listed is not None
    texts = lake.by_trino("delta", lake.names.report, ["key", "length"], where="length > 0")
    differs = rows.difference(rows.as_texts(lake.listed), texts, key="key")
    total = f"{lake.listed.height:,} objects by name and size"
    return Answer(expected=total, found=total if differs is None else differs, right=differs is None)


def _vacuum(lake: Lake) -> Answer:
    """Compare the data files left after VACUUM with those that are live in the log."""
    table = lake.names.orders
    store, live = lake.table_store(table), lake.live(table)
    before = [info.path for info in store.list_all()]
    useless = rows.useless_files(before, live)
    arguments = [str(table), "--inventory", str(lake.names.report), "--retention-hours", "0", "--no-retention-check"]
    (found,) = vacuum.run(lake.conf_of("vacuum"), arguments)
    _raise(found)
    left = sorted(info.path for info in store.list_all() if not info.path.startswith("_"))
    answer = same_paths("data files left", sorted(set(before) & set(live)), left)
    if not answer.right:
        return answer
    return same(
        f"{len(useless)} files deleted, {len(left)} left", f"{found['deleted']} files deleted, {len(left)} left"
    )
