"""What the catalog's pages cost, and what they do with stores, engines and events that are slow, large or wrong."""

from __future__ import annotations

import datetime as dt
import json
import os
import threading
import time
import uuid

import pyarrow as pa
import pytest
from ui_catalog import HOSTILE, engines, event

import pydelta
from pydelta.errors import InvalidArgumentError, StorageError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.protocol.actions import AddFile, Protocol
from pydelta.settings.clock import Deadline
from pydelta.storage import LocalStore, MemoryStore, register_store
from pydelta.testing import CountingStore, TableBuilder
from pydelta.testing.operations import add_file, append, create_table
from pydelta.tools.lineage.folder import KEPT_DAYS, folder_of, into_folder
from pydelta.tools.lineage.runs import Emitter, emitter
from pydelta.tools.ui.catalog.engines import WatchedEngine, ask_engine
from pydelta.tools.ui.catalog.lineage import around, named_steps, read_lineage
from pydelta.tools.ui.catalog.preview import PreviewLimits, is_denied, read_rows
from pydelta.tools.ui.catalog.statistics import sum_columns
from pydelta.tools.ui.services import Service
from pydelta.tools.ui.sources import Sources
from pydelta.tools.ui.values import ShownPlace
from pydelta.tools.ui.watch import Watch, Watched

# --- rows ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A table with one file of some megabytes in one row group."""
    folder = tmp_path_factory.mktemp("large") / "t"
    rows = 300_000
    texts = [f"{number:09d}" * 5 for number in range(rows)]
    pydelta.LocalTable.create(str(folder), pa.table({"id": list(range(rows)), "text": texts}))
    return DeltaLog(LocalStore(folder.as_uri()))


def test_a_preview_reads_pages_of_a_large_file_and_not_its_columns(large):
    snapshot = large.update()
    found = read_rows(large, snapshot, PreviewLimits(rows=20))
    assert [row[0] for row in found.rows] == [str(number) for number in range(20)]
    assert found.limited is None
    assert found.read_bytes < 1_000_000 < snapshot.size_bytes / 3


def test_a_preview_stops_at_its_bytes_and_says_so(large):
    found = read_rows(large, large.update(), PreviewLimits(bytes=1000))
    assert found.rows == ()
    assert "More than 1000 bytes would have to be read." in found.limited
    assert found.read_bytes <= 1000


def test_a_preview_stops_when_its_time_has_passed(large):
    found = read_rows(large, large.update(), PreviewLimits(seconds=0.0))
    assert (found.rows, found.read_bytes) == ((), 0)
    assert "took longer than" in found.limited


def test_a_preview_of_many_files_reads_only_the_newest(tmp_path):
    table = pydelta.LocalTable.create(str(tmp_path), pa.table({"id": [0]}))
    for number in range(1, 30):
        table.append(pa.table({"id": [number]}))
    log = DeltaLog(CountingStore(LocalStore(tmp_path.as_uri())))
    found = read_rows(log, log.update(), PreviewLimits(rows=100))
    assert len(found.rows) == 20
    assert "Only the 20 newest files were read." in found.limited
    assert ("29",) in found.rows
    log.store.reset()
    read_rows(log, log.update(), PreviewLimits(rows=1))
    assert len({path for path in log.store.paths("read_range", "read") if path.endswith(".parquet")}) == 1


def test_a_preview_of_wide_tables_and_long_values_is_cut_and_counted(tmp_path):
    columns = {f"c{number}": ["x" * 5000] for number in range(60)}
    pydelta.LocalTable.create(str(tmp_path), pa.table(columns))
    log = DeltaLog(LocalStore(tmp_path.as_uri()))
    found = read_rows(log, log.update(), PreviewLimits())
    assert (len(found.columns), found.more_columns) == (50, 10)
    assert found.rows[0][0] == f"{'x' * 200}… (5000 characters)"
    tight = read_rows(log, log.update(), PreviewLimits(bytes=200_000))
    assert tight.rows == ()
    assert "larger than" in tight.limited


def test_what_only_spark_reads_is_refused_with_the_reason(tmp_path):
    table = TableBuilder(
        LocalStore(tmp_path.as_uri()), columns={"id": "long"}, properties={"delta.columnMapping.mode": "id"},
        protocol=Protocol(min_reader_version=2, min_writer_version=5),
    )  # fmt: skip
    table.commit(table.file(pa.table({"id": [1]})), operation="WRITE")
    snapshot = DeltaLog(LocalStore(tmp_path.as_uri())).update()
    with pytest.raises(UnsupportedFeatureError, match="mapped by id"):
        read_rows(DeltaLog(LocalStore(tmp_path.as_uri())), snapshot, PreviewLimits())


def test_a_file_that_is_gone_is_an_error_that_names_it(tmp_path):
    pydelta.LocalTable.create(str(tmp_path), pa.table({"id": [1]}))
    for path in tmp_path.glob("*.parquet"):
        path.unlink()
    log = DeltaLog(LocalStore(tmp_path.as_uri()))
    with pytest.raises(StorageError, match="part-"):
        read_rows(log, log.update(), PreviewLimits())


@pytest.mark.parametrize(
    ("value", "denied"), [("true", False), ("TRUE ", False), ("false", True), ("no", True), ("", True)]
)
def test_any_value_but_true_denies_a_preview(value, denied):
    assert is_denied({"pydelta.ui.preview": value}) is denied
    assert not is_denied({})


class SlowRows(CountingStore):
    """Answers no read of a data file until it may."""

    may = threading.Event()

    def read_range(self, path, start, length):
        if path.endswith(".parquet"):
            self.may.wait()
        return super().read_range(path, start, length)


def test_a_store_that_is_slow_with_rows_delays_no_other_page(monkeypatch):
    place = f"memory://{uuid.uuid4()}/t"
    register_store("uirows", lambda uri, options: SlowRows(MemoryStore(uri.replace("uirows:", "memory:"))))
    create_table(DeltaLog(MemoryStore(place)), [add_file("a", [1])])
    sources = Sources(tables=[f"slow={place.replace('memory:', 'uirows:')}"])
    watch = Watch(Watched(sources=sources, fresh=0, patience=0.2))
    while (table := watch.overview().table("slow")) is None or table.version is None:
        pass
    reads = []
    real = "pydelta.tools.ui.catalog.questions.read_rows"

    def slow(log, snapshot, limits):
        reads.append(1)
        SlowRows.may.wait()
        return read_rows(log, snapshot, limits)

    monkeypatch.setattr(real, slow)
    SlowRows.may.clear()
    try:
        for _ in range(5):
            with pytest.raises(TimeoutError):
                watch.questions.rows(table, 20)
        assert len(reads) == 1, "a read is not started again while it runs"
        assert watch.overview().table("slow").version == 0
        sums = watch.questions.sums(table)
        while sums.rows is None:
            sums = watch.questions.sums(table)
    finally:
        SlowRows.may.set()


# --- statistics ------------------------------------------------------------------------------------------------------


def many(tmp_path, files, stats):
    """A table of files that are only in the log."""
    table = TableBuilder(LocalStore(tmp_path.as_uri()), columns={"id": "long", "day": "string", "s": "string"},
                         partition_columns=["day"])  # fmt: skip
    adds = [
        AddFile(path=f"day={number % 7}/f{number}.parquet", partition_values={"day": str(number % 7)}, size=1,
                modification_time=1, data_change=True, stats=stats(number))
        for number in range(files)
    ]  # fmt: skip
    table.commit(*adds, operation="WRITE")
    return DeltaLog(LocalStore(tmp_path.as_uri())).update()


def one(number):
    return json.dumps(
        {"numRecords": 2, "minValues": {"id": number, "s": "a"}, "maxValues": {"id": number + 1, "s": "b"},
         "nullCount": {"id": 0, "s": 1}}
    )  # fmt: skip


def test_statistics_of_many_files_are_summed_in_slices(tmp_path, monkeypatch):
    snapshot = many(tmp_path, 30_000, one)
    asked = []
    real = type(snapshot.files).stats_columns

    def counted(files, frame, leaves):
        asked.append((frame.height, len(leaves)))
        return real(files, frame, leaves)

    monkeypatch.setattr(type(snapshot.files), "stats_columns", counted)
    found = sum_columns(snapshot, Deadline(None))
    assert (found.rows, found.limited) == (60_000, None)
    assert (found.columns["id"].low, found.columns["id"].high, found.columns["s"].nulls) == ("0", "30000", 30_000)
    assert (found.columns["day"].low, found.columns["day"].high, found.columns["day"].nulls) == ("0", "6", 0)
    slices = [height for height, leaves in asked if leaves]
    assert sum(slices) == 30_000, "each file is read once"
    assert slices[0] == 256
    assert len(asked) < 100, "in slices, however many files there are"


def test_slices_become_small_where_reading_is_slow(tmp_path, monkeypatch):
    snapshot = many(tmp_path, 3000, one)
    now = iter(range(10_000))
    monkeypatch.setattr("pydelta.tools.ui.catalog.statistics.time.monotonic", lambda: next(now) * 100.0)
    asked = []
    real = type(snapshot.files).stats_columns

    def counted(files, frame, leaves):
        asked.append(frame.height)
        return real(files, frame, leaves)

    monkeypatch.setattr(type(snapshot.files), "stats_columns", counted)
    assert sum_columns(snapshot, Deadline(None)).rows == 6000
    assert asked[:3] == [256, 64, 64]


def test_statistics_that_take_too_long_are_not_shown_in_part(tmp_path):
    found = sum_columns(many(tmp_path, 10, one), Deadline(0))
    assert (found.rows, found.columns) == (None, {})
    assert "were not summed up in time" in found.limited


def test_a_statistic_that_a_file_lacks_is_not_known_of_the_table(tmp_path):
    def stats(number):
        return one(number) if number else json.dumps({"numRecords": 2, "minValues": {"s": "a"}, "nullCount": {"s": 2}})

    found = sum_columns(many(tmp_path, 3, stats), Deadline(None))
    assert found.rows == 6
    assert (found.columns["id"].nulls, found.columns["id"].without, found.columns["id"].low) == (None, 1, None)
    assert (found.columns["s"].nulls, found.columns["s"].high) == (4, "b"), "a file of nulls needs no bound"


def test_without_any_statistics_nothing_is_known_but_partitions(tmp_path):
    found = sum_columns(many(tmp_path, 3, lambda _: None), Deadline(None))
    assert (found.rows, found.columns["id"].low, found.columns["id"].without) == (None, None, 3)
    assert found.columns["day"].high == "2"


def test_wide_tables_have_statistics_of_their_first_columns(tmp_path):
    pydelta.LocalTable.create(
        str(tmp_path), pa.table({f"c{number}": [1] for number in range(120)}),
        properties={"delta.dataSkippingNumIndexedCols": "-1"},
    )  # fmt: skip
    found = sum_columns(DeltaLog(LocalStore(tmp_path.as_uri())).update(), Deadline(None))
    assert len(found.columns) == 100
    assert "20 have none here" in found.limited


def test_columns_beyond_those_that_the_table_records_have_no_statistics(tmp_path):
    pydelta.LocalTable.create(str(tmp_path), pa.table({f"c{number}": [1] for number in range(40)}))
    found = sum_columns(DeltaLog(LocalStore(tmp_path.as_uri())).update(), Deadline(None))
    assert list(found.columns) == [f"c{number}" for number in range(32)]
    assert (found.limited, found.columns["c31"].low) == (None, "1")


# --- engines ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "Spark", "Spark=spark:8080", "Spark=tcp://h:1", "=http://h", "S=http://ada:hush@h/", "S=http://h:x/"]
)
def test_what_is_not_an_engine_is_refused_with_an_example(text):
    with pytest.raises(InvalidArgumentError) as failed:
        WatchedEngine.parse(text)
    assert "Spark=http://" in failed.value.hint
    assert "hush" not in str(failed.value)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (404, "HTTP status 404"),
        (403, "does not let the page look"),
        (302, "does not answer as|Expecting value"),
        (b"<html>no</html>", "Expecting value"),
        (b'{"a": 1}', "does not answer as Spark's master"),
        (b"[1]", "does not answer as Spark's master"),
        (b'[{"x": 1}]', "does not answer as Spark's master"),
        (b'{"activeapps": [{}], "completedapps": []}', "in an unknown form"),
        (b'[{"queryId": "q", "state": "RUNNING", "queryStats": {"createTime": "yesterday"}}]', "in an unknown form"),
        (b"[" + b" " * 9_000_000 + b"]", "more than 8.0 MiB"),
        (b"[" * 100_000, "maximum recursion depth"),
    ],
)
def test_an_engine_that_answers_otherwise_is_a_line_with_a_next_step(answer, says):
    with engines() as found:
        found.answers["/x"] = answer
        state = ask_engine(WatchedEngine.parse(found.option("Odd", "/x")), seconds=600)
    assert (state.ok, state.runs, bool(state.next)) == (False, (), True)
    assert any(part in state.said for part in says.split("|")), state.said
    assert "<html" not in state.said


def test_an_engine_that_does_not_answer_in_time_is_a_line():
    with engines() as found:
        found.may.clear()
        began = time.monotonic()
        state = ask_engine(WatchedEngine.parse(found.option("Slow", "/json/")), seconds=0.2)
        assert time.monotonic() - began < 30
    assert (state.ok, "has not answered within" in state.said) == (False, True)


def test_an_empty_engine_is_asked_as_the_page_and_has_no_runs():
    with engines() as found:
        found.answers["/v1/query"] = []
        state = ask_engine(WatchedEngine.parse(found.option("Trino", "/v1/query")), seconds=600)
        [headers] = found.headers
    assert (state.ok, state.runs) == (True, ())
    assert headers["X-Trino-User"] == headers["X-Presto-User"] == "status-page"


def test_a_worker_shows_memory_by_application_and_never_its_command():
    def executor(number, app, memory):
        command = "Command(org.apache.spark.executor.CoarseGrainedExecutorBackend, -Dfs.s3a.secret.key=hush)"
        desc = {
            "name": f"{app} {HOSTILE}",
            "cores": 2,
            "memoryperexecutor": memory,
            "user": "spark",
            "command": command,
        }
        return {"id": number, "memory": memory, "resources": {}, "appid": app, "appdesc": desc}

    answer = {
        "id": "worker-1", "cores": 4, "coresused": 3, "memory": 1600, "memoryused": 1536,
        "executors": [executor(0, "app-1", 512), executor(1, "app-1", 512), executor(0, "app-2", 512)],
        "finishedexecutors": [executor(0, "app-0", 512), executor(2, "app-1", 512)],
    }  # fmt: skip
    with engines() as found:
        found.answers["/json/"] = answer
        engine = WatchedEngine.parse(found.option("Spark", "/json/"))
        state = ask_engine(engine, seconds=600)
        answer["executors"] = answer["executors"][:2]
        alone = ask_engine(engine, seconds=600)
    assert (state.kind, state.cores_used) == ("Spark worker", 3)
    runs = {run.id: (run.state, run.cores, run.memory_bytes) for run in state.runs}
    assert runs == {
        "app-1": ("running", None, 1024 << 20), "app-2": ("running", None, 512 << 20), "app-0": ("ended", None, None)
    }  # fmt: skip
    assert {run.id: run.cores for run in alone.runs if run.state == "running"} == {"app-1": 3}
    assert "hush" not in repr(state)
    assert "Command" not in repr(state)


def test_what_the_master_says_may_come_from_a_file_that_is_kept_up_to_date(tmp_path):
    path = tmp_path / "cluster status.json"
    engine = WatchedEngine.parse(f"Spark={path.as_uri()}")
    gone = ask_engine(engine, seconds=1)
    assert (gone.ok, "No such file" in gone.said) == (False, True)
    with engines() as found:
        path.write_text(json.dumps(found.answers["/json/"]))
    state = ask_engine(engine, seconds=1)
    assert (state.kind, state.cores, len(state.runs)) == ("Spark", 4, 5)
    os.utime(path, (time.time() - 600, time.time() - 600))
    stale = ask_engine(engine, seconds=1)
    assert (stale.ok, "was written 10 min ago" in stale.said) == (False, True)
    os.truncate(path, 9_000_000)
    assert "more than 8.0 MiB" in ask_engine(engine, seconds=1).said


def test_a_service_that_is_an_application_is_known_by_the_master(tmp_path):
    path = tmp_path / "cluster.json"

    def write(*names):
        apps = [
            {"id": name, "name": name, "cores": 0, "starttime": 1, "duration": 1, "state": "RUNNING"} for name in names
        ]
        cluster = {"cores": 1, "coresused": 0, "memory": 1, "memoryused": 0, "activeapps": apps}
        path.write_text(json.dumps(cluster))

    services = [
        Service.parse("SQL server=application://sql-server,http://127.0.0.1:1/", optional=True),
        Service.parse("Needed=application://needed"),
    ]
    engine = WatchedEngine.parse(f"Spark={path.as_uri()}")
    watch = Watch(Watched(sources=Sources(), services=services, engines=[engine], fresh=0.0, patience=600))

    def shown():
        for job in watch._services:
            watch._jobs.settle([job], time.monotonic(), Deadline(600))
        return [(state.ok, state.said) for state in watch.overview().services]

    write("other")
    assert shown() == [(None, "not started"), (False, "does not run")]
    write("sql-server", "needed")
    assert shown() == [(True, "runs on the cluster"), (True, "runs on the cluster")]
    write()
    assert shown() == [(False, "does not run"), (False, "does not run")]
    path.unlink()
    assert shown() == [(False, "Spark's master does not list it")] * 2


# --- lineage ---------------------------------------------------------------------------------------------------------


def test_events_of_the_engine_go_into_a_folder_and_are_read_from_there(tmp_path, monkeypatch):
    folder, lake = tmp_path / "events", tmp_path / "lake" / "orders"
    monkeypatch.setenv("OPENLINEAGE_URL", folder.as_uri())
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", uuid.uuid4().hex)
    log = DeltaLog(LocalStore(lake.as_uri()))
    create_table(log, [add_file("a", [1, 2])])
    append("a", [3]).run(log)
    assert emitter().outbox.flush(600)
    [path] = folder.iterdir()
    assert path.name == f"events-{dt.datetime.now(dt.UTC).date()}.jsonl"
    assert path.stat().st_mode & 0o777 == 0o644
    found = read_lineage(str(folder))
    assert (found.events, found.unreadable, found.trouble) == (4, 0, None)
    assert {run.state for run in found.runs} == {"done"}
    steps = named_steps(found.steps, [ShownPlace(name="lake.orders", uri=log.uri)])
    assert {step.outputs for step in steps} == {("lake.orders",)}


def test_only_the_newest_events_are_read(tmp_path):
    for day in range(1, 4):
        sets = [("s3://b", f"i{day}")], [("s3://b", "o")]
        lines = [event("COMPLETE", f"job{day}", f"r{day}{number}", day * 86_400_000, *sets) for number in range(50)]
        path = tmp_path / f"events-2026-11-0{day}.jsonl"
        path.write_text("\n".join(lines) + "\n")
        os.utime(path, (day, day))
    size = (tmp_path / "events-2026-11-03.jsonl").stat().st_size
    found = read_lineage(str(tmp_path), most=size + size // 2)
    assert [step.job for step in found.steps] == ["job3", "job2"]
    assert found.steps[0].runs == 50
    assert 70 <= found.events < 80
    assert "Only the newest" in found.limited
    assert read_lineage(str(tmp_path)).events == 150


def test_a_folder_that_cannot_be_read_is_a_trouble_and_a_missing_one_has_no_events(tmp_path):
    assert read_lineage(str(tmp_path / "none")).events == 0
    found = read_lineage("nope://x/y")
    assert "no store for the scheme" in found.trouble.what
    assert found.trouble.next


@pytest.mark.parametrize(
    "line", ["", "{}", "[]", "null", '{"eventTime": "x"}', "\x00", "{" * 100_000, '{"run": {"runId": 7}}']
)
def test_lines_that_are_not_events_are_counted(tmp_path, line):
    (tmp_path / "a.jsonl").write_text(f"{line}\n{event('COMPLETE', 'job', 'r', 1000, [], [('s3://b', 't')])}\n")
    found = read_lineage(str(tmp_path))
    assert (found.events, found.unreadable) == (1, int(bool(line.strip("\x00")) or line == "\x00"))


def test_a_circle_of_jobs_ends():
    lines = [("a", "b"), ("b", "c"), ("c", "a")]
    from pydelta.tools.ui.catalog.facts import LineageStep

    steps = [LineageStep(job=f"{one}{two}", inputs=(one,), outputs=(two,)) for one, two in lines]
    before, after = around(steps, "a")
    assert [step.job for step in before] == ["ca", "bc", "ab"]
    assert [step.job for step in after] == ["ab", "bc", "ca"]


def test_old_files_of_events_are_deleted_and_no_others(tmp_path):
    names = [
        "events-2026-01-01.jsonl",
        "events-2026-10-26.jsonl",
        "events-2026-10-25.jsonl",
        "notes.txt",
        "events-x.jsonl",
    ]
    for name in names:
        (tmp_path / name).write_text("{}\n")
    append_line = into_folder(tmp_path, today=lambda: dt.date(2026, 11, 25))
    assert append_line(b'{"a": 1}') is None
    assert append_line(b'{"b": 2}') is None
    assert KEPT_DAYS == 30
    assert {path.name for path in tmp_path.iterdir()} == {
        "events-2026-10-26.jsonl", "notes.txt", "events-x.jsonl", "events-2026-11-25.jsonl"
    }  # fmt: skip
    assert (tmp_path / "events-2026-11-25.jsonl").read_text() == '{"a": 1}\n{"b": 2}\n'


def test_several_writers_share_a_file_line_by_line(tmp_path):
    line = b'{"x": "' + b"y" * 20_000 + b'"}'
    writers = [threading.Thread(target=lambda: [into_folder(tmp_path)(line) for _ in range(20)]) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    [path] = tmp_path.iterdir()
    assert path.read_bytes().splitlines() == [line] * 80


def test_a_folder_that_cannot_be_written_drops_events_and_fails_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OPENLINEAGE_URL", (tmp_path / "file" / "below").as_uri())
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", uuid.uuid4().hex)
    log = DeltaLog(MemoryStore(f"memory://{uuid.uuid4()}/t"))
    create_table(log, [add_file("a", [1])])
    assert emitter().outbox.flush(600)
    assert (emitter().outbox.sent, emitter().outbox.dropped) == (0, 2)


def test_a_day_s_file_has_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr("pydelta.tools.lineage.folder._MOST_BYTES", 20)
    append_line = into_folder(tmp_path, today=lambda: dt.date(2026, 11, 25))
    assert [append_line(b'{"a": 12345}'), append_line(b'{"a": 12345}')] == [None, "events-2026-11-25.jsonl is full"]


@pytest.mark.parametrize("url", ["file:", "file:///", "file://host/x", "file:relative"])
def test_a_url_that_is_not_a_folder_is_refused(url):
    with pytest.raises(InvalidArgumentError, match="OPENLINEAGE_URL is not the address of a folder") as failed:
        Emitter.of({"OPENLINEAGE_URL": url})
    assert "file:///" in failed.value.hint
    assert folder_of("file:///a%20b", name="X").as_posix() == "/a b"
