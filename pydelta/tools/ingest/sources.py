"""Open the streams of records that feed a table: Kafka topics, files in a folder, Spark's rate source.

::

    kafka                   value, key and their origin  --decode-->  row, reason
    files of JSON           lines, decoded in the same way
    files of CSV and Avro   Spark's own readers, whose columns are the row
    rate                    timestamp and value are the row
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pydelta.engines.spark.jvm import Jvm
from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError
from pydelta.protocol.names import quoted
from pydelta.tools.ingest.records import CORRUPT, ORIGIN, RecordFormat, with_corrupt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["KAFKA_CLASS", "RecordSource", "inferred", "need_package", "open_records", "open_rows", "stream_rows"]

KAFKA_CLASS: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_AVRO_CLASS: Final = "org.apache.spark.sql.avro.AvroFileFormat"
_SAMPLE: Final = 1000
_RFC_4180: Final = {"multiLine": "true", "escape": '"'}
_PACKAGES: Final = {
    KAFKA_CLASS: ("Kafka", "org.apache.spark:spark-sql-kafka-0-10_2.13"),
    _AVRO_CLASS: ("Avro", "org.apache.spark:spark-avro_2.13"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSource:
    """The source of records.

    Args:
        kind: ``kafka``, ``files`` or ``rate``.
        name: The topics or the folder.
        brokers: Kafka brokers.
        limit: Maximum per batch: records of Kafka, or files of a folder.
        options: Options of Spark's reader, as the user gives them.
    """

    kind: str
    name: str = ""
    brokers: str = ""
    limit: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The name under which a checkpoint knows the source. Brokers are left out because they change."""
        return f"{self.kind}: {self.name}" if self.name else self.kind


def need_package(spark: SparkSession, java_class: str) -> None:
    """Refuse a session that lacks an optional Spark package.

    Raises:
        DeltaEnvironmentError: The package is missing; the hint names it.
    """
    jvm = Jvm.of(spark)
    if not bool(jvm.view.org.apache.spark.util.Utils.classIsLoadable(java_class)):
        what, package = _PACKAGES[java_class]
        raise DeltaEnvironmentError(
            f"Spark's package for {what} is not on the class path.",
            hint=f"Pass --packages {package}:{spark.version} to spark-submit, or that of the release next to it.",
        )


def open_records(spark: SparkSession, source: RecordSource, *, stream: bool = True) -> DataFrame:
    """Open records as bytes with the columns ``ORIGIN``: Kafka records, or lines of files.

    Args:
        spark: The session.
        source: The source.
        stream: Whether to open a stream instead of only the current records.
    """
    reader = spark.readStream if stream else spark.read
    if source.kind == "kafka":
        own = {"kafka.bootstrap.servers": source.brokers, "subscribe": source.name, "startingOffsets": "earliest"}
        if stream and source.limit is not None:
            own["maxOffsetsPerTrigger"] = str(source.limit)
        found = reader.format("kafka").options(**{**own, **source.options}).load()
        return found.select(
            "value",
            "key",
            F.col("topic").alias("source"),
            "partition",
            "offset",
            F.col("timestamp").alias("record_time"),
        )
    lines = reader.format("text").options(**_file_options(source, stream=stream)).load(source.name)
    lines = lines.where(F.trim("value") != "")
    return lines.select(*_of_file(F.col("value").cast("binary")))


def stream_rows(spark: SparkSession, source: RecordSource, how: RecordFormat) -> DataFrame:
    """Open the rows of files in a format that Spark reads itself: ``row``, ``reason`` and ``ORIGIN``.

    Raises:
        DeltaEnvironmentError: The Avro package is missing.
    """
    options = {**_file_options(source, stream=True), **how.options}
    reader = spark.readStream.format(how.name)
    nothing = F.lit(None).cast("binary")
    if how.name == "avro":
        need_package(spark, _AVRO_CLASS)
        if how.avro_schema is not None:
            options["avroSchema"] = how.avro_schema
        rows = reader.schema(how.schema).options(**options).load(source.name)
        return rows.select(_row(how.schema), F.lit(None).cast("string").alias("reason"), *_of_file(nothing))
    own = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    given = {name.lower() for name in options}
    own |= {name: value for name, value in _RFC_4180.items() if name.lower() not in given}
    if options.get("header", "").lower() == "true":
        # Otherwise Spark would accept columns in another order.
        own["enforceSchema"] = options.get("enforceSchema", "false")
    rows = reader.schema(with_corrupt(how.schema)).options(**{**options, **own}).load(source.name)
    raw = F.col(CORRUPT)
    reason = F.when(raw.isNotNull(), f"The record does not fit the schema as {how.name}.")
    return rows.select(_row(how.schema), reason.alias("reason"), *_of_file(raw.cast("binary")))


def open_rows(frame: DataFrame, columns: StructType, *, keep: Mapping[str, str] | None = None) -> DataFrame:
    """Return the columns of a stream as rows that are all good and have no origin.

    Args:
        frame: The stream.
        columns: Columns of the row.
        keep: Names of further columns in the result -> their names in the stream.
    """
    nulls = {"value": "binary", "key": "binary", "source": "string", "partition": "int", "offset": "long"}
    origin = [F.lit(None).cast(kind).alias(name) for name, kind in nulls.items()]
    return frame.select(
        _row(columns), F.lit(None).cast("string").alias("reason"), *origin,
        F.lit(None).cast("timestamp").alias("record_time"),
        *[F.col(name).alias(own) for own, name in (keep or {}).items()],
    )  # fmt: skip


def _row(columns: StructType) -> Column:
    return F.struct(*[F.col(quoted(name)).alias(name) for name in columns.names]).alias("row")


def _file_options(source: RecordSource, *, stream: bool) -> dict[str, str]:
    own = {"maxFilesPerTrigger": str(source.limit)} if stream and source.limit is not None else {}
    return {**own, **source.options}


def _of_file(value: Column) -> list[Column]:
    """Return the columns ``ORIGIN`` of a record in a file."""
    found = {
        "value": value,
        "key": F.lit(None).cast("binary"),
        "source": F.col("_metadata.file_path"),
        "partition": F.lit(None).cast("int"),
        "offset": F.lit(None).cast("long"),
        "record_time": F.col("_metadata.file_modification_time"),
    }
    return [found[name].alias(name) for name in ORIGIN]


def inferred(spark: SparkSession, source: RecordSource, record_format: str, options: Mapping[str, str]) -> StructType:
    """Infer the columns from the current records.

    Args:
        spark: The session.
        source: The source of the records.
        record_format: Format of the records.
        options: Options of Spark's parser.

    Raises:
        InvalidArgumentError: The input has no records, or their format does not allow it.
    """
    if source.kind == "files" and record_format != "json":
        if record_format == "avro":
            need_package(spark, _AVRO_CLASS)
        reader = spark.read.format(record_format).options(**{**options, "inferSchema": "true"})
        found = reader.load(source.name).schema
    elif record_format == "json":
        sample = open_records(spark, source, stream=False).where("value is not null").limit(_SAMPLE)
        texts = [row.text for row in sample.select(F.col("value").cast("string").alias("text")).collect()]
        found = (
            spark.read.options(**{**options, "columnNameOfCorruptRecord": CORRUPT})
            .json(spark.sparkContext.parallelize(texts, 1))
            .schema
        )
    else:
        raise InvalidArgumentError(
            f"The columns of {record_format} records in Kafka cannot be inferred.", hint="Give --schema."
        )
    columns = StructType([item for item in found.fields if item.name != CORRUPT])
    if not columns.fields:
        raise InvalidArgumentError(
            f"No columns can be inferred: {source.name} has no record that can be read as {record_format}.",
            hint="Give --schema, or run the job when there are records.",
        )
    return columns
