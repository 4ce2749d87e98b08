"""Find what in a table's definition depends on a column, described for error messages. Pure.

Expressions are searched word by word. A name that could be the column counts as the column, so that no constraint loses
one that it needs. Function names, types after AS and string literals do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydelta.errors import SchemaError, UnsafeOperationError
from pydelta.errors.conditions import Condition
from pydelta.log import Snapshot
from pydelta.protocol.schema_edits import name_of
from pydelta.protocol.types import StructField, StructType

__all__ = [
    "CONSTRAINT_PREFIX",
    "GENERATION",
    "IDENTITY",
    "dependants",
    "mentions",
    "refuse_needed",
    "refuse_type_change",
]

CONSTRAINT_PREFIX: Final = "delta.constraints."
GENERATION: Final = "delta.generationExpression"
IDENTITY: Final = "delta.identity."

_TOKEN: Final = re.compile(
    r"(?P<text>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<name>(?:`(?:[^`]|``)+`|[A-Za-z_][A-Za-z0-9_]*)(?:\s*\.\s*(?:`(?:[^`]|``)+`|[A-Za-z_][A-Za-z0-9_]*))*)"
    r"|(?P<other>\S)"
)
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([A-Za-z_][A-Za-z0-9_]*)")


def _names(expression: str) -> Iterator[tuple[str, ...]]:
    """Yield the names in an expression that may be columns, in lower case, split at dots."""
    before = ""
    for match in _TOKEN.finditer(expression):
        text = match.group("name")
        if text is None:
            before = ""
            continue
        called = expression[match.end() :].lstrip().startswith("(")
        if not (called and "`" not in text) and before != "as":
            yield tuple(
                (quoted.replace("``", "`") if quoted else plain).lower() for quoted, plain in _PART.findall(text)
            )
        before = text.lower()


def mentions(expression: str, path: tuple[str, ...]) -> bool:
    """Return whether an SQL expression may read the column, one of its fields, or a struct that contains it."""
    wanted = tuple(part.lower() for part in path)
    for name in _names(expression):
        shorter = min(len(name), len(wanted))
        if name[:shorter] == wanted[:shorter]:
            return True
    return False


@dataclass(frozen=True, slots=True)
class Dependant:
    """Something that depends on a column.

    Args:
        what: Its description for a message.
        condition: The condition of the error that refuses to drop or rename the column.
        retyped: The condition of the error that refuses to change its type.
    """

    what: str
    condition: Condition
    retyped: Condition

    def __str__(self) -> str:
        return self.what


def dependants(
    schema: StructType,
    configuration: Mapping[str, str],
    path: tuple[str, ...],
    *,
    partition_columns: tuple[str, ...] = (),
    clustering: tuple[tuple[str, ...], ...] = (),
) -> tuple[Dependant, ...]:
    """List what depends on a column.

    Args:
        schema: The table's schema.
        configuration: Its properties.
        path: The column, in the schema's spelling.
        partition_columns: The table's partition columns; empty to ignore partitioning.
        clustering: The table's clustering columns; likewise.
    """
    wanted = tuple(part.lower() for part in path)
    fixed = Condition.of("DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP", fieldPath=name_of(path))
    found = []
    for key, expression in configuration.items():
        if key.startswith(CONSTRAINT_PREFIX) and mentions(expression, path):
            what = f"the CHECK constraint {key.removeprefix(CONSTRAINT_PREFIX)} ({expression})"
            needed = {"columnName": name_of(path), "constraints": f"{key} -> {expression}"}
            found.append(
                Dependant(
                    what,
                    Condition.of("DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE", **needed),
                    Condition.of("DELTA_CONSTRAINT_DATA_TYPE_MISMATCH", **needed),
                )
            )
    for field in schema.fields:
        formula = _generation(field)
        if formula is not None and field.name.lower() != wanted[0] and mentions(formula, path):
            what = f"the generated column {name_of((field.name,))} ({formula})"
            needed = {"columnName": name_of(path), "generatedColumns": f"{field.name} -> {formula}"}
            found.append(
                Dependant(
                    what,
                    Condition.of("DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE", **needed),
                    Condition.of("DELTA_GENERATED_COLUMNS_DATA_TYPE_MISMATCH", **needed),
                )
            )
    if len(path) == 1 and wanted[0] in {column.lower() for column in partition_columns}:
        condition = Condition.of("DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN", columnList=name_of(path))
        found.append(Dependant(f"the partitioning ({', '.join(partition_columns)})", condition, fixed))
    for column in clustering:
        folded = tuple(part.lower() for part in column)
        if folded[: len(wanted)] == wanted:
            condition = Condition.of("DELTA_UNSUPPORTED_DROP_CLUSTERING_COLUMN", columnList=name_of(column))
            found.append(Dependant(f"the clustering by {name_of(column)}", condition, fixed))
    return tuple(found)


def _generation(field: StructField) -> str | None:
    expression = field.metadata.get(GENERATION)
    return None if expression is None else str(expression)


def refuse_needed(path: tuple[str, ...], needing: Sequence[Dependant], what: str, *, retyped: bool = False) -> None:
    """Check that nothing depends on a column.

    Raises:
        UnsafeOperationError: Something does; the error names it.
    """
    if needing:
        raise UnsafeOperationError(
            f"{name_of(path)} cannot be {what}: it is needed by {'; '.join(map(str, needing))}.",
            hint="Drop the constraint or column that needs it first; partitioning is changed by overwriting the table, "
            "clustering with ALTER TABLE … CLUSTER BY.",
            condition=needing[0].retyped if retyped else needing[0].condition,
        )


def refuse_type_change(snapshot: Snapshot, path: tuple[str, ...]) -> None:
    """Check that the type of a column may change.

    Raises:
        UnsafeOperationError: Something depends on its type.
        SchemaError: It is a generated or identity column.
    """
    metadata = snapshot.metadata
    assert metadata is not None
    partitions = snapshot.partition_columns
    needing = dependants(snapshot.schema, metadata.configuration, path, partition_columns=partitions)
    refuse_needed(path, needing, "of another type", retyped=True)
    top = snapshot.schema.field(path[0])
    if top is not None and any(key == GENERATION or key.startswith(IDENTITY) for key in top.metadata):
        raise SchemaError(
            f"{name_of(path)} is a generated or identity column, whose type cannot be changed.",
            hint="Make a new table with the other type.",
            condition=Condition.of("DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED"),
        )
