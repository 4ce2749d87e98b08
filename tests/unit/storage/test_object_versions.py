"""Older versions of objects are listed, read and deleted so that no object comes back, over S3's protocol."""

from __future__ import annotations

import ssl
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from s3_server import S3Server

from pydelta.errors import InvalidArgumentError, ObjectNotFoundError, StorageError, StoragePermissionError
from pydelta.storage import open_store
from pydelta.storage.object_versions import ObjectVersions, OlderVersion, open_versions


@pytest.fixture(scope="module")
def server():
    found = S3Server()
    yield found
    found.stop()


@pytest.fixture
def bucket(server):
    """A bucket that keeps versions; its name."""
    return server.versioned_bucket()


def opened(server, bucket, prefix="t"):
    versions = open_versions(f"s3a://{bucket}/{prefix}", server.options())
    assert versions is not None
    return versions


def test_older_versions_and_markers_are_listed_read_and_deleted(server, bucket):
    store = open_store(f"s3a://{bucket}/t", server.options())
    for data in (b"one", b"two", b"three"):
        store.put("a b/é=%41.txt", data)
    store.put("gone", b"once")
    store.delete_many(["gone"])
    store.put("new", b"only")
    open_store(f"s3a://{bucket}/tother", server.options()).put("x", b"1")
    open_store(f"s3a://{bucket}/tother", server.options()).put("x", b"2")
    versions = opened(server, bucket)
    found = list(versions.listed())
    assert [(item.path, item.is_marker, item.size) for item in found if item.path != "gone"] == [
        ("a b/é=%41.txt", False, 3),
        ("a b/é=%41.txt", False, 3),
    ]
    assert sorted((item.is_marker, item.size) for item in found if item.path == "gone") == [(False, 4), (True, 0)]
    assert {versions.read(item) for item in found if not item.is_marker} == {b"one", b"two", b"once"}
    done = versions.delete(found)
    assert (done.versions, done.markers, done.size, done.failed) == (3, 1, 10, [])
    assert list(versions.listed()) == []
    assert store.read("a b/é=%41.txt") == b"three"
    assert store.read("new") == b"only"
    assert store.head("gone") is None
    assert len(list(opened(server, bucket, "tother").listed())) == 1
    with pytest.raises(ObjectNotFoundError):
        versions.read(next(item for item in found if not item.is_marker))
    assert versions.delete(found).failed == []


def test_a_bucket_without_versions_has_none(server):
    server.client().create_bucket(Bucket="plain")
    store = open_store("s3a://plain/t", server.options())
    store.put("a", b"1")
    store.put("a", b"2")
    store.delete_many(["a"])
    assert list(opened(server, "plain").listed()) == []


@pytest.mark.parametrize(
    "uri", ["/tmp/t", "memory://x/t", "gs://b/t", "hdfs://n/t", "abfss://c@a.dfs.core.windows.net/t"]
)
def test_other_stores_have_none(uri):
    assert open_versions(uri) is None


def test_a_location_with_credentials_is_refused():
    with pytest.raises(InvalidArgumentError):
        open_versions("s3a://key:secret@bucket/t")


class Client:
    """A client that answers as it is told, and notes what it was asked."""

    def __init__(self, pages=(), refuse=(), error=None):
        self.pages, self.refuse, self.error = list(pages), set(refuse), error
        self.deleted = []
        self.asked = []

    def list_object_versions(self, **asked):
        if self.error:
            raise self.error
        self.asked.append(asked)
        return self.pages.pop(0)

    def get_object(self, **asked):
        raise self.error

    def delete_objects(self, Bucket, Delete):
        listed = [(item["Key"], item["VersionId"]) for item in Delete["Objects"]]
        self.deleted.append(listed)
        errors = [
            {"Key": key, "VersionId": name, "Code": "AccessDenied", "Message": "locked"}
            for key, name in listed
            if name in self.refuse
        ]
        return {"Errors": errors}


def version(path, name, *, marker=False):
    return OlderVersion(path=path, id=name, size=0 if marker else 5, is_marker=marker)


def test_a_marker_goes_after_all_versions_of_its_object_and_stays_with_one_that_stays():
    client = Client(refuse={"a1"})
    done = ObjectVersions(client, "b", "t").delete(
        [version("a", "am", marker=True), version("a", "a1"), version("b", "bm", marker=True), version("b", "b1")]
    )
    assert client.deleted == [[("t/a", "a1"), ("t/b", "b1")], [("t/b", "bm")]]
    assert done.failed == [("a", "AccessDenied: locked")]
    assert (done.versions, done.markers, done.size) == (1, 1, 5)


def test_versions_of_one_object_are_deleted_before_its_marker_however_many_there_are():
    client = Client()
    many = [version("a", "m", marker=True), *(version("a", f"v{number}") for number in range(2500)), version("b", "x")]
    done = ObjectVersions(client, "b", "").delete(many)
    assert [len(part) for part in client.deleted] == [1000, 1000, 500, 1, 1]
    assert client.deleted[3] == [("a", "m")]
    assert (done.versions, done.markers) == (2501, 1)


def test_pages_are_followed_and_objects_keep_together():
    def page(versions, markers, **more):
        return {
            "Versions": [{"Key": key, "VersionId": name, "Size": 5, "IsLatest": new} for key, name, new in versions],
            "DeleteMarkers": [{"Key": key, "VersionId": name} for key, name in markers],
            **more,
        }

    more = {"IsTruncated": True, "NextKeyMarker": "t/b", "NextVersionIdMarker": "b2"}
    first = page(
        [("t/a", "a2", True), ("t/a", "a1", False), ("t/b", "b2", False)], [("t/b", "bm"), ("t/a", "am")], **more
    )
    client = Client([first, page([("t/b", "b1", False)], [], IsTruncated=False)])
    found = list(ObjectVersions(client, "b", "t").listed())
    assert [(item.path, item.id) for item in found] == [("a", "a1"), ("a", "am"), ("b", "b2"), ("b", "bm"), ("b", "b1")]
    assert client.asked[1]["KeyMarker"] == "t/b"
    assert client.asked[1]["VersionIdMarker"] == "b2"


@pytest.fixture
def https(tmp_path):
    """A server with a certificate of an authority of its own; it answers that a bucket has no versions."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a private authority")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, secret = tmp_path / "authority.pem", tmp_path / "key.pem"
    pem.write_bytes(certificate.public_bytes(Encoding.PEM))
    secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            body = b"<ListVersionsResult><IsTruncated>false</IsTruncated></ListVersionsResult>"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, secret)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}", str(pem)
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "AWS_CA_BUNDLE"])
def test_an_authority_that_the_system_trusts_is_trusted(https, monkeypatch, variable):
    endpoint, authority = https
    options = {
        "fs.s3a.endpoint": endpoint,
        "fs.s3a.access.key": "key",
        "fs.s3a.secret.key": "secret",
        "fs.s3a.attempts.maximum": "1",
        "fs.s3a.path.style.access": "true",
    }
    for name in ("AWS_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StorageError, match="SSLError"):
        list(open_versions("s3a://bucket/t", options).listed())
    monkeypatch.setenv(variable, authority)
    assert list(open_versions("s3a://bucket/t", options).listed()) == []


def refused(code):
    return ClientError({"Error": {"Code": code, "Message": "a secret text"}}, "ListObjectVersions")


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (refused("AccessDenied"), StoragePermissionError, False),
        (refused("NotImplemented"), StorageError, False),
        (refused("SlowDown"), StorageError, True),
        (refused("NoSuchBucket"), StorageError, False),
        (EndpointConnectionError(endpoint_url="http://127.0.0.1:1"), StorageError, True),
    ],
)
def test_failures_are_errors_of_the_store(error, kind, retryable):
    with pytest.raises(kind) as found:
        list(ObjectVersions(Client(error=error), "b", "t").listed())
    assert found.value.retryable is retryable
    assert "secret" not in str(found.value)
