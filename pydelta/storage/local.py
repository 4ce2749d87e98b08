"""Serve a directory of the local disk as a ``Store``."""

from __future__ import annotations

import errno
import os
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter, FileIO
from typing import BinaryIO, NoReturn, cast

from pydelta.errors import (
    ObjectNotFoundError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
    StorageReadOnlyError,
    UnsafeStoreError,
)
from pydelta.storage.interface import DeleteReport, ObjectInfo, PutOutcome
from pydelta.storage.pages import UNFINISHED_PREFIX, ListPage, in_range
from pydelta.storage.streams import ObjectWriter
from pydelta.storage.uris import HERE, check_path, normalize_uri

__all__ = ["LocalStore"]

_FOLDER_TRIES = 4
_READERS_WAITS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds."""
_DENIED = (errno.EACCES, errno.EPERM)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
_REFUSED = (
    errno.EACCES, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG,
    errno.EMLINK, errno.ELOOP, errno.EXDEV,
)  # fmt: skip
"""Errors that prove that a link was not made. After any other error it may exist, for instance on a remote server."""


class LocalStore:
    """A store of the files under one directory.

    Put-if-absent writes and syncs a temporary file beside the target and hard-links it to the final name. The link
    fails if the name is taken, and a crash leaves at most the temporary file, which listings hide.
    """

    def __init__(self, root: str) -> None:
        self._root = normalize_uri(root)
        self._folder = HERE.path(self._root.removeprefix("file://")).rstrip("/") or "/"

    def __repr__(self) -> str:
        return f"LocalStore({self._root!r})"

    @property
    def root(self) -> str:
        """URI of the directory, ``file:///…``."""
        return self._root

    def list_from(self, start: str, *, prefix: str) -> Iterator[ObjectInfo]:
        """See ``Store.list_from``."""
        folder = self._path(prefix) if prefix else self._folder
        found: list[tuple[str, os.stat_result]] = []
        with _translated(folder):
            try:
                names = os.listdir(folder)
            except (FileNotFoundError, NotADirectoryError):
                names = []
            # Only names from ``start`` on need a stat: in a long log these are a few among thousands.
            for name in sorted(name for name in names if name >= start):
                if not name.startswith(UNFINISHED_PREFIX) and _is_text(name):
                    with suppress(FileNotFoundError):  # It was removed after the listing.
                        status = os.stat(f"{folder}/{name}")
                        if stat.S_ISREG(status.st_mode):
                            found.append((name, status))
        for name, status in found:
            yield _info(f"{prefix}/{name}" if prefix else name, status)

    def list_all(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """See ``Store.list_all``. Links to directories are not followed."""
        queue = [prefix]
        while queue:
            current = queue.pop()
            folder = self._path(current) if current else self._folder
            found: list[ObjectInfo] = []
            with _translated(folder):
                for entry in _scan(folder):
                    path = f"{current}/{entry.name}" if current else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        queue.append(path)
                    elif not entry.name.startswith(UNFINISHED_PREFIX):
                        with suppress(FileNotFoundError):
                            if entry.is_file():
                                found.append(_info(path, entry.stat()))
            yield from found

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
        """See ``PagedStore.list_pages``. Each directory is a page. Links to directories are not followed."""
        queue = [""]
        while queue:
            current = queue.pop()
            folder = self._path(current) if current else self._folder
            page = ListPage()
            with _translated(folder):
                for entry in _scan(folder):
                    path = f"{current}/{entry.name}" if current else entry.name
                    with suppress(FileNotFoundError):
                        if entry.is_dir(follow_symlinks=False):
                            if enter is None or enter(path):
                                queue.append(path)
                                page.directories.append(path)
                                page.directory_times_ms.append(entry.stat().st_mtime_ns // 1_000_000)
                        elif entry.is_file() and in_range(path, after, before):
                            page.add(_info(path, entry.stat()))
            yield page

    def list_unfinished(self, prefix: str) -> Iterator[ObjectInfo]:
        """See ``pages.unfinished``."""
        folder = self._path(prefix) if prefix else self._folder
        with _translated(folder):
            for entry in _scan(folder):
                with suppress(FileNotFoundError):
                    if entry.name.startswith(UNFINISHED_PREFIX) and entry.is_file(follow_symlinks=False):
                        yield _info(f"{prefix}/{entry.name}" if prefix else entry.name, entry.stat())

    def remove_directories(self, paths: list[str]) -> list[str]:
        """See ``PagedStore.remove_directories``."""
        removed = []
        for path in paths:
            with suppress(OSError):  # The directory is not empty or is missing.
                os.rmdir(self._path(path))
                removed.append(path)
        return removed

    def read(self, path: str) -> bytes:
        """See ``Store.read``."""
        with _translated(self._path(path)), open(self._path(path), "rb") as file:
            return file.read()

    def local_path(self, path: str) -> str:
        """See ``NearStore.local_path``."""
        return self._path(path)

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
                return _link(temporary, target)
            finally:
                with suppress(OSError):
                    os.unlink(temporary)

    def put(self, path: str, data: bytes) -> None:
        """See ``Store.put``."""
        target = self._path(path)
        with _translated(target):
            temporary = self._write_temporary(target, data)
            try:
                _replace(temporary, target)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
            _sync_folder(os.path.dirname(target))

    def head(self, path: str) -> ObjectInfo | None:
        """See ``Store.head``."""
        target = self._path(path)
        with _translated(target):
            try:
                found = os.stat(target)
            except (FileNotFoundError, NotADirectoryError):
                return None
        return _info(path, found) if stat.S_ISREG(found.st_mode) else None

    def delete_many(self, paths: Iterable[str]) -> DeleteReport:
        """See ``Store.delete_many``."""
        deleted, denied, failed = 0, False, []
        for path in paths:
            try:
                os.unlink(self._path(path))
                deleted += 1
            except (FileNotFoundError, NotADirectoryError):
                deleted += 1
            except OSError as error:
                denied = denied or error.errno in _DENIED
                failed.append((path, error.strerror or str(error)))
        return DeleteReport(deleted=deleted, failed=tuple(failed), denied=denied)

    def open_writer(self, path: str) -> BinaryIO:
        """See ``Store.open_writer``."""
        target = self._path(path)
        with _translated(target):
            return cast(BinaryIO, _LocalWriter(target))

    def _path(self, path: str) -> str:
        return f"{self._folder}/{check_path(path)}"

    def _write_temporary(self, target: str, data: bytes) -> str:
        temporary, opened = _open_beside(target)
        try:
            with BufferedWriter(opened) as file:  # Unlike the raw file, it writes all bytes.
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        return temporary


class _LocalWriter(ObjectWriter):
    """Writes a temporary file beside the target, then syncs and renames it."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._temporary, self._file = _open_beside(target)
        super().__init__()

    def _append(self, view: memoryview) -> None:
        position = 0
        with _translated(self._target):
            while position < view.nbytes:
                position += self._file.write(view[position:]) or 0

    def _publish(self) -> None:
        with _translated(self._target):
            os.fsync(self._file.fileno())
            self._file.close()
            _replace(self._temporary, self._target)
            _sync_folder(os.path.dirname(self._target))

    def _drop(self) -> None:
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            os.unlink(self._temporary)


def _info(path: str, found: os.stat_result) -> ObjectInfo:
    return ObjectInfo(path=path, size=found.st_size, modification_time_ms=found.st_mtime_ns // 1_000_000)


def _open_beside(target: str) -> tuple[str, FileIO]:
    """Create a temporary file in the target's folder, and the folder if needed. Returns name and file."""
    folder = os.path.dirname(target)
    temporary = f"{folder}/{UNFINISHED_PREFIX}{uuid.uuid4()}"
    for _ in range(_FOLDER_TRIES):
        with suppress(FileNotFoundError):  # Another process removed the empty folder.
            _make_folder(folder)
            return temporary, open(temporary, "xb", buffering=0)
    _make_folder(folder)
    return temporary, open(temporary, "xb", buffering=0)


def _is_text(name: str) -> bool:
    """Return whether a name is valid UTF-8. A log cannot refer to any other name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _scan(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if _is_text(entry.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _link(temporary: str, target: str) -> PutOutcome:
    """Give the written file its final name, unless the name is taken."""
    try:
        os.link(temporary, target)
    except OSError as error:
        # Over NFS, a repeated request may fail because of the link that its first try made. Then the file has two
        # names.
        try:
            made = os.stat(temporary).st_nlink > 1
        except OSError:
            return PutOutcome.UNKNOWN
        if not made:
            if isinstance(error, FileExistsError):
                return PutOutcome.ALREADY_EXISTS
            if error.errno in _NO_LINKS:
                raise UnsafeStoreError(
                    f"{target}: this file system has no hard links, so two writers could create the same commit.",
                    hint="Keep the table on a file system with hard links (ext4, XFS, APFS, NFS) or on an object "
                    "store.",
                ) from error
            if error.errno in _REFUSED:
                raise
            return PutOutcome.UNKNOWN
    try:
        _sync_folder(os.path.dirname(target))
    except OSError:
        return PutOutcome.UNKNOWN  # A power failure may still undo the link.
    return PutOutcome.CREATED


def _make_folder(folder: str) -> None:
    """Create the directory and its parents, and sync each new name to disk."""
    missing = []
    current = folder
    while current and not os.path.isdir(current):
        missing.append(current)
        current = os.path.dirname(current)
    os.makedirs(folder, exist_ok=True)
    for made in missing:
        _sync_folder(os.path.dirname(made))


def _replace(temporary: str, target: str) -> None:
    """Give the written file its final name, in place of a file that has it.

    Where an open file cannot be replaced its readers are waited for: they read such small files at once.
    """
    for wait in () if HERE.replaces_open_files else _READERS_WAITS:
        with suppress(PermissionError):
            os.replace(temporary, target)
            return
        time.sleep(wait)
    os.replace(temporary, target)


def _sync_folder(folder: str) -> None:
    if not HERE.syncs_folders:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):  # Such file systems cannot sync directories.
            raise
    finally:
        os.close(descriptor)


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Translate operating system errors into the store's own."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        _raise(error, path)


def _raise(error: OSError, path: str) -> NoReturn:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        raise ObjectNotFoundError(f"{path} does not exist.") from error
    if error.errno in _DENIED:
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
