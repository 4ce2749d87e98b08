"""Route ``df.write``, ``df.writeTo`` and ``df.mergeInto``: Delta tables to this engine, all else to Spark."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.merge import MergeIntoWriter
from pyspark.sql.readwriter import DataFrameWriter, DataFrameWriterV2

from pydelta.api.sql.dispatch import run_node
from pydelta.api.sql.foreign_writes import refuse_foreign_target, refuse_foreign_write
from pydelta.api.sql.view_targets import change_target
from pydelta.commands.write.command import WriteMode
from pydelta.engines.spark.catalog.lookup import DeltaEntry, look_up, parse_identifier
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import user_errors
from pydelta.engines.spark.session.patches import is_enabled, patch
from pydelta.engines.spark.write.command import (
    WriteRequest,
    condition_given,
    insert_by_position,
    save_as_table,
    write_by_name,
    write_path,
)
from pydelta.errors import InvalidArgumentError, TableAlreadyExistsError, UnsupportedFeatureError
from pydelta.errors.conditions import Condition
from pydelta.protocol.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["install", "uninstall"]

_PROVIDER: Final = "delta"


def install(spark: SparkSession | None = None) -> None:
    """Install the routes once; ``patches.restore_all`` removes them."""
    del spark  # Each call checks whether its session is enabled.
    patch(DataFrameWriter, "save", _save)
    patch(DataFrameWriter, "saveAsTable", _save_as_table)
    patch(DataFrameWriter, "insertInto", _insert_into)
    for method, mode in (
        ("create", WriteMode.CREATE),
        ("replace", WriteMode.REPLACE),
        ("createOrReplace", WriteMode.CREATE_OR_REPLACE),
    ):
        patch(DataFrameWriterV2, method, _creator(mode))
    patch(DataFrameWriterV2, "append", _append)
    patch(DataFrameWriterV2, "overwrite", _overwrite)
    patch(DataFrameWriterV2, "overwritePartitions", _overwrite_partitions)
    patch(MergeIntoWriter, "merge", _merge_into)


def uninstall(spark: SparkSession | None = None) -> None:
    """Do nothing for one session; ``patches.restore_all`` restores the methods after the last one."""
    del spark


# --- DataFrameWriter ---------------------------------------------------------------------------------------


def _save(original: Callable[..., None]) -> Callable[..., None]:
    def save(
        self: DataFrameWriter,
        path: str | None = None,
        format: str | None = None,  # noqa: A002
        mode: str | None = None,
        partitionBy: Any = None,
        **options: Any,
    ) -> None:
        if not is_enabled(self._spark):
            return original(self, path, format, mode, partitionBy, **options)
        if _source(self, format) != _PROVIDER:
            _check_folder(self, path or options.get("path"), format)
            return original(self, path, format, mode, partitionBy, **options)
        with user_errors():
            _set(self, format, mode, partitionBy, options)
            request = _request(self)
            target = path if path is not None else request.options.get("path")
            if not isinstance(target, str) or not target:
                raise InvalidArgumentError(
                    "No path was given for the Delta table to write.",
                    hint='Write df.write.format("delta").save(path), or saveAsTable(name).',
                    condition=Condition.of("DELTA_PATH_NOT_SPECIFIED"),
                )
            write_path(self._spark, self._df, target, request)
        return None

    return save


def _save_as_table(original: Callable[..., None]) -> Callable[..., None]:
    def save_table(
        self: DataFrameWriter,
        name: str,
        format: str | None = None,  # noqa: A002
        mode: str | None = None,
        partitionBy: Any = None,
        **options: Any,
    ) -> None:
        if not is_enabled(self._spark):
            return original(self, name, format, mode, partitionBy, **options)
        with user_errors():
            entry = _entry(self._spark, name)
            source = _source(self, format)
            own = entry is not None and (entry.by_path or entry.twin)
            if source != _PROVIDER and not (own and source == _default_source(self._spark)):
                if entry is not None and entry.twin:
                    raise InvalidArgumentError(
                        f"{name} is the entry by which other engines read the Delta table at {entry.location}, "
                        f"and the data "
                        f"was to be written as {source}.",
                        hint='Leave the format out, or use format("delta").',
                    )
                _check_folder(self, options.get("path"), format)
                if entry is not None and not entry.by_path:
                    _set(self, format, mode, partitionBy, options)
                    return _in_another_format(self, name, original, source)
                refuse_foreign_target(self._spark, parse_identifier(self._spark, name))
                return original(self, name, format, mode, partitionBy, **options)
            _set(self, format, mode, partitionBy, options)
            if entry is not None and entry.by_path:
                write_path(self._spark, self._df, entry.location, _request(self))
            else:
                save_as_table(self._spark, self._df, name, _request(self))
        return None

    return save_table


def _in_another_format(writer: DataFrameWriter, name: str, original: Callable[..., None], source: str) -> None:
    """Save in another format under the name of a Delta table, which only an overwrite may do: it replaces the table.

    Raises:
        InvalidArgumentError: An append would mix formats.
        TableAlreadyExistsError: The mode refuses an existing table.
    """
    mode, spark = _mode(writer), writer._spark
    if mode is WriteMode.IGNORE:
        return
    if mode is WriteMode.APPEND:
        raise InvalidArgumentError(
            f"The format of the existing table {name} is `delta`. It doesn't match the specified format `{source}`.",
            hint='Use format("delta"), or use insertInto or writeTo(name).append().',
        )
    if mode is not WriteMode.OVERWRITE:
        raise TableAlreadyExistsError(
            f"The table {name} already exists, and is a Delta table.",
            hint="Write with mode append, overwrite or ignore, or choose another name.",
            condition=Condition.of("TABLE_OR_VIEW_ALREADY_EXISTS", relationName=name),
        )
    parts = parse_identifier(spark, name)
    table, fresh = quoted(*parts), quoted(*parts[:-1], f"{parts[-1]}__{uuid.uuid4().hex[:8]}")
    try:
        # The rows may come from the table itself, so it is dropped only after all are written.
        original(writer.mode("error"), fresh)
        spark.sql(f"DROP TABLE {table}")
    except BaseException:
        spark.sql(f"DROP TABLE IF EXISTS {fresh}")
        raise
    finally:
        writer.mode("overwrite")
    spark.sql(f"ALTER TABLE {fresh} RENAME TO {table}")


def _insert_into(original: Callable[..., None]) -> Callable[..., None]:
    def insert_into(self: DataFrameWriter, tableName: str, overwrite: bool | None = None) -> None:
        if not is_enabled(self._spark):
            return original(self, tableName, overwrite)
        with user_errors():
            parts = parse_identifier(self._spark, tableName)
            entry = change_target(self._spark, parts)
            if entry is None:
                refuse_foreign_target(self._spark, parts)
                return original(self, tableName, overwrite)
            if overwrite is not None:
                self.mode("overwrite" if overwrite else "append")
            request = _request(self)
            if request.partition_by is not None:
                raise InvalidArgumentError(
                    "insertInto uses the table's own partitioning, but partitionBy was called.",
                    hint="Leave partitionBy out.",
                    condition=Condition.of("PARTITION_BY_NOT_ALLOWED_WITH_INSERT_INTO", tableName=tableName),
                )
            mode = WriteMode.OVERWRITE if request.mode is WriteMode.OVERWRITE else WriteMode.APPEND
            # An INSERT keeps the table's schema and partitioning, whatever the option says, as in the reference engine.
            options = {name: value for name, value in request.options.items() if name.lower() != "overwriteschema"}
            insert_by_position(self._spark, self._df, entry, WriteRequest(mode=mode, options=options))
        return None

    return insert_into


def _check_folder(writer: DataFrameWriter, path: Any, source: str | None) -> None:
    """Refuse to let Spark's own file formats write into the folders of Delta tables."""
    with user_errors():
        target = path if path is not None else _given(writer)["options"].get("path")
        if isinstance(target, str) and target:
            refuse_foreign_write(writer._spark, target, _source(writer, source))


def _set(writer: DataFrameWriter, source: str | None, mode: str | None, partitions: Any, options: Any) -> None:
    writer.mode(mode).options(**options)
    if partitions is not None:
        writer.partitionBy(partitions)
    if source is not None:
        writer.format(source)


def _source(writer: DataFrameWriter, source: str | None) -> str:
    return (source if source is not None else str(writer._jwrite.source())).lower()


def _default_source(spark: SparkSession) -> str:
    return str(spark.conf.get("spark.sql.sources.default", "parquet")).lower()


def _given(writer: DataFrameWriter) -> dict[str, Any]:
    return Jvm.of(writer._spark).calls.writer(writer._jwrite)


def _mode(writer: DataFrameWriter) -> WriteMode:
    return WriteMode.parse(_given(writer)["mode"])


def _request(writer: DataFrameWriter) -> WriteRequest:
    given = _given(writer)
    _check_layout(given)
    options = given["options"]
    if given["clustering"] is not None:
        options["clusterBy"] = json.dumps(given["clustering"])
    return WriteRequest(mode=WriteMode.parse(given["mode"]), options=options, partition_by=given["partitioning"])


def _check_layout(given: Mapping[str, Any]) -> None:
    if given["buckets"]:
        raise UnsupportedFeatureError(
            "bucketBy was called, but a Delta table has no buckets.",
            features=("bucketBy",),
            hint="Leave it out.",
            condition=Condition.of("DELTA_OPERATION_NOT_ALLOWED_DETAIL", operation="Bucketing"),
        )
    if given["sorting"]:
        raise InvalidArgumentError(
            "sortBy was called without bucketBy, and a Delta table has no buckets.",
            hint="Sort the rows with df.sort or sortWithinPartitions, or use clusterBy.",
            condition=Condition.of("SORT_BY_WITHOUT_BUCKETING"),
        )


def _entry(spark: SparkSession, name: str) -> DeltaEntry | None:
    found = look_up(spark, parse_identifier(spark, name))
    return found if isinstance(found, DeltaEntry) else None


# --- DataFrameWriterV2 -------------------------------------------------------------------------------------


def _creator(mode: WriteMode) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def build(original: Callable[..., None]) -> Callable[..., None]:
        def create(self: DataFrameWriterV2) -> None:
            if not is_enabled(self._spark):
                return original(self)
            with user_errors():
                entry = _target(self)
                provider = self._jwriter.provider()
                source = str(provider.get()) if provider.isDefined() else _default_source(self._spark)
                by_path = entry is not None and entry.by_path
                if source.lower() != _PROVIDER and not (by_path and not provider.isDefined()):
                    return original(self)
                properties = _strings(self, self._jwriter.properties())
                options = _strings(self, self._jwriter.options()) | _clustering(self)
                location = properties.pop("location", None) or options.get("path")
                description = properties.pop("comment", None)
                if location and not by_path:
                    options["path"] = location
                request = WriteRequest(
                    mode=mode,
                    options=options,
                    partition_by=_transforms(self),
                    properties=properties,
                    description=description,
                )
                if entry is not None and by_path:
                    write_path(self._spark, self._df, entry.location, request)
                else:
                    save_as_table(self._spark, self._df, _table_name(self), request)
            return None

        return create

    return build


def _append(original: Callable[..., None]) -> Callable[..., None]:
    def append(self: DataFrameWriterV2) -> None:
        if not _write_to(self, WriteMode.APPEND):
            original(self)

    return append


def _overwrite(original: Callable[..., None]) -> Callable[..., None]:
    def overwrite(self: DataFrameWriterV2, condition: Any) -> None:
        if not is_enabled(self._spark):
            return original(self, condition)
        with user_errors():
            predicate = condition_given(self._spark, condition)
        if not _write_to(self, WriteMode.OVERWRITE, replace_where=predicate):
            return original(self, condition)
        return None

    return overwrite


def _overwrite_partitions(original: Callable[..., None]) -> Callable[..., None]:
    def overwrite_partitions(self: DataFrameWriterV2) -> None:
        if not _write_to(self, WriteMode.OVERWRITE, dynamic=True):
            original(self)

    return overwrite_partitions


def _merge_into(original: Callable[..., None]) -> Callable[..., None]:
    def merge(self: MergeIntoWriter) -> None:
        if not is_enabled(self._spark):
            return original(self)
        command = self._jwriter.mergeCommand()
        with user_errors():
            if run_node(self._spark, command) is not None:
                return None
        return original(self)

    return merge


def _write_to(writer: DataFrameWriterV2, mode: WriteMode, **how: Any) -> bool:
    """Write to an existing table; return False when the name is not one of this engine's tables."""
    if not is_enabled(writer._spark):
        return False
    with user_errors():
        entry = change_target(writer._spark, _parts(writer))
        if entry is None:
            return False
        request = WriteRequest(mode=mode, options=_strings(writer, writer._jwriter.options()), **how)
        write_by_name(writer._spark, writer._df, entry, request)
    return True


def _target(writer: DataFrameWriterV2) -> DeltaEntry | None:
    found = look_up(writer._spark, _parts(writer))
    return found if isinstance(found, DeltaEntry) else None


def _parts(writer: DataFrameWriterV2) -> tuple[str, ...]:
    return tuple(str(part) for part in Jvm.of(writer._spark).to_list(writer._jwriter.tableName()))


def _table_name(writer: DataFrameWriterV2) -> str:
    return quoted(*_parts(writer))


def _strings(writer: DataFrameWriterV2, scala_map: Any) -> dict[str, str]:
    jvm = Jvm.of(writer._spark)
    return jvm.to_dict(jvm.python_utils_map(scala_map))


def _clustering(writer: DataFrameWriterV2) -> dict[str, str]:
    """Return the columns of ``clusterBy`` as the option of that name."""
    clustering = writer._jwriter.clustering()
    if not clustering.isDefined():
        return {}
    columns = [".".join(str(part) for part in item.fieldNames()) for item in clustering.get().references()]
    return {"clusterBy": json.dumps(columns)}


def _transforms(writer: DataFrameWriterV2) -> list[str] | None:
    """Return the columns of ``partitionedBy``, refusing transforms such as ``years(ts)``."""
    partitioning = writer._jwriter.partitioning()
    if not partitioning.isDefined():
        return None
    jvm = Jvm.of(writer._spark)
    columns = []
    for transform in jvm.to_list(partitioning.get()):
        if str(transform.name()) != "identity":
            raise UnsupportedFeatureError(
                f"A Delta table cannot be partitioned by {transform.toString()}.",
                features=(str(transform.name()),),
                hint="Partition by a column, for example one computed with withColumn.",
                condition=Condition.of("DELTA_OPERATION_NOT_ALLOWED", operation="Partitioning by expressions"),
            )
        references = transform.references()
        columns.append(".".join(str(part) for part in references[0].fieldNames()))
    return columns
