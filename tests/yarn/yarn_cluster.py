"""A ResourceManager and two NodeManagers on free ports of the loopback: Hadoop's own, beside an HDFS."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hadoop_servers import HadoopProcesses, asked, write_sites
from hdfs_cluster import NOTHING, HdfsCluster
from ports import free_ports

SERVER = "org.apache.hadoop.yarn.server"
NODES = ("node1", "node2")
NODE_MB = 1792
"""Two containers of a driver or an executor with 512 MB: what Spark adds to them is 384."""
LOST_MS = 30_000
"""A node that is silent for this long is lost: YARN's own default is ten minutes."""


class YarnCluster(HadoopProcesses):
    """Started by the constructor; ``stop`` ends the processes that were started here, and no others.

    Args:
        folder: Of its files; it is there.
        hdfs: Where applications have their files.
        name: The host by which clients know it.
        settings: More lines of yarn-site.xml.
        java_options: More options of its machines.
    """

    def __init__(
        self,
        folder: Path,
        hdfs: HdfsCluster,
        *,
        name: str = "127.0.0.1",
        settings: Mapping[str, object] = NOTHING,
        java_options: tuple[str, ...] = (),
    ) -> None:
        super().__init__(folder, hdfs.classes, java_options)
        self._name = name
        *ports, web = free_ports(5)
        self._ports = {node: free_ports(2) for node in NODES}
        self._web = f"127.0.0.1:{web}"
        own = {**self._settings(name, ports), "yarn.resourcemanager.webapp.address": self._web, **settings}
        self._sites = {**hdfs.sites, "capacity-scheduler": _queue(), "yarn-site": own}
        self.conf = write_sites(folder / "conf", self._sites)
        try:
            self.run(f"{SERVER}.resourcemanager.ResourceManager", conf=self.conf)
            for node in NODES:
                self._start_node(node)
            self.wait_for_nodes(len(NODES))
        except BaseException:
            self.stop()
            raise

    def wait_for_nodes(self, count: int) -> None:
        """Wait until this many nodes report."""
        self.wait_until(lambda: len(self.nodes()) == count, "YARN")

    def nodes(self) -> dict[str, str]:
        """The nodes that report, by the addresses of their pages, and their states."""
        found = asked(f"http://{self._web}/ws/v1/cluster/nodes?states=RUNNING")
        listed = ((found or {}).get("nodes") or {}).get("node", [])
        return {node["nodeHTTPAddress"]: node["state"] for node in listed}

    def application(self, said: str) -> dict[str, Any]:
        """What the ResourceManager knows of the application whose submission wrote this."""
        name = re.search(r"Submitted application (application_\d+_\d+)", said)
        assert name is not None, said[-6000:]
        found = asked(f"http://{self._web}/ws/v1/cluster/apps/{name[1]}")
        return dict(found["app"])

    def container_logs(self, application: str) -> str:
        """What the containers of an application wrote, on all nodes."""
        found = sorted(self.folder.glob(f"*/logs/{application}/*/*"))
        return "\n".join(f"--- {file.parent.name}/{file.name}\n{file.read_text(errors='replace')}" for file in found)

    def node_to_lose(self, gate: Path, process: subprocess.Popen[bytes]) -> str:
        """Wait until two tasks stand at the gate on the node that has not the driver; returns the node's name.

        Args:
            gate: The folder in which each task notes its folder.
            process: That of the submission, which must not end before.
        """
        while process.poll() is None:
            notes = [file.read_text() for file in gate.iterdir()]
            for node in NODES:
                here = [note for note in notes if note.startswith(str(self.folder / node))]
                applications = {re.search(r"application_\d+_\d+", note)[0] for note in here}
                drivers = [found for name in applications for found in self._drivers(node, name)]
                if len(here) == 2 and not drivers:
                    return node
            time.sleep(0.1)
        raise AssertionError(f"the application ended before its tasks stood at the gate: {self.said()}")

    def _drivers(self, node: str, application: str) -> list[Path]:
        return list((self.folder / node / "logs" / application).glob("container_*_000001"))

    def lose(self, node: str, *, containers: bool) -> None:
        """Kill a NodeManager, and what it started too unless that is to go on, as behind a cut cable."""
        process = self.processes.pop(node)
        process.kill()
        process.wait(20)
        if containers:
            self._kill_containers(node)

    def bring_back(self, node: str) -> None:
        """Start a node again that was lost, at the same address, and wait until it reports."""
        self._kill_containers(node)
        self._start_node(node)
        page = f"http://{self._name}:{self._ports[node][1]}/ws/v1/node/info"
        self.wait_until(lambda: asked(page) is not None and len(self.nodes()) == len(NODES), "YARN")

    def stop(self) -> None:
        """End all; a NodeManager ends its containers, and those of a lost one are killed."""
        super().stop()
        for node in NODES:
            self._kill_containers(node)

    def _start_node(self, node: str) -> None:
        port, web = self._ports[node]
        settings = {
            **self._sites["yarn-site"],
            "yarn.nodemanager.address": f"{self._name}:{port}",
            "yarn.nodemanager.localizer.address": f"{self._name}:0",
            "yarn.nodemanager.webapp.address": f"{self._name}:{web}",
            "yarn.nodemanager.local-dirs": self.folder / node / "local",
            "yarn.nodemanager.log-dirs": self.folder / node / "logs",
        }
        conf = write_sites(self.folder / node / "conf", {**self._sites, "yarn-site": settings})
        self.run(f"{SERVER}.nodemanager.NodeManager", conf=conf, name=node)

    def _kill_containers(self, node: str) -> None:
        """Kill the process groups of containers that still run on a node whose manager has ended."""
        for file in (self.folder / node / "local/nmPrivate").glob("*/*/*.pid"):
            leader = int(file.read_text())
            if str(self.folder / node) in _command_line(leader):
                os.killpg(leader, signal.SIGKILL)

    @staticmethod
    def _settings(name: str, ports: list[int]) -> dict[str, object]:
        names = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
        return {
            "yarn.resourcemanager.hostname": name,
            **{f"yarn.resourcemanager.{key}": f"{name}:{port}" for key, port in zip(names, ports, strict=True)},
            "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": 200,
            "yarn.nm.liveness-monitor.expiry-interval-ms": LOST_MS,
            "yarn.resourcemanager.nm.liveness-monitor.interval-ms": 1000,
            "yarn.scheduler.minimum-allocation-mb": 128,
            "yarn.nodemanager.resource.memory-mb": NODE_MB,
            "yarn.nodemanager.resource.cpu-vcores": 4,
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.enable": "false",
            # A node checks its folders when it starts, and by default refuses a disk that is nine tenths full.
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 100,
        }


def _queue() -> dict[str, object]:
    begin = "yarn.scheduler.capacity"
    return {
        f"{begin}.root.queues": "default",
        f"{begin}.root.default.capacity": 100,
        f"{begin}.maximum-am-resource-percent": 1.0,
        f"{begin}.node-locality-delay": 0,
    }


def _command_line(process: int) -> str:
    """The command line of a process; empty where there is none any more."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text(errors="replace")
    except FileNotFoundError:
        return ""
