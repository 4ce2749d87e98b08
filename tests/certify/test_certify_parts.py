"""The parts of pydelta certify that need no process: plans, shrinking, faults, the proxy, Trino's answers."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError, StorageError
from pydelta.storage import PutOutcome
from pydelta.tools.certify.delta_rs import import_deltalake
from pydelta.tools.certify.faults import Faults, open_faulty, with_faults
from pydelta.tools.certify.history import CertifyPlan, Fault, PlannedStep
from pydelta.tools.certify.local_worker import version_of
from pydelta.tools.certify.plan import kinds_without, make_plan
from pydelta.tools.certify.promises import PROMISES
from pydelta.tools.certify.proxy import Proxy, endpoint_of, with_endpoint
from pydelta.tools.certify.shrinking import shrink
from pydelta.tools.certify.trino import TrinoError, TrinoReader, TrinoTable
from pydelta.tools.certify.trino_worker import TrinoWorker


def ops(plan: CertifyPlan) -> list[str]:
    return [step.op for process in plan.processes for step in process.steps]


def test_the_guide_names_each_promise_and_its_cost():
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "certify.md").read_text()
    assert [name for name, (text, cost) in PROMISES.items() if f"| {text} | {cost} |\n" not in guide] == []


def test_a_plan_is_that_of_its_seed():
    engines = ["pydelta", "pydelta", "delta-rs", "spark"]
    one, again = (make_plan(7, engines=engines, operations=100) for _ in range(2))
    assert one == again != make_plan(8, engines=engines, operations=100)
    assert one.operations == 100
    assert len(set(ops(one))) == 100
    assert {step.kind for step in one.processes[2].steps}.isdisjoint({"stream", "vacuum", "restore", "replace"})
    assert any(process.faults for process in one.processes[:2])
    assert not one.processes[2].faults, "only this engine's calls go through a store of ours"


def test_operations_are_left_out_of_all_engines_or_of_one():
    engines = ["pydelta", "delta-rs"]
    kinds = kinds_without(["read", "delta-rs:optimize"])
    one, other = make_plan(7, engines=engines, operations=300, kinds=kinds).processes
    assert not {step.kind for process in (one, other) for step in process.steps} & {"read"}
    assert "optimize" in {step.kind for step in one.steps}
    assert "optimize" not in {step.kind for step in other.steps}


def test_a_plan_without_faults_has_none():
    calm = make_plan(7, engines=["pydelta"] * 3, operations=60, faults=False)
    assert not any(process.faults or process.kills for process in calm.processes)
    assert not calm.proxy_faults


def test_a_plan_is_itself_after_json():
    plan = make_plan(3, engines=["pydelta", "spark"], operations=30, properties={"delta.appendOnly": "false"})
    assert msgspec.json.decode(msgspec.json.encode(plan), type=CertifyPlan) == plan


def test_shrinking_keeps_the_two_operations_that_break_it():
    plan = make_plan(1, engines=["pydelta"] * 4, operations=80)
    wanted = {ops(plan)[5], ops(plan)[60]}
    runs: list[CertifyPlan] = []

    def breaks(candidate: CertifyPlan) -> bool:
        runs.append(candidate)
        return wanted <= set(ops(candidate))

    smallest, used = shrink(plan, breaks, tries=500)
    assert set(ops(smallest)) == wanted
    assert not any(process.faults or process.kills for process in smallest.processes)
    assert used == len(runs) < 200


def test_shrinking_ends_after_its_tries_with_a_plan_that_was_seen_to_break():
    plan = make_plan(1, engines=["pydelta"] * 4, operations=80)
    seen = [plan]

    def breaks(candidate: CertifyPlan) -> bool:
        if ops(plan)[0] in ops(candidate):
            seen.append(candidate)
            return True
        return False

    smallest, used = shrink(plan, breaks, tries=4)
    assert used == 4
    assert smallest in seen


def test_a_plan_that_never_breaks_again_stays_as_it_was():
    plan = make_plan(1, engines=["pydelta"], operations=4)
    assert shrink(plan, lambda candidate: False, tries=50)[0] is plan


# --- faults of a store ---------------------------------------------------------------------------------------------


def faulty(tmp_path, *faults: Fault, told: list[Fault] | None = None):
    uri = tmp_path.as_uri()
    happened = (lambda fault: None) if told is None else told.append
    return open_faulty(uri, with_faults(uri, {}, Faults(faults, happened=happened)))


def test_a_lost_reply_of_a_create_is_unknown_and_took_effect(tmp_path):
    told: list[Fault] = []
    store = faulty(tmp_path, Fault(call=0, kind="lose"), told=told)
    assert store.put_if_absent("a", b"1") is PutOutcome.UNKNOWN
    assert store.read("a") == b"1"
    assert store.put_if_absent("a", b"2") is PutOutcome.ALREADY_EXISTS
    assert [fault.kind for fault in told] == ["lose"]


def test_a_failed_call_has_no_effect_and_a_lost_one_has(tmp_path):
    store = faulty(tmp_path, Fault(call=0, kind="fail"), Fault(call=1, kind="lose"))
    for _ in range(2):
        with pytest.raises(StorageError) as caught:
            store.put("a", b"1")
        assert caught.value.retryable
    assert [info.path for info in store.list_all()] == ["a"]


@pytest.mark.parametrize(("kind", "left"), [("die", []), ("die after", ["a"])])
def test_a_process_dies_in_a_call_before_or_after_it_took_effect(tmp_path, kind, left):
    code = (
        "import sys\nfrom pydelta.tools.certify.faults import *\nfrom pydelta.tools.certify.history import Fault\n"
        "uri, kind = sys.argv[1:]\n"
        "store = open_faulty(uri, with_faults(uri, {}, Faults([Fault(call=1, kind=kind)])))\n"
        "list(store.list_all()); store.put('a', b'1'); print('alive')"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path.as_uri(), kind], capture_output=True, check=False)
    assert done.returncode == -9, done.stderr
    assert done.stdout == b""
    assert [path.name for path in tmp_path.iterdir()] == left


def test_a_store_of_the_users_own_is_wrapped_and_not_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [os.path.dirname(__file__), *sys.path])
    uri = tmp_path.as_uri()
    given = {"spark.pydelta.logStore.file": "certify_liars:stale"}
    store = open_faulty(uri, with_faults(uri, given, Faults()))
    store.put_if_absent(f"_delta_log/{1:020}.json", b"")
    assert list(store.list_from("", prefix="_delta_log")) == [], "the listing of a store that is behind"
    assert len(list(store.list_all())) == 1


# --- the proxy -----------------------------------------------------------------------------------------------------


@pytest.fixture
def upstream():
    """A server that counts what reaches it, and answers with what it was sent."""
    reached: list[tuple[str, str, str, bytes]] = []

    class Echo(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            reached.append((self.command, self.path, self.headers["Host"], body))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", '"1"')
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)

        do_PUT = do_GET = do_HEAD = do_POST = _answer  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.reached = reached
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_proxy_passes_on_or_goes_wrong_as_it_says(upstream):
    endings: Counter[str] = Counter()
    with Proxy(f"http://127.0.0.1:{upstream.server_port}", seed=5) as proxy:
        for number in range(400):
            connection = http.client.HTTPConnection("127.0.0.1", int(proxy.address.rpartition(":")[2]), timeout=60)
            try:
                connection.request("PUT", f"/b/k%20{number}?x=1", body=b"some bytes")
                reply = connection.getresponse()
                body = reply.read()
                endings["refused" if reply.status == 503 else "passed"] += 1
                assert reply.status == 503 or (body, reply.headers["ETag"]) == (b"some bytes", '"1"')
            except http.client.IncompleteRead:
                endings["cut reply"] += 1
            except (http.client.HTTPException, OSError):
                endings["cut"] += 1
            finally:
                connection.close()
        faults = proxy.faults
        assert {host for _, _, host, _ in upstream.reached} == {proxy.address.removeprefix("http://")}, (
            "as it was signed"
        )
    assert endings["refused"] == faults["refused"] > 0
    assert endings["cut reply"] == faults["cut reply"] > 0
    assert endings["cut"] == faults["no reply"] + faults["cut request"] > 0
    assert endings["passed"] == 400 - sum(faults.values()) + faults["slow reply"]
    assert len(upstream.reached) == 400 - faults["refused"] - faults["cut request"], "a lost reply took effect"
    assert ("PUT", "/b/k%20399?x=1", f"127.0.0.1:{proxy.address.rpartition(':')[2]}", b"some bytes") in upstream.reached


def test_a_head_keeps_the_length_that_it_tells(upstream):
    with Proxy(f"http://127.0.0.1:{upstream.server_port}", seed=1) as proxy:
        proxy.draw = lambda: ("", 0.0)
        connection = http.client.HTTPConnection("127.0.0.1", int(proxy.address.rpartition(":")[2]), timeout=60)
        for _ in range(2):  # on one connection
            connection.request("HEAD", "/b/k", body=b"12345")
            reply = connection.getresponse()
            assert (reply.headers["Content-Length"], reply.read()) == ("5", b"")
        connection.close()


def test_a_proxy_stands_before_an_endpoint_and_nothing_else():
    secret = {"fs.s3a.secret.key": "s", "spark.hadoop.fs.s3a.endpoint": "http://one:9000"}
    assert endpoint_of("s3a://bucket/x", secret) == "http://one:9000"
    assert endpoint_of("s3a://bucket/x", {"fs.s3a.endpoint": "one"}) == "https://one"
    assert endpoint_of("/data", secret) is None
    assert endpoint_of("s3a://bucket/x", {}) is None
    led = with_endpoint(secret, "http://127.0.0.1:1")
    assert endpoint_of("s3a://bucket/x", led) == "http://127.0.0.1:1"
    assert led["fs.s3a.secret.key"] == "s"


# --- other engines -------------------------------------------------------------------------------------------------


class _Trino:
    """What Trino's protocol looks like: a page, and the next one, until there is none."""

    def __init__(self, *, refuses: str = "") -> None:
        self.statements: list[str] = []
        self.users: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                statement = self.rfile.read(int(self.headers["Content-Length"])).decode()
                outer.statements.append(statement)
                outer.users.append(self.headers["X-Trino-User"])
                if refuses and refuses in statement:
                    self._send({"error": {"errorName": "PERMISSION_DENIED", "message": "no"}})
                else:
                    self._send({"nextUri": f"{outer.address}/next", "data": []})

            def do_GET(self) -> None:
                is_read = outer.statements[-1].startswith("SELECT")
                self._send({"data": [["1-1", 0, 3, ""]]} if is_read else {})

            def _send(self, value: object) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(value).encode())

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def test_trino_registers_the_table_reads_it_and_forgets_it():
    trino = _Trino()
    try:
        assert TrinoReader(address=trino.address).read("s3a://bucket/it's") == (("1-1", 0, 3, ""),)
    finally:
        trino.stop()
    register, select, forget = trino.statements
    assert register.startswith('CALL "delta".system.register_table(') and "'s3a://bucket/it''s'" in register
    assert select.startswith('SELECT op, n, k, rev FROM "delta"."default"."certify_')
    assert forget.startswith('CALL "delta".system.unregister_table(')


def test_a_trino_that_registers_nothing_says_what_its_catalog_needs():
    trino = _Trino(refuses="register_table")
    try:
        with pytest.raises(
            DeltaEnvironmentError, match=r"PERMISSION_DENIED(.|\n)*register-table-procedure\.enabled=true"
        ):
            TrinoReader(address=trino.address).read("s3a://bucket/t")
    finally:
        trino.stop()


class _Log:
    def __init__(self, *infos):
        self.infos = infos

    def history(self, limit):
        return [
            SimpleNamespace(version=len(self.infos) - 1 - at, commit_info=info)
            for at, info in enumerate(reversed(self.infos))
        ]


def test_an_operation_of_trino_is_found_by_its_user_and_others_by_their_metadata():
    log = _Log({"userName": "certify_ab/4-1"}, {"userMetadata": "2-7", "userName": "root"}, {"userName": "certify_ab/"})
    assert version_of(log, "4-1") == 0
    assert version_of(log, "2-7") == 1
    assert version_of(log, "root") is None


def test_trino_runs_each_operation_as_a_user_of_its_own(tmp_path):
    trino = _Trino()
    try:
        table = TrinoReader(address=trino.address).register("s3a://bucket/t")
        worker = TrinoWorker(table, str(tmp_path), {})
        worker._log = _Log({"userName": f"{table.name}/4-1"}, {"userName": f"{table.name}/4-2"})
        done = [
            worker.run(PlannedStep(op=f"4-{number}", kind=kind, key=3, rows=2 if kind == "append" else 0))
            for number, kind in enumerate(("append", "delete", "update", "merge", "optimize"), start=1)
        ]
        table.forget()
    finally:
        trino.stop()
    assert [item.version for item in done] == [0, 1, None, None, None]
    assert trino.users[1:6] == [f"{table.name}/4-{number}" for number in range(1, 6)]
    insert, delete, update, merge, optimize = trino.statements[1:6]
    assert insert.endswith("VALUES ('4-1', 0, 3, ''), ('4-1', 1, 3, '')")
    assert delete == f"DELETE FROM {table.quoted} WHERE k = 3"
    assert "SET rev = '4-3'" in update
    assert "VALUES ('4-4', 0, s.k, '4-4')" in merge
    assert optimize.endswith("EXECUTE optimize")


def test_only_a_conflict_of_trinos_is_known_to_have_left_nothing():
    worker = TrinoWorker(TrinoTable(address="http://h", catalog="c", schema="s", name="n"), "/nowhere", {})
    assert worker.failure(TrinoError("TRANSACTION_CONFLICT", "lost")).known
    assert not worker.failure(TrinoError("DELTA_LAKE_BAD_WRITE", "who knows")).known
    assert not worker.failure(OSError("gone")).known


@pytest.mark.parametrize("address", ["localhost", "http://[x", "http://host:port", "ftp://host"])
def test_the_address_of_a_trino_is_a_url(address):
    with pytest.raises(InvalidArgumentError, match="is not the address of a Trino"):
        TrinoReader(address=address)


def test_delta_rs_that_is_not_installed_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(DeltaEnvironmentError, match="pip install 'deltalake"):
        import_deltalake()


def test_a_step_without_rows_stays_small_in_json():
    assert msgspec.json.encode(PlannedStep(op="1-1", kind="read")) == b'{"op":"1-1","kind":"read"}'
