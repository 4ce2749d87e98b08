"""Manifests and their checksums; which table a key lies in; how keys are encoded."""

from __future__ import annotations

import json
from urllib.parse import quote_plus, unquote_plus

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydelta.errors import InvalidArgumentError
from pydelta.storage.uris import bucket_of
from pydelta.tools.inventory.manifest import (
    DeliveredFile,
    InventoryManifest,
    decode_manifest,
    delivery_stamp,
    encode_manifest,
    md5_hex,
    verified_manifest,
)
from pydelta.tools.inventory.rows import decode_keys, encode_keys
from pydelta.tools.inventory.split import prefixes_in, with_longest_prefix

FILE = DeliveredFile(key="inv/lake/all/data/a b.parquet", size=12, md5="0" * 32)

AWS = """{
  "sourceBucket": "lake",
  "destinationBucket": "arn:aws:s3:::reports",
  "version": "2016-11-30",
  "creationTimestamp" : "1514944800000",
  "fileFormat": "CSV",
  "fileSchema": "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag, StorageClass",
  "files": [{"key": "r/lake/all/data/1.csv.gz", "size": 2147483747, "MD5checksum": "F11166069F1990ABEB9C97ACE9CDFABC"}]
}"""


def manifest(**changes):
    fields = {"source_bucket": "lake", "destination_bucket": "reports", "created_ms": 1_700_000_000_123}
    return InventoryManifest.of(**(fields | {"file_format": "Parquet", "files": (FILE,)} | changes))


@pytest.mark.parametrize("file_format", ["Parquet", "CSV"])
def test_a_manifest_is_read_as_it_was_written(file_format):
    data, checksum = encode_manifest(manifest(file_format=file_format))
    assert verified_manifest(data, checksum, source="m", bucket="lake") == manifest(file_format=file_format)
    fields = json.loads(data)
    assert list(fields) == [
        "sourceBucket",
        "destinationBucket",
        "version",
        "creationTimestamp",
        "fileFormat",
        "fileSchema",
        "files",
    ]
    assert fields["destinationBucket"] == "arn:aws:s3:::reports"
    assert fields["creationTimestamp"] == "1700000000123", "a text, as AWS writes it"
    assert fields["files"] == [{"key": FILE.key, "size": 12, "MD5checksum": "0" * 32}]


def test_what_aws_writes_is_read():
    found = verified_manifest(AWS.encode(), f"{md5_hex(AWS.encode())}\n".encode(), source="m")
    assert (found.source_bucket, found.created_ms, found.file_format) == ("lake", 1_514_944_800_000, "CSV")
    assert found.columns[3:6] == ("IsLatest", "IsDeleteMarker", "Size")
    assert found.files[0].md5 == "f11166069f1990abeb9c97ace9cdfabc"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not a manifest"),
        (b"{", "not a manifest"),
        (b"[]", "not a manifest"),
        (AWS.replace('"sourceBucket"', '"other"').encode(), "'sourceBucket' is missing"),
        (AWS.replace('"1514944800000"', '"soon"').encode(), "not a manifest"),
        (AWS.replace("F11166069F1990ABEB9C97ACE9CDFABC", "short").encode(), "not an MD5 checksum"),
        (AWS.replace('"CSV"', '"ORC"').encode(), "ORC files, which are not supported"),
    ],
)
def test_what_is_no_manifest_is_refused_and_says_why(data, says):
    with pytest.raises(InvalidArgumentError, match=says) as caught:
        decode_manifest(data, source="s3a://reports/m")
    assert "s3a://reports/m" in str(caught.value)
    assert caught.value.exit_code == 1


def test_another_checksum_and_another_bucket_are_refused():
    data, checksum = encode_manifest(manifest())
    with pytest.raises(InvalidArgumentError, match="does not match its checksum"):
        verified_manifest(data + b" ", checksum, source="m")
    with pytest.raises(InvalidArgumentError, match=r"of the bucket 'lake', but 'other' was expected"):
        verified_manifest(data, checksum, source="m", bucket="other")
    with pytest.raises(InvalidArgumentError, match="ORC"):
        manifest(file_format="ORC")


def test_a_delivery_is_named_by_the_minute_in_utc():
    assert delivery_stamp(1_700_000_000_000) == "2023-11-14T22-13Z"


@pytest.mark.parametrize(
    ("uri", "bucket", "key", "root"),
    [
        ("s3://lake/db/t/", "lake", "db/t", "s3://lake"),
        ("s3a://lake", "lake", "", "s3a://lake"),
        ("s3a://lake/a b%41", "lake", "a b%41", "s3a://lake"),
        ("hdfs://host:8020/t", "host:8020", "t", "hdfs://host:8020"),
        ("file:///data/a%20b", "file", "data/a b", "file:///"),
    ],
)
def test_a_location_is_a_bucket_and_a_key(uri, bucket, key, root):
    place = bucket_of(uri)
    assert (place.bucket, place.key, place.root) == (bucket, key, root)


def test_a_key_belongs_to_the_longest_location_that_it_lies_in():
    locations = {
        "lake.outer": "s3a://b/lake/outer",
        "lake.inner": "s3://b/lake/outer/x/inner",
        "lake.alias": "s3a://b/lake/outer/",
        "other.t": "s3a://elsewhere/lake/outer",
        "odd.t": "s3a://b/a+b (c).d",
    }
    prefixes = prefixes_in(locations, "b")
    assert prefixes == {"lake/outer/": "lake.alias", "lake/outer/x/inner/": "lake.inner", "a+b (c).d/": "odd.t"}
    keys = {
        "lake/outer/p=1/f": "lake.alias",
        "lake/outer/x/f": "lake.alias",
        "lake/outer/x/inner/f": "lake.inner",
        "lake/outer/x/inner2/f": "lake.alias",
        "lake/outer2/f": None,
        "lake/outer": None,
        "lake/outer/": "lake.alias",
        "a+b (c).d/f": "odd.t",
        "f": None,
    }
    found = with_longest_prefix(pl.LazyFrame({"key": list(keys)}), prefixes).collect()
    assert dict(found.iter_rows()) == keys
    whole = with_longest_prefix(pl.LazyFrame({"key": ["f", "lake/outer/f"]}), prefixes | {"": "all"}).collect()
    assert whole["table"].to_list() == ["all", "lake.alias"]
    assert with_longest_prefix(pl.LazyFrame({"key": ["f"]}), {}).collect()["table"].to_list() == [None]


@given(st.lists(st.text(st.characters(blacklist_categories=["Cs"]), max_size=12), max_size=20))
def test_keys_are_encoded_as_the_standard_library_does_and_decoded_again(texts):
    keys = pl.Series("key", texts, dtype=pl.String)
    encoded = encode_keys(keys)
    assert encoded.to_list() == [quote_plus(text, safe="/") for text in texts]
    assert decode_keys(encoded).to_list() == texts
    assert decode_keys(keys).to_list() == [unquote_plus(text) for text in texts]
