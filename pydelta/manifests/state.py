"""Keep ``_pydelta/manifests.json``, which has the table's version of each published manifest."""

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
"""Format of the manifests, raised when it changes. Tables published in an older format are published again."""


class ManifestState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of the published manifests.

    Args:
        table_id: Id of the table in its metadata.
        location: Location of the table. Lines are absolute, so manifests that were copied with a table cannot be used.
        version: Version that every partition has at least.
        generation: Number of the lease under which the state was written.
        generator: Format of the manifests, see ``GENERATOR``.
        partition_columns: Partition columns of the table at that version.
        partition_types: Types of the partition columns. If a type changes, a value may get another directory.
        schemes: Scheme of a location -> scheme in manifests.
        partitions: Directory -> version at which its manifest was last written.
        emptied: Directories without files whose manifest stays until the metastore has dropped the partition. It is
            empty, or unchanged if the partition columns have changed.
        ahead: Directories without files that were added before their first rows, and that stay.
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
        """Encode the state as JSON."""
        return msgspec.json.encode(self)

    def live(self) -> set[str]:
        """Return the directories that a metastore should have as partitions."""
        return {name for name in self.partitions if name} - set(self.emptied)

    def spread(self) -> tuple[int, int]:
        """Return the oldest and the newest version of a published manifest, or twice ``version`` if there are none."""
        versions = self.partitions.values() or (self.version,)
        return min(versions), max(versions)

    @classmethod
    def of(cls, snapshot: Snapshot, schemes: Mapping[str, str]) -> ManifestState:
        """Create the state of a table's version before any manifest is published."""
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
        """Return whether both states are of the same table and give a partition the same directory."""
        mine, other = ((item.table_id, item.partition_columns, item.partition_types) for item in (self, table))
        return mine == other

    def why_not_from(self, table: ManifestState) -> str | None:
        """Return why publishing only the changes since this state is not enough, as a phrase, or None if it is."""
        if self.table_id != table.table_id:
            return "another table was published here before"
        if self.location != table.location:
            return f"the table was at {self.location} when it was published"
        if self.generator != GENERATOR:
            return f"the manifests were written by generator {self.generator}"
        if not self.is_laid_out_as(table):
            return "the partition columns have changed"
        if self.schemes != table.schemes:
            return "the rewriting of schemes has changed"
        return None


def read_state(store: Store) -> ManifestState | None:
    """Read the state of a table. A missing or unreadable one gives None, so that everything is published."""
    try:
        return msgspec.json.decode(store.read(STATE_PATH), type=ManifestState)
    except (ObjectNotFoundError, *MALFORMED_JSON):
        return None
