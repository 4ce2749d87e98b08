"""The Hive Metastore that PySpark's own jars hold: a Java process on a free port of the loopback, Derby in a folder."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path


class MetastoreServer:
    """Started by the constructor; ``stop`` ends the process that was started here, and no other."""

    def __init__(self, folder: Path) -> None:
        spec = importlib.util.find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        jars = Path(spec.origin).parent / "jars"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.warehouse = folder / "warehouse"
        self.warehouse.mkdir(parents=True)
        settings = {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / 'db'};create=true",
            "javax.jdo.option.ConnectionDriverName": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": f"file://{self.warehouse}",
            "hive.async.log.enabled": "false",
            "hive.metastore.thrift.bind.host": "127.0.0.1",
        }
        configuration = folder / "conf"
        configuration.mkdir()
        body = "".join(
            f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items()
        )
        (configuration / "hive-site.xml").write_text(f"<configuration>{body}</configuration>")
        java = (
            str(Path(os.environ["JAVA_HOME"], "bin", "java")) if os.environ.get("JAVA_HOME") else shutil.which("java")
        )
        assert java is not None
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.lang", "java.net", "java.util")]
        command = [java, "-Xmx384m", *opened, f"-Dderby.system.home={folder}", "-cp", f"{configuration}:{jars}/*"]
        command += ["org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(self.port)]
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT, cwd=folder)
        self.uri = f"thrift://127.0.0.1:{self.port}"
        give_up = time.monotonic() + 120
        while True:
            with socket.socket() as link:
                if link.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            if self._process.poll() is not None or time.monotonic() > give_up:
                self.stop()
                raise AssertionError("no metastore: " + (folder / "log").read_text(errors="replace")[-2000:])
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
