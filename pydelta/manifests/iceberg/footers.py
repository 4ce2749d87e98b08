"""Find columns of a data file that readers of the entry would read differently from this engine. Pure.

The log does not tell how a file stores its columns; only its footer does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydelta.manifests.iceberg.name_mapping import MappedName, previous_mapping
from pydelta.manifests.iceberg.schema import EntrySchema

if TYPE_CHECKING:
    import pyarrow.parquet as pq

__all__ = ["FileOddities", "file_oddities"]

_FIELD_ID: Final = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOddities:
    """Columns of a file, by their paths in it, with ``element``, ``key`` and ``value`` for parts.

    Args:
        int96: Times stored as INT96. They have no zone there, so engines disagree on what they mean.
        other_ids: Columns whose field id in the file is not the entry's: readers would take them for other columns, or
            for missing.
        unnamed: Columns that the name mapping does not name, in a file without ids for all columns: readers refuse it.
    """

    int96: tuple[str, ...] = ()
    other_ids: tuple[str, ...] = ()
    unnamed: tuple[tuple[str, ...], ...] = ()


def file_oddities(footer: pq.FileMetaData, entry: EntrySchema) -> FileOddities:
    """Compare a Parquet footer with the entry.

    Args:
        footer: Footer of the file.
        entry: The entry's schema.
    """
    columns = [footer.schema.column(index) for index in range(footer.num_columns)]
    int96 = tuple(column.path for column in columns if column.physical_type == "INT96")
    compared = [*_compared(list(footer.schema.to_arrow_schema()), previous_mapping(entry.name_mapping, None), ())]
    ids = [found for _, found, _ in compared if found is not None]
    named = [(path, found, mapped) for path, found, mapped in compared if mapped in entry.schema.field_ids]
    other = tuple(".".join(path) for path, found, mapped in named if found != mapped) if ids else ()
    unnamed = tuple(path for path, _, mapped in compared if mapped is None) if len(ids) < len(compared) else ()
    return FileOddities(int96=int96, other_ids=other, unnamed=unnamed)


def _compared(
    fields: Sequence[Any], mapped: Sequence[MappedName], above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], int | None, int | None]]:
    """Iterate over all columns and parts: the path, the id in the file, and the id in the name mapping."""
    import pyarrow as pa

    for item in fields:
        path = (*above, item.name)
        known = next((one for one in mapped if item.name in one.names), None)
        text = (item.metadata or {}).get(_FIELD_ID)
        yield path, None if text is None else int(text), None if known is None else known.field_id
        kind, below = item.type, known.parts if known is not None else ()
        if pa.types.is_struct(kind):
            parts = [kind.field(index) for index in range(kind.num_fields)]
        elif pa.types.is_map(kind):
            parts = [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            parts = [kind.value_field.with_name("element")]
        else:
            continue
        yield from _compared(parts, below, path)
