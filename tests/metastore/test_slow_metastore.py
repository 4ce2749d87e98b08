"""A metastore that accepts and never answers, drips, or hangs up: a commit waits no longer than it is told to."""

from __future__ import annotations

import errno
import socket
import threading
from contextlib import contextmanager

import pytest

from catalog_sync.errors import MetastoreUnavailableError
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from pydelta.log import DeltaLog
from pydelta.manifests import ManifestOptions, publish, read_state
from pydelta.settings import Settings
from pydelta.settings.clock import Deadline
from pydelta.testing.operations import add_file, append, create_table

SYNCED = {"pydelta_sync_enabled": "true", "pydelta_sync_table": "lake.orders"}


@pytest.fixture(autouse=True)
def _no_logs_kept():
    yield
    DeltaLog.clear_cache()


@contextmanager
def serving(answer):
    """A port whose every connection is given to ``answer``, in a thread of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads, links = [], []

    def handle(link):
        with link:
            try:
                answer(link)
            except OSError:  # the client has gone
                return

    def serve():
        while True:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            links.append(link)
            threads.append(threading.Thread(target=handle, args=(link,), daemon=True))
            threads[-1].start()

    accepting = threading.Thread(target=serve, daemon=True)
    accepting.start()
    try:
        yield f"thrift://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for link in links:
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError as error:
                assert error.errno in (errno.ENOTCONN, errno.EBADF)
        for thread in (accepting, *threads):
            thread.join(30)
            assert not thread.is_alive()


def until_closed(link):
    while link.recv(65536):
        pass


def dripping(link):
    """A reply that is never whole: a byte at a time, for as long as somebody listens."""
    link.recv(65536)
    over = threading.Event()
    link.sendall(b"\x80\x01\x00\x02\x00\x0f\xff\xff")  # a name of a million bytes follows
    while not over.wait(0.02):
        link.sendall(b"x")


def hanging_up(link):
    link.recv(65536)
    link.sendall(b"\x80\x01\x00\x02\x00\x00")


def synced_log(place, uri, timeout):
    session = {"spark.pydelta.sync.metastore": uri, "spark.pydelta.hooks.timeout": timeout}
    return DeltaLog.for_table(str(place), settings=Settings.resolve(session))


@pytest.mark.parametrize("answer", [until_closed, dripping, hanging_up])
def test_the_commit_stands_and_the_failure_says_what_to_run(tmp_path, answer):
    with serving(answer) as uri:
        log = synced_log(tmp_path / "orders", uri, "400ms")
        done = create_table(log, [add_file("a", [1])], **SYNCED)
    assert (done.version, DeltaLog(log.store).update().version) == (0, 0)
    (failure,) = done.hook_failures
    assert failure.name == "metastore_sync"
    assert isinstance(failure.error, MetastoreUnavailableError)
    assert "within the 0.4 s available" in str(failure.error)
    command = f"catalog_sync sync {log.uri} --entry lake.orders --metastore {uri}"
    assert failure.error.hint == f"The commit stands, and the next one syncs it too; until then run: {command}"


def test_nobody_waits_for_a_lease_while_the_metastore_is_waited_for(tmp_path):
    found = []

    def look(link):
        link.recv(65536)
        log = DeltaLog.for_table(str(tmp_path / "orders"))
        found.append(publish(log, ManifestOptions(wait_seconds=0)).version)
        until_closed(link)

    with serving(look) as uri:
        log = synced_log(tmp_path / "orders", uri, "20s")
        plain = DeltaLog.for_table(str(tmp_path / "orders"))
        create_table(plain, [add_file("a", [1])])
        with Metastore(MetastoreAddress.parse(uri), deadline=Deadline(1)) as metastore:
            from catalog_sync.names import TableName
            from catalog_sync.sync import sync_table

            with pytest.raises(MetastoreUnavailableError):
                sync_table(log, metastore, TableName(database="lake_symlink", name="orders"))
    assert found == [0], "another process published meanwhile, and did not wait for it"
    assert read_state(log.store).version == 0


class Wire:
    """Sockets whose waits move a clock, and nothing else: each ends by its time-out."""

    def __init__(self, *, drips=False):
        self.now = 0.0
        self.drips = drips
        self.waits = []
        self.pauses = []

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds

    def socket(self, family, kind):
        return _Socket(self)


class _Socket:
    def __init__(self, wire):
        self._wire = wire
        self._timeout = None
        self._said = b"\x80\x01\x00\x02\x00\x0f\xff\xff"  # a name of a million bytes follows

    def settimeout(self, seconds):
        assert seconds > 0, "0 would not wait at all, and None for ever"
        self._timeout = seconds

    def connect(self, address):
        pass

    def send(self, data):
        return len(data)

    def recv(self, size):
        self._wire.waits.append(self._timeout)
        if self._wire.drips and self._timeout > 1:
            self._wire.now += 1
            said, self._said = self._said[:size], self._said[size:]
            return said or b"x"
        self._wire.now += self._timeout
        raise TimeoutError("timed out")

    def close(self):
        pass


def address(hosts=1):
    return MetastoreAddress(hosts=(("127.0.0.1", 1),) * hosts)


@pytest.mark.parametrize("drips", [False, True])
@pytest.mark.parametrize("hosts", [1, 3])
def test_all_calls_together_wait_no_longer_than_the_deadline(monkeypatch, drips, hosts):
    wire = Wire(drips=drips)
    monkeypatch.setattr("thrift.transport.TSocket.socket.socket", wire.socket)
    deadline = Deadline(10, clock=wire.clock)
    metastore = Metastore(address(hosts), deadline=deadline, sleep=wire.sleep, clock=wire.clock)
    with pytest.raises(MetastoreUnavailableError, match=r"within the 10 s .*times tried: 1\."):
        metastore.table("lake", "orders")
    assert wire.now == 10
    assert wire.waits[0] == 10
    with pytest.raises(MetastoreUnavailableError, match=r"times tried: 0\."):
        metastore.database_exists("lake")
    assert wire.now == 10, "nothing is left for a second call"


def test_what_the_first_call_took_the_second_has_not(monkeypatch):
    wire = Wire()
    monkeypatch.setattr("thrift.transport.TSocket.socket.socket", wire.socket)
    metastore = Metastore(
        MetastoreAddress(hosts=(("127.0.0.1", 1),), timeout_seconds=4),
        deadline=Deadline(10, clock=wire.clock),
        sleep=wire.sleep,
        clock=wire.clock,
    )
    with pytest.raises(MetastoreUnavailableError, match=r"times tried: 3\."):
        metastore.table("lake", "orders")
    assert (wire.waits, wire.pauses) == ([4, 4, 0.5], [0.5, 1.0])


@pytest.mark.parametrize("drips", [False, True])
def test_without_a_deadline_each_try_has_its_time_out(monkeypatch, drips):
    wire = Wire(drips=drips)
    monkeypatch.setattr("thrift.transport.TSocket.socket.socket", wire.socket)
    metastore = Metastore(address(), sleep=wire.sleep, clock=wire.clock)
    with pytest.raises(MetastoreUnavailableError, match=r"times tried: 4\."):
        metastore.table("lake", "orders")
    assert wire.now == 4 * 60 + 3.5


def test_a_commit_after_the_metastore_is_back_syncs_both(tmp_path, metastore_server, metastore, database):
    properties = SYNCED | {"pydelta_sync_table": f"{database}.orders"}
    with serving(until_closed) as uri:
        log = synced_log(tmp_path / "orders", uri, "300ms")
        assert create_table(log, [add_file("a", [1])], **properties).hook_failures
    log = synced_log(tmp_path / "orders", metastore_server.uri, "5min")
    assert append("b", [2]).run(log).hook_failures == ()
    assert metastore.partition_names(f"{database}_symlink", "orders") == ["p=a", "p=b"]
