"""Compare statements by each door of ``pydelta serve`` with in process; what is Spark's own, and TPC-H by JDBC, with
Spark's Thrift server.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyspark

import pydelta
from benchmarks._serving import MEMORY, Server, free_port, pydelta_server, settings
from benchmarks._timing import interleave, ratios
from benchmarks._tpc import generate, queries, write_both

_DONE = re.compile(
    rb"rows? selected \(([\d.,]+) seconds\)|No rows (?:selected|affected) \(([\d.,]+) seconds\)|Error:.*"
)


class _Beeline:
    """Hive's own client over JDBC; statements go in one after the other."""

    def __init__(self, port: int) -> None:
        jars = Path(pyspark.__file__).parent / "jars" / "*"
        java = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
        command = [str(java), "-Xmx300m", "-cp", str(jars), "org.apache.hive.beeline.BeeLine", "--outputformat=csv2"]
        command += ["-u", f"jdbc:hive2://127.0.0.1:{port}", "-n", "ada", "--showHeader=false"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    def run(self, text: str) -> float:
        """Run a statement; the seconds that the client says."""
        assert self._process.stdin is not None and self._process.stderr is not None
        self._process.stdin.write(" ".join(text.split()).encode() + b";\n")
        self._process.stdin.flush()
        for line in self._process.stderr:
            if found := _DONE.search(line):
                if found.group().startswith(b"Error"):
                    raise SystemExit(f"{text}\n{line.decode()}")
                return float((found.group(1) or found.group(2)).decode().replace(",", ""))
        raise SystemExit("beeline has ended")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def run() -> dict[str, Any]:
    """All comparisons; TPC-H at the scale that ``SCALE`` says (1)."""
    scale = float(os.environ.get("SCALE", "1"))
    return {"statement": _doors(), "Spark's own statements": _others(), "tpch by JDBC": _tpch(scale)}


def _plain(folder: Path) -> Server:
    port = free_port()
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2", *settings(folder, "plain")]
    command += ["--conf", f"spark.hadoop.hive.server2.thrift.port={port}"]
    command += ["--conf", "spark.hadoop.hive.server2.thrift.bind.host=127.0.0.1", "spark-internal"]
    return Server(command, folder / "plain", port)


def _doors() -> dict[str, Any]:
    from pyhive import hive

    with tempfile.TemporaryDirectory() as name, ExitStack() as ends:
        folder = Path(name)
        spark = pydelta.session("bench-serve", conf={"spark.sql.shuffle.partitions": "4"})
        ends.callback(spark.stop)
        path = f"{folder}/t"
        spark.range(1000).write.format("delta").save(path)
        connect = free_port()
        server = pydelta_server(folder, connect)
        ends.callback(server.stop)
        remote = _remote(connect)
        ends.callback(remote.stop)  # while there is a server: it would look for one for minutes
        cursor = hive.connect("127.0.0.1", port=server.port, username="ada").cursor()

        def by_thrift(text: str) -> object:
            cursor.execute(text)
            return cursor.fetchall()

        result: dict[str, Any] = {}
        statements = {
            "SELECT 1": "SELECT 1",
            "a table of one file": f"SELECT sum(id + 1) FROM delta.`{path}`",
            "its history": f"DESCRIBE HISTORY delta.`{path}`",
        }
        for title, text in statements.items():
            doors: dict[str, Callable[[], object]] = {
                "in process": lambda text=text: spark.sql(text).collect(),
                "thrift": lambda text=text: by_thrift(text),
                "connect": lambda text=text: remote.sql(text).collect(),
            }
            medians = interleave(doors, rounds=30)
            result[title] = {
                **ratios(medians, to="in process"),
                "ms": {k: round(v * 1000) for k, v in medians.items()},
            }
        return result


def _others() -> dict[str, Any]:
    """Statements that concern no Delta table, by Thrift: our server beside Spark's."""
    from pyhive import hive

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        servers = {"plain": _plain(folder), "ours": pydelta_server(folder, free_port())}
        try:
            cursors = {
                key: hive.connect("127.0.0.1", port=server.port, username="ada").cursor()
                for key, server in servers.items()
            }

            def ask(key: str, text: str) -> object:
                cursors[key].execute(text)
                return cursors[key].fetchall() if cursors[key].description else None

            for key in cursors:
                ask(key, "CREATE TABLE other USING parquet AS SELECT id, id % 7 AS k FROM range(100000)")
            result: dict[str, Any] = {}
            for text in ("SELECT 1", "SHOW TABLES", "SELECT k, sum(id) FROM other GROUP BY k"):
                doors = {key: lambda key=key, text=text: ask(key, text) for key in cursors}
                medians = interleave(doors, rounds=40)
                result[text] = ratios(medians, to="plain") | {"ms": round(medians["ours"] * 1000)}
            return result
        finally:
            for server in servers.values():
                server.stop()


def _remote(port: int) -> Any:
    """A client of Spark Connect in this process, beside a session of its own."""
    from pyspark.sql.connect.session import SparkSession

    return SparkSession.builder.remote(f"sc://127.0.0.1:{port}/;user_id=ada").create()


def _tpch(scale: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables = generate("tpch", scale, folder / "source")
        spark = pydelta.session("bench-serve", conf={"spark.driver.memory": MEMORY})
        write_both(spark, folder / "source", tables, f"{folder}/parquet", f"{folder}/delta")
        spark.stop()
        servers = {"plain": _plain(folder), "ours": pydelta_server(folder, free_port())}
        clients = {key: _Beeline(server.port) for key, server in servers.items()}
        try:
            for table in tables:
                clients["plain"].run(f"CREATE TABLE {table} USING parquet LOCATION '{folder}/parquet/{table}'")
                clients["ours"].run(f"CREATE TABLE {table} USING delta LOCATION '{folder}/delta/{table}'")
            return _rounds(clients)
        finally:
            for client in clients.values():
                client.close()
            for server in servers.values():
                server.stop()


def _rounds(clients: dict[str, _Beeline]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    totals = dict.fromkeys(clients, 0.0)
    for number, text in queries("tpch").items():
        said: dict[str, list[float]] = {key: [] for key in clients}
        for turn in range(4):
            for key, client in clients.items():
                seconds = client.run(text)
                if turn:
                    said[key].append(seconds)
        medians = {key: sorted(values)[1] for key, values in said.items()}
        for key, value in medians.items():
            totals[key] += value
        found[f"q{number}"] = round(medians["ours"] / medians["plain"], 2)
    return {"ours : plain, all": round(totals["ours"] / totals["plain"], 3), "seconds": totals, "by query": found}
