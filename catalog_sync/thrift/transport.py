"""Open a plain, TLS or Kerberos Thrift transport to an address, with a deadline for every wait.

Thrift's own sockets restart their timeout with every byte, so they would never give up on a metastore that sends
one byte per minute.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable
from typing import Any

from catalog_sync.thrift.sasl import KerberosContext, SaslTransport

__all__ = ["transport_to"]


def transport_to(
    host: str,
    port: int,
    *,
    budget: Callable[[], float],
    tls: bool = False,
    ca_file: str | None = None,
    kerberos_service: str | None = None,
) -> Any:
    """Return a transport that is not open yet.

    Args:
        host: Host name in its certificate and its principal.
        port: Port of the metastore.
        budget: Returns how many seconds the next wait may take, and raises ``TimeoutError`` if there are none left.
        tls: Use TLS.
        ca_file: PEM file of the certificates to trust, or None for the system's.
        kerberos_service: First part of the metastore's principal, or None without Kerberos.
    """
    from thrift.transport.TTransport import TBufferedTransport

    plain, secure = _sockets()
    if tls:
        context = ssl.create_default_context(cafile=ca_file)
        link = secure(host, port, ssl_context=context, server_hostname=host)
    else:
        link = plain(host, port)
    link.budget = budget
    if kerberos_service is None:
        return TBufferedTransport(link)
    return SaslTransport(link, KerberosContext(kerberos_service, host))


@functools.cache
def _sockets() -> tuple[Any, Any]:
    """Define Thrift's two sockets with a time budget."""
    from thrift.transport.TSocket import TSocket
    from thrift.transport.TSSLSocket import TSSLSocket

    class Plain(TSocket):  # type: ignore[misc]
        budget: Callable[[], float]

        def _do_open(self, family: int, kind: int) -> Any:
            self._timeout = self.budget()  # A host name may have several addresses; this is one of them.
            return super()._do_open(family, kind)

        def read(self, size: int) -> bytes:
            self.handle.settimeout(self.budget())
            data: bytes = super().read(size)
            return data

        def write(self, data: bytes) -> None:
            left = memoryview(data)
            while left:
                self.handle.settimeout(self.budget())
                left = left[self.handle.send(left) :]

    class Secure(Plain, TSSLSocket):  # type: ignore[misc]
        pass

    return Plain, Secure
