"""Implement ``Engine`` in this process, for commands that run without a JVM: conditions are SQL text over columns.

Work that only Spark can do is refused, with the reason. ``pydelta.engines.arrow.exact`` defines the supported
conditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from pydelta.commands.change.hidden_rows import footer_rows
from pydelta.commands.change.merge import MergeClause, Merging
from pydelta.commands.engine import Assignments, BoundCondition, BoundUpdate, RefusingEngine, RewriteOutput
from pydelta.commands.optimize.plan import Layout
from pydelta.commands.write.options import WriteMode, WriteOptions
from pydelta.engines.arrow.changes import FilePlace, delete_rows, find_rows, rewrite
from pydelta.engines.arrow.columns import files_of_partitions, only_spark
from pydelta.engines.arrow.exact import assigned, exact, field_of
from pydelta.engines.arrow.expressions import Exact, NotHere
from pydelta.engines.arrow.layout import Session, TableShape, make_task
from pydelta.engines.arrow.merge.local_merge import LocalMerging
from pydelta.engines.arrow.merge.record_index import ArrowKeys
from pydelta.engines.arrow.merge.source_rows import SourceRows
from pydelta.engines.arrow.rearrange import ANY_SIZE, RowOrder, compact, lay_out
from pydelta.engines.arrow.tasks.old_files import NeedsSpark
from pydelta.engines.arrow.tasks.write_files import WriteTask
from pydelta.engines.arrow.updates import update_rows
from pydelta.errors import BindError, ConflictingSetError, InvalidArgumentError
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog, Snapshot
from pydelta.log.columns import PV_PREFIX
from pydelta.predicate import Expr, Unknown, columns, parse_predicate, split_conjuncts
from pydelta.predicate.expressions import fields_of
from pydelta.protocol.actions import AddCDCFile, AddFile
from pydelta.protocol.identity import refuse_numbered
from pydelta.protocol.names import quoted, unquoted
from pydelta.protocol.partitions import names_zone, zone_of
from pydelta.protocol.paths import decode_log_path
from pydelta.protocol.row_sets import RowSet
from pydelta.protocol.row_tracking import materialized_columns
from pydelta.protocol.types import PrimitiveType, StructField
from pydelta.storage.discarding import discard

__all__ = ["ArrowEngine", "column_of"]

_FLOAT: Final = PrimitiveType("float")
_TIMESTAMP: Final = PrimitiveType("timestamp")
_COMPUTED: Final = "delta.generationExpression"


class ArrowEngine(RefusingEngine):
    """Runs the parts of a command that read or write rows, in this process.

    Args:
        log: Log of the table. Its store and options are also used for the files.
        time_zone: Zone of times that name none. None refuses them.
    """

    rewrites_files = True

    def __init__(self, log: DeltaLog, *, time_zone: str | None = None) -> None:
        if time_zone is not None:
            zone_of(time_zone)
        self._log = log
        self._zone = time_zone
        self._place = FilePlace(store=log.store, options=log.options)

    def time_zone(self) -> str:
        """Return the given zone, or UTC without one, since times without a zone are then refused."""
        return self._zone or "UTC"

    def ways(self) -> Mapping[str, str]:
        """See ``RewritesFiles.ways``."""
        return {"scannedBy": "arrow", "rewrittenBy": "arrow"}

    def bind_condition(self, snapshot: Snapshot, condition: Any) -> BoundCondition:
        """See ``FindsRows.bind_condition``.

        Raises:
            UnsupportedFeatureError: Only Spark can compute it. The message has the reason.
        """
        if not isinstance(condition, str):
            raise InvalidArgumentError(
                f"A condition is SQL text, not {type(condition).__name__}.",
                hint="For example: delete(\"day < '2024-01-01'\").",
            )
        expr = parse_predicate(condition, snapshot.schema, time_zone=self._zone)
        try:
            native = exact(expr, snapshot.schema)
            self._refuse_zoneless(snapshot, native)
        except NotHere as reason:
            raise only_spark(reason, snapshot) from None
        names = {path[0].lower() for path in columns(expr)}
        return BoundCondition(
            sql=str(expr),
            conjuncts=self._for_pruning(snapshot, expr, native),
            references=frozenset(field.name for field in snapshot.schema.fields if field.name.lower() in names),
            native=native,
        )

    def _refuse_zoneless(self, snapshot: Snapshot, condition: Exact) -> None:
        """Check that files are not left out by partition values with an unknown time zone."""
        if self._zone is not None:
            return
        spec, times = snapshot.files.spec, {item.path[0] for item in fields_of(condition) if item.type == _TIMESTAMP}
        for name, key in zip(spec.partition_columns, spec.physical_names, strict=True):
            field = snapshot.schema.field(name)
            if field is not None and field.name in times:
                texts = snapshot.files.core.get_column(PV_PREFIX + key).drop_nulls().unique()
                if not all(map(names_zone, texts.filter(texts != ""))):
                    raise NotHere("a partition value that is a time without a zone")

    def _for_pruning(self, snapshot: Snapshot, expr: Expr, native: Exact) -> tuple[Expr, ...]:
        """Return the conjuncts for pruning.

        There are none for a condition over single floats, because statistics hold their shortest text, or over times if
        partition columns are computed, because the writer's zone may have been used.
        """
        types = {field.type for field in fields_of(native)}
        partitions = [snapshot.schema.field(name) for name in snapshot.partition_columns]
        computed = any(field is not None and _COMPUTED in field.metadata for field in partitions)
        if _FLOAT in types or (computed and self._zone is None and _TIMESTAMP in types):
            return (Unknown(str(expr), columns(expr)),)
        return split_conjuncts(expr)

    def match_partitions(self, snapshot: Snapshot, files: pl.DataFrame, condition: BoundCondition) -> pl.DataFrame:
        """See ``FindsRows.match_partitions``."""
        try:
            return files_of_partitions(snapshot, files, condition.native)
        except NotHere as reason:
            raise only_spark(reason, snapshot) from None

    def match_rows(self, snapshot: Snapshot, files: pl.DataFrame, condition: BoundCondition) -> Mapping[int, RowSet]:
        """See ``FindsRows.match_rows``."""
        try:
            return find_rows(snapshot, files, condition.native, self._place)
        except (NotHere, NeedsSpark) as reason:
            raise only_spark(reason, snapshot) from None

    def bind_update(self, snapshot: Snapshot, condition: Any, assignments: Assignments) -> BoundUpdate:
        """See ``RewritesFiles.bind_update``. Values are constants and columns: see ``pydelta.engines.arrow.exact``.

        Raises:
            UnsupportedFeatureError: Only Spark can compute a value. The message has the reason.
        """
        where = None if condition is None else self.bind_condition(snapshot, condition)
        values: dict[str, Exact] = {}
        if not assignments:
            raise InvalidArgumentError("UPDATE sets nothing.", hint="Give at least one column and its value.")
        for name, text in assignments:
            field = column_of(snapshot, name)
            if field.name in values:
                raise ConflictingSetError(f"UPDATE sets {field.name!r} twice.", hint="Set each column once.")
            refuse_numbered(snapshot.schema, (field.name,), inserts=False)
            try:
                values[field.name] = assigned(field.name, str(text), snapshot.schema, self._zone)
                update_rows(snapshot, self.write_task(snapshot), values, copy_others=True)
            except NotHere as reason:
                raise only_spark(reason, snapshot) from None
        return BoundUpdate(condition=where, native=values)

    def write_updated(
        self,
        snapshot: Snapshot,
        files: pl.DataFrame,
        rows: Mapping[int, RowSet] | None,
        bound: BoundUpdate,
        *,
        copy_others: bool,
    ) -> RewriteOutput:
        """See ``RewritesFiles.write_updated``."""
        task = self.write_task(snapshot)
        try:
            change = update_rows(snapshot, task, bound.native, copy_others=copy_others)
            return rewrite(snapshot, files, rows, change, task=task, place=self._place)
        except (NotHere, NeedsSpark) as reason:
            raise only_spark(reason, snapshot) from None

    def write_task(self, snapshot: Snapshot) -> WriteTask:
        """Decide how changes write files of the table."""
        return make_task(
            TableShape.of(snapshot),
            WriteOptions(mode=WriteMode.APPEND),
            Session(settings=self._log.settings, store_options=self._log.options),
            change_data=snapshot.properties.enable_change_data_feed,
            row_tracking=bool(materialized_columns(snapshot.properties)),
        )

    def merging(
        self, snapshot: Snapshot, source: SourceRows, on: Sequence[str], clauses: Sequence[MergeClause]
    ) -> Merging:
        """Bind a merge of rows to a version of the table.

        Raises:
            UnsupportedFeatureError: Only Spark can do it reliably. The message has the reason.
        """
        return LocalMerging(
            snapshot,
            (source, on),
            clauses,
            task=self.write_task(snapshot),
            place=self._place,
            refused=lambda reason: only_spark(reason, snapshot),
        )

    def key_reader(self, snapshot: Snapshot, columns: Sequence[str]) -> ArrowKeys:
        """Bind the key columns of a record index to a version of the table. See ``IndexRecords``.

        Raises:
            BindError: There is no such column.
            InvalidArgumentError: A column is named twice, or is a partition column.
            UnsupportedFeatureError: Only Spark can read the table, or a type has no exact hashes.
        """
        fields = [column_of(snapshot, name) for name in columns]
        names = [field.name for field in fields]
        partitions = [name for name in names if name in snapshot.partition_columns]
        if partitions:
            raise InvalidArgumentError(
                f"A record index cannot have the partition column {partitions[0]!r}.",
                hint="Leave it out: a MERGE that compares it leaves out other partitions without an index.",
            )
        if len(set(names)) < len(names):
            raise InvalidArgumentError("A column of the record index is named twice.", hint="Name each column once.")
        try:
            return ArrowKeys(snapshot, fields, self._place)
        except NotHere as reason:
            raise only_spark(reason, snapshot) from None

    def write_without(self, snapshot: Snapshot, files: pl.DataFrame, rows: Mapping[int, RowSet]) -> RewriteOutput:
        """See ``RewritesFiles.write_without``."""
        task = self.write_task(snapshot)
        try:
            return rewrite(snapshot, files, rows, delete_rows, task=task, place=self._place)
        except (NotHere, NeedsSpark) as reason:
            raise only_spark(reason, snapshot) from None

    def compact(
        self, snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame, *, max_bytes: int
    ) -> RewriteOutput:
        """See ``RewritesFiles.compact``."""
        del max_bytes  # The plan already has it.
        try:
            return compact(snapshot, files, plan, task=self._rearranging(snapshot), place=self._place)
        except (NotHere, NeedsSpark) as reason:
            raise only_spark(reason, snapshot) from None

    def lay_out(
        self, snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame, *, layout: Layout, target_bytes: int
    ) -> RewriteOutput:
        """See ``RewritesFiles.lay_out``."""
        task = self._rearranging(snapshot)
        try:
            return lay_out(snapshot, files, plan, RowOrder(layout, target_bytes), task=task, place=self._place)
        except (NotHere, NeedsSpark) as reason:
            raise only_spark(reason, snapshot) from None

    def _rearranging(self, snapshot: Snapshot) -> WriteTask:
        return make_task(
            TableShape.of(snapshot),
            WriteOptions(mode=WriteMode.APPEND, target_file_size=str(ANY_SIZE)),
            Session(settings=self._log.settings, store_options=self._log.options),
            row_tracking=bool(materialized_columns(snapshot.properties)),
        )

    def count_rows(self, log: DeltaLog, files: Sequence[AddFile]) -> Sequence[int]:
        """See ``FindsRows.count_rows``."""
        return footer_rows(files, log)

    def discard(self, snapshot: Snapshot, adds: Sequence[AddFile | AddCDCFile]) -> None:
        """See ``RewritesFiles.discard``."""
        del snapshot
        if adds:
            discard(self._log.store, [decode_log_path(add.path).text for add in adds])


def column_of(snapshot: Snapshot, name: str) -> StructField:
    """Return the column that a SQL name refers to. A dot separates it from a field, and backticks quote a part.

    Raises:
        BindError: The table has no such column.
        UnsupportedFeatureError: It is a field in a column.
    """
    path = unquoted(name)
    field = snapshot.schema.field(path[0])
    if field is None:
        dotted = snapshot.schema.field(name)
        raise BindError(
            f"There is no column {path[0]!r}.",
            hint=f"Did you mean {quoted(dotted.name)}? A dot separates a column from a field in it."
            if dotted is not None
            else f"The columns are: {', '.join(snapshot.schema.names)}.",
            condition=Condition.of(
                "UNRESOLVED_COLUMN.WITH_SUGGESTION", objectName=name, proposal=snapshot.schema.names
            ),
        )
    if len(path) > 1:
        try:
            field_of(snapshot.schema, path)
        except NotHere:
            raise BindError(f"There is no field {name}.", hint=f"{field.name!r} is {field.data_type}.") from None
        raise only_spark(NotHere("a field in a column"), snapshot)
    return field
