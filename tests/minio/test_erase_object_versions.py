"""An erasure in a bucket of MinIO that keeps versions: Spark's key writes, and the key of VACUUM alone deletes."""

from __future__ import annotations

import boto3
import pyarrow as pa
import pytest

from pydelta.api.python.local import LocalTable
from pydelta.commands.erase.command import Erase
from pydelta.commands.run import run
from pydelta.errors import StoragePermissionError
from pydelta.log import DeltaLog

KEY = "ann@example.org"


@pytest.fixture
def client(server):
    """The root user's, with a warehouse that keeps versions while the test runs."""
    key, secret = server.root
    found = boto3.client(
        "s3", endpoint_url=server.endpoint, region_name="us-east-1", aws_access_key_id=key, aws_secret_access_key=secret
    )
    found.put_bucket_versioning(Bucket="warehouse", VersioningConfiguration={"Status": "Enabled"})
    yield found
    found.put_bucket_versioning(Bucket="warehouse", VersioningConfiguration={"Status": "Suspended"})


def everything(client, prefix):
    """Name and bytes of each version below a prefix, and the names of the markers."""
    for page in client.get_paginator("list_object_versions").paginate(Bucket="warehouse", Prefix=prefix):
        for item in page.get("Versions", ()):
            reply = client.get_object(Bucket="warehouse", Key=item["Key"], VersionId=item["VersionId"])
            yield item["Key"], reply["Body"].read()
        for item in page.get("DeleteMarkers", ()):
            yield item["Key"], b""


def naming_key(client, prefix):
    return [name for name, data in everything(client, prefix) if KEY.encode() in data or "ann" in name]


def test_no_version_of_an_object_keeps_a_key(server, client, database):
    prefix = f"{database}.db/people"
    location = f"s3a://warehouse/{prefix}"
    rows = pa.table({"who": ["bob", KEY, "eve"], "n": [1, 2, 3]})
    table = LocalTable.create(location, rows, partition_by=["who"], options=server.options("spark"))
    table.append(pa.table({"who": [KEY, "zoe"], "n": [4, 5]}))
    table.delete("n = 2")
    keys = {"who": [KEY]}
    with pytest.raises(StoragePermissionError):
        run(Erase(keys=keys, history="drop", object_versions="drop"), table._context)  # Spark's key may not delete.
    assert sorted(table.scan(columns=["n"]).to_pydict()["n"]) == [1, 3, 5]
    deleting = DeltaLog.for_table(location, options=server.options("vacuum"))
    kept = run(Erase(keys=keys, history="drop", deleting=deleting), table._context)
    assert not kept.is_proven
    assert kept.left.kept_versions > 0
    assert naming_key(client, prefix)
    done = run(Erase(keys=keys, history="drop", object_versions="drop", deleting=deleting), table._context)
    assert done.is_proven, done.left
    assert done.older.versions > 0
    assert done.older.markers > 0
    assert naming_key(client, prefix) == []
    assert sorted(table.scan(columns=["n"]).to_pydict()["n"]) == [1, 3, 5]


def test_a_lock_of_the_bucket_is_said(server, client, database):
    """MinIO refuses to delete a version under legal hold."""
    bucket = f"locked-{database.replace('_', '-')}"
    client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    location = f"s3a://{bucket}/people"
    options = server.options(None)
    table = LocalTable.create(location, pa.table({"who": ["bob", KEY]}), options=options)
    [file] = [item["Key"] for item in client.list_objects_v2(Bucket=bucket)["Contents"] if ".parquet" in item["Key"]]
    client.put_object_legal_hold(Bucket=bucket, Key=file, LegalHold={"Status": "ON"})
    with pytest.raises(Exception, match="1 older versions of objects are still there") as refused:
        run(Erase(keys={"who": [KEY]}, history="drop", object_versions="drop"), table._context)
    assert "lock" in str(refused.value)
    held = [item for item in client.list_object_versions(Bucket=bucket)["Versions"] if item["Key"] == file]
    client.put_object_legal_hold(Bucket=bucket, Key=file, VersionId=held[0]["VersionId"], LegalHold={"Status": "OFF"})
    assert run(Erase(keys={"who": [KEY]}, history="drop", object_versions="drop"), table._context).is_proven
