"""From a bucket to vacuumed tables on S3: list, deliver, load, vacuum, looked at object by object."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
import uuid

import pytest
from leaks import secret

from jobs import inventory, load_inventory, vacuum
from pydelta.errors import InvalidArgumentError, ObjectNotFoundError, StorageError, StoragePermissionError
from pydelta.log import DeltaLog
from pydelta.protocol.actions import AddFile
from pydelta.storage import open_store
from pydelta.storage.options import s3_options
from pydelta.testing.operations import create_table
from pydelta.tools.inventory import bucket_of, key_source, list_keys
from pydelta.tools.inventory.s3_keys import S3Keys
from pydelta.txn import Operation, start_transaction

DAY = 86_400_000
HOURS = 168


@pytest.fixture
def bucket(s3_server):
    """A bucket for each of the lake and its reports."""
    names = [f"{kind}-{uuid.uuid4()}" for kind in ("lake", "reports")]
    for name in names:
        put(s3_server, name)
    yield names
    DeltaLog.clear_cache()


def put(server, path, data=b""):
    url = f"{server.endpoint}/{urllib.parse.quote(path)}"
    headers = {"Content-Type": "application/octet-stream"}
    urllib.request.urlopen(urllib.request.Request(url, data=data, headers=headers, method="PUT"), timeout=30).close()


def objects(settings, root):
    return sorted(info.path for info in open_store(root, settings).list_all() if "_delta_log" not in info.path)


def make_table(root, settings, *, live, removed):
    """A table whose files are bytes alone: the log says which are live and which were removed."""
    log = DeltaLog.for_table(root, options=settings)
    for path in (*live, *removed):
        log.store.put(path, b"12345")
    adds = {
        path: AddFile(
            path=urllib.parse.quote(path, safe="/=") if " " not in path else path.replace(" ", "%20"),
            partition_values={"p": path.partition("/")[0].removeprefix("p=")},
            size=5,
            modification_time=1,
            data_change=True,
        )
        for path in (*live, *removed)
    }
    create_table(log, adds.values())
    if removed:
        txn = start_transaction(log)
        txn.read_whole_table()
        gone = [adds[path].remove(deletion_timestamp=1_000) for path in removed]
        txn.commit(gone, Operation(name="DELETE"))
    return log


def test_keys_are_listed_as_they_are(s3_server, s3_settings, bucket):
    keys = ["a/", "a/x", "q//r", "x y%41+.txt", "é/ü", 'quo"te,comma', "~", "%2F"]
    for key in keys:
        put(s3_server, f"{bucket[0]}/{key}", b"" if key.endswith("/") else b"1")
    source = key_source(bucket_of(f"s3a://{bucket[0]}"), s3_settings)
    assert isinstance(source, S3Keys)
    frames = list(list_keys(source, workers=4))
    assert sorted(key for frame in frames for key in frame["key"]) == sorted(keys)
    row = next(row for frame in frames for row in frame.iter_rows(named=True) if row["key"] == "a/x")
    assert (row["storage_class"], row["modified"].tzinfo is not None, len(row["etag"])) == ("STANDARD", True, 32)
    below = list_keys(key_source(bucket_of(f"s3a://{bucket[0]}/a"), s3_settings))
    assert sorted(key for frame in below for key in frame["key"]) == ["a/", "a/x"]


def test_pages_are_followed_and_failures_repeated(s3_server, s3_settings, bucket):
    from s3_server import Misbehaviour

    keys = [f"t/p={number % 3}/{number:04}" for number in range(1200)]
    for key in keys:
        put(s3_server, f"{bucket[0]}/{key}")
    s3_server.faults.append(Misbehaviour(path=bucket[0], status=503, applied=False, method="GET", times=2))
    connection = s3_options(bucket[0], s3_settings)
    source = S3Keys(connection, "", sleep=lambda seconds: None)
    assert sorted(key for frame in list_keys(source, workers=3) for key in frame["key"]) == sorted(keys)
    one_after_the_other = S3Keys(connection, "t/p=1/", sleep=lambda seconds: None)
    assert sum(frame.height for frame in one_after_the_other.pages()) == 400
    assert one_after_the_other.requests == 1
    assert sum(frame.height for frame in S3Keys(connection).pages("t/p=1/~")) == 400
    s3_server.faults.append(Misbehaviour(path=bucket[0], status=403, applied=False, method="GET", code="AccessDenied"))
    with pytest.raises(StoragePermissionError, match="s3:ListBucket"):
        list(source.pages())
    s3_server.faults.append(Misbehaviour(path=bucket[0], status=500, applied=False, method="GET", times=99))
    with pytest.raises(StorageError, match="500 InternalError") as caught:
        list(source.pages())
    assert caught.value.retryable
    assert secret("s3") not in str(caught.value)
    s3_server.faults.clear()
    with pytest.raises(ObjectNotFoundError, match="no such bucket"):
        list(S3Keys(s3_options("no-such-bucket-here", s3_settings)).pages())


@pytest.mark.parametrize("file_format", ["Parquet", "CSV"])
def test_from_the_bucket_to_vacuumed_tables(s3_server, s3_settings, bucket, file_format):
    lake, reports = (f"s3a://{name}" for name in bucket)
    orders, nested, other = f"{lake}/db/orders", f"{lake}/db/orders/p=1/nested", f"{lake}/db/other"
    make_table(orders, s3_settings, live=["p=1/a b.parquet", "p=2/b.parquet"], removed=["p=1/old.parquet"])
    make_table(nested, s3_settings, live=["p=1/n.parquet"], removed=["p=1/gone.parquet"])
    make_table(other, s3_settings, live=["p=1/o.parquet"], removed=[])
    for path in ("orders/p=2/stray é%41.parquet", "orders/p=2/", "orders/_tmp/x", "other/p=9/stray", "free/file"):
        put(s3_server, f"{bucket[0]}/db/{path}", b"" if path.endswith("/") else b"1")

    delivered = inventory.run(
        s3_settings, ["--source", lake, "--destination", f"{reports}/daily", "--format", file_format]
    )
    assert delivered[0].get("message") is None
    table = f"{reports}/tables/datalake_report"
    arguments = ["--source", f"{reports}/daily", "--location", table, "--table-location", f"db.orders={orders}"]
    loaded = load_inventory.run(s3_settings, arguments)
    assert (loaded["warnings"], loaded["buckets"][0]["rows"]) == ([], delivered[0]["objects"])
    put(s3_server, f"{bucket[0]}/db/orders/p=2/after.parquet", b"1")  # the inventory does not know it

    week_later = delivered[0]["created_ms"] + HOURS * 3_600_000 + DAY
    named = [orders, nested, other, "--inventory", table]
    planned = vacuum.run(s3_settings, [*named, "--dry-run"], now_ms=week_later)
    before = objects(s3_settings, lake)
    assert [(row["found"], row.get("message")) for row in planned] == [(2, None), (1, None), (1, None)]
    assert planned[0]["partitions"] == [
        {"partition": "p=1", "files": 1, "bytes": 5},
        {"partition": "p=2", "files": 1, "bytes": 1},
    ]
    done = vacuum.run(s3_settings, named, now_ms=week_later)
    assert [(row["deleted"], row["list_requests"], row["delete_requests"]) for row in done] == [
        (2, 2, 1),
        (1, 1, 1),
        (1, 1, 1),
    ], "each folder with something to delete is asked whether it is a table"
    assert set(before) - set(objects(s3_settings, lake)) == {
        "db/orders/p=1/old.parquet",
        "db/orders/p=2/stray é%41.parquet",
        "db/orders/p=1/nested/p=1/gone.parquet",
        "db/other/p=9/stray",
    }
    assert {row["end_version"] - row["start_version"] for row in done} == {1}
    again = vacuum.run(s3_settings, named, now_ms=week_later)
    assert [row.get("exit_code", 0) for row in again] == [0, 0, 0], "the files that are gone by now are no error"


def test_what_cannot_be_vacuumed_is_said_and_stops_no_other_table(s3_settings, bucket, capsys):
    lake, reports = (f"s3a://{name}" for name in bucket)
    make_table(f"{lake}/t", s3_settings, live=["p=1/a"], removed=["p=1/b"])
    make_table(f"{reports}/u", s3_settings, live=["p=1/a"], removed=[])
    delivered = inventory.run(s3_settings, ["--source", lake, "--destination", f"{reports}/daily"])
    table = f"{reports}/report"
    load_inventory.run(s3_settings, ["--source", f"{reports}/daily", "--location", table])
    now = delivered[0]["created_ms"] + 30 * DAY
    arguments = [f"{lake}/t", f"{reports}/u", f"{lake}/no_table", "--inventory", table]
    rows = {row["table"]: row for row in vacuum.run(s3_settings, arguments, now_ms=now)}
    assert rows[f"{lake}/t"]["deleted"] == 1
    assert f"lists nothing of the bucket {bucket[1]}; it lists {bucket[0]}" in rows[f"{reports}/u"]["message"]
    assert rows[f"{lake}/no_table"]["error"] == "DELTA_TABLE_NOT_FOUND"
    assert {row.get("exit_code", 0) for row in rows.values()} == {0, 1}
    (short,) = vacuum.run(s3_settings, [f"{lake}/t", "--retention-hours", "1"], now_ms=now)
    assert (short["exit_code"], "168" in short["message"]) == (1, True)
    (allowed,) = vacuum.run(s3_settings, [f"{lake}/t", "--retention-hours", "1", "--no-retention-check"], now_ms=now)
    assert allowed["mode"] == "full"
    assert vacuum.run(s3_settings, [f"{lake}/t", "--lite"], now_ms=now)[0]["mode"] == "lite"
    for wrong in ([], ["--all-databases"], ["db.t"], [f"{lake}/t", "--lite", "--inventory", table]):
        assert vacuum.main(wrong) == 1
        assert json.loads(capsys.readouterr().out)["message"]
    with pytest.raises(InvalidArgumentError, match="parallel"):
        vacuum.run(s3_settings, [f"{lake}/t", "--parallel", "0"])
