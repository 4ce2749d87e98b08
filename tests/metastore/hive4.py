"""Hive Metastore 4.0.1, fetched by Maven coordinates into Maven's own cache, on Derby in a folder."""

from __future__ import annotations

import os
import socket
import subprocess
import tarfile
import time
from pathlib import Path

from java_servers import fetch, java, site_xml

SERVER = "org.apache.hive:hive-standalone-metastore-server:4.0.1:tar.gz:bin"
SMALL = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
JARS = (  # the archive has no Hadoop, and lacks a few more
    "org.apache.hadoop:hadoop-client-api:3.4.2",
    "org.apache.hadoop:hadoop-client-runtime:3.4.2",
    "org.apache.hadoop:hadoop-hdfs:3.4.2",
    "javax.servlet:javax.servlet-api:3.1.0",
    "commons-collections:commons-collections:3.2.2",
    "commons-io:commons-io:2.16.1",
    "com.google.code.gson:gson:2.9.0",
    "commons-logging:commons-logging:1.2",
    "commons-codec:commons-codec:1.15",
    "org.apache.httpcomponents:httpclient:4.5.13",
    "org.apache.httpcomponents:httpcore:4.4.13",
    "org.slf4j:slf4j-api:1.7.36",
)


class Hive4:
    """Started by the constructor; ``stop`` ends the process that was started here."""

    def __init__(self, folder: Path) -> None:
        home = _fetch(folder)
        self.warehouse = folder / "warehouse"
        self.warehouse.mkdir()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.uri = f"thrift://127.0.0.1:{self.port}"
        settings = {
            "metastore.thrift.bind.host": "127.0.0.1",
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / 'db'};create=true",
            "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
            "metastore.warehouse.dir": f"file://{self.warehouse}",
            "metastore.async.log.enabled": "false",
            "metastore.schema.verification": "false",
            "metastore.housekeeping.threads.on": "false",
            "metastore.task.threads.always": "org.apache.hadoop.hive.metastore.events.EventCleanerTask",
            "metastore.expression.proxy": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
        }
        configuration = folder / "conf"
        configuration.mkdir()
        (configuration / "metastore-site.xml").write_text(site_xml(settings))
        opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.net", "java.lang", "java.util")]
        classes = f"{configuration}:{home}/lib/*:{folder}/jars/*"
        command = [java(), *SMALL, *opened, f"-Dderby.system.home={folder}", "-cp", classes]
        environment = {**os.environ, "METASTORE_HOME": str(home)}
        self._said = folder / "log"
        tool = ["org.apache.hadoop.hive.metastore.tools.schematool.MetastoreSchemaTool", "-dbType", "derby"]
        with self._said.open("wb") as said:
            subprocess.run(
                [*command, f"-Dmetastore.home={home}", *tool, "-initSchema"],
                check=True,
                stdout=said,
                stderr=said,
                cwd=folder,
                env=environment,
            )
        self._log = self._said.open("ab")
        command += ["org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(self.port)]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log, cwd=folder, env=environment)
        give_up = time.monotonic() + 120
        while True:
            with socket.socket() as link:
                if link.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            if self._process.poll() is not None or time.monotonic() > give_up:
                self.stop()
                raise AssertionError("no metastore: " + self._said.read_text(errors="replace")[-3000:])
            time.sleep(0.2)

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)
        self._log.close()


def _fetch(folder: Path) -> Path:
    fetch(folder, SERVER)
    fetch(folder / "jars", *JARS)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        checks = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11 has it since 3.11.4
        packed.extractall(folder, **checks)
    archive.unlink()
    (home,) = folder.glob("apache-hive-metastore-*")
    return home
