"""Run the statements that only this engine knows, and return what they report as frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pydelta.api.sql.explain import explained, optimize_way
from pydelta.api.sql.grammar import statements as st
from pydelta.api.sql.nodes import Nodes
from pydelta.api.sql.vacuum import run_fsck, run_vacuum, vacuum_frame
from pydelta.commands.alter.command import Alter
from pydelta.commands.alter.features import DropFeature
from pydelta.commands.alter.requests import SyncIdentity
from pydelta.commands.clone import Clone
from pydelta.commands.convert import ParquetFolder, described
from pydelta.commands.generate import generation
from pydelta.commands.optimize.command import Optimize, PlanOptimize
from pydelta.commands.optimize.reorg import Purge
from pydelta.commands.restore import Restore
from pydelta.commands.run import Context, run
from pydelta.commands.vacuum.command import Vacuum
from pydelta.engines.spark.catalog.absent import absent_name
from pydelta.engines.spark.catalog.define import enter
from pydelta.engines.spark.catalog.entries import follow, session_identifier
from pydelta.engines.spark.catalog.lookup import DeltaEntry, ViewEntry, look_up, on_path
from pydelta.engines.spark.catalog.objects import check_new_name
from pydelta.engines.spark.engine import SparkEngine
from pydelta.engines.spark.frames import counts_frame, detail_frame, history_frame, optimize_frame, restore_frame
from pydelta.engines.spark.logs import log_for_path, settings_of
from pydelta.engines.spark.maintenance.clone import SparkCopier
from pydelta.engines.spark.maintenance.convert import SparkFooters, convert, partition_fields
from pydelta.engines.spark.maintenance.parquet_sources import ParquetSource, folder_partitions, parquet_source
from pydelta.engines.spark.running import run_in_session
from pydelta.errors import (
    InvalidArgumentError,
    TableAlreadyExistsError,
    TableNotFoundError,
    error_context,
)
from pydelta.errors.conditions import Condition
from pydelta.protocol.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pydelta.log import DeltaLog

__all__ = ["run_own"]


def run_own(nodes: Nodes, statement: st.Statement) -> DataFrame:
    """Run a statement.

    Raises:
        TableNotFoundError: The name does not refer to a Delta table.
        DeltaError: See the commands.
    """
    return _Run(nodes).run(statement)


def _request(statement: st.OptimizeStatement) -> Optimize:
    return Optimize(condition=statement.where, zorder_by=statement.zorder_by, full=statement.full)


class _Run:
    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._spark = nodes.spark

    def run(self, statement: st.Statement) -> DataFrame:
        frame: DataFrame = _RUNNERS[type(statement)](self, statement)
        return frame

    # --- statements --------------------------------------------------------------------------------------

    def _describe_history(self, statement: st.DescribeHistory) -> DataFrame:
        log = self._log(statement.table, "DESCRIBE HISTORY")
        return history_frame(self._spark, log, statement.limit)

    def _describe_detail(self, statement: st.DescribeDetail) -> DataFrame:
        return detail_frame(self._spark, self._log(statement.table, "DESCRIBE DETAIL"))

    def _optimize(self, statement: st.OptimizeStatement) -> DataFrame:
        log = self._log(statement.table, "OPTIMIZE")
        result = run_in_session(self._spark, _request(statement), log, alias=statement.table[-1])
        return optimize_frame(self._spark, log, result)

    def _explain_optimize(self, statement: st.ExplainOptimize) -> DataFrame:
        wanted = statement.explained
        log = self._log(wanted.table, "OPTIMIZE")
        with error_context(table=log.uri):
            engine = SparkEngine(self._spark, alias=wanted.table[-1])
            context = Context(log, engine, settings=settings_of(self._spark))
            planned = run(PlanOptimize(_request(wanted)), context)
            way = f"Files rewritten by: {optimize_way(engine, planned)}"
        return explained(self._nodes, "OPTIMIZE", ".".join(wanted.table), planned.snapshot, [way])

    def _reorg(self, statement: st.Reorg) -> DataFrame:
        log = self._log(statement.table, "REORG")
        result = run_in_session(self._spark, Purge(condition=statement.where), log, alias=statement.table[-1])
        return optimize_frame(self._spark, log, result.rewritten)

    def _generate(self, statement: st.GenerateStatement) -> DataFrame:
        log = self._log(statement.table, "GENERATE")
        zone = self._nodes.jvm.time_zone()
        run_in_session(self._spark, generation(statement.mode, where=statement.where, time_zone=zone), log)
        return self._nodes.jvm.nothing()

    def _restore(self, statement: st.RestoreStatement) -> DataFrame:
        log = self._log(statement.table, "RESTORE")
        with error_context(table=log.uri):
            command = Restore(version=statement.to.version, timestamp_ms=self._time(statement.to))
            result = run_in_session(self._spark, command, log)
        follow(self._spark, statement.table, log.update())
        return restore_frame(self._spark, result)

    def _drop_feature(self, statement: st.DropFeatureStatement) -> DataFrame:
        log = self._log(statement.table, "ALTER TABLE DROP FEATURE")
        command = DropFeature(name=statement.feature, truncate_history=statement.truncate_history)
        run_in_session(self._spark, command, log)
        follow(self._spark, statement.table, log.update())
        return self._nodes.jvm.nothing()

    def _sync_identity(self, statement: st.SyncIdentityStatement) -> DataFrame:
        log = self._log(statement.table, "ALTER TABLE")
        run_in_session(self._spark, Alter(SyncIdentity(column=statement.column)), log)
        return self._nodes.jvm.nothing()

    def _clone(self, statement: st.CloneStatement) -> DataFrame:
        named = look_up(self._spark, on_path(self._spark, statement.source) or statement.source)
        folder = None if isinstance(named, DeltaEntry) else parquet_source(self._spark, statement.source)
        source = self._log(statement.source, "CLONE") if folder is None else log_for_path(self._spark, folder.location)
        target = look_up(self._spark, statement.table)
        full_name = quoted(*statement.table)
        entry = target if isinstance(target, DeltaEntry) else None
        by_path = entry is not None and entry.by_path
        taken = isinstance(target, ViewEntry) or (not by_path and self._spark.catalog.tableExists(full_name))
        if by_path:
            assert entry is not None
            taken = log_for_path(self._spark, entry.location).table_exists()
        if taken and statement.if_not_exists:
            return self._nodes.jvm.nothing()
        if taken and (entry is None or not statement.replace):
            raise TableAlreadyExistsError(
                f"{'.'.join(statement.table)} already exists.",
                hint="Write CREATE OR REPLACE TABLE, or choose another name.",
                condition=Condition.of("DELTA_TABLE_ALREADY_EXISTS", tableName=".".join(statement.table)),
            )
        if entry is not None:
            location = entry.location
        else:
            check_new_name(self._nodes.jvm, session_identifier(self._nodes.jvm, statement.table))
            location = statement.location or self._nodes.jvm.default_location(full_name)
        log = log_for_path(self._spark, self._nodes.jvm.qualify(location))
        at = statement.at or st.Travel()
        with error_context(table=source.uri):
            command = Clone(
                source=source,
                shallow=statement.shallow,
                replace=statement.replace,
                version=at.version,
                timestamp_ms=self._time(at),
                properties=statement.properties,
                folder=None if folder is None else self._described(source, folder),
                copier=SparkCopier(self._spark),
            )
        result = run_in_session(self._spark, command, log)
        if not by_path:
            managed = entry.managed if entry is not None else statement.location is None
            enter(self._spark, statement.table, log.update(), managed=managed, replace=True)
        names = (
            "source_table_size", "source_num_of_files", "num_removed_files", "num_copied_files", "removed_files_size",
            "copied_files_size",
        )  # fmt: skip
        return counts_frame(self._spark, {name: getattr(result, name) for name in names})

    def _convert(self, statement: st.ConvertToDelta) -> DataFrame:
        convert(
            self._spark,
            statement.table,
            partition_schema=partition_fields(statement.partition_schema),
            collect_statistics=statement.statistics,
        )
        return self._nodes.jvm.nothing()

    def _vacuum(self, statement: st.VacuumStatement) -> DataFrame:
        log = self._log(statement.table, "VACUUM")
        listed = None
        if statement.inventory is not None or statement.inventory_query is not None:
            if statement.mode == "LITE":
                raise InvalidArgumentError(
                    "VACUUM LITE finds the files to delete in the log, USING INVENTORY in a list.",
                    hint="Leave out LITE, or the inventory.",
                )
            text = statement.inventory_query or f"SELECT * FROM {quoted(*(statement.inventory or ()))}"
            listed = self._nodes.query(self._nodes.jvm.parse(text))
        with error_context(table=log.uri):
            command = Vacuum(
                retention_hours=statement.retain_hours,
                dry_run=statement.dry_run,
                mode="lite" if statement.mode == "LITE" else "full",
                where=statement.where,
                time_zone=self._nodes.jvm.time_zone(),
            )
            result = run_vacuum(self._spark, log, command, inventory=listed)
        return vacuum_frame(self._spark, result)

    def _fsck(self, statement: st.FsckStatement) -> DataFrame:
        log = self._log(statement.table, "FSCK")
        return run_fsck(self._spark, log, repair=not statement.dry_run)

    def _described(self, source: DeltaLog, folder: ParquetSource) -> ParquetFolder:
        partitions = folder.partitions
        return described(
            source,
            SparkFooters(self._spark, folder.columns),
            partition_schema=folder_partitions(self._spark, source.uri) if partitions is None else partitions,
            settings=settings_of(self._spark),
            time_zone=self._nodes.jvm.time_zone(),
        )

    # --- parts -------------------------------------------------------------------------------------------

    def _log(self, table: st.TableName, operation: str) -> DeltaLog:
        by_path, on = isinstance(table, st.QuotedPath), on_path(self._spark, table)
        entry: DeltaEntry | ViewEntry | None = None if on is None else look_up(self._spark, on)
        if by_path:
            entry = DeltaEntry(location=table[1], qualifier=table, by_path=True)
        if not isinstance(entry, DeltaEntry):
            what = "is a view" if isinstance(entry, ViewEntry) else "is not a Delta table in the session's catalog"
            raise TableNotFoundError(
                f"{'.'.join(table)} {what}.",
                hint="Check the database (spark.catalog.currentDatabase()) and the name, or use the path: "
                "delta.`/path`.",
                condition=absent_name(self._spark, table, operation),
            )
        log = log_for_path(self._spark, self._nodes.jvm.qualify(entry.location))
        if not log.table_exists():
            missing = Condition.of("DELTA_MISSING_DELTA_TABLE", tableName=log.uri)
            if operation == "DESCRIBE HISTORY" or (by_path and operation in ("OPTIMIZE", "VACUUM")):
                missing = Condition.of("DELTA_TABLE_ONLY_OPERATION", tableName=log.uri, operation=operation)
            elif operation == "REORG":
                missing = Condition.of("DELTA_ONLY_OPERATION", operation=operation)
            raise TableNotFoundError.at(log.uri, condition=missing)
        return log

    def _time(self, travel: st.Travel) -> int | None:
        if travel.timestamp_sql is None:
            return None
        value: Any = self._nodes.evaluate(f"unix_millis(try_cast({travel.timestamp_sql} AS TIMESTAMP))")
        if value is None:
            raise InvalidArgumentError(
                f"{travel.timestamp_sql} is not a timestamp.",
                hint="Write it as '2024-05-01 12:00:00' or '2024-05-01'.",
                condition=Condition.of("INVALID_TIME_TRAVEL_TIMESTAMP_EXPR.INPUT", expr=travel.timestamp_sql),
            )
        return int(value)


_RUNNERS: Final[Mapping[type, Callable[[_Run, Any], DataFrame]]] = {
    st.DescribeHistory: _Run._describe_history,
    st.DescribeDetail: _Run._describe_detail,
    st.OptimizeStatement: _Run._optimize,
    st.ExplainOptimize: _Run._explain_optimize,
    st.Reorg: _Run._reorg,
    st.GenerateStatement: _Run._generate,
    st.RestoreStatement: _Run._restore,
    st.DropFeatureStatement: _Run._drop_feature,
    st.SyncIdentityStatement: _Run._sync_identity,
    st.CloneStatement: _Run._clone,
    st.ConvertToDelta: _Run._convert,
    st.VacuumStatement: _Run._vacuum,
    st.FsckStatement: _Run._fsck,
}
