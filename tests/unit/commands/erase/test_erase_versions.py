"""An erasure in a bucket that keeps versions: none is left that holds a key, and no object comes back."""

from __future__ import annotations

from collections import Counter

import pytest
from s3_server import S3Server

from pydelta.api.python.local import LocalTable
from pydelta.commands.erase.command import Erase
from pydelta.commands.run import Context, run
from pydelta.errors import StorageError, StoragePermissionError
from pydelta.log import DeltaLog
from tests.unit.commands.erase.test_erase import KEY, counted, rows


@pytest.fixture(scope="module")
def server():
    found = S3Server()
    yield found
    found.stop()


@pytest.fixture
def client(server):
    return server.client()


@pytest.fixture
def bucket(server):
    return server.versioned_bucket()


def made(server, bucket):
    """A table that held the key until a DELETE and a VACUUM: only older versions of objects have it."""
    location = f"s3a://{bucket}/lake/t"
    table = LocalTable.create(location, rows("bob", KEY, "eve"), partition_by=["who"], options=server.options())
    table.append(rows("zoe", first=10))
    return table


def erase(table, **how):
    return run(Erase(keys={"who": [KEY]}, **{"history": "drop", **how}), table._context)


def all_bytes(client, bucket):
    """Every version of every object, and the names of the markers."""
    found = client.list_object_versions(Bucket=bucket)
    assert not found["IsTruncated"]
    held = [
        (item["Key"], client.get_object(Bucket=bucket, Key=item["Key"], VersionId=item["VersionId"])["Body"].read())
        for item in found.get("Versions", ())
    ]
    return held + [(item["Key"], b"") for item in found.get("DeleteMarkers", ())]


def names_key(client, bucket):
    key = b"ann"
    return [name for name, data in all_bytes(client, bucket) if key in data or "ann" in name]


def test_older_versions_go_with_consent_and_nothing_of_others_does(server, client, bucket):
    table = made(server, bucket)
    other = LocalTable.create(f"s3a://{bucket}/lake/t/inner", rows(KEY), options=server.options())
    other.delete("who = 'nobody'")
    other.append(rows("x"))
    before = counted(table)
    kept = erase(table)
    assert not kept.is_proven
    assert kept.left.kept_versions > 0
    assert kept.result.num_left == kept.left.kept_versions
    assert names_key(client, bucket)
    done = erase(table, object_versions="drop")
    assert done.is_proven, done.left
    assert done.older.versions > 0
    assert done.older.markers > 0
    assert done.result.num_deleted_versions == done.older.versions + done.older.markers
    assert [name for name in names_key(client, bucket) if "/inner/" not in name] == []
    assert counted(table) == Counter({row: count for row, count in before.items() if row[0] != KEY})
    assert other.scan().num_rows == 2
    assert erase(table, object_versions="drop").is_proven


def test_an_erasure_and_its_older_versions_in_one_run(server, client, bucket):
    table = made(server, bucket)
    dry = erase(table, dry_run=True, object_versions="drop")
    assert dry.plan.look.kept_versions == dry.left.kept_versions
    done = erase(table, object_versions="drop")
    assert done.is_proven, done.left
    assert names_key(client, bucket) == []
    table.append(rows("new", first=50))
    assert counted(LocalTable(DeltaLog.for_table(table._log.uri, options=server.options())))[("new", 50, "p")] == 1


def test_a_version_that_cannot_be_deleted_is_an_error_and_the_rest_is_right(server, client, bucket, monkeypatch):
    from pydelta.storage.object_versions import ObjectVersions

    table = made(server, bucket)

    def locked(self, what, call, **arguments):
        if "delete" not in what:
            return asked(self, what, call, **arguments)
        return {"Errors": [{**item, "Code": "AccessDenied", "Message": ""} for item in arguments["Delete"]["Objects"]]}

    asked = ObjectVersions._call
    monkeypatch.setattr(ObjectVersions, "_call", locked)
    with pytest.raises(StorageError, match="older versions of objects are still there"):
        erase(table, object_versions="drop")
    monkeypatch.undo()
    assert counted(table)[("bob", 0, "p")] == 1
    assert erase(table, object_versions="drop").is_proven
    assert names_key(client, bucket) == []


def test_a_key_that_may_not_list_versions_is_said(server, bucket, monkeypatch):
    from pydelta.storage.object_versions import ObjectVersions

    def refused(self):
        raise StoragePermissionError("the key may not list the versions")

    table = made(server, bucket)
    monkeypatch.setattr(ObjectVersions, "listed", refused)
    done = erase(table)
    assert not done.is_proven
    assert done.result.num_left == 1
    assert erase(table, object_versions="absent").is_proven
    assert done.left.unlisted == ("Older versions of objects cannot be listed: the key may not list the versions",)
    with pytest.raises(StoragePermissionError):
        erase(table, object_versions="drop")


def test_a_table_on_disk_has_no_older_versions(tmp_path):
    table = LocalTable.create(tmp_path / "t", rows("bob", KEY))
    done = run(Erase(keys={"who": [KEY]}, history="drop", object_versions="drop"), Context(table._log, table._engine))
    assert done.is_proven
    assert done.older.versions == 0
    assert done.left.unlisted == ()
