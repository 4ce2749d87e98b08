"""Clients are built from every kind of settings, and a service that fails on what is gone is still idempotent."""

from __future__ import annotations

import os
import pickle

import pytest
from obstore.store import LocalStore as DirectoryClient

from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError
from pydelta.storage import PutOutcome, objects, open_store

AZURE = "abfss://box@acct.dfs.core.windows.net/t"


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        (
            "s3a://bkt/t",
            {
                "fs.s3a.access.key": "a",
                "fs.s3a.secret.key": "s",
                "fs.s3a.encryption.algorithm": "SSE-KMS",
                "fs.s3a.encryption.key": "arn:key",
                "fs.s3a.requester.pays.enabled": "true",
                "fs.s3a.proxy.host": "proxy",
                "fs.s3a.attempts.maximum": "2",
            },
        ),
        (
            "s3a://bkt/t",
            {"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
        ),
        ("gs://bkt/t", {"fs.gs.auth.type": "UNAUTHENTICATED", "fs.gs.storage.root.url": "http://localhost:1"}),
        (AZURE, {"fs.azure.account.key": "aHVzaA=="}),
        (AZURE, {"fs.azure.account.auth.type": "SAS", "fs.azure.sas.fixed.token": "?sv=1&sig=x"}),
    ],
)
def test_a_client_takes_the_settings_and_equal_settings_share_it(uri, options):
    one, other = open_store(uri, options), open_store(uri + "/deeper", dict(options))
    assert one._store is other._store
    assert one._store is not one._store_once
    assert one._store_once.retry_config["max_retries"] == 0
    assert one.identity == other.identity
    assert pickle.loads(pickle.dumps(one)).root == uri


def test_keys_in_the_settings_are_not_mixed_with_a_token_of_the_environment(monkeypatch):
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.setitem(os.environ, f"AWS_{name}", "environment")
    store = open_store("s3a://bkt/t", {"fs.s3a.access.key": "a", "fs.s3a.secret.key": "s"})
    given = store._store.credential_provider()
    assert (given["access_key_id"], given["secret_access_key"], given["token"]) == ("a", "s", None)


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("gs://bkt/t", {"fs.gs.auth.service.account.json.keyfile": "/nowhere/key.json"}),
        (AZURE, {"fs.azure.account.key": "hush, no base64"}),
    ],
)
def test_settings_that_a_client_does_not_take_are_an_error_and_no_unknown_outcome(uri, options):
    for call in (lambda s: s.put_if_absent("x", b""), lambda s: s.read("x"), lambda s: s.delete_many(["x"])):
        with pytest.raises(DeltaEnvironmentError) as caught:
            call(open_store(uri, options))
        assert "hush" not in str(caught.value)


@pytest.mark.parametrize("uri", ["s3a://", "gs:///t", "s3a:///t"])
def test_a_location_without_a_bucket_is_refused(uri):
    with pytest.raises(InvalidArgumentError, match="bucket"):
        open_store(uri)


def test_deleting_is_idempotent_where_the_service_fails_on_what_is_gone(tmp_path, monkeypatch):
    client = DirectoryClient(tmp_path)
    monkeypatch.setattr(objects, "_client", lambda connection, *, repeat: client)
    store = open_store("gs://bkt/t", {"fs.gs.auth.type": "UNAUTHENTICATED"})
    for name in ("a", "b"):
        assert store.put_if_absent(name, b"1") is PutOutcome.CREATED
    report = store.delete_many(["gone", "a", "also gone", "b"])
    assert (report.deleted, report.failed) == (4, ())
    assert list(store.list_all()) == []
