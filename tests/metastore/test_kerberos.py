"""A metastore that asks for Kerberos: with a ticket, with a keytab, without either. A KDC of the test's own."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager

import pytest
from kdc import REALM, Realm, lacking
from missing import missing

from catalog_sync.thrift.embedded import EmbeddedMetastore
from pydelta.errors import DeltaEnvironmentError
from pydelta.log import DeltaLog
from pydelta.testing.operations import add_file, create_table

RUN = "import sys; from catalog_sync.cli import main; main(sys.argv[1:])"


@pytest.fixture(scope="module")
def realm(tmp_path_factory):
    if gone := lacking("gssapi"):
        missing(
            f"KERBEROS IS NOT TESTED HERE: not installed: {', '.join(gone)}. apt-get install krb5-kdc "
            "krb5-admin-server krb5-user gcc python3-dev libkrb5-dev, then pip install -e '.[kerberos]'"
        )
    realm = Realm(tmp_path_factory.mktemp("realm"))
    yield realm
    realm.stop()


@contextmanager
def metastore_of(realm, folder, keytab, **hadoop):
    server = EmbeddedMetastore(
        folder,
        settings={
            "hive.metastore.sasl.enabled": "true",
            "hive.metastore.kerberos.principal": f"hive/localhost@{REALM}",
            "hive.metastore.kerberos.keytab.file": str(keytab),
        },
        hadoop={"hadoop.security.authentication": "kerberos", **hadoop},
        java_options=[f"-Djava.security.krb5.conf={realm.configuration}"],
    )
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def keytab(realm):
    return realm.keytab("hive/localhost")


@pytest.fixture(scope="module")
def guarded(realm, keytab, tmp_path_factory):
    """A metastore with the principal hive/localhost."""
    with metastore_of(realm, tmp_path_factory.mktemp("guarded"), keytab) as server:
        yield server


@pytest.fixture(scope="module")
def ann(realm):
    return realm.keytab("ann")


def catalog_sync(environment, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_a_table_is_synced_with_a_ticket_and_its_status_read_with_a_keytab(realm, guarded, ann, tmp_path):
    create_table(DeltaLog.for_table(str(tmp_path / "t")), [add_file("a", [1])])
    DeltaLog.clear_cache()
    there = ("--metastore", f"thrift://localhost:{guarded.port}", "--kerberos", "hive")
    ticket = realm.with_ticket("ann", ann)
    code, out, err = catalog_sync(
        ticket, "sync", str(tmp_path / "t"), "--entry", "default.t", "--twin", "default.t_twin", *there
    )
    assert (code, err) == (0, "")
    assert "version 0" in out

    keytab = {**realm.environment, "KRB5_CLIENT_KTNAME": str(ann), "KRB5CCNAME": f"FILE:{tmp_path}/cache"}
    code, out, err = catalog_sync(keytab, "status", "default.t", "--twin", "default.t_twin", "--json", *there)
    assert (code, err) == (0, "")
    (row,) = json.loads(out)
    assert 0 in row.values()


@pytest.mark.parametrize("protection", ["integrity", "privacy"])
def test_a_metastore_that_signs_or_encrypts_is_answered_in_kind(realm, keytab, ann, tmp_path, protection):
    create_table(DeltaLog.for_table(str(tmp_path / "t")), [add_file(f"p{n}", [n]) for n in range(150)])
    DeltaLog.clear_cache()
    with metastore_of(realm, tmp_path / "server", keytab, **{"hadoop.rpc.protection": protection}) as server:
        there = ("--metastore", f"thrift://localhost:{server.port}", "--kerberos", "hive")
        ticket = realm.with_ticket("ann", ann)
        for command in (("sync",), ("verify", "--files", "0")):  # the answers are longer than one message of 64 KiB
            code, _, err = catalog_sync(ticket, *command, str(tmp_path / "t"), "--twin", "default.t_twin", *there)
            assert (code, err) == (0, "")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_without_a_ticket_or_under_a_name_that_is_no_principal_the_reason_is_said(realm, guarded, ann, tmp_path, host):
    environment = realm.environment if host == "localhost" else realm.with_ticket("ann", ann)
    code, _, err = catalog_sync(
        environment, "sync", "--database", "default", "--metastore", f"thrift://{host}:{guarded.port}",
        "--kerberos", "hive",
    )  # fmt: skip
    assert code == 1
    assert f"Kerberos refused access to the metastore at {host}" in err
    assert ("credentials" in err) if host == "localhost" else ("not found in Kerberos database" in err)
    assert "klist" in err
    assert "Traceback" not in err


def test_a_client_without_kerberos_is_not_let_in(guarded):
    from catalog_sync.errors import MetastoreUnavailableError
    from catalog_sync.thrift.client import Metastore, MetastoreAddress

    address = MetastoreAddress.parse(f"thrift://localhost:{guarded.port}", timeout_seconds=5)
    with (
        Metastore(address, sleep=lambda _: None) as client,
        pytest.raises(MetastoreUnavailableError, match="does not answer"),
    ):
        client.databases()


def test_hadoops_settings_beside_the_metastores_are_not_seen_and_doctor_knows_what_it_says(realm, tmp_path):
    from pydelta.tools.doctor.doctor_log import read_log

    with pytest.raises(DeltaEnvironmentError, match="did not start"):
        EmbeddedMetastore(
            tmp_path / "blind",
            settings={
                "hive.metastore.sasl.enabled": "true",
                "hive.metastore.kerberos.principal": f"hive/elsewhere@{REALM}",
                "hive.metastore.kerberos.keytab.file": str(realm.keytab("hive/elsewhere")),
                "hadoop.security.authentication": "kerberos",
            },
            java_options=[f"-Djava.security.krb5.conf={realm.configuration}"],
        )
    said = (tmp_path / "blind" / "log").read_text().splitlines()
    assert [finding.trouble.name for finding in read_log(said).findings] == ["kerberos-no-hadoop"]
