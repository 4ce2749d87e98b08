"""What may stand in one commit, and what each attempt fills in."""

from __future__ import annotations

import json

import pytest

from pydelta import errors
from pydelta.protocol.actions import (
    AddCDCFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    Sidecar,
    decode_commit,
    encode_commit,
)
from pydelta.txn import Isolation, Operation, Staged, WinningCommit
from pydelta.txn.prepare import Base, Intention, check_staged, check_stats_columns, render, row_id_high_water_mark

NOW = 1_700_000_000_000


def schema(*names: str, mapped: bool = False) -> str:
    fields = []
    for number, name in enumerate(names, start=1):
        extra = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{name}"} if mapped else {}
        fields.append({"name": name, "type": "string", "nullable": True, "metadata": extra})
    return json.dumps({"type": "struct", "fields": fields})


MAPPING = Protocol(min_reader_version=2, min_writer_version=5)
FLAT = Metadata(id="t", schema_string=schema("a"))
BY_P = Metadata(id="t", schema_string=schema("a", "P"), partition_columns=("P",))
MAPPED = Metadata(
    id="t",
    schema_string=schema("a", "P", mapped=True),
    partition_columns=("P",),
    configuration={"delta.columnMapping.mode": "name"},
)


def vector(name: str) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(storage_type="u", path_or_inline_dv=name, size_in_bytes=4, cardinality=1)


def add(path: str, values=None, *, rows: int | None = 3, **changes) -> AddFile:
    stats = None if rows is None else json.dumps({"numRecords": rows})
    fields = {"size": 1, "modification_time": 0, "data_change": True, "stats": stats, **changes}
    return AddFile(path=path, partition_values=values or {}, **fields)


def remove(path: str, **changes) -> RemoveFile:
    return RemoveFile(path=path, **{"data_change": True, **changes})


PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)


@pytest.mark.parametrize(
    ("actions", "metadata"),
    [
        ([], FLAT),
        ([add("n")], FLAT),
        ([add("n"), remove("o")], FLAT),
        ([add("n", {"P": "1"}), add("m", {"P": None})], BY_P),
        ([add("n", {"col-P": "1"})], MAPPED),
        ([add("n", deletion_vector=vector("v")), remove("n")], FLAT),
        ([SetTransaction(app_id="x", version=1), SetTransaction(app_id="y", version=1)], FLAT),
        ([PROTOCOL, FLAT], FLAT),
        ([AddCDCFile(path="c", partition_values={}, size=1)], FLAT),
    ],
)
def test_what_fits_is_accepted(actions, metadata):
    check_staged(Staged.of(actions), metadata=metadata, protocol=MAPPING, append_only=False)


@pytest.mark.parametrize(
    ("actions", "metadata", "words"),
    [
        ([add("n"), add("n")], FLAT, "add of path 'n'"),
        ([add("n"), add("n", deletion_vector=vector("v"))], FLAT, "add of path 'n'"),
        ([remove("n"), remove("n", deletion_vector=vector("v"))], FLAT, "remove of path 'n'"),
        ([add("n"), remove("n")], FLAT, "both added and removed"),
        ([FLAT, BY_P], BY_P, "metaData"),
        ([PROTOCOL, PROTOCOL], FLAT, "protocol"),
        ([SetTransaction(app_id="x", version=1), SetTransaction(app_id="x", version=2)], FLAT, "application 'x'"),
        ([DomainMetadata(domain="d", configuration="", removed=False)] * 2, FLAT, "domain 'd'"),
        ([CommitInfo({})], FLAT, "commitInfo"),
        ([CheckpointMetadata(version=1)], FLAT, "checkpointMetadata"),
        ([Sidecar(path="s", size_in_bytes=1, modification_time=0)], FLAT, "sidecar"),
        ([add("n", {"P": "1"})], FLAT, "partition values for ['P']"),
        ([add("n")], BY_P, "partitioned by ['P']"),
        ([add("n", {"p": "1"})], BY_P, "partitioned by ['P']"),
        ([add("n", {"P": "1", "a": "2"})], BY_P, "partitioned by ['P']"),
        ([add("n", {"P": "1"})], MAPPED, "partitioned by ['col-P']"),
    ],
)
def test_what_may_not_stand_in_one_commit_is_refused_by_name(actions, metadata, words):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        check_staged(Staged.of(actions), metadata=metadata, protocol=MAPPING, append_only=False)
    assert words in str(caught.value)
    assert caught.value.hint


def test_append_only_refuses_removed_rows_and_lets_rearranging_pass():
    check_staged(
        Staged.of([remove("o", data_change=False), add("n", data_change=False)]),
        metadata=FLAT,
        protocol=PROTOCOL,
        append_only=True,
    )
    with pytest.raises(errors.UnsafeOperationError, match=r"append-only.*file o2"):
        check_staged(
            Staged.of([remove("o", data_change=False), remove("o2")]),
            metadata=FLAT,
            protocol=PROTOCOL,
            append_only=True,
        )


def intend(*actions, **changes) -> Intention:
    defaults = {
        "staged": Staged.of(actions),
        "operation": Operation(
            name="WRITE", parameters={"mode": "Append", "partitionBy": [], "x": None}, metrics={"numFiles": 2}
        ),
        "txn_id": "id-1",
        "read_version": 4,
        "level": Isolation.WRITE_SERIALIZABLE,
        "is_blind_append": True,
        "engine_info": "pydelta/test",
    }
    return Intention(**{**defaults, **changes})


BASE = Base(version=4, timestamp_ms=NOW - 1000)


def test_commit_info_is_first_and_says_everything():
    info, *rest = render(intend(add("n"), user_metadata="why", tags={"k": "v"}), BASE, now_ms=NOW)
    assert rest == [add("n")]
    assert info.fields == {
        "timestamp": NOW,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": "[]", "x": None},
        "readVersion": 4,
        "isolationLevel": "WriteSerializable",
        "isBlindAppend": True,
        "operationMetrics": {"numFiles": "2"},
        "userMetadata": "why",
        "tags": {"k": "v"},
        "engineInfo": "pydelta/test",
        "txnId": "id-1",
    }


def test_a_table_that_did_not_exist_has_no_read_version():
    info, *rest = render(
        intend(FLAT, add("n"), PROTOCOL, read_version=-1), Base(version=-1, timestamp_ms=0), now_ms=NOW
    )
    assert "readVersion" not in info.fields
    assert "userMetadata" not in info.fields
    assert [action.kind for action in rest] == ["protocol", "metaData", "add"]


def test_what_is_rendered_survives_the_round_trip():
    actions = render(intend(PROTOCOL, MAPPED, add("n", {"col-P": None})), BASE, now_ms=NOW)
    assert decode_commit(encode_commit(actions), source="x") == actions


@pytest.mark.parametrize(("previous", "expected"), [(NOW - 5, NOW), (NOW, NOW + 1), (NOW + 70_000, NOW + 70_001)])
def test_in_commit_timestamps_only_grow(previous, expected):
    info = render(intend(add("n"), stamped=True), Base(version=4, timestamp_ms=previous), now_ms=NOW)[0]
    assert next(iter(info.fields)) == "inCommitTimestamp"
    assert info.in_commit_timestamp == expected
    assert info.get("timestamp") == NOW


def test_turning_timestamps_on_records_version_and_time_of_the_attempt():
    staged = intend(FLAT, stamped=True, stamping_begins=True)
    for base in (BASE, Base(version=9, timestamp_ms=NOW + 10)):
        info, metadata = render(staged, base, now_ms=NOW)
        assert metadata.configuration == {
            "delta.inCommitTimestampEnablementVersion": str(base.version + 1),
            "delta.inCommitTimestampEnablementTimestamp": str(info.in_commit_timestamp),
        }
        assert info.in_commit_timestamp > base.timestamp_ms


def winner(version: int, *actions) -> WinningCommit:
    return WinningCommit.of(actions, version=version)


def test_the_base_moves_behind_each_winner():
    stamped = winner(5, CommitInfo({"inCommitTimestamp": NOW + 9}))
    assert BASE.after(stamped, file_time_ms=1) == Base(version=5, timestamp_ms=NOW + 9)
    assert BASE.after(winner(5), file_time_ms=NOW + 3) == Base(version=5, timestamp_ms=NOW + 3)
    assert BASE.after(winner(5), file_time_ms=3) == Base(version=5, timestamp_ms=BASE.timestamp_ms + 1)


def mark(value: int) -> DomainMetadata:
    return DomainMetadata(
        domain="delta.rowTracking", configuration=json.dumps({"rowIdHighWaterMark": value}), removed=False
    )


def test_row_ids_start_above_the_mark_and_move_when_rebased():
    intention = intend(add("n", rows=3), add("m", rows=2), row_tracking=True)
    base = Base(version=4, timestamp_ms=0, row_id_high_water_mark=9)
    _, n, m, domain = render(intention, base, now_ms=NOW)
    assert (n.base_row_id, n.default_row_commit_version) == (10, 5)
    assert (m.base_row_id, m.default_row_commit_version) == (13, 5)
    assert row_id_high_water_mark([domain]) == 14
    later = base.after(winner(5, add("w"), mark(99)), file_time_ms=0)
    _, n, m, domain = render(intention, later, now_ms=NOW)
    assert (n.base_row_id, n.default_row_commit_version) == (100, 6)
    assert (m.base_row_id, m.default_row_commit_version) == (103, 6)
    assert row_id_high_water_mark([domain]) == 104


def test_files_keep_the_row_ids_they_have():
    kept = add("n", base_row_id=2, default_row_commit_version=1)
    base = Base(version=4, timestamp_ms=0, row_id_high_water_mark=9)
    assert render(intend(kept, row_tracking=True), base, now_ms=NOW)[1:] == (kept,)


def test_row_ids_need_a_row_count():
    with pytest.raises(errors.InvalidArgumentError, match=r"n has no numRecords"):
        render(intend(add("n", rows=None), row_tracking=True), BASE, now_ms=NOW)


def test_without_row_tracking_nothing_is_numbered():
    assert render(intend(add("n")), BASE, now_ms=NOW)[1].base_row_id is None


@pytest.mark.parametrize(("domains", "expected"), [([], -1), ([mark(7)], 7), ([mark(7).replace(removed=True)], -1)])
def test_the_row_id_mark_is_read_from_its_domain(domains, expected):
    assert row_id_high_water_mark(domains) == expected


@pytest.mark.parametrize("text", ["", "{", "[]", '{"rowIdHighWaterMark":"x"}', '{"rowIdHighWaterMark":true}', "{}"])
def test_a_row_id_mark_that_is_none_is_a_damaged_log(text):
    with pytest.raises(errors.LogCorruptedError, match="rowIdHighWaterMark"):
        row_id_high_water_mark([mark(1).replace(configuration=text)])
    with pytest.raises(errors.InvalidArgumentError, match="numRecords"):
        render(intend(add("n", rows=None, stats=text), row_tracking=True), BASE, now_ms=NOW)


def test_staged_actions_know_what_kind_of_change_they_are():
    compaction = Staged.of([remove("a", data_change=False), add("n", data_change=False)])
    assert compaction.only_rearranges
    assert not compaction.only_adds_files
    assert not Staged.of([*compaction.actions, FLAT]).only_rearranges
    assert Staged.of([*compaction.actions, mark(1)]).only_rearranges
    assert not Staged.of([]).only_rearranges
    assert Staged.of([]).only_adds_files
    assert Staged.of([add("n")]).changes_rows
    assert Staged.of([AddCDCFile(path="c", partition_values={}, size=1)]).changes_rows


def test_partition_keys_are_physical_only_where_the_protocol_supports_column_mapping():
    old = Protocol(min_reader_version=1, min_writer_version=2)
    check_staged(Staged.of([add("a", {"P": "1"})]), metadata=MAPPED, protocol=old, append_only=False)
    with pytest.raises(errors.InvalidArgumentError, match="col-P"):
        check_staged(Staged.of([add("a", {"P": "1"})]), metadata=MAPPED, protocol=MAPPING, append_only=False)


def with_stats_columns(text: str) -> Metadata:
    nested = {"type": "struct", "fields": [{"name": "x", "type": "boolean", "nullable": True, "metadata": {}}]}
    types = {
        "id": "integer",
        "day": "date",
        "flag": "boolean",
        "bytes": "binary",
        "s": nested,
        "a.b": "string",
        "p": "long",
    }
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    return Metadata(
        id="t",
        schema_string=json.dumps({"type": "struct", "fields": fields}),
        partition_columns=("p",),
        configuration={"delta.dataSkippingStatsColumns": text},
    )


@pytest.mark.parametrize("text", ["id", "ID, day", "s", "s.x", "`a.b`", "id,s,`a.b`"])
def test_columns_that_can_have_statistics_may_be_named(text: str) -> None:
    check_stats_columns(with_stats_columns(text))


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("nope", "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        ("s.y", "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        ("a.b", "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        ("id,P", "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_PARTITIONED_COLUMN"),
        ("flag", "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_TYPE"),
        ("bytes", "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_TYPE"),
        ("id,day,id", "DELTA_DUPLICATE_DATA_SKIPPING_COLUMNS"),
        ("s,s.x", "DELTA_DUPLICATE_DATA_SKIPPING_COLUMNS"),
    ],
)
def test_columns_that_cannot_have_statistics_are_refused_by_the_references_condition(text: str, condition: str) -> None:
    with pytest.raises(errors.DeltaError) as caught:
        check_stats_columns(with_stats_columns(text))
    assert (caught.value.code, bool(caught.value.hint)) == (condition, True)
