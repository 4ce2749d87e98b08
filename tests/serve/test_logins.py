"""Who may come in by Thrift: passwords of an LDAP server over TLS, tickets of a KDC; both are the tests' own."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from directory import BASE, Directory
from java_servers import NotToBeHad
from kdc import REALM, Realm, lacking
from leaks import secret
from live_server import LiveServer
from missing import missing

pytestmark = pytest.mark.ci

SECRET = "of-the-trust-store"  # beeline prints the address that it connects to, this in it
ADA = secret("ada")


def settings(**values):
    """Options of the command for settings of Hive's server."""
    named = {f"spark.hadoop.hive.server2.{name.replace('__', '.')}": value for name, value in values.items()}
    return [part for name, value in named.items() for part in ("--conf", f"{name}={value}")]


@pytest.fixture(scope="module")
def keystore(tmp_path_factory):
    """A Java keystore with a key for localhost, which clients can trust as it is."""
    path = tmp_path_factory.mktemp("tls") / "keys.p12"
    command = [
        str(shutil.which("keytool")),
        "-genkeypair",
        "-alias",
        "serve",
        "-keyalg",
        "RSA",
        "-dname",
        "CN=localhost",
    ]
    command += ["-ext", "SAN=dns:localhost,ip:127.0.0.1", "-storetype", "PKCS12", "-keystore", str(path)]
    subprocess.run([*command, "-storepass", SECRET, "-validity", "2"], check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def ldap(tmp_path_factory, keystore):
    """A server whose users are those of a directory."""
    try:
        directory = Directory(tmp_path_factory.mktemp("directory"), {"ada": ADA, "bob": secret("bob")})
    except NotToBeHad as error:
        missing(f"A LOG-IN BY LDAP IS NOT TESTED HERE: {error}")
    options = settings(
        authentication="LDAP",
        authentication__ldap__url=directory.url,
        authentication__ldap__baseDN=BASE,
        use__SSL="true",
        keystore__path=keystore,
        keystore__password=SECRET,
    )
    server = LiveServer(tmp_path_factory.mktemp("ldap"), *options)
    yield server
    server.stop()
    directory.stop()


def by_tls(server, keystore, login, *statements):
    return server.beeline(
        *statements, login=login, url=f";ssl=true;sslTrustStore={keystore};trustStorePassword={SECRET}"
    )


def test_a_user_of_the_directory_comes_in_with_the_password_and_is_named_in_the_history(ldap, keystore):
    out, err = by_tls(
        ldap,
        keystore,
        ("-n", "ada", "-p", ADA),
        "CREATE TABLE by_ldap (id BIGINT) USING delta",
        "INSERT INTO by_ldap VALUES (1), (2)",
        "SELECT sum(id) AS total FROM by_ldap",
        "DESCRIBE HISTORY by_ldap LIMIT 1",
    )
    assert "total" in out, err
    assert out[out.index("total") + 1] == "3"
    assert any(",ada,WRITE," in line for line in out)


@pytest.mark.parametrize("login", [("-n", "ada", "-p", secret("bob")), ("-n", "eve", "-p", "x"), ("-n", "ada")])
def test_nobody_else_comes_in(ldap, keystore, login):
    out, err = by_tls(ldap, keystore, login, "SELECT 'inside' AS place")
    assert "inside" not in out
    assert "Error validating the login" in err or "Error validating LDAP user" in err


def test_nothing_is_said_in_the_clear(ldap):
    out, err = ldap.beeline("SELECT 'inside' AS place", login=("-n", "ada", "-p", ADA))
    assert "inside" not in out
    assert "Could not open client transport" in err
    assert ADA not in ldap.said()


@pytest.fixture(scope="module")
def realm(tmp_path_factory):
    if gone := lacking():
        missing(f"A LOG-IN BY KERBEROS IS NOT TESTED HERE: not installed: {', '.join(gone)}")
    realm = Realm(tmp_path_factory.mktemp("realm"))
    yield realm
    realm.stop()


@pytest.fixture(scope="module")
def guarded(realm, tmp_path_factory):
    """A server that takes tickets for hive/localhost, and encrypts by them."""
    options = settings(
        authentication="KERBEROS",
        authentication__kerberos__principal=f"hive/localhost@{REALM}",
        authentication__kerberos__keytab=realm.keytab("hive/localhost"),
        thrift__sasl__qop="auth-conf",
    )
    options += ["--conf", "spark.hadoop.hadoop.security.authentication=kerberos"]
    options += ["--conf", f"spark.driver.extraJavaOptions=-Djava.security.krb5.conf={realm.configuration}"]
    server = LiveServer(tmp_path_factory.mktemp("kerberos"), *options)
    yield server
    server.stop()


def by_ticket(server, realm, environment, *statements):
    return server.beeline(
        *statements,
        login=(),
        host="localhost",
        url=f";principal=hive/localhost@{REALM};saslQop=auth-conf",
        java_options=[
            f"-Djava.security.krb5.conf={realm.configuration}",
            "-Djavax.security.auth.useSubjectCredsOnly=false",
        ],
        environment=environment,
    )


def test_who_has_a_ticket_comes_in_and_is_named_in_the_history(guarded, realm):
    ann = realm.with_ticket("ann", realm.keytab("ann"))
    out, err = by_ticket(
        guarded,
        realm,
        ann,
        "CREATE TABLE by_ticket (id BIGINT) USING delta",
        "INSERT INTO by_ticket VALUES (4)",
        "DESCRIBE HISTORY by_ticket LIMIT 1",
    )
    assert any(",ann,WRITE," in line for line in out), err


def test_nobody_comes_in_without_a_ticket(guarded, realm):
    out, err = by_ticket(guarded, realm, realm.environment, "SELECT 'inside' AS place")
    assert "inside" not in out
    assert "GSS initiate failed" in err
    out, err = guarded.beeline("SELECT 'inside' AS place")
    assert "inside" not in out
