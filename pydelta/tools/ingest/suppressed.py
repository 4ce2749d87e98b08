"""Mark rows whose keys were erased: those in a suppression list, which ``pydelta erase --suppress`` makes.

The digest of each value is computed by Spark's own functions, so that rows pass through no Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, DateType, DecimalType, IntegerType, LongType, ShortType, StringType, StructType

from pydelta.engines.spark.logs import log_for_path
from pydelta.engines.spark.scan.scan import scan_dataframe
from pydelta.errors import InvalidArgumentError
from pydelta.protocol.names import quoted
from pydelta.tools.erasure.suppression import salt_of
from pydelta.tools.jobs import pairs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

__all__ = ["SUPPRESSED", "Suppression", "digest_column", "mark_suppressed", "suppression_of"]

SUPPRESSED: Final = "__pydelta_suppressed"
"""The column that says of each row whether a key of it was erased."""
_BLOCK_BYTES: Final = 64
_KEY_TYPES: Final = (StringType, ByteType, ShortType, IntegerType, LongType, DecimalType, DateType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """A list, and the columns whose values are looked up in it.

    Args:
        location: The list.
        columns: The name of the key of each column; empty for all columns that are named as a key.
    """

    location: str
    columns: Mapping[str, str] = field(default_factory=dict)


def suppression_of(location: str | None, columns: Sequence[str]) -> Suppression | None:
    """Read the arguments ``--suppress`` and ``--suppress-column`` of a job; None without a list.

    Raises:
        InvalidArgumentError: Columns are given without a list, or one is not ``COLUMN=KEY``.
    """
    keys = pairs(columns, "--suppress-column")
    if location is None:
        if keys:
            raise InvalidArgumentError("--suppress-column needs --suppress.", hint="Name the list of erased keys.")
        return None
    return Suppression(location=location, columns=keys)


def mark_suppressed(
    spark: SparkSession, rows: DataFrame, suppression: Suppression, *, inside: str | None = None
) -> DataFrame:
    """Add the column ``SUPPRESSED`` to rows. Each row stays once.

    Args:
        spark: The session.
        rows: The rows.
        suppression: The list, whose newest version is read.
        inside: The struct that holds the columns; None if they are the frame's own.

    Raises:
        InvalidArgumentError: The table is not a list; or the rows have none of its columns, or one of another type.
    """
    snapshot = log_for_path(spark, suppression.location).update()
    salt = salt_of(snapshot)
    listed = scan_dataframe(spark, snapshot, pinned=True).select("key", "digest").distinct()
    schema = rows.schema if inside is None else rows.schema[inside].dataType
    assert isinstance(schema, StructType)
    columns = dict(suppression.columns) or _named_as_keys(listed, schema)
    if not columns:
        raise InvalidArgumentError(
            f"The rows have no column that is named as a key of the list {suppression.location}.",
            hint="Say which column holds which key: --suppress-column COLUMN=KEY.",
        )
    marks: list[Column] = []
    for number, (name, key) in enumerate(columns.items()):
        kind = _checked_type(schema, name)
        value = F.col(quoted(name)) if inside is None else F.col(inside).getField(name)
        digest, found = f"{SUPPRESSED}_digest_{number}", f"{SUPPRESSED}_{number}"
        of_key = listed.where(F.col("key") == key).select(F.col("digest").alias(digest), F.lit(True).alias(found))
        rows = rows.withColumn(f"{digest}_own", digest_column(value, kind, salt))
        rows = rows.join(F.broadcast(of_key), F.col(f"{digest}_own") == F.col(digest), "left")
        marks.append(F.coalesce(F.col(found), F.lit(False)))
    own = [name for name in rows.columns if not name.startswith(SUPPRESSED)]
    mark = reduce(lambda left, right: left | right, marks)
    return rows.select(*map(quoted, own), mark.alias(SUPPRESSED))


def digest_column(value: Column, kind: DataType, salt: bytes) -> Column:
    """Return the digest of each value (HMAC-SHA-256), as ``digest_of_key`` computes it. That of null is null."""
    block = salt.ljust(_BLOCK_BYTES, b"\0")
    inner, outer = (bytes(byte ^ pad for byte in block) for pad in (0x36, 0x5C))
    text = F.encode(_text(value, kind), "UTF-8")
    first = F.unhex(F.sha2(F.concat(F.lit(bytearray(inner)), text), 256))
    return F.sha2(F.concat(F.lit(bytearray(outer)), first), 256)


def _text(value: Column, kind: DataType) -> Column:
    if not isinstance(kind, DecimalType):
        return value.cast("string")
    # A cast may write small numbers with an exponent.
    plain = F.replace(F.format_number(value, kind.scale), F.lit(","), F.lit(""))
    shown = F.regexp_replace(plain, r"\.?0*$", "") if kind.scale else plain
    return F.when(value.isNotNull(), shown)


def _named_as_keys(listed: DataFrame, schema: StructType) -> dict[str, str]:
    keys = {str(row[0]).lower(): str(row[0]) for row in listed.select("key").distinct().collect()}
    return {name: keys[name.lower()] for name in schema.names if name.lower() in keys}


def _checked_type(schema: StructType, name: str) -> DataType:
    kind: DataType | None = next((field.dataType for field in schema if field.name == name), None)
    if kind is None:
        raise InvalidArgumentError(
            f"--suppress-column names {name}, which the rows do not have.",
            hint=f"Their columns are: {', '.join(schema.names)}.",
        )
    if not isinstance(kind, _KEY_TYPES):
        raise InvalidArgumentError(
            f"The column {name} is {kind.simpleString()}, and no key is of this type.",
            hint="Keys are text, whole numbers, decimals and days.",
        )
    return kind
