"""Parse and write ``_last_checkpoint`` and its checksum. The file is only a hint at the newest checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote

from pydelta.errors import StorageError
from pydelta.protocol.paths import LAST_CHECKPOINT, LOG_DIR
from pydelta.storage.interface import Store

__all__ = [
    "HINT_PATH",
    "CheckpointHint",
    "V2File",
    "canonical_form",
    "decode_hint",
    "encode_hint",
    "hint_checksum",
    "read_hint",
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
    try:
        return decode_hint(store.read(HINT_PATH))
    except FileNotFoundError:
        return None
    except StorageError as error:
        if error.retryable:
            raise
        return None
