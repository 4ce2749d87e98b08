"""Open a Thrift transport to an address, with a deadline for every wait: plain, TLS or Kerberos.

Thrift's own sockets count their time-out anew with every byte that comes: a metastore that answers a byte a minute is
never given up.
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
        host: By the name that its certificate and its principal have.
        port: Of the metastore.
        budget: Asked before each wait: how many seconds it may take. Raises ``TimeoutError`` when there are none.
        tls: Speak TLS.
        ca_file: Certificates to trust, PEM; None for the system's.
        kerberos_service: First part of the metastore's principal; None without Kerberos.
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
    """Thrift's two sockets with a budget."""
    from thrift.transport.TSocket import TSocket
    from thrift.transport.TSSLSocket import TSSLSocket

    class Plain(TSocket):  # type: ignore[misc]
        budget: Callable[[], float]

        def _do_open(self, family: int, kind: int) -> Any:
            self._timeout = self.budget()  # of this address: a name may have several
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
