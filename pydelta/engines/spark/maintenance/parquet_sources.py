"""Find Parquet tables to convert to Delta, by path or by name in the session's catalog."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pydelta.engines.spark.catalog.entries import session_identifier
from pydelta.engines.spark.catalog.lookup import location_of_table
from pydelta.engines.spark.jvm import Jvm
from pydelta.errors import StorageError, first_line
from pydelta.protocol.schema import StructType, parse_schema
from pydelta.storage.uris import hadoop_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ParquetSource", "folder_partitions", "parquet_source"]

_PROVIDER: Final = "parquet"
_SERDE: Final = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSource:
    """A Parquet table.

    Args:
        location: The folder, as a URI.
        partitions: Names and types of the columns in folder names; None if unknown.
        columns: Columns of the entry in Spark's catalog; None for a path.
        table: The entry; None for a path.
    """

    location: str
    partitions: StructType | None = None
    columns: StructType | None = None
    table: Any = field(default=None, repr=False, compare=False)


def parquet_source(spark: SparkSession, parts: tuple[str, ...]) -> ParquetSource | None:
    """Find the Parquet table of ``parquet.`/path` `` or of a name; None if there is none.

    Args:
        spark: The session.
        parts: Parts of the name.
    """
    jvm = Jvm.of(spark)
    if len(parts) == 2 and parts[0].lower() == _PROVIDER and ("/" in parts[1] or ":" in parts[1]):
        return ParquetSource(location=jvm.qualify(parts[1]))
    if len(parts) == 3 and parts[0].lower() != "spark_catalog":
        return None
    identifier, catalog = session_identifier(jvm, parts), jvm.catalog
    if not catalog.tableExists(identifier):
        return None
    table = catalog.getTableMetadata(identifier)
    provider, serde = table.provider(), table.storage().serde()
    named = str(provider.get()).lower() if provider.isDefined() else ""
    of_hive = named == "hive" and serde.isDefined() and _SERDE in str(serde.get()).lower()
    if named != _PROVIDER and not of_hive:
        return None
    return ParquetSource(
        location=jvm.qualify(location_of_table(jvm, table)),
        partitions=_struct(str(table.partitionSchema().json())),
        columns=_struct(str(table.schema().json())),
        table=table,
    )


def folder_partitions(spark: SparkSession, uri: str) -> StructType:
    """Return the partition columns in the names of subfolders, as Spark infers them.

    Raises:
        StorageError: Spark cannot read the folder.
    """
    try:
        plan = spark.read.parquet(hadoop_uri(uri))._jdf.queryExecution().analyzed()
    except (PySparkException, Py4JError) as error:
        raise StorageError(
            f"The Parquet files at {uri} could not be read: {first_line(error)}", hint="Check the path."
        ) from error
    return _struct(str(plan.relation().partitionSchema().json()))


def _struct(text: str) -> StructType:
    schema = parse_schema(json.dumps(json.loads(text)))
    assert isinstance(schema, StructType)
    return schema
