"""SASL over Thrift: the bytes of a negotiation with each security layer, and servers that break the rules."""

from __future__ import annotations

import struct

import pytest
from thrift.transport.TTransport import TTransportException

from catalog_sync.thrift.sasl import KerberosRefusal, Layer, SaslTransport, reason_of

OFFER_ALL = bytes([7, 0, 255, 255])


class Tokens:
    """A context that needs the server's token once; it signs with ``s:`` and encrypts with ``e:``."""

    user = "ann@LAKE.TEST"

    def __init__(self):
        self.complete = False

    def step(self, token):
        self.complete = token is not None
        return b"" if self.complete else b"first"

    def wrap(self, data, *, encrypt):
        return (b"e:" if encrypt else b"s:") + data

    def unwrap(self, data, *, encrypted):
        if not data.startswith(b"e:" if encrypted else b"s:"):
            raise KerberosRefusal("not as it was agreed")
        return data[2:]


class Link:
    """Thrift's transport below: what a server says is given, what it is told is kept."""

    def __init__(self, said):
        self.said = bytearray(said)
        self.told = b""
        self.state = "new"

    def isOpen(self):
        return self.state == "open"

    def open(self):
        self.state = "open"

    def close(self):
        self.state = "closed"

    def flush(self):
        pass

    def write(self, data):
        self.told += data

    def readAll(self, size):
        if len(self.said) < size:
            raise TTransportException(TTransportException.END_OF_FILE, "the link ended")
        taken = bytes(self.said[:size])
        del self.said[:size]
        return taken


def step(status, payload=b""):
    return struct.pack(">BI", status, len(payload)) + payload


def frame(data):
    return struct.pack(">i", len(data)) + data


def negotiated(offer=OFFER_ALL, *, then=b""):
    link = Link(step(2, b"theirs") + step(2, b"s:" + offer) + step(5) + then)
    transport = SaslTransport(link, Tokens())
    transport.open()
    return transport, link


@pytest.mark.parametrize(
    ("offered", "answer"),
    [
        (1, bytes([1, 0, 0, 0])),
        (3, bytes([2, 0, 255, 255])),
        (7, bytes([4, 0, 255, 255])),
        (6, bytes([4, 0, 255, 255])),
        (1 | 8, bytes([1, 0, 0, 0])),
    ],
)
def test_the_strongest_layer_of_the_offer_is_chosen_and_the_principal_told(offered, answer):
    _, link = negotiated(bytes([offered, 0, 255, 255]))
    assert link.told == (
        step(1, b"GSSAPI") + step(2, b"first") + step(2) + step(2, b"s:" + answer + b"ann@LAKE.TEST")
    )  # fmt: skip


def test_the_longest_message_is_the_shorter_of_both_sides():
    for theirs, ours in ((0xFFFFFF, 65536), (1000, 1000)):
        _, link = negotiated(bytes([Layer.PRIVACY]) + theirs.to_bytes(3))
        assert b"s:\x04" + ours.to_bytes(3) in link.told


@pytest.mark.parametrize(("layer", "mark"), [(Layer.NONE, b""), (Layer.INTEGRITY, b"s:"), (Layer.PRIVACY, b"e:")])
def test_frames_are_carried_as_the_layer_says(layer, mark):
    answers = frame(mark + b"abc") + frame(mark) + frame(mark + b"defgh")
    transport, link = negotiated(bytes([layer, 0, 255, 255]), then=answers)
    link.told = b""
    transport.write(b"one ")
    transport.write(b"call")
    assert link.told == b""
    transport.flush()
    assert link.told == frame(mark + b"one call")
    assert [transport.read(2), transport.readAll(4), transport.read(99)] == [b"ab", b"cdef", b"gh"]
    assert transport.readAll(0) == b""
    transport.write(b"next")
    transport.flush()
    assert link.told.endswith(frame(mark + b"next"))


def test_the_transport_is_open_as_the_link_is():
    transport, link = negotiated()
    assert transport.isOpen()
    transport.close()
    assert (link.state, transport.isOpen()) == ("closed", False)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (step(3, b"bad token"), r"status 3 \(BAD\): bad token"),
        (step(4, b"GSS initiate failed\n"), r"status 4 \(ERROR\): GSS initiate failed$"),
        (step(9), r"status 9 \(unknown\)$"),
        (step(1, b"GSSAPI"), r"status 1 \(START\): GSSAPI"),
        (step(5), "before both sides agreed"),
        (step(2, b"theirs") + step(5), "before both sides agreed"),
        (step(2, b"theirs") + step(2, b"s:" + OFFER_ALL) + step(2, b"more"), "continues a negotiation"),
        (step(2, b"theirs") + step(2, b"s:\x00\x00\xff\xff"), "no security layer that is known: 0x00"),
        (step(2, b"theirs") + step(2, b"s:\x08\x00\xff\xff"), "no security layer that is known: 0x08"),
        (step(2, b"theirs") + step(2, b"s:\x01\x00"), "has 2 bytes where 4 were expected"),
        (step(2, b"theirs") + step(2, OFFER_ALL), "not as it was agreed"),
        (b"\x15\x03\x03\x02\x02\x02", "announces 50,528,770 bytes"),  # an alert of TLS
    ],
)
def test_a_server_that_breaks_the_negotiation_is_refused_with_the_reason(said, why):
    with pytest.raises(KerberosRefusal, match=why):
        SaslTransport(Link(said), Tokens()).open()


def test_a_negotiation_without_end_is_refused():
    class Never(Tokens):
        def step(self, token):
            return b"again"

    with pytest.raises(KerberosRefusal, match="in 16 rounds"):
        SaslTransport(Link(step(2, b"more") * 20), Never()).open()


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (b"", TTransportException.END_OF_FILE),
        (b"\x00\x00", TTransportException.END_OF_FILE),
        (frame(b"e:abcdef")[:-1], TTransportException.END_OF_FILE),
        (struct.pack(">i", -5), TTransportException.NEGATIVE_SIZE),
        (frame(b"s:not encrypted"), TTransportException.UNKNOWN),
    ],
)
def test_a_frame_that_is_cut_or_changed_breaks_the_connection(said, kind):
    transport, _ = negotiated(then=said)
    with pytest.raises(TTransportException) as caught:
        transport.readAll(3)
    assert caught.value.type == kind


def test_a_link_that_ends_in_the_negotiation_is_a_broken_connection():
    for said in (b"", step(2, b"theirs")[:-2]):
        with pytest.raises(TTransportException):
            SaslTransport(Link(said), Tokens()).open()


def test_the_librarys_statuses_become_words():
    class Statuses(Exception):
        maj_code, min_code = 458752, 2529639053

        def get_all_statuses(self, code, is_major):
            return ["No credentials were supplied."] if is_major else ["No Kerberos credentials available ", ""]

    class Silent(Statuses):
        def get_all_statuses(self, code, is_major):
            return []

    assert reason_of(Statuses()) == "No credentials were supplied; No Kerberos credentials available"
    assert reason_of(Silent()) == "Silent"
