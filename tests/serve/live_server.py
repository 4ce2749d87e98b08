"""``pydelta serve`` in a process of its own, on free ports of the loopback, and clients that speak to it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

from java_servers import java
from ports import free_ports
from pyhive import hive

ROOT = Path(__file__).resolve().parent.parent.parent
START_SECONDS = 1800.0
PROMPT = re.compile(r"^\d+: jdbc:hive2://\S+> ")
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
}


def sleeping(mark, ms=3_600_000):
    """A query of one row that says in the server's JVM that it has begun, and takes its time."""
    begun = f"java_method('java.lang.System', 'setProperty', '{mark}', 'begun')"
    sleep = f"java_method('java.lang.Thread', 'sleep', {ms}L)"
    return f"SELECT CAST(length(concat_ws('', {begun}, {sleep})) AS BIGINT) AS id"


class Failed(Exception):
    """What the Thrift server answers instead of rows."""

    def __init__(self, error):
        status = error.args[0].status if hasattr(error.args[0], "status") else None
        self.state = status.sqlState if status else None
        super().__init__(status.errorMessage if status else str(error))


def serve(*arguments, environment=None):
    """Run the command to its end, where it is not expected to serve."""
    command = [sys.executable, "-m", "pydelta.api.cli.cli", "serve", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, **(environment or {})}
    )


class LiveServer:
    """Started by the constructor; ``stop`` and ``kill`` end the processes that were started here, and no other."""

    def __init__(self, folder, *options, cores=2, environment=None, settings=None, pages=False):
        folder.mkdir(parents=True, exist_ok=True)
        self.warehouse = folder / "warehouse"
        self.thrift, self.connect, port = free_ports(3)
        self.pages = f"http://127.0.0.1:{port}"
        if pages:
            settings = {**(settings or {}), "spark.ui.enabled": "true", "spark.ui.port": str(port)}
        self._said = folder / "said.txt"
        command = [
            sys.executable,
            "-m",
            "pydelta.api.cli.cli",
            "serve",
            "--thrift",
            self.thrift,
            "--connect",
            self.connect,
        ]
        command += ["--master", f"local[{cores}]", "--warehouse", self.warehouse, *options]
        for name, value in {**SETTINGS, **(settings or {})}.items():
            command += ["--conf", f"{name}={value}"]
        with self._said.open("ab") as said:
            self.process = subprocess.Popen(
                list(map(str, command)),
                stdout=said,
                stderr=said,
                cwd=ROOT,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        give_up = time.monotonic() + START_SECONDS
        while f"sc://127.0.0.1:{self.connect}" not in self.said():
            if self.process.poll() is not None or time.monotonic() > give_up:
                self.kill()
                raise AssertionError(f"no server: {self.said()}")
            time.sleep(0.1)

    def said(self):
        return self._said.read_text(errors="replace")

    def client(self, user="ada", **settings):
        return Client(self, user, settings)

    def remote(self, body, user="bob", url=None, environment=None):
        """Run a body in a process of its own, with ``spark`` a remote session; what it gives to ``tell`` comes back."""
        url = url or f"sc://127.0.0.1:{self.connect}/;user_id={user}"
        script = textwrap.dedent(
            f"""
            import json, sys
            from pyspark.sql import SparkSession
            spark = SparkSession.builder.remote("{url}").getOrCreate()
            def tell(value):
                print("told " + json.dumps(value), flush=True)
            """
        ) + textwrap.dedent(body)
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:  # PySpark 4.2 takes ``python -c`` for a doctest
            file.write(script)
            file.flush()
            done = subprocess.run(
                [sys.executable, file.name],
                capture_output=True,
                text=True,
                check=False,
                cwd=ROOT,
                env={**os.environ, **(environment or {})},
            )
        assert done.returncode == 0, done.stderr[-3000:]
        return [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("told ")]

    def beeline(self, *statements, login=("-n", "carl"), host="127.0.0.1", url="", java_options=(), environment=None):
        """Run statements by Hive's own client over JDBC; lines of standard output and of standard error."""
        import pyspark

        jars = Path(pyspark.__file__).parent / "jars" / "*"
        command = [java(), "-Xmx200m", "-XX:TieredStopAtLevel=1", *java_options, "-cp", str(jars)]
        command += ["org.apache.hive.beeline.BeeLine", "-u", f"jdbc:hive2://{host}:{self.thrift}/{url}", *login]
        command += ["--outputformat=csv2", "--silent=true"]
        for statement in statements:
            command += ["-e", statement]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.warehouse,
            env={**os.environ, **(environment or {})},
        )
        return [PROMPT.sub("", line) for line in done.stdout.splitlines()], done.stderr

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self):
        """Until it has ended; its exit code."""
        return self.process.wait(START_SECONDS)

    def kill(self):
        """End Python and the JVM at once, without a word to anybody."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(START_SECONDS)

    def stop(self):
        if self.process.poll() is None:
            self.terminate()
            try:
                self.wait()
            finally:
                self.kill()


class Client:
    """A connection of PyHive."""

    def __init__(self, server, user, settings):
        self.connection = hive.connect("127.0.0.1", port=server.thrift, username=user, configuration=settings)

    def start(self, text):
        """Begin a statement and do not wait for it."""
        cursor = self.connection.cursor()
        cursor.execute(text, async_=True)
        return cursor

    def run(self, text):
        cursor = self.connection.cursor()
        try:
            cursor.execute(text)
            rows = cursor.fetchall() if cursor.description else []
        except hive.OperationalError as error:
            raise Failed(error) from None
        except hive.ProgrammingError:
            rows = []
        self.columns = [item[0] for item in cursor.description or ()]
        return rows

    def await_begin(self, mark):
        """Wait until a query of ``sleeping`` has begun."""
        while self.run(f"SELECT java_method('java.lang.System', 'getProperty', '{mark}')") != [("begun",)]:
            time.sleep(0.2)

    def close(self):
        self.connection.close()
