"""One NameNode and one DataNode on free ports of the loopback: Hadoop's own, from a jar that Maven fetches.

``hadoop-client-minicluster`` holds both; what it needs beside it are the Hadoop jars that PySpark brings.
"""

from __future__ import annotations

import getpass
import importlib.util
import json
import re
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

from java_servers import fetch, java, site_xml

SERVER = "org.apache.hadoop.hdfs.server"
START_SECONDS = 600.0
SMALL = ("-Xmx160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--add-opens=java.base/java.lang=ALL-UNNAMED")


class HdfsCluster:
    """Started by the constructor; ``stop`` ends the processes that were started here, and no others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        bundled = _jars_of_pyspark()
        jars = folder / "jars"
        fetch(jars, f"org.apache.hadoop:hadoop-client-minicluster:{_hadoop_version(bundled)}")
        self.port, self._web = _free_ports(2)
        self.host = f"127.0.0.1:{self.port}"
        self.uri = f"hdfs://{self.host}"
        self.user = getpass.getuser()
        conf = folder / "conf"
        conf.mkdir()
        (conf / "core-site.xml").write_text(
            site_xml({"fs.defaultFS": self.uri, "ipc.client.connect.retry.interval": 100})
        )
        (conf / "hdfs-site.xml").write_text(site_xml(self._settings()))
        self._classes = f"{conf}:{jars}/*:{bundled}/*"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        try:
            self._run("datanode.DataNode")  # it asks until the NameNode is there
            self._run("namenode.NameNode", "-format", "-nonInteractive").wait(60)
            self._run("namenode.NameNode")
            self._wait()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End both."""
        for name in list(self._processes):
            self.end(name)

    def end(self, name: str) -> None:
        """End one of them: ``namenode.NameNode`` or ``datanode.DataNode``."""
        process = self._processes.pop(name)
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)

    def start_name_node(self) -> None:
        """Start it again, with what it holds, and wait for its DataNode."""
        self._run("namenode.NameNode")
        self._wait()

    def said(self) -> str:
        """The last lines of what the processes wrote."""
        lines = [
            line for log in sorted(self.folder.glob("*.log")) for line in log.read_text(errors="replace").split("\n")
        ]
        return "\n".join(lines[-30:])

    def _settings(self) -> dict[str, object]:
        own = "127.0.0.1:0"
        return {
            "dfs.namenode.name.dir": (self.folder / "name").as_uri(),
            "dfs.datanode.data.dir": (self.folder / "data").as_uri(),
            "dfs.namenode.http-address": f"127.0.0.1:{self._web}",
            "dfs.datanode.address": own,
            "dfs.datanode.http.address": own,
            "dfs.datanode.ipc.address": own,
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.replication": 1,
            "dfs.namenode.safemode.extension": 0,
            "dfs.namenode.redundancy.interval.seconds": 1,
            "dfs.heartbeat.interval": 1,
            "dfs.namenode.handler.count": 4,
            "dfs.datanode.du.reserved": 0,
            "dfs.namenode.fs-limits.min-block-size": 1,
        }

    def _run(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [java(), *SMALL, "-cp", self._classes, f"{SERVER}.{name}", *arguments]
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        self._processes[name] = process
        return process

    def _wait(self) -> None:
        """Until the NameNode takes writes, which is when its DataNode has reported."""
        give_up = time.monotonic() + START_SECONDS
        while self._state() != ("Operational", 1):
            ended = [name for name, process in self._processes.items() if process.poll() is not None]
            if ended or time.monotonic() > give_up:
                raise AssertionError(f"no HDFS ({', '.join(ended) or 'too slow'}): {self.said()}")
            time.sleep(0.1)

    def _state(self) -> tuple[str, int] | None:
        asked = f"http://127.0.0.1:{self._web}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(asked, timeout=10) as reply:
                (state,) = json.load(reply)["beans"]
        except (OSError, ValueError):
            return None
        return state["FSState"], state["NumLiveDataNodes"]


def _jars_of_pyspark() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "jars"


def _hadoop_version(jars: Path) -> str:
    (jar,) = jars.glob("hadoop-client-api-*.jar")
    found = re.fullmatch(r"hadoop-client-api-(.+)\.jar", jar.name)
    assert found is not None
    return found[1]


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports
