"""Look into a few data files of a table before its entry is published, since the log does not tell how they are stored.

Looked at are the newest files, and some others if the entry begins. One writer stores all its files alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pydelta.errors import ObjectNotFoundError, UnsupportedFeatureError
from pydelta.log import DeltaLog, Snapshot
from pydelta.log.footers import read_footers
from pydelta.manifests.iceberg.footers import FileOddities, file_oddities
from pydelta.manifests.iceberg.schema import EntrySchema

__all__ = ["checked_schema"]

_FILES: Final = 4


def checked_schema(
    make: Callable[[Sequence[Sequence[str]]], EntrySchema], log: DeltaLog, snapshot: Snapshot, *, begins: bool
) -> tuple[EntrySchema, tuple[str, ...]]:
    """Make the entry's schema so that readers find the columns of some files.

    Args:
        make: Makes the schema; it is given the paths of more columns that files have.
        log: Log of the table.
        snapshot: The version to publish.
        begins: Whether the entry begins, so that older files are looked at too.

    Returns:
        The schema, and the columns of times that a file stores as INT96.

    Raises:
        UnsupportedFeatureError: A file has other field ids than the table's columns. Names it.
        StorageError: A file cannot be read.
    """
    entry = make(())
    found = _oddities(log, snapshot, entry, begins=begins)
    for path, oddities in found:
        if oddities.other_ids:
            shown = ", ".join(map(repr, oddities.other_ids))
            raise UnsupportedFeatureError(
                f"The file {path!r} has other field ids than the table for {shown}: engines that read Iceberg would "
                "take these columns for others, or for missing.",
                features=("iceberg",),
                hint="Rewrite the rows: INSERT OVERWRITE with the rows of the table, or CREATE TABLE … AS SELECT.",
                table=snapshot.table_uri,
                version=snapshot.version,
            )
    unnamed = list(dict.fromkeys(path for _, oddities in found for path in oddities.unnamed))
    int96 = tuple(dict.fromkeys(name for _, oddities in found for name in oddities.int96))
    return (make(unnamed) if unnamed else entry), int96


def _oddities(log: DeltaLog, snapshot: Snapshot, entry: EntrySchema, *, begins: bool) -> list[tuple[str, FileOddities]]:
    core = snapshot.files.core
    sample = core.sort("modification_time").tail(_FILES)
    if begins and core.height > _FILES:
        sample = sample.vstack(core.gather_every(-(-core.height // _FILES)))
    files = list(dict.fromkeys(sample.select("path", "size").iter_rows()))
    try:
        footers = read_footers(files, store=log.store, root=log.uri, options=log.options)
    except ObjectNotFoundError:
        return []  # FSCK finds files that are missing.
    return [(path, file_oddities(footer, entry)) for (path, _), footer in zip(files, footers, strict=True)]
