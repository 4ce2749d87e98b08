"""Replay of any history, by any route (checkpoints, updates, time travel), equals a naive model of it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pydelta.log import DeltaLog, Snapshot
from pydelta.protocol.actions import (
    Action,
    AddFile,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    encode_commit,
)
from pydelta.protocol.paths import LOG_DIR, commit_file
from pydelta.settings import Settings
from pydelta.storage import MemoryStore

SCHEMA = '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}},' \
         '{"name":"p","type":"string","nullable":true,"metadata":{}}]}'  # fmt: skip
PATHS = ["x.parquet", "p=1/y.parquet", "p=a%20b/z.parquet", "file:/abs/w.parquet", "s3://b/v.parquet"]
_places = itertools.count()

Key = tuple[str, str | None]


@st.composite
def adds(draw: st.DrawFn) -> AddFile:
    vector = draw(st.sampled_from([None, None, "v1", "v2"]))
    number = draw(st.integers(0, 5))
    return AddFile(
        path=draw(st.sampled_from(PATHS)),
        partition_values={"p": draw(st.sampled_from([None, "1", "a b", "é"]))},
        size=draw(st.integers(0, 2**40)),
        modification_time=number,
        data_change=True,
        stats=draw(st.sampled_from([None, json.dumps({"numRecords": number, "minValues": {"a": number}})])),
        tags=draw(st.sampled_from([None, {"k": "v"}])),
        base_row_id=draw(st.sampled_from([None, 7])),
        deletion_vector=None if vector is None else DeletionVectorDescriptor(
            storage_type="u", path_or_inline_dv=vector, size_in_bytes=1, cardinality=number, offset=number or None
        ),
    )  # fmt: skip


@st.composite
def removes(draw: st.DrawFn) -> RemoveFile:
    return draw(adds()).remove(deletion_timestamp=draw(st.sampled_from([10**15, 2 * 10**15])))


actions = st.one_of(
    adds(),
    adds(),
    removes(),
    st.builds(SetTransaction, app_id=st.sampled_from(["a", "b"]), version=st.integers(0, 9)),
    st.builds(DomainMetadata, domain=st.sampled_from(["d", "e"]), configuration=st.just("{}"), removed=st.booleans()),
)
commits = st.lists(actions, max_size=6, unique_by=lambda action: getattr(action, "path", None) or repr(action))
histories = st.lists(commits, min_size=1, max_size=12)


class Model:
    """One dict a kind, one loop over all actions."""

    def __init__(self) -> None:
        self.live: dict[Key, AddFile] = {}
        self.tombstones: dict[Key, RemoveFile] = {}
        self.txns: dict[str, int] = {}
        self.domains: set[str] = set()

    def apply(self, batch: list[Action]) -> None:
        for action in batch:
            if isinstance(action, (AddFile, RemoveFile)):
                key = (action.path, action.key.dv_id)
                self.live.pop(key, None)
                self.tombstones.pop(key, None)
                if isinstance(action, AddFile):
                    self.live[key] = action
                else:
                    self.tombstones[key] = action
            elif isinstance(action, SetTransaction):
                self.txns[action.app_id] = action.version
            elif isinstance(action, DomainMetadata):
                (self.domains.discard if action.removed else self.domains.add)(action.domain)

    def check(self, snapshot: Snapshot) -> None:
        core = snapshot.files.core
        assert set(zip(core["path"], core["dv_id"], strict=True)) == set(self.live)
        found = {add.key: add for add in snapshot.files.adds(core)}
        assert {(key.path, key.dv_id): _plain(add) for key, add in found.items()} == {
            key: _plain(add) for key, add in self.live.items()
        }
        tombstones = snapshot.tombstones()
        assert set(zip(tombstones["path"], tombstones["dv_id"], strict=True)) == set(self.tombstones)
        assert {name: txn.version for name, txn in snapshot.set_transactions.items()} == self.txns
        assert set(snapshot.domain_metadata) == self.domains
        assert snapshot.size_bytes == sum(add.size for add in self.live.values())
        assert core.filter(pl.col("pv:p") == "").is_empty()


def _plain(add: AddFile) -> AddFile:
    """Statistics by value: a checkpoint may spell nulls out."""
    if add.stats is None:
        return add
    body = json.loads(add.stats)
    minimum = {name: value for name, value in body.get("minValues", {}).items() if value is not None}
    return add.replace(stats=json.dumps({"numRecords": body["numRecords"], "minValues": minimum}))


def _write(store: MemoryStore, history: list[list[Action]], json_stats: bool) -> Iterator[int]:
    configuration = {} if json_stats else {"delta.checkpoint.writeStatsAsJson": "false"}
    said = CommitInfo({"operation": "ANY"})
    start: list[Action] = [
        Protocol(min_reader_version=1, min_writer_version=2),
        Metadata(id="m", schema_string=SCHEMA, partition_columns=("p",), configuration=configuration),
    ]
    for version, batch in enumerate(history):
        store.put_if_absent(
            f"{LOG_DIR}/{commit_file(version)}", encode_commit([said, *(start if version == 0 else []), *batch])
        )
        yield version


def _fresh(store: MemoryStore, **options: int) -> DeltaLog:
    return DeltaLog(store, settings=Settings(**options))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    history=histories,
    checkpoints=st.sets(st.integers(0, 11), max_size=3),
    looks=st.sets(st.integers(0, 11)),
    chain=st.sampled_from([1, 3, 50]),
    json_stats=st.booleans(),
)
def test_every_route_to_a_version_gives_what_the_model_gives(history, checkpoints, looks, chain, json_stats):
    store = MemoryStore(f"memory://replay-model/t{next(_places)}")
    watching = _fresh(store, max_snapshot_chain=chain)
    model = Model()
    models: list[Model] = []
    for version in _write(store, history, json_stats):
        model.apply(history[version])
        kept = Model()
        for batch in history[: version + 1]:
            kept.apply(batch)
        models.append(kept)
        snapshot = watching.update()
        if version in looks:
            model.check(snapshot)
        if version in checkpoints:
            watching.checkpoint(snapshot)
    model.check(watching.update())
    latest = _fresh(store)
    model.check(latest.snapshot())
    for version, expected in enumerate(models):
        expected.check(latest.snapshot(version=version))
