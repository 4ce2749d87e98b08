"""Run programs on one engine: ``python run.py ENGINE FOLDER OUT NAMES``; NAMES is a file with one name a line.

ENGINE is ``reference`` or ``ours``, or a door of ``pydelta serve``: ``connect``, ``thrift``. OUT gets one line of JSON a program, as soon as it is done.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from corpus.generated import program as generated
from reference_session import reference_session

from differ.doors import Server, ThriftSession
from differ.outcomes import frame_outcome, of_error, of_value, table_state
from differ.programs import Place, Program, all_programs

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "America/Los_Angeles",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "1",
    "spark.driver.memory": "2g",
    "spark.buffer.pageSize": "1m",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.ui.showConsoleProgress": "false",
}
JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=400m -XX:-UseCodeCacheFlushing -XX:+UseSerialGC"


@contextmanager
def opened(engine: str, folder: Path) -> Iterator[tuple[Any, Any]]:
    """A session, with what stands for ``delta.tables``."""
    if engine not in ("connect", "thrift"):
        yield session(engine, folder)
        return
    import pydelta.tables as tables

    derby = {"spark.driver.extraJavaOptions": f"{JAVA} -Dderby.system.home={folder / 'derby'}"}
    server = Server(folder, SETTINGS | derby)
    try:
        remote = server.remote()
        yield (remote if engine == "connect" else ThriftSession(server.thrift, remote)), tables
        remote.stop()  # a client whose server is gone tries again for minutes
    finally:
        server.stop()


def session(engine: str, folder: Path) -> tuple[Any, Any]:
    """An enabled session, with what stands for ``delta.tables``."""
    own = {
        **SETTINGS,
        "spark.app.name": f"programs on {engine}",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": f"{JAVA} -Dderby.system.home={folder / 'derby'}",
    }
    if engine == "reference":
        spark = reference_session(own, cores=1)
        jars = str(spark.conf.get("spark.repl.local.jars", "")).split(",")
        sys.path.extend(jar.removeprefix("file://") for jar in jars if "delta" in jar)
        import delta.tables as tables
    else:
        from pyspark.sql import SparkSession

        import pydelta
        import pydelta.tables as tables

        builder = SparkSession.builder.master("local[1]")
        for key, value in own.items():
            builder = builder.config(key, value)
        spark = pydelta.enable(builder.getOrCreate())
    spark.sparkContext.setLogLevel("OFF")
    return spark, tables


def run_program(program: Program, number: int, folder: Path, spark: Any, tables: Any) -> dict[str, Any]:
    """All outcomes of one program."""
    own = folder / f"p{number}"
    own.mkdir()
    place = Place(spark, f"db{number}.t", str(own / "table"), str(own), tables)
    before = {key: spark.conf.get(key, None) for key, _ in program.settings}
    spark.sql(f"CREATE DATABASE db{number} LOCATION '{own / 'db'}'")
    outcomes: list[Any] = []
    try:
        for key, value in program.settings:
            spark.conf.set(key, value)
        for statement in program.statements:
            try:
                outcomes.append(_outcome(place.sql(statement.text), statement.sees))
            except Exception as error:
                outcomes.append(of_error(error))
        if program.function is not None:
            try:
                last = of_value(program.function(place))
            except Exception as error:
                last = of_error(error)
            outcomes += [*map(_told, place.told), last]
        ends = {
            name: _state(spark, name, program)
            for name, there in (
                (place.t, spark.catalog.tableExists(place.t)),
                (f"delta.`{place.p}`", Path(place.p, "_delta_log").is_dir()),
            )
            if there
        }
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)
        spark.sql(f"DROP DATABASE db{number} CASCADE")
    text = json.dumps({"name": program.name, "outcomes": outcomes, "ends": ends})
    text = text.replace(f"db{number}", "db").replace(str(own), "FOLDER")
    shutil.rmtree(own, ignore_errors=True)
    found: dict[str, Any] = json.loads(text)
    return found


def _outcome(result: Any, sees: str) -> Any:
    if not isinstance(result, dict):
        return frame_outcome(result, sees)
    return result if "error" in result or sees in ("rows", "ordered") else {"done": True}


def _told(value: Any) -> Any:
    try:
        return of_value(value)
    except Exception as error:
        return of_error(error)


def _state(spark: Any, name: str, program: Program) -> Any:
    try:
        return table_state(getattr(spark, "states", spark), name, history=program.history)
    except Exception as error:
        return of_error(error)


def main(engine: str, folder: str, out: str, names: str) -> None:
    """See above."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that who is cut off ends the server, too
    known = {program.name: program for program in all_programs()}
    wanted = Path(names).read_text().split("\n")
    programs = [known[name] if name in known else generated(name) for name in wanted]
    with opened(engine, Path(folder)) as (spark, tables), Path(out).open("w") as target:
        for number, program in enumerate(programs):
            began = time.monotonic()
            found = run_program(program, number, Path(folder), spark, tables)
            found["seconds"] = round(time.monotonic() - began, 2)
            target.write(json.dumps(found) + "\n")
            target.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
