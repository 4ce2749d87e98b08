"""HDFS behind the ``Store`` interface, through hdfs-native: no JVM, no libhdfs.

A create writes a temporary file and renames it without overwriting, which the NameNode does in one step.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from pydelta.errors import DeltaEnvironmentError, ObjectNotFoundError, StorageError
from pydelta.storage.interface import DeleteReport, ObjectInfo, PutOutcome, Store

__all__ = ["HdfsStore", "open_hdfs_store"]

_TEMP_PREFIX = ".pydelta-tmp-"


def open_hdfs_store(uri: str, options: Mapping[str, str]) -> Store:
    """The store for an ``hdfs://`` URI.

    Raises:
        DeltaEnvironmentError: hdfs-native is not installed.
    """
    try:
        from hdfs_native import Client
    except ImportError as error:
        raise DeltaEnvironmentError(
            "Tables on HDFS need the package hdfs-native, which is not installed.",
            hint="Install this package with its extra 'hdfs'.",
        ) from error
    parts = urlsplit(uri)
    settings = {key.removeprefix("spark.hadoop."): value for key, value in options.items()}
    relevant = {key: value for key, value in settings.items() if key.startswith(("dfs.", "fs.defaultFS", "hadoop."))}
    return HdfsStore(uri, Client(f"hdfs://{parts.netloc}", relevant))


class HdfsStore:
    """Files under one directory of a NameNode."""

    def __init__(self, root: str, client: Any) -> None:
        self._root = root.rstrip("/")
        self._folder = unquote(urlsplit(root).path).rstrip("/")
        self._client = client

    def __repr__(self) -> str:
        return f"HdfsStore({self._root!r})"

    @property
    def root(self) -> str:
        """The URI it was opened with."""
        return self._root

    def list_from(self, start: str, *, prefix: str) -> Iterator[ObjectInfo]:
        """See ``Store.list_from``."""
        found = [info for info in self._list(prefix, recursive=False) if info.path.rpartition("/")[2] >= start]
        yield from sorted(found, key=lambda info: info.path)

    def list_all(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """See ``Store.list_all``."""
        yield from self._list(prefix, recursive=True)

    def read(self, path: str) -> bytes:
        """See ``Store.read``."""
        info = self._status(path)
        if info is None:
            raise ObjectNotFoundError(f"{self._root}/{path} does not exist.")
        return self.read_range(path, 0, info.length)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """See ``Store.read_range``."""
        info = self._status(path)
        if info is None:
            raise ObjectNotFoundError(f"{self._root}/{path} does not exist.")
        length = max(0, min(length, info.length - start))
        if length == 0:
            return b""
        try:
            return bytes(self._client.read(self._path(path)).read_range(start, length))
        except OSError as error:
            raise self._failed(path, error) from error

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """See ``Store.put_if_absent``."""
        if self._status(path) is not None:
            return PutOutcome.ALREADY_EXISTS
        temporary = self._write_temporary(path, data)
        try:
            self._client.rename(self._path(temporary), self._path(path), overwrite=False)
        except OSError:
            with suppress(OSError):
                moved = self._status(temporary) is None
                self._client.delete(self._path(temporary), recursive=False)
                return PutOutcome.UNKNOWN if moved else PutOutcome.ALREADY_EXISTS
            return PutOutcome.UNKNOWN
        return PutOutcome.CREATED

    def put(self, path: str, data: bytes) -> None:
        """See ``Store.put``."""
        temporary = self._write_temporary(path, data)
        try:
            self._client.rename(self._path(temporary), self._path(path), overwrite=True)
        except OSError as error:
            raise self._failed(path, error) from error

    def head(self, path: str) -> ObjectInfo | None:
        """See ``Store.head``."""
        info = self._status(path)
        return None if info is None or info.isdir else _info(path, info)

    def delete_many(self, paths: Iterable[str]) -> DeleteReport:
        """See ``Store.delete_many``."""
        deleted, failed = 0, []
        for path in paths:
            try:
                self._client.delete(self._path(path), recursive=False)
                deleted += 1
            except FileNotFoundError:
                deleted += 1
            except OSError as error:
                failed.append((path, str(error)))
        return DeleteReport(deleted=deleted, failed=tuple(failed))

    def open_writer(self, path: str) -> BinaryIO:
        """See ``Store.open_writer``."""
        return _HdfsWriter(self, path)

    def _path(self, path: str) -> str:
        return f"{self._folder}/{path}" if path else self._folder

    def _status(self, path: str) -> Any:
        try:
            return self._client.get_file_info(self._path(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed(path, error) from error

    def _list(self, prefix: str, *, recursive: bool) -> Iterator[ObjectInfo]:
        try:
            for status in self._client.list_status(self._path(prefix), recursive=recursive):
                path = status.path[len(self._folder) :].lstrip("/")
                if not status.isdir and not path.rpartition("/")[2].startswith(_TEMP_PREFIX):
                    yield _info(path, status)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._failed(prefix, error) from error

    def _write_temporary(self, path: str, data: bytes) -> str:
        folder, _, _ = path.rpartition("/")
        temporary = f"{folder}/{_TEMP_PREFIX}{uuid.uuid4()}" if folder else f"{_TEMP_PREFIX}{uuid.uuid4()}"
        try:
            with self._client.create(self._path(temporary), write_options=None) as stream:
                stream.write(data)
        except OSError as error:
            with suppress(OSError):
                self._client.delete(self._path(temporary), recursive=False)
            raise self._failed(path, error) from error
        return temporary

    def _failed(self, path: str, error: OSError) -> StorageError:
        return StorageError(
            f"{self._root}/{path}: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            retryable=True,
            hint="Check that the NameNode is reachable and that the user may do this.",
        )


class _HdfsWriter(io.BytesIO):
    """Collects bytes; ``close`` writes them, ``abort`` drops them."""

    def __init__(self, store: HdfsStore, path: str) -> None:
        super().__init__()
        self._store = store
        self._path = path

    def close(self) -> None:
        if not self.closed:
            self._store.put(self._path, self.getvalue())
            super().close()

    def abort(self) -> None:
        """Drop what was written."""
        super().close()


def _info(path: str, status: Any) -> ObjectInfo:
    return ObjectInfo(path=path, size=status.length, modification_time_ms=status.modification_time)
