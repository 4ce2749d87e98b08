"""What a person reads at the end of a VACUUM."""

from __future__ import annotations

import polars as pl

from pydelta.api.console.vacuum_display import live_counts, partition_lines, summary_lines
from pydelta.commands.vacuum.command import VacuumResult
from pydelta.commands.vacuum.plan import DOOMED_SCHEMA


def result(partitions, **fields) -> VacuumResult:
    rows = [(f"{name}/x", size, 0, name) for name, size in partitions]
    files = pl.DataFrame(rows, schema=DOOMED_SCHEMA, orient="row")
    values = {"root": "file:///t", "mode": "full", "dry_run": True, "version": 3, "cutoff_ms": 0, "retention_ms": 0}
    return VacuumResult(**values | {"files": files} | fields)


def test_totals_by_partition_the_largest_first_and_the_rest_together():
    found = result([("p=1", 10), ("p=2", 30), ("p=1", 5), ("", 1)])
    assert partition_lines(found) == [
        "p=2: 1 files, 30 bytes",
        "p=1: 2 files, 15 bytes",
        "(no partition): 1 files, 1 bytes",
    ]
    many = partition_lines(result([(f"p={number}", 100 + number) for number in range(25)]))
    assert len(many) == 21
    assert many[0] == "p=24: 1 files, 124 bytes"
    assert many[-1] == "5 more partitions: 5 files, 510 bytes"


def test_the_end_says_requests_bytes_and_what_a_listing_would_have_cost():
    full = result([("p=1", 10)], bytes=10, listed=2000, list_requests=2, listing_requests=2, directory_requests=7)
    assert summary_lines(full) == [
        "2 LIST and 0 DELETE requests.",
        "2000 files listed, 10 bytes to free.",
        "Found 1 files and directories to delete in a total of 1 directories.",
    ]
    done = result([("p=1", 10)], mode="inventory", dry_run=False, deleted=1, bytes=10, delete_requests=1,
                  listing_requests=2, directory_requests=7)  # fmt: skip
    assert summary_lines(done) == [
        "A listing would have taken 2 LIST requests, or 7 directory by directory.",
        "0 LIST and 1 DELETE requests.",
        "0 files listed, 10 bytes freed.",
        "Deleted 1 files and directories in a total of 1 directories.",
    ]


def test_where_nobody_watches_there_is_nothing_to_tell():
    with live_counts() as tell:
        assert tell is None
