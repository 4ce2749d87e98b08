"""Hold the resources of one run of verify (names, Spark session, Trino, store) and drop everything at the end."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import polars as pl

from catalog_sync.names import TableName, iceberg_name, twin_name
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from jobs.verify.plan import Timing, reason_of
from jobs.verify.rest import RestReader
from jobs.verify.rows import as_texts, live_files
from jobs.verify.trino import Trino
from pydelta.api.routing.quiet import quiet_session
from pydelta.errors import DeltaError
from pydelta.storage import ObjectInfo, Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CATALOGS", "IN_PRESTO", "Lake", "Names", "leftovers", "open_lake"]

CATALOGS: Final = ("delta", "hive", "iceberg")
"""Trino's ways to read a table: through its log, the symlink manifests of its twin, and its Iceberg entry."""
IN_PRESTO: Final = ("hive",)
"""Presto's way to read ``orders``: its Iceberg connector refuses tables with times in a zone, see ``hidden``."""

_RUN: Final = re.compile(r"verify_(\d{8}_\d{6})(?:_symlink|_iceberg)?$")
_COMMIT: Final = re.compile(r"/\d{20}\.json$")
_OLD: Final = dt.timedelta(hours=2)
_KEEPERS: Final = {"warehouse": "vacuum", "work": "spark", "inventory": "inventory"}
"""The users that delete the objects of each place."""
_CONF: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
    # On a loaded machine a sync may take longer than a writer waits by default, and the run measures that time.
    "spark.pydelta.hooks.timeout": "2m",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names of one run. ``run`` is ``verify_`` and the time of its start.

    Tables that their writer syncs are in a separate database where the stack's scheduler does not look, so only the
    writer can make them visible. The scheduler's own table is in ``lake``.
    """

    run: str

    @classmethod
    def at(cls, now: dt.datetime) -> Names:
        """Build the names of a run from the time of its start, in UTC."""
        return cls(run=f"verify_{now:%Y%m%d_%H%M%S}")

    @property
    def orders(self) -> TableName:
        """The table that the run changes."""
        return TableName(database=self.run, name="orders")

    @property
    def kafka(self) -> TableName:
        """The table that is fed from Kafka."""
        return TableName(database=self.run, name="from_kafka")

    @property
    def hidden(self) -> TableName:
        """The table with hidden rows."""
        return TableName(database=self.run, name="hidden")

    @property
    def report(self) -> TableName:
        """The inventory table of the run."""
        return TableName(database=self.run, name="datalake_report")

    @property
    def clock(self) -> TableName:
        """The table that only the scheduler makes visible in ``hive``."""
        return TableName(database="lake", name=self.run)

    def folders(self, root: str) -> list[str]:
        """List every folder in which the run leaves objects.

        Args:
            root: Prefix of every place in the store.
        """
        places = ("warehouse", "warehouse/lake", "work", "inventory")
        return [f"{root}{place}/{self.run}" for place in places]


def leftovers(databases: Iterable[str], now: dt.datetime) -> list[str]:
    """Find runs, by their databases, that began at least two hours ago and were killed before they dropped them."""
    found = set()
    for database in databases:
        match = _RUN.match(database)
        began = dt.datetime.strptime(match[1], "%Y%m%d_%H%M%S").replace(tzinfo=dt.UTC) if match else now
        if now - began > _OLD:
            found.add(database.removesuffix("_symlink").removesuffix("_iceberg"))
    return sorted(found)


@dataclass(slots=True, kw_only=True)
class Lake:
    """The resources that the hops of a run use.

    Args:
        names: Names of its tables.
        spark: Its session on the cluster.
        trino: A Trino client.
        presto: A Presto client; None if the stack has no Presto.
        rest: A client of the Iceberg REST catalog; None if the stack has none.
        conf: Settings for storage and the metastore, by Hadoop's names.
        root: Prefix of every place in the store: ``s3a://`` for buckets, ``hdfs://namenode:8020/``.
        expected: Expected rows by table, as computed by Polars.
        timings: Times until commits became visible.
        sync_is_off: Whether commits to ``orders`` leave its twin unchanged.
        listed: Objects of the run's database by key and length, as listed by the store.
    """

    names: Names
    spark: SparkSession
    trino: Trino
    conf: dict[str, str]
    presto: Trino | None = None
    rest: RestReader | None = None
    root: str = "s3a://"
    expected: dict[TableName, pl.DataFrame] = field(default_factory=dict)
    timings: list[Timing] = field(default_factory=list)
    sync_is_off: bool = False
    listed: pl.DataFrame | None = None

    def note(self, text: str) -> None:
        """Print a note between two hops."""
        print(f"{'':18}{text}", flush=True)

    def key_of(self, user: str) -> dict[str, str]:
        """Return settings with the key of a store user; empty if the store has only one key."""
        key, secret = (os.environ.get(f"STORE_{user.upper()}_{kind}") for kind in ("KEY", "SECRET"))
        return {"fs.s3a.access.key": key, "fs.s3a.secret.key": secret} if key and secret else {}

    def conf_of(self, user: str) -> dict[str, str]:
        """Return the settings for a job that a store user runs."""
        return self.conf | self.key_of(user)

    def place(self, name: str) -> str:
        """Return the run's folder in one of the store's places: ``warehouse``, ``work`` or ``inventory``."""
        return f"{self.root}{name}/{self.names.run}"

    def store(self, uri: str) -> Store:
        """Open a folder of the stack's store."""
        return open_store(uri, self.conf)

    def table_store(self, table: TableName) -> Store:
        """Open the folder of a table."""
        return self.store(f"{self.root}warehouse/{table.database}/{table.name}")

    def metastore(self) -> Metastore:
        """Connect to the metastore that the environment names."""
        return Metastore(MetastoreAddress.parse(None))

    def commits(self, table: TableName) -> list[tuple[int, bytes]]:
        """Read a table's log: the time at which the store received each commit (epoch milliseconds), and its text.

        Commits are sorted, oldest first.
        """
        store = self.table_store(table)
        return [(info.modification_time_ms, store.read(info.path)) for info in _commits_in(store)]

    def committed(self, table: TableName) -> float:
        """Return when the store received the newest commit, in epoch seconds."""
        return _commits_in(self.table_store(table))[-1].modification_time_ms / 1000

    def live(self, table: TableName) -> dict[str, dict[str, str | None]]:
        """List the data files that the log names, with their partition values, without asking the engine."""
        return {path: dict(values) for path, values in live_files(text for _, text in self.commits(table)).items()}

    def by_spark(self, table: TableName | str, columns: Sequence[str]) -> pl.DataFrame:
        """Read a table or a view on the cluster, with every value as text."""
        shown = [
            f"date_format(`{name}`, 'yyyy-MM-dd HH:mm:ss') AS `{name}`"
            if name == "at"
            else f"CAST(`{name}` AS STRING) AS `{name}`"
            for name in columns
        ]
        found = pl.from_arrow(self.spark.sql(f"SELECT {', '.join(shown)} FROM {table}").toArrow())
        assert isinstance(found, pl.DataFrame)
        return found

    def by_trino(self, catalog: str, table: TableName, columns: Sequence[str], where: str = "true") -> pl.DataFrame:
        """Read one of a table's entries through a catalog of Trino, with every value as text."""
        return _texts(self.trino, f"{self.in_catalog(catalog, table)} WHERE {where}", columns)

    def by_presto(self, catalog: str, table: TableName, columns: Sequence[str]) -> pl.DataFrame:
        """Read one of a table's entries through a catalog of Presto, with every value as text."""
        assert self.presto is not None
        return _texts(self.presto, self.in_catalog(catalog, table), columns)

    def by_rest(self, table: TableName, columns: Sequence[str]) -> pl.DataFrame:
        """Read a table's Iceberg entry through the REST catalog, with every value as text."""
        assert self.rest is not None
        folder = f"{self.root}warehouse/{table.database}/{table.name}".replace("s3a://", "s3://")
        return as_texts(self.rest.rows(table, self.table_store(table), folder).select(columns))

    def in_catalog(self, catalog: str, table: TableName) -> str:
        """Return a table's name in a catalog: ``hive`` reads its twin, and ``iceberg`` its Iceberg entry."""
        names = {"hive": twin_name, "iceberg": iceberg_name}
        return f"{catalog}.{names[catalog](table) if catalog in names else table}"

    def drop(self, run: str) -> list[str]:
        """Drop everything that a run made: tables, twins, databases and objects, each with the key of a user who may.

        Returns:
            Descriptions of what could not be dropped, with the reasons.
        """
        names, problems = Names(run=run), []
        statements = [f"DROP TABLE IF EXISTS {names.clock}"]
        try:
            with self.metastore() as metastore:
                known = set(metastore.databases()) & {run, f"{run}_symlink", f"{run}_iceberg"}
                tables = list(metastore.tables(run)) if run in known else []
        except DeltaError as error:
            problems.append(f"what the metastore has of {run}: {error}")
        else:
            statements += [f"DROP TABLE IF EXISTS {entry.dbName}.{entry.tableName}" for entry in tables]
            statements += [f"DROP DATABASE IF EXISTS {database} CASCADE" for database in sorted(known)]
        session = self.spark.newSession()
        for name, value in _uncached(self.key_of("vacuum")).items():
            session.conf.set(name, value)
        for statement in statements:
            problems += self._tried(session, statement)
        for folder in names.folders(self.root):
            problems += self._emptied(folder)
        return problems

    def _tried(self, session: SparkSession, statement: str) -> list[str]:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            session.sql(statement)
        except (PySparkException, Py4JError, DeltaError, OSError) as error:
            return [f"{statement}: {reason_of(error)}"]
        return []

    def _emptied(self, folder: str) -> list[str]:
        """Delete a folder with Hadoop, which also deletes the markers of folders, and check that it is empty."""
        from py4j.protocol import Py4JError

        from pydelta.engines.spark.jvm import Jvm

        try:
            jvm = Jvm.of(self.spark)
            path, conf = jvm.path(folder), jvm.hadoop_conf()
            for name, value in _uncached(
                self.key_of(_KEEPERS[folder.removeprefix(self.root).partition("/")[0]])
            ).items():
                conf.set(name, value)
            path.getFileSystem(conf).delete(path, True)
            left = [info.path for info in self.store(folder).list_all()]
        except (Py4JError, DeltaError, OSError) as error:
            return [f"{folder}: {reason_of(error)}"]
        return [f"{folder}: {len(left)} objects are still there, {left[0]} among them"] if left else []


def _uncached(key: dict[str, str]) -> dict[str, str]:
    """Add to a key the setting that stops Hadoop from reusing a cached file system with another key."""
    return key | {"fs.s3a.impl.disable.cache": "true"} if key else {}


def _texts(client: Trino, source: str, columns: Sequence[str]) -> pl.DataFrame:
    """Read the columns of a source as strings, with a statement that both Trino and Presto understand."""
    shown = [
        "date_format(\"at\", '%Y-%m-%d %H:%i:%s')" if name == "at" else f'CAST("{name}" AS varchar)' for name in columns
    ]
    rows = client.rows(f"SELECT {', '.join(shown)} FROM {source}")
    return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String()), orient="row")


def _commits_in(store: Store) -> list[ObjectInfo]:
    """List the commits of a table's log in the store, oldest first."""
    found = [info for info in store.list_all("_delta_log") if _COMMIT.search(info.path)]
    return sorted(found, key=lambda info: info.path)


def open_lake(names: Names, trino: Trino, presto: Trino | None, rest: RestReader | None, root: str) -> Lake:
    """Start the run's session on the cluster.

    Args:
        names: Names of the run.
        trino: A Trino client.
        presto: A Presto client; None if the stack has no Presto.
        rest: A client of the Iceberg REST catalog; None if the stack has none.
        root: Prefix of every place in the store.

    Raises:
        DeltaEnvironmentError: Spark does not start.
    """
    from pydelta.engines.spark.jvm import Jvm

    spark = quiet_session("verify", conf=_CONF)
    jvm = Jvm.of(spark)
    conf = {**jvm.session_conf(), **jvm.hadoop_options()}
    return Lake(names=names, spark=spark, trino=trino, presto=presto, rest=rest, conf=conf, root=root)
