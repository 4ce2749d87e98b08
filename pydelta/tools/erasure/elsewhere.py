"""Search places outside of tables for keys: event logs of Spark, the outbox of lineage, exports.

Nothing is deleted there. Compressed files are read as text where Arrow knows their kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Final, cast

import polars as pl
import pyarrow as pa

from pydelta.commands.erase.keys import Subject, bind_keys
from pydelta.commands.erase.texts import KeyTexts, texts_of_parquet
from pydelta.errors import DeltaError, ObjectNotFoundError
from pydelta.storage import open_store
from pydelta.storage.ranges import open_stream
from pydelta.storage.readers import read_all
from pydelta.tools.erasure.running import ErasureTarget

__all__ = ["SearchedPlace", "search_places"]

_CODECS: Final = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd"}
_UNKNOWN: Final = (".lz4", ".lzf", ".snappy", ".zip", ".7z", ".xz")
_CHUNK_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedPlace:
    """What was found below a location.

    Args:
        location: The location.
        num_files: Files there.
        found: Those that name a key, relative to it.
        unread: Those that could not be read, with the reason.
    """

    location: str
    num_files: int
    found: tuple[str, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether everything was read, and nothing was found."""
        return not self.found and not self.unread


def search_places(
    locations: Sequence[str], targets: Sequence[ErasureTarget], options: Mapping[str, str] | None = None
) -> list[SearchedPlace]:
    """Search locations for the text keys of a request.

    Args:
        locations: URIs or local paths of folders.
        targets: The tables of the request, whose columns say what a key is.
        options: Storage options.

    Raises:
        StorageError: A location cannot be listed.
    """
    if not locations:
        return []
    columns = [
        column
        for target in targets
        for column in bind_keys(target.context.log.update(), target.keys).columns
        if column.is_text
    ]
    texts = KeyTexts.of(Subject(columns=tuple(columns)))
    return [_searched(location, texts, options) for location in locations]


def _searched(location: str, texts: KeyTexts, options: Mapping[str, str] | None) -> SearchedPlace:
    store = open_store(location, options)
    paths = sorted(info.path for info in store.list_all())

    def search(path: str) -> str | bool:
        """Return whether a file names a key, or why that is not known."""
        if texts.are_in(pl.Series([path]))[0]:
            return True
        kind = PurePosixPath(path).suffix.lower()
        if kind in _UNKNOWN:
            return f"files of the kind {kind} are not read"
        try:
            with open_stream(store, path) as stream:
                return _holds(stream, kind, texts)
        except ObjectNotFoundError:
            return False
        except DeltaError as error:
            return error.message
        except (pa.ArrowException, pl.exceptions.PolarsError, OSError) as error:
            return (str(error).splitlines() or [type(error).__name__])[0]

    answers = read_all(search, paths)
    pairs = list(zip(paths, answers, strict=True))
    return SearchedPlace(
        location=store.root,
        num_files=len(paths),
        found=tuple(path for path, answer in pairs if answer is True),
        unread=tuple((path, answer) for path, answer in pairs if isinstance(answer, str)),
    )


def _holds(stream: BinaryIO, kind: str, texts: KeyTexts) -> bool:
    if kind == ".parquet":
        return any(texts.are_in(column).any() for column in texts_of_parquet(stream.read()))
    source: Any = pa.CompressedInputStream(pa.PythonFile(stream), _CODECS[kind]) if kind in _CODECS else stream
    overlap = 2 * max(map(len, texts.spellings), default=0)
    before = b""
    while chunk := cast("bytes", source.read(_CHUNK_BYTES)):
        if texts.is_in(before + chunk):
            return True
        before = (before + chunk)[-overlap:] if overlap else b""
    return False
