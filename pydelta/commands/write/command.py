"""Write rows into a table in at most one commit.

::

    plan (pure) -> rows to remove, by predicate or partition -> source writes files -> add + remove in one commit
    the commit fails         staged files are deleted, and the error says how many there were
    its outcome is unknown   staged files stay: they may be part of a version
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final, Protocol, runtime_checkable

import polars as pl

from pydelta.commands.alter.clustering import CLUSTERING_FEATURES, check_layout, clustering_of_write
from pydelta.commands.change.candidates import counted, find_rows, read_candidates, rows_by_statistics
from pydelta.commands.change.reconcile import RowCounts, reconcile
from pydelta.commands.create import refuse_foreign_files
from pydelta.commands.engine import BoundCondition, RewriteOutput
from pydelta.commands.optimize.command import compact_after_write
from pydelta.commands.run import Attempt, Command, Refusal, refuse_append_only
from pydelta.commands.write.matches import MatchingSource, Replaced, replace_matches
from pydelta.commands.write.options import StatementCondition, WriteMode, WriteOptions
from pydelta.commands.write.plan import WriteKind, WritePlan, plan_write
from pydelta.errors import (
    DeltaConcurrentModificationException,
    InvalidArgumentError,
    MetadataChangedException,
    ParseError,
    UnsupportedFeatureError,
)
from pydelta.errors.conditions import Condition
from pydelta.log import Snapshot
from pydelta.log.columns import PV_PREFIX
from pydelta.log.runs import joined, num_bytes, removes_of
from pydelta.predicate import And, Column, Compare, Expr, IsNull, Literal, Or
from pydelta.protocol.actions import Action, AddFile, DomainMetadata, Metadata
from pydelta.protocol.features import required_protocol, upgrade
from pydelta.protocol.identity import only_marks_moved, with_marks
from pydelta.protocol.partitions import typed_frame
from pydelta.protocol.schema import StructField, StructType, parse_schema, physical_name
from pydelta.settings import Settings
from pydelta.txn import Committed, Operation
from pydelta.txn.prepare import check_stats_columns

__all__ = [
    "ReadingSource",
    "RowSource",
    "Write",
    "WriteMode",
    "WriteOptions",
    "WriteResult",
    "WriteTarget",
    "lost_identity_race",
    "plan_write",
    "with_given_values",
]

_MOST_PARTITIONS_NAMED: Final = 100
_OVERWRITES: Final = Refusal(
    "an overwrite cannot remove rows from it", "Write with mode append, or set delta.appendOnly to false first."
)
_STATEMENTS: Final = (WriteMode.CREATE, WriteMode.REPLACE, WriteMode.CREATE_OR_REPLACE)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTarget:
    """The target of a write, and the conditions that its rows must satisfy.

    Args:
        table_uri: Root of the table.
        plan: The plan, with schema, partition columns and properties.
        predicate: Every row must satisfy it (``replaceWhere``), or None.
        options: For compression, file sizes and the like.
        settings: The session's settings.
        record_inserts: Also write the rows to change files, because the commit has other change files.
        condition: The predicate as bound to find the rows to remove, so that checking the new rows uses the same clock.
        snapshot: The version that the write is checked against; rows from the table itself are read at this version.
    """

    table_uri: str
    plan: WritePlan
    predicate: str | StatementCondition | None
    options: WriteOptions
    settings: Settings
    record_inserts: bool = False
    condition: BoundCondition | None = None
    snapshot: Snapshot | None = None


class RowSource(Protocol):
    """Rows that can be written to files."""

    @property
    def schema(self) -> StructType:
        """Schema of the rows."""

    def write(self, target: WriteTarget) -> RewriteOutput:
        """Write the rows under the target's root; only the returned files count as written.

        Raises:
            SchemaError, ConstraintViolatedError: A row does not fit the table.
            StorageError: The store refused. Files of the failed write are deleted as far as possible.
        """


@runtime_checkable
class ReadingSource(Protocol):
    """Rows that may come from the table they are written to, so that the commit is not a blind append."""

    def reads(self, table_uri: str) -> bool:
        """Return whether the rows are read from the table at a location."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """The result of a write. ``version`` is None when nothing was committed. Sizes are in bytes, time in
    milliseconds.
    """

    version: int | None
    num_files: int = 0
    num_rows: int = 0
    num_bytes: int = 0
    num_removed_files: int = 0
    execution_time_ms: int = 0
    committed: Committed | None = field(default=None, repr=False)

    @property
    def skipped(self) -> bool:
        """Whether nothing was committed: mode ignore, a ``txnVersion`` that had already landed, or no change."""
        return self.version is None


@dataclass(frozen=True, slots=True)
class Write(Command[WriteResult]):
    """A write of rows to a table, which creates the table if it does not exist and the mode allows that.

    Args:
        source: The rows.
        options: Mode, partitioning and the rest.

    Returns:
        The new version and its counts; ``skipped`` when nothing was committed.

    Raises:
        TableAlreadyExistsError, TableNotFoundError: The mode refuses an existing, or a missing, table; or a new table's
            location has other files.
        SchemaError: The data does not fit the table; see ``plan_write``.
        ConstraintViolatedError: A row violates NOT NULL, a CHECK constraint or the ``replaceWhere`` condition.
        UnsafeOperationError: Rows would be removed from an append-only table.
        CommitStateUnknownError: It may or may not have landed; staged files are kept.

    Protocol: "Add File and Remove File", "Change Metadata", "Transaction Identifiers".
    """

    source: RowSource
    options: WriteOptions

    makes_table = True

    def transaction(self, settings: Settings) -> tuple[str | None, int | None]:
        """See ``Command.transaction``: taken from the options, which include the session's."""
        return self.options.txn_app_id, self.options.txn_version

    def skipped(self, attempt: Attempt) -> WriteResult:
        """See ``Command.skipped``."""
        return WriteResult(version=None)

    def tries_again(self, lost: DeltaConcurrentModificationException, attempt: Attempt, tries: int) -> bool:
        """See ``Command.tries_again``: write the same rows with new identity values if the winner used these."""
        return lost_identity_race(lost, attempt, tries)

    def execute(self, attempt: Attempt) -> WriteResult:
        """See ``Command.execute``."""
        snapshot, options = attempt.snapshot, self.options
        plan = plan_write(snapshot, self.source.schema, options, attempt.settings)
        if plan.kind is WriteKind.SKIP:
            return WriteResult(version=None)
        if snapshot.version < 0 and (options.by_save_as_table or options.mode in _STATEMENTS):
            refuse_foreign_files(attempt.log.store, snapshot.table_uri)
        return _Write(attempt, self.source, options, plan).run()


def with_given_values(metadata: Metadata | None, marks: Mapping[str, int]) -> Metadata | None:
    """Return the definition with its identity columns' marks at the last values that a write generated."""
    if metadata is None or not marks:
        return metadata
    return metadata.replace(schema_string=with_marks(parse_schema(metadata.schema_string), marks).to_json())


def lost_identity_race(lost: DeltaConcurrentModificationException, attempt: Attempt, tries: int) -> bool:
    """Return whether the winner used the identity values of an attempt, and changed nothing else.

    Args:
        lost: The conflict.
        attempt: The attempt that lost.
        tries: How many attempts were made; the limit is ``commit_max_attempts``.
    """
    if not isinstance(lost, MetadataChangedException) or tries >= attempt.settings.commit_max_attempts:
        return False
    read, now = attempt.snapshot.metadata, attempt.log.update().metadata
    return read is not None and now is not None and bool(now != read) and only_marks_moved(read, now)


@dataclass(slots=True)
class _Write:
    """One attempt of a write."""

    attempt: Attempt
    source: RowSource
    options: WriteOptions
    plan: WritePlan

    def run(self) -> WriteResult:
        attempt, plan, snapshot = self.attempt, self.plan, self.attempt.snapshot
        exists = snapshot.version >= 0
        if plan.metadata is not None:
            check_stats_columns(plan.metadata)
        clustering = self._clustering()
        condition = self._condition() if plan.kind is WriteKind.REPLACE_WHERE else None
        if plan.kind is not WriteKind.APPEND and self.options.data_change:
            refuse_append_only(snapshot, _OVERWRITES)
        replaced = Replaced()
        if condition is not None:
            replaced = self._remove_rows(condition)
        elif plan.kind is WriteKind.REPLACE_MATCHES:
            replaced = self._replace_matches()
            if not replaced.source_rows and plan.metadata is None and self.options.txn_app_id is None:
                return WriteResult(version=None)  # Empty data matches no row.
        written = attempt.stage(self._write_rows(condition, record_inserts=bool(replaced.kept.changes)))
        if exists and plan.kind is WriteKind.OVERWRITE:
            replaced = Replaced(files=snapshot.files.add_actions(attempt.txn.read_files()))
        elif plan.kind is WriteKind.DYNAMIC:
            replaced = Replaced(files=snapshot.files.add_actions(self._files_of_partitions(written.adds)))
        if exists and not self._changes(written, replaced, clustering):
            return WriteResult(version=None)
        if replaced.source_rows is not None:  # The rows written must be those that were matched.
            feed = written.num_changes if replaced.kept.changes else None
            counts = RowCounts(live=0, inserted=replaced.source_rows, written=written.num_rows, changes=feed)
            reconcile(counts, table=snapshot.table_uri)
        committed = self._commit(written, replaced, clustering)
        new = (*written.adds, *replaced.kept.adds)
        if self.options.data_change and attempt.context.compacts(committed, new):
            compact_after_write(attempt.context, committed, new)
        return WriteResult(
            version=committed.version,
            num_files=len(new),
            num_rows=written.num_rows,
            num_bytes=sum(add.size for add in new),
            num_removed_files=len(replaced.files) + replaced.hidden.num_removed_files,
            execution_time_ms=attempt.elapsed_ms,
            committed=committed,
        )

    def _changes(self, written: RewriteOutput, replaced: Replaced, clustering: DomainMetadata | None) -> bool:
        """Return whether the write changes an existing table, or its version counts for an application."""
        if self.plan.metadata is not None or clustering is not None or self.attempt.txn.counts_as_version:
            return True
        return bool(written.files or replaced.files or replaced.kept.files or replaced.hidden.actions)

    def _condition(self) -> BoundCondition:
        """Bind the condition of ``replaceWhere``."""
        assert self.options.replace_where is not None
        given = StatementCondition.as_given(self.options.replace_where)
        try:
            condition = self.attempt.engine.bind_condition(self.attempt.snapshot, given)
        except ParseError as error:
            raise error.called(Condition.of("DELTA_FAILED_RECOGNIZE_PREDICATE", predicate=given)) from error.__cause__
        self._refuse_data_columns(condition)
        where = self.options.replace_where
        if isinstance(where, StatementCondition) and where.by_column:
            self.plan = replace(self.plan, parameters={**self.plan.parameters, "predicate": condition.sql})
        return condition

    def _write_rows(self, condition: BoundCondition | None, *, record_inserts: bool) -> RewriteOutput:
        checked = self.options.replace_where_check and self.plan.kind is WriteKind.REPLACE_WHERE
        return self.source.write(
            WriteTarget(
                table_uri=self.attempt.snapshot.table_uri,
                plan=self.plan,
                predicate=self.options.replace_where if checked else None,
                options=self.options,
                settings=self.attempt.settings,
                record_inserts=record_inserts,
                condition=condition,
                snapshot=self.attempt.snapshot,
            )
        )

    def _replace_matches(self) -> Replaced:
        """Remove the rows that the data matches, for ``replaceUsing`` and ``replaceOn``."""
        if not isinstance(self.source, MatchingSource):
            raise UnsupportedFeatureError(
                "replaceUsing and replaceOn need the engine in the session.",
                features=("replaceUsing", "replaceOn"),
                hint="Call pydelta.enable(spark) first.",
            )
        matching = self.source.matching(self.attempt.snapshot, self.options)
        return replace_matches(self.attempt, matching)

    def _refuse_data_columns(self, condition: BoundCondition) -> None:
        """Refuse a ``replaceWhere`` over data columns if the session forbids it."""
        partitions = self.attempt.snapshot.partition_columns
        others = condition.references - set(partitions)
        if others and not self.attempt.settings.replace_where_data_columns:
            raise InvalidArgumentError(
                f"replaceWhere names {', '.join(sorted(others))}, but the table is partitioned by "
                f"{', '.join(partitions) or 'nothing'}.",
                hint="Name partition columns, or unset spark.databricks.delta.replaceWhere.dataColumns.enabled (or "
                "spark.pydelta.write.replaceWhereDataColumns), which forbids others in this session.",
                condition=Condition.of(
                    "DELTA_NON_PARTITION_COLUMN_REFERENCE", columnName=sorted(others), columnList=partitions
                ),
            )

    def _clustering(self) -> DomainMetadata | None:
        """Return the change of the table's clustering; see ``clustering_of_write``."""
        snapshot, plan, options = self.attempt.snapshot, self.plan, self.options
        if plan.metadata is not None and (options.mode.replaces_table or options.by_save_as_table):
            check_layout(snapshot, plan.metadata.partition_columns, options.cluster_by)
        redefined = options.mode.replaces_table or (
            plan.kind is WriteKind.OVERWRITE and (options.overwrite_schema or options.cluster_by is not None)
        )
        return clustering_of_write(snapshot, plan.metadata, options.cluster_by, redefined=redefined)

    def _remove_rows(self, condition: BoundCondition) -> Replaced:
        """Return the files that ``replaceWhere`` removes, and new files with copies of their other rows."""
        attempt, snapshot = self.attempt, self.attempt.snapshot
        partitions = tuple(snapshot.partition_columns)
        if {name.lower() for name in condition.references} <= {name.lower() for name in partitions}:
            candidates = read_candidates(attempt.txn, condition.conjuncts, time_zone=attempt.engine.time_zone())
            doomed = attempt.engine.match_partitions(snapshot, candidates, condition)
            attempt.txn.mark_read(doomed)
            return Replaced(files=snapshot.files.adds(doomed))
        touched = find_rows(attempt, condition)
        if not touched.rows:
            return Replaced(num_rows=0)
        kept = attempt.stage(attempt.engine.write_without(snapshot, touched.frame, touched.rows))
        counted(attempt.txn, touched, written=kept, updates=False)
        return Replaced(files=touched.adds, kept=kept, num_rows=touched.num_rows)

    def _files_of_partitions(self, adds: tuple[AddFile, ...]) -> pl.DataFrame:
        """Return live files in the partitions of the new files, compared by typed values.

        These partitions count as read, so that rows which a concurrent writer adds to them conflict; for very many
        partitions, the whole table counts as read.
        """
        snapshot = self.attempt.snapshot
        fields = [item for name in snapshot.partition_columns if (item := snapshot.schema.field(name)) is not None]
        if not adds:
            return snapshot.files.core.head(0)
        names = [physical_name(item) for item in fields]
        types = StructType(tuple(item.replace(name=physical_name(item)) for item in fields))
        texts = {name: [add.partition_values.get(name) for add in adds] for name in names}
        zone = self.attempt.engine.time_zone()
        new = typed_frame(pl.DataFrame(texts, schema=dict.fromkeys(names, pl.String)).unique(), types, time_zone=zone)
        filters = [_any_of(new, fields)] if new.height <= _MOST_PARTITIONS_NAMED else []
        live = self.attempt.txn.read_files(partition_filters=filters, time_zone=zone)
        old = typed_frame(live.select(pl.col(PV_PREFIX + name).alias(name) for name in names), types, time_zone=zone)
        matching = old.with_row_index("__position").join(new, on=names, how="semi", nulls_equal=True)
        return live[matching["__position"].sort().to_list()]

    def _commit(
        self,
        written: RewriteOutput,
        replaced: Replaced,
        clustering: DomainMetadata | None,
    ) -> Committed:
        now_ms = self.attempt.now_ms()
        metadata = with_given_values(self.plan.metadata or self.attempt.snapshot.metadata, written.marks)
        if metadata is not None:
            self.attempt.txn.update_metadata(metadata)
        if self.plan.metadata is not None and clustering is not None:
            base = self.attempt.snapshot.protocol or required_protocol(self.plan.metadata)
            self.attempt.txn.update_protocol(upgrade(base, CLUSTERING_FEATURES))
        changes = self.options.data_change
        actions: list[Action] = [add.replace(data_change=changes) for add in (*written.adds, *replaced.kept.adds)]
        actions += [*written.changes, *replaced.kept.changes] if changes else []
        removes = removes_of(replaced.files, deletion_timestamp=now_ms, data_change=changes)
        operation = Operation(
            name=self.plan.operation, parameters=self.plan.parameters, metrics=self._metrics(written, replaced)
        )
        reads = isinstance(self.source, ReadingSource) and self.source.reads(self.attempt.snapshot.table_uri)
        blind = False if reads or self.options.mode.overwrites else None
        staged = joined(actions, removes, replaced.hidden.actions, () if clustering is None else (clustering,))
        return self.attempt.txn.commit(staged, operation, user_metadata=self.options.user_metadata, blind_append=blind)

    def _metrics(self, written: RewriteOutput, replaced: Replaced) -> Mapping[str, int]:
        kept = replaced.kept
        metrics: dict[str, int] = {
            "numFiles": len(written.adds) + len(kept.adds),
            "numOutputRows": written.num_rows + kept.num_rows,
            "numOutputBytes": sum(add.size for add in (*written.adds, *kept.adds)),
        }
        if self.plan.kind is not WriteKind.APPEND or self.options.mode.overwrites:
            metrics["numRemovedFiles"] = len(replaced.files) + replaced.hidden.num_removed_files
            metrics["numRemovedBytes"] = num_bytes(replaced.files) + replaced.hidden.removed_bytes
        if self.options.replace_where is not None:  # An append has these metrics too.
            metrics["numCopiedRows"] = kept.num_rows
            metrics["numAddedChangeFiles"] = len(written.changes) + len(kept.changes)
        if self.plan.kind is WriteKind.REPLACE_WHERE:
            deleted = rows_by_statistics(replaced.files) if replaced.num_rows is None else replaced.num_rows
            metrics |= {} if deleted is None else {"numDeletedRows": deleted}
        elif kept.adds:
            metrics["numCopiedRows"] = kept.num_rows
        if self.plan.kind is WriteKind.REPLACE_MATCHES:
            metrics |= {"numDeletedRows": replaced.num_rows or 0, **replaced.hidden.metrics}
        return metrics


def _any_of(partitions: pl.DataFrame, fields: Sequence[StructField]) -> Expr:
    """Build the condition that a row is in one of the partitions.

    Args:
        partitions: Typed values, one column per field.
        fields: The partition columns.
    """
    alternatives = []
    for row in partitions.iter_rows():
        equal: list[Expr] = [
            Compare("<=>", Column((item.name,)), Literal(value, str(item.data_type)))
            if value is not None
            else IsNull(Column((item.name,)))
            for item, value in zip(fields, row, strict=True)
        ]
        alternatives.append(reduce(And, equal))
    return reduce(Or, alternatives)
