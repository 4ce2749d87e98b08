"""Serve HDFS as a ``Store``, through hdfs-native: no JVM, no libhdfs.

A create writes a temporary file and renames it without overwriting, which the NameNode does atomically.
"""

from __future__ import annotations

import base64
import os
import re
import socket
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from pydelta.errors import DeltaEnvironmentError, ObjectNotFoundError, StorageError, StoragePermissionError
from pydelta.storage.hdfs_errors import exists_already, is_outage, to_storage_error
from pydelta.storage.interface import DeleteReport, ObjectInfo, PutOutcome, Store
from pydelta.storage.options import HadoopOptions
from pydelta.storage.pages import UNFINISHED_PREFIX, ListPage, in_range, is_unfinished
from pydelta.storage.streams import ObjectWriter
from pydelta.storage.uris import check_path, split_location

__all__ = ["KEYTAB", "PRINCIPAL", "TOKENS", "HdfsStore", "open_hdfs_store"]

_CLIENT_ERRORS: Final = (OSError, RuntimeError, ValueError)
"""Exceptions of hdfs-native: Python's own classes, with the server's exception in the text."""
_PORT: Final = re.compile(r":\d+$")
_ATTEMPTS: Final = "3"
"""Retries for a NameNode without a standby. They take some seconds, while the client's default of 15 takes minutes.

A host with a port is a single NameNode; the name of a group of NameNodes has no port.
"""
PRINCIPAL: Final = "spark.kerberos.principal"
KEYTAB: Final = "spark.kerberos.keytab"
TOKENS: Final = "pydelta.hdfs.tokens"
"""The option with newer delegation tokens than those of a worker's container: a token file in base64."""
_OF_THE_CONTAINER: Final = "HADOOP_TOKEN_FILE_LOCATION"
"""The variable that names a file of delegation tokens, which YARN sets for each container."""


def open_hdfs_store(uri: str, options: Mapping[str, str]) -> Store:
    """Open the store for an ``hdfs://`` URI.

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
    given = HadoopOptions(options)
    settings = given.starting_with("dfs.", "fs.defaultFS", "fs.viewfs.", "hadoop.")
    _, host, _ = split_location(uri)
    if _PORT.search(host) and not any(os.environ.get(name) for name in ("HADOOP_CONF_DIR", "HADOOP_HOME")):
        settings.setdefault("dfs.client.failover.max.attempts", _ATTEMPTS)
    try:
        login = _login(given)
        if not login and (tokens := given.get(TOKENS)) is not None:
            _keep_tokens(base64.b64decode(tokens))
        server = f"hdfs://{_as_a_token_names_it(host)}" if host else settings.get("fs.defaultFS")
        client = Client(server, settings, **login)
    except _CLIENT_ERRORS as error:
        raise to_storage_error(uri, error) from error
    return HdfsStore(uri, client)


def _login(given: HadoopOptions) -> dict[str, str]:
    """Build the client's arguments for the keytab that Spark was given; none if this process cannot read it.

    The driver has the keytab, on YARN also in cluster mode. A worker elsewhere has tokens, which the driver's client
    would do without: they last a day without renewal. All clients of a process share the tickets.
    """
    principal, keytab = given.get(PRINCIPAL), given.get(KEYTAB)
    if principal is None or keytab is None or not os.access(keytab, os.R_OK):
        return {}
    return {
        "kerberos_principal": principal,
        "kerberos_keytab": f"FILE:{os.path.abspath(keytab)}",
        "kerberos_cache": f"MEMORY:pydelta-{principal}",
    }


def _keep_tokens(tokens: bytes) -> None:
    """Write newer tokens beside those of this process's container, and let the client read them from now on."""
    file = os.environ.get(_OF_THE_CONTAINER)
    if not file:
        return
    kept = Path(file).with_name(f".pydelta-tokens-{os.getpid()}")
    with suppress(OSError):
        if kept.read_bytes() == tokens:
            os.environ[_OF_THE_CONTAINER] = str(kept)
            return
    handle, written = tempfile.mkstemp(dir=kept.parent, prefix=kept.name)  # Only this user may read it.
    with os.fdopen(handle, "wb") as stream:
        stream.write(tokens)
    os.replace(written, kept)
    os.environ[_OF_THE_CONTAINER] = str(kept)


def _as_a_token_names_it(host: str) -> str:
    """Replace a NameNode's name with its address if a token that this process was given has the address.

    By default Hadoop writes the address into a token, and the client looks for the name that it was given.
    """
    file = os.environ.get(_OF_THE_CONTAINER)
    name, _, port = host.rpartition(":")
    if not file or not name or not port.isdigit():
        return host
    with suppress(OSError):
        held = Path(file).read_bytes()
        found = socket.getaddrinfo(name, int(port), socket.AF_INET, socket.SOCK_STREAM)
        for service in [f"{address[4][0]}:{port}" for address in found]:
            if bytes([len(service)]) + service.encode() in held:  # a length precedes each string of the file
                return service
    return host


class HdfsStore:
    """A store of the files under one directory of a NameNode."""

    def __init__(self, root: str, client: Any) -> None:
        self._root = root.rstrip("/")
        key = split_location(self._root)[2]
        self._folder = f"/{key}" if key else ""
        self._client = client

    def __repr__(self) -> str:
        return f"HdfsStore({self._root!r})"

    @property
    def root(self) -> str:
        """The URI that the store was opened with."""
        return self._root

    def list_from(self, start: str, *, prefix: str) -> Iterator[ObjectInfo]:
        """See ``Store.list_from``."""
        found = [info for info in self._list(prefix, recursive=False) if info.path.rpartition("/")[2] >= start]
        yield from sorted(found, key=lambda info: info.path)

    def list_all(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """See ``Store.list_all``."""
        yield from self._list(prefix, recursive=True)

    head_has_exact_time = True
    """See ``Store.head``."""

    put_if_absent_is_atomic = True
    """See ``Store.put_if_absent``."""

    @property
    def has_directories(self) -> bool:
        """See ``PagedStore.has_directories``."""
        return True

    @property
    def has_key_ranges(self) -> bool:
        """See ``PagedStore.has_key_ranges``."""
        return False

    def list_pages(
        self, *, after: str = "", before: str = "", enter: Callable[[str], bool] | None = None
    ) -> Iterator[ListPage]:
        """See ``PagedStore.list_pages``. Each directory is a page."""
        queue = [""]
        while queue:
            current = queue.pop()
            page = ListPage()
            try:
                for status in self._client.list_status(self._directory(current), recursive=False):
                    path = status.path[len(self._folder) :].lstrip("/")
                    if status.isdir:
                        if enter is None or enter(path):
                            queue.append(path)
                            page.directories.append(path)
                            page.directory_times_ms.append(status.modification_time)
                    elif path and in_range(path, after, before):
                        page.add(_info(path, status))
            except FileNotFoundError:
                continue
            except _CLIENT_ERRORS as error:
                raise self._failed(current, error) from error
            yield page

    def list_unfinished(self, prefix: str) -> Iterator[ObjectInfo]:
        """See ``pages.unfinished``."""
        return self._list(prefix, recursive=False, shown=is_unfinished)

    def remove_directories(self, paths: list[str]) -> list[str]:
        """See ``PagedStore.remove_directories``. The NameNode refuses to remove a directory that is not empty."""
        removed = []
        for path in paths:
            with suppress(*_CLIENT_ERRORS):
                if self._client.delete(self._path(path), recursive=False):
                    removed.append(path)
        return removed

    def read(self, path: str) -> bytes:
        """See ``Store.read``."""
        return self._read(path, 0, None)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """See ``Store.read_range``."""
        return self._read(path, start, length)

    def _read(self, path: str, start: int, length: int | None) -> bytes:
        target = self._path(path)
        try:
            reader = self._client.read(target)
            left = max(0, len(reader) - start)
            wanted = left if length is None else min(length, left)
            return bytes(reader.read_range(start, wanted)) if wanted > 0 else b""
        except FileNotFoundError as error:
            raise ObjectNotFoundError(f"{self._root}/{path} does not exist or is not a file.") from error
        except _CLIENT_ERRORS as error:
            raise self._failed(path, error) from error

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """See ``Store.put_if_absent``.

        After a failed rename, the temporary file decides: if it can still be deleted, it was not moved and never will
            be. If
        it is missing, it was moved, or a repeated request had already deleted it.
        """
        if self._status(path) is not None:
            return PutOutcome.ALREADY_EXISTS
        temporary = self._write_temporary(path, data)
        try:
            self._client.rename(temporary, self._path(path), overwrite=False)
        except _CLIENT_ERRORS as error:
            try:
                removed = self._client.delete(temporary, recursive=False)
            except _CLIENT_ERRORS:
                removed = False
            if not removed:
                return PutOutcome.UNKNOWN
            if exists_already(error):
                return PutOutcome.ALREADY_EXISTS
            raise self._failed(path, error) from error
        return PutOutcome.CREATED

    def put(self, path: str, data: bytes) -> None:
        """See ``Store.put``."""
        target = self._path(path)
        temporary = self._write_temporary(path, data)
        try:
            self._client.rename(temporary, target, overwrite=True)
        except _CLIENT_ERRORS as error:
            with suppress(*_CLIENT_ERRORS):
                self._client.delete(temporary, recursive=False)
            raise self._failed(path, error) from error

    def head(self, path: str) -> ObjectInfo | None:
        """See ``Store.head``."""
        info = self._status(path)
        return None if info is None or info.isdir else _info(path, info)

    def delete_many(self, paths: Iterable[str]) -> DeleteReport:
        """See ``Store.delete_many``. If the NameNode cannot be reached, the remaining paths are not tried."""
        deleted = 0
        failed: list[tuple[str, str]] = []
        causes: list[StorageError] = []
        outage = None
        for path in paths:
            target = self._path(path)
            if outage is not None:
                failed.append((path, outage))
                continue
            try:
                self._client.delete(target, recursive=False)
                deleted += 1
            except FileNotFoundError:
                deleted += 1
            except _CLIENT_ERRORS as error:
                causes.append(self._failed(path, error))
                failed.append((path, causes[-1].message))
                outage = causes[-1].message if is_outage(error) else None
        return DeleteReport(
            deleted=deleted,
            failed=tuple(failed),
            retryable=any(cause.retryable for cause in causes),
            denied=any(isinstance(cause, StoragePermissionError) for cause in causes),
        )

    def set_time(self, path: str, at_ms: int) -> None:
        """Set the modification time of a file or a directory, in epoch milliseconds."""
        target = self._path(path)
        try:
            self._client.set_times(target, at_ms, at_ms)
        except _CLIENT_ERRORS as error:
            raise self._failed(path, error) from error

    def open_writer(self, path: str) -> BinaryIO:
        """See ``Store.open_writer``."""
        return cast(BinaryIO, _HdfsWriter(self, path))

    def _path(self, path: str) -> str:
        return f"{self._folder}/{check_path(path)}"

    def _directory(self, path: str) -> str:
        return self._path(path) if path else self._folder or "/"

    def _status(self, path: str) -> Any:
        target = self._path(path)
        try:
            return self._client.get_file_info(target)
        except FileNotFoundError:
            return None
        except _CLIENT_ERRORS as error:
            raise self._failed(path, error) from error

    def _list(
        self, prefix: str, *, recursive: bool, shown: Callable[[str], bool] = lambda path: not is_unfinished(path)
    ) -> Iterator[ObjectInfo]:
        folder = self._directory(prefix)
        try:
            for status in self._client.list_status(folder, recursive=recursive):
                path = status.path[len(self._folder) :].lstrip("/")
                if not status.isdir and status.path != folder and shown(path):  # Listing a file returns the file.
                    yield _info(path, status)
        except FileNotFoundError:
            return
        except _CLIENT_ERRORS as error:
            raise self._failed(prefix, error) from error

    def _write_temporary(self, path: str, data: bytes) -> str:
        temporary = self._path(_temporary_name(path))
        try:
            stream = self._client.create(temporary)
        except _CLIENT_ERRORS as error:
            raise self._failed(path, error) from error
        try:
            with stream:
                stream.write(data)
        except _CLIENT_ERRORS as error:
            with suppress(*_CLIENT_ERRORS):
                self._client.delete(temporary, recursive=False)
            raise self._failed(path, error) from error
        return temporary

    def _failed(self, path: str, error: Exception) -> StorageError:
        return to_storage_error(f"{self._root}/{path}", error)


class _HdfsWriter(ObjectWriter):
    """Writes a temporary file beside the target, and renames it over the target at the end."""

    def __init__(self, store: HdfsStore, path: str) -> None:
        self._store = store
        self._client = store._client
        self._path = path
        self._target = store._path(path)
        self._temporary = store._path(_temporary_name(path))
        try:
            self._stream = self._client.create(self._temporary)
        except _CLIENT_ERRORS as error:
            raise store._failed(path, error) from error
        super().__init__()

    def _append(self, view: memoryview) -> None:
        try:
            self._stream.write(view)
        except _CLIENT_ERRORS as error:
            raise self._store._failed(self._path, error) from error

    def _publish(self) -> None:
        try:
            self._stream.close()
            self._client.rename(self._temporary, self._target, overwrite=True)
        except _CLIENT_ERRORS as error:
            raise self._store._failed(self._path, error) from error

    def _drop(self) -> None:
        with suppress(*_CLIENT_ERRORS):
            self._stream.close()
        with suppress(*_CLIENT_ERRORS):
            self._client.delete(self._temporary, recursive=False)


def _temporary_name(path: str) -> str:
    folder, _, _ = path.rpartition("/")
    name = f"{UNFINISHED_PREFIX}{uuid.uuid4()}"
    return f"{folder}/{name}" if folder else name


def _info(path: str, status: Any) -> ObjectInfo:
    return ObjectInfo(path=path, size=status.length, modification_time_ms=status.modification_time)
