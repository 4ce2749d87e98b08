"""Serve S3, Google and Azure storage as a ``Store``, through obstore.

A put-if-absent is sent once and never repeated by the client: after a lost reply, a second request would find the
object of the first one and report it as another writer's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any, BinaryIO, Final, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from pydelta.errors import DeltaEnvironmentError, DeltaError, InvalidArgumentError, ObjectNotFoundError, StorageError
from pydelta.storage.backoff import Backoff
from pydelta.storage.cloud_options import azure_options, gcs_options
from pydelta.storage.interface import DeleteReport, ObjectInfo, PutOutcome
from pydelta.storage.kinds import kind_of
from pydelta.storage.object_errors import StoreFailure, read_failure, to_storage_error
from pydelta.storage.options import Connection, s3_options
from pydelta.storage.pages import ListPage
from pydelta.storage.uploads import UploadWriter
from pydelta.storage.uris import check_path, split_location

__all__ = ["ObjectStore", "open_object_store"]

_LOG = logging.getLogger(__name__)
_PAGE: Final = 1000
_DELETERS: Final = 8
_CONFLICT_ATTEMPTS: Final = 4
_CONFLICT_BACKOFF: Final = Backoff(first_ms=50, jitter=0)
_HIGHEST: Final = "\U0010ffff"


def open_object_store(uri: str, options: Mapping[str, str]) -> ObjectStore:
    """Open the store of a bucket's prefix, configured like Spark's file systems.

    Raises:
        InvalidArgumentError: The location has no bucket, or a setting cannot be translated.
    """
    scheme, host, _ = split_location(uri)
    if not host:
        raise InvalidArgumentError(f"{uri!r} does not name a bucket.", hint=f"Write it as {scheme}://bucket/path.")
    # A user may register a scheme such as s3x for an S3-compatible store.
    kind = "s3" if scheme.startswith("s3") else kind_of(scheme).name
    read = {"s3": s3_options, "gs": gcs_options}.get(kind, azure_options)
    return ObjectStore(uri, read(host, options))


class ObjectStore:
    """Objects below a prefix of a bucket. Keys are plain text: paths are neither decoded nor escaped."""

    def __init__(self, root: str, connection: Connection) -> None:
        self._root = root.rstrip("/")
        self._prefix = split_location(self._root)[2]
        if self._prefix:
            check_path(self._prefix)
        self._connection = connection
        self._ordered = connection.kind in ("s3", "gs")

    def __repr__(self) -> str:
        return f"ObjectStore({self._root!r})"

    @property
    def root(self) -> str:
        """The URI that the store was opened with."""
        return self._root

    @property
    def identity(self) -> str:
        """Service and bucket, for which a probe's result is valid."""
        where = self._connection.get("endpoint") or self._connection.get("base_url") or self._connection.kind
        return f"{where}/{self._connection.get('account_name') or ''}/{self._connection.bucket}"

    def list_from(self, start: str, *, prefix: str) -> Iterator[ObjectInfo]:
        """See ``Store.list_from``."""
        folder = self._folder(prefix)
        found: dict[str, ObjectInfo] = {}
        offset: str | None = folder + _before(start) if start else None
        while True:
            skipped = self._list_page_run(folder, offset, prefix, start, found)
            if skipped is None:
                break
            offset = skipped
        yield from (found[name] for name in sorted(found))

    def _list_page_run(
        self, folder: str, offset: str | None, prefix: str, start: str, found: dict[str, ObjectInfo]
    ) -> str | None:
        """Collect direct children. If a page ends inside a subdirectory, return the offset that skips it."""
        with self._translated(prefix):
            for page in obstore.list(self._store, folder.rstrip("/") or None, offset=offset, chunk_size=_PAGE):
                name = ""
                for item in page:
                    name = item["path"].removeprefix(folder)
                    if item["path"].startswith(folder) and "/" not in name and name >= start:
                        found[name] = _info(f"{prefix}/{name}" if prefix else name, item)
                if self._ordered and len(page) == _PAGE and "/" in name:
                    return f"{folder}{name.partition('/')[0]}/{_HIGHEST}"
        return None

    def list_all(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """See ``Store.list_all``."""
        folder = self._folder(prefix)
        cut = len(self._prefix) + 1 if self._prefix else 0
        with self._translated(prefix):
            for page in obstore.list(self._store, folder.rstrip("/") or None, chunk_size=_PAGE):
                yield from (_info(item["path"][cut:], item) for item in page if item["path"].startswith(folder))

    @property
    def has_directories(self) -> bool:
        """See ``PagedStore.has_directories``."""
        return False

    @property
    def has_key_ranges(self) -> bool:
        """See ``PagedStore.has_key_ranges``."""
        return self._ordered

    def list_pages(
        self, *, after: str = "", before: str = "", enter: Callable[[str], bool] | None = None
    ) -> Iterator[ListPage]:
        """See ``PagedStore.list_pages``. A range ends with the page that has its last key."""
        del enter
        folder = self._folder("")
        cut = len(folder)
        offset = folder + after if after else None
        page = None
        with self._translated(""):
            for items in obstore.list(self._store, folder.rstrip("/") or None, offset=offset, chunk_size=_PAGE):
                page = ListPage()
                beyond = False
                for item in items:
                    path = item["path"][cut:]
                    if before and path > before:
                        beyond = True
                    elif item["path"].startswith(folder) and (not after or path > after):
                        page.paths.append(path)
                        page.sizes.append(item["size"])
                        page.times_ms.append(int(item["last_modified"].timestamp() * 1000))
                yield page
                if beyond and self._ordered:
                    return
        if page is None:  # Each request gives a page, even if it found nothing.
            yield ListPage()

    def remove_directories(self, paths: list[str]) -> list[str]:
        """See ``PagedStore.remove_directories``. This store has no directories."""
        del paths
        return []

    def read(self, path: str) -> bytes:
        """See ``Store.read``."""
        key = self._key(path)
        with self._translated(path):
            return obstore.get(self._store, key).bytes().to_bytes()

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """See ``Store.read_range``."""
        key = self._key(path)
        if length > 0:
            with self._translated(path):
                try:
                    return bytes(obstore.get_range(self._store, key, start=start, length=length))
                except BaseError as error:
                    if read_failure(error).status != 416:
                        raise
        if self.head(path) is None:
            raise ObjectNotFoundError(f"{self._root}/{path} does not exist.")
        return b""

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """See ``Store.put_if_absent``. A timeout, a broken connection or a server error gives ``UNKNOWN``.

        A server error that says that the store is full is raised.
        """
        key, client = self._key(path), self._store_once
        for attempt in range(_CONFLICT_ATTEMPTS):
            try:
                obstore.put(client, key, data, mode="create", use_multipart=False)
            except AlreadyExistsError as error:
                failure = read_failure(error)
                if failure.retries:
                    return self._unknown(path, failure)
                if failure.status != 409 or failure.code == "BlobAlreadyExists" or self.head(path) is not None:
                    return PutOutcome.ALREADY_EXISTS
                _CONFLICT_BACKOFF.pause(attempt + 1)  # A request on this key is running; ours was refused.
            except (BaseError, OSError, ValueError) as error:
                failure = read_failure(error)
                if failure.surely_not_applied or (failure.is_full and not failure.retries):
                    raise self._error(error, path) from None
                return self._unknown(path, failure)
            else:
                return PutOutcome.CREATED
        raise StorageError(
            f"{self._root}/{path}: the store kept answering that another request for it is running.",
            retryable=True,
            hint="Run it again.",
        )

    def _unknown(self, path: str, failure: StoreFailure) -> PutOutcome:
        _LOG.warning("put-if-absent of %s/%s: no definite reply (%s)", self._root, path, failure.kind)
        return PutOutcome.UNKNOWN

    def put(self, path: str, data: bytes) -> None:
        """See ``Store.put``."""
        key = self._key(path)
        with self._translated(path):
            obstore.put(self._store, key, data, use_multipart=False)

    def head(self, path: str) -> ObjectInfo | None:
        """See ``Store.head``."""
        key = self._key(path)
        try:
            with self._translated(path):
                return _info(path, obstore.head(self._store, key))
        except ObjectNotFoundError:
            return None

    def delete_many(self, paths: Iterable[str]) -> DeleteReport:
        """See ``Store.delete_many``. Each request has up to a thousand keys."""
        names = list(paths)
        failed: list[tuple[str, str]] = []
        causes: list[StoreFailure] = []
        for first in range(0, len(names), _PAGE):
            self._delete_page(names[first : first + _PAGE], failed, causes)
        return DeleteReport(
            deleted=len(names) - len(failed),
            failed=tuple(failed),
            retryable=bool(causes) and all(cause.retryable for cause in causes),
            denied=any(cause.is_denied for cause in causes),
        )

    def _delete_page(self, names: Sequence[str], failed: list[tuple[str, str]], causes: list[StoreFailure]) -> None:
        keys = [self._key(name) for name in names]
        try:
            obstore.delete(self._store, keys)
        except (BaseError, OSError, ValueError) as error:
            cause = read_failure(error)
            if cause.is_outage:
                reason = self._error(error, names[0]).message
                failed += [(name, reason) for name in names]
                causes.append(cause)
            else:
                self._delete_one_by_one(names, failed, causes)

    def _delete_one_by_one(
        self, names: Sequence[str], failed: list[tuple[str, str]], causes: list[StoreFailure]
    ) -> None:
        """Delete objects singly, since some services report only the first failure, or fail on missing objects."""

        def delete(name: str) -> tuple[str, Exception] | None:
            try:
                obstore.delete(self._store, self._key(name))
            except FileNotFoundError:
                return None
            except (BaseError, OSError, ValueError) as error:
                return name, error
            return None

        with ThreadPoolExecutor(max_workers=_DELETERS) as pool:
            for found in pool.map(delete, names):
                if found is not None:
                    failed.append((found[0], self._error(found[1], found[0]).message))
                    causes.append(read_failure(found[1]))

    def open_writer(self, path: str) -> BinaryIO:
        """See ``Store.open_writer``."""
        key = self._key(path)
        return cast(BinaryIO, UploadWriter(self._store, key, to_error=lambda error: self._error(error, path)))

    @property
    def _store(self) -> Any:
        return _client(self._connection, repeat=True)

    @property
    def _store_once(self) -> Any:
        return _client(self._connection, repeat=False)

    def _key(self, path: str) -> str:
        check_path(path)
        return f"{self._prefix}/{path}" if self._prefix else path

    def _folder(self, prefix: str) -> str:
        folder = "/".join(part for part in (self._prefix, check_path(prefix) if prefix else "") if part)
        return folder + "/" if folder else ""

    def _error(self, error: Exception, path: str) -> StorageError:
        return to_storage_error(error, where=f"{self._root}/{path}", secrets=self._connection.secrets())

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        """Translate the client's errors into the store's own, without the client's text in the chain."""
        try:
            yield
        except DeltaError:
            raise
        except (BaseError, OSError, ValueError) as error:
            raise self._error(error, path) from None


def _before(start: str) -> str:
    """Return a text slightly below ``start``, since listings exclude their offset."""
    last = ord(start[-1])
    return start[:-1] + (chr(last - 1) + "~" if last > 0x20 else "")


def _info(path: str, item: Any) -> ObjectInfo:
    return ObjectInfo(
        path=path,
        size=item["size"],
        modification_time_ms=int(item["last_modified"].timestamp() * 1000),
        etag=item["e_tag"],
    )


@lru_cache(maxsize=64)
def _client(connection: Connection, *, repeat: bool) -> Any:
    """Create the client of a bucket. Equal settings share a client and its connections.

    Raises:
        DeltaEnvironmentError: The client refuses the settings, such as a missing key file.
    """
    client: dict[str, Any] = {"allow_http": connection.allow_http, "connect_timeout": timedelta(seconds=10)}
    if connection.proxy is not None:
        client["proxy_url"] = connection.proxy.reveal()
    # A timeout of the whole request would abort long transfers; the read timeout stops stalled ones.
    client["timeout"] = timedelta(minutes=15) if repeat else timedelta(minutes=2)
    client["read_timeout"] = timedelta(minutes=2)
    retry: dict[str, Any] = {
        "max_retries": connection.max_retries if repeat else 0,
        "retry_timeout": timedelta(seconds=60),
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
    }
    config: dict[str, Any] = {name: connection.get(name) for name, _ in connection.config}
    options: dict[str, Any] = {"config": config, "client_options": client, "retry_config": retry}
    credential = connection.credential
    if credential is not None:
        # A callback passes the keys, so that a session token of the environment is never mixed with them.
        options["credential_provider"] = lambda: {
            "access_key_id": credential.access_key.reveal(),
            "secret_access_key": credential.secret_key.reveal(),
            "token": credential.token.reveal() if credential.token else None,
            "expires_at": None,
        }
    kinds: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "azure": AzureStore}
    try:
        return kinds[connection.kind](connection.bucket, **options)
    except (BaseError, OSError, ValueError) as error:
        reason = to_storage_error(error, where=connection.bucket, secrets=connection.secrets()).message
        raise DeltaEnvironmentError(
            f"The settings for the bucket {reason}", hint="Correct the keys, the key file or the endpoint."
        ) from None
