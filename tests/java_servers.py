"""Coordinates and settings in, jars and Hadoop's configuration files out: what servers that tests start share."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

PLUGIN = ("org.apache.maven.plugins", "maven-dependency-plugin", "3.8.1")
PROJECT = """<project>
  <modelVersion>4.0.0</modelVersion><groupId>tests</groupId><artifactId>jars</artifactId><version>1</version>
  <packaging>pom</packaging>
  <build><plugins><plugin>
    <groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>
    <configuration><outputDirectory>{target}</outputDirectory><artifactItems>{items}</artifactItems></configuration>
  </plugin></plugins></build>
</project>
"""


DEPENDING = """<project>
  <modelVersion>4.0.0</modelVersion><groupId>tests</groupId><artifactId>jars</artifactId><version>1</version>
  <packaging>pom</packaging><dependencies>{items}</dependencies>
</project>
"""


class NotToBeHad(Exception):
    """The jars cannot be fetched here; says why."""


def _element(name: str, artifact: str) -> str:
    parts = zip(("groupId", "artifactId", "version", "type", "classifier"), artifact.split(":"), strict=False)
    return f"<{name}>{''.join(f'<{part}>{value}</{part}>' for part, value in parts)}</{name}>"


def fetch(target: Path, *artifacts: str, dependencies: bool = False) -> None:
    """Copy artifacts, by their Maven coordinates, into a folder, in one run.

    They stay in Maven's own cache, but not with their dependencies: Maven would keep descriptions of some whose jar it
    did not need, on which Spark's ``spark.jars.packages`` fails, since it looks into that cache.

    Args:
        target: Is made where it is not there.
        artifacts: ``group:artifact:version[:type[:classifier]]``.
        dependencies: With what they need when they run.
    """
    maven = shutil.which("mvn")
    if maven is None:
        raise NotToBeHad(f"there is no mvn to fetch {artifacts[0]} with")
    target.mkdir(parents=True, exist_ok=True)
    project = target / "pom.xml"
    if dependencies:
        items = "".join(_element("dependency", artifact) for artifact in artifacts)
        project.write_text(DEPENDING.format(items=items))
        command = [maven, "-q", "-B", "-f", str(project), f"{':'.join(PLUGIN)}:copy-dependencies"]
        command += [f"-DoutputDirectory={target}", "-DincludeScope=runtime"]
    else:
        items = "".join(_element("artifactItem", artifact) for artifact in artifacts)
        project.write_text(PROJECT.format(*PLUGIN, target=target, items=items))
        command = [maven, "-q", "-B", "-f", str(project), f"{':'.join(PLUGIN)}:copy"]
    with tempfile.TemporaryDirectory(dir=target) as cache:
        command += [f"-Dmaven.repo.local={cache}"] if dependencies else []
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    project.unlink()
    if done.returncode:
        said = next((line for line in done.stdout.splitlines() if "ERROR" in line), "it said nothing")
        raise NotToBeHad(f"Maven does not give {', '.join(artifacts)}: {said[:300]}")


def java() -> str:
    """The program: that of ``JAVA_HOME``, else the first one in the path."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"


def site_xml(settings: Mapping[str, object]) -> str:
    """A configuration file."""
    body = "".join(f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items())
    return f"<configuration>{body}</configuration>"
