"""Find files of an Iceberg entry that are missing or damaged, so that engines could not read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pydelta.errors import LogCorruptedError, StorageError
from pydelta.log import DeltaLog
from pydelta.manifests.iceberg.entry import Found, find_newest
from pydelta.manifests.iceberg.metadata import FOLDER, HINT_PATH, is_ours, metadata_path, snapshot_version
from pydelta.manifests.iceberg.publish import known_specs
from pydelta.manifests.iceberg.reading import read_list, read_manifest
from pydelta.storage import Store

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile

__all__ = ["damaged_files"]

_MARKER: Final = 16


def damaged_files(log: DeltaLog) -> list[tuple[str, str]]:
    """Return the paths of missing and damaged files of the entry under the table's root, with the reasons.

    The data files are the Delta table's, and are not checked. An entry that another writer changed has none.

    Raises:
        StorageError: The store failed.
    """
    files = _Files(log.store)
    if not files.sizes:
        return []
    try:
        found = find_newest(log.store)
    except LogCorruptedError as error:
        return [(FOLDER, error.message)]
    if found is None or not is_ours(found.metadata):
        return []
    return [*_damage_of_hint(files, found), *_damage_of_snapshots(log, files, found)]


class _Files:
    """The files of the folder by a listing, and those that came after it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.sizes = {info.path: info.size for info in store.list_all(FOLDER)}

    def damage(self, path: str, size: int | None = None) -> str | None:
        """Return why a file cannot be read, or None if it is there and, if a size is given, has this size."""
        if path not in self.sizes:
            info = self._store.head(path)
            if info is None:
                return "it is missing"
            self.sizes[path] = info.size
        if size is not None and self.sizes[path] != size:
            return f"it has {self.sizes[path]} bytes, but the entry says {size}"
        return None


def _damage_of_hint(files: _Files, found: Found) -> Iterator[tuple[str, str]]:
    """Check what readers without a catalog begin with. A hint that is behind is not damaged."""
    if found.hint is None:
        yield HINT_PATH, "it is missing or is not a number"
    elif (why := files.damage(metadata_path(found.hint))) is not None:
        yield HINT_PATH, f"it names {metadata_path(found.hint)}, but {why}"


def _damage_of_snapshots(log: DeltaLog, files: _Files, found: Found) -> Iterator[tuple[str, str]]:
    root = found.metadata["location"].removesuffix(FOLDER)
    specs = known_specs(found.metadata)
    seen: set[str] = set()
    for snapshot in found.metadata["snapshots"]:
        path = snapshot["manifest-list"].removeprefix(root)
        of = f"the list of version {snapshot_version(snapshot)}"
        if (why := files.damage(path)) is not None:
            yield path, f"{why}: {of}"
            continue
        if not _is_whole(log.store.read(path)):
            yield path, f"it was cut off: {of}"
            continue
        try:
            listed = read_list(log.store, path, snapshot["summary"])
        except StorageError as error:
            yield path, error.message
            continue
        for manifest in listed:
            place = manifest.manifest_path.removeprefix(root)
            if place not in seen:
                seen.add(place)
                yield from _damage_of_manifest(log, files, manifest, place, root=root, specs=specs)


def _is_whole(data: bytes) -> bool:
    """Return whether an Avro file ends with the marker that its header states. A manifest list states no size."""
    return data[-_MARKER:] in data[:-_MARKER]


def _damage_of_manifest(
    log: DeltaLog, files: _Files, manifest: ManifestFile, path: str, *, root: str, specs: Mapping[int, Any]
) -> Iterator[tuple[str, str]]:
    if (why := files.damage(path, manifest.manifest_length)) is not None:
        yield path, why
        return
    if not manifest.content:
        return
    try:
        entries = read_manifest(log.store, path, manifest, specs)
    except StorageError as error:
        yield path, error.message
        return
    # The vectors of a Puffin file share it.
    for location, size in {entry.path: entry.size for entry in entries}.items():
        place = location.removeprefix(root)
        if (why := files.damage(place, size)) is not None:
            yield place, f"{why}: hidden rows would be shown"
