"""Change a table's definition in one commit, or in none where the table already is as asked.

::

    plan (pure) -> do expressions resolve? -> do rows satisfy them? -> metaData, protocol or domain in one commit
         ^                                                                    |
         `------------- another writer changed the table meanwhile <----------'
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from pydelta.commands.alter.plan import plan_alter
from pydelta.commands.alter.requests import (
    AddConstraint,
    Change,
    ChangeColumn,
    ChangeColumns,
    MustHold,
    Plan,
    SyncIdentity,
)
from pydelta.commands.alter.track_rows import row_ids_for_all
from pydelta.commands.alter.unmap import RewritingEngine, run_without_mapping
from pydelta.errors import (
    ConstraintViolatedError,
    DeltaConcurrentModificationException,
    DeltaError,
    InvalidArgumentError,
    TableNotFoundError,
    error_context,
)
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog, Snapshot
from pydelta.protocol.actions import Action, Metadata
from pydelta.protocol.identity import identity_column
from pydelta.protocol.reader_notes import reader_notes
from pydelta.protocol.types import DataType
from pydelta.settings import TableProperties
from pydelta.txn import Begin, Committed, OptimisticTransaction, start_transaction

__all__ = ["AlterResult", "SchemaEngine", "alter_table"]

_ATTEMPTS: Final = 10
_log = logging.getLogger(__name__)


class SchemaEngine(RewritingEngine, Protocol):
    """Understands SQL expressions and reads rows."""

    def check_condition(self, snapshot: Snapshot, expression: str) -> None:
        """Check that a condition can be evaluated over the table's rows.

        Raises:
            ParseError: The text is not an expression.
            BindError: It names a column that the table does not have.
            InvalidArgumentError: It is not boolean or not deterministic, or holds a subquery or an aggregate.
        """

    def check_default(self, expression: str, data_type: DataType) -> None:
        """Check that an expression can be the default of a column.

        Raises:
            ParseError, BindError, InvalidArgumentError: It does not parse, names a column, or is of another type.
        """

    def rows_against(self, snapshot: Snapshot, expression: str) -> tuple[int, str | None]:
        """Count the rows for which the condition is not true, and show one of them as text."""

    def furthest_value(self, snapshot: Snapshot, column: str, *, lowest: bool) -> int | None:
        """Return the highest or lowest value of a bigint column; None where no row has one."""

    def committed(self, snapshot: Snapshot) -> None:
        """Refresh what the engine caches over the table; called after the commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterResult:
    """``version`` is the one that the change made; None where the table was as asked for already."""

    version: int | None
    snapshot: Snapshot
    committed: Committed | None = field(default=None, repr=False, compare=False)


def alter_table(
    log: DeltaLog,
    change: Change,
    *,
    engine: SchemaEngine | None = None,
    user_metadata: str | None = None,
    begin: Begin = start_transaction,
) -> AlterResult:
    """Change a table's columns, properties, constraints or clustering, in one commit.

    When another transaction changes the table meanwhile, the change is planned anew on what it left, some times.

    Args:
        log: The table.
        change: What is to be another.
        engine: For constraints, NOT NULL and defaults; None will do where no expression and no row has to be asked.
        user_metadata: Free text for the history.
        begin: Starts a transaction.

    Returns:
        The version made, and the state after it.

    Raises:
        TableNotFoundError: There is no table.
        ConstraintViolatedError: Rows that are there break the new rule: how many, and one of them.
        DeltaConcurrentModificationException: Others changed the table again and again; nothing was committed.
        And what ``plan_alter`` raises.

    Protocol: "Change Metadata", "Protocol Evolution".
    """
    with error_context(table=log.uri):
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return _attempt(log, change, engine, user_metadata, begin)
            except DeltaConcurrentModificationException:
                if attempt == _ATTEMPTS or plan_alter(log.update(), change).rewrites:  # not a table's rows again
                    raise
        raise AssertionError("unreachable")


def _attempt(
    log: DeltaLog,
    change: Change,
    engine: SchemaEngine | None,
    user_metadata: str | None,
    begin: Begin,
) -> AlterResult:
    txn = begin(log)
    if engine is not None:
        txn.notifying(engine.committed)
    snapshot = txn.snapshot
    if snapshot.metadata is None:
        raise TableNotFoundError(
            f"There is no Delta table at {log.uri}.",
            hint="Check the name or the location.",
            condition=Condition.of("DELTA_MISSING_DELTA_TABLE", tableName=log.uri),
        )
    if isinstance(change, SyncIdentity):
        change = _with_furthest(txn, change, engine)
    plan = plan_alter(snapshot, change)
    if not plan.changed:
        return AlterResult(version=None, snapshot=snapshot)
    _check_expressions(snapshot, change, engine)
    if plan.must_hold:
        txn.read_whole_table(exactly=True)
        for rule in plan.must_hold:
            _check_rows(snapshot, rule, engine)
    if plan.rewrites:
        if plan.protocol is not None:
            txn.update_protocol(plan.protocol)
        committed = run_without_mapping(log, txn, plan, _need(engine), user_metadata)
        return AlterResult(version=committed.version, snapshot=committed.snapshot, committed=committed)
    actions: list[Action] = [] if plan.clustering is None else [plan.clustering]
    actions += _tracked(log, txn, plan)
    txn.update_metadata(plan.metadata)
    if plan.protocol is not None:
        txn.update_protocol(plan.protocol)
    committed = txn.commit(actions, plan.operation, user_metadata=user_metadata)
    _warn_of_readers(log, snapshot.metadata, plan.metadata)
    return AlterResult(version=committed.version, snapshot=committed.snapshot, committed=committed)


def _warn_of_readers(log: DeltaLog, before: Metadata, after: Metadata) -> None:
    """Log what other engines read wrongly after the change, where a metastore lets them find the table."""
    if log.settings.sync_metastore or os.environ.get("PYDELTA_METASTORE"):
        known = reader_notes(before)
        for note in reader_notes(after):
            if note not in known:
                _log.warning("%s: %s", log.uri, note, extra={"table": log.uri})


def _with_furthest(txn: OptimisticTransaction, change: SyncIdentity, engine: SchemaEngine | None) -> SyncIdentity:
    """Ask the rows how far they have come; another transaction's rows then count as a conflict."""
    snapshot = txn.snapshot
    identity = identity_column(snapshot.schema, change.column)
    txn.read_whole_table(exactly=True)
    if not snapshot.num_files:
        return replace(change, furthest=None)
    furthest = _need(engine).furthest_value(snapshot, identity.column, lowest=identity.step < 0)
    return replace(change, furthest=furthest)


def _check_expressions(snapshot: Snapshot, change: Change, engine: SchemaEngine | None) -> None:
    if isinstance(change, AddConstraint):
        try:
            _need(engine).check_condition(snapshot, change.expression)
        except DeltaError as error:
            raise error.called(_of_constraint(change, error)) from error.__cause__
    changes = change.changes if isinstance(change, ChangeColumns) else (change,)
    for one in changes:
        if isinstance(one, ChangeColumn) and one.default is not None:
            top = snapshot.schema.field(one.path[0])
            if top is not None and len(one.path) == 1:
                _need(engine).check_default(one.default, one.data_type or top.data_type)


def _of_constraint(change: AddConstraint, error: DeltaError) -> Condition:
    """Tell what it is called that a condition of rows cannot be a constraint."""
    if error.code == "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN":
        return Condition.of("DELTA_NON_BOOLEAN_CHECK_CONSTRAINT", name=change.name, expr=change.expression)
    if error.code == "DELTA_UNSUPPORTED_SUBQUERY":
        return Condition.of("DELTA_UNSUPPORTED_EXPRESSION_CHECK_CONSTRAINT", expression=change.expression)
    if error.code == "INVALID_NON_DETERMINISTIC_EXPRESSIONS":
        return Condition.of("DELTA_NON_DETERMINISTIC_EXPRESSION_IN_CHECK_CONSTRAINT", expr=change.expression)
    return error.condition


def _check_rows(snapshot: Snapshot, rule: MustHold, engine: SchemaEngine | None) -> None:
    if not snapshot.num_files:
        return
    count, example = _need(engine).rows_against(snapshot, rule.expression)
    if count:
        rows = "1 row of the table breaks" if count == 1 else f"{count} rows of the table break"
        which = "it is" if count == 1 else "one of them is"
        raise ConstraintViolatedError(
            f"{rows} the {rule.what}; {which} {example}.",
            hint="Correct or delete such rows first; nothing was changed.",
            condition=rule.broken(count, snapshot.table_uri),
        )


def _need(engine: SchemaEngine | None) -> SchemaEngine:
    if engine is None:
        raise InvalidArgumentError(
            "This change needs to resolve an expression or read rows, which takes a Spark session.",
            hint="Run it in a Spark session, with ALTER TABLE.",
        )
    return engine


def _tracked(log: DeltaLog, txn: OptimisticTransaction, plan: Plan) -> list[Action]:
    """File actions that give the rows ids, where the change turns row tracking on."""
    turned_on = TableProperties.parse(plan.metadata.configuration).enable_row_tracking
    if not turned_on or txn.snapshot.properties.enable_row_tracking:
        return []
    return row_ids_for_all(log, txn)
