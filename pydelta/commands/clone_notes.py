"""A shallow clone's location noted beside its source, so that VACUUM of the source can say whom it may break."""

from __future__ import annotations

import hashlib
import logging
from typing import Final

import msgspec

from pydelta.errors import DeltaError, StorageError
from pydelta.log import DeltaLog

__all__ = ["note_clone", "noted_clones"]

_FOLDER: Final = "_pydelta/clones"
_LOG = logging.getLogger(__name__)


class _Note(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    location: str
    source_version: int


def note_clone(source: DeltaLog, location: str, *, version: int) -> None:
    """Note that a table names files of this one. Somebody who may only read the source notes nothing.

    Args:
        source: The table whose files are named.
        location: URI of the clone.
        version: Of the source.
    """
    name = hashlib.sha256(location.encode()).hexdigest()[:32]
    note = msgspec.json.encode(_Note(location=location, source_version=version))
    try:
        source.store.put(f"{_FOLDER}/{name}.json", note)
    except StorageError as error:
        _LOG.info("The clone %s is not noted beside its source: %s", location, error.message)


def noted_clones(source: DeltaLog) -> list[str]:
    """Locations of the shallow clones that were noted, but for those that are known to be gone."""
    found = []
    for info in source.store.list_all(_FOLDER):
        try:
            location = msgspec.json.decode(source.store.read(info.path), type=_Note).location
        except (StorageError, msgspec.DecodeError, msgspec.ValidationError):
            continue
        if _may_exist(source, location):
            found.append(location)
    return sorted(found)


def _may_exist(source: DeltaLog, location: str) -> bool:
    try:
        return DeltaLog.for_table(location, options=source.options).table_exists()
    except DeltaError:  # of another store, perhaps, whose keys we do not have
        return True
