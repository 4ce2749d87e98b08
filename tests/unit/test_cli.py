"""The command line: its answers, its JSON, its errors, and that it starts no JVM."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest

from pydelta.api.cli.cli import main
from pydelta.api.console.command_line import given_time
from pydelta.errors import InvalidArgumentError
from pydelta.log import DeltaLog
from pydelta.protocol.actions import AddFile, CommitInfo, Metadata, Protocol, encode_commit
from pydelta.storage import LocalStore

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": False, "metadata": {}},
            {"name": "day", "type": "date", "nullable": True, "metadata": {}},
        ],
    }
)


def add(number: int, day: str) -> AddFile:
    return AddFile(
        path=f"day={day}/{number}.parquet", partition_values={"day": day}, size=10, modification_time=1_700_000_000_000,
        data_change=True,
        stats=json.dumps(
            {"numRecords": 5, "minValues": {"id": number}, "maxValues": {"id": number}, "nullCount": {"id": 0}}
        ),
    )  # fmt: skip


@pytest.fixture
def table(tmp_path):
    store = LocalStore(f"file://{tmp_path}")
    first = [
        CommitInfo({"timestamp": 1, "operation": "CREATE TABLE", "operationParameters": {"partitionBy": '["day"]'}}),
        Protocol(min_reader_version=1, min_writer_version=2),
        Metadata(id="t", schema_string=SCHEMA, partition_columns=("day",), configuration={"delta.appendOnly": "false"}),
        add(1, "2024-01-01"),
    ]
    second = [
        CommitInfo({"timestamp": 2, "operation": "WRITE", "operationMetrics": {"numFiles": "1"}}),
        add(2, "2024-01-02"),
    ]
    for version, actions in enumerate((first, second)):
        store.put_if_absent(f"_delta_log/{version:020d}.json", encode_commit(actions))
    yield str(tmp_path)
    DeltaLog.clear_cache()


def run(capsys, *argv: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


def run_json(capsys, *argv: str):
    code, out, err = run(capsys, *argv, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_history_shows_operations_newest_first(capsys, table):
    records = run_json(capsys, "history", table)
    assert [(record["version"], record["operation"]) for record in records] == [(1, "WRITE"), (0, "CREATE TABLE")]
    assert records[0]["operationMetrics"] == {"numFiles": "1"}
    assert records[0]["timestamp"].endswith("+00:00")
    assert len(run_json(capsys, "history", table, "--limit", "1")) == 1
    code, out, _ = run(capsys, "history", table)
    assert code == 0
    assert out.index("WRITE") < out.index("CREATE TABLE")


def test_detail_shows_size_features_and_schema(capsys, table):
    row = run_json(capsys, "detail", table)
    assert (row["version"], row["numFiles"], row["sizeInBytes"], row["partitionColumns"]) == (1, 2, 20, ["day"])
    assert row["properties"] == {"delta.appendOnly": "false"}
    assert [field["name"] for field in row["schema"]["fields"]] == ["id", "day"]
    assert run_json(capsys, "detail", table, "--version", "0")["numFiles"] == 1
    code, out, _ = run(capsys, "detail", table)
    assert code == 0
    assert "delta.appendOnly=false" in out
    assert "long" in out


def test_files_lists_what_may_match(capsys, table):
    assert [row["path"] for row in run_json(capsys, "files", table)] == [
        "day=2024-01-01/1.parquet",
        "day=2024-01-02/2.parquet",
    ]
    by_partition = run_json(capsys, "files", table, "--where", "day = '2024-01-02'")
    assert [row["partitionValues"] for row in by_partition] == [{"day": "2024-01-02"}]
    assert [row["stats"]["minValues"]["id"] for row in run_json(capsys, "files", table, "--where", "id < 2")] == [1]
    assert len(run_json(capsys, "files", table, "--limit", "1")) == 1
    code, out, _ = run(capsys, "files", table)
    assert code == 0
    assert "2 of 2 files, version 1" in out


def test_checkpoint_writes_one_and_says_where(capsys, table, tmp_path):
    row = run_json(capsys, "checkpoint", table)
    assert (row["version"], row["numAddFiles"]) == (1, 2)
    assert (tmp_path / row["path"]).exists()
    assert run(capsys, "checkpoint", table)[0] == 0


def test_cleanup_says_what_it_deleted(capsys, table):
    row = run_json(capsys, "cleanup", table)
    assert (row["deletedFiles"], row["oldestVersion"], row["failed"]) == (0, None, {})
    assert run(capsys, "cleanup", table)[0] == 0


def test_generate_publishes_and_says_what(capsys, table, tmp_path):
    row = run_json(capsys, "generate", table)
    assert (row["version"], row["previous"], row["files"], row["full"]) == (1, None, 2, True)
    manifest = tmp_path / "_symlink_format_manifest" / "day=2024-01-01" / "manifest"
    assert manifest.read_text() == f"file://{tmp_path}/day=2024-01-01/1.parquet\n"
    code, out, _ = run(capsys, "generate", table)
    assert (code, out) == (0, "The manifests are already at version 1.\n")


def test_generate_verifies_and_fails_with_the_code_of_a_check(capsys, table, tmp_path):
    run(capsys, "generate", table)
    code, _, err = run(capsys, "generate", table, "--verify")
    assert code == 4
    assert "absent files: day=2024-01-02/2.parquet" in err
    for number in (1, 2):
        folder = tmp_path / f"day=2024-01-0{number}"
        folder.mkdir()
        (folder / f"{number}.parquet").write_bytes(b"data")
    assert run_json(capsys, "generate", table, "--verify")["verified"]["ok"] is True


@pytest.mark.parametrize("command", ["history", "detail", "files", "checkpoint", "cleanup", "generate"])
def test_no_table_is_an_error_with_a_next_step_and_no_traceback(capsys, tmp_path, command: str):
    code, out, err = run(capsys, command, str(tmp_path))
    assert (code, out) == (1, "")
    assert "DELTA_TABLE_NOT_FOUND" in err
    assert str(tmp_path) in err
    assert "Next:" in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (["files", "--where", "bogus = 1"], "The columns are: id, day"),
        (["files", "--where", "id = "], "^"),
        (["detail", "--version", "7"], "versions 0 to 1"),
        (["detail", "--timestamp", "soon"], "'soon' is not a time"),
        (["detail", "--timestamp", "1999-01-01"], "before the oldest version"),
        (["detail", "--version", "0", "--timestamp", "2024-01-01"], "exclude each other"),
        (["history", "--option", "fs.s3a.endpoint"], "NAME=VALUE"),
    ],
)
def test_what_a_user_gets_wrong_is_said_with_a_next_step(capsys, table, argv: list[str], found: str):
    code, out, err = run(capsys, *argv, table)
    assert (code, out) == (1, "")
    assert found in err
    assert "Next:" in err
    assert "Traceback" not in err


def test_a_value_of_an_option_is_never_shown(capsys, table):
    _, out, err = run(capsys, "history", table, "--option", "=hush-hush")
    assert "hush-hush" not in out + err


def test_arguments_that_make_no_sense_are_usage_errors(capsys):
    assert run(capsys, "frobnicate")[0] == 2
    assert run(capsys, "history")[0] == 2


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("1970-01-02", 86_400_000), ("1970-01-01T00:00:01.5", 1_500), ("1970-01-01 01:00:00+01:00", 0)],
)
def test_times(text: str, expected_ms: int):
    assert given_time(text) == expected_ms


def test_no_time():
    with pytest.raises(InvalidArgumentError):
        given_time("yesterday")


def test_a_process_answers_without_a_jvm_and_quickly(table):
    code = (
        "import sys; sys.modules['pyspark'] = None; sys.modules['py4j'] = None\n"
        f"from pydelta.api.cli.cli import main\nmain(['detail', {table!r}, '--json'])"
    )
    libraries = "import polars, pyarrow.parquet, pyarrow.dataset, typer"
    spent, needed = [], []
    for _ in range(3):  # the best of three, and of processor time, since other processes share the machine
        for seconds, what in ((spent, code), (needed, libraries)):
            started = _children_seconds()
            done = subprocess.run([sys.executable, "-c", what], capture_output=True, text=True, check=False)
            seconds.append(_children_seconds() - started)
            assert done.returncode == 0, done.stderr
            if what is code:
                assert json.loads(done.stdout)["numFiles"] == 2
    # most of it is what the libraries take to be imported, however fast the machine is
    assert min(spent) < 3 * min(needed), (spent, needed)


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_statistics_that_are_none_are_shown_as_missing(capsys, table):
    odd = [add(number, "2024-01-03").replace(stats=text) for number, text in ((8, "{broken"), (9, "[1]"))]
    data = encode_commit([CommitInfo({"operation": "WRITE"}), *odd])
    LocalStore(f"file://{table}").put(f"_delta_log/{2:020d}.json", data)
    assert [row["stats"] is None for row in run_json(capsys, "files", table)] == [False, False, True, True]
