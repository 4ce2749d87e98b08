"""Route ``spark.catalog``: this engine creates, caches and describes Delta tables by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.catalog import Catalog, Column, Table
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

from pydelta.api.sql.describe import type_text
from pydelta.api.sql.relations import RelationResolver
from pydelta.commands.create import CreateMode, TableDefinition
from pydelta.engines.spark.catalog.databases import refuse_default_collation
from pydelta.engines.spark.catalog.define import define_table
from pydelta.engines.spark.catalog.lookup import DeltaEntry, look_up, parse_identifier, split_path_identifier
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import log_for_path, user_errors
from pydelta.engines.spark.scan.caches import drop_halves, refresh_caches
from pydelta.engines.spark.scan.travel import travel_from_options
from pydelta.engines.spark.session.patches import is_enabled, patch
from pydelta.errors import DeltaError, InvalidArgumentError, TableNotFoundError
from pydelta.errors.conditions import Condition
from pydelta.log import Snapshot
from pydelta.protocol.names import quoted
from pydelta.protocol.schema import StructType, parse_schema

__all__ = ["install", "read_table"]

_PROVIDER: Final = "delta"
_SESSION_CATALOG: Final = "spark_catalog"


def install() -> None:
    """Install the routes. ``patches.restore_all`` removes them."""
    patch(Catalog, "createTable", _create_table)
    patch(Catalog, "cacheTable", _cache_table)
    patch(Catalog, "uncacheTable", _uncache_table)
    patch(Catalog, "isCached", _is_cached)
    patch(Catalog, "recoverPartitions", _recover_partitions)
    patch(Catalog, "refreshTable", _refresh_table)
    patch(Catalog, "getTable", _get_table)
    patch(Catalog, "listTables", _list_tables)
    patch(Catalog, "tableExists", _table_exists)
    patch(Catalog, "listColumns", _list_columns)
    for name, answer in _BY_STATEMENT.items():
        if hasattr(Catalog, name):  # Older versions of Spark lack some of them.
            patch(Catalog, name, _by_statement(answer))
    patch(ClassicFrame, "unpersist", _unpersist)


def read_table(spark: SparkSession, name: str, options: dict[str, str] | None = None) -> DataFrame | None:
    """Answer ``spark.table(name)``; None when the name is not one of this engine's tables."""
    try:
        travel = travel_from_options(options or {})
    except InvalidArgumentError as error:  # Spark has its own error for these options.
        raise error.called(Condition.of("INVALID_TIME_TRAVEL_SPEC")) from None
    plan = RelationResolver(spark).table(parse_identifier(spark, name), travel)
    return None if plan is None else Jvm.of(spark).frame(plan)


def _create_table(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    def create_table(
        self: Catalog,
        tableName: str,
        path: str | None = None,
        source: str | None = None,
        schema: Any = None,
        description: str | None = None,
        **options: str,
    ) -> DataFrame:
        spark = self._sparkSession
        default = spark.conf.get("spark.sql.sources.default", "parquet") if is_enabled(spark) else None
        if (source or default or "").lower() != _PROVIDER or not is_enabled(spark):
            return original(self, tableName, path, source, schema, description, **options)
        with user_errors():
            columns = StructType(()) if schema is None else parse_schema(schema.json())
            parts = parse_identifier(spark, tableName)
            refuse_default_collation(spark, parts)
            define_table(
                spark,
                parts,
                TableDefinition(schema=columns, properties=options, description=description),
                mode=CreateMode.CREATE,
                location=path or options.pop("path", None),
            )
            frame = read_table(spark, tableName)
        assert frame is not None
        return frame

    return create_table


def _cache_table(original: Callable[..., None]) -> Callable[..., None]:
    def cache_table(self: Catalog, tableName: str, storageLevel: Any = None) -> None:
        with user_errors():
            frame = read_table(self._sparkSession, tableName) if is_enabled(self._sparkSession) else None
        if frame is None:
            return original(self, tableName, storageLevel)
        jvm = Jvm.of(self._sparkSession)
        level = jvm.storage_level(storageLevel)
        manager = jvm.session.sharedState().cacheManager()
        return manager.cacheQuery(frame._jdf, jvm.option.apply(tableName), level)

    return cache_table


def _uncache_table(original: Callable[..., None]) -> Callable[..., None]:
    def uncache_table(self: Catalog, tableName: str) -> None:
        with user_errors():
            frame = read_table(self._sparkSession, tableName) if is_enabled(self._sparkSession) else None
        if frame is None:
            return original(self, tableName)
        jvm = Jvm.of(self._sparkSession)
        jvm.session.sharedState().cacheManager().uncacheQuery(frame._jdf, True)
        return drop_halves(self._sparkSession)

    return uncache_table


def _unpersist(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    def unpersist(self: DataFrame, blocking: bool = False) -> DataFrame:
        done = original(self, blocking)
        if is_enabled(self.sparkSession):
            drop_halves(self.sparkSession)
        return done

    return unpersist


def _refresh_table(original: Callable[..., None]) -> Callable[..., None]:
    def refresh_table(self: Catalog, tableName: str) -> None:
        spark = self._sparkSession
        with user_errors():
            entry = look_up(spark, parse_identifier(spark, tableName)) if is_enabled(spark) else None
        if not isinstance(entry, DeltaEntry):
            return original(self, tableName)
        with user_errors():
            refresh_caches(spark, log_for_path(spark, entry.location).uri)
        return None

    return refresh_table


def _delta_entry(catalog: Catalog, parts: tuple[str, ...]) -> DeltaEntry | None:
    spark = catalog._sparkSession
    entry = look_up(spark, parts) if is_enabled(spark) else None
    return entry if isinstance(entry, DeltaEntry) and not entry.twin else None


def _snapshot(spark: SparkSession, entry: DeltaEntry) -> Snapshot:
    log = log_for_path(spark, entry.location)
    if entry.by_path and not log.table_exists():
        raise TableNotFoundError(
            f"{entry.location} is not a Delta table.",
            hint="Check the path, or create the table first.",
            condition=Condition.of("DELTA_MISSING_DELTA_TABLE", tableName=entry.location),
        )
    return log.update()


def _shown_table(spark: SparkSession, table: Table, entry: DeltaEntry) -> Table:
    """Add the log's description to Spark's entry of a table, which has none."""
    metadata = _snapshot(spark, entry).metadata
    description = (metadata.description or None) if metadata is not None else table.description
    return table._replace(description=description, tableType="MANAGED" if entry.managed else "EXTERNAL")


def _get_table(original: Callable[..., Table]) -> Callable[..., Table]:
    def get_table(self: Catalog, tableName: str) -> Table:
        spark = self._sparkSession
        with user_errors():
            parts = parse_identifier(spark, tableName)
            entry = _delta_entry(self, parts)
            if entry is not None and entry.by_path:
                named = Table(entry.location, _SESSION_CATALOG, [_PROVIDER], None, "MANAGED", isTemporary=False)
                return _shown_table(spark, named, entry)._replace(tableType="MANAGED")
            table = original(self, tableName)
            return table if entry is None else _shown_table(spark, table, entry)

    return get_table


def _table_exists(original: Callable[..., bool]) -> Callable[..., bool]:
    def table_exists(self: Catalog, tableName: str, dbName: str | None = None) -> bool:
        if dbName is None and is_enabled(self._sparkSession) and split_path_identifier(tableName) is not None:
            with user_errors():
                entry = _delta_entry(self, parse_identifier(self._sparkSession, tableName))
                if entry is not None and entry.by_path:
                    return log_for_path(self._sparkSession, entry.location).table_exists()
        return original(self, tableName, dbName)

    return table_exists


def _list_tables(original: Callable[..., list[Table]]) -> Callable[..., list[Table]]:
    def list_tables(self: Catalog, *arguments: Any, **named: Any) -> list[Table]:
        found = original(self, *arguments, **named)
        if not is_enabled(self._sparkSession):
            return found
        shown = []
        for table in found:
            entry = None
            if not table.isTemporary and table.tableType != "VIEW" and table.catalog and table.namespace:
                entry = _delta_entry(self, (table.catalog, *table.namespace, table.name))
            try:
                shown.append(table if entry is None else _shown_table(self._sparkSession, table, entry))
            except DeltaError:  # A table with a damaged log keeps Spark's entry.
                shown.append(table)
        return shown

    return list_tables


def _list_columns(original: Callable[..., list[Column]]) -> Callable[..., list[Column]]:
    def list_columns(self: Catalog, tableName: str, dbName: str | None = None) -> list[Column]:
        spark = self._sparkSession
        with user_errors():
            name = tableName if dbName is None else f"{dbName}.{quoted(*parse_identifier(spark, tableName))}"
            entry = _delta_entry(self, parse_identifier(spark, name))
            if entry is None:
                return original(self, tableName, dbName)
            if dbName is not None:
                warnings.warn("dbName is deprecated: name the table as database.table.", FutureWarning, stacklevel=2)
            snapshot = _snapshot(spark, entry)
            partitions, clustered = set(snapshot.partition_columns), set(snapshot.clustering_columns)
            return [
                Column(
                    name=field.name,
                    description=field.metadata.get("comment"),
                    dataType=type_text(Jvm.of(spark), field),
                    nullable=field.nullable,
                    isPartition=field.name in partitions,
                    isBucket=False,
                    isCluster=field.name in clustered,
                )
                for field in snapshot.schema.fields
            ]

    return list_columns


def _by_statement(answer: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Build a route that answers a Delta table by routed SQL, and anything else in Spark's own way."""

    def route(original: Callable[..., Any]) -> Callable[..., Any]:
        def ask(self: Catalog, tableName: str, *arguments: Any, **named: Any) -> Any:
            with user_errors():
                entry = _delta_entry(self, parse_identifier(self._sparkSession, tableName))
                if entry is None:
                    return original(self, tableName, *arguments, **named)
                name = quoted(*parse_identifier(self._sparkSession, tableName))
                return answer(self._sparkSession, name, *arguments, **named)

        return ask

    return route


def _truncate(spark: SparkSession, name: str) -> None:
    spark.sql(f"TRUNCATE TABLE {name}")


def _analyze(spark: SparkSession, name: str, noScan: bool = False) -> None:
    spark.sql(f"ANALYZE TABLE {name} COMPUTE STATISTICS" + (" NOSCAN" if noScan else ""))


def _create_text(spark: SparkSession, name: str, asSerde: bool = False) -> str:
    return str(spark.sql(f"SHOW CREATE TABLE {name}" + (" AS SERDE" if asSerde else "")).collect()[0][0])


def _properties(spark: SparkSession, name: str) -> dict[str, str]:
    return {str(key): str(value) for key, value in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}


def _drop(spark: SparkSession, name: str, ifExists: bool = False, purge: bool = False) -> None:
    spark.sql(f"DROP TABLE {'IF EXISTS ' if ifExists else ''}{name}" + (" PURGE" if purge else ""))


_BY_STATEMENT: Final[dict[str, Callable[..., Any]]] = {
    "truncateTable": _truncate,
    "analyzeTable": _analyze,
    "getCreateTableString": _create_text,
    "getTableProperties": _properties,
    "dropTable": _drop,
}


def _is_cached(original: Callable[..., bool]) -> Callable[..., bool]:
    def is_cached(self: Catalog, tableName: str) -> bool:
        with user_errors():
            frame = read_table(self._sparkSession, tableName) if is_enabled(self._sparkSession) else None
        if frame is None:
            return original(self, tableName)
        jvm = Jvm.of(self._sparkSession)
        return bool(jvm.session.sharedState().cacheManager().lookupCachedData(frame._jdf).isDefined())

    return is_cached


def _recover_partitions(original: Callable[..., None]) -> Callable[..., None]:
    def recover_partitions(self: Catalog, tableName: str) -> None:
        spark = self._sparkSession
        if not is_enabled(spark):
            return original(self, tableName)
        table = quoted(*parse_identifier(spark, tableName))
        spark.sql(f"ALTER TABLE {table} RECOVER PARTITIONS")  # The SQL route handles Delta tables and their twins.
        return None

    return recover_partitions
