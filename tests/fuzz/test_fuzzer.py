"""The fuzzer finds a fault of each kind that is planted, shrinks its input, and finds none where there is none."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import pytest

from pydelta.storage import open_store
from tests.fuzz.child import Progress
from tests.fuzz.contract import PROJECT, Broken
from tests.fuzz.guarded import GuardedStore, lake_store, refuse_strays
from tests.fuzz.mutate import LARGEST, Mutator
from tests.fuzz.parent import Found, fuzz, keep, kept_inputs, replay


@pytest.mark.parametrize(
    ("name", "signature", "shrunk"),
    [
        ("planted-crash", "KeyError in planted.py:_crash", b"[["),
        ("planted-memory", "memory", b"@"),
        ("planted-stray", "Broken in contract.py:watching", b"@"),
        ("planted-abort", "killed by SIGABRT", b"@"),
        ("planted-hang", "hang: more processor time than the bound", b"@"),
    ],
)
def test_a_planted_fault_is_found_and_its_input_shrunk(name, signature, shrunk):
    found = {}
    for seed in range(10):  # a child that starts on a busy machine may have no time left for inputs
        found = {item.signature: item.data for item in fuzz(name, 2.5, seed).found}
        if found:
            break
    assert list(found) == [signature]
    assert shrunk in found[signature]
    assert len(found[signature]) <= 16


def test_a_child_that_dies_behind_an_input_leaves_it_to_be_kept(tmp_path):
    noted = Progress(tmp_path / "progress")
    assert noted.read() == (0, None, False, 0, 0)
    noted.begin(b"[1]")
    assert noted.read()[:3] == (1, b"[1]", True)
    noted.end()
    noted.begin(b"")
    noted.end()
    assert Progress(tmp_path / "progress").read()[:3] == (2, b"", False)


def test_where_no_fault_is_planted_none_is_found():
    report = fuzz("planted-none", 2.5, 1)
    assert report.found == []


def test_a_kept_input_is_replayed_with_the_same_verdict(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.fuzz.parent.FOUND", tmp_path / "found")
    monkeypatch.setattr("tests.fuzz.parent.KEPT", tmp_path / "kept")
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_bytes(b"[1]")
    bad.write_bytes(b"@")
    assert replay("planted-abort", [good, bad, good]) == [None, "killed by SIGABRT", None]
    path = keep(Found(target="planted-crash", signature="", text="", data=b"[[1]"))
    assert kept_inputs("planted-crash") == []
    (tmp_path / "found").rename(tmp_path / "kept")
    assert kept_inputs("planted-crash") == [path := tmp_path / "kept/planted-crash" / path.name]
    assert replay("planted-crash", [path]) == ["KeyError in planted.py:_crash"]


def test_a_read_outside_counts_unless_a_path_names_it(monkeypatch):
    monkeypatch.setattr("pydelta.storage.registry._REGISTERED", {})  # the process has other tests
    lake_store()
    refuse_strays("")
    assert open_store("s3a://other/u").head("x") is None
    refuse_strays('{"path":"s3a://other/u/x"}')
    with pytest.raises(Broken, match="read s3a://other/u/x"):
        refuse_strays('{"path":"x"}')
    lake_store()
    open_store("s3a://other/u").delete_many(["x"])
    with pytest.raises(Broken, match="changed s3a://other/u/x"):
        refuse_strays('{"path":"s3a://other/u/x"}')


def test_a_guarded_store_notes_what_is_done():
    store = GuardedStore("s3a://lake/t")
    store.put("a", b"x")
    store.read("a")
    store.delete_many(["a"])
    assert (store.writes, store.reads, store.deletes) == (["s3a://lake/t/a"],) * 3


@pytest.mark.parametrize("kind", ["bytes", "text", "json"])
def test_one_seed_draws_the_same_inputs(kind):
    data = json.dumps({"add": {"path": "x", "stats": '{"numRecords":1}'}}).encode()

    def drawn(seed: int) -> list[bytes]:
        mutator = Mutator(random.Random(seed), kind, [b"word"])
        return [mutator.change(data, [data]) for _ in range(200)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert max(map(len, drawn(1))) <= LARGEST
    assert len(set(drawn(1))) > 150


def test_a_failure_is_told_with_the_way_to_see_it_again(tmp_path):
    path = tmp_path / "input"
    path.write_bytes(b"long = 1 AND")
    command = [sys.executable, "-m", "tests.fuzz", "--target", "condition", "--replay", str(path)]
    done = subprocess.run(command, cwd=PROJECT, env=os.environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "The contract is kept.\n")
