"""List an S3 bucket with ListObjectsV2: pages of keys with storage class and ETag, exactly as S3 spells them.

The client behind ``Store`` treats keys as paths: it drops the trailing slash of a directory marker and refuses a key
with an empty segment. An inventory needs the exact keys, so this module talks to S3 itself, with the credentials of a
``Connection`` (or none). If the machine supplies the credentials, or requests need a proxy, use ``StoreKeys``.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import http.client
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

import polars as pl

from pydelta.errors import ObjectNotFoundError, StorageError, StoragePermissionError
from pydelta.storage.backoff import Backoff
from pydelta.storage.options import Connection, StaticCredential
from pydelta.tools.inventory.rows import decode_keys

__all__ = ["KEY_SCHEMA", "S3Keys", "signed_headers"]

KEY_SCHEMA: Final[dict[str, pl.DataType]] = {
    "key": pl.String(),
    "size": pl.Int64(),
    "modified": pl.Datetime("ms", "UTC"),
    "etag": pl.String(),
    "storage_class": pl.String(),
}
_PAGE: Final = 1000
_EMPTY_HASH: Final = hashlib.sha256(b"").hexdigest()
_REPEATED: Final = frozenset({429, 500, 502, 503, 504})
_BACKOFF: Final = Backoff(first_ms=200, longest_ms=20_000, jitter=0.5)


def signed_headers(
    host: str, path: str, query: str, credential: StaticCredential, *, region: str, now: dt.datetime
) -> dict[str, str]:
    """Build the headers of a GET request with its signature (AWS Signature Version 4).

    Args:
        host: Host, with its port unless that is the default one.
        path: Path, URI-encoded.
        query: Query, encoded, with sorted fields.
        credential: Credential to sign with.
        region: Region of the bucket.
        now: Current time in UTC.
    """
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    headers = {"host": host, "x-amz-content-sha256": _EMPTY_HASH, "x-amz-date": stamp}
    if credential.token is not None:
        headers["x-amz-security-token"] = credential.token.reveal()
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = "\n".join(["GET", path, query, lines, names, _EMPTY_HASH])
    scope = f"{day}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = ("AWS4" + credential.secret_key.reveal()).encode()
    for part in (day, region, "s3", "aws4_request", text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    authorization = (
        f"AWS4-HMAC-SHA256 Credential={credential.access_key.reveal()}/{scope}, "
        f"SignedHeaders={names}, Signature={key.hex()}"
    )
    return {name: value for name, value in headers.items() if name != "host"} | {"authorization": authorization}


@dataclass(slots=True)
class S3Keys:
    """The keys of a bucket below a prefix. ``requests`` counts the requests sent.

    Args:
        connection: Bucket, endpoint and credential; see ``usable``.
        prefix: List only keys with this prefix.
        sleep: Function that waits; replaced in tests.
    """

    connection: Connection
    prefix: str = ""
    sleep: Callable[[float], None] = time.sleep
    ordered: bool = True
    requests: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _local: threading.local = field(default_factory=threading.local)

    @staticmethod
    def usable(connection: Connection) -> bool:
        """Return whether requests need no proxy, and can be signed with given keys or need no signature."""
        if connection.kind != "s3" or connection.proxy is not None:
            return False
        if connection.credential is None and not connection.get("skip_signature"):
            return False
        url = urlsplit(_base(connection)[0])
        return url.scheme not in urllib.request.getproxies() or bool(urllib.request.proxy_bypass(url.hostname or ""))

    def pages(self, after: str = "") -> Iterator[pl.DataFrame]:
        """Yield frames of ``KEY_SCHEMA``, one per request, with ascending keys. The first may be empty.

        Args:
            after: List only keys after this one, in the order of their UTF-8 bytes.

        Raises:
            ObjectNotFoundError: The bucket does not exist.
            StoragePermissionError: The credential does not allow listing.
            StorageError: The service keeps failing.
        """
        token: str | None = None
        while True:
            fields = {"encoding-type": "url", "list-type": "2", "max-keys": str(_PAGE), "prefix": self.prefix}
            if token is not None:
                fields["continuation-token"] = token
            elif after:
                fields["start-after"] = after
            frame, token = _parsed(self._get(fields))
            yield frame
            if token is None:
                return

    def _get(self, fields: dict[str, str]) -> bytes:
        base, path = _base(self.connection)
        url = urlsplit(base)
        query = "&".join(f"{quote(name, safe='')}={quote(fields[name], safe='')}" for name in sorted(fields))
        what, retryable = "no answer", True
        for attempt in range(self.connection.max_retries + 1):
            if attempt:
                self.sleep(_BACKOFF.seconds(attempt))
            headers = {}
            if self.connection.credential is not None and not self.connection.get("skip_signature"):
                headers = signed_headers(
                    url.netloc,
                    path,
                    query,
                    self.connection.credential,
                    region=str(self.connection.get("region") or "us-east-1"),
                    now=dt.datetime.now(dt.UTC),
                )
            if self.connection.get("request_payer"):
                headers["x-amz-request-payer"] = "requester"
            with self._lock:
                self.requests += 1
            try:
                client = self._client(url.scheme, url.netloc)
                client.request("GET", f"{path}?{query}", headers=headers)
                reply = client.getresponse()
                body = reply.read()
            except (OSError, http.client.HTTPException) as error:
                self._local.client = None
                what = type(error).__name__
                continue
            if reply.status == 200:
                return body
            what, retryable = f"{reply.status} {_code(body)}", reply.status in _REPEATED
            if not retryable:
                raise self._error(reply.status, what)
        raise StorageError(
            f"s3a://{self.connection.bucket}/{self.prefix}: listing failed ({what}).",
            retryable=retryable,
            hint="Check that the service runs, and the endpoint; then run it again.",
        )

    def _error(self, status: int, what: str) -> StorageError:
        where = f"s3a://{self.connection.bucket}"
        if status in (401, 403):
            return StoragePermissionError(
                f"{where}: the store refused to list it ({what}).",
                hint="Check the keys, and that their owner may list the bucket (s3:ListBucket).",
            )
        if status == 404:
            return ObjectNotFoundError(f"{where}: there is no such bucket.", hint="Create it, or check the endpoint.")
        return StorageError(f"{where}: listing failed ({what}).", hint="Check endpoint and region.")

    def _client(self, scheme: str, netloc: str) -> http.client.HTTPConnection:
        """Return this thread's connection, which stays open between pages."""
        client: http.client.HTTPConnection | None = getattr(self._local, "client", None)
        if client is None:
            kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
            client = self._local.client = kind(netloc, timeout=60)
        return client


def _base(connection: Connection) -> tuple[str, str]:
    """Return the address of the service, and the path of the bucket."""
    endpoint, virtual = connection.get("endpoint"), connection.get("virtual_hosted_style_request")
    if endpoint is None:
        host = f"s3.{connection.get('region')}.amazonaws.com"
        endpoint = f"https://{connection.bucket}.{host}" if virtual else f"https://{host}"
    return str(endpoint), "/" if virtual else f"/{quote(connection.bucket)}"


def _parsed(body: bytes) -> tuple[pl.DataFrame, str | None]:
    """Parse a reply into its keys and the token of the next page."""
    root = ElementTree.fromstring(body)  # noqa: S314 -- from the service that the credential is sent to
    space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
    names = [f"{space}{name}" for name in ("Key", "Size", "LastModified", "ETag", "StorageClass")]
    rows = [[item.findtext(name) for name in names] for item in root.iter(f"{space}Contents")]
    frame = pl.DataFrame(rows, schema=dict.fromkeys(KEY_SCHEMA, pl.String()), orient="row").with_columns(
        pl.col("size").cast(pl.Int64),
        pl.col("modified").str.to_datetime("%Y-%m-%dT%H:%M:%S%.fZ", time_unit="ms").dt.replace_time_zone("UTC"),
        pl.col("etag").str.strip_chars('"'),
    )
    if root.findtext(f"{space}EncodingType") == "url":
        frame = frame.with_columns(decode_keys(frame["key"]))
    more = (root.findtext(f"{space}IsTruncated") or "").lower() == "true"
    return frame, root.findtext(f"{space}NextContinuationToken") if more else None


def _code(body: bytes) -> str:
    """Return the error code of a reply, and nothing else of it."""
    try:
        found = ElementTree.fromstring(body).findtext("Code")  # noqa: S314 -- as above
    except ElementTree.ParseError:
        return ""
    return found or ""
