"""Tables that one version of the stack makes, and what the next one reads of them and writes to them.

``scripts/test-stack-upgrade`` submits it: ``upgrade.py load`` on the version before, ``upgrade.py read`` there and
after the upgrade, then ``upgrade.py go-on`` and ``read`` again. What was read is a line of JSON after FACTS. Counts
and sums are compared with what the steps below have to give, so that two versions that are wrong in the same way are
noticed, too.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pydelta

ORDERS, PLAIN, VIEW = "lake.upgraded_orders", "lake.upgraded_plain", "lake.upgraded_seen"
CONF = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
LOADED = (
    f"""CREATE TABLE {ORDERS} (id BIGINT, day DATE, amount DECIMAL(10,2), note STRING)
        USING DELTA PARTITIONED BY (day)
        TBLPROPERTIES (delta.enableDeletionVectors = true, delta.enableChangeDataFeed = true)""",
    f"""INSERT INTO {ORDERS} SELECT id, date_add(DATE'2024-01-01', CAST(id % 3 AS INT)),
        CAST(id * 1.25 AS DECIMAL(10,2)), IF(id % 7 = 0, NULL, 'new') FROM range(300)""",
    f"DELETE FROM {ORDERS} WHERE id % 10 = 0",
    f"UPDATE {ORDERS} SET note = 'seen' WHERE id < 50",
    f"""MERGE INTO {ORDERS} t USING (SELECT id, DATE'2024-01-04' AS day FROM range(295, 310)) s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET note = 'merged'
        WHEN NOT MATCHED THEN INSERT (id, day, amount, note) VALUES (s.id, s.day, 0.5, 'merged')""",
    f"OPTIMIZE {ORDERS}",
    f"ALTER TABLE {ORDERS} ADD COLUMN (extra INT)",
    f"INSERT INTO {ORDERS} VALUES (1000, DATE'2024-01-01', 1.5, 'last', 7)",
    f"CREATE TABLE {PLAIN} USING DELTA AS SELECT id, CAST(id AS STRING) AS name FROM range(100)",
    f"CREATE VIEW {VIEW} AS SELECT id, day FROM {ORDERS} WHERE note = 'seen'",
)
GONE_ON = (
    f"INSERT INTO {ORDERS} SELECT id, DATE'2024-01-05', 1.00, 'after', 1 FROM range(2000, 2100)",
    f"DELETE FROM {ORDERS} WHERE id < 20",
    f"REORG TABLE {ORDERS} APPLY (PURGE)",  # the twin is made of files without vectors
    f"INSERT INTO {PLAIN} SELECT id, 'after' FROM range(100, 110)",
)
_RANGE = set(range(300))
_LEFT = {n for n in _RANGE if n % 10}
# ids by version of ORDERS, as the steps above make them; PLAIN has 0 to 99, then 0 to 109
_MERGED = _LEFT | set(range(300, 310))
IDS = [set(), _RANGE, _LEFT, _LEFT, _MERGED, _MERGED, _MERGED, _MERGED | {1000}]
_AT_FIRST = len(IDS)
IDS += [IDS[-1] | set(range(2000, 2100)), *[{n for n in IDS[-1] | set(range(2000, 2100)) if n >= 20}] * 2]
# 295 to 299 match, 300 to 309 are new; id 290 went with the others that ten divides
CHANGES = {"insert": 300 + 10 + 1, "delete": 30, "update_preimage": 45 + 5, "update_postimage": 45 + 5}


def facts(spark: Any) -> dict[str, Any]:
    """Read all that a user may ask of the tables."""
    found: dict[str, Any] = {}
    for name in (ORDERS, PLAIN):
        history = spark.sql(f"DESCRIBE HISTORY {name}").collect()
        newest = history[0]["version"]
        asked = "count(*), sum(id), sum(CAST(hash(*) AS BIGINT))"
        found[name] = {
            "history": [[row["version"], str(row["timestamp"]), row["operation"]] for row in reversed(history)],
            "rows by version": [
                list(spark.sql(f"SELECT {asked} FROM {name} VERSION AS OF {version}").first())
                for version in range(newest + 1)
            ],
            "rows": list(spark.sql(f"SELECT {asked} FROM {name}").first()),
            "schema": spark.table(name).schema.simpleString(),
            "detail": [
                str(spark.sql(f"DESCRIBE DETAIL {name}").first()[column])
                for column in ("id", "location", "partitionColumns")
            ],
        }
    changes = f"SELECT _change_type, count(*) FROM table_changes('{ORDERS}', 0, 7) GROUP BY 1 ORDER BY 1"
    found["changes"] = {row[0]: row[1] for row in spark.sql(changes).collect()}
    found["view"] = spark.table(VIEW).count()
    found["twins"] = sorted(
        row["tableName"] for row in spark.sql("SHOW TABLES IN lake_symlink LIKE 'upgraded*'").collect()
    )
    return found


def wrong(found: dict[str, Any]) -> list[str]:
    """Compare what was read with what the steps have to give."""
    orders, plain = found[ORDERS], found[PLAIN]
    versions = len(orders["rows by version"])
    went_on = versions > _AT_FIRST
    last = len(IDS) if went_on else _AT_FIRST
    said = []
    if versions != last:
        said.append(f"{ORDERS} has {versions} versions, not {last}")
    for version, (row, ids) in enumerate(zip(orders["rows by version"], IDS, strict=False)):
        if [row[0], row[1]] != [len(ids), sum(ids) if ids else None]:
            said.append(f"{ORDERS}, version {version}: {row[:2]}, not {[len(ids), sum(ids)]}")
    if plain["rows"][:2] != ([110, 5995] if went_on else [100, 4950]):
        said.append(f"{PLAIN}: {plain['rows']}")
    if found["changes"] != CHANGES:
        said.append(f"changes: {found['changes']}, not {CHANGES}")
    if found["view"] != (27 if went_on else 45):
        said.append(f"{VIEW}: {found['view']} rows")
    if found["twins"] != ["upgraded_orders", "upgraded_plain"]:
        said.append(f"twins: {found['twins']}")
    return said


def main(what: str) -> int:
    """Do it; the exit code says whether what was read is right."""
    spark = pydelta.session("upgrade", conf=CONF)
    if what != "read":
        for statement in LOADED if what == "load" else GONE_ON:
            spark.sql(statement)
        return 0
    found = facts(spark)
    print("FACTS", json.dumps(found, sort_keys=True), flush=True)
    said = wrong(found)
    print("\n".join(said) or "All rows are right.", flush=True)
    return 4 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
