"""The databases that Superset asks: the stack's Trino, and its SQL server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from uuid import UUID

TRINO = UUID("5b2d8a0e-3f0c-4f0e-9a57-0c1d6d0d7a11")
SQL_SERVER = UUID("5b2d8a0e-3f0c-4f0e-9a57-0c1d6d0d7a12")
SERVICE_USER = "superset"
"""As whom Superset logs in to Trino, where it may act for the stack's users and has no rights itself."""


@dataclass(frozen=True)
class Source:
    """A database.

    Args:
        uuid: Identifies it in Superset, whatever its name is changed to.
        name: Its name there.
        uri: Its address for SQLAlchemy, with the password.
        extra: Superset's further settings of a database.
        as_user: Whether queries run under the name of the user who asks.
    """

    uuid: UUID
    name: str
    uri: str
    extra: Mapping[str, Any]
    as_user: bool

    def extra_text(self) -> str:
        """Return the further settings as Superset stores them."""
        return json.dumps(self.extra)


def sources_of(environment: Mapping[str, str], limited_users: bool) -> list[Source]:
    """List the databases of a stack.

    Args:
        environment: ``SECURE`` is ``yes`` if Trino asks for a password, that of the service user being
            ``BI_TRINO_PASSWORD``.
        limited_users: Whether the SQL server asks each user for a name and a password, which Superset does not have.

    Returns:
        Trino; and the SQL server, unless it asks.
    """
    connect: dict[str, Any] = {"source": "superset"}
    uri = f"trino://{SERVICE_USER}@trino:8080/delta"
    if environment.get("SECURE") == "yes":
        password = quote(environment["BI_TRINO_PASSWORD"], safe="")
        uri = f"trino://{SERVICE_USER}:{password}@trino:8443/delta"
        connect |= {"http_scheme": "https", "verify": "/etc/ssl/certs/ca-certificates.crt"}
    engine = {"engine_params": {"connect_args": connect}, "metadata_params": {}, "allow_multi_catalog": True}
    found = [Source(TRINO, "Trino", uri, engine, as_user=True)]
    if not limited_users:
        server = {"engine_params": {}, "metadata_params": {}}
        found.append(
            Source(SQL_SERVER, "SQL server", f"hive://{SERVICE_USER}@sql:10000/default", server, as_user=False)
        )
    return found
