r"""Parse and build the names of log files, and data paths as the log spells them.

Protocol: "File Types", "Add File and Remove File" (``path`` is a URI, relative to the table root or absolute).
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from pydelta.errors import LogCorruptedError

__all__ = [
    "LAST_CHECKPOINT",
    "LOG_DIR",
    "SIDECAR_DIR",
    "LogFile",
    "LogFileKind",
    "checkpoint_file",
    "checksum_file",
    "commit_file",
    "compacted_file",
    "decode_log_path",
    "encode_log_path",
    "is_absolute_path",
    "multipart_file",
    "parse_log_name",
    "resolve_data_path",
    "v2_checkpoint_file",
]

LOG_DIR: Final = "_delta_log"
SIDECAR_DIR: Final = "_delta_log/_sidecars"
LAST_CHECKPOINT: Final = "_last_checkpoint"


class LogFileKind(enum.Enum):
    """What a file directly in ``_delta_log`` is."""

    COMMIT = "commit"
    CHECKPOINT_CLASSIC = "classic checkpoint"
    CHECKPOINT_PART = "part of a checkpoint"
    CHECKPOINT_V2 = "V2 checkpoint"
    COMPACTED = "compacted commits"
    CHECKSUM = "version checksum"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """A log file by its name.

    Args:
        kind: What it is.
        version: Its version; the first one of a compaction.
        name: The file name.
        part: Number of a checkpoint part, from 1.
        parts: How many parts there are.
        end_version: Last version of a compaction.
        uuid: Of a V2 checkpoint.
    """

    kind: LogFileKind
    version: int
    name: str
    part: int | None = None
    parts: int | None = None
    end_version: int | None = None
    uuid: str | None = None


def commit_file(version: int) -> str:
    """Name the file of a commit.

    Example:
        >>> commit_file(7)
        '00000000000000000007.json'
    """
    return f"{version:020d}.json"


def checkpoint_file(version: int) -> str:
    """Name the file of a classic checkpoint."""
    return f"{version:020d}.checkpoint.parquet"


def multipart_file(version: int, part: int, parts: int) -> str:
    """Name one part, counted from 1, of a multi-part checkpoint."""
    return f"{version:020d}.checkpoint.{part:010d}.{parts:010d}.parquet"


def v2_checkpoint_file(version: int, uuid: str, extension: str = "parquet") -> str:
    """Name the file of a UUID-named checkpoint; ``extension`` is ``parquet`` or ``json``."""
    return f"{version:020d}.checkpoint.{uuid}.{extension}"


def checksum_file(version: int) -> str:
    """Name the file of a version checksum."""
    return f"{version:020d}.crc"


def compacted_file(start: int, end: int) -> str:
    """Name the file of a log compaction of the versions ``start`` to ``end``, both included."""
    return f"{start:020d}.{end:020d}.compacted.json"


_V = r"(?P<version>\d{20})"
_PATTERNS: Final = (
    (LogFileKind.COMMIT, re.compile(rf"{_V}\.json")),
    (LogFileKind.CHECKSUM, re.compile(rf"{_V}\.crc")),
    (LogFileKind.CHECKPOINT_CLASSIC, re.compile(rf"{_V}\.checkpoint\.parquet")),
    (LogFileKind.CHECKPOINT_PART, re.compile(rf"{_V}\.checkpoint\.(?P<part>\d{{10}})\.(?P<parts>\d{{10}})\.parquet")),
    (LogFileKind.CHECKPOINT_V2, re.compile(rf"{_V}\.checkpoint\.(?P<uuid>[0-9A-Za-z-]{{8,64}})\.(?:parquet|json)")),
    (LogFileKind.COMPACTED, re.compile(rf"{_V}\.(?P<end>\d{{20}})\.compacted\.json")),
)


def parse_log_name(name: str) -> LogFile | None:
    """Parse a file name in ``_delta_log``; None for anything the protocol does not name.

    Example:
        >>> parse_log_name("00000000000000000010.checkpoint.parquet").version
        10
    """
    for kind, pattern in _PATTERNS:
        match = pattern.fullmatch(name)
        if match is None:
            continue
        found = match.groupdict()
        return LogFile(
            kind=kind,
            version=int(found["version"]),
            name=name,
            part=int(found["part"]) if found.get("part") else None,
            parts=int(found["parts"]) if found.get("parts") else None,
            end_version=int(found["end"]) if found.get("end") else None,
            uuid=found.get("uuid"),
        )
    return None


_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_KEPT_AS_IS: Final = "/-._~!$&'()*+,;=:@"


def is_absolute_path(log_path: str) -> bool:
    """Tell whether a path in the log names its own location instead of one under the table root."""
    return log_path.startswith("/") or _SCHEME.match(log_path) is not None


def encode_log_path(relative: str) -> str:
    """Turn a path under the table root into its spelling in the log: a URI path, escaped once.

    Example:
        >>> encode_log_path("p=a%20b/x y.parquet")
        'p=a%2520b/x%20y.parquet'
    """
    encoded = quote(relative, safe=_KEPT_AS_IS)
    head, _, _ = encoded.partition("/")
    return encoded if ":" not in head else encoded.replace(":", "%3A", head.count(":"))


def decode_log_path(log_path: str) -> str:
    """Undo ``encode_log_path``; an absolute URI is decoded too and keeps its scheme."""
    return unquote(log_path)


def resolve_data_path(table_root: str, log_path: str) -> str:
    """Return the location of a data file.

    Args:
        table_root: URI of the table, as stores spell it (local paths are URI-encoded).
        log_path: ``path`` of an action.

    Returns:
        Root and path, decoded once: scheme, then the plain characters of the name.

    Raises:
        LogCorruptedError: A relative path that leads out of the table.
    """
    decoded = unquote(log_path)
    if is_absolute_path(log_path):
        return f"file://{decoded}" if log_path.startswith("/") else decoded
    if ".." in decoded.split("/"):
        raise LogCorruptedError(
            f"The log names a file outside the table: {log_path!r}.",
            hint="A relative path must stay under the table root; do not use this table before you know who wrote it.",
        )
    root = unquote(table_root) if table_root.startswith("file:") else table_root
    return f"{root.rstrip('/')}/{decoded}"
