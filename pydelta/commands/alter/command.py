"""Change a table's definition in one commit, or in none if nothing changes.

::

    plan (pure) -> do expressions resolve? -> do rows satisfy them? -> metaData, protocol or domain in one commit
         ^                                                                    |
         `------------- another writer changed the table in between <---------'

    AddColumns DropColumns RenameColumn ChangeColumn(s) ReplaceColumns  the schema: ``alter_columns``
    SyncIdentity                                                        an identity column's mark: ``alter_columns``
    SetProperties UnsetProperties SetComment                            ``alter_properties``
    AddConstraint DropConstraint                                        conditions on rows: ``alter_properties``
    ClusterBy                                                           the order of rows: ``alter_properties``

Planning does not read rows: ``AlterPlan.must_hold`` lists the conditions that existing rows must satisfy first.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field, replace
from typing import Final

from pydelta.commands.alter import columns as alter_columns
from pydelta.commands.alter import properties as alter_properties
from pydelta.commands.alter.requests import (
    AddColumns,
    AddConstraint,
    AlterPlan,
    Change,
    ChangeColumn,
    ChangeColumns,
    ClusterBy,
    DropColumns,
    DropConstraint,
    MustHold,
    RenameColumn,
    ReplaceColumns,
    SetComment,
    SetProperties,
    SyncIdentity,
    UnsetProperties,
)
from pydelta.commands.alter.track_rows import row_ids_for_all
from pydelta.commands.alter.unmap import run_without_mapping
from pydelta.commands.engine import Engine
from pydelta.commands.run import Attempt, Command
from pydelta.errors import ConstraintViolatedError, DeltaConcurrentModificationException, DeltaError
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog, Snapshot
from pydelta.protocol.actions import Action, Metadata
from pydelta.protocol.identity import identity_column
from pydelta.protocol.reader_notes import reader_notes
from pydelta.settings import TableProperties
from pydelta.txn import Committed

__all__ = ["Alter", "AlterResult", "plan_alter"]


def plan_alter(snapshot: Snapshot, change: Change) -> AlterPlan:
    """Decide the effect of a change on a table's definition. Pure.

    Args:
        snapshot: The table.
        change: The requested change.

    Raises:
        BindError: A column does not exist; the error suggests the nearest name.
        SchemaError: A column cannot be added, changed or dropped; the error says why.
        UnknownSettingError: A ``delta.*`` property is misspelled; the error suggests the nearest name.
        InvalidArgumentError: A value or a constraint is invalid.
        UnsafeOperationError: Something depends on the column; the error names it.
        UnsupportedFeatureError: It requires a feature that the table or this engine lacks.

    Protocol: "Change Metadata", "Column Mapping", "Type Widening", "CHECK Constraints".
    """
    match change:
        case AddColumns():
            return alter_columns.add(snapshot, change)
        case DropColumns():
            return alter_columns.drop(snapshot, change)
        case RenameColumn():
            return alter_columns.rename(snapshot, change)
        case ChangeColumn():
            return alter_columns.change(snapshot, change)
        case ChangeColumns():
            return alter_columns.change_together(snapshot, change)
        case ReplaceColumns():
            return alter_columns.replace(snapshot, change)
        case SetProperties():
            return alter_properties.set_properties(snapshot, change)
        case UnsetProperties():
            return alter_properties.unset_properties(snapshot, change)
        case SetComment():
            return alter_properties.set_comment(snapshot, change)
        case AddConstraint():
            return alter_properties.add_constraint(snapshot, change)
        case DropConstraint():
            return alter_properties.drop_constraint(snapshot, change)
        case ClusterBy():
            return alter_properties.cluster_by(snapshot, change)
        case SyncIdentity():
            return alter_columns.sync_identity(snapshot, change)


_ATTEMPTS: Final = 10
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterResult:
    """The result of an ALTER. ``version`` is the new version; None if nothing had to change."""

    version: int | None
    snapshot: Snapshot
    committed: Committed | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Alter(Command[AlterResult]):
    """Change a table's columns, properties, constraints or clustering, in one commit.

    If another transaction changes the table at the same time, the change is planned again on the new version, up to a
    limit.

    Args:
        change: The requested change.
        user_metadata: Free text for the history.

    Returns:
        The new version, and the state after it.

    Raises:
        ConstraintViolatedError: Existing rows violate the new rule; the error says how many, and shows one.
        InvalidArgumentError: The change needs rows or expressions, but there is no engine.
        And what ``plan_alter`` raises.

    Protocol: "Change Metadata", "Protocol Evolution".
    """

    change: Change
    user_metadata: str | None = None

    not_found = Condition.of("DELTA_MISSING_DELTA_TABLE")

    def tries_again(self, lost: DeltaConcurrentModificationException, attempt: Attempt, tries: int) -> bool:
        """See ``Command.tries_again``: retry unless all rows would be rewritten again."""
        return tries < _ATTEMPTS and not plan_alter(attempt.log.update(), self.change).rewrites

    def execute(self, attempt: Attempt) -> AlterResult:
        """See ``Command.execute``."""
        txn, snapshot, change = attempt.txn, attempt.snapshot, self.change
        assert snapshot.metadata is not None
        if isinstance(change, SyncIdentity):
            change = _with_furthest(attempt, change)
        plan = plan_alter(snapshot, change)
        if not plan.changed:
            return AlterResult(version=None, snapshot=snapshot)
        _check_expressions(snapshot, change, attempt.engine)
        if plan.must_hold:
            txn.read_whole_table(exactly=True)
            for rule in plan.must_hold:
                _check_rows(snapshot, rule, attempt.engine)
        if plan.protocol is not None:
            txn.update_protocol(plan.protocol)
        if plan.rewrites:
            committed = run_without_mapping(attempt, plan, self.user_metadata)
        else:
            actions: list[Action] = [] if plan.clustering is None else [plan.clustering]
            actions += _tracked(attempt, plan)
            txn.update_metadata(plan.metadata)
            committed = txn.commit(actions, plan.operation, user_metadata=self.user_metadata)
            _warn_of_readers(attempt.log, snapshot.metadata, plan.metadata)
        return AlterResult(version=committed.version, snapshot=committed.snapshot, committed=committed)


def _warn_of_readers(log: DeltaLog, before: Metadata, after: Metadata) -> None:
    """Warn about values that other engines misread after the change, if a metastore shows them the table."""
    if log.settings.sync_metastore or os.environ.get("PYDELTA_METASTORE"):
        known = reader_notes(before)
        for note in reader_notes(after):
            if note not in known:
                _log.warning("%s: %s", log.uri, note, extra={"table": log.uri})


def _with_furthest(attempt: Attempt, change: SyncIdentity) -> SyncIdentity:
    """Read the furthest value from the rows; rows that another transaction adds then conflict."""
    snapshot = attempt.snapshot
    identity = identity_column(snapshot.schema, change.column)
    attempt.txn.read_whole_table(exactly=True)
    if not snapshot.num_files:
        return replace(change, furthest=None)
    furthest = attempt.engine.furthest_value(snapshot, identity.column, lowest=identity.step < 0)
    return replace(change, furthest=furthest)


def _check_expressions(snapshot: Snapshot, change: Change, engine: Engine) -> None:
    if isinstance(change, AddConstraint):
        try:
            engine.check_condition(snapshot, change.expression)
        except DeltaError as error:
            raise error.called(_of_constraint(change, error)) from error.__cause__
    changes = change.changes if isinstance(change, ChangeColumns) else (change,)
    for one in changes:
        if isinstance(one, ChangeColumn) and one.default is not None:
            top = snapshot.schema.field(one.path[0])
            if top is not None and len(one.path) == 1:
                engine.check_default(one.default, one.data_type or top.data_type)


def _of_constraint(change: AddConstraint, error: DeltaError) -> Condition:
    """Return the condition for an expression that cannot be a constraint."""
    if error.code == "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN":
        return Condition.of("DELTA_NON_BOOLEAN_CHECK_CONSTRAINT", name=change.name, expr=change.expression)
    if error.code == "DELTA_UNSUPPORTED_SUBQUERY":
        return Condition.of("DELTA_UNSUPPORTED_EXPRESSION_CHECK_CONSTRAINT", expression=change.expression)
    if error.code == "INVALID_NON_DETERMINISTIC_EXPRESSIONS":
        return Condition.of("DELTA_NON_DETERMINISTIC_EXPRESSION_IN_CHECK_CONSTRAINT", expr=change.expression)
    return error.condition


def _check_rows(snapshot: Snapshot, rule: MustHold, engine: Engine) -> None:
    if not snapshot.num_files:
        return
    count, example = engine.rows_against(snapshot, rule.expression)
    if count:
        rows = "1 row of the table breaks" if count == 1 else f"{count} rows of the table break"
        which = "it is" if count == 1 else "one of them is"
        raise ConstraintViolatedError(
            f"{rows} the {rule.what}; {which} {example}.",
            hint="Correct or delete such rows first; nothing was changed.",
            condition=rule.broken(count, snapshot.table_uri),
        )


def _tracked(attempt: Attempt, plan: AlterPlan) -> list[Action]:
    """Return the file actions that assign row ids, if the change enables row tracking."""
    turned_on = TableProperties.parse(plan.metadata.configuration).enable_row_tracking
    if not turned_on or attempt.snapshot.properties.enable_row_tracking:
        return []
    return row_ids_for_all(attempt.log, attempt.txn)
