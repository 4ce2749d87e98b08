"""Spark over S3A, as the stack's jobs have it: the key of the user spark is enough for the life of a table.

It takes minutes, and asks MinIO alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.parametrize("server", ["minio"], indirect=True),
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.ci,
]


def test_a_table_s_whole_life_in_spark_with_the_key_of_spark(server, jars, metastore, database, store, tmp_path):
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": "spark",
        "AWS_SECRET_ACCESS_KEY": server.secrets["spark"],
        "PYDELTA_FS_S3A_ENDPOINT": server.endpoint,
        "PYDELTA_FS_S3A_ENDPOINT_REGION": "us-east-1",
        "PYDELTA_FS_S3A_PATH_STYLE_ACCESS": "true",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_CONF_DIR": str(tmp_path),
        "SECRETS": json.dumps({user: server.secrets[user] for user in ("sync", "vacuum")}),
    }
    (tmp_path / "spark-defaults.conf").write_text(
        f"spark.hadoop.fs.s3a.endpoint {server.endpoint}\n"
        "spark.hadoop.fs.s3a.endpoint.region us-east-1\nspark.hadoop.fs.s3a.path.style.access true\n"
    )
    command = [sys.executable, ROOT / "tests/minio/spark_life.py", jars, database, metastore]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    found = json.loads(done.stdout.splitlines()[-1])

    assert found["rows"] == found["rows_then"] == found["rows_after_vacuum"] > 0
    assert found["streamed"] == found["rows"]
    assert found["is_effect"] == [True, True, False, False]
    for statement in ("vacuum", "drop", "drop_database", "over_jdbc"):
        assert "DELTA_STORAGE_PERMISSION_DENIED" in found[statement]
        assert "AS_USER=vacuum" in found[statement]
    assert "orders is a managed table" in found["drop"]
    assert "Nothing was dropped" in found["drop"]
    assert found["synced"] == 0, found["sync_said"]
    assert found["tables"] == ["orders_streamed"]
    assert database not in found["databases"]
    assert [info.path for info in store(None, database).list_all() if info.size] == [], "but for markers of folders"
    assert [info.path for info in store(None, database, "work").list_all()] == []
    said = done.stdout + done.stderr + (tmp_path / "hms" / "log").read_text(errors="replace")
    assert not [user for user in ("spark", "sync", "vacuum", "metastore") if server.secrets[user] in said]
