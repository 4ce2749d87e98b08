"""A key that may not delete: what was staged stays and is told once; a managed table is not dropped by halves."""

from __future__ import annotations

import logging

import pytest

from pydelta.engines.spark.catalog import file_rights
from pydelta.errors import StoragePermissionError
from pydelta.storage import DeleteReport, MemoryStore, discarding


class Refusing(MemoryStore):
    """Deletes nothing, for want of permission."""

    def delete_many(self, paths):
        names = list(paths)
        return DeleteReport(deleted=0, failed=tuple((name, "403 AccessDenied") for name in names), denied=bool(names))


def store_at(root):
    store = Refusing(root)
    store.put("part-1.parquet", b"1")
    return store


def test_a_refused_clean_up_is_said_once_per_bucket(caplog):
    discarding._TOLD.clear()
    caplog.set_level(logging.WARNING)
    for root in ("memory://rights-one/t", "memory://rights-one/u", "memory://rights-two/t"):
        assert discarding.discard(store_at(root), ["part-1.parquet"]).denied
    told = [record.getMessage() for record in caplog.records]
    assert [("rights-one" in text, "rights-two" in text) for text in told] == [(True, False), (False, True)]
    assert all("stay until VACUUM deletes them" in text for text in told)


def test_what_may_be_deleted_is_deleted_without_a_word(caplog):
    discarding._TOLD.clear()
    store = MemoryStore("memory://rights-three/t")
    store.put("part-1.parquet", b"1")
    assert discarding.discard(store, (name for name in ["part-1.parquet"])).deleted == 1
    assert store.head("part-1.parquet") is None
    assert caplog.records == []


def test_a_managed_table_whose_files_may_not_be_deleted_is_not_dropped(monkeypatch):
    store = store_at("memory://rights-one/t")
    monkeypatch.setattr(file_rights, "open_store", lambda uri, options: store)
    with pytest.raises(StoragePermissionError) as caught:
        file_rights.check_may_delete("memory://rights-one/t", {}, name="lake.t")
    assert "lake.t is a managed table" in str(caught.value)
    assert "Nothing was dropped" in str(caught.value)
    assert "AS_USER=vacuum" in caught.value.hint
    assert store.head("part-1.parquet") is not None


def test_a_store_that_lets_delete_is_asked_for_a_file_that_is_not_there(monkeypatch):
    store = MemoryStore("memory://rights-one/t")
    store.put("part-1.parquet", b"1")
    monkeypatch.setattr(file_rights, "open_store", lambda uri, options: store)
    file_rights.check_may_delete("memory://rights-one/t", {}, name="lake.t")
    assert store.head("part-1.parquet") is not None
