"""The server before Spark Connect, with a server behind it that notes what it is asked."""

from __future__ import annotations

import datetime as dt
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from leaks import secret
from pyspark.sql.connect.proto import base_pb2

from pydelta.api.console.guard import Guard
from pydelta.api.server.front import Front
from pydelta.errors import DeltaEnvironmentError

SERVICE = "/spark.connect.SparkConnectService/"
TOKEN = secret("0123456789abcdef-ann")


class Behind(grpc.GenericRpcHandler):
    """Answers each message with itself, three times; notes calls; fails or waits when a message says so."""

    def __init__(self):
        self.calls = []
        self.cancelled = threading.Event()
        self.started = threading.Event()

    def service(self, details):
        def handle(requests, context):
            self.calls.append((details.method, dict(context.invocation_metadata())))
            for request in requests:
                if b"fail" in request:
                    context.set_trailing_metadata((("grpc-status-details-bin", b""), ("more", "told")))
                    context.abort(grpc.StatusCode.INTERNAL, "it failed")
                if b"wait" in request:
                    context.add_callback(self.cancelled.set)
                    self.started.set()
                    self.cancelled.wait(60)
                for _ in range(3):
                    yield request

        return grpc.stream_stream_rpc_method_handler(handle)


class Sessions:
    texts = None


@pytest.fixture
def behind():
    return Behind()


@pytest.fixture
def opened(behind):
    """Make a front with a guard; returns its port."""
    closing = []

    def make(guard=None):
        front = Front(guard or Guard())
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        server = grpc.server(ThreadPoolExecutor(8), handlers=(behind,), options=options)
        behind.host, behind.port = front.behind
        assert server.add_insecure_port(f"{behind.host}:{behind.port}")
        server.start()
        closing.extend([front.stop, lambda: server.stop(0).wait()])
        behind.token = front.settings()["spark.connect.authenticate.token"]
        return front.start(Sessions(), "127.0.0.1", 0)

    yield make
    for close in closing:
        close()


def call(port, method, *messages, metadata=(), channel=None, timeout=60):
    channel = channel or grpc.insecure_channel(f"127.0.0.1:{port}")
    return channel.stream_stream(method)(iter(messages), metadata=metadata, timeout=timeout)


def test_any_method_goes_through_with_its_messages_and_metadata(opened, behind):
    port = opened()
    found = call(port, SERVICE + "Something", b"a", b"b", metadata=[("tag", "1"), ("authorization", "Bearer mine")])
    assert list(found) == [b"a"] * 3 + [b"b"] * 3
    method, metadata = behind.calls[0]
    assert method == SERVICE + "Something"
    assert metadata["tag"] == "1"
    assert metadata["authorization"] == f"Bearer {behind.token}"


def test_a_call_without_a_deadline_has_none_behind(opened):
    assert list(call(opened(), SERVICE + "Config", b"a", timeout=None)) == [b"a"] * 3


def test_an_error_comes_with_its_code_details_and_trailing_metadata(opened):
    found = call(opened(), SERVICE + "Config", b"fail")
    with pytest.raises(grpc.RpcError) as caught:
        list(found)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert caught.value.details() == "it failed"
    assert ("more", "told") in [(item.key, item.value) for item in caught.value.trailing_metadata()]


def test_a_call_that_its_client_ends_is_ended_behind(opened, behind):
    found = call(opened(), SERVICE + "ExecutePlan", base_pb2.ExecutePlanRequest(session_id="wait").SerializeToString())
    assert behind.started.wait(60)
    found.cancel()
    assert behind.cancelled.wait(60)


def test_a_deadline_is_kept_behind(opened, behind):
    found = call(opened(), SERVICE + "Config", b"wait", timeout=0.5)
    with pytest.raises(grpc.RpcError) as caught:
        list(found)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert behind.cancelled.wait(60)


def test_plans_are_rewritten_on_their_way(opened):
    request = base_pb2.ExecutePlanRequest(session_id="s")
    request.plan.root.read.named_table.unparsed_identifier = "t"
    sent = next(call(opened(), SERVICE + "ExecutePlan", request.SerializeToString()))
    assert base_pb2.ExecutePlanRequest.FromString(sent).plan.root.sql.query.startswith("PYDELTA RELATION ")
    analyse = base_pb2.AnalyzePlanRequest(session_id="s")
    analyse.schema.plan.root.CopyFrom(request.plan.root)
    sent = next(call(opened(), SERVICE + "AnalyzePlan", analyse.SerializeToString()))
    assert base_pb2.AnalyzePlanRequest.FromString(sent).schema.plan.root.sql.query.startswith("PYDELTA RELATION ")


def test_a_message_larger_than_what_grpc_takes_by_itself_passes(opened):
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    port = opened()
    channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=options)
    data = b"x" * (20 << 20)
    assert [len(item) for item in call(port, SERVICE + "AddArtifacts", data, channel=channel)] == [20 << 20] * 3


GUARD = Guard(users={TOKEN: "ann"})


@pytest.mark.parametrize("shown", [None, "Bearer nope", "Basic x", f"Bearer {TOKEN}x"])
def test_without_a_user_s_token_nothing_reaches_the_server_behind(opened, behind, shown):
    metadata = [] if shown is None else [("authorization", shown)]
    with pytest.raises(grpc.RpcError) as caught:
        list(call(opened(GUARD), SERVICE + "Config", b"", metadata=metadata))
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "token" in caught.value.details()
    assert behind.calls == []


def test_with_a_token_a_request_is_its_user_s_whatever_it_says(opened):
    request = base_pb2.ConfigRequest(session_id="s")
    request.user_context.user_id = "bob"
    port, metadata = opened(GUARD), [("authorization", f"Bearer {TOKEN}")]
    sent = next(call(port, SERVICE + "Config", request.SerializeToString(), metadata=metadata))
    assert base_pb2.ConfigRequest.FromString(sent).user_context.user_id == "ann"
    with pytest.raises(grpc.RpcError) as caught:
        list(call(port, SERVICE + "NewInSpark9", b"", metadata=metadata))
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.fixture(scope="module")
def pair():
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(7).not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(pem), private


def test_with_a_certificate_calls_are_encrypted_and_others_are_not_answered(opened, behind, pair):
    certificate, key = pair
    port = opened(Guard(certificate=certificate, key=key))
    channel = grpc.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(certificate))
    assert next(call(port, SERVICE + "Config", b"", channel=channel)) == b""
    with pytest.raises(grpc.RpcError) as caught:
        list(call(port, SERVICE + "Config", b"", timeout=20))
    assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    assert len(behind.calls) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one address on the loopback")
def test_processes_of_spark_itself_come_through_the_front_with_sparks_token(opened, behind):
    opened(Guard(users={TOKEN: "ann"}))
    assert behind.host == "127.0.0.2"
    request = base_pb2.ExecutePlanRequest(session_id="s")
    request.user_context.user_id = "ann"
    request.plan.root.read.named_table.unparsed_identifier = "t"
    told = request.SerializeToString()
    token = [("authorization", f"Bearer {behind.token}")]
    found = list(call(behind.port, SERVICE + "ExecutePlan", told, metadata=token))
    reached = base_pb2.ExecutePlanRequest.FromString(found[0])
    assert reached.user_context.user_id == "ann"
    assert reached.plan.root.sql.query.startswith("PYDELTA RELATION ")
    for wrong in ([], [("authorization", f"Bearer {TOKEN}")]):
        with pytest.raises(grpc.RpcError) as caught:
            list(call(behind.port, SERVICE + "ExecutePlan", told, metadata=wrong))
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert len(behind.calls) == 1


def test_a_port_that_is_taken_is_told(opened):
    port = opened()
    front = Front(Guard())
    with pytest.raises(DeltaEnvironmentError, match=f"cannot listen on 127.0.0.1:{port}"):
        front.start(Sessions(), "127.0.0.1", port)
    front.stop()


def test_a_secret_is_in_no_text_of_a_front():
    front = Front(Guard(users={TOKEN: "ann"}))
    assert TOKEN not in repr(vars(front))
    front.stop()
