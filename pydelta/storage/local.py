"""Local disk behind the ``Store`` interface: a URI's directory in, bytes and listings out."""

from __future__ import annotations

import errno
import io
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NoReturn
from urllib.parse import unquote, urlsplit

from pydelta.errors import (
    ObjectNotFoundError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
    StorageReadOnlyError,
)
from pydelta.storage.interface import DeleteReport, ObjectInfo, PutOutcome

__all__ = ["LocalStore"]

_TEMP_PREFIX = ".pydelta-tmp-"


class LocalStore:
    """Files under one directory.

    Put-if-absent writes and syncs a temporary file beside the target and hard-links it to the final name: the link
    fails if the name is taken, and a crash leaves at most the temporary file, which no listing shows.
    """

    def __init__(self, root: str) -> None:
        parts = urlsplit(root)
        self._folder = unquote(parts.path) if parts.scheme == "file" else os.path.abspath(root)
        self._folder = self._folder.rstrip("/") or "/"
        self._root = Path(self._folder).as_uri()

    def __repr__(self) -> str:
        return f"LocalStore({self._root!r})"

    @property
    def root(self) -> str:
        """``file:///…`` URI of the directory."""
        return self._root

    def list_from(self, start: str, *, prefix: str) -> Iterator[ObjectInfo]:
        """See ``Store.list_from``."""
        folder = self._path(prefix) if prefix else self._folder
        with _translated(folder):
            try:
                with os.scandir(folder) as entries:
                    names = sorted(
                        entry.name
                        for entry in entries
                        if entry.name >= start and not entry.name.startswith(_TEMP_PREFIX) and entry.is_file()
                    )
            except (FileNotFoundError, NotADirectoryError):
                return
        for name in names:
            info = self.head(f"{prefix}/{name}" if prefix else name)
            if info is not None:
                yield info

    def list_all(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """See ``Store.list_all``."""
        queue = [prefix]
        while queue:
            current = queue.pop()
            try:
                with os.scandir(self._path(current) if current else self._folder) as entries:
                    found = list(entries)
            except (FileNotFoundError, NotADirectoryError):
                continue
            for entry in found:
                path = f"{current}/{entry.name}" if current else entry.name
                if entry.is_dir(follow_symlinks=False):
                    queue.append(path)
                elif not entry.name.startswith(_TEMP_PREFIX):
                    with suppress(FileNotFoundError):
                        yield _info(path, entry.stat())

    def read(self, path: str) -> bytes:
        """See ``Store.read``."""
        with _translated(self._path(path)), open(self._path(path), "rb") as file:
            return file.read()

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """See ``Store.read_range``."""
        with _translated(self._path(path)), open(self._path(path), "rb") as file:
            file.seek(start)
            return file.read(length)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """See ``Store.put_if_absent``."""
        target = self._path(path)
        with _translated(target):
            temporary = self._write_temporary(target, data)
            try:
                os.link(temporary, target)
            except FileExistsError:
                return PutOutcome.ALREADY_EXISTS
            finally:
                with suppress(OSError):
                    os.unlink(temporary)
            _sync_folder(os.path.dirname(target))
        return PutOutcome.CREATED

    def put(self, path: str, data: bytes) -> None:
        """See ``Store.put``."""
        target = self._path(path)
        with _translated(target):
            temporary = self._write_temporary(target, data)
            try:
                os.replace(temporary, target)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
            _sync_folder(os.path.dirname(target))

    def head(self, path: str) -> ObjectInfo | None:
        """See ``Store.head``."""
        with _translated(self._path(path)):
            try:
                stat = os.stat(self._path(path))
            except (FileNotFoundError, NotADirectoryError):
                return None
        return None if os.path.isdir(self._path(path)) else _info(path, stat)

    def delete_many(self, paths: Iterable[str]) -> DeleteReport:
        """See ``Store.delete_many``."""
        deleted, failed = 0, []
        for path in paths:
            try:
                os.unlink(self._path(path))
                deleted += 1
            except (FileNotFoundError, NotADirectoryError):
                deleted += 1
            except OSError as error:
                failed.append((path, error.strerror or str(error)))
        return DeleteReport(deleted=deleted, failed=tuple(failed))

    def open_writer(self, path: str) -> BinaryIO:
        """See ``Store.open_writer``."""
        target = self._path(path)
        with _translated(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            return _LocalWriter(target)

    def _path(self, path: str) -> str:
        return f"{self._folder}/{path}"

    def _write_temporary(self, target: str, data: bytes) -> str:
        folder = os.path.dirname(target)
        os.makedirs(folder, exist_ok=True)
        temporary = f"{folder}/{_TEMP_PREFIX}{uuid.uuid4()}"
        try:
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        return temporary


class _LocalWriter(io.FileIO):
    """Writes beside the target; ``close`` syncs and renames, ``abort`` drops."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._temporary = f"{os.path.dirname(target)}/{_TEMP_PREFIX}{uuid.uuid4()}"
        super().__init__(self._temporary, "xb")

    def write(self, data: object, /) -> int:
        view = memoryview(data)  # type: ignore[arg-type]
        written = 0
        with _translated(self._target):
            while written < view.nbytes:
                written += super().write(view.cast("B")[written:]) or 0
        return written

    def close(self) -> None:
        if self.closed:
            return
        try:
            with _translated(self._target):
                os.fsync(self.fileno())
                super().close()
                os.replace(self._temporary, self._target)
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Drop what was written; the target stays as it was."""
        if not self.closed:
            super().close()
        with suppress(OSError):
            os.unlink(self._temporary)

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is not None:
            self.abort()
        else:
            self.close()


def _info(path: str, stat: os.stat_result) -> ObjectInfo:
    return ObjectInfo(path=path, size=stat.st_size, modification_time_ms=stat.st_mtime_ns // 1_000_000)


def _sync_folder(folder: str) -> None:
    with suppress(OSError):  # some file systems cannot sync a directory; the file itself is synced
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Operating system errors -> the store's own."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        _raise(error, path)


def _raise(error: OSError, path: str) -> NoReturn:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        raise ObjectNotFoundError(f"{path} does not exist.") from error
    if error.errno in (errno.EACCES, errno.EPERM):
        raise StoragePermissionError(
            f"{path}: permission denied.", hint="Check the owner and the mode of the folder."
        ) from error
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        raise StorageFullError(
            f"{path} could not be written: {error.strerror}.", hint="Free space or raise the quota, then run it again."
        ) from error
    if error.errno == errno.EROFS:
        raise StorageReadOnlyError(
            f"{path} is on a read-only file system.", hint="Mount it writable, or write elsewhere."
        ) from error
    raise StorageError(
        f"{path}: {error.strerror or error}.", retryable=error.errno in (errno.EINTR, errno.EAGAIN)
    ) from error
