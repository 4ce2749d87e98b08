"""Write a version's checksum ``N.crc``, and read one if it is valid.

A checksum is written only from exact sums, never replaces an existing one, and never decides what a table holds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec

from pydelta.errors import StorageError
from pydelta.log.snapshot import FileSums, Snapshot
from pydelta.protocol.actions import DomainMetadata, Metadata, Protocol, SetTransaction, action_to_dict
from pydelta.protocol.malformed import MALFORMED_JSON
from pydelta.protocol.paths import LOG_DIR, checksum_file
from pydelta.storage.interface import PutOutcome, Store

__all__ = ["VersionChecksum", "decode_checksum", "encode_checksum", "read_checksum", "write_checksum"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChecksum:
    """The fields of a ``.crc`` that this engine reads ("Version Checksum File Schema")."""

    sums: FileSums
    protocol: Protocol
    metadata: Metadata


def encode_checksum(snapshot: Snapshot, sums: FileSums) -> bytes:
    """Encode the checksum as one JSON object on one line."""
    assert snapshot.metadata is not None
    assert snapshot.protocol is not None
    info = snapshot.commit_info
    body: dict[str, Any] = {
        "tableSizeBytes": sums.size_bytes,
        "numFiles": sums.num_files,
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [_body(txn) for txn in snapshot.set_transactions.values()],
        "domainMetadata": [_body(domain) for domain in snapshot.domain_metadata.values()],
        "metadata": _body(snapshot.metadata),
        "protocol": _body(snapshot.protocol),
    }
    if info is not None and info.txn_id is not None:
        body["txnId"] = info.txn_id
    if info is not None and info.in_commit_timestamp is not None and snapshot.in_commit_timestamps_enabled:
        body["inCommitTimestampOpt"] = info.in_commit_timestamp
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _body(action: Metadata | Protocol | SetTransaction | DomainMetadata) -> dict[str, Any]:
    body: dict[str, Any] = action_to_dict(action)[action.kind]
    return body


def decode_checksum(data: bytes) -> VersionChecksum | None:
    """Parse the checksum. Returns None if the bytes are truncated, malformed or lack a required field."""
    try:
        body = msgspec.json.decode(data)
        if body["numMetadata"] != 1 or body["numProtocol"] != 1:
            return None
        files, size = body["numFiles"], body["tableSizeBytes"]
        if type(files) is not int or type(size) is not int or files < 0 or size < 0:
            return None
        return VersionChecksum(
            sums=FileSums(num_files=files, size_bytes=size),
            protocol=msgspec.convert(body["protocol"], Protocol, strict=False),
            metadata=msgspec.convert(body["metadata"], Metadata, strict=False),
        )
    except (*MALFORMED_JSON, KeyError, TypeError):
        return None


def read_checksum(store: Store, version: int) -> VersionChecksum | None:
    """Read ``N.crc``. Returns None if it is missing or invalid."""
    try:
        return decode_checksum(store.read(f"{LOG_DIR}/{checksum_file(version)}"))
    except FileNotFoundError:
        return None
    except StorageError as error:
        if error.retryable:
            raise
        return None


def _carried_forward(store: Store, snapshot: Snapshot) -> FileSums | None:
    """Return the sums of the previous version's ``.crc`` plus this change; None if it is missing or does not match."""
    if snapshot.change is None or snapshot.version == 0:
        return None
    before = read_checksum(store, snapshot.version - 1)
    if before is None or before.protocol != snapshot.protocol or before.metadata != snapshot.metadata:
        return None
    sums = before.sums.plus(snapshot.change)
    return sums if sums.num_files >= 0 and sums.size_bytes >= 0 else None


def write_checksum(store: Store, snapshot: Snapshot) -> bool:
    """Write the snapshot's ``.crc`` from its own sums, or from the previous version's and this commit's change.

    If neither is available, the file table is read once and its sums are kept.

    Returns:
        Whether this call wrote it. False if another writer was first.
    """
    if snapshot.version < 0:
        return False
    sums = snapshot.sums() or _carried_forward(store, snapshot)
    if sums is None:
        sums = FileSums(num_files=snapshot.files.num_files, size_bytes=snapshot.files.size_bytes)
    path = f"{LOG_DIR}/{checksum_file(snapshot.version)}"
    return store.put_if_absent(path, encode_checksum(snapshot, sums)) is PutOutcome.CREATED
