"""One NameNode and one DataNode on free ports of the loopback: Hadoop's own, from a jar that Maven fetches."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from hadoop_servers import HadoopProcesses, asked, hadoop_classes, write_sites
from ports import free_ports

SERVER = "org.apache.hadoop.hdfs.server"
NOTHING: Mapping[str, object] = MappingProxyType({})


class HdfsCluster(HadoopProcesses):
    """Started by the constructor; ``stop`` ends the processes that were started here, and no others.

    Args:
        folder: Of its files; it is there.
        name: The host by which clients know it.
        core: More lines of core-site.xml.
        settings: More lines of hdfs-site.xml.
        java_options: More options of its two machines.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "127.0.0.1",
        core: Mapping[str, object] = NOTHING,
        settings: Mapping[str, object] = NOTHING,
        java_options: tuple[str, ...] = (),
    ) -> None:
        super().__init__(folder, hadoop_classes(folder / "jars"), java_options)
        self.port, self._web = free_ports(2)
        self.host = f"{name}:{self.port}"
        self.uri = f"hdfs://{self.host}"
        self.user = getpass.getuser()
        self.sites = {
            "core-site": {"fs.defaultFS": self.uri, "ipc.client.connect.retry.interval": 100, **core},
            "hdfs-site": {**self._settings(name), **settings},
        }
        self.conf = write_sites(folder / "conf", self.sites)
        try:
            self._run("datanode.DataNode")  # it asks until the NameNode is there
            formatting = self._run("namenode.NameNode", "-format", "-nonInteractive")
            assert formatting.wait() == 0, self.said()
            self._run("namenode.NameNode")
            self._wait()
        except BaseException:
            self.stop()
            raise

    def start_name_node(self) -> None:
        """Start it again, with what it holds, and wait for its DataNode."""
        self._run("namenode.NameNode")
        self._wait()

    def _settings(self, name: str) -> dict[str, object]:
        own = f"{name}:0"
        return {
            "dfs.namenode.name.dir": (self.folder / "name").as_uri(),
            "dfs.datanode.data.dir": (self.folder / "data").as_uri(),
            "dfs.namenode.http-address": f"127.0.0.1:{self._web}",
            "dfs.datanode.address": own,
            "dfs.datanode.http.address": own,
            "dfs.datanode.ipc.address": own,
            "dfs.datanode.hostname": name,
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.replication": 1,
            "dfs.namenode.safemode.extension": 0,
            "dfs.namenode.redundancy.interval.seconds": 1,
            "dfs.heartbeat.interval": 1,
            "dfs.namenode.handler.count": 4,
            "dfs.datanode.du.reserved": 0,
            "dfs.namenode.fs-limits.min-block-size": 1,
        }

    def _run(self, name: str, *arguments: str):
        return self.run(f"{SERVER}.{name}", *arguments, conf=self.conf, name=name)

    def _wait(self) -> None:
        """Until the NameNode takes writes, which is when its DataNode has reported."""
        self.wait_until(lambda: self._state() == ("Operational", 1), "HDFS")

    def _state(self) -> tuple[str, int] | None:
        found = asked(f"http://127.0.0.1:{self._web}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState")
        if found is None or len(found["beans"]) != 1:
            return None
        (state,) = found["beans"]
        return state["FSState"], state["NumLiveDataNodes"]
