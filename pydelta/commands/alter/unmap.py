"""Remove column mapping from a table: rewrite every file under the columns' own names, in one commit.

::

    names that Parquet allows?  --no-->  refused: rename the columns first
    files already use the columns' names (mapping was enabled later)  -->  only the definition changes
    else: live rows --> new files --> counted against the old ones --> remove + add (dataChange=false) + metaData

Files that another writer adds at the same time conflict, because they have the old names. Protocol: "Column Mapping".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pydelta.commands.alter.clustering import CLUSTERING_DOMAIN, clustering_domain, clustering_paths
from pydelta.commands.alter.requests import AlterPlan
from pydelta.commands.change.hidden_rows import live_rows
from pydelta.commands.run import Attempt
from pydelta.errors import RowsDoNotAddUpError, SchemaError
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog, Snapshot
from pydelta.protocol.actions import AddFile
from pydelta.protocol.column_mapping import MODE, without_mapping
from pydelta.protocol.iceberg_compat import check_definition
from pydelta.protocol.schema import physical_name, validate_names
from pydelta.protocol.types import ArrayType, DataType, MapType, StructType
from pydelta.txn import Committed, Operation

__all__ = ["plan_without_mapping", "run_without_mapping"]

_PREFIX: Final = "delta.columnMapping."
_OPERATION: Final = "REMOVE COLUMN MAPPING"


def plan_without_mapping(snapshot: Snapshot, configuration: Mapping[str, str]) -> AlterPlan:
    """Compute the table's definition without column mapping. Pure.

    Args:
        snapshot: The table, with column mapping.
        configuration: Its properties afterwards; the plan drops those of column mapping, except the mode.

    Raises:
        SchemaError: Files cannot have the names of some columns; the error lists them all.
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
    return AlterPlan(
        metadata=made,
        operation=Operation(name=_OPERATION),
        clustering=clustering_domain(plain, clustering_paths(snapshot)) if clustered else None,
        rewrites=renamed and snapshot.num_files > 0,
    )


def run_without_mapping(attempt: Attempt, plan: AlterPlan, user_metadata: str | None) -> Committed:
    """Rewrite all rows and commit the plan.

    Args:
        attempt: Its snapshot is the one that was planned on.
        plan: By ``plan_without_mapping``, where files must be rewritten.
        user_metadata: Free text for the history.

    Raises:
        RowsDoNotAddUpError: The new files hold other rows than the old ones; they are deleted.
    """
    txn, snapshot = attempt.txn, attempt.snapshot
    txn.read_whole_table(exactly=True)
    old = list(snapshot.files.adds(snapshot.files.core))
    written = attempt.stage(attempt.engine.rewrite_as(snapshot, plan.metadata))
    _check_rows(attempt.log, old, written.num_rows)
    adds = [add.replace(data_change=False) for add in written.adds]
    actions = [*attempt.rearranged(old, adds), *([] if plan.clustering is None else [plan.clustering])]
    metrics = {
        "numRemovedFiles": len(old),
        "numAddedFiles": len(adds),
        "numOutputRows": written.num_rows,
        "numOutputBytes": sum(add.size for add in adds),
    }
    txn.update_metadata(plan.metadata)
    return txn.commit(actions, Operation(name=_OPERATION, metrics=metrics), user_metadata=user_metadata)


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
            f"Column mapping cannot be removed: without it, files cannot use names like those in {names}.",
            hint="Rename the columns first, without any of ' ,;{}()\\n\\t=': ALTER TABLE … RENAME COLUMN.",
            condition=Condition.of("DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING", invalidColumnNames=wrong),
        )


def _names(data_type: DataType) -> Iterator[tuple[str, str]]:
    """Yield the names of every field, at any depth, in the files and in the table."""
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
    counted = live_rows(old, log, by_footer=True)  # The log's counts may be wrong.
    if counted != written:
        raise RowsDoNotAddUpError(
            f"The table's files hold {counted} rows, but the files that were to replace them hold {written}.",
            hint="Nothing was changed. This is a defect of the engine or of a disk; report it.",
        )
