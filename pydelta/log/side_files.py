"""Read and write the files beside the commits that only save work: ``_last_checkpoint`` and ``N.crc``.

The first is a hint at the newest checkpoint. The second is a version's checksum, written only from exact sums; it never
replaces an existing one. Neither decides what a table holds, so one that is missing or invalid is ignored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

from pydelta.errors import StorageError
from pydelta.log.snapshot import FileSums, Snapshot
from pydelta.protocol.actions import DomainMetadata, Metadata, Protocol, SetTransaction, action_to_dict
from pydelta.protocol.malformed import MALFORMED_JSON
from pydelta.protocol.paths import LAST_CHECKPOINT, LOG_DIR, checksum_file
from pydelta.storage.interface import PutOutcome, Store

__all__ = [
    "HINT_PATH",
    "CheckpointHint",
    "V2File",
    "VersionChecksum",
    "canonical_form",
    "decode_checksum",
    "decode_hint",
    "encode_checksum",
    "encode_hint",
    "hint_checksum",
    "read_checksum",
    "read_hint",
    "write_checksum",
]

HINT_PATH: Final = f"{LOG_DIR}/{LAST_CHECKPOINT}"


@dataclass(frozen=True, slots=True, kw_only=True)
class V2File:
    """The main file of a V2 checkpoint, whose UUID name cannot be derived from the version.

    Args:
        name: File name in the log's directory.
        size_in_bytes: Size of this file.
        modification_time_ms: Epoch milliseconds.
    """

    name: str
    size_in_bytes: int
    modification_time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointHint:
    """The content of ``_last_checkpoint`` ("Last Checkpoint File Schema").

    Args:
        version: Version of the checkpoint.
        size: Number of actions in it.
        parts: Number of parts of a multi-part checkpoint.
        size_in_bytes: Bytes of its files.
        num_of_add_files: Number of ``add`` actions in it.
        v2: The main file of a V2 checkpoint. If another engine wrote the hint, only the name is used.
    """

    version: int
    size: int
    parts: int | None = None
    size_in_bytes: int | None = None
    num_of_add_files: int | None = None
    v2: V2File | None = None


class _Number(str):
    """A JSON number with its original spelling."""

    __slots__ = ()


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key appears twice")
    return result


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}+{_quoted(key)}" if path else _quoted(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}+{index}" if path else str(index))
    elif isinstance(value, _Number):
        yield path, str(value)
    elif isinstance(value, str):
        yield path, _quoted(value)
    else:
        yield path, {True: "true", False: "false", None: "null"}[value]


def _quoted(text: str) -> str:
    return f'"{quote(text, safe="-._~")}"'


def canonical_form(text: str) -> str:
    """Return the canonical form of a JSON object, over which its checksum is computed ("JSON checksum").

    Raises:
        ValueError: The text is not a JSON object, or a key appears twice.
    """
    document = json.loads(
        text, parse_int=_Number, parse_float=_Number, parse_constant=_Number, object_pairs_hook=_no_duplicates
    )
    if not isinstance(document, dict):
        raise ValueError("a JSON object was expected")
    document.pop("checksum", None)
    leaves = sorted(_leaves(document, ""), key=lambda leaf: leaf[0].encode())
    return ",".join(f"{path}={value}" for path, value in leaves)


def hint_checksum(text: str) -> str:
    """Compute the MD5 of the canonical form, in hex.

    Raises:
        ValueError: See ``canonical_form``.
    """
    return hashlib.md5(canonical_form(text).encode(), usedforsecurity=False).hexdigest()


def encode_hint(hint: CheckpointHint) -> bytes:
    """Encode the file's bytes, including the checksum."""
    body: dict[str, Any] = {"version": hint.version, "size": hint.size}
    if hint.parts is not None:
        body["parts"] = hint.parts
    if hint.size_in_bytes is not None:
        body["sizeInBytes"] = hint.size_in_bytes
    if hint.num_of_add_files is not None:
        body["numOfAddFiles"] = hint.num_of_add_files
    if hint.v2 is not None:
        body["v2Checkpoint"] = {
            "path": hint.v2.name,
            "sizeInBytes": hint.v2.size_in_bytes,
            "modificationTime": hint.v2.modification_time_ms,
        }
    body["checksum"] = hint_checksum(json.dumps(body))
    return json.dumps(body, separators=(",", ":")).encode()


def decode_hint(data: bytes) -> CheckpointHint | None:
    """Parse the hint. Returns None if it is truncated, malformed or fails its checksum."""
    try:
        text = data.decode()
        body = json.loads(text)
        checksum = body.get("checksum")
        if checksum is not None and checksum != hint_checksum(text):
            return None
        version, size = body["version"], body.get("size", -1)
        if type(version) is not int or type(size) is not int or not 0 <= version < 10**18:
            return None
        parts = body.get("parts")
        return CheckpointHint(
            version=version, size=size, parts=parts if type(parts) is int else None, v2=_v2_file(body)
        )
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None


def _v2_file(body: Mapping[str, Any]) -> V2File | None:
    found = body.get("v2Checkpoint")
    if not isinstance(found, dict) or not isinstance(found.get("path"), str):
        return None
    numbers = [value if type(value := found.get(name)) is int else 0 for name in ("sizeInBytes", "modificationTime")]
    name = unquote(found["path"]).rpartition("/")[2]
    return V2File(name=name, size_in_bytes=numbers[0], modification_time_ms=numbers[1])


def read_hint(store: Store) -> CheckpointHint | None:
    """Read the table's ``_last_checkpoint``. Returns None if it is missing, unreadable or invalid."""
    data = _read(store, HINT_PATH)
    return None if data is None else decode_hint(data)


def _read(store: Store, path: str) -> bytes | None:
    """Read a file that only saves work. Returns None if it is missing or cannot be read."""
    try:
        return store.read(path)
    except FileNotFoundError:
        return None
    except StorageError as error:
        if error.retryable:
            raise
        return None


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
    data = _read(store, f"{LOG_DIR}/{checksum_file(version)}")
    return None if data is None else decode_checksum(data)


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
