"""An erasure on the cluster: written with Spark's key, deleted with VACUUM's; Trino shows all others afterwards."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import DATABASE, ON_HDFS, ORDERS, ROOT, SCHEMA, WAREHOUSE, WORK, job_variables, trino_rows

sys.path.append("/opt/tests")
from erasure.lake import KINDS, column_of, found_in, planned

pytestmark = [pytest.mark.before_submit, pytest.mark.in_turn]
KEY = "customer 3"
ON_MINIO = "//minio:" in os.environ["S3_ENDPOINT"] and not ON_HDFS
ON_VERSITY = "//versity:" in os.environ["S3_ENDPOINT"]
OBJECT_VERSIONS = ("--object-versions", "absent" if ON_VERSITY else "drop")


@pytest.fixture
def kept_versions():
    """Let the warehouse's bucket keep versions while the test runs; list those below a prefix, with their bytes.

    None with another store than MinIO: HDFS and Versity, as the stack runs it, have no versions, and somebody's own
    bucket is left as it is.
    """
    if not ON_MINIO:
        yield None
        return
    bucket = WAREHOUSE.removeprefix("s3a://")
    client = boto3.client(
        "s3",
        endpoint_url=os.environ["S3_ENDPOINT"],
        region_name=os.environ["S3_REGION"],
        aws_access_key_id=os.environ["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        verify="/etc/ssl/certs/ca-certificates.crt",
    )

    def pages(prefix):
        return client.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix)

    def listed(location):
        for page in pages(location.removeprefix(f"{WAREHOUSE}/") + "/"):
            for item in page.get("Versions", ()):
                reply = client.get_object(Bucket=bucket, Key=item["Key"], VersionId=item["VersionId"])
                yield item["Key"], item["IsLatest"], reply["Body"].read()
            for item in page.get("DeleteMarkers", ()):
                yield item["Key"], item["IsLatest"], b""

    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    yield listed
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    # What other services replaced or deleted meanwhile; a marker only after what it hides.
    for kinds, newest in ((("Versions", "DeleteMarkers"), False), (("DeleteMarkers",), True)):
        for page in pages(""):
            for item in (item for kind in kinds for item in page.get(kind, ()) if item["IsLatest"] == newest):
                client.delete_object(Bucket=bucket, Key=item["Key"], VersionId=item["VersionId"])


def places_of_key(store):
    """Where objects hold or name the key: bytes, values of Parquet files, names."""
    found = []
    for info in store.list_all():
        data = store.read(info.path)
        texts = [info.path, data.decode("latin-1")]
        if data[:4] == b"PAR1":
            texts.append(str(pq.read_table(pa.BufferReader(data)).to_pylist()))
        found += [info.path for text in texts if KEY in text or KEY.replace(" ", "%20") in text]
    return found


def test_a_customer_leaves_a_table_and_trino_shows_the_others(store_at, submit, sql, register):
    location = f"{ROOT}/erasable"
    lines = ["id,customer,amount,at,day", *(",".join(map(str, row)) for row in ORDERS)]
    store_at(f"{WORK}/{DATABASE}").put("erasable.csv", "\n".join(lines).encode())
    source = ["--input", f"{WORK}/{DATABASE}/erasable.csv", "--format", "csv", "--option", "header=true"]
    loaded = submit("ingest", *source, "--schema", SCHEMA, "--table", location, "--partition-by", "day")
    assert loaded.code == 0, loaded.errors
    deleted = submit("delete", "--table", location, "--where", f"customer = '{KEY}' AND id < 100")
    assert deleted.code == 0, deleted.errors
    register("erasable")
    store = store_at(location)
    assert places_of_key(store)

    store_at(f"{WORK}/{DATABASE}").put("people.csv", f"customer\n{KEY}\n".encode())
    keys = ["--keys", f"{WORK}/{DATABASE}/people.csv", "--history", "drop", *OBJECT_VERSIONS]
    refused = submit("erase", location, *keys[:2])
    assert refused.code == 1, refused
    assert "given up" in refused.result["message"]
    done = submit("erase", location, *keys, "--suppress", f"{ROOT}/erased_keys")
    assert done.code == 0, (done.result, done.errors)
    assert done.result["status"] == "proven"
    assert places_of_key(store) == []
    register("erasable")
    left = sorted(row for row in ORDERS if row[1] != KEY)
    assert trino_rows(sql(f"SELECT * FROM delta.{DATABASE}.erasable")) == left

    again = submit("ingest", *source, "--schema", SCHEMA, "--table", location, "--suppress", f"{ROOT}/erased_keys")
    assert again.code == 0, again.errors
    assert (again.result["rows"], again.result["suppressed"]) == (len(left), len(ORDERS) - len(left))
    assert places_of_key(store) == []


def search_lake(lake, store):
    """Where objects below the lake's root hold or name one of the erased persons."""
    return [
        f"{info.path}: {how}"
        for info in store.list_all()
        for how in found_in(info.path, store.read(info.path), lake.erased)
    ]


def kill_job(arguments, seconds):
    """Run the erasure, and kill its process group if it takes longer than some seconds."""
    process = subprocess.Popen(
        ["submit", "erase", *arguments], env=job_variables("erase"), stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def entry_of(name):
    """Name the entry by which Trino finds a table of the lake."""
    return f"erased_{name.replace(' ', '_')}"


def rows_in_trino(sql, lake, name):
    """Rows of the persons who stay, and how many others there are."""
    column = column_of(KINDS.get(name, KINDS["plain"])).replace("`", '"')
    rows = Counter(map(tuple, sql(f"SELECT {column}, id, n FROM delta.{DATABASE}.{entry_of(name)}")))
    stay = Counter({row: count for row, count in rows.items() if row[1] not in lake.erased})
    return stay, (rows - stay).total()


def test_five_hundred_persons_leave_a_lake_by_a_job_that_is_killed_and_trino_shows_the_others(
    store_at, submit, sql, register, kept_versions
):
    root = f"{ROOT}/lake_{uuid.uuid4().hex[:8]}"  # Trino keeps what it read of a place.
    lake = planned(root)
    copies = {"shallow clone": ("plain", "SHALLOW"), "deep clone": ("vectors", "DEEP")}
    statements = [statement for name in KINDS for statement in lake.statements[name]]
    for name, (source, how) in copies.items():
        statements.append(f"CREATE TABLE delta.`{lake.path(name)}` {how} CLONE delta.`{lake.path(source)}`")
        lake.expected[name] = lake.expected[source]
    place = store_at(f"{WORK}/{DATABASE}")
    script = "".join(f"{statement};\n" for statement in statements)
    made = subprocess.run(["pydelta", "sql"], input=script, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    place.put("persons.csv", lake.keys_csv().encode())
    place.put("columns.toml", lake.mapping(*((lake.path(name), "mail") for name in copies)).encode())
    names = [*KINDS, *copies]
    store = store_at(root)
    assert {place.split("/")[0] for place in search_lake(lake, store)} >= {*KINDS, "deep clone"}
    for name in names:
        register(entry_of(name), lake.path(name))
        stay, others = rows_in_trino(sql, lake, name)
        assert stay == lake.expected[name], name
        assert others, name

    keys = ["--keys", f"{WORK}/{DATABASE}/persons.csv", "--map", f"{WORK}/{DATABASE}/columns.toml", "--history", "drop"]
    arguments = [*map(lake.path, names), *keys, *OBJECT_VERSIONS]
    if kept_versions is not None:
        for info in list(store.list_all()):
            if info.path.startswith("plain/") and info.path.endswith(".parquet"):
                store.put(info.path, store.read(info.path))  # What it replaces is an older version.
        assert any(list(found_in(name, data, lake.erased)) for name, newest, data in kept_versions(root) if not newest)
    began = time.monotonic()
    plan = submit("erase", *arguments, "--dry-run")
    assert plan.code == 0, (plan.result, plan.errors)
    seconds = time.monotonic() - began
    chance = random.Random(12)
    ends = [kill_job(arguments, seconds * chance.uniform(*span)) for span in ((0.6, 0.9), (0.9, 1.2), (1.1, 1.4))]
    assert -signal.SIGKILL in ends, (ends, seconds)
    for name in names:
        register(entry_of(name), lake.path(name))
        assert rows_in_trino(sql, lake, name)[0] == lake.expected[name], (name, ends)

    done = submit("erase", *arguments)
    tables = (done.result or {}).get("tables", ())
    failed = [
        {key: held for key, held in table.items() if key != "request"}
        for table in tables
        if table["status"] != "proven"
    ]
    assert str(failed) == "[]", (ends, done.errors)
    assert (done.code, len(tables)) == (0, len(names)), done
    assert search_lake(lake, store) == []
    if kept_versions is not None:
        held = list(kept_versions(root))
        assert {name for name, newest, _ in held if not newest} == set()
        assert [how for name, _, data in held for how in found_in(name, data, lake.erased)] == []
    for name in names:
        register(entry_of(name), lake.path(name))
        assert rows_in_trino(sql, lake, name) == (lake.expected[name], 0), name
