"""Turn paths as spelt in logs, manifests and lists into plain paths under a table's root, to compare them.

::

    p=a%20b/x   ./p=1//x   s3://b/t/x   file:/t/x   /real/t/x    -> PlainPaths(root).under   all files that may be meant
    viewfs://cluster/mnt/t/p=1/x                                 -> PlainPaths(root).maybe   if it is ambiguous

The result has too many paths rather than too few: an extra path keeps a file, a missing one loses it.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import Final

import numpy as np
import polars as pl

from pydelta.protocol.paths import decoded_paths, plain_root
from pydelta.protocol.vectors import vector_files
from pydelta.storage.uris import scheme_of

__all__ = ["PlainPaths"]

_SCHEME: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?")
_MAYBE_ABSOLUTE: Final = r"^(?:/|%2[Ff]|[A-Za-z][A-Za-z0-9+.-]*:)"
_SURELY_ABSOLUTE: Final = r"^(?:/|[A-Za-z][A-Za-z0-9+.-]*://)"
_CROOKED: Final = r"(?:^|/)\.{1,2}(?:/|$)|//"
_FOLDER: Final = r"(?s)^(.*)/[^/]*$"
_NAME: Final = r"([^/]*)$"
_DEEPEST: Final = 32


class PlainPaths:
    """Maps locations to paths under the root of a table.

    Schemes, hosts and buckets are not compared: one store has many names (``s3`` and ``s3a``, a NameNode with its port
    and without, an access point). On a local disk, links to folders are followed in the root's path, in a location's
    and below the root. Each folder is checked once.

    Args:
        root: URI of the table.
    """

    def __init__(self, root: str) -> None:
        self._base = _SCHEME.sub("", plain_root(root))
        self._is_local = scheme_of(root) == "file"
        self._real: dict[str, str] = {}
        self._real_base = self._base
        if self._is_local:
            self._real_base = os.path.join(os.path.realpath(self._base), "")

    def under(self, locations: pl.Series, *, escaped: bool = True) -> pl.Series:
        """Find the files below the root that locations mean, each once, and nothing for a location elsewhere.

        Args:
            locations: Relative to the root, or absolute.
            escaped: Whether they are URI-encoded, as in the log. The result then has each reading of an escape.
        """
        absolute = locations.str.contains(_MAYBE_ABSOLUTE)
        if not bool(absolute.any()):
            return self._relative(locations, escaped=escaped)
        elsewhere = locations.filter(absolute)
        found = [self._relative(locations.filter(~locations.str.contains(_SURELY_ABSOLUTE)), escaped=escaped)]
        for spelt in (elsewhere, decoded_paths(elsewhere)):
            plain = _without_scheme(spelt)
            inside = self._tails(pl.concat([plain, _straight(plain)]))
            found.append(self._relative(inside, escaped=escaped))
        return pl.concat(found).unique()

    def maybe(self, locations: pl.Series) -> pl.Series:
        """Find the files below the root that absolute locations may mean by another name of the root.

        For a mount point, for example, it gives every tail of the path that consists of whole names.
        """
        spelt = locations.filter(locations.str.contains(_MAYBE_ABSOLUTE))
        if spelt.is_empty():
            return spelt
        plain = pl.concat([_straight(_without_scheme(text)) for text in (spelt, decoded_paths(spelt))])
        rest = plain.filter(~(plain.str.starts_with(self._base) | plain.str.starts_with(self._real_base)))
        ends: list[pl.Series] = []
        for _ in range(_DEEPEST):
            if rest.is_empty():
                break
            rest = rest.str.extract(r"(?s)^[^/]*/+(.*)$")
            rest = rest.filter(rest != "")  # This drops nulls too, for exhausted paths.
            ends.append(rest)
        return pl.concat(ends).unique() if ends else rest

    def of_files(self, files: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
        """Apply ``under`` and ``maybe`` to files and their deletion vectors: columns ``path`` and ``vector``."""
        named = pl.concat([files["path"], vector_files(files["vector"])["path"]])
        return self.under(named), self.maybe(named)

    def _relative(self, paths: pl.Series, *, escaped: bool) -> pl.Series:
        spelt = [paths]
        if escaped:
            spelt.append(decoded_paths(paths.filter(paths.str.contains("%"))))
        found = pl.concat(spelt)
        found = pl.concat([found, _straight(found.filter(found.str.contains(_CROOKED)))]).unique()
        return pl.concat([found, self._linked(found)]).unique() if self._is_local else found

    def _linked(self, paths: pl.Series) -> pl.Series:
        """Return files in linked folders by their real folders."""
        frame = paths.to_frame("path").with_columns(folder=pl.col("path").str.extract(_FOLDER))
        moved = {}
        for folder in frame["folder"].drop_nulls().unique():
            real = self._real_folder(self._real_base + folder)
            if real != self._real_base + folder and (real + "/").startswith(self._real_base):
                moved[folder] = (real + "/")[len(self._real_base) :]
        there = frame.filter(pl.col("folder").is_in(list(moved)))
        start = there["folder"].replace_strict(list(moved), list(moved.values()))
        return start + there["path"].str.extract(_NAME)

    def _tails(self, plain: pl.Series) -> pl.Series:
        """Return the parts of locations after the root, for those below it."""
        direct = plain.str.starts_with(self._base)
        found = [plain.filter(direct).str.strip_prefix(self._base)]
        if self._is_local:
            others = plain.filter(~direct).to_frame("path")
            others = others.with_columns(folder=pl.col("path").str.extract(_FOLDER))
            folders = others["folder"].drop_nulls().unique()
            real = pl.Series([self._real_folder(folder) + "/" for folder in folders], dtype=pl.String)
            inside = real.str.starts_with(self._real_base)
            known = pl.DataFrame({"folder": folders.filter(inside), "real": real.filter(inside)})
            joined = others.join(known, on="folder", how="inner")
            name = joined["path"].str.extract(_NAME)
            found.append(joined["real"].str.strip_prefix(self._real_base) + name)
        return pl.concat(found)

    def _real_folder(self, folder: str) -> str:
        """Return the folder with links followed. The folders above it are checked once."""
        known = self._real.get(folder)
        if known is not None:
            return known
        above, _, name = folder.rpartition("/")
        parent = self._real_folder(above) if above else ""
        full = f"{parent}/{name}"
        found = os.path.realpath(full) if os.path.islink(full) else full
        self._real[folder] = found
        return found


def _without_scheme(locations: pl.Series) -> pl.Series:
    return locations.str.replace(_SCHEME.pattern, "")


def _straight(paths: pl.Series) -> pl.Series:
    """Remove empty names, ``.`` and ``..`` from paths. Only paths that have some are processed one by one."""
    crooked = paths.str.contains(_CROOKED)
    if not bool(crooked.any()):
        return paths
    plain = [_normal(path) for path in paths.filter(crooked)]
    return paths.clone().scatter(np.flatnonzero(crooked.to_numpy()), pl.Series(plain))


def _normal(path: str) -> str:
    found = posixpath.normpath(path)
    return "/" + found.lstrip("/") if path.startswith("/") else found
