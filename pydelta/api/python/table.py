"""Provide ``DeltaTable``: the public API, with the names and signatures that Delta users know.

::

    DeltaTable.forPath(spark, path) --> toDF()                 a DataFrame of the newest version
                                    --> delete(condition)      at most one commit
                                    --> optimize()             small files are merged, rows sorted
                                    --> vacuum(hours)          files that no retained version needs are deleted
                                    --> erase(keys)            rows of keys leave files, history and log
                                    --> history() / detail()   read only the log
                                    --> restoreToVersion(n)    one commit
    DeltaTable.create(spark).location(path).addColumn(…).execute()
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import NoneType
from typing import TYPE_CHECKING, Literal, cast

from pyspark.sql.types import StructType

from pydelta.api.python.arguments import (
    CLONE,
    ERASE,
    VACUUM,
    check_condition,
    check_session,
    check_source,
    check_store_options,
    checked,
    given_values,
    needed,
    of_type,
)
from pydelta.api.python.builder import CreatesTables, DeltaTableBuilder, IdentityGenerator
from pydelta.api.python.merge import DeltaMergeBuilder, merging
from pydelta.api.python.optimize import DeltaOptimizeBuilder, optimizing
from pydelta.api.python.own_columns import OwnColumns
from pydelta.api.python.remote import Remote, counts, named, nothing, rows, sent
from pydelta.api.python.remote_calls import Chain, is_remote
from pydelta.api.python.wire import Call
from pydelta.api.sql.targets import clone_target, log_for_name, register_table
from pydelta.api.sql.vacuum import run_fsck, run_vacuum, vacuum_frame
from pydelta.commands.alter.features import AddFeature, DropFeature, UpgradeProtocol
from pydelta.commands.alter.track_rows import EnableRowTracking
from pydelta.commands.change.delete import Delete, DeleteResult
from pydelta.commands.change.update import Update, UpdateResult
from pydelta.commands.clone import Clone
from pydelta.commands.erase.command import Erase, ErasureResult
from pydelta.commands.generate import generation
from pydelta.commands.optimize.reorg import Purge, PurgeResult
from pydelta.commands.restore import Restore, RestoreResult
from pydelta.commands.vacuum.command import Vacuum
from pydelta.engines.spark.catalog.lookup import parse_identifier
from pydelta.engines.spark.change.merge import TARGET_ALIAS
from pydelta.engines.spark.frames import detail_frame, history_frame, restore_frame, scan_latest, scan_tracked
from pydelta.engines.spark.logs import log_for_path, timestamp_ms, user_errors
from pydelta.engines.spark.maintenance.clone import SparkCopier
from pydelta.engines.spark.maintenance.convert import convert, partition_fields
from pydelta.engines.spark.running import run_in_session
from pydelta.errors import TableNotFoundError
from pydelta.errors.conditions import Condition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from pydelta.commands.vacuum.inventory import Inventory
    from pydelta.log import CheckpointResult, CleanupResult, DeltaLog

__all__ = ["DeltaMergeBuilder", "DeltaOptimizeBuilder", "DeltaTable", "DeltaTableBuilder", "IdentityGenerator"]


class DeltaTable(CreatesTables):
    """A Delta table in a Spark session. Made by ``forPath``, ``forName`` or a builder, not directly."""

    def __init__(
        self, spark: SparkSession, log: DeltaLog, *, alias: str | None = None, columns: OwnColumns | None = None
    ) -> None:
        self._spark = spark
        self._log = log
        self._alias = alias
        self._columns = columns or OwnColumns(spark)

    @classmethod
    @checked(sparkSession=check_session, path=of_type(str), hadoopConf=check_store_options)
    def forPath(cls, sparkSession: SparkSession, path: str, hadoopConf: Mapping[str, str] | None = None) -> DeltaTable:
        """Open the table at a location.

        Args:
            sparkSession: A classic session, or that of a Spark Connect client.
            path: A URI or a local path.
            hadoopConf: ``fs.*`` settings for this table, which override the session's.

        Raises:
            TableNotFoundError: There is no Delta table. It is also an ``AnalysisException``.
        """
        if is_remote(sparkSession):
            call = Call("forPath", (path, hadoopConf))
            return cast("DeltaTable", RemoteDeltaTable(Chain(sparkSession).opened(call), path=path))
        with user_errors():
            log = log_for_path(sparkSession, path, hadoopConf)
            if not log.table_exists():
                raise TableNotFoundError(
                    f"{path} is not a Delta table: it has no _delta_log with a commit in it.",
                    hint="Check the location, or create the table with DeltaTable.create or df.write.format('delta').",
                    condition=Condition.of("DELTA_MISSING_DELTA_TABLE", tableName=path),
                )
            return cls(sparkSession, log)

    @classmethod
    @checked(sparkSession=check_session, tableOrViewName=of_type(str))
    def forName(cls, sparkSession: SparkSession, tableOrViewName: str) -> DeltaTable:
        """Open a table by its name in the session's catalog (``table`` or ``database.table``).

        Raises:
            TableNotFoundError: There is no such table, or it is not a Delta table.
        """
        if is_remote(sparkSession):
            chain = Chain(sparkSession).opened(Call("forName", (tableOrViewName,)))
            return cast("DeltaTable", RemoteDeltaTable(chain, name=tableOrViewName))
        with user_errors():
            return cls(sparkSession, log_for_name(sparkSession, tableOrViewName))

    @classmethod
    @checked(sparkSession=check_session, identifier=of_type(str))
    def isDeltaTable(cls, sparkSession: SparkSession, identifier: str) -> bool:
        """Return whether there is a Delta table at the path ``identifier``."""
        if is_remote(sparkSession):
            return bool(Chain(sparkSession).then(Call("isDeltaTable", (identifier,))).rows().collect()[0][0])
        with user_errors():
            return log_for_path(sparkSession, identifier).table_exists()

    @classmethod
    @checked(sparkSession=check_session, identifier=of_type(str), partitionSchema=of_type(str, StructType, NoneType))
    def convertToDelta(
        cls, sparkSession: SparkSession, identifier: str, partitionSchema: str | StructType | None = None
    ) -> DeltaTable:
        """Convert the Parquet files of a folder to a Delta table in place; a Delta table stays unchanged.

        Args:
            sparkSession: A classic session.
            identifier: ``parquet.`/path` ``, or the name of a Parquet table in the session's catalog.
            partitionSchema: Names and types of the partition columns in the folders' names: DDL text
                (``"year int, month int"``) or a Spark type. None for a folder without partitions.

        Raises:
            TableNotFoundError: There is no file to convert.
            InvalidArgumentError: The identifier is not a Parquet table, or the folders have other partition columns.
            SchemaError: The files have incompatible schemas, or a folder's name has a value of another type.
            StorageError: A file is not a Parquet file.
        """
        if is_remote(sparkSession):
            Chain(sparkSession).opened(Call("convertToDelta", (identifier, partitionSchema)))
            path = identifier.partition(".")[2].strip("`") if identifier.lower().startswith("parquet.") else None
            return cls.forPath(sparkSession, path) if path else cls.forName(sparkSession, identifier)
        with user_errors():
            parts = parse_identifier(sparkSession, identifier)
            log = convert(sparkSession, parts, partition_schema=partition_fields(partitionSchema))
            return cls(sparkSession, log)

    def toDF(self) -> DataFrame:
        """Return the table as a DataFrame, which reads the newest version each time it is evaluated."""
        with user_errors():
            frame = self._columns.gave(scan_latest(self._spark, self._log))
            return frame.alias(self._alias) if self._alias else frame

    def toDFWithRowTracking(self) -> DataFrame:
        """Return the DataFrame of ``toDF`` with ``_row_id`` and ``_row_commit_version`` (bigint) as additional columns.

        A row keeps its id through changes and rewrites; the version is the last one that changed the row.

        Raises:
            UnsupportedFeatureError: The table does not track rows.
        """
        with user_errors(self._log):
            frame = self._columns.gave(scan_tracked(self._spark, self._log))
            return frame.alias(self._alias) if self._alias else frame

    def enableRowTracking(self) -> None:
        """Give every row a permanent id, in one commit; do nothing if the table already tracks rows.

        Raises:
            DeltaConcurrentModificationException: Another transaction changed the table at the same time.

        Protocol: "Row Tracking".
        """
        with user_errors(self._log):
            run_in_session(self._spark, EnableRowTracking(), self._log)

    @checked(aliasName=of_type(str))
    def alias(self, aliasName: str) -> DeltaTable:
        """Return the table with an alias that qualifies its columns in conditions."""
        return DeltaTable(self._spark, self._log, alias=aliasName, columns=self._columns)

    @checked(condition=check_condition)
    def delete(self, condition: str | Column | None = None) -> DeleteResult:
        """Delete the rows for which a condition is true; all rows without one.

        Args:
            condition: SQL text or a Column. Rows for which it is null stay.

        Returns:
            Counts and times. ``version`` is None if no row matched, so that nothing was committed. ``skipped`` is true
            if the table already has the session's ``txnVersion``.

        Raises:
            UnsafeOperationError: The table is append-only.
            ParseError, BindError, InvalidArgumentError: The condition is invalid.
            DeltaConcurrentModificationException: Another transaction won.

        Protocol: "Add File and Remove File".
        """
        with user_errors(self._log):
            command = Delete(condition=self._columns.by_name(condition), always=("true",))
            return run_in_session(self._spark, command, self._log, alias=self._alias)

    @checked(set=given_values(), condition=check_condition)
    def update(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002
    ) -> UpdateResult:
        """Set columns of the rows for which a condition is true; of all rows without one.

        Args:
            condition: SQL text or a Column. Rows for which it is null stay unchanged.
            set: From ``column`` or ``struct.field`` to SQL text or a Column, evaluated on the old row.

        Returns:
            Counts and times. ``version`` is None if no row matched, so that nothing was committed. ``skipped`` is true
            if the table already has the session's ``txnVersion``.

        Raises:
            UnsafeOperationError: The table is append-only.
            ParseError, BindError, InvalidArgumentError, SchemaMismatchError: The condition or a value is invalid.
            ConstraintViolatedError: A new row violates a constraint of the table.
            DeltaConcurrentModificationException: Another transaction won.

        Protocol: "Add File and Remove File".
        """
        with user_errors(self._log):
            assignments = tuple(self._columns.values_by_name(set or {}).items())
            command = Update(assignments=assignments, condition=self._columns.by_name(condition))
            return run_in_session(self._spark, command, self._log, alias=self._alias)

    @checked(check_source)
    def merge(self, source: DataFrame, condition: str | Column) -> DeltaMergeBuilder:
        """Start a merge of rows into this table: add clauses to the returned builder, then ``execute`` it.

        Args:
            source: The rows. Give them an alias (``source.alias("s")``), and this table, too (``table.alias("t")``).
            condition: Matches rows of the table with rows of the source, such as ``"t.id = s.id"``.
        """
        with user_errors(self._log):
            condition = self._columns.by_name(condition, alias=self._alias or TARGET_ALIAS, source=source)
        return DeltaMergeBuilder(
            spark=self._spark, log=self._log, alias=self._alias, source=source, condition=condition, own=self._columns
        )

    @checked(mode=of_type(str))
    def generate(self, mode: str) -> None:
        """Publish what other engines read the newest version by, as far as it changed.

        Args:
            mode: ``symlink_format_manifest``, or ``iceberg`` for an Iceberg entry.

        Raises:
            UnsupportedFeatureError: Symlink manifests: files have deletion vectors, or columns are mapped to other
                names. Iceberg: it cannot hold a column.
            DeltaEnvironmentError: PyIceberg is not installed.
        """
        with user_errors(self._log):
            run_in_session(self._spark, generation(mode), self._log)

    def optimize(self) -> DeltaOptimizeBuilder:
        """Start an OPTIMIZE, which merges small files, or sorts rows so that queries can skip files.

        Returns:
            A builder, which does nothing before ``executeCompaction`` or ``executeZOrderBy``.
        """
        return DeltaOptimizeBuilder(self._spark, self._log, alias=self._alias)

    @checked(condition=check_condition)
    def purge(self, condition: str | Column | None = None) -> PurgeResult:
        """Rewrite files with deletion vectors without their hidden rows, as REORG … APPLY (PURGE) does.

        A later VACUUM deletes the old files, and with them the hidden rows.

        Args:
            condition: A condition over partition columns; None for the whole table.

        Returns:
            Counts; ``version`` is None if no file had a deletion vector, so that nothing was committed.

        Raises:
            InvalidArgumentError, ParseError, BindError: The condition is invalid.
            DeltaConcurrentModificationException: Another writer changed a file; run it again.
        """
        with user_errors(self._log):
            command = Purge(condition=self._columns.by_name(condition))
            return run_in_session(self._spark, command, self._log, alias=self._alias)

    @checked(**VACUUM)
    def vacuum(
        self,
        retentionHours: float | None = None,
        *,
        dryRun: bool = False,
        mode: Literal["full", "lite"] = "full",
        inventory: DataFrame | Inventory | str | None = None,
        where: str | None = None,
    ) -> DataFrame:
        """Delete the files that no retained version and no published manifest needs.

        Args:
            retentionHours: How far back versions stay readable; None for ``delta.deletedFileRetentionDuration``.
            dryRun: Delete nothing, and return the ``path`` of each file that would be deleted.
            mode: ``full`` lists the table, ``lite`` uses only the log.
            inventory: Replaces the listing: ``path``, ``length``, ``isDir``, ``modificationTime``; or a table's name.
            where: SQL over partition columns, to vacuum only these partitions.

        Raises:
            UnsafeOperationError: The retention is below the table's, or the log is too short for LITE.
            SchemaMismatchError, InvalidArgumentError: The inventory is invalid, or of another location.
            StorageError: Some files could not be deleted; the error has the number of those that were.
        """
        with user_errors(self._log):
            command = Vacuum(retention_hours=retentionHours, dry_run=dryRun, mode=mode, where=where)
            result = run_vacuum(self._spark, self._log, command, inventory=inventory)
            return vacuum_frame(self._spark, result) if dryRun else vacuum_frame(self._spark, result).limit(0)

    @checked(**ERASE)
    def erase(
        self,
        keys: Mapping[str, Sequence[str]],
        history: Literal["drop"] | None = None,
        *,
        objectVersions: Literal["keep", "drop", "absent"] = "keep",
        dryRun: bool = False,
    ) -> ErasureResult:
        """Delete the rows of keys for good: from files, history and log; then search what is left.

        Args:
            keys: Keys as text, by the name of the column that holds them.
            history: ``drop`` gives up all earlier versions. Without it an erasure that has to is refused.
            objectVersions: ``drop`` deletes the older versions of the table's objects in a bucket that keeps them;
                ``absent`` states that the store keeps none.
            dryRun: Only find what would be touched; change nothing.

        Raises:
            UnsafeOperationError: Consent is missing, or a shallow clone or a manifest reads files that would go.
            BindError, InvalidArgumentError, UnsupportedFeatureError: The keys do not fit the table.
        """
        with user_errors(self._log):
            command = Erase(keys=keys, history=history, object_versions=objectVersions, dry_run=dryRun)
            return run_in_session(self._spark, command, self._log).result

    @checked(limit=of_type(int, NoneType))
    def history(self, limit: int | None = None) -> DataFrame:
        """Return the commits, newest first: version, timestamp, operation, parameters, metrics and more.

        Args:
            limit: The most commits to return; None for all that the log retains.
        """
        with user_errors(self._log):
            return history_frame(self._spark, self._log, limit)

    def detail(self) -> DataFrame:
        """Return one row about the newest version: id, location, files, bytes, properties, protocol and features."""
        with user_errors(self._log):
            return detail_frame(self._spark, self._log)

    @checked(repair=of_type(bool))
    def fsck(self, repair: bool = False) -> DataFrame:
        """Find live files and deletion vectors that no longer exist, as FSCK REPAIR TABLE does.

        Args:
            repair: Remove the entries of missing files from the log, and replace damaged checkpoints.

        Returns:
            One row per file: ``dataFilePath``, ``dataFileMissing``, ``deletionVectorFileMissing``.

        Raises:
            LogCorruptedError: The newest version cannot be read.
            UnsafeOperationError: With ``repair``: the table is append-only, or a folder cannot be reached.
        """
        with user_errors(self._log):
            return run_fsck(self._spark, self._log, repair=repair)

    def checkpoint(self) -> CheckpointResult:
        """Write a checkpoint of the newest version, and verify it by reading it back."""
        with user_errors(self._log):
            return self._log.checkpoint()

    def cleanup(self) -> CleanupResult:
        """Delete log files older than ``delta.logRetentionDuration`` that no retained version needs."""
        with user_errors(self._log):
            return self._log.cleanup()

    @checked(version=needed(int))
    def restoreToVersion(self, version: int) -> DataFrame:
        """Make an earlier version the current state, as a new version. Returns one row of counts.

        Raises:
            VersionNotFoundError: The log does not reach back to it.
            UnsafeOperationError: Files of that version no longer exist; the error names them. Nothing is changed.
        """
        return self._restore(version=version)

    @checked(timestamp=needed(str, datetime))
    def restoreToTimestamp(self, timestamp: str | datetime) -> DataFrame:
        """Restore the newest version at or before a time (text in the session's zone); see ``restoreToVersion``."""
        with user_errors(self._log):
            epoch_ms = timestamp_ms(self._spark, timestamp)
        return self._restore(timestamp_ms=epoch_ms)

    @checked(**CLONE)
    def clone(
        self,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Create an independent table from the newest version.

        Args:
            target: An absolute path, a URI, or a name for the session's catalog.
            isShallow: Name this table's files instead of copying them.
            replace: Replace an existing table.
            properties: Table properties that override this table's.

        Returns:
            The new table.

        Raises:
            TableAlreadyExistsError: There is a table, or other files, and ``replace`` is not set.
            UnsafeOperationError: The table to replace is append-only.
            StorageError: A file could not be copied; no version was made.
        """
        return self._clone(target, self._cloning(isShallow, replace, properties))

    @checked(version=needed(int), **CLONE)
    def cloneAtVersion(
        self,
        version: int,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Clone an earlier version; see ``clone``.

        Raises:
            VersionNotFoundError: The log does not reach back to it.
        """
        command = dataclasses.replace(self._cloning(isShallow, replace, properties), version=version)
        return self._clone(target, command)

    @checked(**CLONE, timestamp=needed(str, datetime))
    def cloneAtTimestamp(
        self,
        timestamp: str | datetime,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Clone the newest version at or before a time (text in the session's zone); see ``clone``."""
        with user_errors(self._log):
            epoch_ms = timestamp_ms(self._spark, timestamp)
        command = dataclasses.replace(self._cloning(isShallow, replace, properties), timestamp_ms=epoch_ms)
        return self._clone(target, command)

    def _cloning(self, shallow: bool, replace: bool, properties: Mapping[str, str] | None) -> Clone:
        return Clone(source=self._log, shallow=shallow, replace=replace, properties=properties or {})

    def _clone(self, target: str, command: Clone) -> DeltaTable:
        with user_errors():
            name, location = clone_target(self._spark, target)
            log = log_for_path(self._spark, location)
            run_in_session(self._spark, dataclasses.replace(command, copier=SparkCopier(self._spark)), log)
            if name is not None:
                register_table(self._spark, name, log)
            return DeltaTable(self._spark, log)

    @checked(readerVersion=needed(int), writerVersion=needed(int))
    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Raise the table's protocol to at least these versions. It never falls.

        Args:
            readerVersion: 1 to 3.
            writerVersion: 1 to 7.

        Raises:
            InvalidArgumentError: A version does not exist.
            UnsupportedFeatureError: The versions imply features that this engine cannot write.

        Protocol: "Protocol Evolution".
        """
        with user_errors(self._log):
            run_in_session(self._spark, UpgradeProtocol(readerVersion, writerVersion), self._log)

    @checked(featureName=needed(str))
    def addFeatureSupport(self, featureName: str) -> None:
        """Add a table feature to the protocol. This alone does not enable the feature.

        Raises:
            UnsupportedFeatureError: There is no such feature, or this engine cannot write it.

        Protocol: "Table Features".
        """
        with user_errors(self._log):
            run_in_session(self._spark, AddFeature(featureName), self._log)

    @checked(featureName=needed(str), truncateHistory=needed(bool, NoneType))
    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:
        """Remove a feature from the table's protocol.

        Older versions may still use a feature that readers must support. Without ``truncateHistory``, their log files
        are protected from then on (feature ``checkpointProtection``). With it, the log is first truncated to
        ``delta.dropFeatureTruncateHistory.retentionDuration``; an error says if that is not enough yet.

        Raises:
            UnsupportedFeatureError: The table does not have the feature, or it cannot be dropped.
            UnsafeOperationError: The table still uses it, for example in files with a deletion vector.

        Protocol: "Table Features", "Checkpoint Protection".
        """
        with user_errors(self._log):
            command = DropFeature(name=featureName, truncate_history=bool(truncateHistory))
            run_in_session(self._spark, command, self._log)

    def _restore(self, *, version: int | None = None, timestamp_ms: int | None = None) -> DataFrame:
        with user_errors(self._log):
            command = Restore(version=version, timestamp_ms=timestamp_ms)
            result: RestoreResult = run_in_session(self._spark, command, self._log)
            return restore_frame(self._spark, result)


def _cloned(table: RemoteDeltaTable, call: Call) -> DeltaTable:
    nothing(table, call)
    target = call.arguments[0 if call.method == "clone" else 1]
    open_table = DeltaTable.forPath if "/" in target or ":" in target else DeltaTable.forName
    return open_table(table.chain.spark, target)


@dataclasses.dataclass(frozen=True)
class RemoteDeltaTable(Remote):
    """A Delta table on a server. Made by ``DeltaTable``, whose methods run there, each as one command.

    Args:
        name: Its name in the server's catalog; None if it was opened by its location.
        path: Its location; None if it was opened by its name.
        label: Alias of the table in conditions.
    """

    name: str | None = None
    path: str | None = None
    label: str | None = None

    forPath = DeltaTable.forPath
    forName = DeltaTable.forName
    isDeltaTable = DeltaTable.isDeltaTable
    convertToDelta = DeltaTable.convertToDelta
    alias = sent(DeltaTable.alias, named)
    delete = sent(DeltaTable.delete, counts)
    update = sent(DeltaTable.update, counts)
    merge = sent(DeltaTable.merge, merging)
    optimize = sent(DeltaTable.optimize, optimizing)
    purge = sent(DeltaTable.purge, counts)
    vacuum = sent(DeltaTable.vacuum, rows)
    erase = sent(DeltaTable.erase, counts)
    history = sent(DeltaTable.history, rows)
    detail = sent(DeltaTable.detail, rows)
    generate = sent(DeltaTable.generate, nothing)
    fsck = sent(DeltaTable.fsck, rows)
    checkpoint = sent(DeltaTable.checkpoint, counts)
    cleanup = sent(DeltaTable.cleanup, counts)
    restoreToVersion = sent(DeltaTable.restoreToVersion, rows)
    restoreToTimestamp = sent(DeltaTable.restoreToTimestamp, rows)
    clone = sent(DeltaTable.clone, _cloned)
    cloneAtVersion = sent(DeltaTable.cloneAtVersion, _cloned)
    cloneAtTimestamp = sent(DeltaTable.cloneAtTimestamp, _cloned)
    upgradeTableProtocol = sent(DeltaTable.upgradeTableProtocol, nothing)
    addFeatureSupport = sent(DeltaTable.addFeatureSupport, nothing)
    dropFeatureSupport = sent(DeltaTable.dropFeatureSupport, nothing)
    enableRowTracking = sent(DeltaTable.enableRowTracking, nothing)

    def toDF(self) -> DataFrame:
        """Return the table as a DataFrame of the client's session."""
        spark = self.chain.spark
        frame: DataFrame = spark.table(self.name) if self.name else spark.read.format("delta").load(self.path)
        frame = frame.alias(self.label) if self.label else frame
        self.chain.given.note(frame)
        return frame
