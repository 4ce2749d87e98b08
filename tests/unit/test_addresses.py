"""Where a server may listen."""

from __future__ import annotations

import socket

import pytest

from pydelta.api.console.addresses import Addresses, check_exposed, check_free, check_login
from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError

ANYWHERE = Addresses(host="0.0.0.0", thrift=10000)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "localhost", "::1"])
def test_the_loopback_needs_nothing(host):
    check_exposed(Addresses(host=host, thrift=1, connect=2), {}, closed=False)


def test_a_host_that_does_not_exist_is_said():
    with pytest.raises(InvalidArgumentError, match="not an address of this machine"):
        check_exposed(Addresses(host="no such host", thrift=1), {}, closed=False)


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({}, "hive.server2.authentication is NONE"),
        ({"hive.server2.authentication": "NOSASL"}, "hive.server2.authentication is NOSASL"),
        ({"hive.server2.authentication": "LDAP"}, "hive.server2.use.SSL is not true"),
        ({"hive.server2.authentication": "KERBEROS"}, "hive.server2.use.SSL is not true"),
        ({"hive.server2.authentication": "LDAP", "hive.server2.use.SSL": "true"}, "no keystore at ''"),
    ],
)
def test_another_address_needs_a_login_and_encryption(settings, missing):
    with pytest.raises(DeltaEnvironmentError, match=missing) as refused:
        check_exposed(ANYWHERE, settings, closed=False)
    assert refused.value.hint


def test_another_address_is_taken_with_both(tmp_path):
    keystore = tmp_path / "keys.jks"
    keystore.write_bytes(b"keys")
    tls = {"hive.server2.use.SSL": "true", "hive.server2.keystore.path": str(keystore)}
    check_exposed(ANYWHERE, {"hive.server2.authentication": "ldap", **tls}, closed=False)
    check_exposed(
        ANYWHERE, {"hive.server2.authentication": "KERBEROS", "hive.server2.thrift.sasl.qop": "auth-conf"}, closed=False
    )


def test_spark_connect_needs_a_certificate_and_users_elsewhere():
    connect = Addresses(host="0.0.0.0", connect=15002)
    with pytest.raises(DeltaEnvironmentError, match="no certificate, or no users"):
        check_exposed(connect, {"hive.server2.authentication": "LDAP"}, closed=False)
    check_exposed(connect, {}, closed=True)
    with pytest.raises(DeltaEnvironmentError, match="authentication is NONE"):
        check_exposed(Addresses(host="0.0.0.0", connect=15002, thrift=10000), {}, closed=True)


@pytest.mark.parametrize("host", ["172.20.0.5", "10.0.0.1", "192.168.1.7", "fd00::5", "127.0.0.1"])
def test_without_a_login_it_listens_on_a_private_address(host):
    check_exposed(Addresses(host=host, thrift=10000, connect=15002, no_login=True), {}, closed=False)
    if host != "127.0.0.1":
        with pytest.raises(DeltaEnvironmentError, match="no certificate, or no users"):
            check_exposed(Addresses(host=host, thrift=10000, connect=15002), {}, closed=False)


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("0.0.0.0", "0.0.0.0 means every address of this machine"),
        ("::", ":: means every address of this machine"),
        ("8.8.8.8", "8.8.8.8 is a public address"),
    ],
)
def test_without_a_login_it_listens_nowhere_else(host, reason):
    with pytest.raises(DeltaEnvironmentError, match=reason) as refused:
        check_exposed(Addresses(host=host, thrift=10000, no_login=True), {}, closed=True)
    assert "private address with --host" in refused.value.hint


def test_ports_that_cannot_be_are_refused():
    with pytest.raises(InvalidArgumentError, match="--thrift 70000 is not a port"):
        check_free(Addresses(thrift=70000))
    with pytest.raises(InvalidArgumentError, match="are both 10000"):
        check_free(Addresses(thrift=10000, connect=10000))


def test_a_port_that_is_taken_is_said_with_its_option():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DeltaEnvironmentError, match=f"127.0.0.1:{port}") as refused:
            check_free(Addresses(connect=port))
    assert "--connect" in refused.value.hint
    check_free(Addresses(connect=port))


def test_settings_say_where_spark_s_servers_listen():
    found = Addresses(host="0.0.0.0", thrift=1, connect=2, behind=("127.0.0.2", 3)).settings()
    assert found["spark.hadoop.hive.server2.thrift.bind.host"] == "0.0.0.0"
    assert found["spark.connect.grpc.binding.port"] == "3"
    assert found["spark.connect.grpc.binding.address"] == "127.0.0.2"  # its front is at port 2
    assert Addresses(thrift=1).settings().keys() & {"spark.connect.grpc.binding.port"} == set()


@pytest.mark.parametrize(
    ("login", "lacking"),
    [
        ("ldap", "hive.server2.authentication.ldap.url"),
        ("KERBEROS", "hive.server2.authentication.kerberos.principal, hive.server2.authentication.kerberos.keytab"),
        ("CUSTOM", "hive.server2.custom.authentication.class"),
        ("PAM", "hive.server2.authentication.pam.services"),
    ],
)
def test_a_log_in_that_lets_nobody_in_is_refused(login, lacking):
    with pytest.raises(DeltaEnvironmentError, match=f"{login.upper()}, and nobody could log in: {lacking} is not set"):
        check_login({"hive.server2.authentication": login})
    check_login({"hive.server2.authentication": login, **dict.fromkeys(lacking.split(", "), "given")})


def test_no_log_in_needs_nothing():
    check_login({})
    check_login({"hive.server2.authentication": "NONE"})
