"""The metastore over Thrift: databases of the stack, a table made and found again."""

from __future__ import annotations

import pytest
from conftest import DATABASE, ROOT, STORE_OPTIONS, WAREHOUSE, symlink_storage, symlink_table
from pymetastore.hive_metastore import ttypes

from pydelta.storage import open_store

pytestmark = pytest.mark.before_submit

COLUMNS = {"id": "bigint", "note": "string"}


@pytest.fixture
def database(metastore):
    yield metastore
    for name in metastore.get_all_tables(DATABASE):
        metastore.drop_table(DATABASE, name, False)


def test_the_databases_of_the_stack_are_there(metastore):
    assert metastore.get_database("lake").locationUri == f"{WAREHOUSE}/lake"
    assert metastore.get_database("lake_symlink").locationUri == f"{WAREHOUSE}/lake_symlink"


def test_a_table_and_its_partitions_are_made_and_found_again(database):
    for day in ("2024-01-01", "2024-01-02"):  # on Versity the metastore makes no folders of partitions
        open_store(f"{ROOT}/made", STORE_OPTIONS).put(f"day={day}/manifest", b"")
    database.create_table(symlink_table("made", f"{ROOT}/made", COLUMNS, {"day": "date"}))
    partitions = [
        ttypes.Partition(
            dbName=DATABASE,
            tableName="made",
            values=[day],
            sd=symlink_storage(f"{ROOT}/made/day={day}", COLUMNS),
            parameters={},
        )
        for day in ("2024-01-01", "2024-01-02")
    ]
    assert database.add_partitions(partitions) == 2
    found = database.get_table(DATABASE, "made")
    assert found.tableType == "EXTERNAL_TABLE"
    assert {column.name: column.type for column in found.sd.cols} == COLUMNS
    assert sorted(database.get_partition_names(DATABASE, "made", -1)) == ["day=2024-01-01", "day=2024-01-02"]
    database.drop_partition(DATABASE, "made", ["2024-01-01"], False)
    assert database.get_partition_names(DATABASE, "made", -1) == ["day=2024-01-02"]


def test_what_is_there_already_is_not_made_twice(database):
    database.create_table(symlink_table("twice", f"{ROOT}/twice", COLUMNS, {}))
    with pytest.raises(ttypes.AlreadyExistsException):
        database.create_table(symlink_table("twice", f"{ROOT}/elsewhere", COLUMNS, {}))
    assert database.get_table(DATABASE, "twice").sd.location == f"{ROOT}/twice"
