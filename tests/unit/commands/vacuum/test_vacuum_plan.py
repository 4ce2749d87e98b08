"""What may go, by a table of cases: the pure middle of VACUUM."""

from __future__ import annotations

import polars as pl
import pytest

from pydelta.commands.vacuum.needed import CommitTimeline
from pydelta.commands.vacuum.paths import PlainPaths, decoded_paths
from pydelta.commands.vacuum.plan import (
    Names,
    PathIndex,
    PathSample,
    directories_above,
    doomed_files,
    nested_tables,
    outside,
    partition_of,
    split_checksums,
)

CUTOFF = 1_000_000


def doomed(*paths, needed=(), names=None, at=CUTOFF - 1):
    listed = pl.DataFrame({"path": paths, "size": [7] * len(paths), "modification_time": [at] * len(paths)})
    index = PathIndex(pl.Series(list(needed), dtype=pl.String))
    found = doomed_files(listed, index, cutoff_ms=CUTOFF, names=names or Names())
    return found["path"].to_list()


CASES = [
    # path, partition columns, whether it goes
    ("part-0.parquet", (), True),
    ("a=1/part-0.parquet", ("a",), True),
    ("a=1/_b=2/part-0.parquet", ("a", "_b"), True),
    ("_b=2/part-0.parquet", ("_b",), True),
    ("_b=2/part-0.parquet", ("b",), False),
    (".b=2/part-0.parquet", (".b",), True),
    ("_b.c=2/part-0.parquet", ("_b.c",), True),
    ("_bxc=2/part-0.parquet", ("_b.c",), False),  # a dot in a name is no pattern
    ("_delta_log/00000000000000000000.json", (), False),
    ("_delta_log/_sidecars/x.parquet", (), False),
    ("_delta_index/x.index", (), False),
    ("_pydelta/manifests.json", (), False),
    ("_symlink_format_manifest/manifest", (), False),
    ("_checkpoints/offsets/0", (), False),
    (".hidden", (), False),
    ("a=1/.hidden/part-0.parquet", ("a",), False),
    ("a=1/_SUCCESS", ("a",), False),
    ("_change_data/cdc-0.parquet", (), True),
    ("_change_data/a=1/cdc-0.parquet", ("a",), True),
    ("_change_data/_b=1/cdc-0.parquet", ("_b",), True),
    ("_change_data/_SUCCESS", (), False),
    ("a=1/_change_data/x.parquet", ("a",), False),
    ("_change_data_of_mine/x", (), False),
    ("deletion_vector_5f3f8b1c-0000-4000-8000-000000000000.bin", (), True),
    ("Qx/deletion_vector_5f3f8b1c-0000-4000-8000-000000000000.bin", (), True),
    ("stray folder/notes.txt", (), True),
    ("a=1/.part-0.parquet.crc", ("a",), True),  # Hadoop's checksum of a file
    ("a=1/._SUCCESS.crc", ("a",), False),
]


@pytest.mark.parametrize(("path", "columns", "goes"), CASES)
def test_a_name_says_whose_file_it_is(path, columns, goes):
    assert (doomed(path, names=Names(columns=columns)) == [path]) is goes


def test_needed_and_young_files_stay_and_a_checksum_stays_with_its_file():
    assert doomed("x", "y", needed=["x"]) == ["y"]
    assert doomed("x", at=CUTOFF) == []
    assert doomed("p/.x.crc", "p/.y.crc", "p/y", needed=["p/x"]) == ["p/.y.crc", "p/y"]
    assert doomed("metadata/v1.json", "data/metadata/x", names=Names(hidden=("metadata",))) == ["data/metadata/x"]
    frame = pl.DataFrame({"path": ["p/.y.crc", "p/y", "crc"]})
    files, checksums = split_checksums(frame)
    assert files["path"].to_list() == ["p/y", "crc"]
    assert checksums["path"].to_list() == ["p/.y.crc"]


def test_the_quick_look_never_takes_a_needed_path_for_garbage():
    paths = pl.Series([f"p={number}/x" for number in range(5000)])
    index = PathIndex(paths[::2])
    assert index.may_hold(paths).to_list() == [number % 2 == 0 for number in range(5000)]
    again = pl.concat([paths[:10], paths[10:]], rechunk=False).filter(paths != "")
    assert index.may_hold(again).to_list()[:3] == [True, False, True]
    assert PathIndex(pl.Series([], dtype=pl.String)).may_hold(paths[:2]).to_list() == [False, False]
    builder = PathIndex()
    for start in range(0, 5000, 700):
        builder.add(paths[start : start + 700].gather_every(2))
    assert builder.may_hold(paths).to_list() == index.may_hold(paths).to_list()


def test_a_sample_is_spread_over_all_that_went_by_and_stays_small():
    sample = PathSample(100)
    for start in range(0, 50_000, 1_000):
        sample.add(pl.Series([f"{number:05}" for number in range(start, start + 1_000)]))
    sample.add(pl.Series(["00000", "49999"]))
    chosen = sorted(int(path) for path in sample.paths)
    assert sample.count == 50_002
    assert len(chosen) == len(set(chosen)) == 100
    # A hundred evenly chosen ones: each quarter holds 25 of them on average, and hardly ever fewer than 10.
    assert all(sum(1 for path in chosen if low <= path < low + 12_500) >= 10 for low in range(0, 50_000, 12_500))
    few = PathSample(100)
    few.add(pl.Series(["b", "a", "b"]))
    assert sorted(few.paths) == ["a", "b"]


def test_a_walk_enters_what_may_hold_files_of_the_table():
    names = Names(columns=("a", "_b"), hidden=("metadata",))
    entered = ["a=1", "_b=1", "a=1/_b=1", "_change_data", "some", "some/table/_delta_log"]
    passed = ["_delta_log", "_pydelta", ".x", "_c=1", "metadata", "a=1/_temporary"]
    assert [path for path in entered + passed if names.enters(path)] == entered


def test_other_tables_below_are_left_alone():
    paths = pl.Series(["x", "_delta_log/0.json", "sub/t/_delta_log/0.json", "sub/t/y", "_delta_log/_delta_log/x"])
    assert nested_tables(paths) == {"sub/t"}
    frame = pl.DataFrame({"path": ["x", "sub/t/y", "sub/tt/y"]})
    assert outside(frame, {"sub/t"})["path"].to_list() == ["x", "sub/tt/y"]


def test_partitions_and_directories_of_paths():
    frame = pl.DataFrame({"path": ["x", "a=1/x", "a=1/b=x y/x", "_change_data/a=2/x", "z/a=1/x", "a=1"]})
    found = frame.select(partition_of(pl.col("path")))["path"].to_list()
    assert found == ["", "a=1", "a=1/b=x y", "a=2", "", ""]
    assert directories_above(pl.Series(["x", "a/b/c/x", "a/d/x"])) == {"a", "a/b", "a/b/c", "a/d"}


PATHS = [
    # root, spelling in the log, path under the root (None: elsewhere)
    ("file:///t", "p=1/x", "p=1/x"),
    ("file:///t", "p=a%20b/x", "p=a b/x"),
    ("file:///t", "p=a%253Ab/x", "p=a%3Ab/x"),
    ("file:///t", "p=%C3%A4/x", "p=ä/x"),
    ("file:///t%20u", "file:/t%20u/p=1/x", "p=1/x"),
    ("file:///t%20u", "file:///t%20u/p=a%2520b/x", "p=a%20b/x"),
    ("file:///t", "/t/p=1/x", "p=1/x"),
    ("file:///t", "/tt/p=1/x", None),
    ("s3a://b/t", "s3a://b/t/x", "x"),
    ("s3a://b/t", "s3://b/t/x%20y", "x y"),
    ("s3a://b/t", "s3a://b/u/x", None),
    ("abfss://c@a.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t/x", "x"),
    ("hdfs://nn:8020/t", "hdfs://nn/t/x", "x"),
    ("file:///tmp/t", "file:///tmp/../tmp/t/p=1/x", "p=1/x"),
    ("file:///tmp/t", "file:/tmp//t/./p=1//x", "p=1/x"),
    ("file:///tmp/t", "FILE://localhost/tmp/t/p=1/x", "p=1/x"),
    ("file:///tmp/t", "file:///tmp/%2E%2E/tmp/t/x", "x"),
    ("s3a://b/t", "S3N://b/t/x", "x"),
    ("s3a://b/t", "s3a://arn:aws:s3:eu-west-1:1:accesspoint/t/x", "x"),
    ("s3a://b/t", "s3a://b//t/x", "x"),
    ("s3a://b/t", "./p=1/x", "p=1/x"),
    ("s3a://b/t", "p=1//x", "p=1/x"),
    ("s3a://b/t", "p=2/../p=1/x", "p=1/x"),
    ("s3a://b/t", "p=2/%2E%2E/p=1/x", "p=1/x"),
    ("s3a://b/t", "p=a%0Ab/x", "p=a\nb/x"),
    ("s3a://b/t", "s3a://b/t/p=a%0Ab/x", "p=a\nb/x"),
    ("s3a://b/t", "p=100%/x", "p=100%/x"),
]


@pytest.mark.parametrize(("root", "spelling", "path"), PATHS)
def test_however_the_log_spells_a_path_the_file_is_found(root, spelling, path):
    found = PlainPaths(root).under(pl.Series([spelling])).to_list()
    if path is None:
        assert found == []
    else:
        assert path in found


def test_decoding_leaves_the_texts_that_it_was_given_alone():
    spelt = pl.Series(["a%20b", "%C3%A4", "c"])
    assert decoded_paths(spelt).to_list() == ["a b", "ä", "c"]
    assert spelt.to_list() == ["a%20b", "%C3%A4", "c"]
    assert set(PlainPaths("file:///t").under(pl.Series(["/t/%3A/x", "/t/y"]))) == {"%3A/x", ":/x", "y"}


MAYBE = [
    ("hdfs://nn/real/t", "viewfs://c/mnt/t/p=1/x", {"mnt/t/p=1/x", "t/p=1/x", "p=1/x", "x"}),
    ("hdfs://nn/real/t", "viewfs://c/mnt//t/./a%20b", {"mnt/t/a b", "t/a b", "a b", "mnt/t/a%20b", "t/a%20b", "a%20b"}),
    ("hdfs://nn/real/t", "hdfs://nn/real/t/x", set()),
    ("hdfs://nn/real/t", "p=1/x", set()),
]


@pytest.mark.parametrize(("root", "spelling", "expected"), MAYBE)
def test_a_location_by_an_unknown_name_may_be_each_end_of_its_path(root, spelling, expected):
    assert set(PlainPaths(root).maybe(pl.Series([spelling], dtype=pl.String))) == expected


def test_links_are_followed_above_and_below_the_root(tmp_path):
    real = tmp_path / "real" / "t"
    (real / "data" / "p=1").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "mount").symlink_to(real / "data")
    (real / "alias").symlink_to(real / "data" / "p=1")
    (real / "disk").symlink_to(tmp_path)
    places = PlainPaths((tmp_path / "link" / "t").as_uri())
    for spelling, expected in (
        (f"{real}/data/x", "data/x"),
        (f"file:{real}/data/x", "data/x"),
        (f"file:{tmp_path}/link/t/data/x", "data/x"),
        (f"file:{tmp_path}/mount/x", "data/x"),
        (f"file:{tmp_path}/mount/p=1/x", "data/p=1/x"),
        ("alias/x", "data/p=1/x"),
        ("disk/mount/x", "data/x"),
    ):
        assert expected in set(places.under(pl.Series([spelling]))), spelling
    assert set(places.under(pl.Series([f"{tmp_path}/elsewhere/x", "data/x"]))) == {"data/x"}


def test_a_timeline_tells_which_versions_must_stay_readable():
    line = CommitTimeline(versions=(3, 4, 5, 6), times_ms=(10, 20, 30, 40), newest=6)
    assert line.since(30) == (5, 6)
    assert line.before(30) == (3, 4)
    assert [line.is_retained(version, 30) for version in (2, 3, 4, 5, 6, 7)] == [False, False, True, True, True, False]
    assert line.is_retained(6, 1000)
