"""VACUUM USING INVENTORY: whatever spelling the list has, nothing is listed and nothing needed goes."""

from __future__ import annotations

import gzip
import itertools

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pydelta.commands.vacuum.command import Vacuum
from pydelta.commands.vacuum.inventory import Inventory
from pydelta.commands.vacuum.inventory_sources import from_csv, from_frame, from_parquet, inventory_from_delta
from pydelta.errors import (
    InvalidArgumentError,
    InventoryUnusableError,
    SchemaMismatchError,
    StorageError,
    TableNotFoundError,
)
from pydelta.log import DeltaLog
from pydelta.log.vector_files import write_vectors
from pydelta.protocol.actions import Protocol
from pydelta.storage.local import LocalStore
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore, TableBuilder
from pydelta.testing.commands import vacuum
from pydelta.testing.garbage import HOUR_MS, Yard

_NAMES = itertools.count()
NOW = 1_800_000_000_000
OLD = NOW - 1000 * HOUR_MS


def rows(*paths, at=OLD, **columns):
    frame = pl.DataFrame(
        {
            "path": paths,
            "length": [10] * len(paths),
            "isDir": [False] * len(paths),
            "modificationTime": [at] * len(paths),
        },
        schema={"path": pl.String, "length": pl.Int64, "isDir": pl.Boolean, "modificationTime": pl.Int64},
    )
    return frame.with_columns(**columns)


class S3Look(MemoryStore):
    """Objects in memory under an s3a location, as far as the log and VACUUM can tell."""

    def __init__(self, root):
        self.shown = root
        super().__init__(f"memory://inventory{next(_NAMES)}/t")

    @property
    def root(self):
        return self.shown


def yard_at(root="s3a://lake/tables/t", columns=("p",)):
    return Yard(S3Look(root), partition_columns=columns, now_ms=NOW)


def grown(root="s3a://lake/tables/t", prefix="p=1/"):
    yard = yard_at(root)
    yard.commit(yard.add(f"{prefix}live", age=900), age=900)
    yard.put(f"{prefix}garbage", age=900)
    return yard


def run(yard, inventory, **request):
    return vacuum(yard.log, Vacuum(inventory=inventory, **request), now_ms=NOW)


SPELLINGS = [
    # root, directory, how the inventory spells it
    ("s3a://lake/tables/t", "p=1/", "s3a://lake/tables/t/p=1/"),
    ("s3a://lake/tables/t", "p=1/", "s3://lake/tables/t/p=1/"),
    ("s3a://lake/tables/t", "p=1/", "s3n://lake/tables/t/p=1/"),
    ("s3a://lake/tables/t", "p=1/", "p=1/"),
    ("s3a://lake/tables/t", "p=1/", "./p=1/"),
    ("s3a://lake/tables/t", "p=a b/", "s3://lake/tables/t/p=a b/"),
    ("s3a://lake/tables/t", "p=a b/", "s3://lake/tables/t/p=a%20b/"),
    ("s3a://lake/tables/t", "p=a%3Ab/", "s3://lake/tables/t/p=a%3Ab/"),
    ("s3a://lake/tables/t", "p=a%3Ab/", "s3://lake/tables/t/p=a%253Ab/"),
    ("s3a://lake/tables/t", "p=ä/", "p=%C3%A4/"),
    ("s3a://lake/the tables/t", "p=1/", "s3://lake/the%20tables/t/p=1/"),
    ("s3a://lake/the tables/t", "p=a%3Ab/", "s3://lake/the%20tables/t/p=a%253Ab/"),
    ("s3a://lake/100%/t", "p=1/", "s3://lake/100%/t/p=1/"),
    ("s3a://lake/a.b (c)/t", "p=1/", "s3a://lake/a.b (c)/t/p=1/"),
]


@pytest.mark.parametrize(("root", "prefix", "spelt"), SPELLINGS)
def test_however_paths_are_spelt_the_garbage_goes_and_nothing_else(root, prefix, spelt):
    yard = grown(root, prefix)
    result = run(yard, from_frame(rows(f"{spelt}live", f"{spelt}garbage")))
    assert yard.files() == {f"{prefix}live"}
    assert (result.deleted, result.mode) == (1, "inventory")


@pytest.mark.parametrize("encoded", [True, False])
def test_where_nothing_tells_how_paths_are_spelt_the_caller_may_say(encoded):
    yard = yard_at()
    yard.commit(yard.add("p=1/live", age=900), age=900)
    for path in ("p=a%20b/x", "p=a b/x"):
        yard.put(path, age=900)
    run(yard, from_frame(rows("p=a%20b/x"), encoded=encoded))
    assert ("p=a b/x" in yard.files()) is not encoded
    assert ("p=a%20b/x" in yard.files()) is encoded


def test_nothing_of_the_tables_data_is_listed():
    yard = grown()
    publish_like = "_symlink_format_manifest/manifest"
    yard.put(publish_like, age=1)
    store = CountingStore(yard.store)
    frame = rows("p=1/live", *(f"p=1/g{number}" for number in range(2500)))
    result = vacuum(DeltaLog(store), Vacuum(inventory=from_frame(frame)), now_ms=NOW)
    assert not store.paths("list_page")
    listed = store.paths("list_all", "list_from")
    beside = {"_delta_log", "_symlink_format_manifest", "_pydelta/manifests", "_pydelta/clones"}
    beside.add("_pydelta/iceberg/metadata")
    assert set(listed) <= {*beside, "p=1/_delta_log"}, "of the data's folders it is asked whether they are tables"
    assert all(path.startswith("_delta_log/") for path in store.paths("head"))
    assert (result.list_requests, result.listing_requests, result.directory_requests) == (1, 3, 4)
    assert result.delete_requests == 3


def test_a_list_can_only_make_it_delete_less():
    yard = grown()
    young = yard.put("p=1/young", age=2)
    again = from_frame(rows("p=1/live", "p=1/garbage", "p=1/gone already"), as_of_ms=OLD)
    assert run(yard, again).deleted == 2
    assert yard.files() == {"p=1/live", young}
    newer = rows("p=1/young", at=OLD + 1)  # the list says to be older than its row: that row cannot be right
    result = run(yard, from_frame(newer, as_of_ms=OLD))
    assert result.deleted == 0
    assert "1 rows of The inventory are newer than itself" in " ".join(result.warnings)
    assert (
        run(yard, from_frame(rows("p=1/young").with_columns(modificationTime=pl.lit(None, dtype=pl.Int64)))).deleted
        == 0
    )
    assert run(yard, from_frame(rows("p=1/young", at=0))).deleted == 0
    assert yard.files() == {"p=1/live", young}


def test_of_several_rows_of_one_file_the_newest_counts():
    yard = grown()
    young = yard.put("p=1/young", age=2)
    parts = [rows("p=1/young", at=NOW - HOUR_MS), rows("p=1/garbage"), rows("p=1/young")]
    for order in (parts, parts[::-1]):
        inventory = Inventory(description="The list", frames=lambda root, order=order: iter(order))
        assert set(run(yard, inventory, dry_run=True).files["path"]) == {"p=1/garbage"}
    assert young in yard.files()


def test_rows_may_say_when_their_list_was_made():
    yard = grown()
    dated = rows("p=1/garbage").with_columns(inventory_date=pl.lit(OLD - 1, dtype=pl.Int64).cast(pl.Datetime("ms")))
    assert run(yard, from_frame(dated)).deleted == 0
    dated = dated.with_columns(inventory_date=pl.lit(OLD + 1, dtype=pl.Int64).cast(pl.Datetime("ms")))
    result = run(yard, from_frame(dated))
    assert result.deleted == 1
    assert result.inventory_age_ms == NOW - OLD - 1
    assert any("41 days old" in text for text in result.warnings)


@pytest.mark.parametrize(("at", "unit"), [(OLD // 1000, "seconds"), (OLD * 1000, "microseconds")])
def test_times_in_another_unit_are_refused(at, unit):
    with pytest.raises(InvalidArgumentError, match=f"are in {unit}"):
        run(grown(), from_frame(rows("p=1/garbage", at=at)))


def test_the_difference_to_an_inventory_is_named():
    frame = rows("x").rename({"isDir": "is_dir", "modificationTime": "modificationtime"}).cast({"length": pl.Int32})
    with pytest.raises(SchemaMismatchError) as caught:
        from_frame(frame)
    text = str(caught.value)
    assert "length is int32 and must be bigint" in text
    assert "isDir boolean is missing" in text
    assert "modificationTime bigint is missing (there is 'modificationtime')" in text


def test_a_list_of_another_bucket_or_of_nothing():
    yard = grown()
    for elsewhere in ("s3://other/tables/t/p=1/garbage", "s3://lake/tables/t2/garbage", "gs://lake/tables/t/garbage"):
        with pytest.raises(InventoryUnusableError, match="lists nothing under") as caught:
            run(yard, from_frame(rows(elsewhere)))
        assert (caught.value.code, caught.value.exit_code) == ("DELTA_INVENTORY_UNUSABLE", 1)
    mixed = run(yard, from_frame(rows("s3://other/tables/t/p=1/live", "s3://lake/tables/t/p=1/garbage")))
    assert mixed.deleted == 1
    with pytest.raises(InventoryUnusableError, match="lists nothing under"):
        run(yard, from_frame(rows()))
    with pytest.raises(InventoryUnusableError):
        run(yard, from_frame(rows()), dry_run=True)


def test_a_list_that_is_older_than_the_table_cannot_know_it_and_a_table_without_files_needs_none():
    yard = grown()
    before = yard.log.update().metadata.created_time - 1
    result = run(yard, from_frame(rows(), as_of_ms=before))
    assert result.deleted == 0
    assert "was made before this table" in " ".join(result.warnings)
    with pytest.raises(InventoryUnusableError):
        run(yard, from_frame(rows(), as_of_ms=before + 2))
    assert run(yard_with_nothing(), from_frame(rows())).deleted == 0


def yard_with_nothing():
    yard = yard_at()
    yard.commit(age=900)
    return yard


FUTURE = NOW + 2 * HOUR_MS


def test_rows_of_a_list_that_is_dated_in_the_future_are_passed_over():
    yard = grown()
    yard.put("p=1/more", age=900)
    ahead = pl.lit(FUTURE, dtype=pl.Int64).cast(pl.Datetime("ms")).alias("inventory_date")
    good = pl.lit(NOW - HOUR_MS, dtype=pl.Int64).cast(pl.Datetime("ms")).alias("inventory_date")
    both = pl.concat([rows("p=1/garbage").with_columns(ahead), rows("p=1/more").with_columns(good)])
    result = run(yard, from_frame(both), dry_run=True)
    assert result.files["path"].to_list() == ["p=1/more"]
    assert any("dated in the future" in text for text in result.warnings)
    assert result.inventory_age_ms == HOUR_MS
    for inventory in (from_frame(rows("p=1/garbage").with_columns(ahead)), from_frame(rows("p=1/x"), as_of_ms=FUTURE)):
        with pytest.raises(InventoryUnusableError, match="dated in the future"):
            run(yard, inventory)
    assert "p=1/garbage" in yard.files()
    assert run(yard, from_frame(rows("p=1/garbage"), as_of_ms=NOW + HOUR_MS // 2)).deleted == 1, (
        "clocks differ a little"
    )


VERSIONS = ("isLatest", "isDeleteMarker"), ("IsLatest", "IsDeleteMarker"), ("is_latest", "is_delete_marker")


@pytest.mark.parametrize("names", VERSIONS)
@pytest.mark.parametrize("kind", ["boolean", "text"])
def test_of_a_list_with_all_versions_the_current_ones_count_and_the_others_are_told(names, kind):
    yard = grown()
    yard.put("p=1/young", age=2)
    listed = [
        # path, time, latest, marker, length
        ("p=1/live", OLD, True, False, 10),
        ("p=1/live", OLD - 1, False, False, 7),
        ("p=1/garbage", OLD, True, False, 10),
        ("p=1/young", OLD, False, False, 100),  # the version before the one that a writer has just put
        ("p=1/gone", OLD, False, False, 1000),
        ("p=1/gone", OLD + 1, True, True, 0),
        ("elsewhere://x/y", OLD, False, False, 5000),
    ]
    columns = ("path", "modificationTime", *names, "length")
    frame = pl.DataFrame(listed, schema=columns, orient="row").with_columns(isDir=pl.lit(value=False))
    if kind == "text":
        frame = frame.with_columns(pl.col(*names).cast(pl.String))
    result = run(yard, from_frame(frame))
    assert result.files["path"].to_list() == ["p=1/garbage"], "a deleted key is not deleted again, and again marked"
    assert (result.noncurrent_files, result.noncurrent_bytes, result.delete_markers) == (3, 1107, 1)
    assert yard.files() == {"p=1/live", "p=1/young"}
    assert run(yard, from_frame(rows("p=1/live"))).noncurrent_bytes is None, "the list does not say"


def test_versions_of_which_the_list_does_not_say_the_current_one_are_refused():
    frame = rows("p=1/garbage").with_columns(version_id=pl.lit("v1"))
    with pytest.raises(SchemaMismatchError, match="isLatest"):
        run(grown(), from_frame(frame))


@pytest.mark.parametrize("store", ["memory", "local"])
def test_directories_that_the_list_calls_empty_are_looked_at_before_anything_is_said(store, tmp_path):
    place = LocalStore(str(tmp_path)) if store == "local" else MemoryStore(f"memory://inventory{next(_NAMES)}/t")
    yard = Yard(place, partition_columns=("p",), now_ms=NOW)
    yard.commit(yard.add("p=1/live", age=900), age=900)
    yard.put("p=2/unlisted", age=1)
    yard.put("p=3", age=900, size=0)  # a file, whatever the list says
    yard.put("p=4/q=1/garbage", age=900)
    if store == "local":
        (tmp_path / "p=5/q=1").mkdir(parents=True)
        for folder in ("p=2", "p=4/q=1", "p=4", "p=5/q=1", "p=5"):
            yard.backdate(folder, age=900)
    folders = ["p=1", "p=2", "p=3", "p=4/q=1", "p=4", "p=5/q=1", "p=5", "p=6"]
    frame = rows("p=1/live", "p=4/q=1/garbage", *folders)
    flags = [False] * 2 + [True] * len(folders)
    frame = frame.with_columns(isDir=pl.Series(flags), length=pl.Series([10, 10] + [0] * len(folders)))
    planned = run(yard, from_frame(frame), dry_run=True)
    result = run(yard, from_frame(frame))
    assert planned.removed_directories == result.removed_directories == (4 if store == "local" else 0)
    assert planned.files["path"].to_list() == result.files["path"].to_list() == ["p=4/q=1/garbage"]
    assert yard.files() == {"p=1/live", "p=2/unlisted", "p=3"}


def test_directories_and_hidden_files_are_no_garbage():
    yard = grown()
    frame = rows("p=1/live", "p=1", "p=2/", "_delta_log/0.json", "_pydelta/x", "p=1/_y", "../t2/x", "p=1//x")
    frame = frame.with_columns(isDir=pl.Series([False, True, False, False, False, False, False, False]))
    result = run(yard, from_frame(frame), dry_run=True)
    assert result.files.is_empty()
    assert result.removed_directories == 0


def test_empty_directories_of_a_file_system_may_be_listed_too(tmp_path):
    yard = Yard(LocalStore(str(tmp_path)), partition_columns=("p",), now_ms=NOW)
    yard.commit(yard.add("p=1/live", age=900), age=900)
    (tmp_path / "p=2").mkdir()
    yard.backdate("p=2", age=900)
    frame = rows(f"file:{tmp_path}/p=1/live", f"file:{tmp_path}/p=2", f"{tmp_path}/p=1")
    frame = frame.with_columns(isDir=pl.Series([False, True, True]))
    result = run(yard, from_frame(frame))
    assert result.removed_directories == 1
    assert not (tmp_path / "p=2").exists()


def test_modes_that_exclude_each_other():
    yard = grown()
    inventory = from_frame(rows("p=1/garbage"))
    with pytest.raises(InvalidArgumentError, match="LITE"):
        run(yard, inventory, mode="lite")
    with pytest.raises(InvalidArgumentError, match="no inventory"):
        vacuum(yard.log, Vacuum(mode="inventory"))
    with pytest.raises(InvalidArgumentError, match="thorough"):
        vacuum(yard.log, Vacuum(mode="thorough"))


def test_another_table_below_and_a_list_that_knows_of_it():
    yard = grown()
    frame = rows("p=1/live", "sub/t/_delta_log/00000000000000000000.json", "sub/t/x", "sub/y")
    assert set(run(yard, from_frame(frame), dry_run=True).files["path"]) == {"sub/y"}


# --- where it comes from -----------------------------------------------------------------------------------------


def inventory_table(*frames, partitioned=False, kinds=None):
    store = MemoryStore(f"memory://inventory{next(_NAMES)}/list")
    columns = kinds or {"path": "string", "length": "long", "isDir": "boolean", "modificationTime": "long"}
    table = TableBuilder(store, columns=columns, partition_columns=("bucket",) if partitioned else ())
    adds = []
    for frame in frames:
        partition = {"bucket": frame["bucket"][0]} if partitioned else None
        data = frame.drop("bucket") if partitioned else frame
        adds.append(table.file(data.to_arrow(), partition))
    table.commit(*adds)
    return store, table


def test_a_delta_table_is_read_here():
    yard = grown()
    store, _ = inventory_table(rows("s3://lake/tables/t/p=1/live"), rows("s3://lake/tables/t/p=1/garbage"))
    assert run(yard, inventory_from_delta(DeltaLog(store))).deleted == 1
    with pytest.raises(TableNotFoundError):
        inventory_from_delta(DeltaLog(MemoryStore(f"memory://inventory{next(_NAMES)}/none")))
    bad, _ = inventory_table(
        rows("x").drop("isDir"), kinds={"path": "string", "length": "long", "modificationTime": "long"}
    )
    with pytest.raises(SchemaMismatchError, match="isDir boolean is missing"):
        inventory_from_delta(DeltaLog(bad))


def test_rows_that_a_deletion_vector_hides_are_not_there():
    yard = grown()
    yard.put("p=1/more", age=900)
    store, table = inventory_table()
    add = table.file(rows("p=1/live", "p=1/garbage", "p=1/more").to_arrow())
    (vector,), _ = write_vectors([np.array([1], dtype=np.uint64)], store=store)
    protocol = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("deletionVectors",),
        writer_features=("deletionVectors",),
    )
    table.commit(protocol, add.replace(deletion_vector=vector))
    assert set(run(yard, inventory_from_delta(DeltaLog(store))).files["path"]) == {"p=1/more"}


def test_of_a_table_by_bucket_and_key_only_what_may_matter_is_read():
    yard = grown()
    kinds = {"bucket": "string", "key": "string", "length": "long", "isDir": "boolean", "modificationTime": "long"}
    kinds["inventory_date"] = "timestamp"

    def part(bucket, *keys):
        date = pl.lit(NOW - HOUR_MS, dtype=pl.Int64).cast(pl.Datetime("ms", "UTC")).dt.cast_time_unit("us")
        return rows(*keys).rename({"path": "key"}).with_columns(bucket=pl.lit(bucket), inventory_date=date)

    own = part("lake", "tables/t/p=1/live", "tables/t/p=1/garbage", "tables/t2/p=1/x")
    store, _ = inventory_table(own, part("other", "tables/t/p=1/live"), partitioned=True, kinds=kinds)
    counting = CountingStore(store)
    result = run(yard, inventory_from_delta(DeltaLog(counting)))
    assert set(result.files["path"]) == {"p=1/garbage"}
    assert len({path for path in counting.paths("read", "read_range") if "bucket=" in path}) == 1
    assert result.inventory_age_ms == HOUR_MS
    assert not result.warnings


def test_files_of_parquet_and_csv(tmp_path):
    yard = grown()
    frame = rows("p=1/live", "p=1/garbage")
    folder = tmp_path / "an inventory"
    folder.mkdir()
    pq.write_table(frame.to_arrow(), folder / "part-0.parquet")
    (folder / "_SUCCESS").touch()
    for source in (from_parquet(str(folder)), from_parquet(str(folder / "part-0.parquet"))):
        assert run(yard, source, dry_run=True).files.height == 1
    text = frame.with_columns(pl.col("isDir").cast(pl.String)).write_csv()
    (folder / "list.csv").write_text(text)
    (tmp_path / "list.csv.gz").write_bytes(gzip.compress(text.encode()))
    for source in (from_csv(str(folder)), from_csv(str(tmp_path / "list.csv.gz"))):
        assert run(yard, source, dry_run=True).files.height == 1
    with pytest.raises(InvalidArgumentError, match=r"no \.parquet file"):
        run(yard, from_parquet(str(tmp_path / "none")))
    (folder / "broken.parquet").write_bytes(b"nothing")
    with pytest.raises(StorageError, match="cannot be read as Parquet"):
        run(yard, from_parquet(str(folder)))
    (folder / "list.csv").write_text("path,length,isDir,modificationTime\nx,10,false,yesterday\n")
    with pytest.raises(SchemaMismatchError, match="modificationTime is 'yesterday'"):
        run(yard, from_csv(str(folder)))
    (folder / "list.csv").write_text("path,length\nx,10\n")
    with pytest.raises(SchemaMismatchError, match="isDir boolean is missing"):
        run(yard, from_csv(str(folder)))
    assert pa.__version__
