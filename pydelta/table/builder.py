"""Build a new table: ``DeltaTable.create`` and its like collect its definition, ``execute`` makes it.

The names and signatures are those that Delta users know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pyspark.sql.types import DataType

from pydelta.commands.create import CreateMode, TableDefinition
from pydelta.errors import InvalidArgumentError
from pydelta.protocol.identity import identity_metadata
from pydelta.spark.catalog.define import define_table
from pydelta.spark.catalog.lookup import parse_identifier
from pydelta.spark.logs import user_errors
from pydelta.spark.types import make_field, schema_of
from pydelta.table.arguments import check_columns, check_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructField, StructType

    from pydelta.log import DeltaLog

__all__ = ["DeltaTableBuilder", "IdentityGenerator", "check_column"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class IdentityGenerator:
    """Numbers for an identity column: ``start``, ``start + step`` … Not every number need be used."""

    start: int = 1
    step: int = 1


def check_column(name: Any, kind: Any, nullable: Any, generated: tuple[Any, Any], comment: Any) -> None:
    """Refuse what ``addColumn`` cannot take.

    Args:
        name: The column's name.
        kind: Its type.
        nullable: Whether it may be null.
        generated: ``generatedAlwaysAs`` and ``generatedByDefaultAs``.
        comment: Its description.

    Raises:
        TypeError: An argument of another type.
    """
    always, by_default = generated
    check_type(name, str, what="A column's name")
    check_type(kind, str, DataType, what=f"The type of column {name!r}")
    check_type(nullable, bool, what=f"nullable of column {name!r}")
    if always is not None:
        check_type(always, str, IdentityGenerator, what=f"generatedAlwaysAs of column {name!r}")
    if by_default is not None:
        check_type(by_default, IdentityGenerator, what=f"generatedByDefaultAs of column {name!r}")
    if comment is not None:
        check_type(comment, str, what=f"The comment of column {name!r}")


class DeltaTableBuilder(Generic[_T]):
    """Collects what a new table is to be; ``execute`` makes it. Made by ``DeltaTable.create`` and its like.

    Args:
        spark: The session.
        mode: What becomes of a table that is there.
        made: Makes what ``execute`` gives: the class of the table.
    """

    def __init__(self, spark: SparkSession, mode: CreateMode, made: Callable[[SparkSession, DeltaLog], _T]) -> None:
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

    def tableName(self, identifier: str) -> DeltaTableBuilder[_T]:
        """Register the table in the session's catalog under this name; ``delta.`/path` `` names a location."""
        check_type(identifier, str, what="The table's name")
        self._name = identifier
        return self

    def location(self, location: str) -> DeltaTableBuilder[_T]:
        """Set where the table's files go."""
        check_type(location, str, what="The table's location")
        self._location = location
        return self

    def comment(self, comment: str) -> DeltaTableBuilder[_T]:
        """Set the table's description."""
        check_type(comment, str, what="The table's comment")
        self._comment = comment
        return self

    def addColumn(
        self,
        colName: str,
        dataType: str | DataType,
        nullable: bool = True,
        generatedAlwaysAs: str | IdentityGenerator | None = None,
        generatedByDefaultAs: IdentityGenerator | None = None,
        comment: str | None = None,
    ) -> DeltaTableBuilder[_T]:
        """Add one column.

        Args:
            colName: Its name.
            dataType: A Spark type or its DDL text, such as ``"decimal(10,2)"``.
            nullable: Whether it may be null.
            generatedAlwaysAs: SQL over other columns from which it is computed, or an ``IdentityGenerator``: every
                row gets a number of its own.
            generatedByDefaultAs: An ``IdentityGenerator``, for rows that bring no value.
            comment: Its description.

        Raises:
            TypeError: An argument of another type.
            InvalidArgumentError: Both, or a step of 0. It is a ``ValueError``.

        Protocol: "Generated Columns", "Identity Columns".
        """
        check_column(colName, dataType, nullable, (generatedAlwaysAs, generatedByDefaultAs), comment)
        with user_errors():
            expression = generatedAlwaysAs if isinstance(generatedAlwaysAs, str) else None
            always = generatedAlwaysAs if isinstance(generatedAlwaysAs, IdentityGenerator) else None
            if generatedByDefaultAs is not None and generatedAlwaysAs is not None:
                raise InvalidArgumentError(
                    f"Column {colName!r} is declared both generated always and by default.", hint="Give one of them."
                )
            generator = always or generatedByDefaultAs
            identity = None
            if generator is not None:
                identity = identity_metadata(start=generator.start, step=generator.step, explicit=always is None)
            self._fields.append(make_field(colName, dataType, nullable, expression, comment, identity))
        return self

    def addColumns(self, cols: StructType | Sequence[StructField]) -> DeltaTableBuilder[_T]:
        """Add the columns of an existing schema."""
        self._fields.extend(cols)
        return self

    def partitionedBy(self, *cols: str | Iterable[str]) -> DeltaTableBuilder[_T]:
        """Set the partition columns, in order; they must be columns of the table."""
        self._partition_columns.extend(check_columns(cols, "A partition column"))
        return self

    def clusterBy(self, *cols: str | Iterable[str]) -> DeltaTableBuilder[_T]:
        """Set the columns (dotted if nested, four at most) that OPTIMIZE orders rows by, in place of partitions.

        Protocol: "Clustered Table".
        """
        self._cluster_by.extend(check_columns(cols, "A clustering column"))
        return self

    def property(self, key: str, value: str) -> DeltaTableBuilder[_T]:
        """Set a table property."""
        check_type(key, str, what="A property's name")
        check_type(value, str, what=f"The value of property {key!r}")
        self._properties[key] = value
        return self

    def execute(self) -> _T:
        """Create or replace the table, in one commit.

        Raises:
            TableAlreadyExistsError, TableNotFoundError: As the kind of builder says.
            SchemaError: Columns that the format cannot hold; partition columns that are not there.
            UnknownSettingError: A misspelt ``delta.*`` property.
        """
        with user_errors():
            parts = None if self._name is None else parse_identifier(self._spark, self._name)
            log = define_table(
                self._spark,
                parts,
                TableDefinition(
                    schema=schema_of(self._fields),
                    partition_columns=self._partition_columns,
                    cluster_by=self._cluster_by,
                    properties=self._properties,
                    description=self._comment,
                ),
                mode=self._mode,
                location=self._location,
            )
            return self._made(self._spark, log)
