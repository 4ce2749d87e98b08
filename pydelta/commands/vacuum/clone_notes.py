"""Note a shallow clone's location next to its source, so that VACUUM of the source keeps what the clone reads."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from typing import Final

import msgspec

from pydelta.errors import DeltaError, ObjectNotFoundError, StorageError, UnsafeOperationError
from pydelta.log import DeltaLog
from pydelta.protocol.malformed import MALFORMED_JSON, reason
from pydelta.storage.whole import read_listed

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
        _LOG.info("The clone %s could not be noted next to its source: %s", location, error.message)


def noted_clones(source: DeltaLog) -> list[DeltaLog]:
    """Find the shallow clones that were noted, and their clones, by location; those known to be gone are left out.

    Raises:
        UnsafeOperationError: A note cannot be read: whom the source may break is not known.
        StorageError: The store failed.
    """
    found: dict[str, DeltaLog] = {}
    waiting = [source]
    while waiting:
        for clone in _clones_of(waiting.pop()):
            if clone.uri not in found and clone.uri != source.uri:
                found[clone.uri] = clone
                waiting.append(clone)
    return [found[location] for location in sorted(found)]


def _clones_of(source: DeltaLog) -> Iterator[DeltaLog]:
    for info in source.store.list_all(_FOLDER):
        try:
            location = msgspec.json.decode(read_listed(source.store, info), type=_Note).location
        except ObjectNotFoundError:
            continue
        except MALFORMED_JSON as error:
            raise UnsafeOperationError(
                f"{source.uri}/{info.path} notes a shallow clone of this table, but cannot be read: {reason(error)}.",
                hint="Find out which table reads files of this one, and clone it anew; or delete the note.",
            ) from error
        clone = DeltaLog.for_table(location, options=source.options)
        if _may_exist(clone):
            yield clone


def _may_exist(clone: DeltaLog) -> bool:
    try:
        return clone.table_exists()
    except DeltaError:  # of another store, perhaps, whose keys we do not have
        return True
