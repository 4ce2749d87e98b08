"""Build a ``DeltaTable.merge``: collect its clauses, then run them with ``execute``.

The names and signatures are those that Delta users know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydelta.api.python.arguments import check_condition, checked, given_values
from pydelta.api.python.own_columns import OwnColumns
from pydelta.api.python.remote import Remote, further, rows, sent
from pydelta.commands.change.merge import ClauseAction, ClauseOn, Merge, MergeClause, MergeResult
from pydelta.engines.spark.change.merge import TARGET_ALIAS, MergeStatement, SparkMerge
from pydelta.engines.spark.local_rows import local_frame
from pydelta.engines.spark.logs import settings_of, user_errors
from pydelta.engines.spark.running import run_in_session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from pydelta.api.python.wire import Call
    from pydelta.commands.change.merge import Merging
    from pydelta.commands.engine import Assignments
    from pydelta.log import DeltaLog, Snapshot

__all__ = ["DeltaMergeBuilder", "RemoteMergeBuilder", "merging"]

_Values = Mapping[str, "str | Column"] | None

_RESULT = "num_affected_rows long, num_updated_rows long, num_deleted_rows long, num_inserted_rows long"


@dataclass(frozen=True, kw_only=True)
class DeltaMergeBuilder:
    """A merge under construction. Each method returns a new builder, and clauses apply in the order they were added.

    Args:
        spark: The session.
        log: The target.
        alias: Name of the target in conditions and values.
        source: The rows to merge.
        condition: Which source row matches which target row.
        clauses: What to do with the rows, so far.
        evolve: Whether ``…All`` clauses may add columns to the target.
        own: Columns of the target's DataFrames, which conditions and values may use.
    """

    spark: SparkSession
    log: DeltaLog
    alias: str | None
    source: DataFrame
    condition: str | Column
    clauses: tuple[MergeClause, ...] = ()
    evolve: bool = False
    own: OwnColumns | None = None

    def _by_name(self, value: Any, on: ClauseOn = ClauseOn.MATCHED) -> Any:
        """Replace columns of the target's DataFrames in a condition or a value by their names."""
        if self.own is None:
            return value
        with user_errors(self.log):
            return self.own.by_name(
                value,
                alias=self.alias or TARGET_ALIAS,
                source=None if on is ClauseOn.NOT_MATCHED_BY_SOURCE else self.source,
                of_source=on is ClauseOn.NOT_MATCHED,
            )

    @checked(set=given_values("in whenMatchedUpdate"), condition=check_condition)
    def whenMatchedUpdate(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002
    ) -> DeltaMergeBuilder:
        """Set columns of a target row that matches a source row. Values may read both.

        With nothing to set and no condition, no clause is added. With a condition, later clauses skip these rows.
        """
        return self._update(ClauseOn.MATCHED, condition, set)

    def _update(self, on: ClauseOn, condition: str | Column | None, values: _Values) -> DeltaMergeBuilder:
        if not values and condition is None:
            return self
        return self._with(on, ClauseAction.UPDATE, condition, values)

    @checked(condition=check_condition)
    def whenMatchedUpdateAll(self, condition: str | Column | None = None) -> DeltaMergeBuilder:
        """Set every column of a matching target row to the source's column of the same name."""
        return self._with(ClauseOn.MATCHED, ClauseAction.UPDATE, condition, None)

    @checked(condition=check_condition)
    def whenMatchedDelete(self, condition: str | Column | None = None) -> DeltaMergeBuilder:
        """Delete a target row that matches a source row."""
        return self._with(ClauseOn.MATCHED, ClauseAction.DELETE, condition, None)

    @checked(values=given_values("in whenNotMatchedInsert"), condition=check_condition)
    def whenNotMatchedInsert(
        self, condition: str | Column | None = None, values: Mapping[str, str | Column] | None = None
    ) -> DeltaMergeBuilder:
        """Insert a source row that matches no target row. Values may read the source."""
        return self._with(ClauseOn.NOT_MATCHED, ClauseAction.INSERT, condition, values)

    @checked(condition=check_condition)
    def whenNotMatchedInsertAll(self, condition: str | Column | None = None) -> DeltaMergeBuilder:
        """Insert a source row that matches no target row, with every column of the target."""
        return self._with(ClauseOn.NOT_MATCHED, ClauseAction.INSERT, condition, None)

    @checked(set=given_values("in whenNotMatchedBySourceUpdate"), condition=check_condition)
    def whenNotMatchedBySourceUpdate(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002
    ) -> DeltaMergeBuilder:
        """Set columns of a target row that matches no source row. Values may read the target."""
        return self._update(ClauseOn.NOT_MATCHED_BY_SOURCE, condition, set)

    @checked(condition=check_condition)
    def whenNotMatchedBySourceDelete(self, condition: str | Column | None = None) -> DeltaMergeBuilder:
        """Delete a target row that matches no source row."""
        return self._with(ClauseOn.NOT_MATCHED_BY_SOURCE, ClauseAction.DELETE, condition, None)

    def withSchemaEvolution(self) -> DeltaMergeBuilder:
        """Let ``…All`` clauses add the source's new columns to the target, and skip columns that the source lacks."""
        return replace(self, evolve=True)

    def execute(self) -> DataFrame:
        """Run the merge.

        Returns:
            One row: ``num_affected_rows``, ``num_updated_rows``, ``num_deleted_rows``, ``num_inserted_rows``. No row
            if the table already has the session's ``txnVersion``.

        Raises:
            InvalidArgumentError: There is no clause, or two source rows match one target row; the error has its key.
            ParseError, BindError, SchemaMismatchError: A condition or a value is invalid.
            ConstraintViolatedError: A new row violates a constraint of the target.
            DeltaConcurrentModificationException: Another transaction won.

        Protocol: "Add File and Remove File".
        """
        result = self.run()
        counts = (result.num_updated_rows, result.num_deleted_rows, result.num_inserted_rows)
        return local_frame(self.spark, [] if result.skipped else [(sum(counts), *counts)], _RESULT)

    def run(self) -> MergeResult:
        """Run the merge as ``execute`` does, and return all of its counts and times."""
        with user_errors(self.log):
            evolve = self.evolve or settings_of(self.spark).schema_auto_merge
            statement = MergeStatement(condition=self.condition, clauses=self.clauses, alias=self.alias, evolve=evolve)

            def begin(snapshot: Snapshot) -> Merging:
                return SparkMerge(self.spark, snapshot, self.source, statement)

            return run_in_session(self.spark, Merge(begin, self.clauses), self.log, alias=self.alias)

    def _with(self, on: ClauseOn, action: ClauseAction, condition: Any, values: _Values) -> DeltaMergeBuilder:
        assignments: Assignments | None = None
        if values is not None:
            assignments = tuple((column, self._by_name(value, on)) for column, value in values.items())
        clause = MergeClause(on=on, action=action, condition=self._by_name(condition, on), assignments=assignments)
        return replace(self, clauses=(*self.clauses, clause))


class RemoteMergeBuilder(Remote):
    """A merge of a remote table under construction; see ``DeltaMergeBuilder``."""

    whenMatchedUpdate = sent(DeltaMergeBuilder.whenMatchedUpdate, further)
    whenMatchedUpdateAll = sent(DeltaMergeBuilder.whenMatchedUpdateAll, further)
    whenMatchedDelete = sent(DeltaMergeBuilder.whenMatchedDelete, further)
    whenNotMatchedInsert = sent(DeltaMergeBuilder.whenNotMatchedInsert, further)
    whenNotMatchedInsertAll = sent(DeltaMergeBuilder.whenNotMatchedInsertAll, further)
    whenNotMatchedBySourceUpdate = sent(DeltaMergeBuilder.whenNotMatchedBySourceUpdate, further)
    whenNotMatchedBySourceDelete = sent(DeltaMergeBuilder.whenNotMatchedBySourceDelete, further)
    withSchemaEvolution = sent(DeltaMergeBuilder.withSchemaEvolution, further)
    execute = sent(DeltaMergeBuilder.execute, rows)


def merging(table: Any, call: Call) -> RemoteMergeBuilder:
    """Start the merge of a remote table; see ``sent``."""
    chain = table.chain
    given = chain.given.merging(call.arguments[0], chain.spark.client, TARGET_ALIAS)
    return RemoteMergeBuilder(replace(chain, given=given).then(call))
