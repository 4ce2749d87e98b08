"""Parse the address of a metastore and the options of the connection."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from pydelta.errors import InvalidArgumentError

__all__ = ["ENVIRONMENT", "MetastoreAddress"]

ENVIRONMENT: Final = "PYDELTA_METASTORE"
_TLS: Final = "PYDELTA_METASTORE_TLS"
_CA: Final = "PYDELTA_METASTORE_CA"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetastoreAddress:
    """The address of a metastore and the options of the connection.

    Args:
        hosts: Host and port of each server, tried in turn.
        tls: Use TLS (``metastore.use.SSL`` on the other side).
        ca_file: PEM file of the certificates to trust, or None for the system's.
        kerberos_service: First part of the metastore's principal (``hive`` of ``hive/_HOST@REALM``), to authenticate
            with this user's ticket, or None without Kerberos. Needs the extra ``kerberos``, and the host names of the
            principals.
        timeout_seconds: Time limit of each call, from connecting to the last byte of its answer.
    """

    hosts: tuple[tuple[str, int], ...]
    tls: bool = False
    ca_file: str | None = None
    kerberos_service: str | None = None
    timeout_seconds: float = 60.0

    @classmethod
    def parse(
        cls,
        uris: str | None,
        *,
        tls: bool = False,
        ca_file: str | None = None,
        kerberos_service: str | None = None,
        timeout_seconds: float = 60.0,
    ) -> MetastoreAddress:
        """Read ``thrift://host:9083[,thrift://other:9083]``, or ``PYDELTA_METASTORE`` if None is given.

        ``PYDELTA_METASTORE_TLS=true`` enables TLS if the caller does not, and ``PYDELTA_METASTORE_CA`` names the
        certificates to trust if the caller names none.

        Raises:
            InvalidArgumentError: The address is missing or invalid, or ``PYDELTA_METASTORE_TLS`` is neither true nor
                false.
        """
        text = uris or os.environ.get(ENVIRONMENT) or ""
        hosts = []
        for uri in filter(None, (part.strip() for part in text.split(","))):
            host, colon, port = uri.removeprefix("thrift://").rstrip("/").rpartition(":")
            if not colon or not host or not port.isdigit() or "/" in host:
                raise InvalidArgumentError(
                    f"{uri!r} is not the address of a metastore.", hint="Write it as thrift://host:9083."
                )
            hosts.append((host, int(port)))
        if not hosts:
            raise InvalidArgumentError(
                "The address of the metastore is not known.",
                hint=f"Give --metastore thrift://host:9083, or set {ENVIRONMENT}.",
            )
        return cls(
            hosts=tuple(hosts),
            tls=tls or _tls_of_environment(),
            ca_file=ca_file or os.environ.get(_CA) or None,
            kerberos_service=kerberos_service,
            timeout_seconds=timeout_seconds,
        )

    def __str__(self) -> str:
        return ",".join(f"thrift://{host}:{port}" for host, port in self.hosts)


def _tls_of_environment() -> bool:
    text = os.environ.get(_TLS) or "false"
    if text.lower() not in ("true", "false"):
        raise InvalidArgumentError(f"{_TLS} is {text!r}.", hint="Set it to true or to false.")
    return text.lower() == "true"
