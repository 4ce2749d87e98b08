"""Requests to S3: their signatures, where they go, when they are not sent from here."""

from __future__ import annotations

import datetime as dt

import pytest

from pydelta.storage.options import Secret, StaticCredential, s3_options
from pydelta.storage.uris import bucket_of
from pydelta.tools.inventory.listing import StoreKeys, key_source
from pydelta.tools.inventory.s3_keys import S3Keys, _base, _parsed, signed_headers

CREDENTIAL = StaticCredential(
    access_key=Secret("AKIAIOSFODNN7EXAMPLE"), secret_key=Secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
)
KEYS = {"fs.s3a.access.key": "a", "fs.s3a.secret.key": "b"}


def test_the_signature_of_the_example_that_aws_publishes():
    headers = signed_headers(
        "examplebucket.s3.amazonaws.com",
        "/",
        "max-keys=2&prefix=J",
        CREDENTIAL,
        region="us-east-1",
        now=dt.datetime(2013, 5, 24, tzinfo=dt.UTC),
    )
    assert headers["authorization"].endswith(
        "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
    )
    assert "wJalr" not in repr(headers) + repr(CREDENTIAL)


@pytest.mark.parametrize(
    ("settings", "base", "path"),
    [
        ({}, "https://lake.s3.us-east-1.amazonaws.com", "/"),
        ({"fs.s3a.endpoint.region": "eu-west-1"}, "https://lake.s3.eu-west-1.amazonaws.com", "/"),
        ({"fs.s3a.path.style.access": "true"}, "https://s3.us-east-1.amazonaws.com", "/lake"),
        ({"fs.s3a.endpoint": "http://127.0.0.1:9000"}, "http://127.0.0.1:9000", "/lake"),
        ({"fs.s3a.endpoint": "http://minio:9000", "fs.s3a.path.style.access": "true"}, "http://minio:9000", "/lake"),
    ],
)
def test_where_requests_go(settings, base, path):
    assert _base(s3_options("lake", KEYS | settings, env={})) == (base, path)


def test_where_keys_cannot_be_signed_here_the_store_s_client_lists(monkeypatch):
    for name in (
        "http_proxy",
        "https_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
    ):
        monkeypatch.delenv(name, raising=False)
    assert isinstance(key_source(bucket_of("s3a://lake"), KEYS), S3Keys)
    assert isinstance(key_source(bucket_of("s3a://lake"), {}), StoreKeys), "the machine supplies the keys"
    proxied = KEYS | {"fs.s3a.proxy.host": "proxy", "fs.s3a.proxy.port": "3128"}
    assert isinstance(key_source(bucket_of("s3a://lake"), proxied), StoreKeys)
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    assert isinstance(key_source(bucket_of("s3a://lake"), KEYS), StoreKeys)
    assert not S3Keys.usable(s3_options("lake", {}, env={}))


def test_a_reply_is_read_with_and_without_a_name_space():
    item = (
        "<Contents><Key>a%2Bb+c</Key><LastModified>2024-06-01T01:02:03.004Z</LastModified>"
        "<ETag>&quot;e&quot;</ETag><Size>7</Size></Contents>"
    )
    for space in ("", ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'):
        body = (
            f"<ListBucketResult{space}><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
            f"<NextContinuationToken>t</NextContinuationToken>{item}</ListBucketResult>"
        )
        frame, token = _parsed(body.encode())
        assert token == "t"
        assert frame.row(0) == ("a+b c", 7, dt.datetime(2024, 6, 1, 1, 2, 3, 4000, tzinfo=dt.UTC), "e", None)
    empty, token = _parsed(b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
    assert (empty.height, token) == (0, None)
