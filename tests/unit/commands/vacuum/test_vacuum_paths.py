"""Spellings of paths and the files that they may mean: too many rather than too few."""

from __future__ import annotations

import os

import polars as pl
import pytest

from pydelta.commands.vacuum.paths import PlainPaths, decoded_paths


def series(*paths):
    return pl.Series(list(paths), dtype=pl.String)


def under(places, *paths, **how):
    found = places.under(series(*paths), **how).to_list()
    assert len(found) == len(set(found)), "each once"
    return set(found)


def maybe(places, *paths):
    found = places.maybe(series(*paths)).to_list()
    assert len(found) == len(set(found)), "each once"
    return set(found)


@pytest.mark.parametrize("case", ["X", "x"])
def test_every_escape_is_decoded_wherever_it_stands(case):
    codes = range(0x80)
    escaped = [format(code, f"02{case}") for code in codes]
    spelt = series("plain", *(f"a%{code}b" for code in escaped), "100%", "%C3%A4", "end", "%zz")
    plain = ["plain", *(f"a{chr(code)}b" for code in codes), "100%", "\u00e4", "end", "%zz"]
    assert decoded_paths(spelt).to_list() == plain
    assert decoded_paths(series("x", "y")).to_list() == ["x", "y"]
    assert decoded_paths(series("%2520")).to_list() == ["%20"]


def test_of_a_deep_location_as_many_ends_are_taken_as_any_table_is_deep():
    names = [f"d{number}" for number in range(40)]
    found = maybe(PlainPaths("hdfs://nn/t"), "viewfs://c/" + "/".join(names))
    assert found == {"/".join(names[start:]) for start in range(32)}


def test_locations_of_all_kinds_at_once():
    places = PlainPaths("s3a://b/t")
    assert under(places) == set()
    assert under(places, "a%20b", "s3://b/t/c%20d", "s3://b/t//e", "s3://b/u/f", "g") == {
        "a%20b", "a b", "c%20d", "c d", "e", "/e", "g"
    }  # fmt: skip
    assert under(places, "a%20b", "x%2E/./y", escaped=False) == {"a%20b", "x%2E/./y", "x%2E/y"}
    assert under(places, "s3://b/t/a%20b", escaped=False) == {"a%20b", "a b"}
    assert under(places, "s3://b/t/a%2520b", escaped=False) == {"a%2520b", "a%20b"}
    assert under(places, "a", "a", "./a") == {"a", "./a"}


def test_where_it_is_not_known_which_root_is_meant():
    places = PlainPaths("hdfs://nn/real/t")
    assert maybe(places) == set()
    assert maybe(places, "p=1/x") == set()
    assert maybe(places, "viewfs://c/x", "p=1/y", "hdfs://nn/real/t/z") == {"x"}
    assert maybe(places, "viewfs://c/a/x", "viewfs://c/b/x") == {"a/x", "b/x", "x"}
    assert maybe(places, "viewfs://c/a/") == {"a/"}


def test_a_relative_path_is_not_looked_for_elsewhere():
    assert under(PlainPaths("file:///t"), "t/x", "/t/y") == {"t/x", "y"}


def test_a_root_by_either_of_its_names_is_no_unknown_root(tmp_path):
    (tmp_path / "real" / "t").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    local = PlainPaths((tmp_path / "link" / "t").as_uri())
    assert maybe(local, f"file:{tmp_path}/link/t/x", f"{tmp_path}/real/t/y") == set()
    elsewhere = PlainPaths(f"hdfs://nn{tmp_path}/link/t")  # what lies on this machine's disk is another matter
    assert "y" in maybe(elsewhere, f"hdfs://nn{tmp_path}/real/t/y")
    assert under(elsewhere, f"hdfs://nn{tmp_path}/real/t/y") == set()
    by_its_real_name = PlainPaths(f"hdfs://nn{tmp_path}/real/t")
    assert under(by_its_real_name, f"hdfs://nn{tmp_path}/link/t/y") == set()
    (tmp_path / "real" / "t" / "alias").symlink_to(tmp_path / "real" / "t" / "a")
    assert under(by_its_real_name, "alias/x") == {"alias/x"}


def test_links_below_a_root_among_other_folders(tmp_path):
    root = tmp_path / "t"
    (root / "a" / "b").mkdir(parents=True)
    (tmp_path / "beside-the-table-with-a-long-name").mkdir()
    (root / "alias").symlink_to(root / "a")
    (root / "out").symlink_to(tmp_path / "beside-the-table-with-a-long-name")
    local = PlainPaths(root.as_uri())
    assert under(local, "x", "alias/b/y", "a/b/y", "a/z") == {"x", "alias/b/y", "a/b/y", "a/z"}
    assert under(local, "alias/y", "a/z", "x") == {"alias/y", "a/y", "a/z", "x"}
    assert under(local, "out/y") == {"out/y"}
    (root / "a" / "up").symlink_to(root)
    assert under(local, "a/up/y") == {"a/up/y", "y"}, "a link to the root itself"
    assert under(local, "C:x", "file:x", "p=1/a\0b/x") == {"C:x", "file:x", "p=1/a\0b/x"}
    assert under(local, "C:/x", "%2Fx") >= {"C:/x", "/x"}, "either reading keeps a file"


def test_what_is_looked_at_once_is_not_looked_at_again(tmp_path, monkeypatch):
    root = tmp_path / "t"
    (root / "a" / "b").mkdir(parents=True)
    places = PlainPaths(root.as_uri())
    looked = []
    is_link = os.path.islink
    monkeypatch.setattr(os.path, "islink", lambda path: looked.append(path) or is_link(path))
    for _ in range(2):
        assert under(places, *(f"a/b/{number}" for number in range(5))) == {f"a/b/{number}" for number in range(5)}
    assert len(looked) == len(set(looked)) > 2
