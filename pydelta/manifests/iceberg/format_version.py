"""Choose the version of Iceberg's format for an entry. It only goes up: readers take it for final. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydelta.errors import UnsupportedFeatureError
from pydelta.log import Snapshot
from pydelta.manifests.iceberg.entry import FormatVersion, IcebergOptions
from pydelta.manifests.iceberg.metadata import FOLDER
from pydelta.settings import TableProperties

__all__ = ["format_version"]

_PROPERTY: Final = "pydelta.iceberg.formatVersion"
_DEFAULT: Final = 2


def format_version(snapshot: Snapshot, options: IcebergOptions, metadata: Mapping[str, Any] | None) -> FormatVersion:
    """Return the format version of the next metadata file.

    Args:
        snapshot: Snapshot of the Delta version.
        options: The options of publishing.
        metadata: The metadata before, or None to start a table.

    Raises:
        UnsupportedFeatureError: The metadata before is of a later version than the wanted one.
    """
    wanted = options.format_version or _property(snapshot)
    present = None if metadata is None else metadata["format-version"]
    if wanted is None:
        return present or _DEFAULT
    if present is not None and wanted < present:
        raise UnsupportedFeatureError(
            f"The table asks for an Iceberg entry of format version {wanted}, but its entry is of version {present}, "
            "and Iceberg has no way back.",
            features=("iceberg",),
            hint=f"Set {_PROPERTY} to {present}, or remove the property. To begin again with version "
            f"{wanted}, drop the entry in the metastore, delete the folder {FOLDER}, and publish it again.",
            table=snapshot.table_uri,
            version=snapshot.version,
        )
    return wanted


def _property(snapshot: Snapshot) -> FormatVersion | None:
    """Return what the table's property says, whatever its other properties are."""
    assert snapshot.metadata is not None
    given = snapshot.metadata.configuration.get(_PROPERTY)
    return None if given is None else TableProperties.parse({_PROPERTY: given}).iceberg_format_version
