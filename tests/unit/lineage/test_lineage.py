"""OpenLineage events of jobs and commits, taken by a real HTTP server on the loopback."""

from __future__ import annotations

import http.server
import json
import logging
import re
import threading
import tomllib
import uuid
from pathlib import Path

import pytest
from leaks import secret

from pydelta.errors import ConcurrentDeleteReadException, InvalidArgumentError
from pydelta.log import DeltaLog
from pydelta.protocol.actions import Metadata, encode_json
from pydelta.storage import MemoryStore
from pydelta.testing.operations import NO_PAUSE, add_file, create_table, table_metadata
from pydelta.tools.jobs import JobParser, JobReport, run_job
from pydelta.tools.lineage import emitter, note_input, note_table
from pydelta.tools.lineage.events import dataset_name
from pydelta.tools.lineage.hook import tell_of_commit
from pydelta.tools.lineage.runs import Emitter, current_run
from pydelta.tools.outbox import Outbox
from pydelta.txn import Operation, start_transaction

SECRET = secret("lineage")


class Endpoint:
    """Takes events; may be told to refuse, or to answer late."""

    def __init__(self):
        self.events, self.headers, self.paths = [], [], []
        self.status, self.hold = 201, threading.Event()
        self.hold.set()
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.hold.wait(60)
                endpoint.paths.append(self.path)
                endpoint.headers.append(dict(self.headers))
                endpoint.events.append(json.loads(body))
                self.send_response(endpoint.status)
                if 300 <= endpoint.status < 400:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.hold.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def endpoint(monkeypatch):
    made = Endpoint()
    monkeypatch.setenv("OPENLINEAGE_URL", made.url)
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", f"tests-{uuid.uuid4()}")
    monkeypatch.setenv("OPENLINEAGE_API_KEY", SECRET)
    monkeypatch.delenv("OPENLINEAGE_ENDPOINT", raising=False)
    monkeypatch.delenv("OPENLINEAGE_DISABLED", raising=False)
    yield made
    made.close()


def log_of():
    return DeltaLog(MemoryStore(f"memory://lineage-{uuid.uuid4()}/lake/orders"))


def commit(log, actions, name, metadata=None, **metrics):
    txn = start_transaction(log, backoff=NO_PAUSE, hooks=[("openlineage", tell_of_commit)])
    if metadata is not None:
        txn.update_metadata(metadata)
    return txn.commit(actions, Operation(name=name, metrics=metrics))


def sent():
    assert emitter().outbox.flush(60)


def forget(endpoint):
    """What the installed hook has told of a table that was only made ready."""
    sent()
    endpoint.events.clear()


def test_a_commit_outside_of_a_job_is_a_run_of_its_own(endpoint):
    log = log_of()
    commit(log, [add_file("a", [1, 2])], "CREATE TABLE AS SELECT", table_metadata(), numOutputRows=2)
    sent()
    start, complete = endpoint.events
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert str(uuid.UUID(start["run"]["runId"])) == start["run"]["runId"]
    assert start["outputs"] == []
    [table] = complete["outputs"]
    assert (table["namespace"], table["name"]) == (f"memory://{log.uri.split('/')[2]}", "lake/orders")
    assert table["facets"]["version"]["datasetVersion"] == "0"
    fields = table["facets"]["schema"]["fields"]
    assert fields == [{"name": "p", "type": "string"}, {"name": "x", "type": "long"}]
    statistics = table["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"], statistics["fileCount"]) == (2, 102, 1)
    assert complete["job"]["name"] == "create_table_as_select.lake.orders"
    assert complete["job"]["namespace"].startswith("tests-")
    assert set(endpoint.paths) == {"/api/v1/lineage"}
    assert endpoint.headers[0]["Authorization"] == f"Bearer {SECRET}"
    assert SECRET not in json.dumps(endpoint.events)
    for event in endpoint.events:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event["eventTime"])
        assert event["producer"].startswith("urn:pydelta:")
        assert event["schemaURL"].endswith("OpenLineage.json#/$defs/RunEvent")


def test_what_changes_rows_reads_the_table_as_it_was(endpoint):
    log = log_of()
    create_table(log, [add_file("a", [1, 2])])
    forget(endpoint)
    commit(log, [], "DELETE", numDeletedRows=1, executionTimeMs=1500)
    commit(log, [], "MERGE", numTargetRowsInserted=2, numTargetRowsUpdated=3, numTargetRowsDeleted=4)
    commit(log, [], "STREAMING UPDATE", numOutputRows=5)
    sent()
    done = [event for event in endpoint.events if event["eventType"] == "COMPLETE"]
    inputs = [[item["facets"]["version"]["datasetVersion"] for item in event["inputs"]] for event in done]
    rows = [event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] for event in done]
    assert (inputs, rows) == ([["0"], ["1"], []], [1, 9, 5])
    kinds = [event["job"]["facets"]["jobType"]["processingType"] for event in done]
    assert kinds == ["BATCH", "BATCH", "STREAMING"]
    assert endpoint.events[0]["eventTime"] < done[0]["eventTime"]  # it began before it was committed


def job(work, prog="nightly.py"):
    return run_job(JobParser(prog=prog), lambda given: work(), [])


def test_a_job_is_one_run_with_all_that_it_read_and_wrote(endpoint, capsys):
    log, source = log_of(), log_of()
    create_table(source, [add_file("a", [1])])
    forget(endpoint)

    def work():
        note_input("s3a://AKIAABCDEFGHIJKLMNOP:mine@in/day.csv")
        note_table(source)
        commit(log, [add_file("a", [1, 2])], "WRITE", table_metadata(), numOutputRows=2)
        commit(log, [add_file("a", [3])], "WRITE", numOutputRows=1)
        return JobReport(line={"rows": 3})

    assert job(work) == 0
    assert json.loads(capsys.readouterr().out) == {"rows": 3}
    sent()
    assert [event["eventType"] for event in endpoint.events] == ["START", "RUNNING", "RUNNING", "COMPLETE"]
    assert len({event["run"]["runId"] for event in endpoint.events}) == 1
    last = endpoint.events[-1]
    assert last["job"]["name"] == "nightly"
    assert (last["inputs"][0]["namespace"], last["inputs"][0]["name"]) == ("s3://in", "day.csv")
    assert last["inputs"][1]["facets"]["version"]["datasetVersion"] == "0"
    [table] = last["outputs"]
    assert table["facets"]["version"]["datasetVersion"] == "1"
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 3
    assert table["outputFacets"]["outputStatistics"]["fileCount"] == 2
    assert "mine" not in json.dumps(endpoint.events)
    assert current_run() is None


def raises():
    raise ConcurrentDeleteReadException("x with password=hunter2 is gone.", hint="Again.")


def in_one_table():
    return JobReport.of_rows("tables", [{"table": "t", "message": "no such table", "exit_code": 1}])


@pytest.mark.parametrize(
    ("work", "code", "said"),
    [
        (raises, 2, "is gone"),
        (in_one_table, 1, "no such"),
        (lambda: JobReport(line={"x": 1}, exit_code=3), 3, "exit code 3"),
    ],
)
def test_a_job_that_fails_says_so_and_why_without_a_credential(endpoint, work, code, said):
    assert job(work) == code
    sent()
    assert [event["eventType"] for event in endpoint.events] == ["START", "FAIL"]
    message = endpoint.events[-1]["run"]["facets"]["errorMessage"]["message"]
    assert said in message
    assert "\n" not in message
    assert "hunter2" not in message


def test_an_error_that_is_not_ours_passes_through_and_is_told(endpoint):
    with pytest.raises(ZeroDivisionError):
        job(lambda: 1 / 0)
    sent()
    assert endpoint.events[-1]["eventType"] == "FAIL"
    assert current_run() is None


# --- never in anybody's way ------------------------------------------------------------------------------------------


def test_an_endpoint_that_does_not_answer_delays_no_commit_and_what_is_too_much_is_dropped_and_counted(caplog):
    endpoint = Endpoint()
    endpoint.hold.clear()
    outbox = Outbox(endpoint.url, waiting=5)
    try:
        with caplog.at_level(logging.WARNING):
            taken = [outbox.put({"number": number}) for number in range(50)]
        assert taken.count(False) >= 44  # five wait, and one is being sent
        assert outbox.dropped == taken.count(False)
        assert not outbox.flush(0.01)
        warned = [record for record in caplog.records if "were dropped" in record.message]
        assert len(warned) == 1  # not one a drop
        endpoint.hold.set()
        assert outbox.flush(60)
        assert outbox.sent == taken.count(True)
        assert [event["number"] for event in endpoint.events] == [n for n, ok in enumerate(taken) if ok]
    finally:
        endpoint.close()


@pytest.mark.parametrize("status", [302, 401, 500])
def test_an_endpoint_that_refuses_costs_the_event_alone(endpoint, status, caplog):
    endpoint.status = status
    log = log_of()
    before = emitter().outbox.dropped
    done = commit(log, [add_file("a", [1])], "WRITE", table_metadata(), numOutputRows=1)
    sent()
    assert (done.version, done.hook_failures) == (0, ())
    assert emitter().outbox.dropped == before + 2
    assert set(endpoint.paths) == {"/api/v1/lineage"}  # a redirect with the key in a header is not followed
    assert f"HTTP status {status}" in caplog.text
    assert SECRET not in caplog.text


def test_no_endpoint_at_all_fails_no_commit(monkeypatch, caplog):
    gone = Endpoint()
    gone.close()
    monkeypatch.setenv("OPENLINEAGE_URL", gone.url)
    done = commit(log_of(), [add_file("a", [1])], "WRITE", table_metadata())
    sent()
    assert (done.version, done.hook_failures) == (0, ())
    assert emitter().outbox.sent == 0
    assert "events for 127.0.0.1 were dropped" in caplog.text


@pytest.mark.parametrize("url", ["ftp://x", "here", "http://", f"http://u:{SECRET}@h:port"])
def test_an_address_that_cannot_be_right_is_told_once_and_stops_nothing(monkeypatch, caplog, url):
    monkeypatch.setenv("OPENLINEAGE_URL", url)
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", uuid.uuid4().hex)
    with pytest.raises(InvalidArgumentError, match="OPENLINEAGE_URL is not an HTTP address"):
        Emitter.of({"OPENLINEAGE_URL": url})
    assert emitter() is None
    done = commit(log_of(), [add_file("a", [1])], "WRITE", table_metadata())
    assert (done.version, done.hook_failures) == (0, ())
    assert caplog.text.count("No lineage events are sent") == 1
    assert SECRET not in caplog.text


def test_nothing_is_sent_unless_it_is_asked_for(monkeypatch, endpoint):
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    assert emitter() is None
    monkeypatch.delenv("OPENLINEAGE_URL")
    monkeypatch.delenv("OPENLINEAGE_DISABLED")
    assert emitter() is None
    assert job(lambda: JobReport(line={})) == 0
    commit(log_of(), [add_file("a", [1])], "WRITE", table_metadata())
    assert endpoint.events == []


def test_the_path_can_be_another_one(monkeypatch, endpoint):
    monkeypatch.setenv("OPENLINEAGE_ENDPOINT", "/own/path")
    commit(log_of(), [add_file("a", [1])], "WRITE", table_metadata())
    sent()
    assert set(endpoint.paths) == {"/own/path"}


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("s3a://b/k/t/", ("s3://b", "k/t")),
        ("gs://b/t", ("gs://b", "t")),
        ("hdfs://nn:8020/lake/t", ("hdfs://nn:8020", "lake/t")),
        ("abfss://c@acc.dfs.core.windows.net/t", ("abfss://c@acc.dfs.core.windows.net", "t")),
        ("https://me:secret@host/t", ("https://host", "t")),
        ("/data/t", ("file", "/data/t")),
        ("kafka://broker:9092/orders", ("kafka://broker:9092", "orders")),
    ],
)
def test_locations_are_named_as_openlineage_names_them(uri, expected):
    assert dataset_name(uri) == expected


def test_nested_columns_have_fields_of_their_own(endpoint):
    inner = {"type": "struct", "fields": [{"name": "a", "type": "integer", "nullable": True, "metadata": {}}]}
    fields = [
        {"name": "s", "type": inner, "nullable": True, "metadata": {}},
        {
            "name": "l",
            "type": {"type": "array", "elementType": "decimal(9,2)", "containsNull": True},
            "nullable": True,
            "metadata": {},
        },
        {
            "name": "m",
            "type": {"type": "map", "keyType": "string", "valueType": "date", "valueContainsNull": True},
            "nullable": True,
            "metadata": {},
        },
    ]
    metadata = Metadata(id=str(uuid.uuid4()), schema_string=encode_json({"type": "struct", "fields": fields}))
    commit(log_of(), [], "CREATE TABLE", metadata)
    sent()
    assert endpoint.events[-1]["outputs"][0]["facets"]["schema"]["fields"] == [
        {"name": "s", "type": "struct", "fields": [{"name": "a", "type": "integer"}]},
        {"name": "l", "type": "array", "fields": [{"name": "_element", "type": "decimal(9,2)"}]},
        {"name": "m", "type": "map", "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": "date"}]},
    ]


def test_the_hook_is_declared():
    declared = tomllib.loads((Path(__file__).resolve().parents[3] / "pyproject.toml").read_text())
    hooks = declared["project"]["entry-points"]["pydelta.hooks"]
    assert hooks["openlineage"] == f"{tell_of_commit.__module__}:{tell_of_commit.__name__}"
