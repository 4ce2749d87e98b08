"""S3 and look-alikes, GCS and Azure behind the ``Store`` interface, through obstore.

A create is one PUT with ``If-None-Match: *``. The client's own retries are off for it: a hidden second attempt would
meet the object that the first one wrote and call it somebody else's. What it cannot know is ``UNKNOWN``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, BinaryIO, Final
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, S3Store

from pydelta.errors import InvalidArgumentError, ObjectNotFoundError, StorageError, StoragePermissionError
from pydelta.storage.interface import DeleteReport, ObjectInfo, PutOutcome
from pydelta.storage.options import s3_options

__all__ = ["ObjectStore", "open_object_store"]

_READ_RETRIES: Final = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}
_NO_RETRIES: Final = {"max_retries": 0, "retry_timeout": timedelta(seconds=60)}
_CLIENT: Final = {"timeout": timedelta(seconds=60), "connect_timeout": timedelta(seconds=10)}
_DELETE_BATCH: Final = 1_000


def open_object_store(uri: str, options: Mapping[str, str]) -> ObjectStore:
    """The store for an ``s3``, ``s3a``, ``s3n``, ``gs``, ``abfs(s)`` or ``az`` URI.

    Raises:
        InvalidArgumentError: No bucket or container in the URI.
        DeltaEnvironmentError: See ``s3_options``.
    """
    parts = urlsplit(uri)
    if not parts.netloc:
        raise InvalidArgumentError(f"{uri!r} names no bucket.", hint=f"Write it as {parts.scheme}://bucket/table.")
    # The path of an object URI is literal, as Hadoop's S3A takes it: "%20" stays three characters.
    prefix = uri.partition("://")[2].partition("/")[2].strip("/")
    if parts.scheme.startswith("s3"):
        return ObjectStore(uri, prefix, *(_s3(parts.netloc, options, retry) for retry in (_READ_RETRIES, _NO_RETRIES)))
    if parts.scheme == "gs":
        return ObjectStore(
            uri,
            prefix,
            *(
                GCSStore(parts.netloc, retry_config=retry, client_options=_CLIENT)  # type: ignore[arg-type]
                for retry in (_READ_RETRIES, _NO_RETRIES)
            ),
        )
    return ObjectStore(uri, prefix, *(_azure(parts.netloc, options, retry) for retry in (_READ_RETRIES, _NO_RETRIES)))


def _s3(bucket: str, options: Mapping[str, str], retry: Mapping[str, Any]) -> S3Store:
    s3 = s3_options(bucket, options)
    config: dict[str, Any] = {
        "region": s3.region,
        "virtual_hosted_style_request": not s3.path_style,
        "conditional_put": "etag",
    }
    named = {
        "endpoint": s3.endpoint,
        "access_key_id": s3.access_key,
        "secret_access_key": s3.secret_key,
        "session_token": s3.session_token,
        "skip_signature": True if s3.anonymous else None,
    }
    config.update({key: value for key, value in named.items() if value is not None})
    client = {**_CLIENT, "allow_http": s3.allow_http}
    return S3Store(bucket, retry_config=retry, client_options=client, **config)  # type: ignore[arg-type]


def _azure(authority: str, options: Mapping[str, str], retry: Mapping[str, Any]) -> AzureStore:
    container, _, host = authority.partition("@")
    account = host.split(".")[0] if host else None
    key = next(
        (value for name, value in options.items() if host and name.endswith(f"fs.azure.account.key.{host}")), None
    )
    config = {"account_name": account, "account_key": key}
    known = {name: value for name, value in config.items() if value}
    return AzureStore(container, retry_config=retry, client_options=_CLIENT, **known)  # type: ignore[arg-type]


class ObjectStore:
    """Objects under one prefix of a bucket.

    Args:
        root: URI as the user knows it.
        prefix: Key prefix, without slashes at its ends.
        reader: Client for what may be repeated.
        creator: Client without retries, for put-if-absent.
    """

    def __init__(self, root: str, prefix: str, reader: Any, creator: Any) -> None:
        self._root = root.rstrip("/")
        self._prefix = prefix
        self._reader = reader
        self._creator = creator

    def __repr__(self) -> str:
        return f"ObjectStore({self._root!r})"

    @property
    def root(self) -> str:
        """The URI it was opened with."""
        return self._root

    def list_from(self, start: str, *, prefix: str) -> Iterator[ObjectInfo]:
        """See ``Store.list_from``. The store itself skips what comes before ``start``; sub-directories are left out."""
        folder = self._key(prefix) + "/" if self._key(prefix) else ""
        # The offset is exclusive: begin just before ``start``.
        offset = folder + start[:-1] + chr(ord(start[-1]) - 1) + "\U0010ffff" if start else None
        found = []
        with self._translated(folder):
            for batch in obstore.list(self._reader, prefix=folder.rstrip("/") or None, offset=offset):
                for item in batch:
                    name = item["path"][len(folder) :]
                    if item["path"].startswith(folder) and name and "/" not in name and name >= start:
                        found.append(_info(f"{prefix}/{name}" if prefix else name, item))
        yield from sorted(found, key=lambda info: info.path)

    def list_all(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """See ``Store.list_all``."""
        folder = self._key(prefix)
        cut = len(self._prefix) + 1 if self._prefix else 0
        with self._translated(folder):
            for batch in obstore.list(self._reader, prefix=folder or None):
                for item in batch:
                    yield _info(item["path"][cut:], item)

    def read(self, path: str) -> bytes:
        """See ``Store.read``."""
        with self._translated(path):
            return bytes(obstore.get(self._reader, self._key(path)).bytes())

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """See ``Store.read_range``."""
        if length <= 0:
            return b""
        with self._translated(path):
            return bytes(obstore.get_range(self._reader, self._key(path), start=start, length=length))

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """See ``Store.put_if_absent``."""
        try:
            obstore.put(self._creator, self._key(path), data, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return PutOutcome.ALREADY_EXISTS
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise self._denied(path) from error
        except (NotFoundError, FileNotFoundError) as error:  # the bucket itself
            raise ObjectNotFoundError(f"The bucket of {self._root} does not exist.", hint="Create it first.") from error
        except BaseError:  # timeouts, dropped connections, 409 and 5xx: it may have taken effect
            return PutOutcome.UNKNOWN
        return PutOutcome.CREATED

    def put(self, path: str, data: bytes) -> None:
        """See ``Store.put``."""
        with self._translated(path):
            obstore.put(self._reader, self._key(path), data, mode="overwrite", use_multipart=False)

    def head(self, path: str) -> ObjectInfo | None:
        """See ``Store.head``."""
        try:
            with self._translated(path):
                return _info(path, obstore.head(self._reader, self._key(path)))
        except ObjectNotFoundError:
            return None

    def delete_many(self, paths: Iterable[str]) -> DeleteReport:
        """See ``Store.delete_many``: up to 1,000 keys a request."""
        names = list(paths)
        deleted, failed = 0, []
        for begin in range(0, len(names), _DELETE_BATCH):
            batch = names[begin : begin + _DELETE_BATCH]
            try:
                with self._translated(batch[0]):
                    obstore.delete(self._reader, [self._key(path) for path in batch])
                deleted += len(batch)
            except ObjectNotFoundError:
                deleted += len(batch)
            except StorageError as error:
                failed += [(path, error.message) for path in batch]
        return DeleteReport(deleted=deleted, failed=tuple(failed))

    def open_writer(self, path: str) -> BinaryIO:
        """See ``Store.open_writer``: parts are uploaded as they fill, the object appears at ``close``."""
        return _ObjectWriter(self, path)  # type: ignore[return-value]

    def _key(self, path: str) -> str:
        return "/".join(part for part in (self._prefix, path) if part)

    def _denied(self, path: str) -> StoragePermissionError:
        return StoragePermissionError(
            f"{self._root}/{path}: the credentials in use are not allowed to do this, or there are none.",
            hint="Check fs.s3a.access.key and the policy of the key, or AWS_ACCESS_KEY_ID.",
        )

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        try:
            yield
        except (NotFoundError, FileNotFoundError) as error:
            raise ObjectNotFoundError(f"{self._root}/{path} does not exist.") from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise self._denied(path) from error
        except BaseError as error:
            raise StorageError(
                f"{self._root}/{path}: {_without_details(error)}",
                retryable=True,
                hint="Check that the store is reachable.",
            ) from error


class _ObjectWriter:
    """A multipart upload; ``close`` completes it, ``abort`` drops it."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store = store
        self._path = path
        with store._translated(path):
            self._inner = obstore.open_writer(store._reader, store._key(path))
        self.closed = False

    def write(self, data: Any) -> int:
        """Queue bytes for the upload."""
        with self._store._translated(self._path):
            return int(self._inner.write(bytes(data)))

    def flush(self) -> None:
        """Nothing: parts are uploaded as they fill."""

    def writable(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """Complete the upload."""
        if not self.closed:
            self.closed = True
            with self._store._translated(self._path):
                self._inner.close()

    def abort(self) -> None:
        """Drop what was written: an upload that is never completed makes no object."""
        self.closed = True

    def __enter__(self) -> _ObjectWriter:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is not None:
            self.abort()
        else:
            self.close()


def _info(path: str, item: Mapping[str, Any]) -> ObjectInfo:
    return ObjectInfo(
        path=path,
        size=item["size"],
        modification_time_ms=int(item["last_modified"].timestamp() * 1000),
        etag=item.get("e_tag"),
    )


def _without_details(error: BaseError) -> str:
    """The first line of a client's message: the rest is a dump of the request."""
    return str(error).strip().split("\n", 1)[0][:300]
