"""A table that is written over with other partition columns, and restored: the twin has all its partitions again."""

from __future__ import annotations

import pytest

from catalog_sync.errors import MetastoreError
from catalog_sync.inputs import ATOMIC_KEY
from catalog_sync.inspect import verify_sync
from catalog_sync.names import TableName
from catalog_sync.sync import SyncOptions, sync_table
from catalog_sync.thrift.client import found_partition
from catalog_sync.thrift.memory import MemoryMetastore
from catalog_sync.twin import GENERATOR_KEY
from pydelta.log import DeltaLog
from pydelta.protocol.actions import encode_json
from pydelta.protocol.partitions import HIVE_NULL
from pydelta.testing.operations import add_file, table_metadata
from pydelta.txn import Operation, start_transaction

TWIN = TableName(database="lake_symlink", name="orders")
COLUMNS = {"p": "string", "q": "string", "x": "long"}


class Shape:
    """Columns that a table is partitioned by, columns it has, and the values of one file each."""

    def __init__(self, by, values, **columns):
        self.by = by
        self.columns = COLUMNS | columns
        self.values = values

    def commit(self, log):
        """Write the table over."""
        txn = start_transaction(log)
        txn.read_whole_table()
        fields = [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in self.columns.items()
            if kind
        ]
        metadata = txn.snapshot.metadata or table_metadata()
        schema = encode_json({"type": "struct", "fields": fields})
        txn.update_metadata(metadata.replace(schema_string=schema, partition_columns=self.by))
        old = txn.snapshot.files.adds(txn.snapshot.files.core)
        new = [
            add_file("x", [1]).replace(
                path=f"v{txn.snapshot.version + 1}-{number}.parquet",
                partition_values=dict(zip(self.by, values, strict=True)),
            )
            for number, values in enumerate(self.values)
        ]
        txn.commit([*(add.remove(deletion_timestamp=1) for add in old), *new], Operation(name="WRITE"))


BY_P = Shape(("p",), [("a",), ("b",), (None,)])
ODD = ["a b", "50%", "x=y", "a/b", "é中", "quote'\"", "{x}", "", None]
CHANGES = {
    "another column": (BY_P, Shape(("q",), [("a",), ("z",)])),
    "a second one": (BY_P, Shape(("p", "q"), [("a", "1"), ("a", None), ("c", "2")])),
    "one less": (Shape(("p", "q"), [("a", "1"), ("b", "2")]), BY_P),
    "another order": (Shape(("p", "q"), [("a", "1"), ("b", "a")]), Shape(("q", "p"), [("1", "a"), ("a", "b")])),
    "another name": (BY_P, Shape(("r",), [("a",), ("b",)], p=None, r="string")),
    "another case": (
        Shape(("Part",), [("a",), ("b",)], Part="string"),
        Shape(("part",), [("a",), ("c",)], part="string"),
    ),
    "a wider number": (Shape(("p",), [("1",), ("2",)], p="integer"), Shape(("p",), [("1",), ("3",)], p="long")),
    "a number instead of text": (Shape(("p",), [("01",), ("abc",)]), Shape(("p",), [("1",), ("2",)], p="integer")),
    "a time instead of a date": (
        Shape(("p",), [("2024-01-01",), ("2024-01-02",)], p="date"),
        Shape(("p",), [("2024-01-01 00:00:00",), ("2024-01-03 10:00:00",)], p="timestamp_ntz"),
    ),
    "none": (BY_P, Shape((), [(), ()])),
    "odd values": (Shape((), [()]), Shape(("p",), [(value,) for value in ODD[:-2]] + [(None,)])),
    "nothing left": (BY_P, Shape(("q",), [])),
    "the same": (BY_P, Shape(("p",), [("b",), ("c",)])),
}  # fmt: skip


@pytest.fixture
def log(tmp_path):
    yield DeltaLog.for_table(str(tmp_path / "orders"))
    DeltaLog.clear_cache()


@pytest.fixture
def metastore():
    return MemoryMetastore()


def seen(metastore, log):
    """What a reader of the twin gets: values of the partition -> lines of its manifest."""
    entry = metastore.table(TWIN.database, TWIN.name)
    root = f"{log.uri}/"
    if not entry.partitionKeys:
        return {(): log.store.read(f"{entry.sd.location.removeprefix(root)}/manifest").decode().splitlines()}
    names = metastore.partition_names(TWIN.database, TWIN.name)
    found = {}
    for part in metastore.partitions(TWIN.database, TWIN.name, names):
        where = found_partition(part, [key.name for key in entry.partitionKeys]).location.removeprefix(root)
        found[tuple(part.values)] = log.store.read(f"{where}/manifest").decode().splitlines()
    return found


def expected(log):
    snapshot = log.update()
    found = {} if snapshot.partition_columns else {(): []}
    for add in snapshot.files.adds(snapshot.files.core):
        values = tuple(add.partition_values[name] or HIVE_NULL for name in snapshot.partition_columns)
        found.setdefault(values, []).append(f"{snapshot.table_uri}/{add.path}")
    return {values: sorted(lines) for values, lines in found.items()}


def check(metastore, log):
    assert seen(metastore, log) == expected(log)
    report = verify_sync(log, metastore, TWIN, files=0)
    assert report.ok, report
    again = sync_table(log, metastore, TWIN)
    assert (again.calls, again.plan.is_empty) == (1, True), "and nothing is left to do"
    assert seen(metastore, log) == expected(log)


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("change", list(CHANGES))
def test_partitions_follow_a_table_that_is_partitioned_in_another_way(log, metastore, change, atomic):
    before, after = CHANGES[change]
    before.commit(log)
    sync_table(log, metastore, TWIN, SyncOptions(atomic=atomic))
    check(metastore, log)
    after.commit(log)
    sync_table(log, metastore, TWIN)
    check(metastore, log)
    before.commit(log)
    sync_table(log, metastore, TWIN)
    check(metastore, log)


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("change", list(CHANGES))
def test_a_table_that_was_partitioned_in_another_way_for_a_while(log, metastore, change, atomic):
    """The twin never saw it: what its commits say of partitions does not tell what the twin should have."""
    before, between = CHANGES[change]
    before.commit(log)
    sync_table(log, metastore, TWIN, SyncOptions(atomic=atomic))
    between.commit(log)
    Shape(before.by, before.values[:-1], **before.columns).commit(log)
    sync_table(log, metastore, TWIN)
    check(metastore, log)


def test_a_twin_that_an_older_release_left_without_partitions_is_filled_again(log, metastore):
    BY_P.commit(log)
    sync_table(log, metastore, TWIN)
    entry = metastore.table(TWIN.database, TWIN.name)
    entry.parameters[GENERATOR_KEY] = "1"
    metastore.alter(entry)
    metastore.drop_partitions(TWIN.database, TWIN.name, ["p=a", "p=b", f"p={HIVE_NULL}"])
    assert seen(metastore, log) == {}
    sync_table(log, metastore, TWIN)
    check(metastore, log)


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("change", ["another column", "none", "odd values", "another case"])
def test_a_metastore_that_fails_meanwhile_still_shows_the_rows_of_before(log, metastore, change, atomic):
    """Manifests go out first; those of the partitions that a table had are what its readers see until then."""
    before, after = CHANGES[change]
    before.commit(log)
    sync_table(log, metastore, TWIN, SyncOptions(atomic=atomic))
    shown = expected(log)
    after.commit(log)

    def fail(verb):
        if verb not in ("get_table_req", "get_partition_names", "get_partitions_by_names"):
            raise MetastoreError("no more room")

    with pytest.raises(MetastoreError, match="no more room"):
        sync_table(log, MemoryMetastore(metastore, before=fail), TWIN)
    assert seen(metastore, log) == shown
    sync_table(log, metastore, TWIN)
    check(metastore, log)


def test_an_entry_that_is_made_anew_keeps_its_owner_and_what_is_not_ours(log, metastore):
    BY_P.commit(log)
    sync_table(log, metastore, TWIN, SyncOptions(atomic=True))
    entry = metastore.table(TWIN.database, TWIN.name)
    entry.owner, entry.parameters["team"] = "analysts", "sales"
    metastore.alter(entry)
    CHANGES["another column"][1].commit(log)
    sync_table(log, metastore, TWIN)
    made = metastore.table(TWIN.database, TWIN.name)
    assert (made.owner, made.parameters["team"], made.parameters[ATOMIC_KEY]) == ("analysts", "sales", "true")
    check(metastore, log)
