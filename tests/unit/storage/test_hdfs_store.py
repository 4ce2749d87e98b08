"""HdfsStore against a NameNode in memory that answers as hdfs-native does, lost replies included."""

from __future__ import annotations

import base64
import builtins
import os
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from leaks import secret

from pydelta.errors import (
    DeltaEnvironmentError,
    InvalidArgumentError,
    ObjectNotFoundError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
)
from pydelta.storage import PutOutcome, open_store
from pydelta.storage.hdfs import HdfsStore


class _File:
    def __init__(self, node, path):
        self.node, self.path, self.data = node, path, b""

    def write(self, data):
        self.node.fail("write")
        self.data += bytes(data)

    def close(self):
        self.node.files[self.path] = self.data

    def __enter__(self):
        return self

    def __exit__(self, *rest):
        self.close()


class _Reader:
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def read_range(self, start, length):
        return self.data[start : start + length]


@dataclass
class NameNode:
    files: dict = field(default_factory=dict)
    failures: dict = field(default_factory=dict)
    after: dict = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fail(self, verb):
        if verb in self.failures:
            raise self.failures.pop(verb)

    def _status(self, path):
        return SimpleNamespace(path=path, length=len(self.files[path]), isdir=False, modification_time=17)

    def get_file_info(self, path):
        self.fail("get_file_info")
        if path not in self.files:
            raise FileNotFoundError(path)
        return self._status(path)

    def list_status(self, path, recursive=False):
        self.fail("list_status")
        folder = path.rstrip("/") + "/"
        found = [name for name in self.files if name.startswith(folder)]
        if not found:
            raise FileNotFoundError(path)
        below = {folder + name[len(folder) :].partition("/")[0] for name in found if "/" in name[len(folder) :]}
        directories = [SimpleNamespace(path=name, length=0, isdir=True, modification_time=23) for name in sorted(below)]
        files = [self._status(name) for name in found if recursive or "/" not in name[len(folder) :]]
        return iter(files if recursive else files + directories)

    def read(self, path):
        self.fail("read")
        if path not in self.files:
            raise FileNotFoundError(path)
        return _Reader(self.files[path])

    def create(self, path, write_options=None):
        self.fail("create")
        return _File(self, path)

    def rename(self, source, target, overwrite=False):
        self.fail("rename")
        with self.lock:
            if target in self.files and not overwrite:
                raise OSError(f'AlreadyExists("rename destination {target} already exists")')
            self.files[target] = self.files.pop(source)
        if "rename" in self.after:
            raise self.after.pop("rename")

    def delete(self, path, recursive=False):
        self.fail("delete")
        if path not in self.files:
            return False
        del self.files[path]
        if "delete" in self.after:
            raise self.after.pop("delete")
        return True


@pytest.fixture
def node():
    return NameNode()


@pytest.fixture
def store(node):
    return HdfsStore("hdfs://nn:8020/lake/a%20b #1/", node)


def test_paths_are_literal_and_listings_sorted(store, node):
    for name in ("_delta_log/2", "_delta_log/10", "d/x y"):
        store.put(name, b"123")
    assert sorted(node.files)[0] == "/lake/a%20b #1/_delta_log/10"
    assert [info.path for info in store.list_from("", prefix="_delta_log")] == ["_delta_log/10", "_delta_log/2"]
    assert [info.path for info in store.list_from("2", prefix="_delta_log")] == ["_delta_log/2"]
    assert {info.path for info in store.list_all()} == {"_delta_log/2", "_delta_log/10", "d/x y"}
    assert list(store.list_from("", prefix="nowhere")) == []
    assert (store.head("d/x y").size, store.head("d/x y").modification_time_ms) == (3, 17)
    assert (store.read("d/x y"), store.read_range("d/x y", 1, 9), store.read_range("d/x y", 7, 1)) == (
        b"123",
        b"23",
        b"",
    )
    with pytest.raises(ObjectNotFoundError):
        store.read("missing")
    with pytest.raises(InvalidArgumentError):
        store.read("../../etc")


def test_one_of_many_creates_wins_and_no_temporary_file_stays(store, node):
    start = threading.Barrier(16)
    outcomes = []

    def create(number):
        start.wait(30)
        outcomes.append((store.put_if_absent("x", b"%d" % number), number))

    threads = [threading.Thread(target=create, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    winners = [number for outcome, number in outcomes if outcome is PutOutcome.CREATED]
    assert len(winners) == 1 and len(outcomes) == 16
    assert node.files == {"/lake/a%20b #1/x": b"%d" % winners[0]}


def test_a_rename_whose_reply_was_lost_is_settled_by_whoever_reads_the_file_back(store, node):
    node.after["rename"] = OSError("connection reset")
    assert store.put_if_absent("x", b"mine") is PutOutcome.UNKNOWN
    assert node.files == {"/lake/a%20b #1/x": b"mine"}


def test_a_source_that_is_gone_proves_no_rename(store, node):
    """The client repeats requests: the first of two deletions has removed it, and its reply was lost."""
    node.failures["rename"] = OSError("connection reset")
    node.after["delete"] = FileNotFoundError("gone")
    assert store.put_if_absent("x", b"mine") is PutOutcome.UNKNOWN
    assert node.files == {}


def test_a_rename_that_failed_is_no_lost_race(store, node):
    node.failures["rename"] = RuntimeError("connection refused")
    with pytest.raises(StorageError) as caught:
        store.put_if_absent("x", b"mine")
    assert caught.value.retryable
    assert node.files == {}


def test_a_rename_that_nothing_can_be_learned_of_is_unknown(store, node):
    node.failures.update(rename=OSError("connection reset"), delete=OSError("connection refused"))
    assert store.put_if_absent("x", b"mine") is PutOutcome.UNKNOWN


def test_a_failing_write_leaves_nothing(store, node):
    for write in (store.put, store.put_if_absent):
        node.failures["write"] = OSError("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException: full")
        with pytest.raises(StorageFullError):
            write("x", b"1")
    node.failures["write"] = OSError("pipeline broken")
    with pytest.raises(StorageError), store.open_writer("x") as stream:
        stream.write(b"1")
    node.failures["rename"] = OSError("no")
    with pytest.raises(StorageError):
        store.put("x", b"1")
    assert node.files == {}


def test_a_stream_publishes_at_close_and_never_after_an_error(store, node):
    with store.open_writer("d/x") as stream:
        stream.write(b"12")
        stream.write(b"3")
        assert store.head("d/x") is None
        assert list(store.list_all()) == []
    assert store.read("d/x") == b"123"
    with pytest.raises(ZeroDivisionError), store.open_writer("d/x") as stream:
        stream.write(b"other")
        raise ZeroDivisionError
    assert node.files == {"/lake/a%20b #1/d/x": b"123"}


def test_errors_are_told_apart(store, node):
    node.failures["get_file_info"] = OSError("org.apache.hadoop.security.AccessControlException: user=me")
    with pytest.raises(StoragePermissionError):
        store.head("x")
    node.failures["list_status"] = RuntimeError("org.apache.hadoop.hdfs.server.namenode.SafeModeException: wait")
    with pytest.raises(StorageError, match="safe mode") as caught:
        list(store.list_all())
    assert caught.value.retryable


TRACE = "\\n\\tat org.apache.hadoop.hdfs.server.namenode.FSNamesystem.x(FSNamesystem.java:1)\\n"


@pytest.mark.parametrize(
    ("text", "kind", "said", "retryable"),
    [
        ('RPCError("org.apache.hadoop.fs.ParentNotDirectoryException", "/d/x (is not a directory)%s")', StorageError,
         "hdfs://nn:8020/lake/a%20b #1/x: /d/x (is not a directory), ParentNotDirectoryException.", False),
        ('RPCError("java.io.IOException", "File /x could only be written to 0 of the 1 minReplication nodes.%s")',
         StorageError, "no DataNode wrote or returned the data (File /x could only be written to 0", True),
        ('RPCError("org.apache.hadoop.fs.InvalidPathException", "Invalid path name /a:b%s")', StorageError,
         "HDFS does not allow this name (Invalid path name /a:b, InvalidPathException)", False),
        ('RPCError("org.apache.hadoop.hdfs.protocol.NSQuotaExceededException", "quota: \\"7\\"%s")', StorageFullError,
         'could not be written (quota: "7", NSQuotaExceededException)', False),
        ('DataTransferError("All DataNodes failed: [DatanodeInfoProto { id: X { ip_addr: \\"1\\" } }]")', StorageError,
         "no DataNode wrote or returned the data (All DataNodes failed).", True),
        ("Connection refused (os error 111)", StorageError, "x: Connection refused (os error 111).", True),
    ],
)  # fmt: skip
def test_what_the_server_said_is_told_without_its_trace(store, node, text, kind, said, retryable):
    node.failures["get_file_info"] = OSError(text.replace("%s", TRACE))
    with pytest.raises(kind) as caught:
        store.head("x")
    assert said in str(caught.value), str(caught.value)
    assert caught.value.retryable is retryable
    assert caught.value.hint
    assert "namenode.FSN" not in str(caught.value) and "DatanodeInfo" not in str(caught.value)


GSS = 'GssMajorCodes { raw: "0x00070000", calling_error: "none", routine_error: "GSS_S_NO_CRED" }'


def test_without_a_ticket_the_library_s_sentence_and_what_to_do_are_shown(store, node):
    sentence = "No Kerberos credentials available (default cache: FILE:/tmp/krb5cc_0)"
    node.failures["get_file_info"] = OSError(f'GSSAPIError({GSS}, 2529639053, "{sentence}")')
    with pytest.raises(StoragePermissionError) as caught:
        store.head("x")
    assert f"Kerberos refused access ({sentence})." in str(caught.value)
    assert "GssMajorCodes" not in str(caught.value)
    assert "kinit" in caught.value.hint and "KRB5_CLIENT_KTNAME" in caught.value.hint
    assert not caught.value.retryable


def test_a_token_that_has_expired_is_named(store, node):
    java = "org.apache.hadoop.security.token.SecretManager$InvalidToken"
    node.failures["get_file_info"] = OSError(f'FatalRPCError("{java}", "Token for real user: , is expired")')
    with pytest.raises(StoragePermissionError, match="token of this process is no longer valid") as caught:
        store.head("x")
    assert "Token for real user: , is expired" in str(caught.value)
    assert "--keytab" in caught.value.hint
    assert not caught.value.retryable


def test_a_name_node_that_closes_the_connection_may_ask_for_kerberos(store, node):
    node.failures["get_file_info"] = OSError("RPC listener disconnected")
    with pytest.raises(StorageError, match="closed the connection") as caught:
        store.head("x")
    assert "hadoop.security.authentication to kerberos" in caught.value.hint
    assert caught.value.retryable


def test_files_that_are_gone_or_are_none_cannot_be_read(store, node):
    node.failures["read"] = FileNotFoundError("Path is not a file: /lake\n\tat org.apache.hadoop.x(Y.java:1)")
    with pytest.raises(ObjectNotFoundError, match="is not a file") as caught:
        store.read("d")
    assert "java" not in str(caught.value)
    node.failures["read"] = OSError("Connection refused (os error 111)")
    with pytest.raises(StorageError, match="Connection refused"):
        store.read_range("x", 0, 1)
    with pytest.raises(InvalidArgumentError):
        store.head("")


def test_when_the_name_node_is_gone_the_rest_is_not_tried(store, node):
    store.put("b", b"1")
    node.failures["delete"] = OSError("Connection refused (os error 111)")
    report = store.delete_many(["a", "b"])
    assert (report.deleted, [name for name, _ in report.failed]) == (0, ["a", "b"])
    assert (report.retryable, report.denied) == (True, False)
    assert store.head("b") is not None


def test_a_lone_name_node_is_not_waited_for_as_one_of_two_is(monkeypatch):
    seen = []
    monkeypatch.setitem(sys.modules, "hdfs_native", SimpleNamespace(Client=lambda url, config: seen.append(config)))
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME"):
        monkeypatch.delenv(name, raising=False)
    name = "dfs.client.failover.max.attempts"
    open_store("hdfs://nn:8020/lake")
    open_store("hdfs://nn:8020/lake", {name: "7"})
    open_store("hdfs://ha/lake")
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    open_store("hdfs://nn:8020/lake")
    assert [config.get(name) for config in seen] == ["3", "7", None, None]


def test_deleting_counts_what_was_gone_and_names_what_failed(store, node):
    store.put("a", b"1")
    report = store.delete_many(["a", "b"])
    assert (report.deleted, report.failed) == (2, ())
    node.failures["delete"] = OSError("AccessControlException")
    report = store.delete_many(["c", "d"])
    assert (report.deleted, [name for name, _ in report.failed]) == (1, ["c"])
    assert (report.retryable, report.denied) == (False, True)


def test_without_hdfs_native_the_error_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **named):
        if name == "hdfs_native":
            raise ImportError("No module named 'hdfs_native'")
        return real(name, *rest, **named)

    monkeypatch.delitem(sys.modules, "hdfs_native", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DeltaEnvironmentError, match="hdfs-native") as caught:
        open_store("hdfs://nn/x")
    assert "'hdfs'" in caught.value.hint


def test_settings_reach_the_client(monkeypatch):
    seen = []
    monkeypatch.setitem(
        sys.modules, "hdfs_native", SimpleNamespace(Client=lambda url, config: seen.append((url, config)))
    )
    options = {
        "spark.hadoop.dfs.nameservices": "ha",
        "fs.defaultFS": "hdfs://ha",
        "fs.s3a.secret.key": secret("hdfs"),
        "spark.app.name": "x",
    }
    open_store("hdfs://ha/lake", options)
    open_store("hdfs:///lake", options)
    config = {"dfs.nameservices": "ha", "fs.defaultFS": "hdfs://ha"}
    assert seen == [("hdfs://ha", config), ("hdfs://ha", config)]


def _opened(monkeypatch, *locations):
    """What the client is given for each location, with its options."""
    seen = []
    client = SimpleNamespace(Client=lambda url, config, **login: seen.append((url, login)))
    monkeypatch.setitem(sys.modules, "hdfs_native", client)
    for uri, options in locations:
        open_store(uri, options)
    return seen


def test_the_keytab_of_spark_submit_is_used_where_it_can_be_read(monkeypatch, tmp_path):
    keytab = tmp_path / "ann.keytab-1"
    keytab.write_bytes(b"\x05\x02")
    monkeypatch.chdir(tmp_path)  # as the driver in a container of YARN, where the name is relative
    given = {"spark.kerberos.principal": "ann@LAKE.TEST", "spark.kerberos.keytab": keytab.name}
    elsewhere = {**given, "spark.kerberos.keytab": "ann.keytab-2"}
    alone = {"spark.kerberos.keytab": keytab.name}
    seen = _opened(monkeypatch, *(("hdfs://nn:8020/lake", options) for options in (given, elsewhere, alone, {})))
    login = {
        "kerberos_principal": "ann@LAKE.TEST",
        "kerberos_keytab": f"FILE:{keytab}",
        "kerberos_cache": "MEMORY:pydelta-ann@LAKE.TEST",
    }
    assert [given for _, given in seen] == [login, {}, {}, {}]


@pytest.mark.parametrize("form", ["writable", "protobuf"])
def test_the_client_is_given_the_address_that_a_token_has(monkeypatch, tmp_path, form):
    """The token is for 127.0.0.1:8020, as Hadoop writes it for hdfs://localhost:8020."""
    file = tmp_path / "container_tokens"
    service, kind = b"127.0.0.1:8020", b"HDFS_DELEGATION_TOKEN"
    texts = {"writable": b"%c%s%c%s", "protobuf": b"\x1a%c%s\x22%c%s"}
    file.write_bytes(b"HDTS" + texts[form] % (len(kind), kind, len(service), service))
    hosts = ("localhost:8020", "localhost:802", "localhost:18020", "127.0.0.1:8020", "ha", "no.such.host.test:8020")
    locations = [(f"hdfs://{host}/lake", {}) for host in hosts]
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(file))
    assert [url for url, _ in _opened(monkeypatch, *locations)] == ["hdfs://127.0.0.1:8020"] + [
        f"hdfs://{host}" for host in hosts[1:]
    ]
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(tmp_path / "none"))
    assert [url for url, _ in _opened(monkeypatch, *locations[:1])] == ["hdfs://localhost:8020"]


def test_newer_tokens_are_kept_beside_the_container_s_for_this_user_alone(monkeypatch, tmp_path):
    file = tmp_path / "container_tokens"
    file.write_bytes(b"old")
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(file))
    for tokens in (b"newer", b"newer", b"newest"):
        _opened(monkeypatch, ("hdfs://nn:8020/lake", {"pydelta.hdfs.tokens": base64.b64encode(tokens).decode()}))
        kept = Path(os.environ["HADOOP_TOKEN_FILE_LOCATION"])
        assert (kept.parent, kept.read_bytes(), kept.stat().st_mode & 0o777) == (tmp_path, tokens, 0o600)
    assert (len(list(tmp_path.iterdir())), file.read_bytes()) == (2, b"old")


def test_outside_of_a_container_and_with_a_keytab_no_tokens_are_kept(monkeypatch, tmp_path):
    keytab = tmp_path / "ann.keytab"
    keytab.write_bytes(b"")
    tokens = {"pydelta.hdfs.tokens": base64.b64encode(b"newer").decode()}
    login = {"spark.kerberos.principal": "ann@LAKE.TEST", "spark.kerberos.keytab": str(keytab)}
    monkeypatch.delenv("HADOOP_TOKEN_FILE_LOCATION", raising=False)
    _opened(monkeypatch, ("hdfs://nn:8020/lake", tokens))
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(tmp_path / "container_tokens"))
    _opened(monkeypatch, ("hdfs://nn:8020/lake", {**tokens, **login}))
    assert os.environ["HADOOP_TOKEN_FILE_LOCATION"] == str(tmp_path / "container_tokens")
    assert list(tmp_path.iterdir()) == [keytab]


def test_pages_walk_the_directories_and_only_empty_ones_are_removed(store, node):
    for path in ("x", "a=1/y", "a=1/.pydelta-tmp-1", "_log/z"):
        node.files[f"/lake/a%20b #1/{path}"] = b"1"
    pages = list(store.list_pages(enter=lambda path: path != "_log"))
    assert sorted(path for page in pages for path in page.paths) == ["a=1/.pydelta-tmp-1", "a=1/y", "x"]
    assert [info.path for info in store.list_unfinished("a=1")] == ["a=1/.pydelta-tmp-1"]
    assert "a=1/.pydelta-tmp-1" not in [info.path for info in store.list_all()]
    assert [(page.directories, page.directory_times_ms) for page in pages] == [(["a=1"], [23]), ([], [])]
    assert (store.has_directories, store.has_key_ranges) == (True, False)
    deleted = []

    def delete(path, recursive=False):
        if path.endswith("full"):
            raise RuntimeError("PathIsNotEmptyDirectoryException")
        deleted.append((path, recursive))
        return True

    node.delete = delete
    assert store.remove_directories(["a=2", "full"]) == ["a=2"]
    assert deleted == [("/lake/a%20b #1/a=2", False)]
    node.failures["list_status"] = RuntimeError("the NameNode is gone")
    with pytest.raises(StorageError):
        list(store.list_pages())
