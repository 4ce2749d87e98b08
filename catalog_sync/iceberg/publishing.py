"""Call the publisher of Iceberg metadata, which needs the extra ``iceberg``, only where it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog_sync.iceberg.entry import IcebergDriftError
from catalog_sync.inputs import SyncOptions
from pydelta.errors import SchemaError, UnsafeOperationError, UnsupportedFeatureError
from pydelta.log import DeltaLog, Snapshot
from pydelta.manifests.iceberg.entry import IcebergOptions, find_newest
from pydelta.manifests.iceberg.format_version import format_version
from pydelta.manifests.iceberg.metadata import ID_PROPERTY, is_ours, metadata_path

if TYPE_CHECKING:
    from pydelta.manifests.iceberg.entry import IcebergPublished

__all__ = ["published_iceberg", "why_drifted", "why_refused"]

_UNSUPPORTED = "pydelta.iceberg.unsupported"


def published_iceberg(log: DeltaLog, options: SyncOptions) -> IcebergPublished:
    """Publish the newest version, as ``publish_iceberg`` does.

    Raises:
        IcebergDriftError: Another writer has changed the metadata in the table's folder.
        Others: As ``publish_iceberg``.
    """
    from pydelta.manifests.iceberg import publish_iceberg

    how = IcebergOptions(
        schemes=options.schemes, wait_seconds=options.patience(), full=options.full, adopt=options.adopt
    )
    try:
        return publish_iceberg(log, how)
    except UnsafeOperationError as error:
        raise IcebergDriftError(
            f"{error.message} Nothing was changed.",
            hint="Copy what it wrote into the Delta table if you need it. Then sync with --adopt, which goes back to "
            "the Delta table's rows.",
            table=log.uri,
        ) from error


def why_drifted(log: DeltaLog) -> str | None:
    """Return how another writer has changed the metadata in the table's folder, as a sentence, or None."""
    found = find_newest(log.store)
    if found is None or is_ours(found.metadata):
        return None
    return f"Another writer has changed the Iceberg metadata: {metadata_path(found.number)} is not made from the log."


def why_refused(log: DeltaLog, snapshot: Snapshot) -> str | None:
    """Return why a version cannot be published, as a sentence, or None: its columns, or an older format version.

    None also if PyIceberg is not installed here. The change of a type that Iceberg cannot follow is only found by a
    sync.
    """
    assert snapshot.metadata is not None
    found = find_newest(log.store)
    is_same = found is not None and found.metadata.get("properties", {}).get(ID_PROPERTY) == snapshot.metadata.id
    try:
        format_version(snapshot, IcebergOptions(), found.metadata if found is not None and is_same else None)
    except UnsupportedFeatureError as error:
        return error.message
    try:
        from pydelta.manifests.iceberg.schema import entry_schema
    except ModuleNotFoundError:
        return None
    omit = snapshot.metadata.configuration.get(_UNSUPPORTED) == "omit"
    try:
        entry_schema(snapshot.schema, mode=snapshot.column_mapping_mode, omit=omit)
    except (SchemaError, UnsupportedFeatureError) as error:
        return error.message
    return None
