"""The pages, the JSON and the metrics: the same numbers, foreign text as text, no secret, an answer to everything."""

from __future__ import annotations

import html
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from urllib.parse import urlencode

import pytest
from prometheus_client.parser import text_string_to_metric_families
from ui_lake import SCRIPT, build_lake

from pydelta.api.cli.cli import main
from pydelta.api.console.addresses import Addresses
from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError
from pydelta.errors.redaction import HIDDEN, hide_text, hide_value
from pydelta.tools.ui.command import check_exposed
from pydelta.tools.ui.server import Application
from pydelta.tools.ui.services import Service
from pydelta.tools.ui.sources import Sources
from pydelta.tools.ui.watch import Watch, Watched

SECRETS = ("abc123", "AKIAABCDEFGHIJKLMNOP", "do-not-show", ":pw@")


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Ask the application over a lake, without a server: status, headers, text."""
    folder = tmp_path_factory.mktemp("lake")
    query = build_lake(folder)
    watched = Watched(
        sources=Sources(folders=[str(folder)]),
        checkpoints=[str(query)],
        services=[Service.parse("Gone=tcp://127.0.0.1:1")],
        fresh=600,
        patience=600,
    )
    application = Application(Watch(watched))

    def asked(path, method="GET", host="127.0.0.1:8088", **query):
        told = {}

        def start(status, headers):
            told.update(status=int(status[:3]), headers=dict(headers))

        environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": urlencode(query), "HTTP_HOST": host}
        return told, b"".join(application(environ, start)).decode()

    asked("/")
    return lambda *arguments, **named: (lambda found: (found[0]["status"], found[0]["headers"], found[1]))(
        asked(*arguments, **named)
    )


def every_page(ask):
    tables = json.loads(ask("/api/tables")[2])["tables"]
    yield "/", {}
    for table in tables:
        name = table["place"]["name"]
        yield "/table", {"name": name}
        yield "/api/table", {"name": name}
        assert len(table["commits"]) <= 1
        for commit in json.loads(ask("/api/table", name=name)[2])["table"]["commits"][:9]:
            yield "/commit", {"name": name, "version": commit["version"]}
            yield "/api/commit", {"name": name, "version": commit["version"]}
    yield from (("/api/tables", {}), ("/metrics", {}), ("/health", {}))


def test_no_page_shows_a_secret_and_foreign_text_is_escaped(ask):
    pages = list(every_page(ask))
    assert len(pages) > 50
    for path, query in pages:
        status, headers, text = ask(path, **query)
        assert status == 200, (path, query, text)
        for secret in SECRETS:
            assert secret not in text, (path, query)
        if headers["Content-Type"].startswith("text/html"):
            assert "<script" not in text
            assert "<b>name" not in text
            assert "<i>" not in text
            assert "default-src 'none'" in headers["Content-Security-Policy"]
    shown = ask("/commit", name="lake.orders", version="7")[2]
    assert html.escape(SCRIPT, quote=False).replace("'", "&#39;") in shown
    assert HIDDEN in shown


def test_json_metrics_and_page_have_the_same_numbers(ask):
    tables = {table["place"]["name"]: table for table in json.loads(ask("/api/tables")[2])["tables"]}
    families = {family.name: family for family in text_string_to_metric_families(ask("/metrics")[2])}

    def metric(name, **labels):
        return {sample.labels["table"]: sample.value for sample in families[f"pydelta_table_{name}"].samples}

    for name, where in {
        "version": ("version",),
        "live_bytes": ("files", "liveBytes"),
        "live_files": ("files", "live"),
        "small_files": ("files", "small"),
        "vector_files": ("files", "withVectors"),
        "removed_bytes": ("files", "removedBytes"),
        "manifest_version": ("twin", "manifestVersion"),
        "lag_versions": ("twin", "lagVersions"),
        "checkpoint_version": ("checkpoint", "version"),
    }.items():
        expected = {}
        for table, found in tables.items():
            for key in where:
                found = found[key] if found is not None else None
            if found is not None:
                expected[table] = found
        assert metric(name) == expected, name
        assert expected, name
    page = ask("/table", name="lake.orders")[2]
    assert f"<b>{tables['lake.orders']['version']}</b>" in page
    assert "1 file, until VACUUM deletes them" in page
    [backlog] = families["pydelta_stream_backlog_versions"].samples
    assert (backlog.labels["table"], backlog.value) == ("lake.orders", 3)
    [service] = families["pydelta_service_up"].samples
    assert (service.labels["service"], service.value) == ("Gone", 0)


def test_tables_that_need_attention_come_first(ask):
    tables = json.loads(ask("/api/tables")[2])["tables"]
    assert [table["place"]["name"] for table in tables][:3] == ["lake.broken", "lake.events", "lake.orders"]
    found = json.loads(ask("/health")[2])
    assert found["ok"] is False
    assert found["tablesThatNeedAttention"] == ["lake.broken", "lake.events", "lake.orders"]
    assert found["servicesThatDoNotAnswer"] == ["Gone"]


def test_the_stream_is_shown_with_the_table_it_reads_and_the_one_it_writes(ask):
    for name in ("lake.orders", "lake.events"):
        streams = json.loads(ask("/api/table", name=name)[2])["streams"]
        assert [stream["doneBatch"] for stream in streams] == [59], name
    assert json.loads(ask("/api/table", name="lake.customers")[2])["streams"] == []


@pytest.mark.parametrize(
    ("path", "query", "status", "says"),
    [
        ("/nothing", {}, 404, "There is no such page"),
        ("/table", {}, 404, "is not among those shown"),
        ("/table", {"name": "s3a://elsewhere/t"}, 404, "is not among those shown"),
        ("/table", {"name": SCRIPT}, 404, "is not among those shown"),
        ("/commit", {"name": "lake.orders"}, 400, "is not a version"),
        ("/commit", {"name": "lake.orders", "version": "-1"}, 400, "is not a version"),
        ("/commit", {"name": "lake.orders", "version": "９"}, 400, "is not a version"),
        ("/commit", {"name": "lake.orders", "version": "1" * 30}, 400, "is not a version"),
        ("/commit", {"name": "lake.orders", "version": "99"}, 404, "The log has no commit of version 99"),
        ("/commit", {"name": "lake.broken", "version": "0"}, 500, "is not a valid action"),
        ("/api/commit", {"name": "lake.orders", "version": "99"}, 404, "The log has no commit of version 99"),
        ("/table", {f"x{number}": "" for number in range(30)}, 400, "cannot be read"),
    ],
)
def test_what_is_not_there_is_told_with_what_to_do_next(ask, path, query, status, says):
    found, _, text = ask(path, **query)
    assert found == status
    assert says in text
    assert "Traceback" not in text
    assert "<script" not in text
    if path.startswith("/api"):
        assert json.loads(text)["next"]
    else:
        assert "Next: " in text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_it_only_reads(ask, method):
    status, headers, text = ask("/", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert "only reads" in text


def test_head_answers_as_get_without_a_body(ask):
    status, headers, text = ask("/", "HEAD")
    assert (status, text) == (200, "")
    assert int(headers["Content-Length"]) > 1000


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:8088", 200), ("localhost", 200), ("[::1]:8088", 200), ("172.18.0.5:8088", 200), ("evil.example", 400)],
)
def test_a_name_that_is_not_its_own_is_refused(ask, host, status):
    assert ask("/page.css", host=host)[0] == status


# --- secrets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "fs.s3a.secret.key=HUSH", "password: 'HU SH'", 'token="HUSH"', "s3a://me:HUSH@bucket/t", "https://HUSH@host/x",
        "https://b.example/x?X-Amz-Signature=HUSH&y=1", "https://a.example/x?sig=HUSH", "AKIAHUSH0HUSH0HUSH00",
        '{"apiKey": "HUSH"}', "fs.azure.account.key.x = HUSH", "OPTIONS (`client_secret`='HUSH')", "Password => 'HUSH'",
        '"{\\"password\\":\\"HUSH\\"}"',
    ],
)  # fmt: skip
def test_what_looks_like_a_credential_is_hidden(text):
    assert "HUSH" not in hide_text(text)
    assert "HU SH" not in hide_text(text)
    assert HIDDEN in hide_text(text)


@pytest.mark.parametrize(
    "text",
    ["s3a://bucket/lake/t", "abfss://container@account.dfs.core.windows.net/t", "(key = 5)", "id < 10 and name = 'x'",
     "partitionBy [\"token\"]", "2024-01-01T00:00:00"],
)  # fmt: skip
def test_what_is_no_credential_is_shown(text):
    assert hide_text(text) == text


@pytest.mark.parametrize("piece", ["a", "token", "a.", "://", "a://b", 'token="', "password=\\", "?sig=", "AKIA", "'"])
def test_long_texts_are_looked_through_in_one_go(piece):
    """Were the time to grow with the square of the length, these would end with the test's own time-out."""
    text = piece * (1_000_000 // len(piece))
    assert "HUSH" not in hide_text(f"secret='HUSH' {text}")


def test_values_are_hidden_by_their_names_at_any_depth():
    found = hide_value("", {"a": {"secretKey": ["HUSH"], "n": 5}, "password": 7, "list": ["token=HUSH"], "flag": True})
    assert found == {
        "a": {"secretKey": [HIDDEN], "n": 5},
        "password": HIDDEN,
        "list": [f"token={HIDDEN}"],
        "flag": True,
    }


# --- the command -----------------------------------------------------------------------------------------------------


def run(capsys, *argv):
    with pytest.raises(SystemExit) as stopped:
        main(["ui", *argv])
    return stopped.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ((), "No tables to show were given"),
        (("--service", ""), "No tables to show were given"),
        (("/t", "--service", "A=tcp://h:1\nTrino"), "'Trino' does not name a service"),
        (("/t", "--port", "0"), "--port 0 is not a port"),
        (("/t", "--port", "70000"), "--port 70000 is not a port"),
        (("/t", "--host", "0.0.0.0"), "would be open to other machines on 0.0.0.0"),
        (("/t", "--host", "127.0.0.1,0.0.0.0"), "would be open to other machines on 0.0.0.0"),
        (("/t", "--host", "0.0.0.0", "--no-login"), "means every address of this machine"),
        (("/t", "--host", "no.such.host.invalid"), "is not an address of this machine"),
        (("=/t",), "has no name"),
        (("/t", "--service", "Trino"), "does not name a service"),
        (("/t", "--option", "hush"), "has no value"),
        (("--metastore", "http://h:1"), "http"),
        (("/t", "--inventory", "/x"), "--inventory has no effect without --garbage"),
    ],
)
def test_options_that_cannot_be_right_are_refused(capsys, argv, says):
    code, err = run(capsys, *argv)
    assert code == 1
    assert says in err
    assert "Next: " in err
    assert "Traceback" not in err


def test_a_port_that_is_taken_is_told(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, err = run(capsys, "/t", "--port", str(taken.getsockname()[1]))
    assert code == 1
    assert "Choose another port with --port" in err


def test_without_its_packages_the_error_names_the_extra(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "waitress.server", None)
    for module in ("pydelta.tools.ui.command", "pydelta.api.console.serving"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    code, err = run(capsys, "/t")
    assert code == 1
    assert "pydelta-lakehouse[ui]" in err


def test_private_addresses_are_taken_only_when_told_to(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, **__: [(2, 1, 6, "", (host, 0))])
    check_exposed(Addresses(host="172.18.0.5", page=1, no_login=True))
    check_exposed(Addresses(host="127.0.0.1", page=1))
    with pytest.raises(DeltaEnvironmentError, match="asks for no log-in"):
        check_exposed(Addresses(host="172.18.0.5", page=1))
    with pytest.raises(DeltaEnvironmentError, match="is a public address"):
        check_exposed(Addresses(host="8.8.8.8", page=1, no_login=True))
    with pytest.raises(InvalidArgumentError):
        Service.parse("x")


def test_the_command_serves_without_pyspark_and_ends_well_when_asked(tmp_path):
    build_lake(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code = (
        "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None; from pydelta.api.cli.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "ui", "--folder", str(tmp_path), "--port", str(port), "--patience", "600",
               "--host", "127.0.0.1,127.0.0.2"]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"JAVA_HOME": "/nowhere"}
    )
    assert re.search(rf"http://127\.0\.0\.1:{port}$", process.stdout.readline().strip())
    for host in ("127.0.0.1", "127.0.0.2"):
        with urllib.request.urlopen(f"http://{host}:{port}/") as answer:
            assert "lake.orders" in answer.read().decode()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", data=b"x")
    assert refused.value.code == 405
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert (process.returncode, err) == (0, "")
