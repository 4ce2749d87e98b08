"""Locations as users write them -> one spelling of the URI."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydelta.errors import InvalidArgumentError

__all__ = ["normalize_uri", "scheme_of"]

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):")


def scheme_of(uri: str) -> str:
    """The scheme in lower case; ``file`` for a bare path.

    Example:
        >>> scheme_of("S3a://bucket/t"), scheme_of("/data/t")
        ('s3a', 'file')
    """
    match = _SCHEME.match(uri)
    return match.group(1).lower() if match else "file"


def normalize_uri(uri: str) -> str:
    """One spelling for a location: with scheme, without a trailing slash; local paths absolute and URI-encoded.

    A bare path is taken literally (``%41`` stays three characters); the path of a ``file:`` URI is decoded.

    Raises:
        InvalidArgumentError: Empty, or a ``file:`` URI of another host.

    Example:
        >>> normalize_uri("/data/a b/"), normalize_uri("s3a://bucket/t/")
        ('file:///data/a%20b', 's3a://bucket/t')
    """
    if not uri or not uri.strip():
        raise InvalidArgumentError("The location is empty.", hint="Give a path or a URI such as s3a://bucket/table.")
    match = _SCHEME.match(uri)
    if match is None:
        return Path(os.path.abspath(os.path.expanduser(uri))).as_uri()
    scheme = match.group(1).lower()
    rest = uri[match.end() :]
    if scheme == "file":
        parts = urlsplit(uri)
        if parts.netloc not in ("", "localhost"):
            raise InvalidArgumentError(
                f"{uri!r} names a file on the host {parts.netloc!r}.", hint="Write local files as file:///path."
            )
        return Path(os.path.abspath(unquote(re.sub(r"^//(localhost)?", "", rest) or "/"))).as_uri()
    return f"{scheme}:{rest.rstrip('/')}"
