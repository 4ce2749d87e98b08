"""``pydelta create|overwrite|restore|clone``: what they do, say and return, with no JVM."""

from __future__ import annotations

import json

import polars as pl
import pytest

import pydelta
from pydelta.api.cli.cli import main
from pydelta.log import DeltaLog


@pytest.fixture
def lake(tmp_path):
    for name, ids in (("rows", [1, 2, 3]), ("more", [2, 2])):
        pl.DataFrame({"id": ids, "p": ["a", "b", "b"][: len(ids)]}).write_parquet(tmp_path / f"{name}.parquet")
    yield tmp_path
    DeltaLog.clear_cache()


def run(capsys, *argv):
    with pytest.raises(SystemExit) as stopped:
        main([*map(str, argv)])
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


def ids(path):
    return sorted(pydelta.open(str(path)).scan(columns=["id"]).column("id").to_pylist())


def test_a_table_is_created_from_a_file_and_changed_as_python_does_it(capsys, lake):
    table = lake / "t"
    code, out, err = run(
        capsys, "create", table, lake / "rows.parquet", "--partition-by", "p", "--property", "owner=me", "--json"
    )
    assert (code, json.loads(out)["version"], json.loads(out)["files"], err) == (0, 0, 2, "")
    same = pydelta.LocalTable.create(
        str(lake / "py"), pl.read_parquet(lake / "rows.parquet"), partition_by=["p"], properties={"owner": "me"}
    )
    created = pydelta.open(str(table))
    assert created.schema == same.schema
    assert created.detail()["properties"] == same.detail()["properties"]
    assert created.history()[0]["operationParameters"] == same.history()[0]["operationParameters"]

    code, out, _ = run(capsys, "overwrite", table, lake / "more.parquet", "--where", "id = 2")
    assert (code, out) == (0, "Overwritten in version 1: 2 rows added, 3 files added, 1 files removed.\n")
    same.overwrite(pl.read_parquet(lake / "more.parquet"), "id = 2")
    assert ids(table) == ids(lake / "py") == [1, 2, 2, 3]

    code, out, _ = run(capsys, "restore", table, "--version", "0", "--json")
    assert (code, json.loads(out)["version"], ids(table)) == (0, 2, [1, 2, 3])
    code, out, _ = run(capsys, "restore", table, "--timestamp", created.history()[1]["timestamp"].isoformat())
    assert (code, ids(table)) == (0, [1, 2, 2, 3])

    code, out, _ = run(capsys, "clone", table, lake / "c", "--version", "0", "--property", "copy=1")
    assert (code, out.startswith("Cloned in version 0: 2 files"), ids(lake / "c")) == (0, True, [1, 2, 3])
    assert run(capsys, "clone", table, lake / "s", "--shallow")[0] == 0
    assert pydelta.open(str(lake / "s")).detail()["numFiles"] == 4


def test_a_table_of_columns_takes_rows_of_text(capsys, lake):
    columns = ["--column", "id bigint", "--column", "price decimal(10, 2)"]
    assert run(capsys, "create", lake / "t", *columns)[:2] == (0, "The table is in version 0: 0 files, 0 bytes.\n")
    (lake / "rows.csv").write_text("id,price\n1,2.50\n")
    assert run(capsys, "overwrite", lake / "t", lake / "rows.csv", "-w", "id = 1")[0] == 0
    assert ids(lake / "t") == [1]
    (lake / "rows.csv").write_text("id,price\n2,2.50\n")
    code, _, err = run(capsys, "overwrite", lake / "t", lake / "rows.csv", "-w", "id = 1")
    assert (code, "do not satisfy" in err, ids(lake / "t")) == (1, True, [1])
    assert run(capsys, "create", lake / "t", *columns, "--mode", "ignore")[0] == 0
    assert run(capsys, "create", lake / "t", *columns, "--mode", "replace")[0] == 0
    assert ids(lake / "t") == []


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["create", "{new}"], "either a file of rows or columns"),
        (["create", "{new}", "{rows}", "--column", "id int"], "either a file of rows or columns"),
        (["create", "{new}", "--column", "id"], "has no type"),
        (["create", "{new}", "--column", "id int", "--column", "id long"], "given twice"),
        (["create", "{new}", "--column", "id nothing"], "'id' is nothing"),
        (["create", "{new}", "{rows}", "--format", "csv"], "has no types"),
        (["create", "{new}", "{rows}", "--property", "delta.appendOnli=true"], "appendOnly"),
        (["create", "{new}", "{rows}", "--mode", "append"], "no mode 'append'"),
        (["create", "{table}", "{rows}"], "There is a Delta table"),
        (["overwrite", "{new}", "{rows}"], "There is no Delta table"),
        (["overwrite", "{table}", "{rows}", "--where", "id = 9"], "do not satisfy"),
        (["restore", "{table}"], "either a version or a timestamp"),
        (["restore", "{table}", "--version", "9"], "Version 9"),
        (["restore", "{table}", "--timestamp", "yesterday"], "not a time"),
        (["restore", "{new}", "--version", "0"], "There is no Delta table"),
        (["clone", "{table}", "{table}"], "itself"),
        (["clone", "{table}", "{new}", "--version", "9"], "Version 9"),
        (["clone", "{table}", "{new}", "--version", "0", "--timestamp", "2024-01-01"], "Give one of them"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_wrong_arguments_exit_with_1_and_a_hint(capsys, lake, argv, words):
    table = lake / "t"
    pydelta.LocalTable.create(str(table), pl.read_parquet(lake / "rows.parquet"))
    names = {"table": table, "new": lake / "new", "rows": lake / "rows.parquet"}
    code, out, err = run(capsys, *[word.format(**names) for word in argv])
    assert (code, out) == (1, "")
    assert words in err
    assert "Next: " in err
    assert pydelta.open(str(table)).version == 0


def test_a_record_index_is_made_refreshed_and_dropped(capsys, lake):
    table = lake / "t"
    assert run(capsys, "create", table, lake / "rows.parquet")[0] == 0
    code, out, err = run(capsys, "index", table, "--columns", "id", "--columns", "p")
    assert (code, out.partition(":")[0], err) == (0, "The record index on id, p covers version 0", "")
    assert "1 files covered, 1 files indexed, 0 files skipped, 1 segments" in out
    assert run(capsys, "append", table, lake / "more.parquet")[0] == 0
    code, out, _ = run(capsys, "index", table, "--json")
    assert (code, json.loads(out)["filesCovered"], json.loads(out)["filesIndexed"]) == (0, 2, 1)
    code, _, err = run(capsys, "index", table, "--columns", "id")
    assert (code, "already has a record index on id, p" in err) == (1, True)
    code, _, err = run(capsys, "index", table, "--columns", "id", "--drop")
    assert (code, "--drop takes no columns" in err) == (1, True)
    assert run(capsys, "index", table, "--drop")[1] == "Dropped the record index: 2 objects deleted.\n"
    code, _, err = run(capsys, "index", table)
    assert (code, "pydelta index TABLE --columns id" in err) == (1, True)
