"""Find the files named by published manifests, except those that the log's newest versions need anyway."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import polars as pl

from pydelta.errors import ObjectNotFoundError
from pydelta.log import DeltaLog, Snapshot
from pydelta.manifests.contents import manifest_lines
from pydelta.manifests.publish import listed_manifests
from pydelta.manifests.state import read_state
from pydelta.manifests.versions import published_versions
from pydelta.storage import ObjectInfo
from pydelta.storage.whole import read_listed

__all__ = ["NamedFiles", "named_files"]

_READERS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFiles:
    """Files that manifests name.

    Args:
        locations: Distinct absolute locations, as the lines of the manifests spell them.
        manifests: Number of manifests read.
    """

    locations: pl.Series
    manifests: int


def named_files(log: DeltaLog, snapshot: Snapshot, *, is_retained: Callable[[int], bool]) -> NamedFiles:
    """Find the files that readers of manifests need, including manifests that an atomic sync has replaced.

    Manifests of a version whose files are all retained are not read.

    Args:
        log: Log of the table.
        snapshot: Newest snapshot of the table.
        is_retained: Returns whether every file of a version is needed anyway.

    Raises:
        StorageError: A manifest cannot be read to its end, so its files are not known.
        LogCorruptedError: A manifest is not text.
    """
    found: list[ObjectInfo | str] = []
    assert snapshot.metadata is not None
    state = read_state(log.store)
    ours = (
        state is not None
        and (state.table_id, state.location) == (snapshot.metadata.id, snapshot.table_uri)
        and 0 <= state.version <= snapshot.version
        and is_retained(state.version)
    )
    if not ours:
        found += listed_manifests(log.store)
    found += published_versions(log.store, table_id=snapshot.metadata.id, is_retained=is_retained)
    if not found:
        return NamedFiles(locations=pl.Series([], dtype=pl.String), manifests=0)

    def lines(item: ObjectInfo | str) -> list[str]:
        info = log.store.head(item) if isinstance(item, str) else item
        try:
            return [] if info is None else manifest_lines(read_listed(log.store, info), source=info.path)
        except ObjectNotFoundError:  # Another publication deleted it.
            return []

    with ThreadPoolExecutor(max_workers=min(_READERS, len(found))) as pool:
        parts = [pl.Series(part, dtype=pl.String) for part in pool.map(lines, found) if part]
    locations = pl.concat(parts).unique() if parts else pl.Series([], dtype=pl.String)
    return NamedFiles(locations=locations, manifests=len(found))
