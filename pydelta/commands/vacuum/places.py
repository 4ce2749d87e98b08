"""Turn locations into bucket and key, and find the registered table that each key lies in. Pure and columnar.

A file system is a bucket too: its name is the host of its URIs, or ``file`` for the local one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

import polars as pl

from pydelta.errors import InvalidArgumentError
from pydelta.storage import normalize_uri, scheme_of
from pydelta.storage.uris import split_location

__all__ = ["LOCAL", "BucketPlace", "place_of", "prefixes_in", "with_longest_prefix"]

LOCAL: Final = "file"
"""Name under which the local file system is a bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPlace:
    """A location: its bucket and the key below it, without slashes at the ends. ``root`` is the bucket's own URI."""

    bucket: str
    key: str
    root: str


def place_of(uri: str) -> BucketPlace:
    """Take a location apart.

    Raises:
        InvalidArgumentError: It names no bucket.

    Example:
        >>> place_of("s3://lake/db/t/").key, place_of("/data/a b").bucket
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


def prefixes_in(locations: Mapping[str, str], bucket: str) -> dict[str, str]:
    """Map the locations that lie in a bucket, as prefixes with a slash at the end, to their names.

    The bucket's own root is the empty prefix. Of two names for one location the first in the order of names stays.
    """
    found: dict[str, str] = {}
    for name in sorted(locations):
        place = place_of(locations[name])
        if place.bucket == bucket:
            found.setdefault(f"{place.key}/" if place.key else "", name)
    return found


def with_longest_prefix(
    frame: pl.LazyFrame, prefixes: Mapping[str, str], *, key: str = "key", into: str = "table"
) -> pl.LazyFrame:
    """Add a column that says under which prefix each key lies, the longest where several match; null under none.

    One join for each depth at which there are prefixes, however many they are.

    Args:
        frame: Rows with the column ``key``.
        prefixes: Prefix ending in a slash (or empty) -> what to write into the column.
        key: Name of the column with the keys.
        into: Name of the new column.
    """
    by_depth: dict[int, dict[str, str]] = {}
    for prefix, value in prefixes.items():
        by_depth.setdefault(prefix.count("/"), {})[prefix] = value
    found: list[pl.Expr] = []
    for depth in sorted(by_depth, reverse=True):
        if depth == 0:
            found.append(pl.lit(by_depth[0][""]))
            continue
        head = pl.col(key).str.extract(rf"^((?:[^/]*/){{{depth}}})")
        found.append(
            head.replace_strict(
                list(by_depth[depth]), list(by_depth[depth].values()), default=None, return_dtype=pl.String
            )
        )
    return frame.with_columns(pl.coalesce(found).alias(into) if found else pl.lit(None, pl.String).alias(into))
