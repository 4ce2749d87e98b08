"""An erasure on the cluster: written with Spark's key, deleted with VACUUM's; Trino shows all others afterwards."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import DATABASE, ORDERS, ROOT, SCHEMA, WORK, trino_rows

pytestmark = [pytest.mark.before_submit, pytest.mark.in_turn]
KEY = "customer 3"


def places_of_key(store):
    """Where objects hold or name the key: bytes, values of Parquet files, names."""
    found = []
    for info in store.list_all():
        data = store.read(info.path)
        texts = [info.path, data.decode("latin-1")]
        if data[:4] == b"PAR1":
            texts.append(str(pq.read_table(pa.BufferReader(data)).to_pylist()))
        found += [info.path for text in texts if KEY in text or KEY.replace(" ", "%20") in text]
    return found


def test_a_customer_leaves_a_table_and_trino_shows_the_others(store_at, submit, sql, register):
    location = f"{ROOT}/erasable"
    lines = ["id,customer,amount,at,day", *(",".join(map(str, row)) for row in ORDERS)]
    store_at(f"{WORK}/{DATABASE}").put("erasable.csv", "\n".join(lines).encode())
    source = ["--input", f"{WORK}/{DATABASE}/erasable.csv", "--format", "csv", "--option", "header=true"]
    loaded = submit("ingest", *source, "--schema", SCHEMA, "--table", location, "--partition-by", "day")
    assert loaded.code == 0, loaded.errors
    deleted = submit("delete", "--table", location, "--where", f"customer = '{KEY}' AND id < 100")
    assert deleted.code == 0, deleted.errors
    register("erasable")
    store = store_at(location)
    assert places_of_key(store)

    store_at(f"{WORK}/{DATABASE}").put("people.csv", f"customer\n{KEY}\n".encode())
    keys = ["--keys", f"{WORK}/{DATABASE}/people.csv", "--history", "drop"]
    refused = submit("erase", location, *keys[:2])
    assert refused.code == 1, refused
    assert "given up" in refused.result["message"]
    done = submit("erase", location, *keys, "--suppress", f"{ROOT}/erased_keys")
    assert done.code == 0, (done.result, done.errors)
    assert done.result["status"] == "proven"
    assert places_of_key(store) == []
    register("erasable")
    left = sorted(row for row in ORDERS if row[1] != KEY)
    assert trino_rows(sql(f"SELECT * FROM delta.{DATABASE}.erasable")) == left

    again = submit("ingest", *source, "--schema", SCHEMA, "--table", location, "--suppress", f"{ROOT}/erased_keys")
    assert again.code == 0, again.errors
    assert (again.result["rows"], again.result["suppressed"]) == (len(left), len(ORDERS) - len(left))
    assert places_of_key(store) == []
