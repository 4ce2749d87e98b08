"""Who holds Spark's cluster, as make status and a job that waits say it; the master is a stand-in."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "images" / "spark" / "bin" / "holders"


def app(name, cores, state="RUNNING", **others):
    return {"id": f"app-{name}", "name": name, "cores": cores, "memoryperexecutor": 768, "state": state} | (
        {"starttime": 1, "duration": 600_000} | others
    )


@pytest.fixture
def master():
    """A page of the master's that a test sets, and its address."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(server.found).encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def run(master, *words, **how):
    env = os.environ | {
        "SPARK_MASTER_PAGE": f"http://127.0.0.1:{master.server_port}/json/",
        "HOLDERS_PATIENCE": "0.2",
    }
    return subprocess.Popen(
        [sys.executable, PROGRAM, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how
    )


def cluster(*apps):
    return {"cores": 4, "coresused": 4, "memory": 1600, "memoryused": 1536, "activeapps": list(apps)}


def test_each_application_is_named_with_what_it_holds(master):
    master.found = cluster(app("prompt", 2), app("ingest", 2, starttime=0), app("compact", 0, "WAITING", starttime=2))
    out, _ = run(master).communicate(timeout=60)
    assert out.splitlines() == [
        "Spark's cluster: 4 of 4 cores and 1536 of 1600 MiB are in use by",
        "  ingest (app-ingest): 2 cores, 768 MiB per executor, for 10 min",
        "  prompt (app-prompt): 2 cores, 768 MiB per executor, for 10 min",
        "  compact (app-compact): nothing, waits, for 10 min",
    ]


def test_an_application_that_waits_is_said_once_with_who_holds_the_cluster(master):
    master.found = cluster(app("prompt", 2), app("mine", 0, "WAITING", starttime=2))
    watched = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    watcher = run(master, "--watch", str(watched.pid))
    line = watcher.stderr.readline()
    watched.communicate()
    rest = watcher.stderr.read()
    watcher.communicate(timeout=60)
    assert line == "Waiting for the cluster.\n"
    assert "prompt (app-prompt): 2 cores" in rest
    assert "SPARK_WORKER_CORES" in rest
    assert "Waiting" not in rest


def test_a_master_that_is_away_is_no_trace(master):
    master.shutdown()
    master.server_close()
    out, err = run(master).communicate(timeout=60)
    assert (out, err) == ("Spark's master does not answer.\n", "")
