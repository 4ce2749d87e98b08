"""Decide where a server may listen: on the loopback, or elsewhere with encryption and authentication.

::

    host is the loopback                        -> yes
    elsewhere, Thrift with TLS or Kerberos
    encryption, and a kind of log-in            -> yes
    elsewhere, Spark Connect with a certificate
    and users with tokens                       -> yes
    one private address, and --no-login         -> yes
    elsewhere, anything else                    -> an error that names what is missing
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError

__all__ = [
    "CONNECT_PORT",
    "LOOPBACK",
    "OF_THE_ENVIRONMENT",
    "THRIFT_PORT",
    "Addresses",
    "check_exposed",
    "check_free",
    "check_login",
    "check_private",
    "in_url",
    "names_server",
]

LOOPBACK: Final = "127.0.0.1"
THRIFT_PORT: Final = 10000
CONNECT_PORT: Final = 15002
OF_THE_ENVIRONMENT: Final = ("HIVE_SERVER2_THRIFT_BIND_HOST", "HIVE_SERVER2_THRIFT_PORT")
"""Variables that override Hive's settings; our server listens only where its options say."""
_MOST: Final = 65535
_LOGINS: Final = ("LDAP", "KERBEROS", "CUSTOM", "PAM")
_NEEDED: Final = {
    "LDAP": ("hive.server2.authentication.ldap.url",),
    "KERBEROS": (
        "hive.server2.authentication.kerberos.principal",
        "hive.server2.authentication.kerberos.keytab",
    ),
    "CUSTOM": ("hive.server2.custom.authentication.class",),
    "PAM": ("hive.server2.authentication.pam.services",),
}
_ENCRYPTED: Final = "auth-conf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """The addresses at which a server listens.

    Args:
        host: An address or name of this machine.
        thrift: Port for JDBC, ODBC and beeline; None: not served.
        connect: Port for Spark Connect; None: not served.
        behind: Address of Spark's own server behind that one: a loopback address and a port.
        thrift_behind: The same for Thrift; None if clients reach Spark's own server.
        no_login: Admit everyone who reaches the host, which must be one private address.
        metrics: Port of ``/metrics``; None: not served.
        page: Port of ``pydelta ui``; None: not served.
        also: More hosts at which the page listens, on the same port.
    """

    host: str = "127.0.0.1"
    thrift: int | None = None
    connect: int | None = None
    behind: tuple[str, int] | None = None
    thrift_behind: tuple[str, int] | None = None
    no_login: bool = False
    metrics: int | None = None
    page: int | None = None
    also: tuple[str, ...] = ()

    @property
    def each(self) -> tuple[Addresses, ...]:
        """The same for each host alone."""
        return tuple(replace(self, host=host, also=()) for host in (self.host, *self.also))

    @property
    def ports(self) -> dict[str, tuple[str, int]]:
        """The host and port of each server, by the option that chose the port."""
        given = {
            "--thrift": (self.host, self.thrift),
            "--connect": (self.host, self.connect),
            "--metrics": (self.metrics_host, self.metrics),
            "--port": (self.host, self.page),
        }
        return {option: (host, port) for option, (host, port) in given.items() if port is not None}

    @property
    def metrics_host(self) -> str:
        """Where metrics are served: on the loopback, unless others may connect without a log-in."""
        return self.host if self.no_login or self.is_loopback else LOOPBACK

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can reach it."""
        return all(address.is_loopback for address in self._resolved())

    @property
    def open_because(self) -> str | None:
        """The reason why more than a private network can reach it, or None."""
        for address in self._resolved():
            if address.is_unspecified:
                return f"{address} means every address of this machine"
            if not address.is_private:
                return f"{address} is a public address"
        return None

    def settings(self) -> dict[str, str]:
        """Return the settings that make Spark's servers listen there."""
        found = {}
        if self.thrift is not None:
            host, port = self.thrift_behind or (self.host, self.thrift)
            found["spark.hadoop.hive.server2.thrift.bind.host"] = host
            found["spark.hadoop.hive.server2.thrift.port"] = str(port)
            found["spark.hadoop.hive.server2.thrift.http.port"] = str(port)
        if self.connect is not None:
            host, port = self.behind or (LOOPBACK, self.connect)
            found["spark.connect.grpc.binding.address"] = host
            found["spark.connect.grpc.binding.port"] = str(port)
        return found

    def _resolved(self) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
        try:
            found = socket.getaddrinfo(self.host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise InvalidArgumentError(
                f"{self.host!r} is not an address of this machine: {error.strerror}.", hint="Give --host an address."
            ) from error
        return [ipaddress.ip_address(str(item[4][0]).split("%")[0]) for item in found]


def check_free(addresses: Addresses) -> None:
    """Refuse ports on which the server cannot listen.

    Raises:
        InvalidArgumentError: A number is not a port, or two servers have the same one.
        DeltaEnvironmentError: A port is in use, or this user may not use it.
    """
    ports = addresses.ports
    for option, (_, port) in ports.items():
        if not 0 < port <= _MOST:
            raise InvalidArgumentError(f"{option} {port} is not a port.", hint=f"Give a number from 1 to {_MOST}.")
    by_place: dict[tuple[str, int], str] = {}
    for option, place in ports.items():
        other = by_place.setdefault(place, option)
        if other != option:
            raise InvalidArgumentError(f"{other} and {option} are both {place[1]}.", hint="Give each a different port.")
    for option, (host, port) in ports.items():
        try:
            with socket.create_server((host, port), family=_family(host)):
                pass
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise DeltaEnvironmentError(
                f"The server cannot listen on {host}:{port}: {reason}.",
                hint=f"Choose another port with {option}, or stop what listens there.",
            ) from error


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def in_url(host: str) -> str:
    """Format a host for use before a port: an IPv6 address gets brackets."""
    return f"[{host}]" if ":" in host else host


def names_server(header: str, host: str) -> bool:
    """Return whether a request's Host is a server's own name, an IP address or ``localhost``.

    A foreign website whose name is made to point to this machine sends that name, so it cannot read what is served.

    Args:
        header: The request's header ``Host``, with or without a port.
        host: The listening name or address.
    """
    text = header.lower()
    name = text.partition("]")[0].lstrip("[") if text.startswith("[") else text.rpartition(":")[0] or text
    if name in ("", "localhost", host.lower()):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def check_private(addresses: Addresses) -> None:
    """Refuse to admit everyone if more than one private network reaches the host.

    Raises:
        DeltaEnvironmentError: Others can reach it; the error says why.
    """
    reason = addresses.open_because
    if reason is not None:
        raise DeltaEnvironmentError(
            f"--no-login would let in everyone who can reach {addresses.host}, but {reason}.",
            hint="Name one private address with --host, such as a container's whose ports are published on 127.0.0.1; "
            "or leave out --no-login and ask for a log-in.",
        )


def check_login(hadoop: Mapping[str, str]) -> None:
    """Refuse a log-in method of the Thrift server that could admit no user.

    Args:
        hadoop: The effective settings ``hive.server2.*``.

    Raises:
        DeltaEnvironmentError: A setting is missing; the error names it.
    """
    login = hadoop.get("hive.server2.authentication", "NONE").upper()
    if lacking := [name for name in _NEEDED.get(login, ()) if not hadoop.get(name)]:
        raise DeltaEnvironmentError(
            f"hive.server2.authentication is {login}, and nobody could log in: {', '.join(lacking)} is not set.",
            hint=" ".join(f"Set --conf spark.hadoop.{name}=…" for name in lacking)
            + ", or put it into hive-site.xml of SPARK_CONF_DIR.",
        )


def check_exposed(addresses: Addresses, hadoop: Mapping[str, str], *, closed: bool) -> None:
    """Refuse to listen for other machines without encryption and authentication.

    Args:
        addresses: Where the server is to listen.
        hadoop: The effective settings ``hive.server2.*``.
        closed: Whether Spark Connect has a certificate and users with tokens.

    Raises:
        DeltaEnvironmentError: A setting is missing; the error names it.
    """
    if addresses.is_loopback:
        return
    if addresses.no_login:
        check_private(addresses)
        return
    if addresses.thrift_behind is not None and not closed:
        raise DeltaEnvironmentError(
            f"The server would receive passwords in the clear on {addresses.host}: it has no certificate.",
            hint="Give --certificate and --key, or listen on 127.0.0.1.",
        )
    if addresses.connect is not None and not closed:
        raise DeltaEnvironmentError(
            f"Spark Connect would be open to other machines on {addresses.host}: it has no certificate, or no users.",
            hint="Give --certificate, --key and --access or --users, or listen on 127.0.0.1.",
        )
    if addresses.thrift is None or (addresses.thrift_behind is not None and closed):
        return
    login = hadoop.get("hive.server2.authentication", "NONE").upper()
    if login not in _LOGINS:
        raise DeltaEnvironmentError(
            f"The Thrift server would be open to other machines on {addresses.host} without a log-in: "
            f"hive.server2.authentication is {login}.",
            hint="Set --conf spark.hadoop.hive.server2.authentication to LDAP, KERBEROS, PAM or CUSTOM with what it "
            "needs, or listen on 127.0.0.1.",
        )
    qop = hadoop.get("hive.server2.thrift.sasl.qop", "auth").lower()
    if login == "KERBEROS" and qop == _ENCRYPTED:
        return
    if hadoop.get("hive.server2.use.SSL", "false").lower() != "true":
        raise DeltaEnvironmentError(
            f"The Thrift server would send passwords and rows in the clear on {addresses.host}: "
            "hive.server2.use.SSL is not true.",
            hint="Set --conf spark.hadoop.hive.server2.use.SSL=true, spark.hadoop.hive.server2.keystore.path and "
            "spark.hadoop.hive.server2.keystore.password, or listen on 127.0.0.1.",
        )
    keystore = hadoop.get("hive.server2.keystore.path", "")
    if not os.path.isfile(keystore):
        raise DeltaEnvironmentError(
            f"hive.server2.use.SSL is true, but there is no keystore at {keystore!r}.",
            hint="Set spark.hadoop.hive.server2.keystore.path to a Java keystore with the server's key.",
        )
