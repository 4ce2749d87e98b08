"""Places and their settings: spellings of a location, schemes, credentials, unreachable and unsafe stores."""

from __future__ import annotations

import pytest
from leaks import secret

from pydelta.errors import (
    DeltaEnvironmentError,
    InvalidArgumentError,
    ObjectNotFoundError,
    StorageError,
    UnsafeStoreError,
)
from pydelta.storage import MemoryStore, PutOutcome, normalize_uri, open_store, register_store
from pydelta.storage.options import s3_options
from pydelta.storage.probe import ensure_safe, probe_put_if_absent


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/data/a b/", "file:///data/a%20b"),
        ("file:/data/a%20b", "file:///data/a%20b"),
        ("file:///data/x/", "file:///data/x"),
        ("/data/50%", "file:///data/50%25"),
        ("S3A://bucket/t/", "s3a://bucket/t"),
        ("memory://m/t", "memory://m/t"),
    ],
)
def test_one_spelling_for_a_location(given, expected):
    assert normalize_uri(given) == expected


@pytest.mark.parametrize("uri", ["", "  ", "file://host/x"])
def test_locations_that_are_none_are_refused(uri):
    with pytest.raises(InvalidArgumentError):
        normalize_uri(uri)


def test_an_unknown_scheme_is_named_with_those_there_are():
    with pytest.raises(InvalidArgumentError) as caught:
        open_store("gopher://x/y")
    assert "gopher" in str(caught.value)
    assert "s3a" in str(caught.value)


def test_a_scheme_can_be_registered_and_named_in_a_setting():
    register_store("tape", lambda uri, options: MemoryStore("memory://tape/x"))
    assert open_store("tape://a/b").root == "memory://tape/x"
    options = {"spark.pydelta.logStore.cloud": "pydelta.storage.memory:nothing"}
    with pytest.raises(InvalidArgumentError, match=r"spark\.pydelta\.logStore\.cloud"):
        open_store("cloud://a/b", options)


def test_settings_of_a_bucket_go_before_those_of_all_and_of_the_environment():
    options = {
        "fs.s3a.access.key": "general",
        "spark.hadoop.fs.s3a.secret.key": "s1",
        "fs.s3a.bucket.mine.access.key": "own",
        "fs.s3a.bucket.mine.endpoint": "minio:9000",
        "fs.s3a.connection.ssl.enabled": "false",
    }
    env = {"AWS_ACCESS_KEY_ID": "env", "AWS_SECRET_ACCESS_KEY": "env", "AWS_REGION": "eu-west-1"}
    mine, other = s3_options("mine", options, env), s3_options("other", options, env)
    assert mine.credential.access_key.reveal() == "own"
    assert mine.get("endpoint") == "http://mine.minio:9000"
    assert (mine.get("region"), mine.allow_http) == ("eu-west-1", True)
    assert (other.credential.access_key.reveal(), other.credential.secret_key.reveal()) == ("general", "s1")
    assert other.get("endpoint") is None
    assert s3_options("b", {}, env).credential.access_key.reveal() == "env"


def test_no_secret_shows():
    options = {"fs.s3a.access.key": "AKIDVISIBLE", "fs.s3a.secret.key": secret("s3")}
    shown = repr(s3_options("b", options, {})) + repr(open_store("s3a://b/t", options))
    assert secret("s3") not in shown
    assert "AKIDVISIBLE" not in shown


def test_half_a_key_pair_and_unknown_providers_are_refused_by_name():
    with pytest.raises(DeltaEnvironmentError, match=r"fs\.s3a\.secret\.key is missing"):
        s3_options("b", {"fs.s3a.access.key": "a"}, {})
    with pytest.raises(DeltaEnvironmentError, match="MyVaultProvider"):
        s3_options("b", {"fs.s3a.aws.credentials.provider": "com.example.MyVaultProvider"}, {})
    with pytest.raises(DeltaEnvironmentError, match="which found no keys"):
        provider = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
        s3_options("b", {"fs.s3a.aws.credentials.provider": provider}, {})


def test_a_bucket_that_is_not_there_and_a_store_that_is_not_reached(s3_settings):
    with pytest.raises(ObjectNotFoundError, match="bucket"):
        open_store("s3a://nobucket/t", s3_settings).put_if_absent("x", b"")
    silent = {**s3_settings, "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:9"}
    with pytest.raises(StorageError, match="cannot be reached") as caught:  # no connection: surely not created
        open_store("s3a://contract/t", silent).put_if_absent("x", b"")
    assert caught.value.retryable


class _LastWriterWins(MemoryStore):
    """A look-alike that ignores the condition."""

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self.put(path, data)
        return PutOutcome.CREATED

    @property
    def root(self) -> str:
        return "s3a://lookalike/t"


def test_a_store_that_ignores_the_condition_is_refused():
    store = _LastWriterWins("memory://lookalike/t")
    assert not probe_put_if_absent(store).safe
    with pytest.raises(UnsafeStoreError, match="s3a://lookalike"):
        ensure_safe(store)
