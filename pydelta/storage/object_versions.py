"""List, read and delete the older versions of objects in a bucket that keeps them, through boto3.

::

    orders/a.parquet   v3 (newest)   v2   v1    --> v2 and v1 are older versions
    orders/b.parquet   marker (newest)    v1    --> v1 and the marker: the object was deleted

Only S3 and what speaks its protocol is served. A delete marker goes after all versions of its object, since without it
the newest of them would be the object again.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydelta.errors import DeltaEnvironmentError, ObjectNotFoundError, StorageError, StoragePermissionError
from pydelta.storage.kinds import kind_of
from pydelta.storage.options import Connection, s3_options
from pydelta.storage.uris import normalize_uri, split_location

__all__ = ["DeletedVersions", "ObjectVersions", "OlderVersion", "open_versions"]

_PAGE: Final = 1000
_DENIED: Final = ("AccessDenied", "AllAccessDisabled", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403")
_MISSING: Final = ("NoSuchKey", "NoSuchVersion", "404")
_AUTHORITIES: Final = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
"""Where systems keep the certificates of the authorities that they trust, as one file."""
_LATER: Final = ("SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "503", "500")


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderVersion:
    """A version of an object that a listing of objects does not show, or a delete marker.

    Args:
        path: The object, relative to the root.
        id: The version's id.
        size: Bytes; 0 for a marker.
        is_marker: Whether it is a delete marker, which may be the newest version of its object.
    """

    path: str
    id: str
    size: int = 0
    is_marker: bool = False


@dataclass(slots=True, kw_only=True)
class DeletedVersions:
    """What became of the versions to delete.

    Args:
        versions, markers: How many were deleted.
        size: Bytes of the deleted versions.
        failed: Paths and reasons of those that are still there.
    """

    versions: int = 0
    markers: int = 0
    size: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)


def open_versions(uri: str, options: Mapping[str, str] | None = None) -> ObjectVersions | None:
    """Open the versions of the objects below a location.

    Args:
        uri: The location.
        options: ``fs.s3a.*`` settings, with or without the prefix ``spark.hadoop.``.

    Returns:
        None if its store has no such versions, or none that this engine can list.

    Raises:
        DeltaEnvironmentError: boto3 is not installed.
        InvalidArgumentError: A setting is invalid.
    """
    scheme, host, prefix = split_location(normalize_uri(uri))
    if not (scheme.startswith("s3") or kind_of(scheme).name == "s3"):
        return None
    return ObjectVersions(_client(s3_options(host, options)), host, prefix)


class ObjectVersions:
    """Older versions of the objects below a prefix of a bucket.

    Args:
        client: A boto3 client of S3.
        bucket: The bucket.
        prefix: The prefix, without slashes at its ends.
    """

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:
        self._client, self._bucket, self._prefix = client, bucket, f"{prefix}/" if prefix else ""

    def listed(self) -> Iterator[OlderVersion]:
        """Iterate over the older versions and the delete markers, object by object.

        Raises:
            StoragePermissionError: The key may not list versions (``s3:ListBucketVersions``).
            StorageError: The store failed, or does not know versions.
        """
        asked: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix, "MaxKeys": _PAGE}
        while True:
            page = self._call("list the versions", self._client.list_object_versions, **asked)
            found = [
                (item["Key"], OlderVersion(path=self._path(item["Key"]), id=item["VersionId"], size=item["Size"]))
                for item in page.get("Versions", ())
                if not item["IsLatest"]
            ]
            found += [
                (item["Key"], OlderVersion(path=self._path(item["Key"]), id=item["VersionId"], is_marker=True))
                for item in page.get("DeleteMarkers", ())
            ]
            yield from (version for _, version in sorted(found, key=lambda pair: pair[0]))
            if not page.get("IsTruncated"):
                return
            asked |= {"KeyMarker": page["NextKeyMarker"], "VersionIdMarker": page.get("NextVersionIdMarker", "")}

    def read(self, version: OlderVersion) -> bytes:
        """Read a version.

        Raises:
            ObjectNotFoundError: It does not exist any more.
            StorageError: The store failed, or the key may not read it (``s3:GetObjectVersion``).
        """
        reply = self._call(
            f"read an older version of {version.path}",
            self._client.get_object,
            Bucket=self._bucket,
            Key=self._prefix + version.path,
            VersionId=version.id,
        )
        return bytes(reply["Body"].read())

    def delete(self, versions: Iterable[OlderVersion]) -> DeletedVersions:
        """Delete versions for good, and then the markers of objects of which no version failed.

        Args:
            versions: Versions and markers. Those of one object follow each other, as ``listed`` gives them.

        Raises:
            StorageError: The store failed. A repetition does what is left.
        """
        done = DeletedVersions()
        group: list[OlderVersion] = []
        for version in versions:
            if len(group) >= _PAGE and version.path != group[-1].path:
                self._delete_group(group, done)
                group = []
            group.append(version)
        self._delete_group(group, done)
        return done

    def _delete_group(self, group: list[OlderVersion], done: DeletedVersions) -> None:
        self._delete_all([version for version in group if not version.is_marker], done)
        kept = {path for path, _ in done.failed}
        self._delete_all([version for version in group if version.is_marker and version.path not in kept], done)

    def _delete_all(self, versions: list[OlderVersion], done: DeletedVersions) -> None:
        for at in range(0, len(versions), _PAGE):
            part = versions[at : at + _PAGE]
            reply = self._call(
                "delete older versions",
                self._client.delete_objects,
                Bucket=self._bucket,
                Delete={
                    "Objects": [{"Key": self._prefix + item.path, "VersionId": item.id} for item in part],
                    "Quiet": True,
                },
            )
            refused = {(item["Key"], item.get("VersionId")): item for item in reply.get("Errors", ())}
            for item in part:
                error = refused.get((self._prefix + item.path, item.id))
                if error is not None and error.get("Code") not in _MISSING:
                    done.failed.append((item.path, f"{error.get('Code')}: {error.get('Message')}"))
                elif item.is_marker:
                    done.markers += 1
                else:
                    done.versions += 1
                    done.size += item.size

    def _path(self, key: str) -> str:
        return key.removeprefix(self._prefix)

    def _call(self, what: str, call: Any, **arguments: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        place = f"s3a://{self._bucket}/{self._prefix}".rstrip("/")
        try:
            return call(**arguments)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code"))
            if code in _MISSING:
                raise ObjectNotFoundError(f"{place}: to {what} failed, since it does not exist ({code}).") from error
            if code in _DENIED:
                raise StoragePermissionError(
                    f"{place}: the key may not {what} ({code}).",
                    hint="Give it s3:ListBucketVersions on the bucket, and s3:GetObjectVersion and "
                    "s3:DeleteObjectVersion on its objects.",
                ) from error
            raise StorageError(
                f"{place}: to {what} failed ({code}).", retryable=code in _LATER, hint="Run it again."
            ) from error
        except BotoCoreError as error:
            raise StorageError(
                f"{place}: to {what} failed: {type(error).__name__}.",
                retryable=True,
                hint="Check that the store runs, and its settings (fs.s3a.*). Then run it again.",
            ) from error


def _client(connection: Connection) -> Any:
    """Return a boto3 client with the settings of the store."""
    try:
        import boto3
        from botocore import UNSIGNED
        from botocore.config import Config
    except ImportError:
        raise DeltaEnvironmentError(
            "Older versions of objects are listed by the package boto3, which is not installed.",
            hint="pip install 'pydelta-lakehouse[erasure]'",
        ) from None
    virtual = connection.get("virtual_hosted_style_request") is True
    endpoint = connection.get("endpoint")
    if virtual and isinstance(endpoint, str):  # boto3 puts the bucket before the host by itself.
        endpoint = endpoint.replace(f"//{connection.bucket}.", "//", 1)
    proxy = None if connection.proxy is None else connection.proxy.reveal()
    config = Config(
        signature_version=UNSIGNED if connection.get("skip_signature") is True else None,
        retries={"max_attempts": connection.max_retries + 1, "mode": "standard"},
        s3={"addressing_style": "virtual" if virtual else "path"},
        proxies=None if proxy is None else {"http": proxy, "https": proxy},
    )
    keys: dict[str, str] = {}
    if connection.credential is not None:
        credential = connection.credential
        keys = {
            "aws_access_key_id": credential.access_key.reveal(),
            "aws_secret_access_key": credential.secret_key.reveal(),
        }
        if credential.token is not None:
            keys["aws_session_token"] = credential.token.reveal()
    region = connection.get("region")
    session = boto3.session.Session()
    return session.client("s3", region_name=region, endpoint_url=endpoint, config=config, verify=_authorities(), **keys)


def _authorities() -> str | None:
    """Return the file of the authorities that the system trusts, as the store's other client does; None for boto3's."""
    named = (os.environ.get("AWS_CA_BUNDLE"), os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile)
    return next((file for file in (*named, *_AUTHORITIES) if file and Path(file).is_file()), None)
