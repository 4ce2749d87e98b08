"""Start servers on free ports of the loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["MEMORY", "Server", "free_port", "pydelta_server", "settings"]

MEMORY = "3g"
STARTED_SECONDS = 300.0


class Server:
    """A server's process; ``stop`` ends it and its JVM.

    Args:
        command: Of it.
        folder: Is made; holds what it says.
        port: Of Thrift.
        connect: Of Spark Connect, if it has that door.
    """

    def __init__(self, command: list[str], folder: Path, port: int, connect: int | None = None) -> None:
        folder.mkdir()
        self._ports = [port] if connect is None else [port, connect]
        self.port, self._said = port, folder / "said.txt"
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(command, stdout=said, stderr=said, cwd=folder, start_new_session=True)
        give_up = time.monotonic() + STARTED_SECONDS
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > give_up:
                self.stop()
                raise SystemExit(f"no server: {self._said.read_text(errors='replace')[-3000:]}")
            time.sleep(0.2)

    @property
    def pid(self) -> int:
        """Its process group, too."""
        return self._process.pid

    def _listens(self) -> bool:
        for port in self._ports:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) != 0:
                    return False
        return True

    def stop(self) -> None:
        """End it."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def settings(folder: Path, name: str) -> list[str]:
    """Arguments that give a server a warehouse and a metastore of its own in a folder."""
    metastore = f"jdbc:derby:;databaseName={folder}/{name}-metastore;create=true"
    given = {
        "spark.driver.memory": MEMORY,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"{folder}/{name}-warehouse",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.javax.jdo.option.ConnectionURL": metastore,
    }
    return [part for key, value in given.items() for part in ("--conf", f"{key}={value}")]


def pydelta_server(folder: Path, connect: int) -> Server:
    """``pydelta serve`` with both doors.

    Args:
        folder: For what it keeps.
        connect: Port of Spark Connect.
    """
    port = free_port()
    command = [sys.executable, "-m", "pydelta.api.cli.cli", "serve", "--thrift", str(port), "--connect", str(connect)]
    return Server([*command, "--master", "local[2]", *settings(folder, "ours")], folder / "ours", port, connect)
