"""Thrift's messages as the front reads them, against those of the library; and the answers to LDAP's bind."""

from __future__ import annotations

import socket

import pytest
from TCLIService import TCLIService, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TTransport import TMemoryBuffer

from pydelta.api.server.bind import BindServer, bind_password, bind_reply
from pydelta.api.server.thrift_messages import (
    MalformedError,
    ThriftMessage,
    exception_message,
    fields_of,
    map_field,
    status_message,
    text_field,
    text_of,
    texts_of,
)

SESSION = ttypes.TSessionHandle(ttypes.THandleIdentifier(guid=b"g" * 16, secret=b"s" * 16))


def sent(name, request):
    """The bytes of a call, as the library's client writes them."""
    buffer = TMemoryBuffer()
    getattr(TCLIService.Client(TBinaryProtocol(buffer)), f"send_{name}")(request)
    return buffer.getvalue()


def received(name, data):
    """What the library's client makes of a reply."""
    return getattr(TCLIService.Client(TBinaryProtocol(TMemoryBuffer(data))), f"recv_{name}")()


def test_a_message_is_read_and_written_unchanged():
    data = sent("GetTables", ttypes.TGetTablesReq(sessionHandle=SESSION, schemaName="l%", tableTypes=["TABLE"]))
    message = ThriftMessage.of(data)
    assert (message.name, message.data()) == ("GetTables", data)
    fields = message.argument()
    assert [text_of(fields.get(number)) for number in (2, 3, 4)] == [None, "l%", None]


def test_a_call_becomes_another_with_the_same_session():
    data = sent("GetTables", ttypes.TGetTablesReq(sessionHandle=SESSION, schemaName="x"))
    message = ThriftMessage.of(data)
    made = message.with_argument("ExecuteStatement", {1: message.argument()[1], 2: text_field("SELECT 'ä'")})
    expected = sent("ExecuteStatement", ttypes.TExecuteStatementReq(sessionHandle=SESSION, statement="SELECT 'ä'"))
    expected = ThriftMessage.of(expected)
    assert (made.name, made.number, made.kind) == (expected.name, expected.number, expected.kind)
    assert [made.argument()[number] for number in (1, 2)] == [expected.argument()[number] for number in (1, 2)]
    assert text_of(made.argument()[2]) == "SELECT 'ä'"


def test_maps_of_texts_are_read_and_written():
    given = {"use:database": "lake", "ä": ""}
    request = ttypes.TOpenSessionReq(client_protocol=1, username="u", configuration=given)
    assert texts_of(ThriftMessage.of(sent("OpenSession", request)).argument()[4]) == given
    assert texts_of(map_field(given)) == given
    assert texts_of(map_field({})) == {}


def test_refusals_are_errors_in_the_library():
    call = ThriftMessage.of(sent("GetFunctions", ttypes.TGetFunctionsReq(sessionHandle=SESSION, functionName="f")))
    status = received("GetFunctions", status_message(call, "no", "42501")).status
    assert (status.statusCode, status.sqlState, status.errorMessage) == (3, "42501", "no")
    with pytest.raises(Exception, match="no"):
        received("GetFunctions", exception_message(call, "no"))


@pytest.mark.parametrize("cut", [0, 3, 8, 20, 40, 60])
def test_bytes_that_end_too_early_are_refused(cut):
    data = sent("GetTables", ttypes.TGetTablesReq(sessionHandle=SESSION, schemaName="x"))[:cut]
    with pytest.raises(MalformedError):
        ThriftMessage.of(data).argument()


@pytest.mark.parametrize(
    "body",
    [b"\x0c\x00\x01" * 100, b"\x0b\x00\x01\xff\xff\xff\xff", b"\x63\x00\x01\x00", b"\x0b\x00\x01\x7f\xff\xff\xff"],
)
def test_a_struct_that_is_too_deep_or_lies_about_lengths_is_refused(body):
    with pytest.raises(MalformedError):
        fields_of(body)


BIND = bytes.fromhex("020101 600c 020103 0403 616e6e 8002 7077")


def test_a_bind_has_a_password():
    assert bind_password(BIND) == (1, b"pw")
    for cut in range(len(BIND) - 1):
        assert bind_password(BIND[:cut]) is None
    assert bind_password(BIND.replace(b"\x80\x02pw", b"\x80\x00")) is None
    assert bind_password(b"\x02\x01\x02\x42\x00") is None


def test_only_the_secret_is_right():
    server = BindServer("pw")
    host, port = server.start().removeprefix("ldap://").split(":")
    try:
        for password, result in ((b"pw", 0), (b"px", 49)):
            with socket.create_connection((host, int(port)), 30) as link:
                body = BIND.replace(b"pw", password)
                link.sendall(bytes([0x30, len(body)]) + body)
                answer = link.recv(100)
            assert answer == bind_reply(1, is_right=result == 0)
            assert bytes([0x0A, 1, result]) in answer
    finally:
        server.stop()
