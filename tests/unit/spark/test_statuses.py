"""File columns -> Hadoop's wire form, decoded here by a small protobuf reader of the test's own."""

from __future__ import annotations

import struct

import polars as pl
import pytest

from pydelta.engines.spark.scan import statuses
from pydelta.engines.spark.scan.statuses import encode_statuses, encode_uris, file_uris
from pydelta.errors import LogCorruptedError
from pydelta.storage.uris import hadoop_uri


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at


def _messages(data: bytes) -> list[dict[int, int | bytes]]:
    found, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        at, end = at + 4, at + 4 + length
        message: dict[int, int | bytes] = {}
        while at < end:
            tag, at = _varint(data, at)
            if tag & 7 == 0:
                message[tag >> 3], at = _varint(data, at)
            else:
                size, at = _varint(data, at)
                message[tag >> 3], at = data[at : at + size], at + size
        assert at == end
        found.append(message)
    return found


def test_each_record_carries_path_size_time_and_owner(monkeypatch):
    monkeypatch.setattr(statuses, "_BLOCK", 2)
    uris = pl.Series(["s3a://b/t/a b.parquet", "s3a://b/t/ü%20", "s3a://b/t/" + "x" * 300])
    sizes, times = pl.Series([0, 127, 2**40]), pl.Series([1, 1_700_000_000_000, 2**41])
    data = b"".join(encode_statuses(uris, sizes, times, pl.Series([0, 7, 2**31 - 1])))
    messages = _messages(data)
    assert [m[2].decode() for m in messages] == uris.to_list()
    assert [m[3] for m in messages] == sizes.to_list()
    assert [m[7] for m in messages] == times.to_list()
    assert [int(m[5]) for m in messages] == [0, 7, 2**31 - 1]
    assert {m[1] for m in messages} == {2}
    assert {m[11] for m in messages} == {128 << 20}


def test_without_partitions_the_owner_is_empty():
    (message,) = _messages(b"".join(encode_statuses(pl.Series(["file:/t/a"]), pl.Series([5]), pl.Series([6]))))
    assert message[5] == b""


def test_no_files_give_no_blocks():
    assert list(encode_statuses(pl.Series([], dtype=pl.String), pl.Series([], dtype=pl.Int64), pl.Series([]))) == []


@pytest.mark.parametrize(
    ("logged", "uri"),
    [
        ("a.parquet", "file:/t/a.parquet"),
        ("p=a%20b/x.parquet", "file:/t/p=a b/x.parquet"),
        ("p=%2520/x.parquet", "file:/t/p=%20/x.parquet"),  # decoded once, not twice
        ("p=%c3%A9/x", "file:/t/p=é/x"),
        ("p=%5B%5d%25/x", "file:/t/p=[]%/x"),
        ("p=100%/x", "file:/t/p=100%/x"),
        ("file:///other/x.parquet", "file:/other/x.parquet"),
        ("file:/other/x%20y", "file:/other/x y"),
        ("/abs/x", "file:/abs/x"),
        ("s3://bucket/x", "s3://bucket/x"),
        ("a..b/x", "file:/t/a..b/x"),
    ],
)
def test_a_log_path_becomes_the_path_that_hadoop_opens(logged, uri):
    assert file_uris(pl.Series([logged]), "file:/t").to_list() == [uri]


def test_s3_spellings_follow_the_table():
    assert file_uris(pl.Series(["s3://b/x", "/k"]), "s3a://t/r").to_list() == ["s3a://b/x", "s3a://t/k"]


@pytest.mark.parametrize("path", ["../x", "a/../../x", "%2E%2E/x"])
def test_a_relative_path_that_leaves_the_table_is_refused(path):
    with pytest.raises(LogCorruptedError, match="outside the table"):
        file_uris(pl.Series([path]), "file:/t")


def test_the_root_of_a_local_table_is_decoded_and_others_are_left():
    assert hadoop_uri("file:///data/a%20b") == "file:/data/a b"
    assert hadoop_uri("s3a://bucket/a%20b/") == "s3a://bucket/a%20b"


def test_input_files_are_uri_encoded():
    assert encode_uris(pl.Series(["file:/t/a b%", "s3a://b/é"])) == ["file:///t/a%20b%25", "s3a://b/%C3%A9"]
