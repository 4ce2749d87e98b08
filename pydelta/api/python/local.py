"""Open a table without a JVM: ``pydelta.open(uri)`` reads, changes and maintains it in this process.

::

    table = pydelta.open("s3://bucket/table", options={…})
    table.scan(where="day >= '2024-01-01'", columns=["id", "day"])     an Arrow table; pl.from_arrow gives Polars
    table.append(rows)                                                 Arrow or Polars, in one version
    table.delete("id = 5")                                             like DELETE in a session, in one version
    table.update("id = 5", {"state": "'paid'"})                        values are constants or columns
    table.merge(rows, on="id")                                         update matching rows, insert new ones
    table.optimize()   table.purge()   table.vacuum()                  like the statements of a session
    table.index_records(["id"])                                        so that a merge by id opens few files
    table.erase({"email": ["a@b.c"]}, history="drop")                  rows of keys, from everything that holds them
    table.restore(3)   table.clone(uri)   table.history()
    pydelta.LocalTable.create(uri, rows)                               a new table

Commits, conflicts, checks and hooks are those of every other command. If only Spark can do a step, it is refused.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import polars as pl
import pyarrow as pa

from pydelta.api.console.output import moment
from pydelta.api.python.local_arguments import (
    columns_of,
    flag_of,
    hours_of,
    keys_of,
    location_of,
    names_of,
    object_versions_of,
    optional_text,
    options_of,
    policy_of,
    properties_of,
    values_of,
    version_of,
    whole_of,
)
from pydelta.commands.change.delete import Delete, DeleteResult
from pydelta.commands.change.merge import Merge, MergeResult, Merging
from pydelta.commands.change.update import Update, UpdateResult
from pydelta.commands.clone import Clone
from pydelta.commands.create import Create, CreateMode, TableDefinition
from pydelta.commands.describe import describe_detail, describe_history
from pydelta.commands.erase.command import Erase, Erasure
from pydelta.commands.fsck import Fsck, FsckReport
from pydelta.commands.generate import SYMLINK_MANIFESTS, generation
from pydelta.commands.optimize.command import Optimize, OptimizeResult
from pydelta.commands.optimize.reorg import Purge, PurgeResult
from pydelta.commands.records.command import DropRecordIndex, IndexRecords, RecordIndexResult
from pydelta.commands.restore import Restore, RestoreResult
from pydelta.commands.run import Context, existing_table, run
from pydelta.commands.vacuum.command import Vacuum, VacuumResult
from pydelta.commands.write.command import RowSource, Write, WriteResult
from pydelta.commands.write.options import WriteMode, WriteOptions
from pydelta.deprecation import warn_deprecated
from pydelta.engines.arrow.columns import only_spark
from pydelta.engines.arrow.engine import ArrowEngine, column_of
from pydelta.engines.arrow.expressions import NotHere
from pydelta.engines.arrow.merge.local_merge import clauses_of
from pydelta.engines.arrow.merge.source_rows import SourceRows
from pydelta.engines.arrow.merge.spill import GivenRows
from pydelta.engines.arrow.scans import Scan, logical_schema
from pydelta.engines.arrow.sources import ArrowRows, arrow_of, refuse_new_rules, refuse_rules, schema_of_arrow
from pydelta.engines.arrow.tasks.old_files import NeedsSpark
from pydelta.engines.arrow.text_source import TextFile, TextSource
from pydelta.errors import InvalidArgumentError, error_context
from pydelta.log import CheckpointResult, CleanupResult, DeltaLog, Snapshot
from pydelta.log.times import epoch_ms_of
from pydelta.manifests import PublishResult
from pydelta.protocol.partitions import zone_of
from pydelta.settings import Settings, checked_properties
from pydelta.txn import start_transaction

if TYPE_CHECKING:
    from pydelta.manifests.iceberg import IcebergPublished

__all__ = ["LocalTable", "Rows", "open_table"]

Rows: TypeAlias = pa.Table | pl.DataFrame
"""Rows with types, from memory."""

_MODES: Final = {
    "error": (WriteMode.CREATE, CreateMode.CREATE),
    "ignore": (WriteMode.IGNORE, CreateMode.CREATE_IF_NOT_EXISTS),
    "replace": (WriteMode.CREATE_OR_REPLACE, CreateMode.CREATE_OR_REPLACE),
}
"""What ``create`` does with an existing table: the write of rows, and the creation of an empty table."""


def open_table(
    uri: str | os.PathLike[str],
    *,
    options: Mapping[str, str] | None = None,
    settings: Settings | None = None,
    time_zone: str | None = None,
) -> LocalTable:
    """Open the table at a location, without a session.

    Args:
        uri: A URI or a local path.
        options: Storage options, by Hadoop's names (``fs.s3a.endpoint`` …).
        settings: None for those of the environment (``PYDELTA_*``).
        time_zone: Zone of times without one in conditions and values, like ``spark.sql.session.timeZone`` in a
            session. None refuses such times, because the machine's zone may not be the author's.

    Raises:
        TableNotFoundError: There is no Delta table there.
        InvalidArgumentError: There is no such time zone, or an argument is of another type.
    """
    if settings is not None and not isinstance(settings, Settings):
        raise InvalidArgumentError(
            f"The settings must be pydelta.settings.Settings, not {type(settings).__name__}.",
            hint="Make them with Settings.resolve({…}), or set PYDELTA_* in the environment.",
        )
    location = uri if isinstance(uri, str) else location_of(uri)
    given = None if options is None else options_of(options)
    time_zone = None if time_zone is None else optional_text(time_zone, "The time zone")
    log = DeltaLog.for_table(location, options=given, settings=settings)
    existing_table(log.update())
    return LocalTable(log, time_zone=time_zone)


class LocalTable:
    """A table that is read and changed in this process. Made by ``pydelta.open`` or ``create``.

    Args:
        log: The table's log.
        time_zone: Zone of times without one; None refuses such times.
    """

    def __init__(self, log: DeltaLog, *, time_zone: str | None = None) -> None:
        self._log = log
        self._time_zone = time_zone
        self._engine = ArrowEngine(log, time_zone=time_zone)
        self._context = Context(log, self._engine)

    @classmethod
    def create(
        cls,
        uri: str | os.PathLike[str],
        columns: pa.Schema | Mapping[str, str] | Rows,
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        mode: str = "error",
        options: Mapping[str, str] | None = None,
    ) -> LocalTable:
        """Create a table in one commit, and open it.

        Args:
            uri: A URI or a local path.
            columns: An Arrow schema, or names with types (``{"id": "bigint", "day": "date"}``), for a table without
                rows; or the first rows, as Arrow or Polars. Columns of rows may all be null.
            partition_by: Partition columns, in order.
            properties: Table properties, such as ``{"delta.enableChangeDataFeed": "true"}``.
            mode: What to do with an existing table: ``error`` refuses it, ``ignore`` leaves it unchanged, ``replace``
                removes its rows and gives it the new definition.
            options: Storage options, by Hadoop's names.

        Raises:
            TableAlreadyExistsError: There is a table, or the location holds other files.
            SchemaError, UnsupportedFeatureError: A table cannot have these columns.
            UnknownSettingError: A ``delta.*`` property is misspelled.
        """
        location = location_of(uri)
        if mode not in _MODES:
            raise InvalidArgumentError(f"There is no mode {mode!r} of create.", hint=f"Use {', '.join(_MODES)}.")
        of_rows, of_definition = _MODES[mode]
        table = cls(DeltaLog.for_table(location, options=options_of(options)))
        log, given = table._log, properties_of(properties)
        with error_context(table=log.uri):
            if isinstance(columns, Rows):
                snapshot = log.update()
                refuse_new_rules(snapshot, given)
                rows = arrow_of(columns)
                source = ArrowRows(log, snapshot, rows, schema=schema_of_arrow(rows.schema))
                wanted = WriteOptions(
                    mode=of_rows,
                    partition_by=tuple(names_of(partition_by, "Partition columns")),
                    properties=checked_properties(given),
                )
                run(Write(source, wanted), table._context)
            else:
                definition = TableDefinition(
                    schema=columns_of(columns),
                    partition_columns=tuple(names_of(partition_by, "Partition columns")),
                    properties=given,
                )
                run(Create(definition=definition, mode=of_definition), table._context)
        return table

    def __repr__(self) -> str:
        return f"LocalTable({self._log.uri!r})"

    @property
    def version(self) -> int:
        """The newest version."""
        return self._log.update().version

    @property
    def schema(self) -> pa.Schema:
        """The columns of the newest version, as ``scan`` returns them."""
        return logical_schema(self._log.update().schema)

    def scan(
        self, where: str | None = None, *, columns: Sequence[str] | None = None, version: int | None = None
    ) -> pa.Table:
        """Read rows into an Arrow table.

        Args:
            where: A condition as SQL text that compares columns with constants; None for all rows.
            columns: Names of columns, ignoring case, with or without backticks, each once; None for all.
            version: The version to read; None for the newest.

        Raises:
            ParseError, BindError: The condition is invalid, or there is no such column.
            UnsupportedFeatureError: The condition or a file needs Spark; the error names the reason.
            VersionNotFoundError: The log does not reach back to the version.
            StorageError: A file is missing or damaged.
        """
        with error_context(table=self._log.uri):
            number = version_of(version)
            given = [] if columns is None else names_of(columns, "Columns")
            snapshot = self._log.snapshot(number)
            names = [
                (snapshot.schema.field(name) or column_of(snapshot, name)).name
                for name in given or snapshot.schema.names
            ]
            if len(set(names)) < len(names):
                twice = next(name for place, name in enumerate(names) if name in names[:place])
                raise InvalidArgumentError(f"The column {twice!r} is named twice.", hint="Name each column once.")
            bound = None if where is None else self._engine.bind_condition(snapshot, where)
            conjuncts = () if bound is None else bound.conjuncts
            files = snapshot.files.select(data_filters=conjuncts)
            try:
                return Scan(self._log, snapshot, names, None if bound is None else bound.native).run(files)
            except (NotHere, NeedsSpark) as reason:
                raise only_spark(reason, snapshot) from None

    def append(self, rows: pa.Table | pl.DataFrame | TextFile) -> WriteResult:
        """Add rows in one version. Columns are matched by name, ignoring case; missing columns are null.

        Raises:
            SchemaMismatchError: The table lacks a column of the rows, or a value does not fit its column's type.
            ConstraintViolatedError: A column that is NOT NULL has a null.
            UnsupportedFeatureError: The table has rules that only Spark checks; the error names them.
            StorageError: The store refused; no version was created.
        """
        return self._write(rows, WriteOptions(mode=WriteMode.APPEND))

    def overwrite(
        self, rows: Rows | TextFile, where: str | None = None, *, overwrite_schema: bool = False
    ) -> WriteResult:
        """Replace the table's rows in one version; with a condition, only the rows for which it is true.

        Args:
            rows: The new rows. Columns are matched by name as in ``append``.
            where: A condition as SQL text, which every new row must satisfy; see ``replaceWhere``.
            overwrite_schema: Let the rows define the table's columns again.

        Raises:
            ConstraintViolatedError: A new row does not satisfy the condition, or has a null where it may not.
            SchemaMismatchError: See ``append``.
            UnsafeOperationError: The table is append-only.
            UnsupportedFeatureError: The condition, a file or the table needs Spark; the error names the reason.
        """
        where = optional_text(where, "The condition")
        if flag_of(overwrite_schema, "overwrite_schema") and isinstance(rows, TextFile):
            raise InvalidArgumentError(
                "A file of text has no types, so it cannot define the columns.", hint="Leave overwrite_schema out."
            )
        options = WriteOptions(mode=WriteMode.OVERWRITE, overwrite_schema=overwrite_schema)
        return self._write(rows, options.narrowed(replace_where=where))

    def delete(self, condition: str | None = None, *, where: str | None = None) -> DeleteResult:
        """Delete the rows for which a condition is true; all rows without one. See ``DeltaTable.delete``.

        Args:
            condition: SQL text.
            where: The former name of ``condition``.

        Raises:
            UnsupportedFeatureError: The condition or a file needs Spark; the error names the reason.
        """
        if where is not None:
            warn_deprecated("LocalTable.delete", "delete(where=…)")
        return run(Delete(condition=where if condition is None else condition, always=("true",)), self._context)

    def update(
        self,
        condition: str | Mapping[str, str] | None = None,
        set: Mapping[str, str] | str | None = None,  # noqa: A002 - as in DeltaTable
        *,
        where: str | None = None,
    ) -> UpdateResult:
        """Set columns of the rows for which a condition is true; of all rows without one. See ``DeltaTable.update``.

        Args:
            condition: SQL text.
            set: Columns, named as in SQL, with SQL text: a constant (``"'paid'"``, ``"0"``, ``"NULL"``) or another
                column.
            where: The former name of ``condition``. The former order, a mapping before the condition, also works.

        Raises:
            UnsupportedFeatureError: A value, the condition or the table needs Spark; the error names the reason.
        """
        if isinstance(condition, Mapping):
            warn_deprecated("LocalTable.update", "update({…}, condition)")
            given = optional_text(set, "The condition")
            return self._update(given if where is None else where, condition)
        if where is not None:
            warn_deprecated("LocalTable.update", "update(where=…)")
            condition = where if condition is None else condition
        return self._update(condition, set)

    def _update(self, condition: str | None, values: Mapping[str, str] | str | None) -> UpdateResult:
        condition = optional_text(condition, "The condition")
        return run(Update(assignments=list(values_of(values).items()), condition=condition), self._context)

    def merge(
        self,
        rows: pa.Table | pl.DataFrame | pa.RecordBatchReader | TextFile,
        on: str | Sequence[str],
        *,
        matched: str | None = "update",
        not_matched: str | None = "insert",
        not_matched_by_source: str | None = None,
    ) -> MergeResult:
        """Merge rows into the table in one version, by equal key columns; see ``MERGE``.

        Args:
            rows: Columns are matched by name, ignoring case. A column that the rows lack stays unchanged in existing
                rows, and is null in new ones. Rows of a reader, and of a large table, are paired through temporary
                files, so that memory stays small; see ``local.sourceMaxBytes``.
            on: The key columns, named as in SQL. A null matches nothing.
            matched: ``update`` sets the columns that the rows have, ``delete`` deletes; None keeps matching rows.
            not_matched: ``insert`` adds the rows that match no row of the table; None skips them.
            not_matched_by_source: ``delete`` deletes the table's rows that match no given row; None keeps them.

        Raises:
            BindError, SchemaMismatchError: The table lacks a column, or a value does not fit its column's type.
            InvalidArgumentError: Several rows match the same row of the table, or there is nothing to do.
            UnsupportedFeatureError: The table has rules, keys or types that need Spark; the error names them.
            StorageError: Temporary files cannot be written.
        """
        with error_context(table=self._log.uri):
            clauses = clauses_of(matched, not_matched, not_matched_by_source)
            key_names = names_of(on, "Key columns")
            most = self._log.settings.local_source_max_bytes
            given = GivenRows.of(rows, most_bytes=most) if isinstance(rows, pa.RecordBatchReader) else self._given(rows)
            given = GivenRows.of_table(given) if isinstance(given, pa.Table) else given

            def begin(snapshot: Snapshot) -> Merging:
                found = given.rows(snapshot, most_bytes=most) if isinstance(given, TextFile) else given
                source = SourceRows(self._log, snapshot, found)
                keys = [column_of(snapshot, name).name for name in key_names]
                if not keys or not set(keys) <= set(source.schema.names):
                    raise InvalidArgumentError(
                        f"The rows have no column {', '.join(set(keys) - set(source.schema.names)) or 'to match by'}.",
                        hint="Name columns by which rows of both sides are matched.",
                    )
                return self._engine.merging(snapshot, source, keys, clauses)

            with closing(given):
                return run(Merge(begin, clauses), self._context)

    def index_records(self, columns: str | Sequence[str] = ()) -> RecordIndexResult:
        """Make a record index, so that ``merge`` by its columns opens few files; or let it cover files added since.

        Args:
            columns: The key columns; none for those of the existing index.

        Raises:
            BindError, InvalidArgumentError, UnsupportedFeatureError: They cannot be a key; see ``IndexRecords``.
            StorageError: A file is missing or damaged, or the store refused; run it again.
        """
        return run(IndexRecords(names_of(columns, "Key columns"), self._engine.key_reader), self._context)

    def drop_record_index(self) -> int:
        """Delete the table's record index, and return the number of its objects. Nothing depends on it."""
        return run(DropRecordIndex(), self._context)

    def optimize(
        self, where: str | None = None, *, zorder_by: Sequence[str] = (), full: bool = False
    ) -> OptimizeResult:
        """Rewrite small files into large ones, or sort rows so that queries can skip files; see ``OPTIMIZE``.

        Args:
            where: A condition over partition columns, as SQL text; None for all partitions.
            zorder_by: Columns to sort rows by, along a Z-order curve.
            full: For a clustered table, sort all files again.

        Raises:
            UnsupportedFeatureError: A file needs Spark, or a partition is too large to sort in memory.
            DeltaConcurrentModificationException: Another writer deleted a file; run it again.
        """
        order = tuple(names_of(zorder_by, "Columns to order by"))
        return run(Optimize(condition=where, zorder_by=order, full=full), self._context)

    def purge(self, condition: str | None = None, *, where: str | None = None) -> PurgeResult:
        """Rewrite files with deletion vectors without their hidden rows; see ``DeltaTable.purge``.

        Args:
            condition: SQL text over partition columns; None for the whole table.
            where: The former name of ``condition``.

        Raises:
            UnsupportedFeatureError: A file needs Spark; the error names the reason.
            DeltaConcurrentModificationException: Another writer changed a file; run it again.
        """
        if where is not None:
            warn_deprecated("LocalTable.purge", "purge(where=…)")
        return run(Purge(condition=where if condition is None else condition), self._context)

    def vacuum(self, retention_hours: float | None = None, *, dry_run: bool = False) -> VacuumResult:
        """Delete the files that no retained version needs; see ``VACUUM``.

        Args:
            retention_hours: How far back versions stay readable; None for the table's retention.
            dry_run: Only find the files; delete nothing.

        Raises:
            UnsafeOperationError: The retention is below the table's.
        """
        return run(Vacuum(retention_hours=hours_of(retention_hours), dry_run=dry_run), self._context)

    def erase(
        self,
        keys: Mapping[str, Sequence[str]],
        *,
        history: str | None = None,
        object_versions: str = "keep",
        dry_run: bool = False,
    ) -> Erasure:
        """Delete the rows of keys for good: from files, history and log; then search what is left.

        Args:
            keys: Keys as text, by the name of the column that holds them.
            history: ``drop`` gives up all earlier versions. Without it an erasure that has to is refused.
            object_versions: ``drop`` deletes the older versions of the table's objects in a bucket that keeps them;
                ``absent`` states that the store keeps none.
            dry_run: Only find what would be touched; change nothing.

        Returns:
            What was done. ``is_proven`` says whether the search found nothing.

        Raises:
            UnsafeOperationError: Consent is missing, or a shallow clone or a manifest reads files that would go.
            BindError, InvalidArgumentError, UnsupportedFeatureError: The keys do not fit the table.
        """
        command = Erase(
            keys=keys_of(keys),
            history=policy_of(history),
            object_versions=object_versions_of(object_versions),
            dry_run=flag_of(dry_run, "dry_run"),
        )
        return run(command, self._context)

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the commits, newest first, with the keys of ``DESCRIBE HISTORY``; times are in UTC.

        Args:
            limit: The most commits to return; None for all that the log retains.
        """
        rows = describe_history(self._log.history(whole_of(limit, "The limit")))
        return [{**row, "timestamp": moment(row["timestamp"])} for row in rows]

    def detail(self) -> dict[str, Any]:
        """Return the keys and values of ``DESCRIBE DETAIL`` for the newest version; times are in UTC."""
        row = describe_detail(existing_table(self._log.update()))
        return {**row, "createdAt": moment(row["createdAt"]), "lastModified": moment(row["lastModified"])}

    def restore(self, version: int | None = None, timestamp: str | dt.datetime | None = None) -> RestoreResult:
        """Make an earlier version the current state, as a new version; see ``RESTORE``.

        Args:
            version: The version to restore.
            timestamp: Instead of a version: restore the newest one at or before this time, given as ISO 8601 text or
                a datetime. A time without a zone is in the table's ``time_zone``, and is refused without one.

        Raises:
            VersionNotFoundError: The log does not reach back to it.
            UnsafeOperationError: Files of that version no longer exist; nothing is changed.
        """
        return run(Restore(version=version_of(version), timestamp_ms=self._time(timestamp)), self._context)

    def clone(
        self,
        target: str | os.PathLike[str],
        *,
        shallow: bool = False,
        replace: bool = False,
        version: int | None = None,
        timestamp: str | dt.datetime | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> LocalTable:
        """Create an independent table from a version of this one, and open it; see ``CLONE``.

        Args:
            target: Location of the new table, in a store that the same options open.
            shallow: Name this table's files instead of copying them.
            replace: Replace an existing table.
            version: The version to clone; without version and time, the newest.
            timestamp: See ``restore``.
            properties: Table properties that override this table's.

        Raises:
            TableAlreadyExistsError: The target has a table or other files, and ``replace`` is not set.
            VersionNotFoundError: The log does not reach back to the version.
            StorageError: A file could not be copied; no version was created.
        """
        if version is not None and timestamp is not None:
            raise InvalidArgumentError("A version and a timestamp were given.", hint="Give one of them.")
        log = DeltaLog.for_table(location_of(target), options=self._log.options, settings=self._log.settings)
        cloned = LocalTable(log, time_zone=self._time_zone)
        command = Clone(
            source=self._log,
            shallow=shallow,
            replace=replace,
            version=version_of(version),
            timestamp_ms=self._time(timestamp),
            properties=properties_of(properties),
        )
        run(command, cloned._context)
        return cloned

    def generate(
        self, where: str | None = None, *, full: bool = False, mode: str = SYMLINK_MANIFESTS
    ) -> PublishResult | IcebergPublished:
        """Publish what other engines read the newest version by, as far as it changed; see ``GENERATE``.

        Args:
            where: A condition over partition columns that limits the manifests to these partitions.
            full: Write every manifest again.
            mode: ``symlink_format_manifest``, or ``iceberg`` for an Iceberg entry.

        Raises:
            UnsupportedFeatureError: Symlink manifests: files have deletion vectors, or columns are mapped to other
                names. Iceberg: it cannot hold a column.
            DeltaEnvironmentError: PyIceberg is not installed.
        """
        task = generation(mode, where=where, time_zone=self._time_zone, full=full)
        result: PublishResult | IcebergPublished = run(task, self._context)
        return result

    def fsck(self, *, repair: bool = False) -> FsckReport:
        """Find missing files, holes in the log, unreadable checkpoints and stray files; see ``FSCK``.

        Args:
            repair: Remove the entries of missing files from the log, and replace damaged checkpoints.

        Returns:
            The damage that was found, before any repair.
        """
        return run(Fsck(repair=flag_of(repair, "repair")), self._context)

    def checkpoint(self) -> CheckpointResult:
        """Write a checkpoint of the newest version, and verify it by reading it back."""
        return self._log.checkpoint()

    def cleanup(self) -> CleanupResult:
        """Delete log files older than ``delta.logRetentionDuration`` that no retained version needs."""
        return self._log.cleanup()

    def _write(self, rows: Rows | TextFile, options: WriteOptions) -> WriteResult:
        given = self._given(rows)
        with error_context(table=self._log.uri):
            snapshot = existing_table(self._log.update())
            refuse_rules(snapshot)
            source: RowSource
            if isinstance(given, TextFile):
                source = TextSource(self._log, snapshot, given)
            else:
                schema = schema_of_arrow(given.schema) if options.overwrite_schema else None
                source = ArrowRows(self._log, snapshot, given, schema=schema)
            # The write reads the snapshot whose rules were checked above.
            context = self._context.beginning(lambda log: start_transaction(log, snapshot))
            return run(Write(source, options), context)

    def _given(self, rows: Rows | TextFile) -> pa.Table | TextFile:
        if isinstance(rows, TextFile):
            rows.for_table(self._log.uri, lambda other, bad: LocalTable(other).append(bad), self._time_zone)
            return rows
        return arrow_of(rows)

    def _time(self, timestamp: str | dt.datetime | None) -> int | None:
        if timestamp is None:
            return None
        return epoch_ms_of(timestamp, None if self._time_zone is None else zone_of(self._time_zone))
