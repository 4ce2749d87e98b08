"""Clients of other versions of Spark, as they are published, against ``pydelta serve``."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from leaks import secret
from live_server import LiveServer

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    found = LiveServer(tmp_path_factory.mktemp("versions"))
    yield found
    found.stop()


@pytest.mark.parametrize("version", ["4.1.1", "4.2.0"])
def test_a_client_of_another_version_reads_writes_merges_and_streams(live, tmp_path, version):
    packages = tmp_path / "packages"
    wanted = ["--no-deps", "--target", str(packages), f"pyspark-client=={version}"]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *wanted], check=True, capture_output=True)
    name = "v" + version.replace(".", "")
    told = live.remote(
        f"""
        import pyspark
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as F
        ids = lambda frame: sorted(row[0] for row in frame.collect())
        tell(pyspark.__version__)
        spark.range(3).write.format("delta").saveAsTable("{name}")
        spark.range(3, 5).write.insertInto("{name}")
        spark.sql("DELETE FROM {name} WHERE id = 0")
        tell(ids(spark.table("{name}").where(F.col("id") < 4)))
        tell(ids(spark.read.option("versionAsOf", "0").table("{name}")))
        source = spark.range(4, 6).alias("s")
        merge = source.mergeInto("{name}", F.expr("{name}.id = s.id"))
        merge.whenMatched().delete().whenNotMatched().insertAll().merge()
        spark.range(2).write.format("delta").save("{tmp_path}/path")
        tell(ids(spark.read.format("delta").load("{tmp_path}/path")))
        query = (spark.readStream.format("delta")
            .load("{tmp_path}/path")).writeStream.format("delta").option("checkpointLocation", "{tmp_path}/c").trigger(
            availableNow=True).toTable("{name}_copy")
        query.awaitTermination()
        tell(ids(spark.table("{name}_copy")))
        tell([row.operation for row in spark.sql("DESCRIBE HISTORY {name}").collect()])
        tell(ids(spark.table("{name}")))
        try:
            spark.table("not_there").collect()
        except AnalysisException as error:
            tell(error.getErrorClass())
        """,
        environment={"PYTHONPATH": os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])},
    )
    assert told == [
        version, [1, 2, 3], [0, 1, 2], [0, 1], [0, 1],
        ["MERGE", "DELETE", "WRITE", "CREATE TABLE AS SELECT"], [1, 2, 3, 5], "TABLE_OR_VIEW_NOT_FOUND",
    ]  # fmt: skip


TOKEN = secret("a token for the tests of users")


def test_users_have_tokens_and_sessions_of_their_own(tmp_path):
    users = tmp_path / "users"
    users.write_text(f"ann:{TOKEN}-ann\nbob:{TOKEN}-bob\n".replace(" ", "_"))
    users.chmod(0o600)
    server = LiveServer(tmp_path / "closed", "--users", users)
    ann, bob = (f"sc://localhost:{server.connect}/;token={TOKEN}-{name}".replace(" ", "_") for name in ("ann", "bob"))
    try:
        told = server.remote(
            """
            spark.range(1).write.format("delta").saveAsTable("whose")
            spark.range(1).createOrReplaceTempView("mine")
            tell([row.userName for row in spark.sql("DESCRIBE HISTORY whose").collect()])
            tell(spark.session_id)
            """,
            url=ann + ";user_id=bob",
        )
        assert told[0] == ["ann"]
        stolen = server.remote(
            """
            from pyspark.errors import AnalysisException
            try:
                tell(spark.sql("SELECT * FROM mine").count())
            except AnalysisException as error:
                tell(error.getCondition())
            """,
            url=f"{bob};user_id=ann;session_id={told[1]}",
        )
        assert stolen == ["TABLE_OR_VIEW_NOT_FOUND"]
        refused = server.remote(
            """
            from pyspark.errors import PySparkException
            try:
                spark.sql("SELECT 1").collect()
            except Exception as error:
                tell("token" in str(error) and "UNAUTHENTICATED" in str(error))
            """
        )
        assert refused == [True]
        assert TOKEN.replace(" ", "_") not in server.said()
    finally:
        server.stop()
