"""Plan the first hops of a run, its changes, and the readers after each."""

from __future__ import annotations

import datetime as dt
import io
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import polars as pl

from catalog_sync.names import TableName, twin_name
from jobs.verify import rows
from jobs.verify.answers import HINTS, compared, reading_hops, same, same_paths
from jobs.verify.cluster import CLUSTER, why_waiting
from jobs.verify.lake import Lake, leftovers
from jobs.verify.plan import Answer, Hop
from jobs.verify.timed import visible_hop

__all__ = ["COLUMNS", "ROWS", "change_hops", "create_synced", "first_hops", "storing_hops"]

ROWS: Final = 2_000
COLUMNS: Final = "id BIGINT, customer STRING, amount DECIMAL(12,2), day DATE, at TIMESTAMP, city STRING"
_PATIENCE_SECONDS: Final = 60.0
_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"

# --- load ---------------------------------------------------------------------------------------------------------


def first_hops(lake: Lake) -> Iterator[Hop]:
    """Plan the path of the rows: store, cluster, table, then each reader, data files, metastore and manifests."""
    table = lake.names.orders
    yield Hop(name="metastore", work=lambda: _databases(lake), hint=HINTS["metastore"])
    yield Hop(name="store", work=lambda: _put(lake, "orders.csv", rows.first_rows(ROWS)), hint=HINTS["store"])
    yield Hop(name="Spark on the cluster", work=lambda: _cluster(lake), hint=HINTS["spark"], needs=("store",))
    yield Hop(
        name="load", work=lambda: _load(lake), hint=HINTS["spark"], needs=("metastore", "store", "Spark on the cluster")
    )
    yield from reading_hops(lake, table, "load", ("load",))
    yield from storing_hops(lake, "load", ("load",))
    yield Hop(name="load: metastore", work=lambda: _entries(lake), hint=HINTS["metastore"], needs=("load",))


def storing_hops(lake: Lake, after: str, needs: tuple[str, ...]) -> Iterator[Hop]:
    """Plan two checks of the store itself: data files, read by Polars, and manifests."""
    yield Hop(name=f"{after}: files in the store", work=lambda: _files(lake), hint=HINTS["engine"], needs=needs)
    yield Hop(name=f"{after}: manifests", work=lambda: _manifests(lake), hint=HINTS["hive"], needs=needs)


def _databases(lake: Lake) -> Answer:
    """Check the stack's databases, after dropping those of runs that were killed."""
    wanted = {"lake", "lake_symlink", "lake_iceberg", "inventory"}
    with lake.metastore() as metastore:
        found = metastore.databases()
    for run in leftovers(found, dt.datetime.now(dt.UTC)):
        problems = lake.drop(run)
        lake.note(f"{run}, which an earlier run left behind, is {'not ' if problems else ''}dropped")
    return same(_names(wanted), _names(wanted & set(found)))


def _names(databases: set[str]) -> str:
    return f"the databases {', '.join(sorted(databases)) or '(none)'}"


def _put(lake: Lake, name: str, frame: pl.DataFrame) -> Answer:
    store = lake.store(lake.place("work"))
    store.put(name, rows.write_csv(frame))
    return compared(frame, rows.read_csv(store.read(name)))


def _csv(lake: Lake, name: str) -> pl.DataFrame:
    """Read with Polars the file that Spark reads."""
    return rows.read_csv(lake.store(lake.place("work")).read(name))


def _view(lake: Lake, name: str, view: str) -> None:
    reader = lake.spark.read.options(header="true", quote='"', escape='"', encoding="UTF-8")
    reader.schema(COLUMNS).csv(f"{lake.place('work')}/{name}").createOrReplaceTempView(view)


def _cluster(lake: Lake) -> Answer:
    """Compare the rows of the file as read by executors, which run on other hosts."""
    _view(lake, "orders.csv", "verify_orders")
    context = lake.spark.sparkContext
    driver = socket.gethostname()
    waits = threading.Timer(_PATIENCE_SECONDS, lambda: lake.note(why_waiting(CLUSTER)))
    waits.daemon = True
    waits.start()
    try:
        hosts = set(context.parallelize(range(2), 2).map(lambda _: socket.gethostname()).collect())
    finally:
        waits.cancel()
    if not str(context.master).startswith("spark://") or driver in hosts:
        return Answer(
            expected="tasks on the workers of spark://…", found=f"tasks here, at {context.master}", right=False
        )
    return compared(_csv(lake, "orders.csv"), lake.by_spark("verify_orders", list(rows.SCHEMA)))


def _load(lake: Lake) -> Answer:
    table, run = lake.names.orders, lake.names.run
    lake.spark.sql(f"CREATE DATABASE {run} LOCATION '{lake.place('warehouse')}'")
    create_synced(lake, table)
    lake.spark.sql(f"INSERT INTO {table} SELECT * FROM verify_orders")
    expected = _csv(lake, "orders.csv")
    lake.expected[table] = expected
    return compared(expected, lake.by_spark(table, expected.columns))


def create_synced(lake: Lake, table: TableName) -> None:
    """Create an empty table whose writers sync its twin and its Iceberg entry after each commit."""
    lake.spark.sql(
        f"CREATE TABLE {table} ({COLUMNS}) USING DELTA PARTITIONED BY (city) "
        f"TBLPROPERTIES ('pydelta.sync.enabled' = 'true', 'pydelta.sync.table' = '{table}', "
        "'pydelta.sync.iceberg' = 'true')"
    )


def _files(lake: Lake) -> Answer:
    """Compare the rows of the files that the log names, read by Polars alone."""
    table = lake.names.orders
    store, expected = lake.table_store(table), lake.expected[table]
    frames = [
        pl.read_parquet(io.BytesIO(store.read(path))).with_columns(city=pl.lit(values["city"], dtype=pl.String()))
        for path, values in lake.live(table).items()
    ]
    return compared(expected, pl.concat(frames, how="diagonal_relaxed").select(expected.columns))


def _entries(lake: Lake) -> Answer:
    """Check the table's native entry and the partitions of its twin."""
    table, frame = lake.names.orders, lake.expected[lake.names.orders]
    twin = twin_name(table)
    with lake.metastore() as metastore:
        entry = metastore.table(table.database, table.name)
        names = metastore.partition_names(twin.database, twin.name)
    cities = {_HIVE_NULL if city is None else city for city in frame.get_column("city").to_list()}
    wanted = (sorted(frame.columns), sorted(cities))
    columns = [] if entry is None else sorted(column.name for column in [*entry.sd.cols, *(entry.partitionKeys or [])])
    found = (columns, sorted(unquote(name.removeprefix("city=")) for name in names))
    return Answer(expected=_entry(wanted), found=_entry(found), right=wanted == found)


def _entry(parts: tuple[list[str], list[str]]) -> str:
    return f"columns {', '.join(parts[0])}; partitions {', '.join(parts[1])}"


def _manifests(lake: Lake) -> Answer:
    """Compare the files that the manifests name, each exactly once, with the live files in the log."""
    table = lake.names.orders
    store = lake.table_store(table)
    texts = [
        store.read(info.path) for info in store.list_all("_symlink_format_manifest") if info.path.endswith("/manifest")
    ]
    named = sorted(line.partition("://")[2] for text in texts for line in text.decode().splitlines())
    place = f"{lake.root.partition('://')[2]}warehouse/{table.database}/{table.name}/"
    live = sorted(place + path for path in lake.live(table))
    return same_paths("live files, named once each", live, named)


# --- changes ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change to the table.

    Args:
        name: Name of the hop.
        statements: SQL with ``{table}`` for the table's name. The last one returns the number of changed rows.
        apply: Makes the same change in Polars.
        changed: Computes the number of changed rows from the rows before and after.
    """

    name: str
    statements: tuple[str, ...]
    apply: Callable[[pl.DataFrame], pl.DataFrame]
    changed: Callable[[pl.DataFrame, pl.DataFrame], int]


def changes(source: pl.DataFrame) -> dict[str, Change]:
    """Build the changes of a run, by name.

    Args:
        source: Source rows of the MERGE.
    """
    all_of = (
        Change(
            name="DELETE",
            statements=("DELETE FROM {table} WHERE id % 7 = 3 OR amount > 900",),
            apply=rows.deleted,
            changed=lambda before, after: before.height - after.height,
        ),
        Change(
            name="UPDATE",
            statements=("UPDATE {table} SET customer = 'changed', amount = amount + 1 WHERE day < DATE'2024-02-01'",),
            apply=rows.updated,
            changed=lambda before, after: after.filter(pl.col("customer") == "changed").height,
        ),
        Change(
            name="MERGE",
            statements=(
                "MERGE INTO {table} t USING verify_merge s ON t.id = s.id "
                "WHEN MATCHED AND s.id % 20 = 0 THEN DELETE "
                "WHEN MATCHED THEN UPDATE SET customer = s.customer "
                "WHEN NOT MATCHED THEN INSERT *",
            ),
            apply=lambda before: rows.merged(before, source),
            changed=lambda before, after: source.height,
        ),
        Change(
            name="ADD COLUMN",
            statements=(
                "ALTER TABLE {table} ADD COLUMNS (note STRING)",
                "UPDATE {table} SET note = concat('n', id) WHERE id % 5 = 0",
            ),
            apply=rows.added_column,
            changed=lambda before, after: after.filter(pl.col("note").is_not_null()).height,
        ),
    )
    return {change.name: change for change in all_of}


def change_hops(lake: Lake, *, without_sync: bool) -> Iterator[Hop]:
    """Plan DELETE, UPDATE, MERGE, measured commits and ADD COLUMN, each followed by all readers.

    Args:
        lake: Resources of the run.
        without_sync: Skip the sync after the DELETE, so that the catalog hive must show wrong rows.
    """
    yield Hop(
        name="MERGE's source",
        work=lambda: _put(lake, "merge.csv", rows.merge_source(ROWS)),
        hint=HINTS["store"],
        needs=("load",),
    )
    source = rows.merge_source(ROWS)
    for change in changes(source).values():
        needs = ("load", "MERGE's source") if change.name == "MERGE" else ("load",)
        if change.name == "ADD COLUMN":
            yield visible_hop(lake)
        left_out = without_sync and change.name == "DELETE"
        yield Hop(name=change.name, work=_changing(lake, change, left_out), hint=HINTS["engine"], needs=needs)
        yield from reading_hops(lake, lake.names.orders, change.name, (*needs, change.name))


def _changing(lake: Lake, change: Change, without_sync: bool) -> Callable[[], Answer]:
    table = lake.names.orders

    def work() -> Answer:
        if change.name == "MERGE":
            _view(lake, "merge.csv", "verify_merge")
        # It is off for only one change, because the commit that turns it on also syncs.
        if without_sync or lake.sync_is_off:
            _set_sync(lake, on=not without_sync)
        changed = 0
        for statement in change.statements:
            result = lake.spark.sql(statement.format(table=table)).collect()
            changed = int(result[0][0]) if result else 0
        before = lake.expected[table]
        after = lake.expected[table] = change.apply(before)
        return same(f"{change.changed(before, after):,} rows changed", f"{changed:,} rows changed")

    return work


def _set_sync(lake: Lake, *, on: bool) -> None:
    value = "true" if on else "false"
    lake.spark.sql(f"ALTER TABLE {lake.names.orders} SET TBLPROPERTIES ('pydelta.sync.enabled' = '{value}')")
    lake.sync_is_off = not on
