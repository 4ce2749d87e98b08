"""The front door of the command line: what it takes itself, that it answers as Typer does, and what it imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from pydelta.api.cli import cli, entry
from pydelta.api.cli.entry import PlainHistory, parse_plain_history
from pydelta.log import DeltaLog
from pydelta.log.history import history_of_commits
from pydelta.protocol.actions import Action, AddFile, CommitInfo, Metadata, Protocol, encode_commit
from pydelta.storage import LocalStore

SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]})
STAMPED = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("inCommitTimestamp",))


def metadata(**properties: str) -> Metadata:
    return Metadata(
        id="t", schema_string=SCHEMA, configuration={f"delta.{name}": text for name, text in properties.items()}
    )


def add(number: int) -> AddFile:
    return AddFile(path=f"{number}.parquet", partition_values={}, size=10, modification_time=0, data_change=True)


def info(operation: str, **fields: object) -> CommitInfo:
    return CommitInfo({"timestamp": 1, "operation": operation, "operationParameters": {"mode": '"Append"'}, **fields})


def write(path, *commits: list[Action]) -> LocalStore:
    store = LocalStore(f"file://{path}")
    for version, actions in enumerate(commits):
        store.put_if_absent(f"_delta_log/{version:020d}.json", encode_commit(actions))
    return store


PLAIN = [
    [info("CREATE TABLE"), Protocol(min_reader_version=1, min_writer_version=2), metadata()],
    [info("WRITE"), add(1)],
    [add(2)],
]
TIMES_TURNED_ON = [
    [info("CREATE TABLE"), Protocol(min_reader_version=1, min_writer_version=2), metadata()],
    [
        info("SET TBLPROPERTIES", inCommitTimestamp=5_000),
        STAMPED,
        metadata(
            enableInCommitTimestamps="true",
            inCommitTimestampEnablementVersion="1",
            inCommitTimestampEnablementTimestamp="5000",
        ),
    ],
    [info("WRITE", inCommitTimestamp=7_000), add(1)],
]
TIMES_TURNED_OFF = [*TIMES_TURNED_ON, [info("SET TBLPROPERTIES"), metadata(enableInCommitTimestamps="false")]]


@pytest.fixture(autouse=True)
def no_logs_are_kept():
    yield
    DeltaLog.clear_cache()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("history t", PlainHistory(path="t")),
        ("history t --json", PlainHistory(path="t", as_json=True)),
        ("history --json -n 3 t", PlainHistory(path="t", as_json=True, limit=3)),
        ("history t --limit 3", PlainHistory(path="t", limit=3)),
        ("history t -o a=b=c --option d=", PlainHistory(path="t", options=(("a", "b=c"), ("d", "")))),
        ("", None),
        ("detail t", None),
        ("--help", None),
        ("history", None),
        ("history t u", None),
        ("history --help", None),
        ("history t --limit=3", None),
        ("history t -n3", None),
        ("history t -n 0", None),
        ("history t -n x", None),
        ("history t -n ²", None),
        ("history t -n", None),
        ("history t -o x", None),
        ("history t -o =x", None),
        ("history t -o", None),
        ("history -- t", None),
        ("history t --no-such", None),
    ],
)
def test_what_is_taken_without_typer(arguments, expected):
    assert parse_plain_history(arguments.split()) == expected


def said(capsys, main, arguments) -> tuple[int, str, str]:
    code = 0
    try:
        main(arguments)
    except SystemExit as stopped:
        code = stopped.code or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("more", [[], ["--json"], ["-n", "2"], ["--json", "--limit", "1"], ["-n", "0"], ["--no-such"]])
@pytest.mark.parametrize("commits", [PLAIN, TIMES_TURNED_ON, TIMES_TURNED_OFF])
def test_the_front_door_says_what_typer_and_the_whole_log_say(tmp_path, capsys, monkeypatch, commits, more):
    write(tmp_path, *commits)
    direct = said(capsys, entry.main, ["history", str(tmp_path), *more])
    monkeypatch.setattr("pydelta.log.history.history_of_commits", lambda *_, **__: None)
    assert direct == said(capsys, cli.main, ["history", str(tmp_path), *more])
    assert direct[1] or direct[0] == 2


@pytest.mark.parametrize("place", ["nothing", "no scheme:x"])
def test_a_place_without_a_table_is_refused_in_the_same_words(tmp_path, capsys, place):
    arguments = ["history", str(tmp_path / place)]
    code, out, err = said(capsys, entry.main, arguments)
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    assert (code, out, err) == said(capsys, cli.main, arguments)


def test_commits_alone_tell_the_history_of_a_log_that_has_all_of_them(tmp_path):
    store = write(tmp_path, *TIMES_TURNED_ON)
    found = history_of_commits(store, root=store.root)
    assert found == DeltaLog(store).history()
    assert [record.timestamp_ms for record in found[:2]] == [7_000, 5_000]


def test_a_log_cleaned_up_past_its_definition_is_left_to_the_checkpoint(tmp_path):
    store = write(tmp_path, *PLAIN)
    DeltaLog(store).checkpoint()
    store.delete_many([f"_delta_log/{0:020d}.json"])
    assert history_of_commits(store, root=store.root) is None
    assert len(DeltaLog(store).history()) == 2


@pytest.mark.parametrize("commits", [[], [PLAIN[1]]])
def test_a_log_without_a_definition_is_left_to_the_whole_reader(tmp_path, commits):
    store = write(tmp_path, *commits)
    assert history_of_commits(store, root=store.root) is None


def test_a_log_with_a_hole_or_a_damaged_commit_is_left_to_the_whole_reader(tmp_path):
    store = write(tmp_path, *PLAIN)
    store.put(f"_delta_log/{2:020d}.json", b'{"add":{')
    assert history_of_commits(store, root=store.root) is None
    store = write(tmp_path / "hole", *PLAIN)
    store.delete_many([f"_delta_log/{1:020d}.json"])
    assert history_of_commits(store, root=store.root) is None


def test_many_or_large_commits_are_left_to_the_whole_reader(tmp_path, monkeypatch):
    store = write(tmp_path, *PLAIN)
    monkeypatch.setattr("pydelta.log.history._SMALL_LOG_COMMITS", 2)
    assert history_of_commits(store, root=store.root) is None
    monkeypatch.setattr("pydelta.log.history._SMALL_LOG_COMMITS", 3)
    assert history_of_commits(store, root=store.root) is not None
    monkeypatch.setattr("pydelta.log.history._SMALL_LOG_BYTES", 100)
    assert history_of_commits(store, root=store.root) is None


def test_history_imports_only_what_it_needs(tmp_path):
    write(tmp_path, *TIMES_TURNED_ON)
    code = (
        "import sys, json\nfrom pydelta.api.cli.entry import main\n"
        f"main(['history', {str(tmp_path)!r}, '--json'])\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert len(json.loads(done.stdout)) == 3
    needless = {
        "pyspark", "py4j", "polars", "pyarrow", "pandas", "numpy", "lark", "typer", "pydantic", "rich", "obstore",
        "hdfs_native", "catalog_sync",
    }  # fmt: skip
    assert set(json.loads(done.stderr)) & needless == set()


def test_the_whole_command_line_imports_no_engine_before_a_command_asks():
    code = (
        "import sys, json\nimport pydelta.api.cli.cli\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) & {"pyspark", "py4j", "polars", "pyarrow", "pandas", "numpy", "lark"} == set()


@pytest.mark.parametrize("given", [None, "1"])
def test_arrow_takes_small_pages_unless_the_user_says_otherwise(tmp_path, monkeypatch, given):
    """Before Arrow is loaded: it asks once."""
    write(tmp_path, *PLAIN)
    monkeypatch.delenv("MIMALLOC_ALLOW_THP", raising=False)
    code = (
        "import os, sys\nfrom pydelta.api.cli.entry import main\nassert 'pyarrow' not in sys.modules\n"
        f"main(['history', {str(tmp_path)!r}, '--json'])\nprint(os.environ['MIMALLOC_ALLOW_THP'], file=sys.stderr)"
    )
    env = {**os.environ, **({} if given is None else {"MIMALLOC_ALLOW_THP": given})}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stderr.strip() == (given or "0")
