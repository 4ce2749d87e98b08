"""Read the published state of an Iceberg entry from its folder, and name the options and results of publishing.

Nothing here needs PyIceberg: a metadata file is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from pydelta.errors import LogCorruptedError, ObjectNotFoundError
from pydelta.log import DeltaLog
from pydelta.manifests.contents import DEFAULT_SCHEMES
from pydelta.manifests.iceberg.metadata import (
    FOLDER,
    HINT_PATH,
    ID_PROPERTY,
    METADATA_DIR,
    VERSION_PROPERTY,
    is_ours,
    metadata_number,
    metadata_path,
)
from pydelta.manifests.iceberg.plan import MAX_FILES
from pydelta.protocol.malformed import MALFORMED_JSON
from pydelta.storage import Store

__all__ = [
    "FormatVersion",
    "Found",
    "IcebergEntry",
    "IcebergOptions",
    "IcebergPublished",
    "find_newest",
    "read_entry",
    "read_hint",
]

FormatVersion: TypeAlias = Literal[2, 3]
"""Version of Iceberg's format: with 3, hidden rows are deletion vectors in Puffin files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergEntry:
    """A published state of the entry.

    Args:
        location: Location of the Iceberg table, ``_pydelta/iceberg`` under the table's root.
        metadata_location: Location of its metadata file, which a catalog points to.
        number: Number of the metadata file.
        table_id: Id of the Delta table in its metadata.
        version: Delta version.
        snapshot_id: Id of the Iceberg snapshot.
    """

    location: str
    metadata_location: str
    number: int
    table_id: str
    version: int
    snapshot_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergOptions:
    """The options of publishing an Iceberg entry.

    Args:
        omit_unsupported: Leave out columns that Iceberg cannot hold, rather than refuse them. The table's property
            ``pydelta.iceberg.unsupported=omit`` does the same.
        format_version: Version of Iceberg's format: 2 or 3; None for the table's property
            ``pydelta.iceberg.formatVersion``, or else the entry's present one, or else 2.
        schemes: Scheme of a location -> scheme that readers use.
        wait_seconds: How long to wait for another publisher.
        full: Compare every file with the entry, rather than take the changes from the log.
        adopt: Replace an entry that another writer changed.
        keep_snapshots: Number of snapshots that stay in the metadata.
        files_per_manifest: Number of files that a manifest is filled up to.
    """

    omit_unsupported: bool = False
    format_version: FormatVersion | None = None
    schemes: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_SCHEMES))
    wait_seconds: float = 60.0
    full: bool = False
    adopt: bool = False
    keep_snapshots: int = 100
    files_per_manifest: int = MAX_FILES


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergPublished:
    """The result of publishing.

    Args:
        entry: The entry's present state.
        previous: The entry before, or None if there was none.
        full: Whether every file was compared or written.
        reason: Why, as a phrase, or None.
        manifests_written: Number of manifests written.
        manifests_kept: Number of manifests named again as they are.
        files_added: Data files that the snapshot adds.
        files_removed: Data files that it removes.
        delete_files: Files of hidden rows written; with format version 3, deletion vectors.
        puts: Number of files written in all.
        left_out: Columns that Iceberg cannot hold and that were left out.
        int96: Columns of times that some files store as INT96, which engines read differently.
    """

    entry: IcebergEntry
    previous: IcebergEntry | None
    full: bool = False
    reason: str | None = None
    manifests_written: int = 0
    manifests_kept: int = 0
    files_added: int = 0
    files_removed: int = 0
    delete_files: int = 0
    puts: int = 0
    left_out: tuple[str, ...] = ()
    int96: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The newest metadata file.

    Args:
        number: Its number.
        metadata: Its content.
        data: Its bytes.
        hint: Number in ``version-hint.text``, or None.
    """

    number: int
    metadata: Mapping[str, Any]
    data: bytes
    hint: int | None

    def entry(self, metadata_location: str) -> IcebergEntry:
        """Return the state that it describes."""
        properties = self.metadata.get("properties", {})
        text = properties.get(VERSION_PROPERTY, "")
        return IcebergEntry(
            location=self.metadata["location"],
            metadata_location=metadata_location,
            number=self.number,
            table_id=properties.get(ID_PROPERTY, ""),
            version=int(text) if text.isdigit() else -1,
            snapshot_id=self.metadata.get("current-snapshot-id"),
        )


def read_entry(log: DeltaLog) -> IcebergEntry | None:
    """Return the newest published state of the entry, or None if there is none or another engine wrote it.

    Raises:
        LogCorruptedError: The newest metadata file is damaged.
        StorageError: The store failed.
    """
    found = find_newest(log.store)
    if found is None or not is_ours(found.metadata):
        return None
    return found.entry(f"{found.metadata['location']}/metadata/v{found.number}.metadata.json")


def read_hint(store: Store) -> int | None:
    """Return the number in ``version-hint.text``, or None if it is missing or unreadable."""
    try:
        text = store.read(HINT_PATH).decode(errors="replace").strip()
    except ObjectNotFoundError:
        return None
    return int(text) if text.isdigit() else None


def find_newest(store: Store) -> Found | None:
    """Return the newest metadata file: the one that the hint names, or a later one if a publisher was stopped.

    Raises:
        LogCorruptedError: It is damaged.
    """
    hint = read_hint(store)
    found = None if hint is None else _read(store, hint)
    if found is None:
        names = (info.path.rpartition("/")[2] for info in store.list_from("v", prefix=METADATA_DIR))
        numbers = [number for name in names if (number := metadata_number(name)) is not None]
        found = _read(store, max(numbers)) if numbers else None
    while found is not None and store.head(metadata_path(found.number + 1)) is not None:
        later = _read(store, found.number + 1)
        if later is None:
            break
        found = later
    return None if found is None else replace(found, hint=hint)


def _read(store: Store, number: int) -> Found | None:
    path = metadata_path(number)
    try:
        data = store.read(path)
        metadata = json.loads(data)
        if not isinstance(metadata, dict) or "location" not in metadata or "snapshots" not in metadata:
            raise ValueError(path)
    except ObjectNotFoundError:
        return None
    except (*MALFORMED_JSON, ValueError) as error:
        raise LogCorruptedError(
            f"{path} is not Iceberg metadata, so it is not known what the entry has.",
            hint=f"Delete the folder {FOLDER} and publish the entry again.",
            table=store.root,
        ) from error
    return Found(number=number, metadata=metadata, data=data, hint=None)
