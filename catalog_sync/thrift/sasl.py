"""Run SASL with Kerberos (GSSAPI, RFC 4752) over a Thrift connection: authenticate, then send calls as frames.

::

    START GSSAPI   OK token ⇄ OK token … ⇄ OK layer   COMPLETE     status byte, length, payload
    frame frame frame …                                            length, payload

The Kerberos library handles tickets and tokens; this module handles the frames and the choice of the security layer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, Final, Protocol

from pydelta.errors import DeltaEnvironmentError

__all__ = ["KerberosContext", "KerberosRefusal", "Layer", "SaslContext", "SaslTransport"]

_MECHANISM: Final = b"GSSAPI"
_HEAD: Final = struct.Struct(">BI")
_FRAME: Final = struct.Struct(">i")
_LONGEST_PAYLOAD: Final = 1 << 20
"""Maximum during the negotiation: the sender is not authenticated yet, and a token has a few kilobytes."""
_MOST_ROUNDS: Final = 16
_BUFFER: Final = 65536


class _Status(IntEnum):
    START = 1
    OK = 2
    BAD = 3
    ERROR = 4
    COMPLETE = 5


class Layer(IntEnum):
    """The protection of the frames, as a bit of the server's offer: in Hadoop authentication, integrity or privacy."""

    NONE = 1
    INTEGRITY = 2
    PRIVACY = 4


class KerberosRefusal(Exception):
    """Kerberos or the server refused; the text has the reason."""


class SaslContext(Protocol):
    """A security context of the client's side. Every method raises ``KerberosRefusal``."""

    @property
    def complete(self) -> bool:
        """Whether both sides are authenticated."""

    @property
    def user(self) -> str:
        """The client's principal, known once the context is complete."""

    def step(self, token: bytes | None) -> bytes:
        """Take the server's token (None at first) and return the next one, or empty bytes."""

    def wrap(self, data: bytes, *, encrypt: bool) -> bytes:
        """Sign bytes, or encrypt them."""

    def unwrap(self, data: bytes, *, encrypted: bool) -> bytes:
        """Check the signature of bytes. If they should be encrypted, refuse bytes that are only signed."""


class KerberosContext:
    """A security context of the system's Kerberos library, with this user's ticket or keytab.

    Args:
        service: First part of the server's principal.
        host: Second part of the server's principal.

    Raises:
        DeltaEnvironmentError: The package ``gssapi`` is not installed.
    """

    def __init__(self, service: str, host: str) -> None:
        try:
            import gssapi
        except ImportError as error:
            raise DeltaEnvironmentError(
                "Kerberos needs a package that is not installed.",
                hint="Install the extra: pip install '.[kerberos]' (it is compiled: apt-get install gcc python3-dev "
                "libkrb5-dev first).",
            ) from error
        self._error: type[Exception] = gssapi.exceptions.GSSError
        flag = gssapi.RequirementFlag
        with self._in_words():
            self._context: Any = gssapi.SecurityContext(
                name=gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service),
                mech=gssapi.MechType.kerberos,
                usage="initiate",
                flags=[
                    flag.mutual_authentication,
                    flag.out_of_sequence_detection,
                    flag.integrity,
                    flag.confidentiality,
                ],
            )

    @property
    def complete(self) -> bool:
        """Whether both sides are authenticated."""
        return bool(self._context.complete)

    @property
    def user(self) -> str:
        """The client's principal, known once the context is complete."""
        return str(self._context.initiator_name)

    def step(self, token: bytes | None) -> bytes:
        """Take the server's token (None at first) and return the next one, or empty bytes."""
        with self._in_words():
            answer: bytes | None = self._context.step(token)
        return answer or b""

    def wrap(self, data: bytes, *, encrypt: bool) -> bytes:
        """Sign bytes, or encrypt them."""
        with self._in_words():
            wrapped: bytes = self._context.wrap(data, encrypt).message
        return wrapped

    def unwrap(self, data: bytes, *, encrypted: bool) -> bytes:
        """Check the signature of bytes. If they should be encrypted, refuse bytes that are only signed."""
        with self._in_words():
            found = self._context.unwrap(data)
        if encrypted and not found.encrypted:
            raise KerberosRefusal("the server does not encrypt, though it agreed to")
        message: bytes = found.message
        return message

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except self._error as error:
            raise KerberosRefusal(reason_of(error)) from error


def reason_of(error: Any) -> str:
    """Describe an error of the library in words: its general statuses, then those of Kerberos."""
    said = [*error.get_all_statuses(error.maj_code, True), *error.get_all_statuses(error.min_code, False)]
    words = (text.strip().rstrip(".") for text in said)
    return "; ".join(filter(None, words)) or type(error).__name__


class SaslTransport:
    """A Thrift transport that sends frames over an authenticated connection.

    Args:
        link: Thrift transport below, not open yet.
        context: Security context, not started yet.
    """

    def __init__(self, link: Any, context: SaslContext) -> None:
        self._link = link
        self._context = context
        self._layer = Layer.NONE
        self._to_send = bytearray()
        self._received = memoryview(b"")

    def isOpen(self) -> bool:  # noqa: N802 - Thrift's name
        """Return whether the link below is open."""
        return bool(self._link.isOpen())

    def open(self) -> None:
        """Connect and authenticate.

        Raises:
            KerberosRefusal: There is no ticket, no such principal, or the server refuses.
        """
        if not self._link.isOpen():
            self._link.open()
        self._say(_Status.START, _MECHANISM)
        self._say(_Status.OK, self._context.step(None))
        agreed = False
        for _ in range(_MOST_ROUNDS):
            status, payload = self._hear()
            if status == _Status.COMPLETE:
                if not agreed:
                    raise KerberosRefusal("the server ended the negotiation before both sides agreed")
                return
            if status != _Status.OK:
                said = payload.decode(errors="replace").strip()
                kind = _Status(status).name if status in set(_Status) else "unknown"
                raise KerberosRefusal(f"the server answered with status {status} ({kind}){f': {said}' if said else ''}")
            if agreed:
                raise KerberosRefusal("the server continues a negotiation after both sides agreed")
            agreed = self._context.complete
            self._say(_Status.OK, self._chosen(payload) if agreed else self._context.step(payload))
        raise KerberosRefusal(f"the server did not end the negotiation in {_MOST_ROUNDS} rounds")

    def _chosen(self, offer: bytes) -> bytes:
        """Answer the server's offer with its strongest layer, our longest message size and our principal."""
        offer = self._context.unwrap(offer, encrypted=False)
        if len(offer) != 4:
            raise KerberosRefusal(f"the server's offer of security layers has {len(offer)} bytes where 4 were expected")
        layers = [layer for layer in Layer if layer & offer[0]]
        if not layers:
            raise KerberosRefusal(
                f"the server offers no security layer that is known: {offer[0]:#04x} has none of authentication, "
                "integrity and privacy"
            )
        self._layer = max(layers)
        longest = 0 if self._layer is Layer.NONE else min(_BUFFER, int.from_bytes(offer[1:]))
        answer = bytes([self._layer]) + longest.to_bytes(3) + self._context.user.encode()
        return self._context.wrap(answer, encrypt=False)

    def close(self) -> None:
        """Close the link."""
        self._link.close()

    def write(self, data: bytes) -> None:
        """Hold bytes until the next flush."""
        self._to_send += data

    def flush(self) -> None:
        """Send the buffered bytes as one frame."""
        data = bytes(self._to_send)
        self._to_send.clear()
        if self._layer is not Layer.NONE:
            data = self._context.wrap(data, encrypt=self._layer is Layer.PRIVACY)
        self._link.write(_FRAME.pack(len(data)) + data)
        self._link.flush()

    def read(self, size: int) -> bytes:
        """Return at least one byte and at most this many."""
        while size and not self._received:
            self._received = memoryview(self._frame())
        data, self._received = self._received[:size], self._received[size:]
        return bytes(data)

    def readAll(self, size: int) -> bytes:  # noqa: N802 - Thrift's name
        """Return exactly this many bytes."""
        parts = []
        while size:
            parts.append(self.read(size))
            size -= len(parts[-1])
        return b"".join(parts)

    def _frame(self) -> bytes:
        from thrift.transport.TTransport import TTransportException

        (length,) = _FRAME.unpack(self._link.readAll(_FRAME.size))
        if length < 0:
            raise TTransportException(TTransportException.NEGATIVE_SIZE, f"a frame of {length} bytes")
        data: bytes = self._link.readAll(length)
        if self._layer is Layer.NONE:
            return data
        try:
            return self._context.unwrap(data, encrypted=self._layer is Layer.PRIVACY)
        except KerberosRefusal as error:  # The frame was altered or is out of order.
            raise TTransportException(TTransportException.UNKNOWN, f"a frame that fails its check: {error}") from error

    def _say(self, status: _Status, payload: bytes) -> None:
        self._link.write(_HEAD.pack(status, len(payload)) + payload)
        self._link.flush()

    def _hear(self) -> tuple[int, bytes]:
        status, length = _HEAD.unpack(self._link.readAll(_HEAD.size))
        if length > _LONGEST_PAYLOAD:
            raise KerberosRefusal(
                f"the server announces {length:,} bytes for one step of the negotiation; does it speak SASL?"
            )
        return status, self._link.readAll(length) if length else b""
