"""Read Hadoop's ``fs.s3a.*`` settings and the environment into one ``Connection``, the same for Spark and for us.

``fs.gs.*`` and ``fs.azure.*`` are read in ``cloud_options``. Nothing here opens a connection, and ``repr`` never shows
a secret.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError

__all__ = ["Connection", "HadoopOptions", "Secret", "StaticCredential", "s3_options"]


@dataclass(frozen=True, slots=True)
class Secret:
    """Text that ``repr``, logs and messages never show. Call ``reveal`` only where a client needs it."""

    _value: str = field(repr=False)

    def reveal(self) -> str:
        """Return the text itself."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __str__(self) -> str:
        return "***"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticCredential:
    """Keys of an S3 account. ``token`` belongs to temporary keys."""

    access_key: Secret
    secret_key: Secret
    token: Secret | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The settings to reach one bucket. Hashable, so that equal settings share a client.

    Args:
        kind: ``s3``, ``gs`` or ``azure``.
        bucket: Bucket or container.
        config: Settings of the client library under its own names.
        credential: Keys to sign with. None leaves it to the environment (container, web identity, instance).
        allow_http: Whether the endpoint may be used without TLS.
        proxy: URL of a proxy, with its password.
        max_retries: Maximum number of retries of a repeatable request.
    """

    kind: str
    bucket: str
    config: tuple[tuple[str, str | bool | Secret], ...] = ()
    credential: StaticCredential | None = None
    allow_http: bool = False
    proxy: Secret | None = None
    max_retries: int = 6

    def get(self, name: str) -> str | bool | None:
        """Return one client setting, with secrets revealed, or None if it is not set."""
        value = dict(self.config).get(name)
        return value.reveal() if isinstance(value, Secret) else value

    def secrets(self) -> tuple[str, ...]:
        """Return all secret strings in the settings, to be removed from messages."""
        held = [value for _, value in self.config if isinstance(value, Secret)]
        if self.credential is not None:
            held += [self.credential.secret_key, *([self.credential.token] if self.credential.token else [])]
        if self.proxy is not None:
            held.append(self.proxy)
        return tuple(secret.reveal() for secret in held if secret.reveal())


class HadoopOptions:
    """Settings by their Hadoop names: options of the call, then ``spark.hadoop.*``, then ``PYDELTA_*`` variables.

    The variable of ``fs.s3a.path.style.access`` is ``PYDELTA_FS_S3A_PATH_STYLE_ACCESS``. An empty value counts as
    unset, as in Hadoop.
    """

    def __init__(self, options: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None) -> None:
        self._options = dict(options or {})
        self.env: Mapping[str, str] = os.environ if env is None else env

    def __repr__(self) -> str:
        return f"HadoopOptions({sorted(self._options)})"

    def get(self, *names: str) -> str | None:
        """Return the first of these settings that is set."""
        for name in names:
            for value in (
                self._options.get(name),
                self._options.get(f"spark.hadoop.{name}"),
                self.env.get("PYDELTA_" + re.sub(r"[.\-]", "_", name).upper()),
            ):
                if value is not None and value.strip():
                    return value.strip()
        return None

    def get_flag(self, *names: str, default: bool) -> bool:
        """Return a boolean setting.

        Raises:
            InvalidArgumentError: The setting is neither true nor false.
        """
        text = self.get(*names)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise InvalidArgumentError(f"{names[-1]} is {text!r}.", hint="Set it to true or false.")
        return text.lower() == "true"

    def get_variable(self, *names: str) -> str | None:
        """Return the first environment variable that is set and not empty."""
        return next((self.env[name] for name in names if self.env.get(name)), None)

    def starting_with(self, *prefixes: str) -> dict[str, str]:
        """Return all settings with one of these prefixes, after removing ``spark.hadoop.``."""
        plain = {name: value for name, value in self._options.items() if not name.startswith("spark.hadoop.")}
        named = {name.removeprefix("spark.hadoop."): value for name, value in self._options.items()}
        return {name: value for name, value in {**named, **plain}.items() if name.startswith(prefixes)}


_FROM_KEYS: Final = frozenset({"SimpleAWSCredentialsProvider", "BasicAWSCredentialsProvider"})
_FROM_TOKEN: Final = frozenset({"TemporaryAWSCredentialsProvider"})
_ANONYMOUS: Final = frozenset({"AnonymousAWSCredentialsProvider", "AnonymousCredentialsProvider"})
_FROM_ENVIRONMENT: Final = frozenset({"EnvironmentVariableCredentialsProvider"})
_FROM_MACHINE: Final = frozenset(
    {
        "ContainerCredentialsProvider",
        "DefaultAWSCredentialsProviderChain",
        "DefaultCredentialsProvider",
        "EC2ContainerCredentialsProviderWrapper",
        "IAMInstanceCredentialsProvider",
        "InstanceProfileCredentialsProvider",
        "WebIdentityTokenCredentialsProvider",
        "WebIdentityTokenFileCredentialsProvider",
    }
)
_KNOWN_PACKAGES: Final = ("org.apache.hadoop.fs.s3a.", "com.amazonaws.auth.", "software.amazon.awssdk.auth.")
_ENCRYPTION: Final = {"AES256": "AES256", "SSE-S3": "AES256", "SSE-KMS": "aws:kms", "DSSE-KMS": "aws:kms:dsse"}


class _S3Settings:
    """The ``fs.s3a.*`` settings of one bucket. ``fs.s3a.bucket.<bucket>.x`` wins over ``fs.s3a.x``."""

    def __init__(self, options: HadoopOptions, bucket: str) -> None:
        self._options = options
        self._bucket = bucket

    def names(self, *names: str) -> list[str]:
        return [
            *(f"fs.s3a.bucket.{self._bucket}.{name}" for name in names),
            *(f"fs.s3a.{name}" for name in names),
        ]

    def get(self, *names: str) -> str | None:
        return self._options.get(*self.names(*names))

    def flag(self, name: str, *, default: bool) -> bool:
        return self._options.get_flag(*self.names(name), default=default)


def s3_options(
    bucket: str, options: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None
) -> Connection:
    """Read the connection to a bucket from the settings of Spark's S3A.

    The settings are ``fs.s3a.endpoint``, ``endpoint.region``, ``path.style.access``, ``connection.ssl.enabled``,
    ``access.key``, ``secret.key``, ``session.token``, ``aws.credentials.provider``, ``encryption.algorithm`` and
    ``.key``, ``requester.pays.enabled``, ``attempts.maximum`` and ``proxy.*``. Each may be per bucket. The ``AWS_*``
    variables are the fallback.

    Raises:
        InvalidArgumentError: A value is invalid.
        DeltaEnvironmentError: Only Hadoop supports a credential provider class, an encryption or a credential store,
            which the error names; or half of a key pair is missing; or the settings ask for keys but none were found.
    """
    lookup = HadoopOptions(options, env)
    settings = _S3Settings(lookup, bucket)
    config: dict[str, str | bool | Secret] = {"conditional_put": "etag"}
    endpoint, from_environment = _endpoint(lookup, settings)
    config["region"] = _region(lookup, settings, endpoint)
    path_style = settings.flag("path.style.access", default=False)
    if endpoint is not None:
        address = urlsplit(endpoint)
        if from_environment:
            virtual = (lookup.get_variable("AWS_VIRTUAL_HOSTED_STYLE_REQUEST") or "").lower() == "true"
        else:
            virtual = not path_style and _can_be_host(bucket, address.hostname or "")
            endpoint = f"{address.scheme}://{bucket}.{address.netloc}" if virtual else endpoint
        config["endpoint"] = config["aws_endpoint_url_s3"] = endpoint
        config["virtual_hosted_style_request"] = virtual
    else:
        config["virtual_hosted_style_request"] = not path_style and _can_be_host(bucket, "s3.amazonaws.com")
    config.update(_encryption(settings))
    if settings.flag("requester.pays.enabled", default=False):
        config["request_payer"] = True
    credential, anonymous = _credential(lookup, settings)
    config["skip_signature"] = anonymous
    return Connection(
        kind="s3",
        bucket=bucket,
        config=tuple(sorted(config.items())),
        credential=credential,
        allow_http=endpoint is not None and endpoint.startswith("http:"),
        proxy=_proxy(settings),
        max_retries=_count(settings, "attempts.maximum", default=6),
    )


def _endpoint(lookup: HadoopOptions, settings: _S3Settings) -> tuple[str | None, bool]:
    """Return the endpoint with its scheme (None for AWS's own), and whether the environment named it."""
    text = settings.get("endpoint")
    if text is None:
        text = lookup.get_variable("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
        return (_with_scheme(text, tls=True), True) if text else (None, False)
    if text.lower().rstrip("/").removeprefix("https://") == "s3.amazonaws.com":
        return None, False  # It is AWS's central address, so the region decides.
    return _with_scheme(text, tls=settings.flag("connection.ssl.enabled", default=True)), False


def _with_scheme(text: str, *, tls: bool) -> str:
    url = text.rstrip("/") if "://" in text else f"{'https' if tls else 'http'}://{text.rstrip('/')}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
        usable = usable and parts.port != 0
    except ValueError:  # The brackets or the port are invalid.
        usable = False
    if not usable:
        raise InvalidArgumentError(
            "fs.s3a.endpoint is not the address of an S3 service.",
            hint="Write it as host:port or http://host:port, without a user name, a password or a bucket.",
        )
    return url


def _region(lookup: HadoopOptions, settings: _S3Settings, endpoint: str | None) -> str:
    named = settings.get("endpoint.region") or lookup.get_variable("AWS_REGION", "AWS_DEFAULT_REGION")
    if named:
        return named
    match = re.search(r"\bs3[.-]([a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.com", endpoint or "")
    return match.group(1) if match else "us-east-1"


def _can_be_host(bucket: str, host: str) -> bool:
    """Return whether ``bucket.host`` is an address that resolves and that a certificate covers."""
    if host == "localhost" or not re.fullmatch(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]", bucket):
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False


def _encryption(settings: _S3Settings) -> dict[str, str | bool | Secret]:
    algorithm = settings.get("encryption.algorithm", "server-side-encryption-algorithm")
    if algorithm is None:
        return {}
    if algorithm.upper() not in _ENCRYPTION:
        raise DeltaEnvironmentError(
            f"fs.s3a.encryption.algorithm is {algorithm!r}, which this client does not support.",
            hint=f"Use one of {', '.join(_ENCRYPTION)}, or let the bucket encrypt by default.",
        )
    config: dict[str, str | bool | Secret] = {"server_side_encryption": _ENCRYPTION[algorithm.upper()]}
    key = settings.get("encryption.key", "server-side-encryption.key")
    if key is not None and "kms" in str(config["server_side_encryption"]):
        config["sse_kms_key_id"] = Secret(key)
    return config


def _proxy(settings: _S3Settings) -> Secret | None:
    host = settings.get("proxy.host")
    if host is None:
        return None
    user, password = settings.get("proxy.username"), settings.get("proxy.password")
    login = f"{user}:{password}@" if user and password else ""
    scheme = "https" if settings.flag("proxy.ssl.enabled", default=False) else "http"
    return Secret(f"{scheme}://{login}{host}:{settings.get('proxy.port') or ('443' if scheme == 'https' else '80')}")


def _count(settings: _S3Settings, name: str, *, default: int) -> int:
    text = settings.get(name)
    if text is None:
        return default
    if not text.isdigit():
        raise InvalidArgumentError(f"fs.s3a.{name} is {text!r}.", hint="Set it to a whole number.")
    return int(text)


def _credential(lookup: HadoopOptions, settings: _S3Settings) -> tuple[StaticCredential | None, bool]:
    """Return the keys to sign with (None for those of the machine), and whether not to sign at all."""
    binding = settings.get("delegation.token.binding")
    if binding is not None:
        raise _refused(binding, "fs.s3a.delegation.token.binding")
    given = _keys(
        settings.get("access.key"),
        settings.get("secret.key"),
        settings.get("session.token"),
        names=("fs.s3a.access.key", "fs.s3a.secret.key"),
    )
    variables = _keys(
        lookup.get_variable("AWS_ACCESS_KEY_ID"),
        lookup.get_variable("AWS_SECRET_ACCESS_KEY"),
        lookup.get_variable("AWS_SESSION_TOKEN", "AWS_TOKEN"),
        names=("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    )
    listed = re.split(r"[,\s]+", settings.get("aws.credentials.provider") or "")
    classes = [name for name in listed if name]
    if not classes:
        _refuse_credential_store(lookup, settings, given)
        anonymous = (lookup.get_variable("AWS_SKIP_SIGNATURE") or "").lower() in ("true", "1")
        return given or variables, given is None and anonymous
    for name in classes:
        simple = name.rpartition(".")[2]
        if not name.startswith(_KNOWN_PACKAGES) and "." in name:
            raise _refused(name, "fs.s3a.aws.credentials.provider")
        if simple in _FROM_KEYS and given is not None:
            return StaticCredential(access_key=given.access_key, secret_key=given.secret_key), False
        if simple in _FROM_TOKEN and given is not None and given.token is not None:
            return given, False
        if simple in _ANONYMOUS:
            return None, True
        if simple in _FROM_ENVIRONMENT and variables is not None:
            return variables, False
        if simple in _FROM_MACHINE:
            return (variables if simple.startswith("Default") else None), False
        if simple not in _FROM_KEYS | _FROM_TOKEN | _FROM_ENVIRONMENT:
            raise _refused(name, "fs.s3a.aws.credentials.provider")
    _refuse_credential_store(lookup, settings, given)
    raise DeltaEnvironmentError(
        f"fs.s3a.aws.credentials.provider names {', '.join(classes)}, which found no keys.",
        hint="Set fs.s3a.access.key and fs.s3a.secret.key (and fs.s3a.session.token for temporary keys), or "
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    )


def _keys(
    access: str | None, secret: str | None, token: str | None, *, names: tuple[str, str]
) -> StaticCredential | None:
    if access is None and secret is None:
        return None
    if access is None or secret is None:
        missing = names[0] if access is None else names[1]
        raise DeltaEnvironmentError(
            f"Only half of the key pair is set: {missing} is missing.", hint=f"Set {missing} as well."
        )
    return StaticCredential(
        access_key=Secret(access), secret_key=Secret(secret), token=Secret(token) if token else None
    )


def _refuse_credential_store(lookup: HadoopOptions, settings: _S3Settings, given: StaticCredential | None) -> None:
    if given is None and (
        settings.get("security.credential.provider.path") or lookup.get("hadoop.security.credential.provider.path")
    ):
        raise DeltaEnvironmentError(
            "The S3 keys are in a Hadoop credential store (hadoop.security.credential.provider.path), which only "
            "Hadoop can open.",
            hint="Set fs.s3a.access.key and fs.s3a.secret.key, or the AWS_* variables.",
        )


def _refused(name: str, setting: str) -> DeltaEnvironmentError:
    return DeltaEnvironmentError(
        f"{setting} names the class {name}, which only Hadoop supports.",
        hint="Use SimpleAWSCredentialsProvider, TemporaryAWSCredentialsProvider, AnonymousAWSCredentialsProvider, "
        "EnvironmentVariableCredentialsProvider, or a container's, web identity's or instance's own provider; or "
        "register a log store of your own (spark.pydelta.logStore.s3a).",
    )
