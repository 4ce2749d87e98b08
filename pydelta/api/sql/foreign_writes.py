"""Refuse Spark's own file writes into a Delta table's folder, by path or by name.

::

    df.write.parquet(path)   INSERT INTO parquet.`path`   INSERT OVERWRITE DIRECTORY path
    INSERT INTO t, where t is a Parquet table over path, or a view of spark.read.parquet(path)

Spark would write files that no version knows, and with ``overwrite`` it would delete the table with its log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.readwriter import DataFrameWriter

from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import SessionSettings, user_errors
from pydelta.engines.spark.session.patches import is_enabled, patch
from pydelta.errors import DeltaError, UnsafeOperationError
from pydelta.log import DeltaLog
from pydelta.storage import open_store
from pydelta.storage.uris import normalize_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydelta.settings import Settings

__all__ = ["install", "refuse_foreign_target", "refuse_foreign_write"]

CHECK: Final = "spark.databricks.delta.formatCheck.enabled"
_METHODS: Final = ("parquet", "json", "csv", "text", "orc", "xml")
_PART_OF_A_TABLE: Final = ("_delta_log", "_change_data")


def install() -> None:
    """Install the checks. ``patches.restore_all`` removes them."""
    for name in _METHODS:
        patch(DataFrameWriter, name, _checked(name))


def refuse_foreign_write(spark: SparkSession, path: str, source: str) -> None:
    """Refuse to let Spark write files into the folder of a Delta table, or into a folder below it.

    Folders inside a table whose names begin with an underscore or a dot are exempt: no reader looks at them.

    Args:
        spark: The session.
        path: As the user wrote it.
        source: The format.

    Raises:
        UnsafeOperationError: The path is in a table. ``spark.databricks.delta.formatCheck.enabled=false`` disables it.
    """
    if str(spark.conf.get(CHECK, "true")).lower() == "false":
        return
    found = _table_above(spark, path)
    if found is not None:
        raise UnsafeOperationError(
            f"{path} belongs to the Delta table at {found}, but the rows were to be written as {source}: no version of "
            "the table would know the files, and overwriting would delete its log.",
            hint='Write format("delta"), or INSERT INTO delta.`/path`; choose another folder for other formats. '
            f"{CHECK}=false switches this check off.",
            table=found,
        )


def refuse_foreign_target(spark: SparkSession, parts: tuple[str, ...]) -> None:
    """Refuse as ``refuse_foreign_write`` does, for a name that is not a Delta table's.

    Args:
        spark: The session.
        parts: The name in the INSERT.

    Raises:
        UnsafeOperationError: The name leads to the folder of a Delta table.
    """
    for path, source in _written_by_name(spark, parts):
        refuse_foreign_write(spark, path, source)


def _written_by_name(spark: SparkSession, parts: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return where Spark would write the rows of an INSERT, and in which format."""
    jvm = Jvm.of(spark)
    catalog = jvm.catalog
    if len(parts) <= 2:
        view = catalog.getRawLocalOrGlobalTempView(jvm.seq(parts))
        if view.isDefined():
            plan = view.get().plan()
            relation = _file_relation(plan.get()) if plan.isDefined() else None
            paths = [] if relation is None else jvm.to_list(relation.location().rootPaths())
            return [(jvm.path_text(path.toUri()), "files of Spark") for path in paths]
    if len(parts) == 2 and "/" in parts[1]:
        return [(parts[1], parts[0])]
    if len(parts) > 3 or (len(parts) == 3 and parts[0].lower() != "spark_catalog"):
        return []
    identifier = jvm.table_identifier.apply(
        parts[-1], jvm.option.apply(parts[-2] if len(parts) > 1 else None), jvm.option.apply(None)
    )
    if not catalog.tableExists(identifier):
        return []
    table = catalog.getTableMetadata(identifier)
    uri, provider = table.storage().locationUri(), table.provider()
    if str(table.tableType().name()) == "VIEW" or not uri.isDefined():
        return []
    return [(jvm.path_text(uri.get()), str(provider.get()) if provider.isDefined() else "hive")]


def _file_relation(plan: Any) -> Any | None:
    while str(plan.nodeName()) in ("SubqueryAlias", "View"):
        plan = plan.child()
    if str(plan.nodeName()).split(" ", 1)[0] not in ("LogicalRelation", "Relation"):
        return None
    relation = plan.relation()
    return relation if str(relation.getClass().getSimpleName()) == "HadoopFsRelation" else None


def _table_above(spark: SparkSession, path: str) -> str | None:
    jvm = Jvm.of(spark)
    try:
        uri = normalize_uri(jvm.qualify(path))
        held = SessionSettings.of(spark)
        options, settings = held.options, held.settings
        below = ""
        while True:
            is_exempt = below.startswith(("_", ".")) and below not in _PART_OF_A_TABLE
            if not is_exempt and _is_table(uri, options, settings):
                return uri
            parent, _, below = uri.rpartition("/")
            if parent.endswith(("/", ":")):
                return None
            uri = parent
    except DeltaError:  # A store that only Spark can read cannot hold a table of this engine.
        return None


def _is_table(uri: str, options: Mapping[str, str], settings: Settings) -> bool:
    return DeltaLog.for_table(uri, store=open_store(uri, options), settings=settings).table_exists()


def _checked(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def build(original: Callable[..., None]) -> Callable[..., None]:
        def write(self: DataFrameWriter, path: str, *args: Any, **named: Any) -> None:
            if is_enabled(self._spark) and isinstance(path, str):
                with user_errors():
                    refuse_foreign_write(self._spark, path, name)
            return original(self, path, *args, **named)

        return write

    return build
