"""Translate an object store's exception: whether the request was sent, was applied, and can be repeated.

The client distinguishes kinds of failure only in the text of its exceptions, which is parsed only here.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

from pydelta.errors import (
    ObjectNotFoundError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
    UnsafeStoreError,
)

__all__ = ["StoreFailure", "read_failure", "to_storage_error"]

_STATUS: Final = re.compile(r"non-2xx status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>([^<]{1,80})</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]{1,300})</Message>")
_RETRIES: Final = re.compile(r"\bretries: (\d+)")
_CREDENTIALS: Final = re.compile(
    r"//(?:169\.254\.169\.254|169\.254\.170\.23?|\[fd00:ec2::(?:254|23)\]|sts[a-z0-9.-]*\.amazonaws\.com)[/:]"
    r"|/latest/api/token"
)
"""Services that issue credentials. A request that failed there never reached the store."""
_KIND: Final = re.compile(r"HttpError \{\s*kind: (\w+)")
_PART: Final = re.compile(r"DeleteFailed \{.*?code: \"([^\"]{1,80})\"", re.DOTALL)
_PART_AGAIN: Final = frozenset(
    {"SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "ThrottlingException"}
)
_QUERY_SECRET: Final = re.compile(r"(?i)\b(sig|x-amz-[a-z-]+|x-goog-[a-z-]+|access_token)=[^&\s\"'<>]+")
_DENIED: Final = (401, 403)
_CLOCK_CODE: Final = "RequestTimeTooSkewed"
_FULL_CODES: Final = frozenset({"QuotaExceeded", "XMinioStorageFull", "InsufficientStorage"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFailure:
    """The failure of a request.

    Args:
        status: HTTP status of the reply, or None if there was none.
        code: The service's own error code, such as ``SlowDown``.
        message: The service's own message.
        kind: ``credentials`` if none were found, ``path`` for a name that the client refuses, ``missing``, ``denied``,
            ``connect`` if no connection was made, ``reply`` for an HTTP status, ``part`` if a bulk request was carried
            out only in part, otherwise ``lost``.
        retries: How often the client had repeated the request.
    """

    status: int | None
    code: str | None
    message: str | None
    kind: str
    retries: int

    @property
    def surely_not_applied(self) -> bool:
        """Whether the store certainly did not carry out the request."""
        if self.retries:
            return False
        if self.kind == "reply":
            return self.status == 501 or (self.status is not None and 400 <= self.status < 500 and self.status != 408)
        return self.kind not in ("lost", "part")

    @property
    def is_full(self) -> bool:
        """Whether the store reported that it is full. That reply is certain, whatever its status."""
        return self.code in _FULL_CODES or self.status == 507

    @property
    def is_outage(self) -> bool:
        """Whether all other requests would most likely fail, too."""
        if self.kind == "part":
            return self.retryable
        return self.kind in ("connect", "lost", "credentials", "denied") or (self.status or 0) >= 500

    @property
    def is_denied(self) -> bool:
        """Whether the store refused the request for lack of permission."""
        return self.kind == "denied" or (self.kind == "part" and self.code == "AccessDenied")

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        if self.kind == "part":
            return self.code in _PART_AGAIN
        return self.kind in ("connect", "lost") or self.status in (408, 429) or (self.status or 0) >= 500


def read_failure(error: Exception) -> StoreFailure:
    """Parse the failure in a client's exception. Pure; never fails."""
    text = str(error)
    status = _STATUS.search(text)
    code = _CODE.search(text)
    message = _MESSAGE.search(text)
    retries = _RETRIES.search(text)
    http = _KIND.search(text)
    part = _PART.search(text)
    if _CREDENTIALS.search(text) is not None:
        kind = "credentials"
    elif isinstance(error, FileNotFoundError):
        kind = "missing"
    elif isinstance(error, ValueError):
        kind = "path"
    elif isinstance(error, (PermissionDeniedError, UnauthenticatedError)):
        kind = "denied"
    elif part is not None:
        kind, code = "part", part
    elif status is not None:
        kind = "denied" if int(status.group(1)) in _DENIED else "reply"  # For listings, the status is all there is.
    elif http is not None and http.group(1) == "Connect":
        kind = "connect"
    else:
        kind = "lost"
    return StoreFailure(
        status=int(status.group(1)) if status else None,
        code=code.group(1) if code else None,
        message=html.unescape(message.group(1)) if message else None,
        kind=kind,
        retries=int(retries.group(1)) if retries else 0,
    )


def to_storage_error(error: Exception, *, where: str, secrets: Sequence[str] = ()) -> StorageError:
    """Build the error to raise for a client's exception, without secrets.

    Args:
        error: Exception of the client.
        where: URI of the object.
        secrets: Texts that must not appear.
    """
    failure = read_failure(error)
    reply = " ".join(part for part in (str(failure.status or ""), failure.code, failure.message) if part)
    detail = _clean(reply or str(error).partition("\n")[0], secrets)
    if failure.kind == "missing":
        if failure.code in ("NoSuchBucket", "ContainerNotFound"):
            return ObjectNotFoundError(f"{where}: there is no such bucket.", hint="Create it, or check the endpoint.")
        return ObjectNotFoundError(f"{where} does not exist.")
    if failure.code == _CLOCK_CODE:
        return StoragePermissionError(
            f"{where}: the store refused the request, because this machine's clock differs from the store's by more "
            f"than it allows ({detail}).",
            hint="Set the clock of the machine that is wrong, for instance by NTP. "
            "pydelta doctor URI measures the difference.",
        )
    if failure.is_denied:
        bucket = (where.partition("://")[2] or where).partition("/")[0]
        return StoragePermissionError(
            f"{where}: there is no bucket {bucket}, or the key may not do this there ({detail}).",
            hint="Check the name of the bucket (for a missing one, a key with few rights gets the same answer), "
            "then the keys (fs.s3a.access.key and fs.s3a.secret.key, or AWS_*), and what their owner may do.",
        )
    if failure.kind == "credentials":
        return StoragePermissionError(
            f"{where}: no credentials were found in the settings, the environment or on the machine.",
            hint="Set fs.s3a.access.key and fs.s3a.secret.key, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
    if failure.kind == "connect":
        return StorageError(
            f"{where}: the store cannot be reached.",
            retryable=True,
            hint="Check that the service runs, and the endpoint (fs.s3a.endpoint or AWS_ENDPOINT_URL).",
        )
    if failure.is_full:
        return StorageFullError(f"{where}: the store is full ({detail}).", hint="Free space or raise the quota.")
    if failure.status == 501:
        return UnsafeStoreError(
            f"{where}: the store does not implement this request ({detail}).",
            hint="A log needs a store that honours If-None-Match on PUT (AWS S3, MinIO).",
        )
    return StorageError(
        f"{where}: {detail}.", retryable=failure.retryable, hint="Run it again." if failure.retryable else None
    )


def _clean(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        for spelling in (secret, quote(secret, safe="")):
            text = text.replace(spelling, "***")
    return _QUERY_SECRET.sub(r"\1=***", text).strip().rstrip(".")
