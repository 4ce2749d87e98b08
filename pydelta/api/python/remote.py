"""Provide ``DeltaTable`` for clients of Spark Connect: the names and signatures of the classic one.

::

    DeltaTable.forName(spark, "t") --> RemoteDeltaTable --> delete(condition)  --> one command, run by the server
                                                        --> merge(source, on)  --> RemoteMergeBuilder … execute()
                                                        --> toDF()             --> a DataFrame of the client's session
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.types import StructType

from pydelta.api.python.arguments import (
    check_clone,
    check_columns,
    check_condition,
    check_fields,
    check_flag,
    check_needed,
    check_source,
    check_store_options,
    check_type,
    check_vacuum,
    given_values,
    hours_of,
)
from pydelta.api.python.builder import check_column
from pydelta.api.python.remote_calls import Chain, Given
from pydelta.api.python.wire import result_of
from pydelta.engines.spark.change.merge import TARGET_ALIAS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField

    from pydelta.api.python.builder import IdentityGenerator
    from pydelta.commands.change.delete import DeleteResult
    from pydelta.commands.change.update import UpdateResult
    from pydelta.commands.optimize.reorg import PurgeResult

__all__ = ["RemoteDeltaTable", "RemoteMergeBuilder", "RemoteOptimizeBuilder", "RemoteTableBuilder"]


@dataclass(frozen=True)
class RemoteDeltaTable:
    """A Delta table on the server. Made by ``DeltaTable.forPath``, ``forName`` or a builder.

    Args:
        chain: The calls that open it.
        name: Its name in the server's catalog, or None.
        path: Its location, where it was opened by it.
        label: Name of the table in conditions.
    """

    chain: Chain
    name: str | None = None
    path: str | None = None
    label: str | None = None

    @classmethod
    def forPath(cls, spark: Any, path: str, hadoopConf: Mapping[str, str] | None = None) -> RemoteDeltaTable:
        """Open the table at a location; see ``DeltaTable.forPath``."""
        check_type(path, str, what="path")
        check_store_options(hadoopConf)
        chain = Chain(spark).then("forPath", path, **({"hadoopConf": dict(hadoopConf)} if hadoopConf else {}))
        chain.run()
        return cls(chain, path=path)

    @classmethod
    def forName(cls, spark: Any, tableOrViewName: str) -> RemoteDeltaTable:
        """Open the table of a name; see ``DeltaTable.forName``."""
        check_type(tableOrViewName, str, what="tableOrViewName")
        chain = Chain(spark).then("forName", tableOrViewName)
        chain.run()
        return cls(chain, name=tableOrViewName)

    @classmethod
    def isDeltaTable(cls, spark: Any, identifier: str) -> bool:
        """Tell whether a Delta table is at a path."""
        check_type(identifier, str, what="identifier")
        rows = Chain(spark).then("isDeltaTable", identifier).run()
        assert rows is not None
        return bool(rows.collect()[0][0])

    @classmethod
    def convertToDelta(
        cls, spark: Any, identifier: str, partitionSchema: str | StructType | None = None
    ) -> RemoteDeltaTable:
        """Make a Delta table of Parquet files where they are; see ``DeltaTable.convertToDelta``."""
        check_type(identifier, str, what="identifier")
        check_type(partitionSchema, str, StructType, type(None), what="partitionSchema")
        Chain(spark).then("convertToDelta", identifier, partitionSchema).run()
        path = identifier.partition(".")[2].strip("`") if identifier.lower().startswith("parquet.") else None
        return cls.forPath(spark, path) if path else cls.forName(spark, identifier)

    def toDF(self) -> DataFrame:
        """Return the table as a DataFrame of the client's session."""
        spark = self.chain.spark
        frame: DataFrame = spark.table(self.name) if self.name else spark.read.format("delta").load(self.path)
        frame = frame.alias(self.label) if self.label else frame
        self.chain.given.note(frame)
        return frame

    def alias(self, aliasName: str) -> RemoteDeltaTable:
        """Name this table, for conditions that use the name as a qualifier."""
        check_type(aliasName, str, what="aliasName")
        chain = replace(self.chain.then("alias", aliasName), given=Given(self.chain.given.ids, aliasName))
        return RemoteDeltaTable(chain, name=self.name, path=self.path, label=aliasName)

    def delete(self, condition: str | Column | None = None) -> DeleteResult:
        """Delete rows; see ``DeltaTable.delete``."""
        check_condition(condition)
        result: DeleteResult = self._counts("delete", condition)
        return result

    def update(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002
    ) -> UpdateResult:
        """Set columns of rows; see ``DeltaTable.update``."""
        values = dict(given_values(set, "'set'"))
        check_condition(condition)
        result: UpdateResult = self._counts("update", condition, values)
        return result

    def merge(self, source: DataFrame, condition: str | Column) -> RemoteMergeBuilder:
        """Bring rows of a DataFrame of this session into the table; see ``DeltaTable.merge``."""
        check_source(source, condition)
        spark = self.chain.spark
        chain = replace(self.chain, given=self.chain.given.merging(source, spark.client, TARGET_ALIAS))
        return RemoteMergeBuilder(chain.then("merge", source, condition))

    def optimize(self) -> RemoteOptimizeBuilder:
        """Start merging small files or ordering rows; see ``DeltaTable.optimize``."""
        return RemoteOptimizeBuilder(self.chain.then("optimize"))

    def vacuum(
        self,
        retentionHours: float | None = None,
        *,
        dryRun: bool = False,
        mode: Literal["full", "lite"] = "full",
        inventory: DataFrame | str | None = None,
        where: str | None = None,
    ) -> DataFrame:
        """Delete files that no retained version needs; see ``DeltaTable.vacuum``."""
        check_vacuum(dryRun, mode, inventory, where)
        named = {"dryRun": dryRun, "mode": mode, "inventory": inventory, "where": where}
        return self._rows("vacuum", hours_of(retentionHours), **named)

    def history(self, limit: int | None = None) -> DataFrame:
        """Return the table's versions, the newest first."""
        check_type(limit, int, type(None), what="limit")
        return self._rows("history", limit)

    def detail(self) -> DataFrame:
        """Return what is known of the table, as one row."""
        return self._rows("detail")

    def generate(self, mode: str) -> None:
        """Write manifests; see ``DeltaTable.generate``."""
        check_type(mode, str, what="mode")
        self.chain.then("generate", mode).run()

    def purge(self, condition: str | Column | None = None) -> PurgeResult:
        """Rewrite files without the rows that deletion vectors delete; see ``DeltaTable.purge``."""
        check_condition(condition)
        result: PurgeResult = self._counts("purge", condition)
        return result

    def restoreToVersion(self, version: int) -> DataFrame:
        """Go back to a version, in one commit."""
        check_needed("version", version, int)
        return self._rows("restoreToVersion", version)

    def restoreToTimestamp(self, timestamp: str | datetime) -> DataFrame:
        """Go back to the newest version that is not younger than a timestamp, in one commit."""
        check_needed("timestamp", timestamp, str, datetime)
        return self._rows("restoreToTimestamp", timestamp)

    def clone(
        self,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> RemoteDeltaTable:
        """Copy the table, or name its files in another; see ``DeltaTable.clone``."""
        return self._clone("clone", target, isShallow, replace, properties)

    def cloneAtVersion(
        self,
        version: int,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> RemoteDeltaTable:
        """Do what ``clone`` does, with a version."""
        check_needed("version", version, int)
        return self._clone("cloneAtVersion", target, isShallow, replace, properties, version)

    def cloneAtTimestamp(
        self,
        timestamp: str | datetime,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> RemoteDeltaTable:
        """Do what ``clone`` does, with the version of a timestamp."""
        check_needed("timestamp", timestamp, str, datetime)
        return self._clone("cloneAtTimestamp", target, isShallow, replace, properties, timestamp)

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Raise what readers and writers have to know."""
        check_needed("readerVersion", readerVersion, int)
        check_needed("writerVersion", writerVersion, int)
        self.chain.then("upgradeTableProtocol", readerVersion, writerVersion).run()

    def addFeatureSupport(self, featureName: str) -> None:
        """Let a table feature be used."""
        check_needed("featureName", featureName, str)
        self.chain.then("addFeatureSupport", featureName).run()

    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:
        """Take a table feature away."""
        check_needed("featureName", featureName, str)
        check_flag("truncateHistory", truncateHistory)
        self.chain.then("dropFeatureSupport", featureName, truncateHistory).run()

    def enableRowTracking(self) -> None:
        """Give every row an id that it keeps."""
        self.chain.then("enableRowTracking").run()

    def _rows(self, method: str, *arguments: Any, **named: Any) -> DataFrame:
        rows = self.chain.then(method, *arguments, **named).run()
        assert rows is not None, method
        return rows

    def _counts(self, method: str, *arguments: Any) -> Any:
        return result_of(self._rows(method, *arguments).collect()[0][0])

    def _clone(
        self, method: str, target: str, shallow: bool, replace: bool, properties: Any, *at: Any
    ) -> RemoteDeltaTable:
        check_clone(target, shallow, replace, properties)
        self.chain.then(method, *at, target, shallow, replace, dict(properties) if properties else None).run()
        spark = self.chain.spark
        by_path = "/" in target or ":" in target
        return RemoteDeltaTable.forPath(spark, target) if by_path else RemoteDeltaTable.forName(spark, target)


@dataclass(frozen=True)
class RemoteMergeBuilder:
    """A merge in the making; see ``DeltaMergeBuilder``."""

    chain: Chain

    def whenMatchedUpdate(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002
    ) -> RemoteMergeBuilder:
        """Set columns of a target row that has a source row."""
        return self._with("whenMatchedUpdate", condition, dict(given_values(set, "'set' in whenMatchedUpdate")))

    def whenMatchedUpdateAll(self, condition: str | Column | None = None) -> RemoteMergeBuilder:
        """Set every column of the target to that of the same name in the source."""
        return self._with("whenMatchedUpdateAll", condition)

    def whenMatchedDelete(self, condition: str | Column | None = None) -> RemoteMergeBuilder:
        """Delete a target row that has a source row."""
        return self._with("whenMatchedDelete", condition)

    def whenNotMatchedInsert(
        self, condition: str | Column | None = None, values: Mapping[str, str | Column] | None = None
    ) -> RemoteMergeBuilder:
        """Insert a source row that has no target row."""
        return self._with(
            "whenNotMatchedInsert", condition, dict(given_values(values, "'values' in whenNotMatchedInsert"))
        )

    def whenNotMatchedInsertAll(self, condition: str | Column | None = None) -> RemoteMergeBuilder:
        """Insert it with all columns of the target from the source."""
        return self._with("whenNotMatchedInsertAll", condition)

    def whenNotMatchedBySourceUpdate(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002
    ) -> RemoteMergeBuilder:
        """Set columns of a target row that has no source row."""
        return self._with(
            "whenNotMatchedBySourceUpdate", condition, dict(given_values(set, "'set' in whenNotMatchedBySourceUpdate"))
        )

    def whenNotMatchedBySourceDelete(self, condition: str | Column | None = None) -> RemoteMergeBuilder:
        """Delete a target row that has no source row."""
        return self._with("whenNotMatchedBySourceDelete", condition)

    def withSchemaEvolution(self) -> RemoteMergeBuilder:
        """Let ``…All`` clauses add the source's new columns to the target."""
        return RemoteMergeBuilder(self.chain.then("withSchemaEvolution"))

    def execute(self) -> DataFrame:
        """Run the merge on the server; see ``DeltaMergeBuilder.execute``."""
        rows = self.chain.then("execute").run()
        assert rows is not None
        return rows

    def _with(self, method: str, condition: Any, *values: Any) -> RemoteMergeBuilder:
        check_condition(condition)
        return RemoteMergeBuilder(self.chain.then(method, condition, *values))


@dataclass(frozen=True)
class RemoteOptimizeBuilder:
    """An OPTIMIZE in the making; see ``DeltaOptimizeBuilder``."""

    chain: Chain

    def where(self, partitionFilter: str) -> RemoteOptimizeBuilder:
        """Take only partitions that a condition is true for."""
        check_type(partitionFilter, str, what="partitionFilter")
        return RemoteOptimizeBuilder(self.chain.then("where", partitionFilter))

    def executeCompaction(self, *, full: bool = False) -> DataFrame:
        """Merge small files."""
        check_type(full, bool, what="full")
        return self._run("executeCompaction", **({"full": True} if full else {}))

    def executeZOrderBy(self, *cols: str | Iterable[str]) -> DataFrame:
        """Put rows with near values into the same files."""
        return self._run("executeZOrderBy", *check_columns(cols, "Z-order column"))

    def _run(self, method: str, *arguments: Any, **named: Any) -> DataFrame:
        rows = self.chain.then(method, *arguments, **named).run()
        assert rows is not None
        return rows


class RemoteTableBuilder:
    """A new table in the making; see ``DeltaTableBuilder``.

    Args:
        spark: A session of a Spark Connect client.
        start: ``create``, ``createIfNotExists``, ``replace`` or ``createOrReplace``.
    """

    def __init__(self, spark: Any, start: str) -> None:
        self._chain = Chain(spark).then(start)
        self._name: str | None = None
        self._location: str | None = None

    def tableName(self, identifier: str) -> RemoteTableBuilder:
        """Register the table in the server's catalog under this name."""
        check_type(identifier, str, what="Identifier")
        self._name = identifier
        return self._with("tableName", identifier)

    def location(self, location: str) -> RemoteTableBuilder:
        """Set where the table's files go."""
        check_type(location, str, what="Location")
        self._location = location
        return self._with("location", location)

    def comment(self, comment: str) -> RemoteTableBuilder:
        """Set the table's description."""
        check_type(comment, str, what="Table comment")
        return self._with("comment", comment)

    def addColumn(
        self,
        colName: str,
        dataType: str | DataType,
        nullable: bool = True,
        generatedAlwaysAs: str | IdentityGenerator | None = None,
        generatedByDefaultAs: IdentityGenerator | None = None,
        comment: str | None = None,
    ) -> RemoteTableBuilder:
        """Add one column; see ``DeltaTableBuilder.addColumn``."""
        generated = (generatedAlwaysAs, generatedByDefaultAs)
        check_column(colName, dataType, nullable, generated, comment)
        return self._with("addColumn", colName, dataType, nullable, *generated, comment)

    def addColumns(self, cols: StructType | Sequence[StructField]) -> RemoteTableBuilder:
        """Add the columns of an existing schema."""
        return self._with("addColumns", check_fields(cols))

    def partitionedBy(self, *cols: str | Iterable[str]) -> RemoteTableBuilder:
        """Set the partition columns, in order."""
        return self._with("partitionedBy", *check_columns(cols, "Partitioning column"))

    def clusterBy(self, *cols: str | Iterable[str]) -> RemoteTableBuilder:
        """Set the columns that OPTIMIZE orders rows by."""
        return self._with("clusterBy", *check_columns(cols, "Clustering column"))

    def property(self, key: str, value: str) -> RemoteTableBuilder:
        """Set a table property."""
        check_type(key, str, what="Key of property")
        check_type(value, str, what="Value of property")
        return self._with("property", key, value)

    def execute(self) -> RemoteDeltaTable:
        """Create or replace the table, in one commit."""
        self._chain.then("execute").run()
        spark, name = self._chain.spark, self._name
        if name is not None and not name.lower().startswith("delta.`"):
            return RemoteDeltaTable.forName(spark, name)
        path = self._location or str(name)[len("delta.`") : -1]
        return RemoteDeltaTable.forPath(spark, path)

    def _with(self, method: str, *arguments: Any) -> RemoteTableBuilder:
        self._chain = self._chain.then(method, *arguments)
        return self
