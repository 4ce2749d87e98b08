"""Hadoop's ``fs.s3a.*`` settings and the environment -> the configuration of an object store client.

One configuration for the whole job: what Spark's executors use for S3A, the log uses too. Values never show in a repr.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pydelta.errors import DeltaEnvironmentError

__all__ = ["S3Options", "hadoop_options", "s3_options"]

_STATIC_PROVIDERS: Final = ("SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider")
_ENVIRONMENT_PROVIDERS: Final = ("EnvironmentVariableCredentialsProvider",)
_AMBIENT_PROVIDERS: Final = (
    "IAMInstanceCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "ContainerCredentialsProvider",
    "WebIdentityTokenFileCredentialsProvider",
    "DefaultCredentialsProvider",
    "DefaultAWSCredentialsProviderChain",
)
_ANONYMOUS_PROVIDERS: Final = ("AnonymousAWSCredentialsProvider", "AnonymousCredentialsProvider")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """What an S3 client needs. Secrets are left out of the repr."""

    bucket: str
    endpoint: str | None = None
    region: str = "us-east-1"
    path_style: bool = False
    allow_http: bool = False
    anonymous: bool = False
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)


def hadoop_options(options: Mapping[str, str]) -> dict[str, str]:
    """The ``fs.*`` settings among ``options``, with ``spark.hadoop.`` taken off.

    Example:
        >>> hadoop_options({"spark.hadoop.fs.s3a.endpoint": "http://localhost:9000", "spark.app.name": "x"})
        {'fs.s3a.endpoint': 'http://localhost:9000'}
    """
    plain = {key.removeprefix("spark.hadoop."): value for key, value in options.items()}
    return {key: value for key, value in plain.items() if key.startswith("fs.")}


def s3_options(bucket: str, options: Mapping[str, str], env: Mapping[str, str] | None = None) -> S3Options:
    """Settings of one bucket: ``fs.s3a.bucket.<bucket>.*`` over ``fs.s3a.*`` over ``AWS_*`` of the environment.

    Raises:
        DeltaEnvironmentError: A credentials provider class that has no counterpart outside of the JVM, by its name;
            or half of a key pair.
    """
    env = os.environ if env is None else env
    fs = hadoop_options(options)

    def setting(name: str, *variables: str) -> str | None:
        for key in (f"fs.s3a.bucket.{bucket}.{name}", f"fs.s3a.{name}"):
            if fs.get(key, "").strip():
                return fs[key].strip()
        return next((env[variable] for variable in variables if env.get(variable)), None)

    static, anonymous = _provider(setting("aws.credentials.provider"))
    access = setting("access.key", "AWS_ACCESS_KEY_ID")
    secret = setting("secret.key", "AWS_SECRET_ACCESS_KEY")
    if (access is None) != (secret is None):
        missing = "fs.s3a.secret.key" if secret is None else "fs.s3a.access.key"
        raise DeltaEnvironmentError(
            f"The bucket {bucket} has one half of a key pair: {missing} is not set.", hint=f"Set {missing} as well."
        )
    if static and access is None and not anonymous:
        raise DeltaEnvironmentError(
            f"The bucket {bucket} is to be used with keys from the settings, and there are none.",
            hint="Set fs.s3a.access.key and fs.s3a.secret.key, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
    endpoint = setting("endpoint", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    tls = (setting("connection.ssl.enabled") or "true").lower() != "false"
    if endpoint is not None and "://" not in endpoint:
        endpoint = f"{'https' if tls else 'http'}://{endpoint}"
    return S3Options(
        bucket=bucket,
        endpoint=endpoint,
        region=setting("endpoint.region", "AWS_REGION", "AWS_DEFAULT_REGION") or "us-east-1",
        path_style=(setting("path.style.access") or "false").lower() == "true",
        allow_http=endpoint is not None and endpoint.startswith("http://"),
        anonymous=anonymous,
        access_key=None if anonymous else access,
        secret_key=None if anonymous else secret,
        session_token=None if anonymous else setting("session.token", "AWS_SESSION_TOKEN"),
    )


def _provider(value: str | None) -> tuple[bool, bool]:
    """A provider list -> (keys must be in the settings, anonymous)."""
    if not value:
        return False, False
    names = [part.strip().rpartition(".")[2] for part in value.replace("\n", ",").split(",") if part.strip()]
    known = (*_STATIC_PROVIDERS, *_ENVIRONMENT_PROVIDERS, *_AMBIENT_PROVIDERS, *_ANONYMOUS_PROVIDERS)
    unknown = [name for name in names if name not in known]
    if unknown and len(unknown) == len(names):
        raise DeltaEnvironmentError(
            f"The credentials provider {', '.join(unknown)} runs in the JVM alone; the transaction log is read outside it.",
            hint="Use one of the providers "
            + ", ".join(known)
            + ", or register a log store of your own for the scheme.",
        )
    return all(name in _STATIC_PROVIDERS for name in names), all(name in _ANONYMOUS_PROVIDERS for name in names)
