"""An erasure on the cluster: written with Spark's key, deleted with VACUUM's; Trino shows all others afterwards."""

from __future__ import annotations

import re
import subprocess

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


VECTORS = "'delta.enableDeletionVectors' = 'true'"
KINDS = {
    "plain": ("", ""),
    "vectors": ("", VECTORS),
    "names": ("", f"{VECTORS}, 'delta.columnMapping.mode' = 'name'"),
    "feed": ("", "'delta.enableChangeDataFeed' = 'true'"),
    "clustered": ("CLUSTER BY (n)", VECTORS),
    "regions": ("PARTITIONED BY (region)", ""),
    "tracked": ("", "'delta.enableRowTracking' = 'true', 'delta.checkpointInterval' = '2'"),
    "times": ("", "'delta.enableInCommitTimestamps' = 'true', 'delta.checkpointPolicy' = 'v2'"),
}
PERSONS = 40
ERASED = 20


def statements(name):
    """Make a table whose history names persons everywhere."""
    clause, properties = KINDS[name]
    table = f"delta.`{ROOT}/erased_{name}`"
    mail = "concat('person-', lpad(cast(id AS string), 3, '0'), '@lake.example')"
    yield (
        f"CREATE TABLE {table} (mail STRING, n BIGINT, region STRING) USING DELTA {clause} "
        f"TBLPROPERTIES ('note' = 'x'{', ' + properties if properties else ''})"
    )
    for low in range(0, PERSONS, PERSONS // 2):
        rows = f"SELECT {mail}, id, concat('r', id % 2) FROM range({low}, {low + PERSONS // 2})"
        yield f"INSERT INTO {table} {rows}"
    yield f"DELETE FROM {table} WHERE mail = 'person-001@lake.example'"
    yield f"UPDATE {table} SET n = n + 1000 WHERE mail IN ('person-002@lake.example', 'person-030@lake.example')"
    if name == "names":
        yield f"ALTER TABLE {table} RENAME COLUMN mail TO address"


def persons_in(store):
    """The numbers of the persons whom objects hold or name."""
    found = set()
    for info in store.list_all():
        data = store.read(info.path)
        texts = [info.path, data.decode("latin-1")]
        if data[:4] == b"PAR1":
            texts.append(str(pq.read_table(pa.BufferReader(data)).to_pylist()))
        found |= {int(number) for text in texts for number in re.findall(r"person-(\d{3})", text)}
    return found


def test_half_of_all_persons_leave_tables_of_many_kinds_and_trino_shows_the_others(store_at, submit, sql, register):
    script = "; ".join(statement for name in KINDS for statement in statements(name))
    made = subprocess.run(["pydelta", "sql", "-e", script], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    locations = {name: f"{ROOT}/erased_{name}" for name in KINDS}
    place = store_at(f"{WORK}/{DATABASE}")
    place.put("persons.csv", "".join(["email\n", *(f"person-{n:03d}@lake.example\n" for n in range(ERASED))]).encode())
    columns = {name: "address" if name == "names" else "mail" for name in KINDS}
    mapping = "".join(f'["{locations[name]}"]\n{column} = "email"\n' for name, column in columns.items())
    place.put("columns.toml", mapping.encode())
    for name in KINDS:
        assert persons_in(store_at(locations[name])) & set(range(ERASED)), name
    keys = ["--keys", f"{WORK}/{DATABASE}/persons.csv", "--map", f"{WORK}/{DATABASE}/columns.toml"]
    done = submit("erase", *locations.values(), *keys, "--history", "drop")
    assert done.code == 0, (done.result, done.errors)
    assert [table["status"] for table in done.result["tables"]] == ["proven"] * len(KINDS)
    others = {(f"person-{n:03d}@lake.example", n + 1000 * (n == 30)) for n in range(ERASED, PERSONS)}
    for name, column in columns.items():
        assert not persons_in(store_at(locations[name])) & set(range(ERASED)), name
        register(f"erased_{name}")
        rows = sql(f"SELECT {column}, n FROM delta.{DATABASE}.erased_{name}")
        assert {tuple(row) for row in rows} == others, name
        assert len(rows) == len(others), name
