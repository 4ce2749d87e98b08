"""One broker of Kafka on free ports of the loopback, which is its own controller: from jars that Maven fetches."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

from java_servers import fetch, java
from ports import free_ports

KAFKA = "org.apache.kafka:kafka_2.13:4.1.0"
LOGGING = "org.slf4j:slf4j-simple:1.7.36"
CLUSTER = "4L6g3nShT-eMCtK--X86sw"
START_SECONDS = 90.0
SMALL = ("-Xmx200m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


class KafkaBroker:
    """Started by the constructor; ``stop`` ends the process that was started here, and no other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        fetch(folder / "jars", KAFKA, LOGGING, dependencies=True)
        port, controller = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self._port = port
        self._settings = folder / "server.properties"
        self._settings.write_text("\n".join(f"{name}={value}" for name, value in self._options(controller).items()))
        made = self._run("kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER, "-c", str(self._settings))
        if made.wait(60):
            raise AssertionError(f"no storage for Kafka: {self.said()}")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, with what it holds, and wait until it takes connections."""
        self._process = self._run("kafka.Kafka", str(self._settings))
        give_up = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > give_up:
                self.stop()
                raise AssertionError(f"no Kafka: {self.said()}")
            time.sleep(0.1)

    def kill(self) -> None:
        """End it without a word to anybody."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(20)
        self._process = None

    def stop(self) -> None:
        """End it. What it holds is of no use afterwards."""
        if self._process is not None:
            self.kill()

    def said(self) -> str:
        """The last lines of what the processes wrote."""
        return "\n".join((self.folder / "kafka.log").read_text(errors="replace").split("\n")[-30:])

    def _options(self, controller: int) -> dict[str, object]:
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.folder / "data",
            "auto.create.topics.enable": "false",
            "log.cleaner.enable": "false",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.min.isr": 1,
            "num.network.threads": 2,
            "num.io.threads": 2,
        }

    def _run(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [java(), *SMALL, "-cp", f"{self.folder / 'jars'}/*", name, *arguments]
        with (self.folder / "kafka.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1):
                return True
        except OSError:
            return False
