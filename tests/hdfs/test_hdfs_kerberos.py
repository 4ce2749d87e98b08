"""An HDFS that asks for Kerberos and encrypts what is sent, used without Spark; with a KDC of the test's own."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import uuid

import pytest
from guarded_hdfs import GuardedHdfs, Secured
from java_servers import NotToBeHad
from kdc import REALM, Realm, lacking
from missing import missing

LOCAL = """
import json
import sys
import pyarrow
import pydelta
path, options = sys.argv[1], json.loads(sys.argv[2])
table = pydelta.LocalTable.create(path, pyarrow.table({"id": [0, 1, 2]}), options=options)
table.delete("id = 1")
table.append(pyarrow.table({"id": [3]}))
print("rows", sorted(pyarrow.table(pydelta.open(path, options=options).scan())["id"].to_pylist()))
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    if gone := lacking():
        missing(f"HDFS WITH KERBEROS IS NOT TESTED HERE: not installed: {', '.join(gone)}")
    realm = Realm(tmp_path_factory.mktemp("realm"))
    try:
        server = GuardedHdfs(tmp_path_factory.mktemp("guarded"), Secured(realm))
        yield server
        server.stop()
    except NotToBeHad as error:
        missing(f"HDFS WITH KERBEROS IS NOT TESTED HERE: {error}")
    finally:
        realm.stop()


def without_spark(table, environment, options=None):
    command = [sys.executable, "-c", LOCAL, table, json.dumps(options)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("by", ["ticket", "keytab"])
def test_without_spark_a_ticket_or_a_keytab_lets_ann_in(guarded, by):
    table = f"{guarded.uri}/lake/{uuid.uuid4()}/a table"
    environment = guarded.ticket() if by == "ticket" else guarded.keytab_alone()
    done = without_spark(table, environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rows [0, 2, 3]" in done.stdout


def test_without_spark_a_token_lets_ann_in(guarded, tmp_path):
    table = f"{guarded.uri}/lake/{uuid.uuid4()}/a table"
    environment = guarded.token_alone(tmp_path / "token")
    done = without_spark(table, environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rows [0, 2, 3]" in done.stdout
    guarded.cancel(tmp_path / "token")
    done = without_spark(table, environment)
    assert done.returncode != 0
    assert "StoragePermissionError" in done.stderr
    assert "no longer valid" in done.stderr
    assert "--keytab" in done.stderr


def test_a_worker_goes_on_with_the_tokens_that_the_driver_has_now(guarded, tmp_path):
    """Those with which its container began are no longer valid."""
    table = f"{guarded.uri}/lake/{uuid.uuid4()}/a table"
    environment = guarded.token_alone(tmp_path / "container_tokens")
    guarded.cancel(tmp_path / "container_tokens")
    guarded.token_alone(tmp_path / "newer")
    newer = base64.b64encode((tmp_path / "newer").read_bytes()).decode()
    elsewhere = {"spark.kerberos.principal": f"ann@{REALM}", "spark.kerberos.keytab": "ann.keytab-of-the-driver"}
    done = without_spark(table, environment, {**elsewhere, "pydelta.hdfs.tokens": newer})
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rows [0, 2, 3]" in done.stdout


def test_without_spark_the_settings_of_spark_submit_let_ann_in(guarded):
    table = f"{guarded.uri}/lake/{uuid.uuid4()}/a table"
    login = {"spark.kerberos.principal": f"ann@{REALM}", "spark.kerberos.keytab": str(guarded.keytab)}
    done = without_spark(table, guarded.nothing(), login)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rows [0, 2, 3]" in done.stdout


def test_without_either_the_error_says_what_to_do(guarded):
    done = without_spark(f"{guarded.uri}/lake/{uuid.uuid4()}/a table", guarded.nothing())
    assert done.returncode != 0
    assert "StoragePermissionError" in done.stderr
    assert "kinit" in done.stderr


def test_without_either_the_command_line_ends_with_one_error(guarded):
    command = [sys.executable, "-m", "pydelta.api.cli.cli", "history", f"{guarded.uri}/lake/no-ticket"]
    done = subprocess.run(command, env=guarded.nothing(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Kerberos refused access" in done.stderr
    assert "Get a ticket with kinit" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_servers_settings_the_error_names_the_one_that_is_missing(guarded):
    environment = {name: value for name, value in guarded.ticket().items() if name != "HADOOP_CONF_DIR"}
    table = f"{guarded.uri}/lake/{uuid.uuid4()}/a table"
    done = without_spark(table, environment)
    assert done.returncode != 0
    assert "hadoop.security.authentication to kerberos" in done.stderr
    settings = {"hadoop.security.authentication": "kerberos", "dfs.data.transfer.protection": "privacy"}
    done = without_spark(table, environment, settings)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_directory_of_another_user_is_refused(guarded):
    done = without_spark(f"{guarded.uri}/of-another/t", guarded.ticket())
    assert done.returncode != 0
    assert "StoragePermissionError" in done.stderr
    assert "user=ann" in done.stderr
