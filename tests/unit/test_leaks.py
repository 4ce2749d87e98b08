"""The search for secrets in all that tests bring about finds each one that is planted, and fails the run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import leaks
import pytest

TESTS = Path(__file__).resolve().parents[1]
PLANTED = """
import gzip, logging, subprocess, sys, threading, urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
import pytest, zstandard
from leaks import no_secret_is_left, no_secret_is_shown, secret
from pydelta.errors import InvalidArgumentError
from pydelta.storage.memory import MemoryStore

KEY = secret("planted")

def test_nothing(tmp_path, capsys):
    print("all is well")
    (tmp_path / "log.json").write_text("no key here")
    assert capsys.readouterr().out

def test_printed():
    print("the key is", KEY)

def test_printed_and_read_back(capsys):
    print(KEY)
    capsys.readouterr()

def test_logged():
    logging.getLogger("x").warning("key=%s", KEY)

def test_process(tmp_path):
    subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write(sys.argv[1])", KEY], capture_output=True)

def test_error_that_was_caught():
    with pytest.raises(InvalidArgumentError):
        raise InvalidArgumentError("No.", hint=f"Use {KEY}.")

class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(f"<p>{KEY}</p>".encode())
    def log_message(self, *given):
        pass

def test_page():
    server = HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.handle_request, daemon=True).start()
    urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/", timeout=30).read()
    server.server_close()

def test_files(tmp_path):
    (tmp_path / ".env").write_text(f"S3_SECRET_KEY={KEY}")
    (tmp_path / "core-site.xml").write_text(f"<value>{KEY}</value>")
    (tmp_path / "data" / ".minio.sys" / "config").mkdir(parents=True)
    (tmp_path / "data" / ".minio.sys" / "config" / "identity.json").write_text(KEY)
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "0.json").write_text('{"commitInfo": {"key": "%s"}}' % KEY)
    one = zstandard.ZstdCompressor().compress(b"an event")
    (tmp_path / "events.zstd").write_bytes(one + zstandard.ZstdCompressor().compress(KEY.encode()))
    (tmp_path / "old.log").write_bytes(gzip.compress(KEY.encode()))

def test_store_in_memory():
    MemoryStore("memory://planted/t").put("x.json", KEY.encode())
"""


def test_each_planted_secret_fails_its_test_or_the_run(tmp_path):
    file = tmp_path / "test_planted.py"
    file.write_text(PLANTED)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(tmp_path),
    ]
    command += ["--basetemp", str(tmp_path / "base"), str(file), "-rA"]
    done = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, text=True)
    said = done.stdout.read()  # not by communicate, which would find what is planted here
    assert done.wait() == 1, said
    failed = re.findall(r"^ERROR \S+::test_(\w+)", said, re.MULTILINE)
    assert sorted(set(failed)) == [
        "error_that_was_caught", "logged", "page", "printed", "printed_and_read_back", "process", "store_in_memory",
    ]  # fmt: skip
    end = said[said.rindex("A secret was shown") :]
    for where in ("_delta_log/0.json", "events.zstd", "old.log", "the object memory://planted/t/x.json"):
        assert where in end
    for kept in (".env", "core-site.xml", ".minio.sys"):
        assert kept not in end
    shutil.rmtree(tmp_path / "base")
    shown = [line for line in said.splitlines() if leaks.MARK in line and "captured" not in line.lower()]
    assert [line for line in shown if "A secret was shown" in line or "(a secret)" in line] == []


def test_what_is_found_is_told_without_the_secret():
    leaks.look("here", f"before {leaks.secret('x')} after")
    (told,) = leaks.taken()
    assert told.startswith("here: …before x-")
    assert leaks.MARK not in told
    assert leaks.taken() == []


@pytest.mark.parametrize("text", [None, "", b"", "all is well", b"all is well"])
def test_nothing_is_found_where_nothing_is(text):
    before = leaks.taken()
    leaks.look("here", text)
    assert leaks.taken() == before == []


def test_a_key_in_a_plan_of_spark_is_found():
    class Map:
        def toString(self):
            return "Map()"

    class Execution:
        def description(self):
            return "q"

        def physicalPlanDescription(self):
            return f"Scan [key={leaks.secret('p')}]"

        def modifiedConfigs(self):
            return Map()

    class Found:
        def size(self):
            return 1

        def apply(self, place):
            return Execution()

    class Session:
        def __getattr__(self, name):
            return self if name == "_jsparkSession" else lambda: self

        def executionsList(self):
            return Found()

    assert leaks.look_at_plans(Session()) == 1
    assert [told.partition(":")[0] for told in leaks.taken()] == ["the plan of the query 'q'"]
