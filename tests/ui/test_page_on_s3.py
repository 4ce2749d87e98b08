"""The page over an S3 look-alike: a folder is walked by keys, nothing is written, and no key of the store is shown."""

from __future__ import annotations

import urllib.request
import uuid

import pyarrow as pa
import pytest
from leaks import secret
from s3_server import S3Server

import pydelta
from pydelta.log import DeltaLog
from pydelta.manifests import publish
from pydelta.storage import open_store
from pydelta.testing.operations import add_file, append, create_table
from pydelta.tools.ui.pages import json_text, overview_page, table_page
from pydelta.tools.ui.sources import Sources
from pydelta.tools.ui.watch import Watch, Watched

SECRET = secret("page")


@pytest.fixture(scope="module")
def server():
    found = S3Server()
    yield found
    found.stop()


@pytest.fixture
def lake(server):
    """A bucket with two tables below a folder, and the options that open it."""
    bucket = f"b{uuid.uuid4().hex[:12]}"
    urllib.request.urlopen(urllib.request.Request(f"{server.endpoint}/{bucket}", method="PUT")).close()
    options = {
        "fs.s3a.endpoint": server.endpoint,
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": "AKIAABCDEFGHIJKLMNOP",
        "fs.s3a.secret.key": SECRET,
        "fs.s3a.endpoint.region": "us-east-1",
    }
    for name in ("sales/orders", "sales/returns"):
        log = DeltaLog(open_store(f"s3a://{bucket}/lake/{name}", options), options=options)
        create_table(log, [add_file(part, [1, 2]) for part in "ab"])
        publish(log)
    append("a", [3]).run(log)
    return f"s3a://{bucket}/lake", options


def test_a_folder_of_a_bucket_is_shown_and_only_read(server, lake):
    place, options = lake
    watch = Watch(Watched(sources=Sources(folders=[place], options=options, seconds=600), fresh=0, patience=600))
    server.requests.clear()
    view = watch.overview()
    assert [(table.place.name, table.version, table.twin.state) for table in view.tables] == [
        ("sales.returns", 1, "behind"),
        ("sales.orders", 0, "current"),
    ]
    assert {method for method, _ in server.requests} <= {"GET", "HEAD"}
    shown = overview_page(view) + json_text(view).decode() + "".join(table_page(view, table) for table in view.tables)
    assert "AKIA" not in shown
    assert SECRET not in shown
    assert "s3a://" in shown


def test_a_bucket_that_is_not_there_is_a_line(server, lake):
    _, options = lake
    sources = Sources(folders=["s3a://nowhere/lake"], tables=["s3a://nowhere/t"], options=options, seconds=600)
    view = Watch(Watched(sources=sources, fresh=0, patience=600)).overview()
    assert view.troubles
    assert view.tables[0].weight == 2
    for trouble in (*view.troubles, *view.tables[0].troubles):
        assert trouble.next
        assert "Traceback" not in trouble.what
        assert SECRET not in trouble.what


def test_rows_and_statistics_are_read_from_a_bucket_by_ranges_and_nothing_is_written(server, lake):
    place, options = lake
    rows = 200_000
    texts = [f"{number:07d}" * 10 for number in range(rows)]
    pydelta.LocalTable.create(f"{place}/rows", pa.table({"id": list(range(rows)), "text": texts}), options=options)
    sources = Sources(tables=[f"rows={place}/rows"], options=options)
    watch = Watch(Watched(sources=sources, fresh=600, patience=600))
    table = watch.overview().table("rows")
    server.requests.clear()
    found = watch.questions.rows(table, 3)
    assert [row[0] for row in found.rows] == ["0", "1", "2"]
    assert found.read_bytes < table.files.live_bytes / 3
    sums = watch.questions.sums(table)
    assert (sums.rows, sums.columns["id"].high) == (rows, str(rows - 1))
    assert {method for method, _ in server.requests} <= {"GET", "HEAD"}
