"""Write changed manifests into a directory per version. Readers move to it when the metastore names it.

::

    _pydelta/manifests/00000000000000000012/day=2024-01-01/manifest    as of version 12, never overwritten
    _pydelta/manifests/empty/manifest                                 for partitions without files
    _pydelta/manifest-versions.json                                   the manifests in use, and the retired ones

The state is written before the metastore names the new directory. A retired manifest stays for as long as a removed
data file does, since a reader may just have got its location.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from pydelta.errors import ObjectNotFoundError
from pydelta.log import DeltaLog, Snapshot
from pydelta.manifests.contents import MANIFEST_NAME, Manifest, manifests_of
from pydelta.manifests.lease import Lease
from pydelta.manifests.plan import manifests_of_changes
from pydelta.manifests.publish import changes_since, delete_manifests, put_manifests
from pydelta.protocol.malformed import MALFORMED_JSON
from pydelta.storage import Store

__all__ = ["EMPTY_DIR", "VersionedResult", "publish_version", "published_versions", "remove_retired"]

_ROOT: Final = "_pydelta/manifests"
_STATE_PATH: Final = "_pydelta/manifest-versions.json"
EMPTY_DIR: Final = f"{_ROOT}/empty"


class _Retired(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    directory: str
    version: int
    since_ms: int


class _State(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    table_id: str
    location: str
    schemes: dict[str, str]
    version: int
    current: dict[str, int]
    retired: tuple[_Retired, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionedResult:
    """The result of publishing a version.

    Args:
        locations: Partition directory -> directory of its manifest under the table's root.
        gone: Partitions that commits touched and that have no files.
    """

    locations: Mapping[str, str]
    gone: tuple[str, ...]


def publish_version(
    log: DeltaLog,
    snapshot: Snapshot,
    *,
    since: int | None,
    schemes: Mapping[str, str],
    lease: Lease,
    now_ms: int,
) -> VersionedResult:
    """Write the manifests of the changed partitions into the snapshot's own directory.

    Args:
        log: Log of the table.
        snapshot: Snapshot of the version to publish. The table is partitioned.
        since: Version that readers see, or None to write every partition.
        schemes: Scheme of a location -> scheme in manifests.
        lease: Lease held by the caller.
        now_ms: Epoch milliseconds, recorded with the retired manifests.

    Raises:
        LeaseLostError, StorageError: Readers still see the previous version. Run it again.
    """
    assert snapshot.metadata is not None
    store = log.store
    state = _read(store)
    if state is not None and (state.table_id, state.location, state.schemes) != (
        snapshot.metadata.id,
        snapshot.table_uri,
        dict(schemes),
    ):
        state = None
    manifests, gone, full = _changed(log, snapshot, since if state is not None else None, schemes)
    paths = {name: f"{_ROOT}/{snapshot.version:020}/{name}" for name in manifests}
    writes = {f"{path}/{MANIFEST_NAME}": manifests[name].text for name, path in paths.items()}
    if store.head(f"{EMPTY_DIR}/{MANIFEST_NAME}") is None:
        writes[f"{EMPTY_DIR}/{MANIFEST_NAME}"] = b""
    put_manifests(store, writes, lease)
    before = set(state.current.items()) if state is not None else _listed(store)
    retired = state.retired if state is not None else ()
    kept = {} if full or state is None else {k: v for k, v in state.current.items() if k not in manifests}
    for name in gone:
        kept.pop(name, None)
    current = kept | dict.fromkeys(manifests, snapshot.version)
    out_of_use = {(name, version) for name, version in before if current.get(name) != version}
    # An interrupted run may not have reached the metastore, so that manifests which it retired are still in use.
    moved = {name for name, _ in out_of_use}
    entries = {(item.directory, item.version): item for item in retired if current.get(item.directory) != item.version}
    for name, version in out_of_use | {key for key in entries if key[0] in moved}:
        entries[name, version] = _Retired(directory=name, version=version, since_ms=now_ms)
    after = _State(
        table_id=snapshot.metadata.id,
        location=snapshot.table_uri,
        schemes=dict(schemes),
        version=snapshot.version,
        current=current,
        retired=tuple(entries[key] for key in sorted(entries)),
    )
    lease.check()
    store.put(_STATE_PATH, msgspec.json.encode(after))
    return VersionedResult(locations=paths, gone=gone)


def remove_retired(log: DeltaLog, lease: Lease, *, retention_ms: int, now_ms: int) -> int:
    """Delete manifests that were retired for longer than the retention. Call it once the metastore names the new ones.

    Returns:
        The number of deleted manifests.

    Raises:
        LeaseLostError, StorageError: The manifests are left to the next call.
    """
    state = _read(log.store)
    old = [item for item in state.retired if item.since_ms <= now_ms - retention_ms] if state else []
    if state is None or not old:
        return 0
    paths = [f"{_ROOT}/{item.version:020}/{item.directory}/{MANIFEST_NAME}" for item in old]
    delete_manifests(log.store, paths, lease)
    gone = {(item.directory, item.version) for item in old}
    left = tuple(item for item in state.retired if (item.directory, item.version) not in gone)
    lease.check()
    log.store.put(_STATE_PATH, msgspec.json.encode(msgspec.structs.replace(state, retired=left)))
    return len(old)


def published_versions(store: Store, *, table_id: str, is_retained: Callable[[int], bool]) -> list[str]:
    """List the manifests of atomic syncs whose location a reader may have, with those in use first.

    Args:
        store: Store of the table.
        table_id: Id in the table's metadata.
        is_retained: Returns whether every file of a version is needed anyway. Manifests in use of such a version are
            left out.
    """
    state = _read(store)
    if state is None or state.table_id != table_id:
        keys = sorted(_listed(store))
    else:
        current = [] if is_retained(state.version) else sorted(state.current.items())
        keys = [*current, *((item.directory, item.version) for item in state.retired)]
    return [f"{_ROOT}/{version:020}/{directory}/{MANIFEST_NAME}" for directory, version in dict.fromkeys(keys)]


def _changed(
    log: DeltaLog, snapshot: Snapshot, since: int | None, schemes: Mapping[str, str]
) -> tuple[Mapping[str, Manifest], tuple[str, ...], bool]:
    """Return the manifests to write, the partitions without files, and whether these are all partitions."""
    if since is not None:
        changes = changes_since(log, since, snapshot)
        if changes.unknown is None:
            manifests, gone = manifests_of_changes(snapshot, changes.values, schemes)
            return manifests, gone, False
    return manifests_of(snapshot, snapshot.files.core, schemes=schemes), (), True


def _read(store: Store) -> _State | None:
    try:
        return msgspec.json.decode(store.read(_STATE_PATH), type=_State)
    except (ObjectNotFoundError, *MALFORMED_JSON):
        return None


def _listed(store: Store) -> set[tuple[str, int]]:
    """List the existing manifests, as partition and version, for a table without a state."""
    found = set()
    for info in store.list_all(_ROOT):
        version, _, rest = info.path.removeprefix(f"{_ROOT}/").partition("/")
        directory, _, name = rest.rpartition("/")
        if version.isdigit() and name == MANIFEST_NAME:
            found.add((directory, int(version)))
    return found
