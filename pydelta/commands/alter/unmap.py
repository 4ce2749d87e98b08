"""Remove column mapping from a table: every file is written anew under the columns' own names, in one commit.

::

    names that Parquet takes?  --no-->  refused: rename the columns first
    every column has its name in the files already (mapping was turned on later)  -->  the definition alone changes
    else: live rows --> new files --> counted against the old ones --> remove + add (dataChange=false) + metaData

Whatever another writer adds meanwhile is a conflict: it would be under the old names. Protocol: "Column Mapping".
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from pydelta.commands.alter.clustering import CLUSTERING_DOMAIN, clustering_domain, clustering_paths
from pydelta.commands.alter.requests import Plan
from pydelta.commands.change.hidden_rows import live_rows
from pydelta.commands.engine import RewriteOutput
from pydelta.errors import DeltaError, RowsDoNotAddUpError, SchemaError
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog, Snapshot
from pydelta.protocol.actions import Action, AddCDCFile, AddFile, Metadata
from pydelta.protocol.column_mapping import MODE, without_mapping
from pydelta.protocol.iceberg_compat import check_definition
from pydelta.protocol.schema import physical_name, validate_names
from pydelta.protocol.types import ArrayType, DataType, MapType, StructType
from pydelta.txn import Committed, Operation, OptimisticTransaction

__all__ = ["RewritingEngine", "plan_without_mapping", "run_without_mapping"]

_PREFIX: Final = "delta.columnMapping."
_OPERATION: Final = "REMOVE COLUMN MAPPING"


class RewritingEngine(Protocol):
    """Writes a table's rows for another definition."""

    def rewrite_as(self, snapshot: Snapshot, metadata: Metadata) -> RewriteOutput:
        """Write all live rows into new files that look as the definition has it; row ids are kept."""

    def discard(self, snapshot: Snapshot, adds: tuple[AddFile | AddCDCFile, ...]) -> None:
        """Delete files that a failed command wrote."""


def plan_without_mapping(snapshot: Snapshot, configuration: Mapping[str, str]) -> Plan:
    """Decide what the table is without column mapping. Pure.

    Args:
        snapshot: The table, with column mapping.
        configuration: Its properties afterwards; those of column mapping, its mode apart, are left out.

    Raises:
        SchemaError: Columns whose names files do not take; all are named.
        UnsupportedFeatureError: Compatibility with Iceberg needs column mapping.
    """
    old = snapshot.metadata
    assert old is not None
    assert snapshot.protocol is not None
    kept = {key: value for key, value in configuration.items() if not key.startswith(_PREFIX) or key == MODE}
    plain = without_mapping(snapshot.schema)
    _check_names(snapshot)
    made = old.replace(schema_string=plain.to_json(), configuration=kept)
    check_definition(made, snapshot.protocol, old)
    clustered = CLUSTERING_DOMAIN in snapshot.domain_metadata
    renamed = any(path != name for path, name in _names(snapshot.schema))
    return Plan(
        metadata=made,
        operation=Operation(name=_OPERATION),
        clustering=clustering_domain(plain, clustering_paths(snapshot)) if clustered else None,
        rewrites=renamed and snapshot.num_files > 0,
    )


def run_without_mapping(
    log: DeltaLog, txn: OptimisticTransaction, plan: Plan, engine: RewritingEngine, user_metadata: str | None
) -> Committed:
    """Write the rows anew and commit the plan.

    Args:
        log: The table.
        txn: Begun; its snapshot is what was planned on.
        plan: By ``plan_without_mapping``, where files have to be written anew.
        engine: Reads and writes rows.
        user_metadata: Free text for the history.

    Raises:
        RowsDoNotAddUpError: The new files hold other rows than the old ones; they are removed again.
        DeltaConcurrentModificationException: Another transaction changed the table meanwhile; nothing was changed.
    """
    snapshot = txn.snapshot
    txn.read_whole_table(exactly=True)
    old = list(snapshot.files.adds(snapshot.files.core))
    written = engine.rewrite_as(snapshot, plan.metadata)
    try:
        _check_rows(log, old, written.num_rows)
        now_ms = time.time_ns() // 1_000_000
        adds = [add.replace(data_change=False) for add in written.adds]
        actions: list[Action] = [add.remove(deletion_timestamp=now_ms, data_change=False) for add in old]
        actions += [*adds, *([] if plan.clustering is None else [plan.clustering])]
        metrics = {
            "numRemovedFiles": len(old),
            "numAddedFiles": len(adds),
            "numOutputRows": written.num_rows,
            "numOutputBytes": sum(add.size for add in adds),
        }
        txn.update_metadata(plan.metadata)
        return txn.commit(actions, Operation(name=_OPERATION, metrics=metrics), user_metadata=user_metadata)
    except DeltaError:
        if txn.surely_not_landed:
            engine.discard(snapshot, written.files)
        raise


def _check_names(snapshot: Snapshot) -> None:
    wrong = []
    for field in snapshot.schema.fields:
        try:
            validate_names(StructType((field,)))
        except SchemaError:
            wrong.append(field.name)
    if wrong:
        names = ", ".join(map(repr, wrong))
        raise SchemaError(
            f"Column mapping cannot be removed: without it, files do not take names like those in {names}.",
            hint="Rename the columns first, without any of ' ,;{}()\\n\\t=': ALTER TABLE … RENAME COLUMN.",
            condition=Condition.of("DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING", invalidColumnNames=wrong),
        )


def _names(data_type: DataType) -> Iterator[tuple[str, str]]:
    """Names in the files and in the table, of every field at any depth."""
    if isinstance(data_type, StructType):
        for field in data_type.fields:
            yield physical_name(field), field.name
            yield from _names(field.data_type)
    elif isinstance(data_type, ArrayType):
        yield from _names(data_type.element_type)
    elif isinstance(data_type, MapType):
        yield from _names(data_type.key_type)
        yield from _names(data_type.value_type)


def _check_rows(log: DeltaLog, old: list[AddFile], written: int) -> None:
    if live_rows(old, log) == written:
        return
    there = live_rows(old, log, by_footer=True)  # what the log says of a file may be wrong
    if there != written:
        raise RowsDoNotAddUpError(
            f"The table's files hold {there} rows, and {written} are in the files that were to replace them.",
            hint="Nothing was changed. This is a defect of the engine or of a disk; report it.",
        )
