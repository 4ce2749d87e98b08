"""Read Hadoop's ``fs.gs.*`` and ``fs.azure.*`` settings into one ``Connection``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError
from pydelta.storage.options import Connection, HadoopOptions, Secret

__all__ = ["azure_options", "gcs_options"]


def gcs_options(
    bucket: str, options: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None
) -> Connection:
    """Read the connection to a Google bucket.

    The settings are ``fs.gs.auth.type`` (``SERVICE_ACCOUNT_JSON_KEYFILE``, ``APPLICATION_DEFAULT``, ``COMPUTE_ENGINE``,
    ``UNAUTHENTICATED``), the key file and ``fs.gs.storage.root.url``. The ``GOOGLE_*`` variables are the fallback.

    Raises:
        InvalidArgumentError: The settings ask for a key file but do not name one.
        DeltaEnvironmentError: Only Hadoop supports the kind of authentication. The error names it.
    """
    lookup = HadoopOptions(options, env)
    config: dict[str, str | bool | Secret] = {}
    kind = (lookup.get("fs.gs.auth.type") or "").upper()
    key_file = lookup.get("fs.gs.auth.service.account.json.keyfile", "google.cloud.auth.service.account.json.keyfile")
    if kind in ("SERVICE_ACCOUNT_JSON_KEYFILE", "") and key_file is not None:
        config["service_account"] = key_file
    elif kind == "SERVICE_ACCOUNT_JSON_KEYFILE":
        raise InvalidArgumentError(
            "fs.gs.auth.type needs a key file, but none is named.",
            hint="Set fs.gs.auth.service.account.json.keyfile.",
        )
    elif kind == "UNAUTHENTICATED":
        config["skip_signature"] = True
    elif kind not in ("", "APPLICATION_DEFAULT", "COMPUTE_ENGINE"):
        raise DeltaEnvironmentError(
            f"fs.gs.auth.type is {kind!r}, which only Hadoop supports.",
            hint="Use SERVICE_ACCOUNT_JSON_KEYFILE, APPLICATION_DEFAULT, COMPUTE_ENGINE or UNAUTHENTICATED.",
        )
    endpoint = lookup.get("fs.gs.storage.root.url")
    if endpoint is not None:
        config["base_url"] = endpoint.rstrip("/")
    return Connection(
        kind="gs",
        bucket=bucket,
        config=tuple(sorted(config.items())),
        allow_http=endpoint is not None and endpoint.startswith("http:"),
    )


_TENANT: Final = re.compile(r"https://(?P<authority>[^/]+)/(?P<tenant>[^/]+)/oauth2/(?:v2\.0/)?token/?")


def azure_options(
    host: str, options: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None
) -> Connection:
    """Read the connection to an Azure container.

    The setting ``fs.azure.account.auth.type`` selects an account key (SharedKey), a fixed token (SAS) or client
    credentials and managed identities (OAuth). Each setting may be per account. The ``AZURE_*`` variables are the
    fallback.

    Args:
        host: ``container@account.dfs.core.windows.net``, as in the location.
        options: Settings to read.
        env: Environment variables, or None for those of the process.

    Raises:
        InvalidArgumentError: The location does not name an account, or a setting is missing.
        DeltaEnvironmentError: Only Hadoop supports the kind of authentication. The error names it.
    """
    lookup = HadoopOptions(options, env)
    container, _, address = host.partition("@")
    account = address.partition(".")[0] or (lookup.get_variable("AZURE_STORAGE_ACCOUNT_NAME") or "")
    if not container or not account:
        raise InvalidArgumentError(
            f"{host!r} does not name a container and an account.",
            hint="Write the location as abfss://container@account.dfs.core.windows.net/path.",
        )

    def get(name: str) -> str | None:
        return lookup.get(*([f"{name}.{address}"] if address else []), name)

    config: dict[str, str | bool | Secret] = {"account_name": account}
    kind = (get("fs.azure.account.auth.type") or "SharedKey").lower()
    key = get("fs.azure.account.key")
    if kind == "sharedkey" and key is not None:
        config["account_key"] = Secret(key)
    elif kind == "sas":
        config["sas_key"] = Secret(_required(get("fs.azure.sas.fixed.token"), "fs.azure.sas.fixed.token"))
    elif kind == "oauth":
        config.update(_oauth(get("fs.azure.account.oauth.provider.type"), get))
    elif kind != "sharedkey":
        raise DeltaEnvironmentError(
            f"fs.azure.account.auth.type is {kind!r}, which only Hadoop supports.",
            hint="Use SharedKey, SAS or OAuth with client credentials or a managed identity.",
        )
    return Connection(kind="azure", bucket=container, config=tuple(sorted(config.items())))


def _oauth(provider: str | None, get: Callable[[str], str | None]) -> dict[str, str | bool | Secret]:
    name = (provider or "").rpartition(".")[2]
    client = get("fs.azure.account.oauth2.client.id")
    if name == "ClientCredsTokenProvider":
        endpoint = _required(get("fs.azure.account.oauth2.client.endpoint"), "fs.azure.account.oauth2.client.endpoint")
        match = _TENANT.fullmatch(endpoint)
        if match is None:
            raise InvalidArgumentError(
                "fs.azure.account.oauth2.client.endpoint does not name a tenant.",
                hint="Write it as https://login.microsoftonline.com/<tenant>/oauth2/token.",
            )
        secret = _required(get("fs.azure.account.oauth2.client.secret"), "fs.azure.account.oauth2.client.secret")
        return {
            "client_id": _required(client, "fs.azure.account.oauth2.client.id"),
            "client_secret": Secret(secret),
            "tenant_id": match["tenant"],
            "authority_host": f"https://{match['authority']}",
        }
    if name == "MsiTokenProvider":
        return {"client_id": client} if client else {}
    raise DeltaEnvironmentError(
        f"fs.azure.account.oauth.provider.type names the class {provider}, which only Hadoop supports.",
        hint="Use ClientCredsTokenProvider or MsiTokenProvider.",
    )


def _required(value: str | None, name: str) -> str:
    if value is None:
        raise InvalidArgumentError(f"{name} is not set.", hint=f"Set {name}, or change fs.azure.account.auth.type.")
    return value
