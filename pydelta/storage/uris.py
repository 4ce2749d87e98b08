r"""Normalize locations, as users write them, to one spelling of the URI.

::

    /data/a b/     <-> file:///data/a%20b        by the rules of POSIX
    C:\data\a b     <-> file:///C:/data/a%20b     by those of Windows
    S3a://b/t/      -> s3a://b/t

Within the engine a local path has forward slashes on every system, which Windows accepts.
"""

from __future__ import annotations

import ntpath
import os
import posixpath
import re
from dataclasses import dataclass
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from types import ModuleType
from typing import Final
from urllib.parse import unquote, urlsplit

from pydelta.errors import InvalidArgumentError
from pydelta.storage.kinds import kind_of

__all__ = [
    "HERE",
    "LOCAL",
    "POSIX",
    "WINDOWS",
    "BucketPlace",
    "PathRules",
    "bucket_of",
    "check_path",
    "hadoop_uri",
    "normalize_uri",
    "overlap",
    "plain_location",
    "scheme_of",
    "split_location",
]

LOCAL: Final = "file"
"""Bucket name of the local file system."""
_OF_TABLES: Final = ("_delta_log", "_change_data")


@dataclass(frozen=True, slots=True)
class PathRules:
    """The rules of one kind of operating system.

    Args:
        scheme: Matches the scheme of a URI, with its colon.
        module: ``posixpath`` or ``ntpath``.
        pure: The class of its paths.
        drives: Whether a path may begin with the letter of a drive.
        syncs_folders: Whether a folder can be opened, to make a new name in it outlast a power failure. NTFS has a
            journal of names instead.
        replaces_open_files: Whether a file that is being read can be replaced.
    """

    scheme: re.Pattern[str]
    module: ModuleType
    pure: type[PurePath]
    drives: bool
    syncs_folders: bool
    replaces_open_files: bool

    def uri(self, path: str) -> str:
        r"""Return the URI of a path, which is made absolute.

        Example:
            >>> WINDOWS.uri("C:\\data\\a b"), POSIX.uri("/data/a b/")
            ('file:///C:/data/a%20b', 'file:///data/a%20b')
        """
        return self.pure(self.module.abspath(path)).as_uri()

    def path(self, tail: str) -> str:
        """Return the path for what follows ``file://`` in a URI, with forward slashes.

        Example:
            >>> WINDOWS.path("/C:/data/a%20b"), POSIX.path("/data/a%20b")
            ('C:/data/a b', '/data/a b')
        """
        plain = unquote(tail)
        if self.drives:
            plain = re.sub(r"^/+(?=[A-Za-z]:(?:/|$))", "", plain.replace("\\", "/"))
        return plain


POSIX: Final = PathRules(
    scheme=re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):"),
    module=posixpath,
    pure=PurePosixPath,
    drives=False,
    syncs_folders=True,
    replaces_open_files=True,
)
WINDOWS: Final = PathRules(
    scheme=re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):"),  # One letter is a drive.
    module=ntpath,
    pure=PureWindowsPath,
    drives=True,
    syncs_folders=False,
    replaces_open_files=False,
)
HERE: Final = WINDOWS if os.name == "nt" else POSIX
"""The rules of this machine."""


def scheme_of(uri: str, *, rules: PathRules = HERE) -> str:
    """Return the scheme in lower case, or ``file`` for a bare path.

    Args:
        uri: A URI or a path.
        rules: The rules for local paths. On Windows a single letter is a drive.

    Example:
        >>> scheme_of("S3a://bucket/t"), scheme_of("/data/t")
        ('s3a', 'file')
    """
    match = rules.scheme.match(uri)
    return match.group(1).lower() if match else "file"


def normalize_uri(uri: str, *, rules: PathRules = HERE) -> str:
    """Normalize a location: with a scheme and without a trailing slash; local paths absolute and URI-encoded.

    A bare path is taken literally (``%41`` stays three characters), and the path of a ``file:`` URI is decoded. In all
    other schemes, the part after the host is the plain text of a key and is not decoded, as in Hadoop's paths.

    Args:
        uri: The location.
        rules: The rules for local paths.

    Raises:
        InvalidArgumentError: The location is empty, contains a NUL, or is a local file of another host.

    Example:
        >>> normalize_uri("/data/a b/"), normalize_uri("s3a://bucket/t/")
        ('file:///data/a%20b', 's3a://bucket/t')
    """
    if not uri or not uri.strip():
        raise InvalidArgumentError("The location is empty.", hint="Give a path or a URI such as s3a://bucket/table.")
    if "\0" in uri:
        raise InvalidArgumentError(f"The location {uri!r} contains the character NUL.", hint="Remove it.")
    match = rules.scheme.match(uri)
    if match is None:
        return _local_uri(uri, rules.module.expanduser(uri), rules)
    scheme = match.group(1).lower()
    rest = uri[match.end() :]
    if scheme == "file":
        host = rest[2:].partition("/")[0] if rest.startswith("//") else ""
        if host not in ("", "localhost"):
            raise _elsewhere(uri, host)
        return _local_uri(uri, rules.path(re.sub(r"^//(localhost)?", "", rest) or "/"), rules)
    return f"{scheme}:{rest.rstrip('/')}"


def _local_uri(uri: str, path: str, rules: PathRules) -> str:
    found = rules.uri(path)
    if not found.startswith("file:///"):
        raise _elsewhere(uri, found.removeprefix("file://").partition("/")[0])
    return found


def _elsewhere(uri: str, host: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{uri!r} names a file on the host {host!r}.",
        hint="Write local files as file:///path. Mount the folder of another host, or give it a drive's letter.",
    )


def hadoop_uri(root: str) -> str:
    """Turn a normalized table URI into the text for Hadoop's ``Path``, with ``file:`` decoded and with one slash."""
    if root.startswith("file:"):
        root = "file:/" + unquote(root.removeprefix("file:")).lstrip("/")
    return root.rstrip("/")


def plain_location(uri: str) -> str:
    """Spell a normalized URI as Hadoop prints a path, if that text means the same location here.

    A folder whose name contains a percent sign keeps its URI, since the plain text would mean another folder here.

    Example:
        >>> plain_location("file:///data/a%20b"), plain_location("file:///data/a%2520b")
        ('file:/data/a b', 'file:///data/a%2520b')
    """
    plain = hadoop_uri(uri)
    return plain if normalize_uri(plain) == uri else uri


def split_location(uri: str) -> tuple[str, str, str]:
    """Split a URI (other than ``file:``) into scheme, host (a bucket, ``container@account``, a name node) and key.

    Raises:
        InvalidArgumentError: There is a user name or password before a bucket. The message does not repeat it.

    Example:
        >>> split_location("s3a://bucket/a b/%41#c")
        ('s3a', 'bucket', 'a b/%41#c')
    """
    scheme = scheme_of(uri)
    host, _, key = uri.partition(":")[2].removeprefix("//").partition("/")
    if "@" in host and not kind_of(scheme).container:
        raise InvalidArgumentError(
            f"The {scheme} location carries credentials before the bucket's name.",
            hint="Remove them from the location; set fs.s3a.access.key and fs.s3a.secret.key instead.",
        )
    return scheme, host, key.strip("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPlace:
    """A location, as its bucket and the key below it, without slashes at the ends. ``root`` is the bucket's own URI.

    A file system also counts as a bucket, whose name is the host of its URIs, or ``file`` for the local one.
    """

    bucket: str
    key: str
    root: str


def bucket_of(uri: str) -> BucketPlace:
    """Split a location into bucket and key.

    Raises:
        InvalidArgumentError: The location does not name a bucket.

    Example:
        >>> bucket_of("s3://lake/db/t/").key, bucket_of("/data/a b").bucket
        ('db/t', 'file')
    """
    normalized = normalize_uri(uri)
    scheme = scheme_of(normalized)
    if scheme == "file":
        return BucketPlace(bucket=LOCAL, key=unquote(urlsplit(normalized).path).strip("/"), root="file:///")
    _, host, key = split_location(normalized)
    if not host:
        raise InvalidArgumentError(f"{uri!r} does not name a bucket.", hint=f"Write it as {scheme}://bucket/path.")
    return BucketPlace(bucket=host, key=key.strip("/"), root=f"{scheme}://{host}")


def overlap(one: str, other: str) -> bool:
    """Return whether two locations are the same, or one is among the files of the table at the other.

    Folders whose names begin with ``_`` or ``.`` are not the table's, apart from those of the protocol.

    Example:
        >>> overlap("s3a://b/t", "s3a://b/t/bad/"), overlap("s3a://b/t", "s3a://b/t_bad"), overlap("/t/_bad", "/t")
        (True, False, False)
    """
    shorter, longer = sorted((f"{normalize_uri(uri)}/" for uri in (one, other)), key=len)
    if not longer.startswith(shorter):
        return False
    between = longer.removeprefix(shorter).split("/")
    return between[0] in _OF_TABLES or not any(name.startswith(("_", ".")) for name in between)


def check_path(path: str) -> str:
    """Return the path itself if it stays under a store's root.

    Raises:
        InvalidArgumentError: The path is empty or absolute, or has an empty, ``.`` or ``..`` segment or a NUL
            character.

    Example:
        >>> check_path("p=a b/part-0.parquet")
        'p=a b/part-0.parquet'
    """
    if "\0" in path or not {"", ".", ".."}.isdisjoint(path.split("/")):
        raise InvalidArgumentError(
            f"{path!r} is not a path under a store's root.",
            hint="Name objects relative to the root, with '/' between names and without '.' or '..'.",
        )
    return path
