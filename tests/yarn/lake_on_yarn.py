"""An HDFS and a YARN beside it, as an application and a test of it see them."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from hadoop_servers import jars_of_pyspark
from hdfs_cluster import HdfsCluster
from submitting import NOTHING, PACKED, Submission, rows_in
from yarn_cluster import YarnCluster

from pydelta.log import DeltaLog
from pydelta.storage import open_store

ON_THE_LOOPBACK = {f"spark.{name}.SPARK_LOCAL_IP": "127.0.0.1" for name in ("yarn.appMasterEnv", "executorEnv")}
SMALL = {f"spark.{name}.memory": "512m" for name in ("driver", "executor", "yarn.am")}
FEW = {"spark.sql.shuffle.partitions": 4, "spark.default.parallelism": 4, "spark.ui.enabled": "false"}
NO_UPLOAD = {"spark.yarn.jars": f"local:{jars_of_pyspark()}/*"}
"""Each node has Spark's jars at this place: no application uploads them."""


class Lake:
    """Where applications run, and where their tables are.

    Args:
        hdfs: Of the tables and of the applications' files.
        yarn: Where they run.
        archive: The packed environment.
    """

    java_options: tuple[str, ...] = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    """Of each JVM of an application."""

    def __init__(self, hdfs: HdfsCluster, yarn: YarnCluster, archive: Path) -> None:
        self.hdfs = hdfs
        self.yarn = yarn
        self.archive = archive

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of a process that submits, or that reads tables."""
        return {"HADOOP_CONF_DIR": str(self.yarn.conf)}

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings of each application."""
        java = " ".join(self.java_options)
        return {f"spark.{name}.extraJavaOptions": java for name in ("driver", "executor", "yarn.am")}

    def new_table(self) -> str:
        """The URI of a table that is not there yet."""
        return f"{self.hdfs.uri}/lake/{uuid.uuid4()}/a table"

    @cached_property
    def shared_archive(self) -> str:
        """The URI of the archive on HDFS, where everybody may read it: a node unpacks it once for all applications."""
        folder = f"{self.hdfs.uri}/shared"
        open_store(folder).put("environment.tar.gz", self.archive.read_bytes())
        return f"{folder}/environment.tar.gz"

    def submit(
        self,
        mode: str,
        job: Sequence[str],
        *options: str,
        folder: Path,
        conf: Mapping[str, object] = NOTHING,
        archive: Path | None = None,
    ) -> Submission:
        """Submit the job as docs/guides/cluster.md says it, with a name that is the folder's.

        Args:
            mode: ``client`` or ``cluster``.
            job: The table and the job's further arguments.
            options: More options of ``spark-submit``.
            folder: Where it runs.
            conf: More settings.
            archive: The local one, which is uploaded; otherwise it is the shared one.
        """
        settings = {
            **NO_UPLOAD,
            **ON_THE_LOOPBACK,
            **SMALL,
            **FEW,
            **self.settings,
            "spark.executor.instances": 2,
            **conf,
        }
        given = ["--master", "yarn", "--deploy-mode", mode, "--name", folder.name]
        given += ["--archives", f"{archive or self.shared_archive}#environment", *options]
        for name, value in settings.items():
            given += ["--conf", f"{name}={value}"]
        here = mode == "client"
        return Submission(job, *given, workers=PACKED, folder=folder, more=self.environment, driver=here)

    def rows(self, table: str) -> Counter[tuple[Any, ...]]:
        """The rows of a table, read by this process without Spark."""
        return rows_in(DeltaLog.for_table(table))
