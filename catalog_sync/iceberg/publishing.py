"""Call the publisher of Iceberg metadata, which needs the extra ``iceberg``, only where it is needed."""

from __future__ import annotations

from typing import Any

from catalog_sync.inputs import SyncOptions
from pydelta.errors import DeltaEnvironmentError, SchemaError, UnsupportedFeatureError
from pydelta.log import DeltaLog, Snapshot

__all__ = ["published_iceberg", "why_refused"]


def published_iceberg(log: DeltaLog, options: SyncOptions) -> Any:
    """Publish the newest version, as ``publish_iceberg`` does."""
    from pydelta.manifests.iceberg import IcebergOptions, publish_iceberg

    how = IcebergOptions(schemes=options.schemes, wait_seconds=options.patience(), full=options.full)
    return publish_iceberg(log, how)


def why_refused(snapshot: Snapshot) -> str | None:
    """Return why Iceberg cannot show a version, as a sentence, or None if it can or if that is not known here."""
    try:
        from pydelta.manifests.iceberg import check_iceberg
    except (ImportError, DeltaEnvironmentError):
        return None
    try:
        check_iceberg(snapshot)
    except (SchemaError, UnsupportedFeatureError) as error:
        return error.message
    return None
