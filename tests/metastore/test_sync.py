"""A table's twin in a real metastore, after every kind of change and every interruption."""

from __future__ import annotations

import json

import pytest

from catalog_sync.diff import TableAction
from catalog_sync.errors import MetastoreUnavailableError, NotOursError
from catalog_sync.names import TableName
from catalog_sync.sync import SyncOptions, sync_table
from catalog_sync.thrift.client import (
    Metastore,
    MetastoreAddress,
    found_partition,
    hive_name,
    partition_entry,
    table_entry,
)
from catalog_sync.twin import VERSION_KEY, twin_of
from pydelta.errors import SchemaError
from pydelta.log import DeltaLog
from pydelta.manifests import publish, verify_manifests
from pydelta.protocol.actions import encode_json
from pydelta.testing.operations import add_file, append, create_table, delete_partition, table_metadata
from pydelta.txn import Operation, start_transaction


@pytest.fixture
def log(tmp_path):
    yield DeltaLog.for_table(str(tmp_path / "orders"))
    DeltaLog.clear_cache()


@pytest.fixture
def twin(database):
    return TableName(database=database, name="orders")


def partitions(metastore, twin):
    """Directory -> location of each partition that the metastore has."""
    names = metastore.partition_names(twin.database, twin.name)
    found = metastore.partitions(twin.database, twin.name, names)
    return {entry.values[0]: found_partition(entry, ["p"]).location for entry in found}


def expected(log):
    snapshot = log.update()
    root = f"{snapshot.table_uri}/_symlink_format_manifest"
    return {value: f"{root}/p={value}" for value in snapshot.files.core["pv:p"].unique().to_list()}


def entry_of(metastore, twin):
    return metastore.table(twin.database, twin.name)


def test_the_first_sync_makes_an_external_table_over_the_manifests(log, metastore, twin):
    create_table(log, [add_file("a", [1]), add_file("b", [2])])
    result = sync_table(log, metastore, twin)
    entry = entry_of(metastore, twin)
    assert entry.tableType == "EXTERNAL_TABLE"
    assert entry.sd.inputFormat == "org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat"
    assert entry.sd.outputFormat == "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat"
    assert entry.sd.serdeInfo.serializationLib == "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
    assert [(column.name, column.type) for column in entry.sd.cols] == [("x", "bigint")]
    assert [(column.name, column.type) for column in entry.partitionKeys] == [("p", "string")]
    assert entry.parameters["EXTERNAL"] == "TRUE"
    assert entry.parameters[VERSION_KEY] == "0"
    assert partitions(metastore, twin) == expected(log)
    assert (result.previous, result.version) == (None, 0)
    assert verify_manifests(log, files=0).ok


def test_a_sync_without_news_is_one_call(log, metastore, twin):
    create_table(log, [add_file("a", [1])])
    sync_table(log, metastore, twin)
    result = sync_table(log, metastore, twin)
    assert (result.calls, result.plan.is_empty) == (1, True)


def test_later_syncs_add_and_drop_just_what_changed(log, metastore, twin):
    create_table(log, [add_file(p, [1]) for p in "abcd"])
    sync_table(log, metastore, twin)
    append("b", [2]).run(log)
    append("new", [3]).run(log)
    delete_partition("c").run(log)
    result = sync_table(log, metastore, twin)
    assert not result.plan.full
    assert (result.plan.add, result.plan.drop) == (("p=new",), ("p=c",)), "b is there"
    assert result.calls <= 6, "the entry twice, before the lease and under it; partitions, add, drop, stamp"
    assert partitions(metastore, twin) == expected(log)
    assert entry_of(metastore, twin).parameters[VERSION_KEY] == "3"
    assert not log.store.head("_symlink_format_manifest/p=c/manifest")


def test_ten_of_ten_thousand_partitions_are_few_calls(log, metastore, twin):
    create_table(log, [add_file(f"p{number}", [number]) for number in range(10_000)])
    first = sync_table(log, metastore, twin)
    assert first.calls <= 14, "create, add in batches of a thousand, stamp"
    for number in range(5):
        append(f"p{number}", [1]).run(log)
        append(f"q{number}", [1]).run(log)
    result = sync_table(log, metastore, twin)
    assert result.calls <= 5
    assert len(result.manifests.written) == 10
    assert len(metastore.partition_names(twin.database, twin.name)) == 10_005


def test_values_of_every_kind_are_found_again(log, metastore, twin):
    values = ["a b", "50%", "x=y", "a/b", "é中", "quote'\"", "#", "a:b", "UPPER", "upper", "{x}", "plus+"]
    adds = [add_file("x", [n]).replace(path=f"f{n}", partition_values={"p": v}) for n, v in enumerate(values)]
    create_table(log, [*adds, add_file("x", [9]).replace(path="null", partition_values={"p": None})])
    sync_table(log, metastore, twin)
    assert set(partitions(metastore, twin)) == {*values, "__HIVE_DEFAULT_PARTITION__"}
    assert sync_table(log, metastore, twin, SyncOptions(full=True)).plan.add == ()
    for value in (*values, None):
        txn = start_transaction(log)
        txn.read_whole_table()
        adds = txn.snapshot.files.adds(txn.snapshot.files.core)
        doomed = [add for add in adds if add.partition_values["p"] == value]
        txn.commit([add.remove(deletion_timestamp=1) for add in doomed], Operation(name="DELETE"))
        sync_table(log, metastore, twin)
        assert (value or "__HIVE_DEFAULT_PARTITION__") not in partitions(metastore, twin)
    assert partitions(metastore, twin) == {}


def test_columns_follow_the_table_and_so_do_those_of_partitions(log, metastore, twin):
    create_table(log, [add_file("a", [1])])
    sync_table(log, metastore, twin)
    txn = start_transaction(log)
    fields = json.loads(txn.snapshot.metadata.schema_string)["fields"]
    added = {"name": "Note", "type": "string", "nullable": True, "metadata": {"comment": "what was said"}}
    schema = encode_json({"type": "struct", "fields": [*fields, added]})
    txn.update_metadata(txn.snapshot.metadata.replace(schema_string=schema, description="all orders"))
    txn.commit([add_file("b", [2])], Operation(name="WRITE"))
    result = sync_table(log, metastore, twin)
    assert result.plan.table is TableAction.ALTER
    entry = entry_of(metastore, twin)
    assert [(column.name, column.type, column.comment) for column in entry.sd.cols] == [
        ("x", "bigint", None),
        ("note", "string", "what was said"),
    ]
    assert entry.parameters["comment"] == "all orders"
    names = metastore.partition_names(twin.database, twin.name)
    for part in metastore.partitions(twin.database, twin.name, names):
        assert [column.name for column in part.sd.cols] == ["x", "note"]
    assert partitions(metastore, twin) == expected(log)
    assert sync_table(log, metastore, twin).calls == 1


def test_other_partition_columns_make_the_entry_anew(log, metastore, twin):
    create_table(log, [add_file("a", [1])])
    sync_table(log, metastore, twin)
    txn = start_transaction(log)
    txn.read_whole_table()
    old = txn.snapshot.files.adds(txn.snapshot.files.core)
    txn.update_metadata(txn.snapshot.metadata.replace(partition_columns=()))
    new = add_file("z", [5]).replace(path="new.parquet", partition_values={})
    txn.commit([*(add.remove(deletion_timestamp=1) for add in old), new], Operation(name="WRITE"))
    result = sync_table(log, metastore, twin)
    assert result.plan.table is TableAction.RECREATE
    entry = entry_of(metastore, twin)
    assert entry.partitionKeys == []
    assert [column.name for column in entry.sd.cols] == ["p", "x"]
    assert verify_manifests(log, files=0).ok
    assert log.store.read("_symlink_format_manifest/manifest").decode().endswith("new.parquet\n")


def test_an_unpartitioned_table_that_lost_its_rows_shows_none(log, metastore, twin):
    txn = start_transaction(log)
    txn.update_metadata(table_metadata().replace(partition_columns=()))
    txn.commit([add_file("a", [1]).replace(path="x", partition_values={})], Operation(name="CREATE"))
    sync_table(log, metastore, twin)
    txn = start_transaction(log)
    txn.read_whole_table()
    adds = txn.snapshot.files.adds(txn.snapshot.files.core)
    txn.commit([add.remove(deletion_timestamp=1) for add in adds], Operation(name="DELETE"))
    sync_table(log, metastore, twin)
    assert log.store.read("_symlink_format_manifest/manifest") == b""
    assert entry_of(metastore, twin).parameters[VERSION_KEY] == "1"


def test_a_table_of_the_same_name_that_is_not_ours_is_never_touched(log, metastore, twin, tmp_path):
    create_table(log, [add_file("a", [1])])
    theirs = table_entry(twin_of(log.update()), twin.database, twin.name, parameters={"made": "by hand"})
    metastore.create(theirs)
    with pytest.raises(NotOursError, match="did not make"):
        sync_table(log, metastore, twin)
    other = DeltaLog.for_table(str(tmp_path / "other"))
    create_table(other, [add_file("a", [1])])
    elsewhere = TableName(database=twin.database, name="elsewhere")
    sync_table(other, metastore, elsewhere)
    with pytest.raises(NotOursError, match="twin of the table at"):
        sync_table(log, metastore, elsewhere)
    assert entry_of(metastore, twin).parameters["made"] == "by hand"
    assert log.store.head("_pydelta/manifests.json") is None, "nothing was published either"


def test_the_twin_of_a_replaced_table_is_taken_over_when_asked_to(log, metastore, twin):
    create_table(log, [add_file("a", [1])])
    sync_table(log, metastore, twin)
    txn = start_transaction(log)
    txn.read_whole_table()
    old = txn.snapshot.files.adds(txn.snapshot.files.core)
    txn.update_metadata(table_metadata())
    txn.commit([*(add.remove(deletion_timestamp=1) for add in old), add_file("z", [1])], Operation(name="REPLACE"))
    with pytest.raises(NotOursError, match="earlier table"):
        sync_table(log, metastore, twin)
    result = sync_table(log, metastore, twin, SyncOptions(adopt=True))
    assert result.plan.full
    assert partitions(metastore, twin) == expected(log)


def test_a_partition_that_somebody_added_is_reported_and_kept_unless_pruned(log, metastore, twin):
    create_table(log, [add_file("a", [1])])
    sync_table(log, metastore, twin)
    by_hand = partition_entry(twin_of(log.update()), twin.database, twin.name, "p=hand")
    by_hand.parameters = {}
    metastore.add_partitions(twin.database, twin.name, [by_hand])
    result = sync_table(log, metastore, twin, SyncOptions(full=True))
    assert [(drift.partition, drift.what) for drift in result.plan.drift] == [
        ("p=hand", "added by somebody else, kept")
    ]
    assert "hand" in partitions(metastore, twin)
    assert sync_table(log, metastore, twin, SyncOptions(prune=True)).plan.drop == ("p=hand",)
    assert partitions(metastore, twin) == expected(log)


def test_a_partition_that_was_moved_or_dropped_by_hand_is_put_right_by_a_full_sync(log, metastore, twin):
    create_table(log, [add_file("a", [1]), add_file("b", [2])])
    sync_table(log, metastore, twin)
    (entry,) = metastore.partitions(twin.database, twin.name, ["p=a"])
    entry.sd.location = "file:///elsewhere"
    metastore.alter_partitions(twin.database, twin.name, [entry])
    metastore.drop_partitions(twin.database, twin.name, ["p=b"])
    result = sync_table(log, metastore, twin, SyncOptions(full=True))
    assert (result.plan.move, result.plan.add) == (("p=a",), ("p=b",))
    assert partitions(metastore, twin) == expected(log)


def test_columns_that_hive_cannot_have_are_named_and_nothing_is_done(log, metastore, twin):
    create_table(log, [add_file("a", [1])])
    txn = start_transaction(log)
    fields = json.loads(txn.snapshot.metadata.schema_string)["fields"]
    odd = {"name": "v", "type": "variant", "nullable": True, "metadata": {}}
    inner = {"type": "struct", "fields": [odd]}
    deep = {"name": "s", "type": {"type": "array", "elementType": inner, "containsNull": True}, "nullable": True}
    schema = encode_json({"type": "struct", "fields": [*fields, odd, deep | {"metadata": {}}]})
    body = txn.snapshot.metadata.replace(schema_string=schema)
    log.store.put("_delta_log/00000000000000000001.json", _line(body))
    with pytest.raises(SchemaError, match=r"'v': .*'s': ") as caught:
        sync_table(DeltaLog(log.store), metastore, twin)
    assert caught.value.hint
    assert entry_of(metastore, twin) is None


def _line(metadata):
    from pydelta.protocol.actions import encode_commit

    return encode_commit([metadata])


def test_a_plan_alone_changes_nothing(log, metastore, twin):
    create_table(log, [add_file("a", [1])])
    result = sync_table(log, metastore, twin, SyncOptions(dry_run=True))
    assert (result.plan.table, result.plan.add) == (TableAction.CREATE, ("p=a",))
    assert entry_of(metastore, twin) is None
    assert log.store.head("_pydelta/manifests.json") is None
    sync_table(log, metastore, twin)
    append("b", [1]).run(log)
    delete_partition("a").run(log)
    result = sync_table(log, metastore, twin, SyncOptions(dry_run=True))
    assert (result.plan.add, result.plan.drop) == (("p=b",), ("p=a",))
    assert set(partitions(metastore, twin)) == {"a"}


def test_manifests_that_another_process_published_are_synced_as_well(log, metastore, twin):
    create_table(log, [add_file("a", [1]), add_file("b", [1])])
    sync_table(log, metastore, twin)
    append("c", [1]).run(log)
    delete_partition("a").run(log)
    publish(log)  # knows of no metastore: the manifest of a is gone at once
    result = sync_table(log, metastore, twin)
    assert (result.plan.full, result.plan.add, result.plan.drop) == (False, ("p=c",), ("p=a",))
    assert partitions(metastore, twin) == expected(log)


def test_a_log_that_no_longer_reaches_back_is_compared_in_full(log, metastore, twin):
    create_table(log, [add_file("a", [1]), add_file("b", [1])])
    sync_table(log, metastore, twin)
    append("c", [1]).run(log)
    delete_partition("a").run(log)
    log.checkpoint()
    log.store.delete_many([f"_delta_log/{version:020}.json" for version in (0, 1)])
    DeltaLog.clear_cache()
    result = sync_table(DeltaLog.for_table(log.uri), metastore, twin)
    assert result.plan.full
    assert result.plan.drift == ()
    assert partitions(metastore, twin) == expected(log)


class _Dies(Metastore):
    """Breaks at a call, before or after it took effect."""

    def __init__(self, address, at, *, after):
        super().__init__(address)
        self._at, self._after = at, after

    def _call(self, verb, *arguments, **how):
        if len(self.calls) == self._at and not self._after:
            raise KeyboardInterrupt
        try:
            return super()._call(verb, *arguments, **how)
        finally:
            if len(self.calls) == self._at + 1 and self._after:
                raise KeyboardInterrupt


@pytest.mark.parametrize("after", [False, True])
def test_an_interruption_at_any_call_is_made_good_by_the_next_run(log, metastore, metastore_server, twin, after):
    create_table(log, [add_file(p, [1]) for p in "abc"])
    address = MetastoreAddress.parse(metastore_server.uri)
    met, call = 0, 0
    while True:
        with _Dies(address, call, after=after) as dying:
            try:
                sync_table(log, dying, twin)
                interrupted = False
            except KeyboardInterrupt:
                interrupted = True
        if not interrupted:
            break
        met += 1
        sync_table(log, metastore, twin)
        assert partitions(metastore, twin) == expected(log)
        assert entry_of(metastore, twin).parameters[VERSION_KEY] == str(log.update().version)
        assert verify_manifests(log, files=0).ok
        append(f"n{call}", [1]).run(log)
        delete_partition("abc"[call % 3] if call < 3 else f"n{call - 1}").run(log)
        call += 1
    assert met >= 4


def test_a_metastore_that_is_down_is_said_so_and_nothing_is_lost(log, twin):
    create_table(log, [add_file("a", [1])])
    pauses = []
    nobody = Metastore(MetastoreAddress.parse("thrift://127.0.0.1:1"), sleep=pauses.append)
    with pytest.raises(MetastoreUnavailableError, match=r"127\.0\.0\.1:1 does not answer") as caught:
        sync_table(log, nobody, twin)
    assert caught.value.exit_code == 2
    assert len(pauses) == 3


def test_hive_names_have_their_columns_in_lower_case():
    assert hive_name("Day=2024-01-01/Name=A%2FB") == "day=2024-01-01/name=A%2FB"


def test_partition_columns_with_capitals(log, metastore, twin):
    txn = start_transaction(log)
    text = table_metadata().schema_string.replace('"p"', '"Part"')
    txn.update_metadata(table_metadata().replace(schema_string=text, partition_columns=("Part",)))
    files = [add_file("a", [1]).replace(path=f"f{value}", partition_values={"Part": value}) for value in "ab"]
    txn.commit(files, Operation(name="CREATE"))
    sync_table(log, metastore, twin)
    assert set(partitions(metastore, twin)) == {"a", "b"}
    assert sync_table(log, metastore, twin, SyncOptions(full=True)).plan.add == ()
    txn = start_transaction(log)
    txn.read_whole_table()
    txn.commit([files[0].remove(deletion_timestamp=1)], Operation(name="DELETE"))
    sync_table(log, metastore, twin)
    assert set(partitions(metastore, twin)) == {"b"}
