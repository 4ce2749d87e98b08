"""Read from what users write where a metastore is and how to speak to it."""

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
    """Where a metastore is and how to speak to it.

    Args:
        hosts: Host and port of each, tried in turn.
        tls: Speak TLS (``metastore.use.SSL`` on the other side).
        ca_file: Certificates to trust, PEM; None for the system's.
        kerberos_service: First part of the metastore's principal (``hive`` of ``hive/_HOST@REALM``), to authenticate
            with the ticket of this user; None without Kerberos. Needs the extra ``kerberos``; hosts by the names
            that their principals have.
        timeout_seconds: For each call, from connecting to the last byte of its answer.
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
        """Read ``thrift://host:9083[,thrift://other:9083]``; None for what ``PYDELTA_METASTORE`` says.

        ``PYDELTA_METASTORE_TLS=true`` asks for TLS where the caller does not, ``PYDELTA_METASTORE_CA`` names the
        certificates to trust where the caller names none.

        Raises:
            InvalidArgumentError: No address, or one that cannot be read; or ``PYDELTA_METASTORE_TLS`` is neither true
                nor false.
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
