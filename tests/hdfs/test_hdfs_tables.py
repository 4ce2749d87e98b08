"""Tables on HDFS without Spark: races for a name, commits, checkpoints, the command line, VACUUM and FSCK."""

from __future__ import annotations

import json
import multiprocessing
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from pydelta.api.cli.cli import main
from pydelta.commands.vacuum.command import Vacuum
from pydelta.commands.vacuum.inventory_sources import from_csv
from pydelta.commands.vacuum.plan import directories_above
from pydelta.errors import StorageError, StoragePermissionError
from pydelta.log import DeltaLog
from pydelta.storage import PutOutcome, open_store
from pydelta.testing.commands import fsck, vacuum
from pydelta.testing.garbage import Yard
from pydelta.testing.operations import add_file, append, create_table, overwrite, rows_of

ODD = "p=é %41=b/x y#?.parquet"


@pytest.fixture(autouse=True)
def _no_cache():
    yield
    DeltaLog.clear_cache()


def compete(root, names, writers, begin, results, first):
    """A process whose threads all try to make the same names."""
    store = open_store(root)
    store.head("warm")
    gate = threading.Barrier(writers)

    def create(number):
        made = []
        for name in names:
            if gate.wait(60) == 0:
                begin.wait(60)
            gate.wait(60)
            outcome = store.put_if_absent(name, b"%d" % (first + number))
            made.append((name, first + number, outcome is PutOutcome.CREATED, outcome is PutOutcome.UNKNOWN))
        return made

    with ThreadPoolExecutor(writers) as pool:
        results.put([row for rows in pool.map(create, range(writers)) for row in rows])


def test_of_threads_in_several_processes_one_makes_a_name(root, store):
    processes, writers, names = 2, 8, [f"_delta_log/{number:020}.json" for number in range(3)]
    spawn = multiprocessing.get_context("spawn")  # the client's threads do not survive a fork
    begin, results = spawn.Barrier(processes), spawn.Queue()
    running = [
        spawn.Process(target=compete, args=(root, names, writers, begin, results, number * writers))
        for number in range(processes)
    ]
    for process in running:
        process.start()
    rows = [row for _ in running for row in results.get(timeout=120)]
    for process in running:
        process.join(30)
    assert len(rows) == processes * writers * len(names)
    assert not any(unknown for *_, unknown in rows)
    winners = [(name, number) for name, number, made, _ in rows if made]
    assert sorted(name for name, _ in winners) == names
    assert {name: int(store.read(name)) for name in names} == dict(winners)
    assert sorted(info.path for info in store.list_all()) == names
    hidden = [status.path for status in store._client.list_status(store._path("_delta_log"), False)]
    assert len(hidden) == len(names)  # no temporary file either


def test_racing_appends_all_get_in_and_the_log_is_whole(root):
    create_table(DeltaLog.for_table(root), [add_file("a", [0])], delta_checkpointInterval="4")
    gate = threading.Barrier(5)

    def write(number):
        log = DeltaLog(open_store(root))  # each with a view of its own, as in processes of their own
        gate.wait(30)
        return append("a b=é%", [number]).run(log).version

    with ThreadPoolExecutor(5) as pool:
        assert sorted(pool.map(write, range(1, 6))) == [1, 2, 3, 4, 5]
    log = DeltaLog(open_store(root))
    assert rows_of(log.update()) == Counter({("a", 0): 1} | {("a b=é%", number): 1 for number in range(1, 6)})
    names = [info.path for info in log.store.list_from("", prefix="_delta_log")]
    assert [name for name in names if name.endswith(".checkpoint.parquet")] == [
        f"_delta_log/{4:020}.checkpoint.parquet"
    ]
    overwrite("c", [9]).run(log)
    assert rows_of(DeltaLog(open_store(root)).update()) == Counter({("c", 9): 1})
    assert len(rows_of(log.snapshot(version=3))) == 4
    assert [record.version for record in log.history()] == [6, 5, 4, 3, 2, 1, 0]


def told(capsys, *arguments):
    """The command line's exit code, its JSON and what it said besides."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    out, err = capsys.readouterr()
    return ended.value.code or 0, json.loads(out) if out.lstrip().startswith(("{", "[")) else out, err


def test_the_command_line_takes_hdfs(root, capsys):
    log = DeltaLog.for_table(root)
    create_table(log, [add_file("a", [1, 2])])
    append("b", [3]).run(log)
    assert [row["version"] for row in told(capsys, "history", root, "--json")[1]] == [1, 0]
    detail = told(capsys, "detail", root, "--json")[1]
    assert (detail["location"], detail["numFiles"]) == (root, 2)
    assert len(told(capsys, "files", root, "--where", "x = 3", "--json")[1]) == 1
    assert told(capsys, "checkpoint", root, "--json")[1]["numAddFiles"] == 2
    assert told(capsys, "cleanup", root, "--json")[1]["deletedFiles"] == 0
    assert sorted(told(capsys, "generate", root, "--json")[1]["written"]) == ["p=a", "p=b"]
    code, out, err = told(capsys, "history", root + "/none")
    assert (code, out) == (1, "")
    assert "There is no Delta table at" in err
    assert "Traceback" not in err


def grown(store):
    """A table with files to keep and files to go, in directories of their own and in each other's."""
    yard = Yard(store, partition_columns=("p",))
    names = ("p=1/live %41.parquet", "p=1/lately.parquet", "p=3/gone.parquet", ODD)
    for path in names:  # those that go are without bytes, which take half a second each to write
        yard.put(path, age=1000, size=10 if path in (names[0], ODD) else 0)
    live, lately, gone, odd = map(yard.named, names)
    yard.commit(live, lately, gone, odd, age=900)
    yard.commit(yard.remove(gone, age=800), age=800)
    yard.commit(yard.remove(lately, age=10), age=10)
    yard.put("p=2/deep/er/stray 50%.parquet", age=500, size=7)
    for path, age in {
        "p=4/stray": 500,
        "p=1/under way": 1,
        "_mine/x": 5000,
        "p=1/.hidden/y": 5000,
        "nested/_delta_log/00000000000000000000.json": 5000,
        "nested/z": 5000,
    }.items():
        yard.put(path, age=age, size=0)
    for directory in ("p=5", "p=6"):
        store._client.mkdirs(store._path(directory), permission=0o755)
    for directory in ("p=2/deep/er", "p=2/deep", "p=2", "p=3", "p=5"):
        yard.backdate(directory, age=500)
    for directory in ("p=4", "p=6"):
        yard.backdate(directory, age=1)  # something has just happened there
    return yard


def directories(store):
    return {path for page in store.list_pages() for path in page.directories if not path.startswith("_delta_log")}


GONE = {"p=3/gone.parquet", "p=2/deep/er/stray 50%.parquet", "p=4/stray"}


def test_vacuum_deletes_what_nothing_needs_and_the_directories_that_are_left(store, root, capsys):
    yard = grown(store)
    before, walked = yard.files(), directories(store)
    planned = vacuum(yard.log, Vacuum(dry_run=True), now_ms=yard.now_ms)
    assert (yard.files(), directories(store)) == (before, walked)
    assert (set(planned.files["path"]), planned.removed_directories, planned.bytes) == (GONE, 5, 7)
    done = vacuum(yard.log, now_ms=yard.now_ms)
    assert before - yard.files() == GONE
    assert walked - directories(store) == {"p=2/deep/er", "p=2/deep", "p=2", "p=3", "p=5"}
    assert (done.deleted, done.removed_directories, done.bytes) == (3, 5, 7)
    operations = [record.commit_info.operation for record in yard.log.history(2)]
    assert operations == ["VACUUM END", "VACUUM START"]
    report = fsck(yard.log)
    assert (report.ok, set(report.stray_files["path"])) == (True, {"p=1/under way"})
    assert told(capsys, "fsck", root)[0] == 0

    store.delete_many([ODD])
    code, out, err = told(capsys, "fsck", root)
    assert code == 4
    assert "x%20y" in out + err or "x y" in out + err
    assert told(capsys, "fsck", root, "--repair")[0] == 0
    assert fsck(yard.log).ok
    assert len(yard.log.update().files.core) == 1


def test_vacuum_by_a_list_by_the_log_and_of_a_partition(store, root, hdfs, tmp_path, monkeypatch, capsys):
    yard = grown(store)
    before = yard.files()
    young = {"p=1/under way"}  # the lists say that it is old
    for base in (store.root, store.root.removeprefix(hdfs.uri)):  # as a listing and as an fsimage name files
        rows = [f'"{base}/{path}",7,false,{yard.now_ms - 500 * 3_600_000}' for path in sorted(before)]
        (tmp_path / "list.csv").write_text("\n".join(["path,length,isDir,modificationTime", *rows]))
        inventory = from_csv(str(tmp_path / "list.csv"))
        found = vacuum(yard.log, Vacuum(inventory=inventory, dry_run=True), now_ms=yard.now_ms)
        assert set(found.files["path"]) == GONE | young
        assert found.list_requests == len(directories_above(found.files["path"])), "whether they are tables"

    store._client.set_permission(store._path("_delta_log"), 0o777)
    with monkeypatch.context() as context:
        context.setenv("HADOOP_USER_NAME", "somebody")
        other = DeltaLog(open_store(root))
        with pytest.raises(StoragePermissionError, match="permission denied") as caught:
            vacuum(other, now_ms=yard.now_ms)
        assert "org.apache" not in str(caught.value)
        with pytest.raises(StoragePermissionError, match="somebody"):
            other.store.put("x", b"1")
    assert yard.files() == before

    assert vacuum(yard.log, Vacuum(where="p = '4'"), now_ms=yard.now_ms).deleted == 1
    assert before - yard.files() == {"p=4/stray"}
    lite = vacuum(yard.log, Vacuum(mode="lite"), now_ms=yard.now_ms)
    assert (set(lite.files["path"]), lite.deleted, lite.list_requests) == ({"p=3/gone.parquet"}, 1, 1)
    vacuum(yard.log, Vacuum(inventory=inventory), now_ms=yard.now_ms)
    assert before - yard.files() == GONE | young
    code, out, _ = told(capsys, "vacuum", root, "--dry-run")
    assert (code, "Found 0 files" in out) == (0, True)


def test_names_that_hdfs_refuses_are_told(store):
    with pytest.raises(StorageError, match="does not allow this name") as caught:
        store.put("p=12:30/x", b"1")
    assert not caught.value.retryable
