"""An Iceberg entry is published through every store, and names its files as readers of that store do."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import StaticTable, Table

import pydelta
from pydelta.log import DeltaLog
from pydelta.manifests.iceberg import publish_iceberg, read_entry
from pydelta.protocol.paths import plain_root
from tests.iceberg.readers import StoreIO, of_arrow

ROWS = pa.table({"id": list(range(10)), "day": ["a b", "é"] * 5})


def test_the_plan_of_a_scan_names_the_tables_files(store):
    log = DeltaLog(store)
    from pydelta.testing.operations import add_file, append, create_table, delete_partition, hide_value

    create_table(log, [add_file("1", [1, 2]), add_file("a b", [3])])
    seen = []
    for step in (lambda: None, append("é", [4, 5]).run, hide_value(2).run, delete_partition("a b").run):
        if seen:
            step(log)
        result = publish_iceberg(log)
        io = StoreIO(store)
        metadata = FromInputFile.table_metadata(io.new_input(result.entry.metadata_location))
        table = Table(("t",), metadata, result.entry.metadata_location, io, NoopCatalog("none"))
        snapshot = log.update()
        planned = {
            task.file.file_path: sum(delete.record_count for delete in task.delete_files)
            for task in table.scan().plan_files()
        }
        root = plain_root(store.root).replace("s3a://", "s3://")
        expected = {
            root + add.path.replace("%20", " ").replace("%C3%A9", "é"): add.deletion_vector.cardinality
            if add.deletion_vector
            else 0
            for add in snapshot.files.adds(snapshot.files.core)
        }
        assert planned == expected
        assert read_entry(log) == result.entry
        seen.append(result.puts)
    assert max(seen) <= 6


def test_pyiceberg_reads_an_entry_on_s3(s3_store, s3_settings):
    pydelta.LocalTable.create(
        s3_store.root,
        ROWS,
        partition_by=["day"],
        properties={"delta.enableDeletionVectors": "true"},
        options=s3_settings,
    )
    table = pydelta.open(s3_store.root, options=s3_settings)
    table.append(ROWS)
    table.delete("id = 4")
    result = publish_iceberg(DeltaLog(s3_store))
    assert result.entry.metadata_location.startswith("s3://")
    given = {
        "s3.endpoint": s3_settings["spark.hadoop.fs.s3a.endpoint"],
        "s3.access-key-id": s3_settings["spark.hadoop.fs.s3a.access.key"],
        "s3.secret-access-key": s3_settings["spark.hadoop.fs.s3a.secret.key"],
        "s3.region": "us-east-1",
    }
    for location in (result.entry.metadata_location, result.entry.location):
        read = StaticTable.from_metadata(location, properties=given).scan().to_arrow()
        assert of_arrow(read) == of_arrow(table.scan())
