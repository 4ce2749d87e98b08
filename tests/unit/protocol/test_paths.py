"""Paths of the log: which are absolute, and that one decoding leads to the file, whatever its name."""

from __future__ import annotations

import polars as pl
import pytest

from pydelta.errors import LogCorruptedError
from pydelta.protocol.paths import (
    LAST_CHECKPOINT,
    LOG_DIR,
    SIDECAR_DIR,
    DecodedPath,
    LogFile,
    LogFileKind,
    are_absolute,
    checkpoint_file,
    checksum_file,
    commit_file,
    compacted_file,
    decode_log_path,
    decoded_paths,
    encode_log_path,
    is_absolute_path,
    multipart_file,
    parse_log_name,
    plain_root,
    resolve_data_path,
    v2_checkpoint_file,
)

RELATIVE = (
    "x", "p=1/x", "export-2024-01-01T10:00:00.parquet", "C:x.parquet", "file:x", "s3:b.parquet", "a:", "p=10:00/x",
    "p=a:/x", "1a:/x", "C%3A/x", "file%3A/x", "a%3A//b/x", "", "%25", "-:/x", "ä:/x",
)  # fmt: skip
ABSOLUTE = ("/x", "//h/x", "file:/x", "file:///x", "S3a://b/x", "a+b-c.d:/x", "C:/x", "a://b/x", "%2Fx", "%2fx")


@pytest.mark.parametrize("path", RELATIVE)
def test_a_colon_without_a_slash_behind_it_makes_no_scheme(path):
    assert not is_absolute_path(path)
    assert decode_log_path(path).place("file:///t") == (None, decode_log_path(path).text)


@pytest.mark.parametrize("path", ABSOLUTE)
def test_a_scheme_with_a_slash_or_a_leading_slash_is_absolute(path):
    assert is_absolute_path(path)


def test_many_paths_are_judged_and_decoded_as_one_is():
    paths = [
        *RELATIVE,
        *ABSOLUTE,
        *(f"%{code:02{case}}" for code in range(256) for case in "xX"),
        "%zz%4",
        "%E2%82%AC%",
    ]
    series = pl.Series(paths)
    assert are_absolute(series).to_list() == [is_absolute_path(path) for path in paths]
    assert decoded_paths(series).to_list() == [decode_log_path(path).text for path in paths]
    assert series.to_list() == paths, "what was given stays as it is"
    assert decoded_paths(pl.Series(["a", "b"])).to_list() == ["a", "b"]


@pytest.mark.parametrize(
    ("path", "root", "identity", "place"),
    [
        ("a%2520b", "file:///t%2520", "a%20b", (None, "a%20b")),
        ("file:/t%2520/x", "file:///t%2520", "file:///t%20/x", (None, "x")),
        ("FILE:///t%2520/x", "file:///t%2520", "file:///t%20/x", (None, "x")),
        ("file://localhost/t/x", "file:///t", "file:///t/x", (None, "x")),
        ("file://localhosts/t/x", "file:///t", "file:///localhosts/t/x", ("file:///localhosts/t", "x")),
        ("/t/x", "file:///t", "file:///t/x", (None, "x")),
        ("//t/x", "file:///t", "file:///t/x", (None, "x")),
        ("%2Ft/x", "file:///t", "file:///t/x", (None, "x")),
        ("/k/x", "s3a://b/t", "s3a://b/k/x", ("s3a://b/k", "x")),
        ("S3A://b/t/x", "s3a://b/t", "s3a://b/t/x", (None, "x")),
        ("file:/p%2525q/a%2541/x%2542", "file:///t", "file:///p%25q/a%41/x%42", ("file:///p%2525q/a%2541", "x%42")),
        ("file:/p%20q%23/x", "s3a://b/t", "file:///p q#/x", ("file:///p%20q%23", "x")),
        ("s3a://c/a%2541/x%2542", "s3a://b/t", "s3a://c/a%41/x%42", ("s3a://c/a%41", "x%42")),
        ("s3a://b/t%2541/x", "s3a://b/t%41", "s3a://b/t%41/x", (None, "x")),
        ("C:/x", "file:///t", "c:/x", ("c:", "x")),
        ("FILE:/t/x:y", "file:///t", "file:///t/x:y", (None, "x:y")),
        ("s3a://c/x:y", "s3a://b/t", "s3a://c/x:y", ("s3a://c", "x:y")),
        ("/k", "s3a://b/a://c", "s3a://b/k", ("s3a://b", "k")),
    ],
)
def test_a_file_is_found_where_its_path_decoded_once_says(path, root, identity, place):
    decoded = decode_log_path(path)
    assert decoded.identity(root) == identity
    assert decoded.place(root) == place


@pytest.mark.parametrize("path", ["../x", "a/../../x", "..", "%2E%2E/x", "a%2F..%2F..%2Fx"])
def test_a_relative_path_does_not_leave_the_table(path):
    with pytest.raises(LogCorruptedError, match="outside the table"):
        decode_log_path(path).place("file:///t")
    with pytest.raises(LogCorruptedError, match="outside the table"):
        resolve_data_path("s3a://b/t", path)


def test_names_with_dots_that_lead_nowhere_are_names():
    assert resolve_data_path("file:///t%20", "..x/x..") == "file:///t /..x/x.."


def test_what_is_written_reads_as_one_name_in_the_table():
    for name in ("C:", "C:x", "a://b", "file:", "%25", "#?&+", "a b", "\u00e9", "e\u0301", ":a/b:c", "\\", "\n"):
        spelt = encode_log_path(name)
        assert decode_log_path(spelt) == DecodedPath(name, is_absolute=False)
        assert ":" not in spelt.partition("/")[0], "Java takes what is before it for a scheme"
    assert encode_log_path("a:b/c:d") == "a%3Ab/c:d"


@pytest.mark.parametrize(
    ("root", "plain"),
    [("file:///a%2520b", "file:///a%20b/"), ("s3a://b/a%20b/", "s3a://b/a%20b/"), ("file:///", "file:///")],
)
def test_a_root_is_decoded_only_where_it_is_spelt_escaped(root, plain):
    assert plain_root(root) == plain


UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
V = "0" * 18 + "42"
LOG_FILES = (
    (commit_file(42), f"{V}.json", LogFileKind.COMMIT, {}),
    (checksum_file(42), f"{V}.crc", LogFileKind.CHECKSUM, {}),
    (checkpoint_file(42), f"{V}.checkpoint.parquet", LogFileKind.CHECKPOINT_CLASSIC, {}),
    (
        multipart_file(42, 3, 7), f"{V}.checkpoint.0000000003.0000000007.parquet", LogFileKind.CHECKPOINT_PART,
        {"part": 3, "parts": 7},
    ),
    (v2_checkpoint_file(42, UUID), f"{V}.checkpoint.{UUID}.parquet", LogFileKind.CHECKPOINT_V2, {"uuid": UUID}),
    (v2_checkpoint_file(42, UUID, "json"), f"{V}.checkpoint.{UUID}.json", LogFileKind.CHECKPOINT_V2, {"uuid": UUID}),
    (compacted_file(42, 50), f"{V}.{50:020d}.compacted.json", LogFileKind.COMPACTED, {"end_version": 50}),
)  # fmt: skip


@pytest.mark.parametrize(("made", "name", "kind", "more"), LOG_FILES)
def test_a_file_of_the_log_is_named_and_read_by_the_protocols_name(made, name, kind, more):
    assert made == name
    assert parse_log_name(name) == LogFile(kind=kind, version=42, name=name, **more)
    for other in (f"{name}.tmp", f".{name}", name[1:], name.replace("42", "4x"), f"{name}\n"):
        assert parse_log_name(other) is None


def test_the_places_of_the_log_are_the_protocols():
    assert (LOG_DIR, SIDECAR_DIR, LAST_CHECKPOINT) == ("_delta_log", "_delta_log/_sidecars", "_last_checkpoint")
    assert [kind.value for kind in LogFileKind] == [
        "commit", "classic checkpoint", "part of a checkpoint", "V2 checkpoint", "compacted commits",
        "version checksum",
    ]  # fmt: skip
