"""Define what the file table needs from a schema: the partition columns and their names in the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pydelta.errors import LogCorruptedError
from pydelta.predicate.generated import GeneratedPartitions, generated_partitions
from pydelta.protocol.schema import physical_partition_columns
from pydelta.protocol.types import StructField, StructType

__all__ = ["PartitionSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSpec:
    """The parts of the schema that the file table needs.

    Args:
        schema: The table's logical schema.
        partition_columns: Logical names, in order.
        physical_names: Keys of ``partitionValues``, in the same order.
        mode: ``delta.columnMapping.mode``.
        generated: Conditions on other columns that generated partition columns imply.
    """

    schema: StructType
    partition_columns: tuple[str, ...]
    physical_names: tuple[str, ...]
    mode: str
    generated: GeneratedPartitions = field(default_factory=GeneratedPartitions)

    @classmethod
    def of(cls, schema: StructType, partition_columns: Sequence[str], mode: str) -> PartitionSpec:
        """Derive the spec, including the physical names, from a schema.

        Raises:
            LogCorruptedError: A partition column is listed twice.
        """
        if len(set(partition_columns)) < len(partition_columns):
            raise LogCorruptedError(
                f"The metadata names a partition column twice: {', '.join(partition_columns)}.",
                hint="Restore the commit that last changed the metadata from a backup of _delta_log.",
            )
        return cls(
            schema=schema,
            partition_columns=tuple(partition_columns),
            physical_names=physical_partition_columns(schema, partition_columns, mode),
            mode=mode,
            generated=generated_partitions(schema, partition_columns),
        )

    def partition_schema(self) -> StructType:
        """Return the partition columns as a struct, with logical names as spelled in the metadata."""
        fields = []
        for name in self.partition_columns:
            field = self.schema.field(name)
            if field is None:
                raise LogCorruptedError(
                    f"The metadata partitions the table by {name!r}, which is not a column of its schema.",
                    hint="Restore the commit that last changed the metadata from a backup of _delta_log.",
                )
            fields.append(StructField(name, field.data_type))
        return StructType(tuple(fields))
