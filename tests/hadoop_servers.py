"""Hadoop's servers on the loopback: their jars, and processes that belong to one folder.

``hadoop-client-minicluster`` holds the servers of HDFS and of YARN; what it needs beside it are the Hadoop jars that
PySpark brings.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from java_servers import fetch, java, site_xml

START_SECONDS = 600.0
OPENED = tuple(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "util", "nio", "net"))
FURTHER = tuple(f"org.bouncycastle:{name}-jdk18on:1.82" for name in ("bcprov", "bcpkix", "bcutil"))
"""What a ResourceManager makes its certificates with."""
SMALL = ("-Xmx160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *OPENED)


def hadoop_classes(folder: Path) -> str:
    """The class path of Hadoop's servers, whose jars are fetched into a folder."""
    bundled = jars_of_pyspark()
    fetch(folder, f"org.apache.hadoop:hadoop-client-minicluster:{hadoop_version(bundled)}", *FURTHER)
    return f"{folder}/*:{bundled}/*"


class HadoopProcesses:
    """Processes that one folder holds the logs of; ``stop`` ends those that were started here, and no others."""

    def __init__(self, folder: Path, classes: str, java_options: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.classes = classes
        self._options = (*SMALL, *java_options)

    def run(self, main: str, *arguments: str, conf: Path, name: str | None = None) -> subprocess.Popen[bytes]:
        """Start a class.

        Args:
            main: The class.
            arguments: Of its main method.
            conf: The folder of its configuration files.
            name: What ``end`` and the log's file call it; the class otherwise, without its package.
        """
        name = name or main.rpartition(".")[2]
        command = [*self.machine(conf), main, *arguments]
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, env=_environment())
        self.processes[name] = process
        return process

    def machine(self, conf: Path) -> list[str]:
        """Begin a command that runs a class, with the configuration files of a folder."""
        return [java(), *self._options, "-cp", f"{conf}:{self.classes}"]

    def wait_until(self, ready: Callable[[], bool], what: str) -> None:
        """Wait for the processes to be ready; fails with their last lines when one ends or none is in time."""
        give_up = time.monotonic() + START_SECONDS
        while not ready():
            ended = [name for name, process in self.processes.items() if process.poll() is not None]
            if ended or time.monotonic() > give_up:
                raise AssertionError(f"no {what} ({', '.join(ended) or 'too slow'}): {self.said()}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End all."""
        for name in list(self.processes):
            self.end(name)

    def end(self, name: str) -> None:
        """End one of them."""
        process = self.processes.pop(name)
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)

    def said(self) -> str:
        """The last lines of what the processes wrote."""
        lines = [
            line for log in sorted(self.folder.glob("*.log")) for line in log.read_text(errors="replace").split("\n")
        ]
        return "\n".join(lines[-30:])


def write_sites(conf: Path, sites: Mapping[str, Mapping[str, object]]) -> Path:
    """Write configuration files, by their names without the ending, into a folder that is made."""
    conf.mkdir(parents=True, exist_ok=True)
    for name, settings in sites.items():
        (conf / f"{name}.xml").write_text(site_xml(settings))
    return conf


def asked(url: str) -> Any:
    """What a server answers as JSON, past any proxy; None where it does not answer."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=10) as reply:
            return json.load(reply)
    except (OSError, ValueError):
        return None


def jars_of_pyspark() -> Path:
    """The folder of the jars that PySpark brings."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "jars"


def hadoop_version(jars: Path) -> str:
    (jar,) = jars.glob("hadoop-client-api-*.jar")
    found = re.fullmatch(r"hadoop-client-api-(.+)\.jar", jar.name)
    assert found is not None
    return found[1]


def _environment() -> dict[str, str]:
    """A server's environment: that of a machine whose Python has no packages, with the place of this Java."""
    left_out = ("PYTHON", "PYSPARK_", "VIRTUAL_ENV", "SPARK_", "HADOOP_", "KRB5")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return environment | {"JAVA_HOME": str(Path(_real_java()).parents[1])}


def _real_java() -> str:
    return os.path.realpath(java())
