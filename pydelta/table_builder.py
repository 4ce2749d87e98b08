"""Build a new table: ``DeltaTable.create`` and its like collect its definition, ``execute`` makes it.

The names and signatures are those that Delta users know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydelta.commands.create import CreateMode
from pydelta.errors import InvalidArgumentError
from pydelta.protocol.identity import identity_metadata
from pydelta.spark import facade
from pydelta.spark.catalog import parse_identifier
from pydelta.spark.define import define_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

    from pydelta.tables import DeltaTable

__all__ = ["DeltaTableBuilder", "IdentityGenerator"]


@dataclass(frozen=True)
class IdentityGenerator:
    """Numbers for an identity column: ``start``, ``start + step`` … Not every number need be used."""

    start: int = 1
    step: int = 1


class DeltaTableBuilder:
    """Collects what a new table is to be; ``execute`` makes it. Made by ``DeltaTable.create`` and its like.

    Args:
        spark: The session.
        mode: What becomes of a table that is there.
        made: Class of what ``execute`` gives.
    """

    def __init__(self, spark: SparkSession, mode: CreateMode, made: type[DeltaTable]) -> None:
        self._spark = spark
        self._mode = mode
        self._made = made
        self._name: str | None = None
        self._location: str | None = None
        self._comment: str | None = None
        self._fields: list[StructField] = []
        self._partition_columns: list[str] = []
        self._cluster_by: list[str] = []
        self._properties: dict[str, str] = {}

    def tableName(self, identifier: str) -> DeltaTableBuilder:
        """Register the table in the session's catalog under this name; ``delta.`/path` `` names a location."""
        self._name = identifier
        return self

    def location(self, location: str) -> DeltaTableBuilder:
        """Where the table's files go."""
        self._location = location
        return self

    def comment(self, comment: str) -> DeltaTableBuilder:
        """The table's description."""
        self._comment = comment
        return self

    def addColumn(
        self,
        colName: str,
        dataType: str | DataType,
        nullable: bool = True,
        generatedAlwaysAs: str | IdentityGenerator | None = None,
        comment: str | None = None,
        generatedByDefaultAs: IdentityGenerator | None = None,
    ) -> DeltaTableBuilder:
        """One more column.

        Args:
            colName: Its name.
            dataType: A Spark type or its DDL text, such as ``"decimal(10,2)"``.
            nullable: Whether it may be null.
            generatedAlwaysAs: SQL over other columns from which it is computed, or an ``IdentityGenerator``: every
                row gets a number of its own.
            comment: Its description.
            generatedByDefaultAs: An ``IdentityGenerator``, for rows that bring no value.

        Raises:
            InvalidArgumentError: Both, or a step of 0.

        Protocol: "Generated Columns", "Identity Columns".
        """
        with facade.user_errors():
            expression = generatedAlwaysAs if isinstance(generatedAlwaysAs, str) else None
            always = generatedAlwaysAs if isinstance(generatedAlwaysAs, IdentityGenerator) else None
            if generatedByDefaultAs is not None and generatedAlwaysAs is not None:
                raise InvalidArgumentError(
                    f"Column {colName!r} is to be generated always and by default.", hint="Give one of them."
                )
            generator = always or generatedByDefaultAs
            identity = None
            if generator is not None:
                identity = identity_metadata(start=generator.start, step=generator.step, explicit=always is None)
            self._fields.append(facade.make_field(colName, dataType, nullable, expression, comment, identity))
        return self

    def addColumns(self, cols: StructType | Sequence[StructField]) -> DeltaTableBuilder:
        """Columns of an existing schema."""
        self._fields.extend(cols)
        return self

    def partitionedBy(self, *cols: str | Iterable[str]) -> DeltaTableBuilder:
        """The partition columns, in order; they must be columns of the table."""
        for item in cols:
            self._partition_columns.extend([item] if isinstance(item, str) else item)
        return self

    def clusterBy(self, *cols: str | Iterable[str]) -> DeltaTableBuilder:
        """Columns (dotted for nested fields, four at most) that OPTIMIZE puts rows in order by, in place of partitions.

        Protocol: "Clustered Table".
        """
        for item in cols:
            self._cluster_by.extend([item] if isinstance(item, str) else item)
        return self

    def property(self, key: str, value: str) -> DeltaTableBuilder:
        """A table property."""
        self._properties[key] = value
        return self

    def execute(self) -> DeltaTable:
        """Create or replace the table, in one commit.

        Raises:
            TableAlreadyExistsError, TableNotFoundError: As the kind of builder says.
            SchemaError: Columns that the format cannot hold; partition columns that are not there.
            UnknownSettingError: A misspelt ``delta.*`` property.
        """
        with facade.user_errors():
            parts = None if self._name is None else parse_identifier(self._spark, self._name)
            log = define_table(
                self._spark,
                parts,
                mode=self._mode,
                schema=facade.schema_of(self._fields),
                location=self._location,
                partition_columns=self._partition_columns,
                cluster_by=self._cluster_by,
                properties=self._properties,
                description=self._comment,
            )
            return self._made(self._spark, log)
