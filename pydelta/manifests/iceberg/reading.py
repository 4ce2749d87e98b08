"""Read the manifests of an entry from its store, whole: a reply that was cut off must not hide files."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pydelta.errors import StorageError
from pydelta.manifests.iceberg.manifests import decode_list, decode_manifest
from pydelta.manifests.iceberg.puffin import vector_rows
from pydelta.storage import Store

if TYPE_CHECKING:
    import numpy.typing as npt
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

    from pydelta.manifests.iceberg.entries import Entry

__all__ = ["live_files", "read_list", "read_manifest", "read_vectors", "read_whole"]

_DAMAGED: Final = (ValueError, EOFError, KeyError, IndexError, OverflowError, TypeError, SystemError, zlib.error)


def live_files(manifest: ManifestFile) -> int:
    """Return the number of live files of a manifest."""
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def read_whole(store: Store, path: str, size: int) -> bytes:
    """Read a file of known size.

    Raises:
        StorageError: It has another size.
    """
    data = store.read(path)
    if len(data) != size:
        raise _incomplete(store, path)
    return data


def read_list(store: Store, path: str, summary: Mapping[str, Any]) -> list[ManifestFile]:
    """Read the manifest list of a snapshot and compare it with the snapshot's summary.

    Raises:
        StorageError: It is damaged or was read in part.
    """
    try:
        found = decode_list(store.read(path))
    except _DAMAGED as error:
        raise _incomplete(store, path) from error
    for is_deletes, name in ((False, "total-data-files"), (True, "total-delete-files")):
        files = sum(live_files(item) for item in found if bool(item.content) is is_deletes)
        if files != int(summary.get(name, files)):
            raise _incomplete(store, path)
    return found


def read_manifest(
    store: Store,
    path: str,
    manifest: ManifestFile,
    specs: Mapping[int, tuple[PartitionSpec, Schema]],
    *,
    naming: Sequence[bytes] = (),
) -> list[Entry]:
    """Read the live entries of a manifest.

    Args:
        store: Store of the table.
        path: Path of the manifest.
        manifest: The manifest in its list.
        specs: Every spec with a schema that has its columns, by id.
        naming: Locations. A manifest that has none of them gives no entry.

    Raises:
        StorageError: It is damaged or was read in part.
    """
    spec, schema = specs[manifest.partition_spec_id]
    data = read_whole(store, path, manifest.manifest_length)
    try:
        return decode_manifest(data, manifest, spec=spec, schema=schema, naming=naming)
    except _DAMAGED as error:
        raise _incomplete(store, path) from error


def read_vectors(
    store: Store, path_of: Callable[[str], str], vectors: Sequence[Entry]
) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Read deletion vectors: yield the locations of data files with the positions of their hidden rows.

    Args:
        store: Store of the table.
        path_of: Returns the path of a location.
        vectors: Entries of vectors. Those of one Puffin file are read together.

    Raises:
        StorageError: A Puffin file is damaged or was read in part.
    """
    files: dict[str, list[Entry]] = {}
    for entry in vectors:
        files.setdefault(entry.path, []).append(entry)
    for location, entries in files.items():
        path = path_of(location)
        data = read_whole(store, path, entries[0].size)
        for entry in entries:
            assert entry.blob is not None, "only entries of vectors are read"
            try:
                rows = vector_rows(data, entry.blob, cardinality=entry.rows)
            except ValueError as error:
                raise _incomplete(store, path) from error
            yield entry.blob.location, rows.astype(np.int64)


def _incomplete(store: Store, path: str) -> StorageError:
    return StorageError(
        f"{path!r} is damaged or was read only in part, so the files of the Iceberg entry are not known.",
        retryable=True,
        hint="Run it again. If that does not help, delete the folder _pydelta/iceberg and publish the entry again.",
        table=store.root,
    )
