"""Coordinates and settings in, jars and Hadoop's configuration files out: what servers that tests start share."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"


class NotToBeHad(Exception):
    """The jars cannot be fetched here; says why."""


def fetch(artifact: str, target: Path) -> None:
    """Copy one artifact, by its Maven coordinates, into a folder; it stays in Maven's own cache."""
    maven = shutil.which("mvn")
    if maven is None:
        raise NotToBeHad(f"there is no mvn to fetch {artifact} with")
    command = [maven, "-q", "-B", f"{PLUGIN}:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={target}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    if done.returncode:
        said = next((line for line in done.stdout.splitlines() if "ERROR" in line), "it said nothing")
        raise NotToBeHad(f"Maven does not give {artifact}: {said[:300]}")


def java() -> str:
    """The program: that of ``JAVA_HOME``, else the first one in the path."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"


def site_xml(settings: Mapping[str, object]) -> str:
    """A configuration file."""
    body = "".join(f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items())
    return f"<configuration>{body}</configuration>"
