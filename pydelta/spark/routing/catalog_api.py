"""Route ``spark.catalog``: Delta tables are made and cached by name here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.catalog import Catalog
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

from pydelta.commands.create import CreateMode, TableDefinition
from pydelta.conditions import Condition
from pydelta.errors import InvalidArgumentError
from pydelta.protocol.names import quoted
from pydelta.protocol.schema import StructType, parse_schema
from pydelta.spark.catalog.define import define_table
from pydelta.spark.catalog.lookup import DeltaEntry, look_up, parse_identifier
from pydelta.spark.jvm import Jvm
from pydelta.spark.logs import log_for_path, user_errors
from pydelta.spark.scan.caches import drop_halves, refresh_caches
from pydelta.spark.scan.travel import travel_from_options
from pydelta.spark.session.patches import is_enabled, patch
from pydelta.spark.sql.relations import RelationResolver

__all__ = ["install", "read_table"]

_PROVIDER: Final = "delta"


def install() -> None:
    """Put the routes in place. ``patches.restore_all`` takes them out again."""
    patch(Catalog, "createTable", _create_table)
    patch(Catalog, "cacheTable", _cache_table)
    patch(Catalog, "uncacheTable", _uncache_table)
    patch(Catalog, "isCached", _is_cached)
    patch(Catalog, "recoverPartitions", _recover_partitions)
    patch(Catalog, "refreshTable", _refresh_table)
    patch(ClassicFrame, "unpersist", _unpersist)


def read_table(spark: SparkSession, name: str, options: dict[str, str] | None = None) -> DataFrame | None:
    """Answer ``spark.table(name)``; None when the name stands for nothing of this engine's."""
    try:
        travel = travel_from_options(options or {})
    except InvalidArgumentError as error:  # Spark itself reads these options of a table's name
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
            define_table(
                spark,
                parse_identifier(spark, tableName),
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
        spark.sql(f"ALTER TABLE {table} RECOVER PARTITIONS")  # answered there for Delta tables and their twins
        return None

    return recover_partitions
