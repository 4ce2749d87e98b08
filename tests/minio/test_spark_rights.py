"""Spark over S3A, as the stack's jobs have it: the key of the user spark is enough for the life of a table."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from missing import missing

from catalog_sync.thrift.embedded import EmbeddedMetastore

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.ci]


@pytest.fixture(scope="module")
def jars(tmp_path_factory):
    """The jars that the stack's image has."""
    maven = shutil.which("mvn")
    if maven is None:
        missing("S3A IS NOT TESTED HERE: there is no mvn to fetch hadoop-aws with")
    folder = tmp_path_factory.mktemp("jars")
    project = folder / "pom.xml"
    shutil.copy(ROOT / "images" / "spark" / "pom.xml", project)
    command = [maven, "-q", "-B", "-f", project, f"{PLUGIN}:copy-dependencies", "-DincludeScope=runtime"]
    done = subprocess.run([*command, f"-DoutputDirectory={folder}"], capture_output=True, text=True, check=False)
    if done.returncode:
        missing(f"S3A IS NOT TESTED HERE: Maven does not give the jars of images/spark/pom.xml: {done.stdout[-300:]}")
    return folder


@pytest.fixture
def metastore(minio, jars, tmp_path):
    """A Hive Metastore whose databases are in the warehouse, with the metastore's own key."""
    # with another pool it would need a jar that Spark does not have, once a database is dropped
    settings = {"hive.metastore.warehouse.dir": "s3a://warehouse/", "datanucleus.connectionPoolingType": "none"}
    with EmbeddedMetastore(tmp_path / "hms", settings=settings, hadoop=minio.options("metastore"), jars=jars) as server:
        yield server.uri


def test_a_table_s_whole_life_in_spark_with_the_key_of_spark(minio, jars, metastore, database, store, tmp_path):
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": "spark",
        "AWS_SECRET_ACCESS_KEY": minio.secrets["spark"],
        "PYDELTA_FS_S3A_ENDPOINT": minio.endpoint,
        "PYDELTA_FS_S3A_ENDPOINT_REGION": "us-east-1",
        "PYDELTA_FS_S3A_PATH_STYLE_ACCESS": "true",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_CONF_DIR": str(tmp_path),
        "SECRETS": json.dumps({user: minio.secrets[user] for user in ("sync", "vacuum")}),
    }
    (tmp_path / "spark-defaults.conf").write_text(
        f"spark.hadoop.fs.s3a.endpoint {minio.endpoint}\n"
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
    assert not [user for user in ("spark", "sync", "vacuum", "metastore") if minio.secrets[user] in said]
