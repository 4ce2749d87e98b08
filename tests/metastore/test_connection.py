"""TLS against a certificate that signs itself; what a metastore's refusals say; what is missing for Kerberos."""

from __future__ import annotations

import builtins
import datetime as dt
import ipaddress
import socket
import ssl
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from catalog_sync.cli import main
from catalog_sync.errors import MetastoreError, MetastoreUnavailableError
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from pydelta.errors import DeltaEnvironmentError
from pydelta.log import DeltaLog
from pydelta.testing.operations import add_file, create_table


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for 127.0.0.1 and its key, PEM."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "metastore")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / "metastore.pem", folder / "key.pem"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(public), str(private)


@pytest.fixture
def tls_uri(certificate, metastore_server):
    """The metastore behind TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def pump(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            end.close()

    def serve():
        while not over.is_set():
            try:
                link, _ = listener.accept()
                link = context.wrap_socket(link, server_side=True)
            except OSError:  # closed, or a client that does not trust it
                continue
            plain = socket.create_connection(("127.0.0.1", metastore_server.port))
            for pair in ((link, plain), (plain, link)):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"thrift://127.0.0.1:{listener.getsockname()[1]}"
    over.set()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(10)


def test_a_certificate_that_is_trusted(tls_uri, certificate):
    address = MetastoreAddress.parse(tls_uri, tls=True, ca_file=certificate[0])
    with Metastore(address) as client:
        assert client.database_exists("default")
        assert not client.database_exists("nothing")


@pytest.mark.parametrize(("host", "trusted"), [("127.0.0.1", False), ("localhost", True)])
def test_a_certificate_of_somebody_else_is_refused_at_once(tls_uri, certificate, host, trusted):
    pauses = []
    uri = tls_uri.replace("127.0.0.1", host)
    address = MetastoreAddress.parse(uri, tls=True, ca_file=certificate[0] if trusted else None)
    with (
        Metastore(address, sleep=pauses.append) as client,
        pytest.raises(MetastoreError, match=r"certificate of the metastore at .* is not trusted") as caught,
    ):
        client.database_exists("default")
    assert "--ca" in caught.value.hint
    assert pauses == []


def test_without_tls_a_port_that_speaks_it_is_said_not_to_answer(tls_uri):
    with (
        Metastore(MetastoreAddress.parse(tls_uri, timeout_seconds=5), sleep=lambda _: None) as client,
        pytest.raises(MetastoreUnavailableError, match="does not answer"),
    ):
        client.database_exists("default")


def test_the_command_line_speaks_tls(tls_uri, certificate, database, tmp_path, capsys):
    create_table(DeltaLog.for_table(str(tmp_path / "t")), [add_file("a", [1])])
    command = ["sync", str(tmp_path / "t"), "--twin", f"{database}.t", "--entry", f"{database}.native"]
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--metastore", tls_uri, "--tls", "--ca", certificate[0]])
    out, err = capsys.readouterr()
    assert (stopped.value.code, err) == (0, "")
    assert "version 0" in out
    DeltaLog.clear_cache()


def test_a_metastore_that_lacks_hadoops_configuration_is_told_its_cure():
    refusal = Metastore(MetastoreAddress(hosts=()))._refused(
        "create_table", "Got exception: java.io.IOException Can't get Master Kerberos principal for use as renewer"
    )
    assert isinstance(refusal, MetastoreError)
    for name in ("HADOOP_CONF_DIR", "core-site.xml", "hdfs-site.xml", "yarn-site.xml", "catalog file"):
        assert name in refusal.hint


def test_what_kerberos_needs_is_said(monkeypatch):
    ordinary = builtins.__import__

    def without(name, *arguments, **how):
        if name == "gssapi":
            raise ImportError(name)
        return ordinary(name, *arguments, **how)

    monkeypatch.setattr(builtins, "__import__", without)
    address = MetastoreAddress.parse("thrift://127.0.0.1:1", kerberos_service="hive")
    with Metastore(address) as client, pytest.raises(DeltaEnvironmentError, match="Kerberos") as caught:
        client.database_exists("default")
    assert "[kerberos]" in caught.value.hint
