"""Hold what the file table must know of a schema: partition columns, and their names in the log."""

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
    """What the file table must know of the schema.

    Args:
        schema: The table's logical schema.
        partition_columns: Logical names, in order.
        physical_names: Keys of ``partitionValues``, in the same order.
        mode: ``delta.columnMapping.mode``.
        generated: What generated partition columns tell of other columns.
    """

    schema: StructType
    partition_columns: tuple[str, ...]
    physical_names: tuple[str, ...]
    mode: str
    generated: GeneratedPartitions = field(default_factory=GeneratedPartitions)

    @classmethod
    def of(cls, schema: StructType, partition_columns: Sequence[str], mode: str) -> PartitionSpec:
        """Work out the physical names.

        Raises:
            LogCorruptedError: A column partitions the table twice.
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
        """Return the partition columns as a struct, logical names as the metadata spells them."""
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
