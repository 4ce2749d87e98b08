"""Start a Hive Metastore over Thrift in a folder, from PySpark's own jars: for demos, tests and benchmarks.

It is a Java process on a free port of the loopback, with a Derby database in the folder. It has no locks, so it is not
for production.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from xml.sax.saxutils import escape

from pydelta.errors import DeltaEnvironmentError

__all__ = ["EmbeddedMetastore"]

# This small server runs for a short time, so one compiler and one collector are enough.
_QUICK_START: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_CLASS: Final = "org.apache.hadoop.hive.metastore.HiveMetaStore"
_START_SECONDS: Final = 120.0


class EmbeddedMetastore:
    """A metastore that the constructor starts. Use it as a context manager, or call ``stop``.

    Args:
        folder: Folder for its database, its warehouse and its log.
        memory: Heap of the Java process, in Java's notation.
        settings: Further settings of the metastore (``hive.*``), which override the defaults.
        hadoop: Settings of Hadoop for ``core-site.xml``. Kerberos has to be set here.
        java_options: Options of the Java process, placed before its class.
        jars: A folder with more jars, such as those of a file system.

    Raises:
        DeltaEnvironmentError: PySpark or Java is missing, or the metastore did not start.
    """

    def __init__(
        self,
        folder: Path,
        *,
        memory: str = "384m",
        settings: Mapping[str, str] | None = None,
        hadoop: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
        jars: Path | None = None,
    ) -> None:
        self.port = _free_port()
        self.uri = f"thrift://127.0.0.1:{self.port}"
        self.warehouse = folder / "warehouse"
        self.warehouse.mkdir(parents=True)
        configuration = folder / "conf"
        configuration.mkdir()
        (configuration / "hive-site.xml").write_text(_xml(_settings(folder, self.warehouse) | dict(settings or {})))
        if hadoop:
            (configuration / "core-site.xml").write_text(_xml(hadoop))
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.lang", "java.net", "java.util")]
        command = [_java(), f"-Xmx{memory}", *_QUICK_START, *opened, f"-Dderby.system.home={folder}", *java_options]
        classes = f"{configuration}:{_jars()}/*" + (f":{jars}/*" if jars else "")
        command += ["-cp", classes, _CLASS, "-p", str(self.port)]
        self._said = folder / "log"
        self._log = self._said.open("wb")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT, cwd=folder)
        self._wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the process that was started here."""
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)
        self._log.close()

    def _wait(self) -> None:
        give_up = time.monotonic() + _START_SECONDS
        while True:
            with socket.socket() as link:
                if link.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            if self._process.poll() is not None or time.monotonic() > give_up:
                self.stop()
                said = self._said.read_text(errors="replace").strip().splitlines()[-3:]
                raise DeltaEnvironmentError(
                    f"The metastore of PySpark's jars did not start: {' '.join(said) or 'it said nothing'}",
                    hint="Check that Java 17 or newer is installed (JAVA_HOME) and that the folder can be written.",
                )
            time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise DeltaEnvironmentError(
            "The embedded metastore comes from PySpark's jars, and PySpark is not installed.",
            hint="pip install pyspark",
        )
    return Path(spec.origin).parent / "jars"


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None:
        raise DeltaEnvironmentError("Java was not found.", hint="Install Java 17 or newer, or set JAVA_HOME.")
    return found


def _settings(folder: Path, warehouse: Path) -> dict[str, str]:
    return {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / 'db'};create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": f"file://{warehouse}",
        "hive.async.log.enabled": "false",
        "hive.metastore.thrift.bind.host": "127.0.0.1",
    }


def _xml(settings: Mapping[str, str]) -> str:
    body = "".join(
        f"<property><name>{escape(key)}</name><value>{escape(value)}</value></property>"
        for key, value in settings.items()
    )
    return f"<configuration>{body}</configuration>"
