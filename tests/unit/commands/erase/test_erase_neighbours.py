"""What else lies beside a table, or works on it: manifests, the Iceberg entry, VACUUM, FSCK, the change feed."""

from __future__ import annotations

from collections import Counter

import pytest

from pydelta.api.python.local import LocalTable
from pydelta.commands.erase.texts import values_of_avro
from pydelta.engines.arrow.engine import ArrowEngine
from pydelta.errors import CannotVacuumLiteError, DeltaError, UnsafeOperationError
from pydelta.log import DeltaLog
from pydelta.testing.commands import drop_feature, fsck, vacuum
from tests.erased import names_of_key
from tests.unit.commands.erase.test_erase import KEY, counted, erase, made, rows


def test_symlink_manifests_name_what_is_left():
    table = made("partitions of the key")
    table.generate()
    assert any("_symlink_format_manifest" in place for place in names_of_key(table._log.store, "ann"))
    assert erase(table).is_proven
    assert names_of_key(table._log.store, KEY) == []
    store = table._log.store
    named = [line for info in store.list_all("_symlink_format_manifest") if info.path.endswith("/manifest")
             for line in store.read(info.path).decode().splitlines()]  # fmt: skip
    assert len(named) == table._log.update().num_files


def test_an_iceberg_entry_has_one_version_afterwards():
    pytest.importorskip("pyiceberg")
    table = made("vectors")
    table.generate(mode="iceberg")
    table.append(rows("ivo", first=70))
    table.generate(mode="iceberg")
    done = erase(table)
    assert done.is_proven
    from pydelta.manifests.iceberg.entry import find_newest

    found = find_newest(table._log.store)
    assert found is not None
    assert len(found.metadata["snapshots"]) == 1
    assert names_of_key(table._log.store, KEY) == []


def test_vacuum_and_fsck_afterwards():
    table = made("plain")
    log, before = table._log, counted(table)
    assert erase(table).is_proven
    left = Counter({row: count for row, count in before.items() if row[0] != KEY})
    assert fsck(log).ok
    with pytest.raises(CannotVacuumLiteError):
        table_vacuum(log, mode="lite")
    table_vacuum(log, mode="full")
    assert counted(LocalTable(DeltaLog(log.store))) == left
    kept = [info.path for info in log.store.list_all() if info.path.endswith(".parquet")]
    assert {path for path in kept if "_delta_log" not in path} == set(log.update().files.core["path"])
    table_vacuum(log, mode="lite")


def table_vacuum(log, **how):
    from pydelta.commands.vacuum.command import Vacuum

    return vacuum(log, Vacuum(retention_hours=0, enforce_retention=False, **how))


def test_dropping_a_feature_passes_over_versions_that_were_given_up():
    table = made("vectors")
    done = erase(table)
    table.purge()
    log = table._log
    assert done.given_up is not None
    first = done.given_up[1] + 1
    with pytest.raises(UnsafeOperationError, match=f"Version {first} is still in the log"):
        drop_feature(log, "deletionVectors", truncate_history=True, engine=ArrowEngine(log))


def test_the_change_feed_begins_after_the_erasure():
    table = made("a change feed")
    erased = erase(table)
    table.append(rows("new", first=90))
    assert erased.given_up is not None
    with pytest.raises(DeltaError, match="given up"):
        list(table._log.changes(erased.given_up[0], table.version))
    later = [actions for _, actions in table._log.changes(erased.given_up[1] + 1, table.version)]
    assert sum(action.kind == "add" for actions in later for action in actions) == 1


def test_manifests_of_an_iceberg_entry_name_no_removed_file_with_its_bounds():
    pytest.importorskip("pyiceberg")
    table = made("other partitions")
    for number in range(4):
        table.append(rows("aaa", "zzz", part=f"p{number}", first=100 + number))
    table.generate(mode="iceberg")
    store = table._log.store
    assert any(KEY.encode() in values_of_avro(store.read(info.path)) for info in store.list_all("_pydelta/iceberg")
               if info.path.endswith(".avro"))  # fmt: skip
    assert erase(table).is_proven
    left = [info.path for info in store.list_all("_pydelta/iceberg") if info.path.endswith(".avro")]
    assert left
    assert not any(KEY.encode() in values_of_avro(store.read(path)) for path in left)


def test_a_compressed_manifest_that_names_a_key_is_found():
    pytest.importorskip("pyiceberg")
    table = made("plain")
    table.generate(mode="iceberg")
    store = table._log.store
    held = [(info.path, store.read(info.path)) for info in store.list_all("_pydelta/iceberg")]
    erase(table)
    avro = [(path, data) for path, data in held if path.endswith(".avro")]
    manifests = [(path, data) for path, data in avro if KEY.encode() in values_of_avro(data)]
    path, data = manifests[0]
    assert KEY.encode() not in data
    store.put(path, data)
    assert [place.path for place in erase(table, dry_run=True).plan.look.places] == [path]
    store.put(path, data[:-20])
    found = erase(table, dry_run=True).plan.look
    assert [place for place, _ in found.unread] == [path]
