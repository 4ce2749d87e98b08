"""Which part of the project a test is about, and the suites whose runs are kept."""

from __future__ import annotations

import re
from typing import NamedTuple


class Suite(NamedTuple):
    """A choice of tests: what it is called on the page, whether it starts Spark, how it is run."""

    shown: str
    in_spark: bool
    command: str


SUITES = {
    "fast": Suite("without Spark", False, "scripts/test-python-version 3.13"),
    "spark": Suite("in Spark", True, "scripts/test-spark-version 4.2"),
    "stores": Suite("stores of servers", False, "make test SUITE=store-servers"),
}
AREAS = {
    "tests/integration/spark/write/": "writes and ingestion",
    "tests/integration/spark/change/": "DELETE, UPDATE, MERGE",
    "tests/integration/spark/stream/": "streams",
    "tests/integration/spark/sql/": "SQL",
    "tests/integration/spark/": "other",
    "tests/serve/": "Spark Connect, JDBC",
    "tests/property/": "properties",
    "tests/contracts/test_disks.py": "store: local disk",
    "tests/contracts/test_iceberg_stores.py": "store: S3, imitated",
    "tests/contracts/test_log_on_s3.py": "store: S3, imitated",
    "tests/contracts/test_object_store.py": "store: S3, imitated",
    "tests/contracts/": "places of tables",
    "tests/minio/test_versity.py": "store: Versity's gateway",
    "tests/minio/": "store: MinIO",
    "tests/hdfs/": "store: HDFS",
}
_OF_PARAMETERS = {"local": "store: local disk", "memory": "store: memory", "s3": "store: S3, imitated"}


def area_of(nodeid: str) -> str:
    """The area of a test by its id."""
    if nodeid.startswith("tests/contracts/"):
        chosen = re.search(r"\[(local|memory|s3)\b", nodeid)
        if chosen:
            return _OF_PARAMETERS[chosen[1]]
    if nodeid.startswith("tests/unit/"):
        parts = nodeid.split("::")[0].split("/")
        return "unit: others" if len(parts) == 3 else f"unit: {parts[2]}"
    if nodeid.startswith("tests/minio/") and "versity" in nodeid.lower():
        return "store: Versity's gateway"
    return next((area for start, area in AREAS.items() if nodeid.startswith(start)), "other")
