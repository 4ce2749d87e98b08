"""Decode records into rows by a schema, and give the reason for each bad one.

::

    value, key, source, partition, offset, record_time        what a source provides per record
        --decode-->  row (a struct), reason (null for a good one), and the same columns

A record is never dropped: it becomes one row, with or without a reason. Nothing here runs a Spark job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from pydelta.errors import InvalidArgumentError, first_line
from pydelta.protocol.names import quoted

__all__ = [
    "CORRUPT",
    "ORIGIN",
    "RecordFormat",
    "decode",
    "parse_schema_text",
    "refuse_nulls",
    "schema_of_text",
    "struct_of",
]

CORRUPT: Final = "__ingest_corrupt"
ORIGIN: Final = ("value", "key", "source", "partition", "offset", "record_time")
"""What is known of a record besides its row: bytes of value and key, its topic or file, its place there, its time."""

_DECODED: Final = "__ingest_decoded"
_OWN_OPTIONS: Final = ("mode", "columnnameofcorruptrecord", "avroschema")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFormat:
    """The decoding of a record's bytes into columns.

    Args:
        name: ``json``, ``csv`` or ``avro``.
        schema: The columns.
        avro_schema: The writer's schema of Avro records, as JSON.
        options: Options of Spark's parser.
    """

    name: str
    schema: StructType
    avro_schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        taken = [name for name in self.options if name.lower() in _OWN_OPTIONS]
        if taken:
            raise InvalidArgumentError(
                f"The option {taken[0]} decides what happens to bad records, which go to --bad-records.",
                hint=f"Leave out --record-option {taken[0]}.",
            )


def parse_schema_text(text: str) -> StructType:
    """Parse a schema given as DDL or as the JSON of a Spark schema.

    Raises:
        InvalidArgumentError: It does not parse, or has no columns.
    """
    try:
        schema = StructType.fromJson(json.loads(text)) if text.lstrip().startswith("{") else StructType.fromDDL(text)
    except (AnalysisException, ParseException) as error:
        raise _bad_schema(text, first_line(error)) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _bad_schema(text, str(error) or "it is not a struct") from None
    if not isinstance(schema, StructType) or not schema.fields:
        raise _bad_schema(text, "it has no columns")
    return schema


def _bad_schema(text: str, why: str) -> InvalidArgumentError:
    shown = text if len(text) <= 200 else f"{text[:200]}…"
    return InvalidArgumentError(
        f"The schema {shown!r} cannot be read: {why}",
        hint="Write it as DDL, such as 'id BIGINT, at TIMESTAMP', or give a file with DDL, Spark's JSON or, for Avro "
        "records, an Avro schema.",
    )


def schema_of_text(text: str, record_format: str) -> tuple[StructType, str | None]:
    """Parse the schema of a format: the columns and, for Avro, the writer's schema.

    Raises:
        InvalidArgumentError: The schema does not parse.
    """
    if record_format != "avro" or '"record"' not in text:
        return parse_schema_text(text), None
    from pyspark.sql.avro.functions import from_avro

    try:
        json.loads(text)
        columns = _one_value().select(from_avro(F.lit(b""), text, {"mode": "PERMISSIVE"}).alias("row")).schema["row"]
    except AnalysisException as error:
        raise _bad_schema(text, first_line(error)) from None
    except Exception as error:  # Avro's own parser in the JVM raised it.
        if isinstance(error, InvalidArgumentError):
            raise
        raise _bad_schema(text, _java_message(error)) from None
    if not isinstance(columns.dataType, StructType):
        raise _bad_schema(text, "it is not a record")
    return columns.dataType, text


def _one_value() -> DataFrame:
    from pydelta.engines.spark.logs import active_session

    return active_session(None).range(1)


def _java_message(error: Exception) -> str:
    return first_line(getattr(error, "java_exception", None) or error).rsplit("Exception: ", 1)[-1]


def decode(records: DataFrame, how: RecordFormat) -> DataFrame:
    """Add ``row`` and ``reason`` to records that are still bytes.

    Args:
        records: Records with the columns ``ORIGIN``.
        how: Format and schema.
    """
    parsed, ok = _parsers(how)
    decoded = records.select(*ORIGIN, parsed.alias(_DECODED))
    missing = F.col("value").isNull()
    reason = F.when(missing, "The record has no value.").when(~ok, f"The record does not fit the schema as {how.name}.")
    names = how.schema.names
    return decoded.select(struct_of(names, _DECODED).alias("row"), reason.alias("reason"), *ORIGIN)


def _parsers(how: RecordFormat) -> tuple[Column, Column]:
    """Return the parser of ``value`` as a column, and a condition on its result that holds for good records."""
    value, decoded = F.col("value"), F.col(_DECODED)
    if how.name == "avro":
        from pyspark.sql.avro.functions import from_avro

        if how.avro_schema is None:
            raise InvalidArgumentError(
                "Avro records need the schema that they were written with.",
                hint="Give --schema FILE with the Avro schema as JSON.",
            )
        # A bad record becomes a struct of nulls, as a record of nulls does. Only decoding a good one fills this field.
        reader = json.loads(how.avro_schema)
        reader["fields"] = [*reader["fields"], {"name": CORRUPT, "type": "boolean", "default": True}]
        options = {**how.options, "mode": "PERMISSIVE", "avroSchema": json.dumps(reader)}
        return from_avro(value, how.avro_schema, options), F.coalesce(decoded[CORRUPT], F.lit(False))
    schema = with_corrupt(how.schema)
    options = {**how.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    text = value.cast("string")
    parsed = decoded.isNotNull() & decoded[CORRUPT].isNull()
    if how.name == "csv":
        return F.from_csv(text, _ddl(schema), options), parsed & (F.trim(text) != "")
    # Spark reads the first value of a record and ignores what follows. Nothing follows if the record forms an array of
    # one value alone, and an array of two values together with another one.
    alone = F.json_array_length(F.concat(F.lit("["), text, F.lit("]"))) == 1
    alone &= F.json_array_length(F.concat(F.lit("["), text, F.lit(",0]"))) == 2
    return F.from_json(text, schema, options), parsed & F.coalesce(alone, F.lit(False))


def _ddl(schema: StructType) -> str:
    """Format a schema for ``from_csv``. CSV columns are not nested."""
    return ", ".join(f"{quoted(item.name)} {item.dataType.simpleString()}" for item in schema.fields)


def with_corrupt(schema: StructType) -> StructType:
    """Return a schema with the column in which Spark's parsers store a record that does not fit."""
    return StructType([*schema.fields, StructField(CORRUPT, StringType())])


def struct_of(names: Sequence[str], source: str) -> Column:
    """Return a struct of the named fields of another struct."""
    return F.struct(*[F.col(source).getField(name).alias(name) for name in names])


def refuse_nulls(decoded: DataFrame, columns: Sequence[str], what: str) -> DataFrame:
    """Mark records as bad if a required column of the row is null.

    Args:
        decoded: Result of ``decode``.
        columns: The required columns.
        what: Their role, such as "key", for the reason.
    """
    if not columns:
        return decoded
    nulls: list[tuple[Column, str]] = [
        (F.col("row").getField(name).isNull(), f"The {what} column {quoted(name)} is null.") for name in columns
    ]
    first: Any = F.when(F.col("reason").isNotNull(), F.col("reason"))
    return decoded.withColumn("reason", reduce(lambda chain, item: chain.when(*item), nulls, first))
