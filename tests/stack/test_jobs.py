"""Jobs that change tables, on the cluster: what they print, what Trino reads afterwards, that they can be repeated."""

from __future__ import annotations

import pytest
from conftest import DATABASE, ORDERS, ROOT, SCHEMA, WORK, trino_rows

from pydelta.log import DeltaLog

pytestmark = [pytest.mark.before_submit, pytest.mark.in_turn]


def test_many_small_files_are_compacted_and_rows_deleted(store_at, submit, sql, register):
    lines = ["id,customer,amount,at,day", *(",".join(map(str, row)) for row in ORDERS)]
    location = f"{ROOT}/maintained"
    parts = 3
    for number in range(parts):
        header, *rows = lines
        store_at(f"{WORK}/{DATABASE}").put(f"part-{number}.csv", "\n".join([header, *rows[number::parts]]).encode())
        source = f"{WORK}/{DATABASE}/part-{number}.csv"
        arguments = ["--input", source, "--format", "csv", "--option", "header=true", "--schema", SCHEMA]
        done = submit("ingest", *arguments, "--table", location)
        assert done.code == 0, done.errors
    store = store_at(location)
    assert DeltaLog.for_table(location, store=store).update().num_files == parts

    compacted = submit("compact", "--table", location)
    assert compacted.code == 0, compacted.errors
    assert (compacted.result["files_removed"], compacted.result["files_added"]) == (parts, 1)
    again = submit("compact", "--table", location)
    assert (again.code, again.result["version"]) == (0, None)

    deleted = submit("delete", "--table", location, "--where", "customer = 'customer 3'")
    assert deleted.code == 0, deleted.errors
    assert submit("delete", "--table", location, "--where", "customer = 'customer 3'").code == 0
    left = sorted(row for row in ORDERS if row[1] != "customer 3")
    register("maintained")
    assert trino_rows(sql(f"SELECT * FROM delta.{DATABASE}.maintained")) == left


def test_a_condition_that_cannot_be_used_is_one_clear_line(submit):
    done = submit("delete", "--table", f"{ROOT}/maintained", "--where", "no_column = 1")
    assert done.code == 1
    assert "no_column" in done.result["message"]
    assert "Traceback" not in done.errors
