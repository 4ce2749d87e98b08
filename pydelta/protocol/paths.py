r"""Parse and build the names of log files, and convert data paths to and from the log's spelling.

Protocol: "File Types", "Add File and Remove File" (``path`` is a URI, relative to the table root or absolute).
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from pydelta.errors import LogCorruptedError

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "LAST_CHECKPOINT",
    "LOG_DIR",
    "SIDECAR_DIR",
    "DecodedPath",
    "LogFile",
    "LogFileKind",
    "are_absolute",
    "checkpoint_file",
    "checksum_file",
    "commit_file",
    "compacted_file",
    "decode_log_path",
    "decoded_paths",
    "encode_log_path",
    "is_absolute_path",
    "multipart_file",
    "parse_log_name",
    "plain_root",
    "resolve_data_path",
    "v2_checkpoint_file",
]

LOG_DIR: Final = "_delta_log"
SIDECAR_DIR: Final = "_delta_log/_sidecars"
LAST_CHECKPOINT: Final = "_last_checkpoint"


class LogFileKind(enum.Enum):
    """The kinds of files directly in ``_delta_log``."""

    COMMIT = "commit"
    CHECKPOINT_CLASSIC = "classic checkpoint"
    CHECKPOINT_PART = "part of a checkpoint"
    CHECKPOINT_V2 = "V2 checkpoint"
    COMPACTED = "compacted commits"
    CHECKSUM = "version checksum"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """A parsed name of a log file.

    Args:
        kind: The kind of file.
        version: Its version; the first version of a compaction.
        name: The file name.
        part: Number of a checkpoint part, from 1.
        parts: The number of parts.
        end_version: Last version of a compaction.
        uuid: UUID of a V2 checkpoint.
    """

    kind: LogFileKind
    version: int
    name: str
    part: int | None = None
    parts: int | None = None
    end_version: int | None = None
    uuid: str | None = None


def commit_file(version: int) -> str:
    """Return the file name of a commit.

    Example:
        >>> commit_file(7)
        '00000000000000000007.json'
    """
    return f"{version:020d}.json"


def checkpoint_file(version: int) -> str:
    """Return the file name of a classic checkpoint."""
    return f"{version:020d}.checkpoint.parquet"


def multipart_file(version: int, part: int, parts: int) -> str:
    """Return the file name of one part of a multi-part checkpoint. Parts count from 1."""
    return f"{version:020d}.checkpoint.{part:010d}.{parts:010d}.parquet"


def v2_checkpoint_file(version: int, uuid: str, extension: str = "parquet") -> str:
    """Return the file name of a UUID-named checkpoint. ``extension`` is ``parquet`` or ``json``."""
    return f"{version:020d}.checkpoint.{uuid}.{extension}"


def checksum_file(version: int) -> str:
    """Return the file name of a version checksum."""
    return f"{version:020d}.crc"


def compacted_file(start: int, end: int) -> str:
    """Return the file name of a log compaction of versions ``start`` to ``end``, inclusive."""
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
    """Parse a file name in ``_delta_log``. Returns None for names that the protocol does not define.

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


_ABSOLUTE: Final = r"^(?:/|%2[Ff]|[A-Za-z][A-Za-z0-9+.-]*:/)"
_IS_ABSOLUTE: Final = re.compile(_ABSOLUTE)
_KEPT_AS_IS: Final = "/!$&'()*+,;=:@"
_ASCII_ESCAPES: Final = {f"%{code:02{case}}": chr(code) for code in range(0x20, 0x7F) for case in ("X", "x")}


def is_absolute_path(log_path: str) -> bool:
    """Return whether a path in the log is absolute instead of relative to the table root.

    A scheme needs a slash after its colon, as in every store's locations. So ``10:00.parquet`` and ``C:x.parquet`` are
    files of the table.

    Example:
        >>> is_absolute_path("s3://b/x"), is_absolute_path("at-10:00.parquet")
        (True, False)
    """
    return _IS_ABSOLUTE.match(log_path) is not None


def are_absolute(log_paths: pl.Series) -> pl.Series:
    """Apply ``is_absolute_path`` to many paths."""
    return log_paths.str.contains(_ABSOLUTE)


def encode_log_path(relative: str) -> str:
    """Encode a path under the table root for the log: a URI path, escaped once.

    Example:
        >>> encode_log_path("p=a%20b/x y.parquet")
        'p=a%2520b/x%20y.parquet'
    """
    encoded = quote(relative, safe=_KEPT_AS_IS)
    head, _, _ = encoded.partition("/")
    return encoded.replace(":", "%3A", head.count(":"))


@dataclass(frozen=True, slots=True)
class DecodedPath:
    """A path of the log, decoded once. It is not a str, so it cannot be decoded twice.

    Args:
        text: The decoded characters: a path under the table's root or an absolute location.
        is_absolute: Which of the two.
    """

    text: str
    is_absolute: bool

    def identity(self, root: str) -> str:
        """Return the canonical spelling for comparing files of a table: relative, or a full location.

        Args:
            root: URI of the table. Its scheme and authority complete a location without them.
        """
        if not self.is_absolute:
            return self.text
        if self.text.startswith("/"):
            scheme, _, rest = root.partition("://")
            return f"{scheme}://{rest.partition('/')[0]}/{self.text.lstrip('/')}"
        scheme, _, rest = self.text.partition(":")
        if scheme.lower() == "file":
            return "file:///" + re.sub(r"^//localhost(?=/)", "", rest).lstrip("/")
        return f"{scheme.lower()}:{rest}"

    def location(self, root: str) -> str:
        """Return the full location: scheme, then the unescaped name.

        Args:
            root: URI of the table, as stores spell it (local paths are URI-encoded).

        Raises:
            LogCorruptedError: A relative path leads out of the table.
        """
        if self.is_absolute:
            return self.identity(root)
        if ".." in self.text.split("/"):
            raise LogCorruptedError(
                f"The log names a file outside the table: {self.text!r}.",
                hint="A relative path must stay under the table root; do not use this table before you know who "
                "wrote it.",
            )
        return plain_root(root) + self.text

    def place(self, root: str) -> tuple[str | None, str]:
        """Return the store that holds the file (None for the table's own) and the unescaped path in it.

        Args:
            root: URI of the table.

        Raises:
            LogCorruptedError: A relative path leads out of the table.
        """
        location, base = self.location(root), plain_root(root)
        if location.startswith(base):
            return None, location.removeprefix(base)
        folder, _, name = location.rpartition("/")
        if folder.startswith("file:"):  # Stores expect escaped locations only for this scheme.
            folder = "file:" + quote(folder.removeprefix("file:"))
        return folder, name


def decode_log_path(log_path: str) -> DecodedPath:
    """Decode the ``path`` of an action or of a deletion vector's file."""
    return DecodedPath(unquote(log_path), is_absolute_path(log_path))


def decoded_paths(log_paths: pl.Series) -> pl.Series:
    """Percent-decode paths in order: printable ASCII escapes in bulk, others one path at a time."""
    import numpy as np  # Imported late because `pydelta history` needs neither.
    import polars as pl

    escaped = log_paths.str.contains("%")
    if not bool(escaped.any()):
        return log_paths
    odd = log_paths.filter(escaped)
    plain = odd.str.replace_many(list(_ASCII_ESCAPES), list(_ASCII_ESCAPES.values()))
    beyond = odd.str.contains(r"%[0189A-Fa-f]|%7[fF]")
    if bool(beyond.any()):
        slow = pl.Series([unquote(path) for path in odd.filter(beyond)])
        plain = plain.scatter(np.flatnonzero(beyond.to_numpy()), slow)
    # Clone first because scatter modifies its series.
    return log_paths.clone().scatter(np.flatnonzero(escaped.to_numpy()), plain)


def plain_root(table_root: str) -> str:
    """Return the table's root as the prefix of locations: decoded, with a trailing slash.

    Args:
        table_root: URI of the table, as stores spell it.

    Example:
        >>> plain_root("file:///a%20b"), plain_root("s3a://bucket/a%20b")
        ('file:///a b/', 's3a://bucket/a%20b/')
    """
    root = unquote(table_root) if table_root.startswith("file:") else table_root
    return root if root.endswith("/") else f"{root}/"


def resolve_data_path(table_root: str, log_path: str) -> str:
    """Return the location of a data file, ``DecodedPath.location`` of its path in the log."""
    return decode_log_path(log_path).location(table_root)
