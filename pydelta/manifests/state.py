"""Keep ``_pydelta/manifests.json``: which version of the table each published manifest shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from pydelta.errors import ObjectNotFoundError
from pydelta.log import Snapshot
from pydelta.manifests.changes import partition_types
from pydelta.protocol.malformed import MALFORMED_JSON
from pydelta.storage import Store

__all__ = ["GENERATOR", "STATE_PATH", "ManifestState", "read_state"]

STATE_PATH: Final = "_pydelta/manifests.json"
GENERATOR: Final = 1
"""Raised when the contents of manifests change their form: tables published by an older one are published again."""


class ManifestState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is published.

    Args:
        table_id: Id of the table in its metadata.
        location: Where the table lay: lines are absolute, so manifests that were copied with a table are of no use.
        version: Every partition is of this version at least.
        generation: Number of the lease under which it was written.
        generator: See ``GENERATOR``.
        partition_columns: Of the table at that version.
        partition_types: Their types: with another one, a value has another directory.
        schemes: Rewritten schemes.
        partitions: Directory -> version at which its manifest was last written.
        emptied: Directories without files whose manifest stays until the metastore has dropped the partition: empty, or
            as it was where the table was partitioned in another way.
        ahead: Directories without files whose partition was asked for before its first rows; they stay.
    """

    table_id: str
    location: str
    version: int
    generation: int
    generator: int = GENERATOR
    partition_columns: tuple[str, ...] = ()
    partition_types: tuple[str, ...] = ()
    schemes: dict[str, str] = {}
    partitions: dict[str, int] = {}
    emptied: tuple[str, ...] = ()
    ahead: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Write the state as JSON, as it lies in the table."""
        return msgspec.json.encode(self)

    def live(self) -> set[str]:
        """Return directories that a metastore should have as partitions."""
        return {name for name in self.partitions if name} - set(self.emptied)

    def spread(self) -> tuple[int, int]:
        """Return the oldest and newest version of a published manifest; both ``version`` without any."""
        versions = self.partitions.values() or (self.version,)
        return min(versions), max(versions)

    @classmethod
    def of(cls, snapshot: Snapshot, schemes: Mapping[str, str]) -> ManifestState:
        """Make the state of a table's version before anything of it is published."""
        assert snapshot.metadata is not None
        return cls(
            table_id=snapshot.metadata.id,
            location=snapshot.table_uri,
            version=snapshot.version,
            generation=0,
            partition_columns=snapshot.partition_columns,
            partition_types=partition_types(snapshot.files.spec),
            schemes=dict(schemes),
        )

    def is_laid_out_as(self, table: ManifestState) -> bool:
        """Return whether it is of the same table, and a partition has the same directory."""
        mine, other = ((item.table_id, item.partition_columns, item.partition_types) for item in (self, table))
        return mine == other

    def why_not_from(self, table: ManifestState) -> str | None:
        """Say why the difference since this state is not enough, as a phrase; None when it is."""
        if self.table_id != table.table_id:
            return "another table was published here before"
        if self.location != table.location:
            return f"the table lay at {self.location} when it was published"
        if self.generator != GENERATOR:
            return f"the manifests were written by generator {self.generator}"
        if not self.is_laid_out_as(table):
            return "the partition columns have changed"
        if self.schemes != table.schemes:
            return "the rewriting of schemes has changed"
        return None


def read_state(store: Store) -> ManifestState | None:
    """Read the state next to a table; None where it is missing or unreadable: then everything is published."""
    try:
        return msgspec.json.decode(store.read(STATE_PATH), type=ManifestState)
    except (ObjectNotFoundError, *MALFORMED_JSON):
        return None
