"""Check the columns that rows are clustered by, and store them as a clustered table does. Pure.

Protocol: "Clustered Table": the columns' physical paths are in the metadata domain ``delta.clustering``, and clustered
files name the implementation that ordered them in ``clusteringProvider``. Provider and tags are those of the reference
engine, so that each engine recognizes the other's files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from pydelta.errors import BindError, InvalidArgumentError, SchemaError
from pydelta.errors.conditions import Condition
from pydelta.log import Snapshot
from pydelta.protocol.actions import DomainMetadata, Metadata, encode_json
from pydelta.protocol.features import supports
from pydelta.protocol.malformed import MALFORMED_JSON
from pydelta.protocol.names import path_text, unquoted
from pydelta.protocol.schema import parse_schema, physical_name
from pydelta.protocol.stats import has_bounds, leaves_with_stats
from pydelta.protocol.types import DataType, StructField, StructType
from pydelta.settings import TableProperties

__all__ = [
    "CLUSTERING_DOMAIN",
    "CLUSTERING_FEATURES",
    "MAX_CLUSTERING_COLUMNS",
    "PROVIDER",
    "ZCUBE_COLUMNS",
    "ZCUBE_ID",
    "Path",
    "check_layout",
    "check_order_columns",
    "check_still_clustered",
    "clustering_domain",
    "clustering_of_write",
    "clustering_paths",
    "layout_paths",
    "path_text",
    "plan_clustering",
    "restored_clustering",
]

CLUSTERING_DOMAIN: Final = "delta.clustering"
CLUSTERING_FEATURES: Final = ("clustering", "domainMetadata")
PROVIDER: Final = "liquid"
"""The ``clusteringProvider`` of the reference engine and of this one."""
ZCUBE_ID: Final = "ZCUBE_ID"
"""Tag with the id of the run that ordered a file."""
ZCUBE_COLUMNS: Final = "ZCUBE_ZORDER_BY"
"""Tag with the columns of that order, as a JSON list."""
_ZORDER: Final = "ZORDER BY"
MAX_CLUSTERING_COLUMNS: Final = 4

Path: TypeAlias = tuple[str, ...]
"""Names of a column from the top level down."""


def clustering_paths(snapshot: Snapshot) -> tuple[Path, ...]:
    """Return logical paths of the columns that the table is clustered by; empty if it is not clustered."""
    domain = snapshot.domain_metadata.get(CLUSTERING_DOMAIN)
    if domain is None:
        return ()
    try:
        columns = json.loads(domain.configuration)["clusteringColumns"]
    except (*MALFORMED_JSON, KeyError, TypeError):
        return ()
    if not isinstance(columns, list):
        return ()
    return tuple(_logical(snapshot.schema, path) for path in columns if isinstance(path, list))


def _logical(schema: StructType, physical: Sequence[Any]) -> Path:
    names: list[str] = []
    level: Any = schema
    for part in physical:
        fields = level.fields if isinstance(level, StructType) else ()
        field = next((item for item in fields if physical_name(item) == part), None)
        names.append(field.name if field else str(part))
        level = field.data_type if field else None
    return tuple(names)


def clustering_domain(schema: StructType, columns: Sequence[Path]) -> DomainMetadata:
    """Build the domain action with a table's clustering; without columns it ends the clustering."""
    physical = [[physical_name(field) for field in _fields(schema, path) or ()] for path in columns]
    configuration = encode_json({"clusteringColumns": physical, "domainName": CLUSTERING_DOMAIN})
    return DomainMetadata(domain=CLUSTERING_DOMAIN, configuration=configuration, removed=False)


def plan_clustering(metadata: Metadata, names: Sequence[str]) -> DomainMetadata | None:
    """Return the domain for a table to be clustered; None if no column is named.

    Args:
        metadata: The table's definition.
        names: Columns, dotted for nested fields.

    Raises:
        BindError: The table has no such column.
        InvalidArgumentError: The table is also partitioned, or there are more than four columns, or one without
            statistics.
    """
    if not names:
        return None
    if metadata.partition_columns:
        raise InvalidArgumentError(
            f"The table is partitioned by {', '.join(metadata.partition_columns)}, so it cannot be clustered too.",
            hint="Use clusterBy alone: it serves conditions on the partition columns as well.",
            condition=Condition.of("DELTA_ALTER_TABLE_CLUSTER_BY_ON_PARTITIONED_TABLE_NOT_ALLOWED"),
        )
    if len(names) > MAX_CLUSTERING_COLUMNS:
        raise InvalidArgumentError(
            f"CLUSTER BY names {len(names)} columns; at most {MAX_CLUSTERING_COLUMNS} are allowed.",
            hint="Name those that conditions use most.",
            condition=Condition.of(
                "DELTA_CLUSTER_BY_INVALID_NUM_COLUMNS",
                numColumnsLimit=MAX_CLUSTERING_COLUMNS,
                actualNumColumns=len(names),
            ),
        )
    schema = parse_schema(metadata.schema_string)
    properties = TableProperties.parse(metadata.configuration)
    paths = check_order_columns(schema, names, partition_columns=(), properties=properties, purpose="CLUSTER BY")
    return clustering_domain(schema, paths)


def check_layout(snapshot: Snapshot, partition_columns: Sequence[str], cluster_by: Sequence[str] | None) -> None:
    """Refuse a new definition that is both partitioned and clustered, or partitioned and replaces a clustered one.

    Args:
        snapshot: The table to replace; version -1 if there is none.
        partition_columns: The partition columns of the new definition.
        cluster_by: Columns that it is clustered by.

    Raises:
        InvalidArgumentError: See above.
    """
    if not partition_columns:
        return
    named = ", ".join(partition_columns)
    if cluster_by:
        raise InvalidArgumentError(
            f"The table is to be partitioned by {named} and clustered by {', '.join(cluster_by)}.",
            hint="Use clusterBy alone: it serves conditions on the partition columns as well.",
            condition=Condition.of("DELTA_CLUSTER_BY_WITH_PARTITIONED_BY"),
        )
    if snapshot.protocol is not None and supports(snapshot.protocol, CLUSTERING_FEATURES[0]):
        raise InvalidArgumentError(
            f"The table is clustered, so it cannot be replaced by one that is partitioned by {named}.",
            hint="Leave the partitions out, or drop the table first.",
            condition=Condition.of("DELTA_CLUSTERING_REPLACE_TABLE_WITH_PARTITIONED_TABLE"),
        )


def restored_clustering(current: Snapshot, target: Snapshot) -> DomainMetadata | None:
    """Return a RESTORE's change of clustering: to the old version's columns or to none; None if nothing changes.

    Args:
        current: The newest version.
        target: The version to restore.
    """
    now, then = (item.domain_metadata.get(CLUSTERING_DOMAIN) for item in (current, target))
    if now == then:
        return None
    return then if then is not None else clustering_domain(target.schema, ())


def check_still_clustered(snapshot: Snapshot, metadata: Metadata | None) -> None:
    """Refuse a new definition that no longer fits the table's clustering.

    Args:
        snapshot: The table.
        metadata: Its new definition; None if unchanged.

    Raises:
        SchemaError: A clustering column is missing, or the table would also be partitioned.
    """
    paths = clustering_paths(snapshot)
    if metadata is None or not paths:
        return
    schema = parse_schema(metadata.schema_string)
    lost = [path_text(path) for path in paths if _fields(schema, path) is None]
    if lost or metadata.partition_columns:
        what = f"has no column {', '.join(lost)}" if lost else "is partitioned"
        raise SchemaError(
            f"The table is clustered by {', '.join(path_text(path) for path in paths)}, but its new definition {what}.",
            hint="Replace the table with DeltaTable.replace(…), with clusterBy or without, and then write.",
        )


def clustering_of_write(
    snapshot: Snapshot, metadata: Metadata | None, cluster_by: Sequence[str] | None, *, redefined: bool
) -> DomainMetadata | None:
    """Return how a write changes the table's clustering, or None if it does not.

    Args:
        snapshot: The table; version -1 if there is none.
        metadata: Its new definition; None if unchanged.
        cluster_by: Columns that the writer named, or None.
        redefined: Whether the write redefines the table, which without ``cluster_by`` ends its clustering.

    Raises:
        BindError, InvalidArgumentError: The table cannot be clustered by these columns, or is clustered by others.
        SchemaError: See ``check_still_clustered``.
    """
    definition = metadata or snapshot.metadata
    if definition is not None and (snapshot.version < 0 or redefined):
        made = plan_clustering(definition, cluster_by or ())
        if made is None and clustering_paths(snapshot):
            return clustering_domain(parse_schema(definition.schema_string), ())
        return made
    current = clustering_paths(snapshot)
    if cluster_by is not None:
        named = layout_paths(snapshot, cluster_by, purpose="CLUSTER BY")
        if named != current:
            now = ", ".join(path_text(path) for path in current) or "nothing"
            raise InvalidArgumentError(
                f"clusterBy names {', '.join(cluster_by)}, but the table is clustered by {now}.",
                hint="Leave clusterBy out, or replace the table.",
                condition=Condition.of(
                    "DELTA_CLUSTERING_COLUMNS_MISMATCH",
                    providedClusteringColumns=cluster_by,
                    existingClusteringColumns=now,
                ),
            )
    check_still_clustered(snapshot, metadata)
    return None


def layout_paths(snapshot: Snapshot, names: Sequence[str], *, purpose: str) -> tuple[Path, ...]:
    """Check names of columns and resolve them to paths; see ``check_order_columns``."""
    return check_order_columns(
        snapshot.schema,
        names,
        partition_columns=snapshot.partition_columns,
        properties=snapshot.properties,
        purpose=purpose,
    )


def check_order_columns(
    schema: StructType,
    names: Sequence[str],
    *,
    partition_columns: Sequence[str],
    properties: TableProperties,
    purpose: str,
) -> tuple[Path, ...]:
    """Resolve names of columns to their logical paths, if ordering rows by them is useful.

    Args:
        schema: The table's logical schema.
        names: Dotted for nested fields, with backticks around unusual names; case is ignored.
        partition_columns: Logical names.
        properties: Determine which columns have statistics.
        purpose: ``ZORDER BY`` or ``CLUSTER BY``, for the messages.

    Raises:
        BindError: The table has no such column.
        InvalidArgumentError: A column is a partition column, is named twice, or has no statistics, so that its order
            would help no query.
    """
    found: list[Path] = []
    with_stats = {
        tuple(part.lower() for part in path): data_type
        for path, data_type in leaves_with_stats(schema, properties, partition_columns)
    }
    for name in names:
        fields = _resolve(schema, name)
        if fields is None:
            raise BindError(
                f"{purpose} names the column {name!r}, which the table does not have.",
                hint=f"The table's columns are: {', '.join(field.name for field in schema.fields)}.",
                condition=Condition.of("DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST", columnName=name)
                if purpose == _ZORDER
                else Condition.of("DELTA_COLUMN_NOT_FOUND_IN_SCHEMA", columnName=name, tableSchema=schema.tree()),
            )
        path = tuple(field.name for field in fields)
        if len(path) == 1 and path[0].lower() in {column.lower() for column in partition_columns}:
            raise InvalidArgumentError(
                f"{purpose} names {path_text(path)}, which is a partition column: each of its values already has its "
                "own files.",
                hint="Name other columns.",
                condition=Condition.of("DELTA_ZORDERING_ON_PARTITION_COLUMN", colName=path_text(path)),
            )
        if path in found:
            raise InvalidArgumentError(
                f"{purpose} names {path_text(path)} twice.",
                hint="Name each column once.",
                condition=Condition.of("DELTA_DUPLICATE_COLUMNS_FOUND.CLUSTER_BY", duplicateCols=path_text(path)),
            )
        _refuse_without_statistics(path, fields[-1].data_type, with_stats, purpose)
        found.append(path)
    return tuple(found)


def _refuse_without_statistics(path: Path, data_type: DataType, with_stats: dict[Path, DataType], purpose: str) -> None:
    if not has_bounds(data_type):
        raise InvalidArgumentError(
            f"{purpose} names {path_text(path)} of type {data_type}, for which files keep no minimum and maximum.",
            hint="Name columns of numbers, strings, dates or times.",
            condition=Condition.of(
                "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED",
                columnsWithDataTypes=f"{path_text(path)} : {str(data_type).upper()}",
            ),
        )
    if tuple(part.lower() for part in path) not in with_stats:
        raise InvalidArgumentError(
            f"{purpose} names {path_text(path)}, which has no statistics: no query could skip a file.",
            hint="Add it to delta.dataSkippingStatsColumns, or raise delta.dataSkippingNumIndexedCols.",
            condition=Condition.of("DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS", cols=path_text(path))
            if purpose == _ZORDER
            else Condition.of("DELTA_CLUSTERING_COLUMN_MISSING_STATS", columns=path_text(path)),
        )


def _resolve(schema: StructType, name: str) -> tuple[StructField, ...] | None:
    """Return the fields along a name in SQL syntax; a column with dots in its name is also found without backticks."""
    try:
        found = _fields(schema, unquoted(name))
    except InvalidArgumentError:
        found = None
    return found or _fields(schema, (name,))


def _fields(schema: StructType, path: Path) -> tuple[StructField, ...] | None:
    """Return the fields along a path, ignoring case."""
    fields: list[StructField] = []
    level: DataType = schema
    for part in path:
        field = level.field(part) if isinstance(level, StructType) else None
        if field is None:
            return None
        fields.append(field)
        level = field.data_type
    return tuple(fields)
