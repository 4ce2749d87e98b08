"""The program that registers the connector of the profile cdc; the worker is a stand-in."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import stack_files

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "images" / "connect" / "bin" / "keep-connector"


@pytest.fixture
def keeping():
    loader = importlib.machinery.SourceFileLoader("keep_connector", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("keep_connector", loader))
    loader.exec_module(module)
    return module


@pytest.fixture
def worker(keeping, monkeypatch):
    """A worker that notes what it is asked, and answers with the status that it was given."""

    class Handler(BaseHTTPRequestHandler):
        asked: list[tuple[str, str, object]] = []  # noqa: RUF012  shared by design
        connectors: list[str] = ["old"]  # noqa: RUF012
        status: tuple[int, object] = (200, {})

        def answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.asked.append((self.command, self.path, json.loads(body) if body else None))
            code, found = 200, {}
            if self.path == "/connectors":
                found = self.connectors
            elif self.path.endswith("/status"):
                code, found = self.status
            text = json.dumps(found).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815  named by the base class

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(keeping, "WORKER", f"http://127.0.0.1:{server.server_address[1]}")
    yield Handler
    server.shutdown()


def running(state: str = "RUNNING", trace: str = "") -> tuple[int, object]:
    return 200, {"connector": {"state": "RUNNING"}, "tasks": [{"state": state, "trace": trace}]}


def test_it_registers_once_and_removes_connectors_of_other_names(keeping, worker):
    worker.status = running()
    keeper = keeping.Keeper(*keeping.connector({"CDC_NAME": "crm", "CDC_HOST": "db.example.com"}))
    keeper.look()
    keeper.look()
    assert [(method, path) for method, path, _ in worker.asked] == [
        ("GET", "/connectors"),
        ("DELETE", "/connectors/old"),
        ("PUT", "/connectors/crm/config"),
        ("GET", "/connectors/crm/status"),
        ("GET", "/connectors/crm/status"),
    ]
    settings = worker.asked[2][2]
    assert (settings["name"], settings["database.hostname"], settings["slot.name"]) == (
        "crm",
        "db.example.com",
        "lakehouse_crm",
    )
    assert (keeper.right, keeper.says) == (True, "RUNNING")


def test_the_password_is_never_among_the_settings(keeping):
    _, settings = keeping.connector({"CDC_PASSWORD": "hush"})
    assert settings["database.password"] == "${env:CDC_PASSWORD}"
    assert "hush" not in json.dumps(settings)
    assert settings["exactly.once.support"] == "required"


def test_a_failed_task_is_started_again_and_its_cause_is_said_without_a_trace(keeping, worker):
    worker.asked.clear()
    worker.status = running("FAILED", "org.E: no\n\tat A.b(A.java:1)\nCaused by: org.F: no slot\n\tat C.d(C.java:2)")
    keeper = keeping.Keeper("shop", {})
    keeper.restarted = -1000.0
    keeper.look()
    keeper.look()
    posts = [path for method, path, _ in worker.asked if method == "POST"]
    assert posts == ["/connectors/shop/restart?includeTasks=true&onlyFailed=true"]
    assert (keeper.right, keeper.says) == (False, "FAILED: org.F: no slot")


def test_a_worker_that_refuses_or_is_away_is_said_in_a_line(keeping, worker, monkeypatch):
    worker.status = (404, {"error_code": 404, "message": "No status found"})
    keeper = keeping.Keeper("shop", {})
    keeper.look()
    assert keeper.says == "The worker refuses: 404 No status found"
    monkeypatch.setattr(keeping, "WORKER", "http://127.0.0.1:9")
    keeper.look()
    assert "does not answer" in keeper.says
    assert not keeper.right


def test_the_service_hands_on_each_variable_that_it_reads():
    environment = stack_files.services()["connect"]["environment"]
    script = SCRIPT.read_text()
    read = {part.partition('"')[0] for part in script.split('env.get("')[1:]} | {"CDC_PASSWORD"}
    assert read == set(environment)
