"""Ask the status page of the stack what it shows, inside its own container: every table, every service."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from urllib.parse import quote

PAGE = "http://status-page:8088"
PATIENCE_SECONDS = 600  # ends what hangs


def get(path: str, data: bytes | None = None) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(PAGE + path, data=data) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def tables() -> dict[str, dict]:
    return {table["place"]["name"]: table for table in json.loads(get("/api/tables")[1])["tables"]}


give_up = time.monotonic() + PATIENCE_SECONDS
while not all(table["version"] is not None or table["troubles"] for table in tables().values()) or not tables():
    assert time.monotonic() < give_up, "the tables are not read"
    time.sleep(1)

found = tables()
read = {name: table for name, table in found.items() if table["version"] is not None}
assert read, f"none of {sorted(found)} can be read"
for name, table in read.items():
    assert table["place"]["registered"], name
    assert table["files"]["liveBytes"] >= 0, name
    status, text = get(f"/table?name={quote(name)}")
    assert (status, name in text) == (200, True), name
    newest = table["commits"][0]["version"]
    status, text = get(f"/commit?name={quote(name)}&version={newest}")
    assert (status, "The commit&#39;s lines" in text or "The commit's lines" in text) == (200, True), name
twins = {name: table["twin"]["state"] for name, table in read.items() if table["twin"] is not None}
assert {"current", "behind"} & set(twins.values()), f"no table has a twin: {twins}"

metrics = get("/metrics")[1]
while 'pydelta_service_up{service="Trino"} 1.0' not in metrics or 'schedule="maintenance of' not in metrics:
    assert time.monotonic() < give_up, metrics
    time.sleep(1)
    metrics = get("/metrics")[1]
for service in ("Object store", "Metastore", "Spark"):
    assert f'pydelta_service_up{{service="{service}"}} 1.0' in metrics, metrics
assert 'pydelta_schedule_late_seconds{schedule="' in metrics, metrics
assert 'pydelta_disk_used_ratio{disk="Volumes"}' in metrics, metrics
assert get("/", data=b"x")[0] == 405


def api(path: str) -> dict:
    status, text = get(f"/api{path}")
    assert status == 200, (path, text)
    return json.loads(text)


assert "lake" in {database["name"] for database in api("/databases")["databases"]}
name, table = max(read.items(), key=lambda item: item[1]["files"]["live"])
assert [column["name"] for column in api(f"/columns?name={quote(name)}")["columns"]]
assert api(f"/search?q={quote(name)}")["found"][0]["table"] == name
status, text = get(f"/api/preview?name={quote(name)}")
assert status == 200 or (status == 403 and "--no-preview" in text), (name, status, text)
while not all(cluster["ok"] or cluster["said"] == "not started" for cluster in api("/cluster")["clusters"]):
    clusters = api("/cluster")["clusters"]
    # With SECURE=yes Trino lets nobody look without a password.
    if all(cluster["ok"] is not False or "does not let the page look" in cluster["said"] for cluster in clusters):
        break
    assert time.monotonic() < give_up, clusters
    time.sleep(1)
spark = {cluster["name"]: cluster for cluster in api("/cluster")["clusters"]}["Spark"]
assert spark["cores"] > 0, spark
assert {"runs", "count", "engines"} <= api("/runs").keys()
lineage = api("/lineage")
assert (lineage["location"], lineage["trouble"]) == ("/opt/events/lineage", None), lineage
said = {service["name"]: service["said"] for service in json.loads(get("/api/tables")[1])["services"]}
for optional in (
    "Kafka",
    "Presto",
    "Spark history",
    "Notebooks",
    "Iceberg REST",
    "SQL server",
    "SQL session",
    "Monitor",
):
    assert optional in said, said
assert any(text == "off" for name, text in said.items() if name.startswith("Scheduled: ")), said
assert get("/table?name=no.such")[0] == 404
print(f"{len(read)} of {len(found)} tables, twins: {sorted(set(twins.values()))}, every service answers")
