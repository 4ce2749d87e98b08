"""Plan the hops of a table with hidden rows, which only readers of the log and of Iceberg see right.

It has no times: Presto 0.287 refuses Iceberg tables with times in a zone, which Delta's are. The stack's Iceberg REST
catalog gives it too, and has to refuse a request without the token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from catalog_sync.iceberg.sync import sync_iceberg
from catalog_sync.names import iceberg_name
from jobs.verify import rows
from jobs.verify.answers import HINTS, compared
from jobs.verify.hops import ROWS
from jobs.verify.lake import Lake
from jobs.verify.plan import Answer, Hop
from pydelta.log import DeltaLog

__all__ = ["hidden_hops"]

_COLUMNS = ("id", "customer", "amount", "day", "city")
_MADE = "hidden rows"
_UNAUTHORIZED = 401


def hidden_hops(lake: Lake) -> Iterator[Hop]:
    """Plan a table with deletion vectors, its Iceberg entry, and each reader of that."""
    yield Hop(name=_MADE, work=lambda: _make(lake), hint=HINTS["engine"], needs=("load",))
    for catalog in ("delta", "iceberg"):
        name = f"{_MADE}: Trino, catalog {catalog}"
        yield Hop(name=name, work=_by_trino(lake, catalog), hint=HINTS[catalog], needs=(_MADE,))
    if lake.presto is not None:
        name = f"{_MADE}: Presto, catalog iceberg"
        yield Hop(name=name, work=lambda: _by_presto(lake), hint=HINTS["presto"], needs=(_MADE,))
    if lake.rest is not None:
        name = f"{_MADE}: Iceberg REST catalog"
        yield Hop(name=name, work=lambda: _by_rest(lake), hint=HINTS["rest"], needs=(_MADE,))


def _make(lake: Lake) -> Answer:
    table = lake.names.hidden
    lake.spark.sql(
        f"CREATE TABLE {table} USING DELTA PARTITIONED BY (city) "
        f"TBLPROPERTIES ('delta.enableDeletionVectors' = 'true') AS SELECT {', '.join(_COLUMNS)} FROM verify_orders"
    )
    lake.spark.sql(f"DELETE FROM {table} WHERE id % 7 = 3 OR amount > 900")
    lake.expected[table] = rows.deleted(rows.first_rows(ROWS)).select(_COLUMNS)
    log = DeltaLog(lake.table_store(table))
    if not log.update().files.has_live_vectors():
        return Answer(expected="files with hidden rows", found="none", right=False)
    with lake.metastore() as metastore:
        sync_iceberg(log, metastore, iceberg_name(table), iceberg=True)
    return compared(lake.expected[table], lake.by_spark(table, _COLUMNS))


def _by_trino(lake: Lake, catalog: str) -> Callable[[], Answer]:
    table = lake.names.hidden
    return lambda: compared(lake.expected[table], lake.by_trino(catalog, table, _COLUMNS))


def _by_presto(lake: Lake) -> Answer:
    table = lake.names.hidden
    return compared(lake.expected[table], lake.by_presto("iceberg", table, _COLUMNS))


def _by_rest(lake: Lake) -> Answer:
    table, rest = lake.names.hidden, lake.rest
    assert rest is not None
    status = rest.status_without_token()
    if status != _UNAUTHORIZED:
        return Answer(expected=f"status {_UNAUTHORIZED} without the token", found=f"status {status}", right=False)
    return compared(lake.expected[table], lake.by_rest(table, _COLUMNS))
