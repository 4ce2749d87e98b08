"""Checkpoints: what is in them, that they read back, and what happens when they do not."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from log_tables import V2_PROTOCOL, add, append_until, commit, create, info, log_of, metadata, new_store, remove

from pydelta.errors import LogCorruptedError, StorageError, TableNotFoundError
from pydelta.protocol.actions import DeletionVectorDescriptor, DomainMetadata, SetTransaction
from pydelta.protocol.paths import LOG_DIR, checkpoint_file, multipart_file
from pydelta.testing import Fault, FaultKind, FaultyStore

DAY_MS = 86_400_000
NOW = 1_700_000_000_000
HINT = f"{LOG_DIR}/_last_checkpoint"


def rows_of(store, version: int) -> pa.Table:
    return pq.read_table(pa.BufferReader(store.read(f"{LOG_DIR}/{checkpoint_file(version)}")))


def adds_of(store, version: int) -> list[dict]:
    return [row for row in rows_of(store, version)["add"].to_pylist() if row is not None]


def test_a_checkpoint_holds_the_state_and_nothing_of_the_commits_themselves():
    store = new_store()
    create(store, add(0), protocol=V2_PROTOCOL)
    commit(store, 1, [info(), SetTransaction(app_id="a", version=3, last_updated=5), add(1)])
    commit(store, 2, [info(), DomainMetadata(domain="kept", configuration="c", removed=False), remove(add(0), NOW)])
    commit(store, 3, [info(), DomainMetadata(domain="gone", configuration="", removed=True)])
    result = log_of(store).checkpoint(now_ms=NOW)
    table = rows_of(store, 3)
    kinds = {name: sum(row is not None for row in table[name].to_pylist()) for name in table.column_names}
    assert kinds == {"add": 1, "remove": 1, "txn": 1, "metaData": 1, "protocol": 1, "domainMetadata": 1}
    assert (result.num_actions, result.num_adds, result.num_removes) == (6, 1, 1)
    hint = json.loads(store.read(HINT))
    assert (hint["version"], hint["size"], hint["numOfAddFiles"], hint["sizeInBytes"]) == (3, 6, 1, result.size_bytes)
    again = log_of(store).snapshot()
    assert again.set_transactions["a"] == SetTransaction(app_id="a", version=3, last_updated=5)
    assert list(again.domain_metadata) == ["kept"]


def test_statistics_and_partition_values_are_there_as_text_and_typed():
    store = new_store()
    create(store, add(4), add(5, None))
    log_of(store).checkpoint()
    first, second = sorted(adds_of(store, 0), key=lambda row: row["size"])
    assert json.loads(first["stats"])["numRecords"] == 10
    parsed = first["stats_parsed"]
    assert parsed["numRecords"] == 10
    assert parsed["minValues"] == {
        "id": 40,
        "at": dt.datetime(2024, 5, 1, 0, 0, 0, 123_000, tzinfo=dt.UTC),
        "price": Decimal("1.25"),
        "name": "a4",
    }
    assert parsed["nullCount"] == {"id": 0, "at": 1, "price": 0, "name": 2}
    assert first["partitionValues_parsed"] == {"day": dt.date(2024, 5, 1)}
    assert second["partitionValues_parsed"] == {"day": None}
    assert first["dataChange"] is False


@pytest.mark.parametrize("as_json", ["true", "false"])
@pytest.mark.parametrize("as_struct", ["true", "false"])
def test_the_table_chooses_the_forms_of_statistics(as_json: str, as_struct: str):
    store = new_store()
    create(store, add(1), checkpoint_writeStatsAsJson=as_json, checkpoint_writeStatsAsStruct=as_struct)
    commit(store, 1, [info(), add(2)])
    log_of(store).checkpoint()
    row = adds_of(store, 1)[0]
    assert ("stats" in row, "stats_parsed" in row, "partitionValues_parsed" in row) == (
        as_json == "true", as_struct == "true", as_struct == "true",
    )  # fmt: skip
    files = log_of(store).snapshot().files
    found = files.with_stats(files.core)["stats"].to_list()
    if as_json == "true" or as_struct == "true":
        assert [json.loads(text)["minValues"]["price"] for text in found] == [1.25, 1.25]
        assert json.loads(found[0])["maxValues"]["at"] == "2024-05-02T00:00:00.456Z"
    else:
        assert found == [None, None]


def test_the_struct_form_survives_checkpoint_after_checkpoint():
    store = new_store()
    create(store, add(1), checkpoint_writeStatsAsJson="false")
    for version in range(1, 4):
        log_of(store).checkpoint()
        commit(store, version, [info(), add(version + 1)])
    log_of(store).checkpoint()
    files = log_of(store).snapshot().files
    texts = files.with_stats(files.core.sort("path"))["stats"].to_list()
    assert [json.loads(text)["minValues"]["id"] for text in texts] == [10, 20, 30, 40]


def test_tombstones_stay_until_their_retention_is_over_without_statistics_and_tags():
    store = new_store()
    create(store, add(0, tags={"a": "b"}), add(1), add(2), deletedFileRetentionDuration="interval 2 days")
    commit(store, 1, [info(), remove(add(0, tags={"a": "b"}), NOW - DAY_MS), remove(add(1), NOW - 3 * DAY_MS)])
    log_of(store).checkpoint(now_ms=NOW)
    removes = [row for row in rows_of(store, 1)["remove"].to_pylist() if row is not None]
    assert [row["path"] for row in removes] == [add(0).path]
    assert "stats" not in removes[0]
    assert "tags" not in removes[0]
    assert removes[0]["extendedFileMetadata"] is True
    assert removes[0]["partitionValues"] == [("day", "2024-05-01")]
    assert log_of(store).snapshot().tombstones()["path"].to_list() == [add(0).path]
    commit(store, 2, [info(), add(9)])
    log_of(store).checkpoint(now_ms=NOW + 5 * DAY_MS)
    assert rows_of(store, 2)["remove"].null_count == rows_of(store, 2).num_rows


def test_everything_an_add_can_say_survives_two_checkpoints():
    vector = DeletionVectorDescriptor(
        storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", offset=4, size_in_bytes=40, cardinality=6
    )
    full = add(
        1, tags={"k": "v", "n": None}, deletion_vector=vector, base_row_id=7, default_row_commit_version=3,
        clustering_provider="liquid",
    )  # fmt: skip
    store = new_store()
    create(store, full, add(2))
    log_of(store).checkpoint()
    commit(store, 1, [info(), add(3)])
    log_of(store).checkpoint()
    files = log_of(store).snapshot().files
    first = files.adds(files.core.filter(files.core["size"] == 101))[0]
    assert first == full
    assert files.core.filter(files.core["size"] == 101)["dv_id"].to_list() == [vector.unique_id]
    assert files.has_live_vectors()


def test_a_table_with_the_v2_policy_gets_a_uuid_named_checkpoint_with_sidecars():
    store = new_store()
    create(store, add(0), add(1), protocol=V2_PROTOCOL, checkpointPolicy="v2")
    commit(store, 1, [info(), remove(add(0), NOW)])
    result = log_of(store).checkpoint(now_ms=NOW)
    assert len(result.sidecars) == 1
    assert result.name.count(".") == 3
    main = pq.read_table(pa.BufferReader(store.read(result.name)))
    assert main["checkpointMetadata"].to_pylist()[0] == {"version": 1, "tags": None}
    assert main["add"].null_count == main.num_rows
    snapshot = log_of(store).snapshot()
    assert snapshot.segment.checkpoint.name == result.name
    assert snapshot.files.core["path"].to_list() == [add(1).path]
    assert snapshot.tombstones()["path"].to_list() == [add(0).path]


def test_the_main_file_of_a_v2_checkpoint_has_the_columns_of_files_though_no_rows_of_them():
    store = new_store()
    create(store, add(0), add(1), protocol=V2_PROTOCOL, checkpointPolicy="v2")
    result = log_of(store).checkpoint()
    main = pq.read_table(pa.BufferReader(store.read(result.name)))
    assert {"add", "remove", "sidecar", "checkpointMetadata"} <= set(main.column_names)
    assert main["add"].null_count == main["remove"].null_count == main.num_rows
    named = json.loads(store.read(f"{LOG_DIR}/_last_checkpoint"))["v2Checkpoint"]
    info = store.head(result.name)
    assert f"{LOG_DIR}/{named['path']}" == result.name
    assert (named["sizeInBytes"], named["modificationTime"]) == (info.size, info.modification_time_ms)


def test_an_empty_table_with_the_v2_policy_has_one_empty_sidecar():
    store = new_store()
    create(store, protocol=V2_PROTOCOL, checkpointPolicy="v2")
    assert len(log_of(store).checkpoint().sidecars) == 1
    assert log_of(store).snapshot().num_files == 0


def test_a_missing_sidecar_makes_the_checkpoint_unusable():
    store = new_store()
    create(store, add(0), protocol=V2_PROTOCOL, checkpointPolicy="v2")
    append_until(store, 1, 2)
    result = log_of(store).checkpoint()
    store.delete_many(result.sidecars)
    snapshot = log_of(store).snapshot()
    assert (snapshot.segment.checkpoint, snapshot.num_files) == (None, 3)


def test_the_v2_policy_without_the_feature_is_ignored():
    store = new_store()
    create(store, add(0), checkpointPolicy="v2")
    assert log_of(store).checkpoint().name.endswith(checkpoint_file(0))


def test_a_multi_part_checkpoint_reads_and_an_incomplete_one_is_passed_over():
    store = new_store()
    create(store, add(0))
    append_until(store, 1, 3)
    log_of(store).checkpoint()
    whole = rows_of(store, 3)
    for part in (1, 2):
        sink = pa.BufferOutputStream()
        pq.write_table(whole.slice((part - 1) * 3, 3 if part == 1 else whole.num_rows), sink)
        store.put(f"{LOG_DIR}/{multipart_file(3, part, 2)}", sink.getvalue().to_pybytes())
    store.delete_many([f"{LOG_DIR}/{checkpoint_file(3)}"])
    snapshot = log_of(store).snapshot()
    assert len(snapshot.segment.checkpoint.files) == 2
    assert sorted(snapshot.files.core["size"].to_list()) == [100, 101, 102, 103]
    assert snapshot.files.with_stats(snapshot.files.core)["stats"].null_count() == 0
    store.delete_many([f"{LOG_DIR}/{multipart_file(3, 2, 2)}"])
    assert log_of(store).snapshot().segment.checkpoint is None


def test_what_does_not_read_back_is_removed_and_not_pointed_at(monkeypatch):
    store = new_store()
    create(store, add(0), protocol=V2_PROTOCOL, checkpointPolicy="v2")
    append_until(store, 1, 2)
    log = log_of(store)
    snapshot = log.snapshot()
    before = {item.path for item in store.list_all()}
    monkeypatch.setattr(type(snapshot), "size_bytes", property(lambda self: 1))
    with pytest.raises(LogCorruptedError, match="bytes of live files should be 1"):
        log.checkpoint(snapshot)
    assert {item.path for item in store.list_all()} == before


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_a_failure_at_any_call_leaves_the_table_readable_and_the_hint_true(policy: str):
    for number in range(30):
        inner = new_store()
        create(inner, add(0), protocol=V2_PROTOCOL, checkpointPolicy=policy)
        append_until(inner, 1, 3)
        log = log_of(FaultyStore(inner, Fault(kind=FaultKind.FAIL, call=number)))
        try:
            log.checkpoint()
            finished = True
        except StorageError:
            finished = False
        snapshot = log_of(inner).snapshot()
        assert (snapshot.version, snapshot.num_files) == (3, 4)
        if finished and number > 12:
            break
    else:
        pytest.fail("no number of calls was enough")


def checkpoints(store) -> list[str]:
    return [item.path for item in store.list_from("", prefix=LOG_DIR) if ".checkpoint." in item.path]


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_a_lost_reply_to_the_last_file_leaves_a_whole_checkpoint(policy: str):
    inner = new_store()
    create(inner, add(0), protocol=V2_PROTOCOL, checkpointPolicy=policy)
    append_until(inner, 1, 3)
    lost = Fault(kind=FaultKind.LOSE_REPLY, call=0, verb="close_writer", path_contains=".checkpoint.")
    with pytest.raises(StorageError):
        log_of(FaultyStore(inner, lost)).checkpoint()
    (name,) = checkpoints(inner)
    assert log_of(inner).snapshot().segment.checkpoint.name == name, "its sidecars are there, too"


def test_a_checkpoint_that_cannot_be_read_back_stays_for_another_process_may_lean_on_it():
    inner = new_store()
    create(inner, add(0))
    append_until(inner, 1, 3)

    class Meanwhile(FaultyStore):
        """Before this process reads its checkpoint back, another one takes the commits that it stands for."""

        def read(self, path):
            if ".checkpoint." in path:
                log_of(inner).cleanup(now_ms=NOW * 2, retention_ms=0)
            return super().read(path)

    store = Meanwhile(inner, Fault(kind=FaultKind.FAIL, call=0, verb="read", path_contains=".checkpoint."))
    with pytest.raises(StorageError):
        log_of(store).checkpoint()
    snapshot = log_of(inner).snapshot()
    assert (snapshot.version, snapshot.num_files) == (3, 4)


@pytest.mark.parametrize("policy", ["classic", "v2"])
@pytest.mark.parametrize("kept", [0, 1, 0.5, -1], ids=["nothing", "one byte", "half", "all but one byte"])
def test_a_torn_reading_of_a_checkpoint_is_no_damage(policy: str, kept: float):
    left = {0: lambda size: 0, 1: lambda size: 1, 0.5: lambda size: size // 2, -1: lambda size: size - 1}[kept]
    inner = new_store()
    create(inner, add(0), protocol=V2_PROTOCOL, checkpointPolicy=policy)
    append_until(inner, 1, 3)
    torn = Fault(kind=FaultKind.TEAR, call=0, verb="read", path_contains=".parquet", kept=left, times=99)
    with pytest.raises(StorageError, match="read in part") as caught:
        log_of(FaultyStore(inner, torn)).checkpoint()
    assert caught.value.retryable
    assert len(checkpoints(inner)) == 1
    assert log_of(inner).snapshot().segment.checkpoint_version == 3
    once = Fault(kind=FaultKind.TEAR, call=0, verb="read", path_contains=".checkpoint.", kept=left)
    assert log_of(FaultyStore(inner, once)).snapshot().segment.checkpoint_version == 3, "it is read once more"


def test_sidecars_that_no_checkpoint_names_yet_are_removed_again():
    inner = new_store()
    create(inner, add(0), protocol=V2_PROTOCOL, checkpointPolicy="v2")
    append_until(inner, 1, 3)
    before = {item.path for item in inner.list_all()}
    refused = Fault(kind=FaultKind.FAIL, call=0, verb="open_writer", path_contains=".checkpoint.")
    with pytest.raises(StorageError):
        log_of(FaultyStore(inner, refused)).checkpoint()
    assert {item.path for item in inner.list_all()} == before


def test_a_sound_checkpoint_of_the_version_is_never_written_over():
    store = new_store()
    create(store, add(0))
    append_until(store, 1, 3)
    first = log_of(store).checkpoint()
    before = store.read(first.name)
    store.delete_many([HINT])
    again = log_of(store).checkpoint(now_ms=NOW * 2)
    assert store.read(first.name) == before
    assert (again.num_actions, again.num_adds, again.size_bytes) == (first.num_actions, 4, first.size_bytes)
    assert json.loads(store.read(HINT))["version"] == 3
    store.put(first.name, before[:100])
    assert log_of(store).checkpoint().num_adds == 4
    assert log_of(store).snapshot().segment.checkpoint_version == 3


def test_an_older_checkpoint_does_not_turn_the_hint_back():
    store = new_store()
    create(store)
    append_until(store, 1, 10)
    log = log_of(store)
    log.checkpoint()
    log.checkpoint(log.snapshot(version=5))
    assert json.loads(store.read(HINT))["version"] == 10


def test_no_table_has_no_checkpoint():
    with pytest.raises(TableNotFoundError):
        log_of(new_store()).checkpoint()


def test_a_partition_value_that_is_none_of_its_type_keeps_the_typed_columns_out():
    store = new_store()
    create(store, add(1, "not-a-day"))
    log_of(store).checkpoint()
    row = adds_of(store, 0)[0]
    assert "partitionValues_parsed" not in row
    assert json.loads(row["stats"])["numRecords"] == 10


def test_physical_names_key_the_typed_columns():
    fields = [
        {"name": "id", "type": "long", "nullable": True,
         "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}},
        {"name": "day", "type": "date", "nullable": True,
         "metadata": {"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "col-2"}},
    ]  # fmt: skip
    mapped = metadata(columnMapping_mode="name").replace(schema_string=json.dumps({"type": "struct", "fields": fields}))
    text = '{"numRecords":1,"minValues":{"col-1":5},"maxValues":{"col-1":6},"nullCount":{"col-1":0}}'
    store = new_store()
    commit(store, 0, [info(), V2_PROTOCOL.replace(
        reader_features=("columnMapping",), writer_features=("columnMapping",)), mapped,
        add(1, partition_values={"col-2": "2024-01-02"}, stats=text)])  # fmt: skip
    log_of(store).checkpoint()
    row = adds_of(store, 0)[0]
    assert row["partitionValues_parsed"] == {"col-2": dt.date(2024, 1, 2)}
    assert row["stats_parsed"]["minValues"] == {"col-1": 5}
    files = log_of(store).snapshot().files
    assert files.core["pv:col-2"].to_list() == ["2024-01-02"]
    assert files.partition_frame(files.core)["day"].to_list() == [dt.date(2024, 1, 2)]


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_transaction_identifiers_past_their_retention_are_left_out(policy):
    store = new_store()
    properties = {"setTransactionRetentionDuration": "interval 2 days", "checkpointPolicy": policy}
    create(store, add(0), protocol=V2_PROTOCOL, **properties)
    marks = {"old": NOW - 3 * DAY_MS, "edge": NOW - 2 * DAY_MS, "young": NOW - DAY_MS, "undated": None}
    txns = [SetTransaction(app_id=name, version=1, last_updated=time_ms) for name, time_ms in marks.items()]
    commit(store, 1, [info(), *txns])
    log = log_of(store)
    result = log.checkpoint(now_ms=NOW)
    store.delete_many([f"{LOG_DIR}/{version:020d}.json" for version in (0,)])
    assert sorted(log_of(store).snapshot().set_transactions) == ["undated", "young"]
    if policy == "classic":
        assert log.checkpoint(now_ms=NOW).name == result.name  # what is there is right, and is kept
