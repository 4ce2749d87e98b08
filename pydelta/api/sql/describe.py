"""Answer DESCRIBE and SHOW for a table's newest version, in Spark's own columns and order.

Everything comes from the log, except what only the catalog's entry has (database, owner, kind).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from pydelta.commands.alter.clustering import clustering_paths
from pydelta.engines.spark.catalog.lookup import DeltaEntry
from pydelta.engines.spark.catalog.objects import catalog_object, copy_of, table_identifier, text_map
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.local_rows import local_frame
from pydelta.errors import BindError, InvalidArgumentError, LogCorruptedError
from pydelta.errors.conditions import Condition
from pydelta.errors.suggestions import did_you_mean
from pydelta.protocol.features import implied_features
from pydelta.protocol.names import path_text, quoted
from pydelta.protocol.partitions import parse_partition_value, serialize_partition_value
from pydelta.protocol.types import DataType, PrimitiveType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pydelta.log import Snapshot
    from pydelta.protocol.types import StructField as DeltaField

__all__ = ["describe_table", "show_columns", "show_create_table", "show_partitions", "show_tblproperties", "type_text"]

_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
_RAW_TYPE: Final = "__CHAR_VARCHAR_TYPE_STRING"
_NOT_TO_BE_SET: Final = ("delta.columnMapping.maxColumnId", "delta.rowTracking.", "delta.inCommitTimestampEnablement",
                         "delta.minReaderVersion", "delta.minWriterVersion", "delta.feature.")  # fmt: skip
"""Prefixes of properties that the engine maintains, which SHOW CREATE TABLE leaves out."""


def _column(name: str, comment: str | None = None, *, nullable: bool = False) -> StructField:
    return StructField(name, StringType(), nullable, {"comment": comment} if comment else {})


_COLUMNS: Final = StructType(
    [
        _column("col_name", "name of the column"),
        _column("data_type", "data type of the column"),
        _column("comment", "comment of the column", nullable=True),
    ]
)
_ONE_COLUMN: Final = StructType(
    [_column("info_name", "name of the column info"), _column("info_value", "value of the column info")]
)
_STATISTICS: Final = ("min", "max", "num_nulls", "distinct_count", "avg_col_len", "max_col_len", "histogram")


# --- DESCRIBE ----------------------------------------------------------------------------------------------


def describe_table(
    spark: SparkSession,
    entry: DeltaEntry,
    snapshot: Snapshot,
    *,
    extended: bool = False,
    column: Sequence[str] | None = None,
) -> DataFrame:
    """Answer DESCRIBE [EXTENDED] table [column].

    Args:
        spark: The session.
        entry: The table's entry.
        snapshot: The version to describe.
        extended: Add the table's details, or a column's statistics, which are NULL as before an ANALYZE.
        column: Parts of one column's name.

    Returns:
        ``col_name, data_type, comment``, or ``info_name, info_value`` for one column.

    Raises:
        BindError: The column does not exist.
        InvalidArgumentError: The column is nested.
    """
    if column is not None:
        return _frame(spark, _one_column(spark, snapshot, column, extended=extended), _ONE_COLUMN)
    jvm = Jvm.of(spark)
    rows: list[tuple[str | None, ...]] = [_described(jvm, field) for field in snapshot.schema.fields]
    if snapshot.partition_columns:
        named = [_field(snapshot, name) for name in snapshot.partition_columns]
        rows += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
        rows += [_described(jvm, field) for field in named]
    if snapshot.clustering_columns:
        rows += [("# Clustering Information", "", ""), ("# col_name", "data_type", "comment")]
        rows += [_nested(jvm, snapshot, path) for path in clustering_paths(snapshot)]
    if extended:
        rows += [("", "", ""), ("# Detailed Table Information", "", "")]
        rows += [(key, value, "") for key, value in _details(jvm, entry, snapshot).items()]
    defaults = [field for field in snapshot.schema.fields if "CURRENT_DEFAULT" in field.metadata]
    if defaults:
        rows += [("", "", ""), ("# Column Default Values", "", "")]
        rows += [(f.name, type_text(jvm, f), str(f.metadata["CURRENT_DEFAULT"])) for f in defaults]
    return _frame(spark, rows, _COLUMNS)


def _one_column(
    spark: SparkSession, snapshot: Snapshot, column: Sequence[str], *, extended: bool
) -> list[tuple[str | None, ...]]:
    field = snapshot.schema.field(column[0])
    if field is None:
        names = [item.name for item in snapshot.schema.fields]
        raise BindError(
            f"The table has no column {'.'.join(column)!r}.",
            hint=did_you_mean(column[0], names, otherwise=f"Its columns are: {', '.join(names)}."),
            table=snapshot.table_uri,
            condition=Condition.of("UNRESOLVED_COLUMN.WITH_SUGGESTION", objectName=".".join(column), proposal=names),
        )
    if len(column) > 1:
        raise InvalidArgumentError(
            f"{'.'.join(column)!r} is a nested column, but DESCRIBE takes a top-level one.",
            hint=f"Use DESCRIBE … {column[0]}, whose type shows what is inside.",
            table=snapshot.table_uri,
        )
    comment = field.metadata.get("comment")
    rows: list[tuple[str | None, ...]] = [
        ("col_name", column[0]),
        ("data_type", type_text(Jvm.of(spark), field)),
        ("comment", "NULL" if comment is None else str(comment)),
    ]
    return rows + [(name, "NULL") for name in _STATISTICS] if extended else rows


def _described(jvm: Jvm, field: DeltaField) -> tuple[str | None, ...]:
    comment = field.metadata.get("comment")
    return field.name, type_text(jvm, field), None if comment is None else str(comment)


def _nested(jvm: Jvm, snapshot: Snapshot, path: Sequence[str]) -> tuple[str | None, ...]:
    """Describe a clustering column, which may be inside structs."""
    level: Any = snapshot.schema
    field = None
    for part in path:
        field = level.field(part) if hasattr(level, "field") else None
        level = field.data_type if field else None
    return (path_text(path), *_described(jvm, field)[1:]) if field else (path_text(path), None, None)


def _field(snapshot: Snapshot, name: str) -> DeltaField:
    field = snapshot.schema.field(name)
    if field is None:
        raise LogCorruptedError(
            f"The metadata partitions the table by {name!r}, which is not a column of its schema.",
            hint="Restore the commit that last changed the metadata from a backup of _delta_log.",
        )
    return field


def type_text(jvm: Jvm, field: DeltaField) -> str:
    """Return a column's type as DESCRIBE shows it, with char and varchar as declared."""
    raw = field.metadata.get(_RAW_TYPE)
    return str(raw) if raw else _simple(jvm, field.data_type)


def _simple(jvm: Jvm, data_type: DataType) -> str:
    names = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
    if isinstance(data_type, PrimitiveType):
        return names.get(data_type.name, data_type.name)
    return str(jvm.data_type.fromJson(json.dumps(data_type.to_dict())).simpleString())


def _details(jvm: Jvm, entry: DeltaEntry, snapshot: Snapshot) -> Mapping[str, str]:
    """Return the rows that Spark shows under "Detailed Table Information"."""
    assert snapshot.metadata is not None
    table = entry.table
    if table is None:  # The statement names a path.
        module = catalog_object(jvm, "CatalogTable")
        table = module.apply(
            table_identifier(jvm, "delta", snapshot.table_uri), catalog_object(jvm, "CatalogTableType").EXTERNAL(),
            catalog_object(jvm, "CatalogStorageFormat").empty(), jvm.struct('{"type":"struct","fields":[]}'),
            jvm.option.apply("delta"), jvm.seq([]), *jvm.rest_of(module, "apply", 6),
        )  # fmt: skip
        table = copy_of(table, createVersion="", createTime=snapshot.metadata.created_time or 0)
    storage = catalog_object(jvm, "CatalogStorageFormat").empty()
    shown = copy_of(
        table,
        storage=copy_of(storage, locationUri=jvm.option.apply(jvm.location_uri(snapshot.table_uri))),
        schema=jvm.struct('{"type":"struct","fields":[]}'),
        provider=jvm.option.apply("delta"),
        partitionColumnNames=jvm.seq([]),
        properties=jvm.scala_map(_properties(snapshot)),
        comment=jvm.option.apply(snapshot.metadata.description),
        tracksPartitionsInCatalog=False,
    )
    found = shown.toLinkedHashMap().toSeq()
    pairs = [(str(item._1()), str(item._2())) for item in jvm.to_list(found)]
    return {key: value for key, value in pairs if key not in ("Schema", "Partition Columns")}


# --- SHOW --------------------------------------------------------------------------------------------------


def show_columns(spark: SparkSession, entry: DeltaEntry, snapshot: Snapshot) -> DataFrame:
    """Answer SHOW COLUMNS: ``col_name``, in the table's order."""
    del entry
    return _frame(spark, [(field.name,) for field in snapshot.schema.fields], StructType([_column("col_name")]))


def show_partitions(
    spark: SparkSession, entry: DeltaEntry, snapshot: Snapshot, spec: Mapping[str, Any] | None = None
) -> DataFrame:
    """Answer SHOW PARTITIONS: the partitions that hold a file, with a typed column per partition column, in order.

    Args:
        spark: The session.
        entry: The table's entry.
        snapshot: The version.
        spec: Values of some partition columns, as text (None for null); without it, all partitions.

    Raises:
        InvalidArgumentError: The table has no partition columns.
        BindError: The spec names another column.
    """
    del entry
    names = snapshot.partition_columns
    if not names:
        raise InvalidArgumentError(
            "The table is not partitioned.",
            hint="DESCRIBE shows its columns.",
            table=snapshot.table_uri,
            condition=Condition.of("DELTA_SHOW_PARTITION_IN_NON_PARTITIONED_TABLE", tableName=snapshot.table_uri),
        )
    fields = [_field(snapshot, name) for name in names]
    by_name = {name.lower(): place for place, name in enumerate(names)}
    wanted: dict[int, str | None] = {}
    for name, value in (spec or {}).items():
        if name.lower() not in by_name:
            raise BindError(
                f"{name!r} is not a partition column.",
                hint=f"The partition columns are: {', '.join(names)}.",
                table=snapshot.table_uri,
                condition=Condition.of("DELTA_SHOW_PARTITION_IN_NON_PARTITIONED_COLUMN", badCols=name),
            )
        place = by_name[name.lower()]
        wanted[place] = _stored(value, fields[place].data_type)
    keys = snapshot.files.spec.keys
    distinct = snapshot.files.core.select(keys).unique()
    rows = [row for row in distinct.iter_rows() if all(row[place] == value for place, value in wanted.items())]
    texts = [f"c{place}" for place in range(len(names))]
    found = _frame(spark, rows, StructType([_column(text, nullable=True) for text in texts]))
    typed = [
        F.col(text).try_cast(str(item.data_type)).alias(item.name) for text, item in zip(texts, fields, strict=True)
    ]
    return found.select(*typed).orderBy(*(F.asc_nulls_last(quoted(item.name)) for item in fields))


def _stored(value: Any, data_type: DataType) -> str | None:
    """Convert a value as a user writes it to the log's form, so that ``01`` finds the partition ``1``."""
    if value is None or value == _NULL_PARTITION:
        return None
    text = str(value)
    try:
        return serialize_partition_value(parse_partition_value(text, data_type), data_type)
    except (LogCorruptedError, ValueError):
        return text


def show_tblproperties(spark: SparkSession, entry: DeltaEntry, snapshot: Snapshot, key: str | None = None) -> DataFrame:
    """Answer SHOW TBLPROPERTIES: ``key, value``, sorted by key; for one key its value, or a note that it is not set.

    It includes the protocol's versions and features, under the names that CREATE TABLE accepts.
    """
    jvm = Jvm.of(spark)
    properties = _properties(snapshot)
    if key is None:
        rows = list(properties.items())
    elif key in properties:
        rows = [(key, properties[key])]
    else:
        rows = [(key, f"Table {_shown_name(entry)} does not have property: {key}")]
    hidden = text_map(jvm, jvm.sql_conf.redactOptions(jvm.scala_map(dict(rows))))
    shown = [(name, hidden.get(name, value)) for name, value in sorted(rows)]
    return _frame(spark, shown, StructType([_column("key"), _column("value")]))


def show_create_table(spark: SparkSession, entry: DeltaEntry, snapshot: Snapshot) -> DataFrame:
    """Answer SHOW CREATE TABLE: ``createtab_stmt``, a statement that this engine can run."""
    assert snapshot.metadata is not None
    jvm = Jvm.of(spark)
    columns = ",\n  ".join(_definition(jvm, field) for field in snapshot.schema.fields)
    lines = [f"CREATE TABLE {_shown_name(entry)} (\n  {columns})", "USING delta"]
    if snapshot.partition_columns:
        lines.append(f"PARTITIONED BY ({', '.join(_quoted(jvm, name) for name in snapshot.partition_columns)})")
    if snapshot.clustering_columns:
        lines.append(f"CLUSTER BY ({', '.join(snapshot.clustering_columns)})")
    if snapshot.metadata.description:
        lines.append(f"COMMENT {_literal(snapshot.metadata.description)}")
    if not entry.managed and not entry.by_path:
        place = jvm.path(jvm.location_uri(snapshot.table_uri)).toString()
        lines.append(f"LOCATION {_literal(str(place))}")
    properties = {
        key: value
        for key, value in sorted(snapshot.metadata.configuration.items())
        if not key.startswith(_NOT_TO_BE_SET)
    }
    if properties:
        hidden = text_map(jvm, jvm.sql_conf.redactOptions(jvm.scala_map(properties)))
        listed = ",\n".join(f"  {_literal(key)} = {_literal(hidden[key])}" for key in properties)
        lines.append(f"TBLPROPERTIES (\n{listed})")
    return _frame(spark, [("\n".join(lines) + "\n",)], StructType([_column("createtab_stmt")]))


def _definition(jvm: Jvm, field: DeltaField) -> str:
    """Return a column's definition as CREATE TABLE writes it."""
    raw = field.metadata.get(_RAW_TYPE)
    kind = str(raw).upper() if raw else str(jvm.data_type.fromJson(json.dumps(field.data_type.to_dict())).sql())
    text = f"{_quoted(jvm, field.name)} {kind}"
    if not field.nullable:
        text += " NOT NULL"
    if "CURRENT_DEFAULT" in field.metadata:
        text += f" DEFAULT {field.metadata['CURRENT_DEFAULT']}"
    if "delta.generationExpression" in field.metadata:
        text += f" GENERATED ALWAYS AS ({field.metadata['delta.generationExpression']})"
    if "delta.identity.start" in field.metadata:
        how = "BY DEFAULT" if field.metadata.get("delta.identity.allowExplicitInsert") else "ALWAYS"
        start, step = field.metadata["delta.identity.start"], field.metadata.get("delta.identity.step", 1)
        text += f" GENERATED {how} AS IDENTITY (START WITH {start} INCREMENT BY {step})"
    if field.metadata.get("comment") is not None:
        text += f" COMMENT {_literal(str(field.metadata['comment']))}"
    return text


# --- small things ------------------------------------------------------------------------------------------


def _properties(snapshot: Snapshot) -> dict[str, str]:
    metadata, protocol = snapshot.metadata, snapshot.protocol
    assert metadata is not None and protocol is not None
    found = dict(metadata.configuration)
    found["delta.minReaderVersion"] = str(protocol.min_reader_version)
    found["delta.minWriterVersion"] = str(protocol.min_writer_version)
    if protocol.min_writer_version >= 7:
        found |= {f"delta.feature.{name}": "supported" for name in implied_features(protocol)}
    return dict(sorted(found.items()))


def _shown_name(entry: DeltaEntry) -> str:
    return ".".join(part if part.replace("_", "").isalnum() else quoted(part) for part in entry.qualifier)


def _quoted(jvm: Jvm, name: str) -> str:
    package = jvm.view.org.apache.spark.sql.catalyst.util
    return str(package.package.quoteIfNeeded(name))


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


def _frame(spark: SparkSession, rows: Iterable[tuple[str | None, ...]], schema: StructType) -> DataFrame:
    return local_frame(spark, list(rows), schema)
