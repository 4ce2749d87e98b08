"""Compare what hops find with what they expect, and plan the readers that follow every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import polars as pl

from catalog_sync.names import TableName
from jobs.verify import rows
from jobs.verify.lake import CATALOGS, IN_PRESTO, Lake
from jobs.verify.plan import Answer, Hop

__all__ = ["HINTS", "compared", "reading_hops", "same", "same_paths"]

HINTS: Final = {
    "store": "make status names the store's services; make logs SERVICE=… of one that is not healthy",
    "spark": "make status, make logs SERVICE=spark-worker; the Spark master's page shows whether cores are free",
    "metastore": "make logs SERVICE=hive-metastore; docs/guides/trino.md says what an entry holds",
    "delta": 'make logs SERVICE=trino; make trino SQL="SHOW TABLES FROM delta.lake"',
    "hive": "the twin was not synced after the commit: make logs SERVICE=hive-metastore. How far your own twins are "
    "behind: scripts/lake run catalog_sync status --database lake (docs/guides/trino.md)",
    "iceberg": "the Iceberg entry was not synced after the commit: make logs SERVICE=hive-metastore. How far your own "
    "entries are behind: scripts/lake run catalog_sync status --database lake (docs/guides/iceberg.md)",
    "presto": "it reads what Trino's catalog of that name reads: where that is wrong too, the entry was not synced; "
    'else make logs SERVICE=presto, scripts/lake presto "SHOW TABLES FROM hive.lake_symlink"',
    "rest": "it reads what Trino's catalog iceberg reads: where that is wrong too, the entry was not synced; "
    "else make logs SERVICE=iceberg (docs/guides/iceberg.md)",
    "engine": "keep this output: the engine changed other rows than it was told to, which is a bug",
    "inventory": "docs/guides/inventory.md; make status names the store's services, make logs SERVICE=… of one",
    "kafka": "make logs SERVICE=kafka; docs/guides/streams.md",
    "vacuum": "docs/guides/vacuum.md; run no VACUUM on your tables before this is right",
}  # fmt: skip


def compared(expected: pl.DataFrame, found: pl.DataFrame) -> Answer:
    """Compare rows with those that Polars expects, as strings."""
    differs = rows.difference(rows.as_texts(expected), rows.as_texts(found).select(found.columns))
    total = f"{expected.height:,} rows, amounts {expected.get_column('amount').sum()}"
    return Answer(expected=total, found=total if differs is None else differs, right=differs is None)


def same(expected: object, found: object) -> Answer:
    """Compare two values."""
    return Answer(expected=str(expected), found=str(found), right=expected == found)


def reading_hops(lake: Lake, table: TableName, after: str, needs: tuple[str, ...]) -> list[Hop]:
    """Plan the readers of a table after a step: Spark, Trino's catalogs, and Presto's if the stack has it."""

    def by_spark() -> Answer:
        return compared(lake.expected[table], lake.by_spark(table, lake.expected[table].columns))

    def by_trino(catalog: str) -> Callable[[], Answer]:
        return lambda: compared(lake.expected[table], lake.by_trino(catalog, table, lake.expected[table].columns))

    def by_presto(catalog: str) -> Callable[[], Answer]:
        return lambda: compared(lake.expected[table], lake.by_presto(catalog, table, lake.expected[table].columns))

    found = [Hop(name=f"{after}: Spark", work=by_spark, hint=HINTS["spark"], needs=needs)]
    for catalog in CATALOGS:
        name = f"{after}: Trino, catalog {catalog}"
        found.append(Hop(name=name, work=by_trino(catalog), hint=HINTS[catalog], needs=needs))
    for catalog in IN_PRESTO if lake.presto is not None else ():
        name = f"{after}: Presto, catalog {catalog}"
        found.append(Hop(name=name, work=by_presto(catalog), hint=HINTS["presto"], needs=needs))
    return found


def same_paths(what: str, expected: Sequence[str], found: Sequence[str]) -> Answer:
    """Compare two lists of paths, naming the first path that only one of them has."""
    if list(expected) == list(found):
        return same(f"{len(expected)} {what}", f"{len(expected)} {what}")
    lacking, more = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    parts = [f"{len(found)} names"]
    parts += [f"{len(lacking)} missing ({lacking[0]})"] if lacking else []
    parts += [f"{len(more)} too many ({more[0]})"] if more else []
    return Answer(expected=f"{len(expected)} {what}", found="; ".join(parts), right=False)
