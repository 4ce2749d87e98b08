"""Deliveries, AWS's own among them, into the inventory table: what is loaded, passed over, refused."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import inventory as inventory_job
from jobs import load_inventory
from pydelta.errors import InvalidArgumentError, InventoryUnusableError, SchemaMismatchError, StorageError
from pydelta.log import DeltaLog
from pydelta.storage import open_store
from pydelta.testing import Fault, FaultKind, FaultyStore
from pydelta.tools.inventory import find_deliveries, load_deliveries, loaded_until, read_manifest
from pydelta.tools.inventory.manifest import DeliveredFile, InventoryManifest, delivery_stamp, encode_manifest, md5_hex

DAY = 86_400_000
MADE = 1_700_000_000_000
VERSIONED = (
    "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag, StorageClass, EncryptionStatus"
)


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path / "reports" / "daily"))


@pytest.fixture
def log(tmp_path):
    yield DeltaLog.for_table(str(tmp_path / "report"))
    DeltaLog.clear_cache()


def iso(ms):
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def csv_line(key, *, bucket="lake", latest=True, marker=False, size="7", modified=MADE - DAY, version="v1"):
    fields = [bucket, key, version, str(latest).lower(), str(marker).lower(), size, iso(modified), "etag", "STANDARD"]
    return ",".join(f'"{field}"' for field in [*fields, "SSE-S3"])


def deliver(
    store, data, *, bucket="lake", made=MADE, file_format="CSV", schema=VERSIONED, name="0", checksum=True, config="all"
):
    """A delivery as AWS lays it out, by hand, with the folder for Hive beside it."""
    ending = "csv.gz" if file_format == "CSV" else "parquet"
    path = f"{bucket}/{config}/data/{made}-{name}.{ending}"
    store.put(path, data)
    manifest = InventoryManifest(
        source_bucket=bucket,
        destination_bucket="arn:aws:s3:::reports",
        created_ms=made,
        file_format=file_format,
        file_schema=schema,
        files=(DeliveredFile(key=path, size=len(data), md5=md5_hex(data)),),
    )
    text, digest = encode_manifest(manifest)
    folder = f"{bucket}/{config}/{delivery_stamp(made)}"
    store.put(f"{folder}/manifest.json", text)
    if checksum:
        store.put(f"{folder}/manifest.checksum", digest)
    store.put(f"{bucket}/all/hive/dt={delivery_stamp(made)[:-1]}/symlink.txt", b"s3://reports/x\n")
    return folder


def gzipped(*lines):
    return gzip.compress("\n".join(lines).encode() + b"\n")


def newest(store, bucket="lake"):
    return [item for item in find_deliveries(store, bucket) if item.complete][-1:]


def rows_of(log):
    parts = []
    for add in log.update().files.adds(log.update().files.core):
        frame = pl.read_parquet(io.BytesIO(log.store.read(add.path)))
        parts.append(frame.with_columns(bucket=pl.lit(add.partition_values["bucket"])))
    return pl.concat(parts).sort("bucket", "key")


def test_a_csv_delivery_of_a_versioned_bucket(store, log):
    lines = [
        csv_line("t/day%3D2024-01-01/a+b%2B%C3%A9.parquet"),
        csv_line("t/day%3D2024-01-01/old.parquet", latest=False),
        csv_line("t/gone.parquet", marker=True, size=""),
        csv_line("t/", size="0"),
        csv_line("t/empty.parquet", size="0"),
        csv_line("t/folder/", size="5"),
        csv_line("t/late.parquet", modified=MADE + 1000),
        csv_line("u/%22x%2C%0Ay%22", modified=MADE),
    ]
    deliver(store, gzipped(*lines))
    result = load_deliveries(log, store, newest(store), locations={"db.t": "s3a://lake/t", "db.z": "s3a://other/u"})
    assert (result.version, result.buckets[0].rows, result.buckets[0].delivered) == (0, 5, 8)
    rows = rows_of(log)
    shown = {row["key"]: (row["length"], row["isDir"], row["table"]) for row in rows.iter_rows(named=True)}
    assert shown == {
        "t/": (0, True, "db.t"),
        "t/day=2024-01-01/a b+é.parquet": (7, False, "db.t"),
        "t/empty.parquet": (0, False, "db.t"),
        "t/folder/": (5, False, "db.t"),
        'u/"x,\ny"': (7, False, None),
    }
    assert rows["modificationTime"].to_list()[0] == MADE - DAY
    assert set(rows["inventory_date"].dt.epoch("ms")) == {MADE}
    assert set(rows["encryption_status"]) == {"SSE-S3"}
    snapshot = log.update()
    assert [field.name for field in snapshot.schema.fields] == [
        "bucket",
        "key",
        "length",
        "isDir",
        "modificationTime",
        "storage_class",
        "table",
        "encryption_status",
        "inventory_date",
    ]
    assert tuple(snapshot.partition_columns) == ("bucket",)
    (add,) = snapshot.files.adds(snapshot.files.core)
    stats = json.loads(add.stats)
    assert (stats["numRecords"], stats["minValues"]["key"], stats["maxValues"]["key"]) == (5, "t/", 'u/"x,\ny"')
    assert stats["nullCount"]["table"] == 1


@pytest.mark.parametrize("kind", [pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.string(), pa.int64()])
def test_keys_of_parquet_deliveries_are_plain(store, log, kind):
    times = pa.array([MADE - DAY] * 2, pa.int64())
    if pa.types.is_timestamp(kind):
        times = times.cast(pa.timestamp("ms")).cast(kind)
    elif pa.types.is_string(kind):
        times = pa.array([iso(MADE - DAY)] * 2)
    table = pa.table(
        {
            "bucket": ["lake", "lake"],
            "key": ["a%20b+c", "t/"],
            "is_latest": [True, None],
            "is_delete_marker": [None, False],
            "size": pa.array([3, 0], pa.int64()),
            "last_modified_date": times,
            "intelligent_tiering_access_tier": ["", ""],
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink)
    deliver(store, sink.getvalue(), file_format="Parquet", schema="message s3.inventory {…}")
    load_deliveries(log, store, newest(store))
    found = rows_of(log)
    assert found["key"].to_list() == ["a%20b+c", "t/"]
    assert found["isDir"].to_list() == [False, True]
    assert set(found["modificationTime"]) == {MADE - DAY}


def test_a_delivery_replaces_its_buckets_rows_and_no_others(store, log):
    for bucket in ("lake", "pond"):
        deliver(store, gzipped(csv_line("a", bucket=bucket), csv_line("b", bucket=bucket)), bucket=bucket)
    both = newest(store) + newest(store, "pond")
    assert load_deliveries(log, store, both).files_added == 2
    deliver(store, gzipped(csv_line("c")), made=MADE + DAY)
    result = load_deliveries(log, store, newest(store) + newest(store, "pond"))
    assert [(item.bucket, item.loaded) for item in result.buckets] == [("lake", True), ("pond", False)]
    assert (result.files_added, result.files_removed) == (1, 1)
    assert rows_of(log).select("bucket", "key").rows() == [("lake", "c"), ("pond", "a"), ("pond", "b")]
    assert (loaded_until(log.update(), "lake"), loaded_until(log.update(), "pond")) == (MADE + DAY, MADE)
    deliver(store, gzip.compress(b""), made=MADE + 2 * DAY)
    assert load_deliveries(log, store, newest(store)).files_removed == 1
    assert rows_of(log)["bucket"].to_list() == ["pond", "pond"], "an empty bucket has no rows"


def test_a_repeated_and_an_older_delivery_change_nothing_unless_told_to(store, log):
    deliver(store, gzipped(csv_line("new")), made=MADE + DAY)
    deliver(store, gzipped(csv_line("old")), made=MADE)
    old, new = find_deliveries(store, "lake")
    assert load_deliveries(log, store, [new]).version == 0
    assert load_deliveries(log, store, [new]).version is None
    assert load_deliveries(log, store, [old]).version is None
    assert rows_of(log)["key"].to_list() == ["new"]
    assert load_deliveries(log, store, [old], force=True).version == 1
    assert rows_of(log)["key"].to_list() == ["old"]


def damaged_data(store, folder):
    (path,) = [info.path for info in store.list_all("lake/all/data")]
    store.put(path, gzipped(csv_line("other")))


def missing_data(store, folder):
    store.delete_many([info.path for info in store.list_all("lake/all/data")])


def damaged_manifest(store, folder):
    store.put(f"{folder}/manifest.json", store.read(f"{folder}/manifest.json").replace(b"lake", b"pond"))


def manifest_of_another_bucket(store, folder):
    text = store.read(f"{folder}/manifest.json").replace(b'"sourceBucket": "lake"', b'"sourceBucket": "pond"')
    store.put(f"{folder}/manifest.json", text)
    store.put(f"{folder}/manifest.checksum", md5_hex(text).encode())


def rows_of_another_bucket(store, folder):
    deliver(store, gzipped(csv_line("x", bucket="pond")))


def no_size(store, folder):
    deliver(store, gzipped('"lake","x"'), schema="Bucket, Key")


def no_csv(store, folder):
    deliver(store, b"not compressed")


def orc(store, folder):
    deliver(store, b"ORC", file_format="ORC")


def elsewhere(store, folder):
    text = store.read(f"{folder}/manifest.json").replace(b"lake/all/data", b"other/all/data")
    store.put(f"{folder}/manifest.json", text)
    store.put(f"{folder}/manifest.checksum", md5_hex(text).encode())


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (damaged_data, "does not match its checksum: the manifest says"),
        (missing_data, "which does not exist"),
        (damaged_manifest, "does not match its checksum"),
        (manifest_of_another_bucket, "of the bucket 'pond', but 'lake' was expected"),
        (rows_of_another_bucket, "rows of the bucket 'pond'"),
        (no_size, "no column LastModifiedDate, Size"),
        (no_csv, "cannot be read as CSV"),
        (orc, "ORC files, which are not supported"),
        (elsewhere, "not below"),
    ],
)
def test_a_delivery_that_cannot_be_right_is_refused_and_nothing_changes(store, log, harm, says):
    deliver(store, gzipped(csv_line("before")))
    load_deliveries(log, store, newest(store))
    before = log.update().version, sorted(info.path for info in log.store.list_all())
    store.delete_many([info.path for info in store.list_all("lake/all/data")])
    harm(store, deliver(store, gzipped(csv_line("after"))))
    with pytest.raises(InvalidArgumentError, match=says) as caught:
        load_deliveries(log, store, newest(store), force=True)
    assert caught.value.exit_code == 1
    assert caught.value.hint
    assert (log.update().version, sorted(info.path for info in log.store.list_all())) == before
    assert rows_of(log)["key"].to_list() == ["before"]


def test_a_load_that_fails_leaves_no_file(store, tmp_path):
    deliver(store, gzipped(csv_line("a")))
    inner = open_store(str(tmp_path / "report"))
    faulty = FaultyStore(inner, Fault(verb="head", path_contains=".parquet", kind=FaultKind.FAIL, call=0))
    with pytest.raises(StorageError):
        load_deliveries(DeltaLog(faulty), store, newest(store))
    assert faulty.fired
    assert [info.path for info in inner.list_all() if info.path.endswith(".parquet")] == []
    assert load_deliveries(DeltaLog(inner), store, newest(store)).version == 0


def test_a_table_of_another_kind_is_left_alone(store, tmp_path):
    from pydelta.storage.memory import MemoryStore
    from pydelta.testing.tables import TableBuilder

    deliver(store, gzipped(csv_line("a")))
    other = MemoryStore("memory://no-inventory-table/t")
    TableBuilder(other, columns={"bucket": "string", "key": "string"}).commit()
    with pytest.raises(SchemaMismatchError, match=r"not an inventory table: length long \(is missing\)"):
        load_deliveries(DeltaLog(other), store, newest(store))


def test_the_job_takes_the_newest_complete_delivery_and_warns_of_the_rest(store, tmp_path):
    root, table = str(tmp_path / "reports" / "daily"), str(tmp_path / "report")
    deliver(store, gzipped(csv_line("a")))
    deliver(store, gzipped(csv_line("b")), made=MADE + DAY, checksum=False)
    deliver(store, gzipped(csv_line("p", bucket="pond")), bucket="pond", checksum=False)
    arguments = ["--source", root, "--location", table]
    found = load_inventory.run({}, [*arguments, "--bucket", "lake", "--bucket", "pond", "--bucket", "sea"])
    assert [item["bucket"] for item in found["buckets"]] == ["lake"]
    assert len(found["warnings"]) == 3
    assert (
        "lake/all/2023-11-15T22-13Z of the bucket lake is not complete; lake/all/2023-11-14T22-13Z"
        in (found["warnings"][0])
    )
    assert "pond is not complete, and there is no other" in found["warnings"][1]
    assert "The bucket sea has no delivery" in found["warnings"][2]
    log = DeltaLog.for_table(table)
    assert rows_of(log)["key"].to_list() == ["a"]
    deliver(store, gzipped(csv_line("b")), made=MADE + DAY)
    assert load_inventory.run({}, arguments)["version"] == 1
    assert rows_of(log)["key"].to_list() == ["b"]
    DeltaLog.clear_cache()


def test_exit_codes_of_the_jobs(store, tmp_path, capsys):
    root = str(tmp_path / "reports" / "daily")
    deliver(store, b"damaged", file_format="CSV")
    assert load_inventory.main(["--source", root, "--location", str(tmp_path / "r")]) == 1
    assert json.loads(capsys.readouterr().out)["exit_code"] == 1
    assert load_inventory.main(["--source", root]) == 1, "nowhere to put the table"
    assert "--location" in json.loads(capsys.readouterr().out)["message"]
    assert load_inventory.main(["--no-such-flag"]) == 1
    assert inventory_job.main(["--source", str(tmp_path), "--destination", root, "--parallel", "0"]) == 1
    assert inventory_job.main(["--source", str(tmp_path), "--destination", root, "--id", "a/b"]) == 1
    capsys.readouterr()
    assert inventory_job.main(["--source", str(tmp_path), "--destination", str(tmp_path / "out"), "--keep", "1"]) == 0
    assert inventory_job.main(["--source", str(tmp_path), "--destination", str(tmp_path / "out"), "--keep", "1"]) == 0
    first, second = (json.loads(line)["inventories"][0] for line in capsys.readouterr().out.splitlines())
    out = open_store(str(tmp_path / "out"))
    (left,) = find_deliveries(out, "file")
    assert second["removed"] == [first["manifest"].split("/")[-2]]
    assert left.stamp == second["manifest"].split("/")[-2]
    files = {info.path for info in out.list_all("file/lakehouse/data")}
    assert files == {file.key for file in read_manifest(out, left).files}


def test_the_writer_starts_a_new_file_when_one_is_full(store, log, monkeypatch):
    monkeypatch.setattr("pydelta.tools.inventory.load._FILE_ROWS", 2)
    monkeypatch.setattr("pydelta.tools.inventory.rows._BLOCK_BYTES", 300)
    deliver(store, gzipped(*(csv_line(f"k{number}") for number in range(9))))
    result = load_deliveries(log, store, newest(store))
    assert result.files_added > 1
    assert rows_of(log)["key"].to_list() == [f"k{number}" for number in range(9)]
    assert sum(json.loads(add.stats)["numRecords"] for add in log.update().files.adds(log.update().files.core)) == 9


def job(tmp_path, store, *more, now_ms=None):
    root = store.root.removeprefix("file://")
    found = load_inventory.run({}, ["--source", root, "--location", str(tmp_path / "report"), *more], now_ms=now_ms)
    DeltaLog.clear_cache()
    return found


def keys(tmp_path):
    return rows_of(DeltaLog.for_table(str(tmp_path / "report")))["key"].to_list()


def test_of_several_inventories_of_a_bucket_none_is_taken_unasked_and_no_other_bucket_waits(store, tmp_path):
    deliver(store, gzipped(csv_line("a/x")), config="part-a")
    deliver(store, gzipped(csv_line("b/x")), config="part-b", made=MADE + DAY)
    deliver(store, gzipped(csv_line("p", bucket="pond")), bucket="pond")
    found = job(tmp_path, store)
    (problem,) = found["problems"]
    assert (problem["bucket"], problem["error"], problem["exit_code"]) == ("lake", "DELTA_INVENTORY_UNUSABLE", 1)
    assert "part-a, part-b" in problem["message"] and "--id" in problem["message"]
    assert keys(tmp_path) == ["p"]
    assert job(tmp_path, store, "--id", "part-a")["problems"] == []
    assert keys(tmp_path) == ["a/x", "p"]
    assert job(tmp_path, store, "--id", "part-a", "--id", "part-b")["problems"] == []
    assert keys(tmp_path) == ["a/x", "b/x", "p"], "each part by the newest list of it"


def test_parts_of_a_bucket_are_loaded_again_when_any_of_them_is_newer(store, log):
    deliver(store, gzipped(csv_line("a/1")), config="part-a", made=MADE + 5 * DAY)
    deliver(store, gzipped(csv_line("b/1")), config="part-b", made=MADE)
    assert load_deliveries(log, store, find_deliveries(store, "lake")).files_added == 2
    assert load_deliveries(log, store, find_deliveries(store, "lake")).version is None
    assert set(rows_of(log)["inventory_date"].dt.epoch("ms")) == {MADE, MADE + 5 * DAY}
    deliver(store, gzipped(csv_line("b/2")), config="part-b", made=MADE + DAY)
    a, b_old, b_new = sorted(find_deliveries(store, "lake"), key=lambda item: (item.id, item.stamp))
    assert b_old.stamp < b_new.stamp < a.stamp
    assert load_deliveries(log, store, [a, b_new]).version == 1, "newer than its own list, though older than the other"
    assert rows_of(log)["key"].to_list() == ["a/1", "b/2"]
    with pytest.raises(InvalidArgumentError, match="are of the same inventory"):
        load_deliveries(log, store, [b_old, b_new])


def test_a_delivery_from_the_future_is_passed_over_with_a_warning_and_an_error_where_there_is_no_other(store, tmp_path):
    now = MADE + DAY
    deliver(store, gzipped(csv_line("good")))
    deliver(store, gzipped(csv_line("ahead")), made=now + 40 * DAY)
    found = job(tmp_path, store, now_ms=now)
    assert (keys(tmp_path), found["problems"]) == (["good"], [])
    assert any("dated in the future" in text and "lake/all/" in text for text in found["warnings"])
    deliver(store, gzipped(csv_line("p", bucket="pond")), bucket="pond", made=now + 40 * DAY)
    found = job(tmp_path, store, now_ms=now)
    (problem,) = found["problems"]
    assert (problem["bucket"], problem["error"]) == ("pond", "DELTA_INVENTORY_UNUSABLE")
    assert keys(tmp_path) == ["good"]
    deliver(store, gzipped(csv_line("soon")), made=now + 60_000)
    assert job(tmp_path, store, "--bucket", "lake", now_ms=now)["version"] == 1, "clocks differ a little"
    assert keys(tmp_path) == ["soon"]


def test_a_manifest_from_the_future_in_a_folder_of_the_past_is_one_too(store, tmp_path, log):
    folder = deliver(store, gzipped(csv_line("x")))
    text = store.read(f"{folder}/manifest.json").replace(str(MADE).encode(), str(MADE + 400 * DAY).encode())
    store.put(f"{folder}/manifest.json", text)
    store.put(f"{folder}/manifest.checksum", md5_hex(text).encode())
    assert [problem["bucket"] for problem in job(tmp_path, store, now_ms=MADE + DAY)["problems"]] == ["lake"]
    with pytest.raises(InventoryUnusableError, match="dated in the future"):
        load_deliveries(log, store, newest(store), now_ms=MADE + DAY)


def test_a_list_from_the_future_that_was_loaded_before_keeps_no_later_one_out(store, log):
    deliver(store, gzipped(csv_line("ahead")), made=MADE + 40 * DAY)
    load_deliveries(log, store, newest(store), now_ms=MADE + 41 * DAY)
    deliver(store, gzipped(csv_line("now")), made=MADE + DAY)
    good = find_deliveries(store, "lake")[:1]
    assert load_deliveries(log, store, good, now_ms=MADE + 2 * DAY).version == 1
    assert rows_of(log)["key"].to_list() == ["now"]
    assert loaded_until(log.update(), "lake") == MADE + DAY


def test_what_is_no_longer_current_is_added_up_by_table(store, log):
    lines = [
        csv_line("t/a", size="7"),
        csv_line("t/a", latest=False, size="100"),
        csv_line("t/b", latest=False, size="1000"),
        csv_line("t/b", marker=True, size=""),
        csv_line("t/c", latest=False, marker=True, size=""),
        csv_line("free", latest=False, size="5"),
    ]
    deliver(store, gzipped(*lines))
    (loaded,) = load_deliveries(log, store, newest(store), locations={"db.t": "s3a://lake/t"}).buckets
    assert (loaded.rows, loaded.noncurrent_objects, loaded.noncurrent_bytes, loaded.delete_markers) == (1, 3, 1105, 2)
    assert loaded.noncurrent_bytes_by_table == {"db.t": 1100}
    assert rows_of(log)["key"].to_list() == ["t/a"]


def test_a_list_of_current_versions_alone_says_nothing_of_the_others(store, log):
    line = '"lake","a","7","2023-11-13T00:00:00.000Z"'
    deliver(store, gzipped(line), schema="Bucket, Key, Size, LastModifiedDate")
    (loaded,) = load_deliveries(log, store, newest(store)).buckets
    assert (loaded.rows, loaded.noncurrent_bytes, loaded.delete_markers) == (1, None, None)


def test_versions_of_which_none_is_called_the_latest_are_refused(store, log):
    deliver(store, gzipped('"lake","a","v1","7","2023-11-13T00:00:00.000Z"'),
            schema="Bucket, Key, VersionId, Size, LastModifiedDate")  # fmt: skip
    with pytest.raises(InvalidArgumentError, match="IsLatest"):
        load_deliveries(log, store, newest(store))
