"""Read CSV (RFC 4180) and JSON lines as a DataFrame in which rows fit their schema or state why they do not.

::

    files, options that this engine's readers support --mapInArrow--> columns, and ABOUT for rows that do not fit
    files, other options of Spark's readers --PERMISSIVE--> the same, but Spark only reports that a row does not fit
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from pyspark import StorageLevel
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, BooleanType, LongType, StringType, StructField, StructType

from pydelta.engines.arrow.tasks.csv_rows import CsvShape
from pydelta.engines.arrow.tasks.text_files import ABOUT, TextFiles
from pydelta.engines.arrow.tasks.text_values import TextRules, readable_type
from pydelta.engines.spark.logs import SessionSettings
from pydelta.engines.spark.write.arrow_batches import map_in_arrow
from pydelta.errors import InvalidArgumentError, SchemaMismatchError
from pydelta.protocol.names import quoted
from pydelta.protocol.types import ArrayType as Array
from pydelta.protocol.types import MapType as Map
from pydelta.protocol.types import StructType as Struct
from pydelta.protocol.types import parse_schema
from pydelta.tools.ingest.records import CORRUPT, with_corrupt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Records", "read_records"]

_OURS: Final = {
    "header",
    "sep",
    "delimiter",
    "nullvalue",
    "inferschema",
    "multiline",
    "quote",
    "escape",
    "encoding",
    "charset",
}
_OF_FILES: Final = {"pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter"}
_RFC: Final = {"multiLine": "true", "escape": '"', "enforceSchema": "false"}
_ABOUT_TYPES: Final = (StringType(), LongType(), StringType(), StringType(), BinaryType(), BooleanType())
_HEADERS: Final = 1000
_PACKED: Final = (".zst", ".zstd", ".lz4", ".snappy", ".deflate", ".lzo", ".xz")


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Rows of files: ``columns``, and the columns of ``ABOUT`` for each row that does not fit.

    Args:
        frame: Both kinds of columns.
        columns: Names of the data columns.
    """

    frame: DataFrame
    columns: Sequence[str]

    def release(self) -> None:
        """Free the disk cache that is kept between reads, if there is one."""
        self.frame.unpersist()

    @property
    def good(self) -> DataFrame:
        """The rows that fit."""
        return self.frame.where(F.col("__reason").isNull()).select(*[quoted(name) for name in self.columns])

    @property
    def bad(self) -> DataFrame:
        """The rows that do not fit: ``source``, ``line``, ``column``, ``reason``, ``value``."""
        names = {name: name.removeprefix("__") for name in ABOUT[:-1]}
        wrong = self.frame.where(F.col("__reason").isNotNull())
        return wrong.select(*[F.col(name).alias(shown) for name, shown in names.items()])

    def counted(self, *, may_set_aside: bool) -> int:
        """Count the rows that do not fit.

        Args:
            may_set_aside: Whether there is a table for them.

        Raises:
            SchemaMismatchError: There are such rows but no table for them, or a file cannot be read. Names the first
                one.
        """
        row = self.frame.agg(
            F.count(F.lit(1)).alias("all"),
            F.count("__reason").alias("bad"),
            F.min(F.when(F.col("__reason").isNotNull(), F.struct(*ABOUT[:4], F.col("__value")))).alias("first"),
            F.min(F.when(F.col("__whole_file"), F.col("__reason"))).alias("unreadable"),
        ).collect()[0]
        if row["unreadable"] is not None:
            raise SchemaMismatchError(row["unreadable"], hint="Nothing was written. Correct the file, or leave it out.")
        if row["bad"] and not may_set_aside:
            first = row["first"]
            line = "" if first["__line"] is None else f", line {first['__line']}"
            column = "" if first["__column"] is None else f", column {first['__column']}"
            raise SchemaMismatchError(
                f"{row['bad']} of {row['all']} rows do not fit, so nothing was written. "
                f"One of them: {first['__source']}{line}{column}: {first['__reason'].removesuffix('.')}.",
                hint="Correct the input, or give --bad-records PLACE, a table for such rows.",
            )
        return int(row["bad"])


def read_records(
    spark: SparkSession, paths: Sequence[str], form: str, *, schema: str | None, options: Mapping[str, str]
) -> Records:
    """Read CSV or JSON files.

    Args:
        spark: An enabled session.
        paths: Files and folders.
        form: ``csv`` or ``json``.
        schema: The columns as DDL; None for the columns that the files name, which are text in CSV.
        options: Options of Spark's reader.
    """
    given = {name.lower(): value for name, value in options.items()}
    found = _files(spark, paths, given)
    if not _is_ours(form, given) or found is None:
        return _by_spark(spark, paths, form, schema, options)
    files, kept = found
    reading = TextFiles(
        form=form,
        schema=None,
        shape=CsvShape(
            header=given.get("header", "false").lower() == "true",
            delimiter=given.get("sep", given.get("delimiter", ",")),
            may_be_empty=True,
        ),
        rules=TextRules(
            base64=form == "json",
            zone=str(spark.conf.get("spark.sql.session.timeZone")),
            nulls=(given["nullvalue"],) if given.get("nullvalue") else (),
        ),
        options=SessionSettings.of(spark).options,
        kept=to_arrow_schema(kept),
    )
    columns = _columns(spark, paths, schema, options, files, reading)
    if columns is None:
        return _by_spark(spark, paths, form, schema, options)
    return _records(files, kept, columns, reading)


def _is_ours(form: str, options: Mapping[str, str]) -> bool:
    """Return whether this engine's readers support all options, with values that RFC 4180 allows."""
    if options.keys() - _OURS - _OF_FILES:
        return False
    utf8 = {options.get("encoding", "utf-8").lower(), options.get("charset", "utf-8").lower()} <= {"utf-8", "utf8"}
    if form == "json":
        return utf8 and options.get("multiline", "false").lower() == "false" and not options.keys() & {"sep", "header"}
    delimiter = options.get("sep", options.get("delimiter", ","))
    return (
        utf8
        and len(delimiter.encode()) == 1
        and delimiter not in '"\r\n'
        and options.get("multiline", "true").lower() == "true"
        and options.get("quote", '"') == '"'
        and options.get("escape", '"') == '"'
    )


def _files(
    spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]
) -> tuple[DataFrame, StructType] | None:
    """List files with the columns that their folders name; None if a file has a compression that only Spark reads."""
    own = {name: value for name, value in options.items() if name in _OF_FILES}
    listed = spark.read.format("binaryFile").options(**own).load(list(paths))
    kept = StructType(
        [item for item in listed.schema.fields if item.name not in ("path", "modificationTime", "length", "content")]
    )
    files = listed.select("path", *[quoted(name) for name in kept.names])
    packed = F.lit(False)
    for ending in _PACKED:
        packed |= F.col("path").endswith(ending)
    return None if files.where(packed).limit(1).count() else (files, kept)


def _columns(
    spark: SparkSession,
    paths: Sequence[str],
    schema: str | None,
    options: Mapping[str, str],
    files: DataFrame,
    reading: TextFiles,
) -> StructType | None:
    """Find the columns of the rows; None if one has a type that only Spark reads."""
    form = reading.form
    if schema is not None:
        found = cast("StructType", StructType.fromDDL(schema))
        found = StructType([item for item in found.fields if item.name not in reading.kept.names])
    elif form == "json" or options.get("inferSchema", "false").lower() == "true":
        reader = spark.read.format(form).options(**{**(_RFC if form == "csv" else {}), **options})
        found = reader.option("columnNameOfCorruptRecord", CORRUPT).load(list(paths)).schema
        inferred = [item for item in found.fields if item.name not in (CORRUPT, *reading.kept.names)]
        found = StructType(inferred)
    else:
        named = StructType([StructField("path", StringType()), StructField("names", ArrayType(StringType()))])
        heads = map_in_arrow(files.orderBy("path").limit(_HEADERS), reading.__call__, named)
        names = heads.where("size(names) > 0").orderBy("path").first()
        if names is None:
            raise InvalidArgumentError("The input has no columns: its files are empty.", hint="Give --schema.")
        found = StructType([StructField(name, StringType()) for name in names["names"]])
    if not found.fields:
        raise InvalidArgumentError("No columns can be found in the input.", hint="Give --schema.")
    if len({name.lower() for name in found.names}) < len(found.names):
        raise InvalidArgumentError(
            f"The input names a column twice: {', '.join(found.names)}.", hint="Correct the header, or give --schema."
        )
    kinds = [item.data_type for item in parse_schema(found.json()).fields]
    if form == "csv" and any(isinstance(kind, (Struct, Array, Map)) for kind in kinds):
        raise InvalidArgumentError("CSV cannot hold structs, lists or maps.", hint="Give --schema with simple types.")
    return found if all(map(readable_type, kinds)) else None


def _records(files: DataFrame, kept: StructType, columns: StructType, reading: TextFiles) -> Records:
    names = [f"__c{place}" for place in range(len(columns))]
    plain = [StructField(name, item.dataType) for name, item in zip(names, columns.fields, strict=True)]
    about = [StructField(name, kind) for name, kind in zip(ABOUT, _ABOUT_TYPES, strict=True)]
    schema = StructType([*plain, *kept.fields, *about])
    frame = map_in_arrow(files, replace(reading, schema=columns.json()).__call__, schema)
    named = [F.col(name).alias(item.name) for name, item in zip(names, columns.fields, strict=True)]
    frame = frame.select(*named, *[quoted(name) for name in kept.names], *ABOUT)
    return Records(frame=frame, columns=[*columns.names, *kept.names])


def _by_spark(
    spark: SparkSession, paths: Sequence[str], form: str, schema: str | None, options: Mapping[str, str]
) -> Records:
    """Read rows with Spark, which only reports that a row does not fit."""
    own = _RFC if form == "csv" else {}
    given = {name.lower() for name in options}
    reader = spark.read.format(form).options(
        **{**{key: own[key] for key in own if key.lower() not in given}, **options}
    )
    found = (reader.schema(schema) if schema is not None else reader).load(list(paths)).schema
    columns = [item.name for item in found.fields if item.name not in (CORRUPT, "_corrupt_record")]
    nothing = {"__line": "long", "__column": "string"}
    if "mode" not in given and "columnnameofcorruptrecord" not in given:
        reader = reader.options(mode="PERMISSIVE", columnNameOfCorruptRecord=CORRUPT)
        rows = reader.schema(with_corrupt(StructType([item for item in found.fields if item.name in columns])))
        frame = rows.load(list(paths)).withColumn("__value", F.col(CORRUPT).cast("binary"))
    else:  # The user chose what Spark does with such rows.
        columns = list(found.names)
        reader = reader.schema(schema) if schema is not None else reader
        frame = reader.load(list(paths)).withColumn("__value", F.lit(None).cast("binary"))
    reason = F.when(F.col("__value").isNotNull(), f"The row does not fit the columns as {form}.")
    frame = frame.withColumn("__reason", reason).withColumn("__source", F.col("_metadata.file_path"))
    for name, kind in nothing.items():
        frame = frame.withColumn(name, F.lit(None).cast(kind))
    frame = frame.withColumn("__whole_file", F.lit(False)).select(*[quoted(name) for name in columns], *ABOUT)
    # Spark parses only the columns that a query uses, so a plain count would accept values that do not fit.
    return Records(frame=frame.persist(StorageLevel.DISK_ONLY), columns=columns)
