"""Read the tables by an engine with its own environment: ``python others.py READER FOLDER OUT``.

OUT gets a JSON object of writers and names, as ``spark_side.py`` makes it. ``readers.txt`` has the environment.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pyarrow as pa

from matrix.answers import SAME, outcome, said, values
from matrix.cases import CASES, Case


def _polars(place: str) -> pa.Table:
    import polars as pl

    return pl.scan_delta(place).collect().to_arrow()


def _daft(place: str) -> pa.Table:
    import daft

    return daft.read_deltalake(place).to_arrow()


@functools.cache
def _sail_server() -> Any:
    from pysail.spark import SparkConnectServer

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    return server


@functools.cache
def _sail_session() -> Any:
    from pyspark.sql import SparkSession

    _, port = _sail_server().listening_address
    session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def _sail(place: str) -> pa.Table:
    return _sail_session().read.format("delta").load(place).toArrow()


def _clickhouse(place: str) -> pa.Table:
    import chdb

    def asked(texts: int) -> pa.Table:
        settings = f"SETTINGS output_format_arrow_string_as_string = {texts}"
        answer = chdb.query(f"SELECT * FROM deltaLakeLocal('{place}') {settings}", "ArrowStream")
        return pa.ipc.open_stream(answer.bytes()).read_all()

    table = asked(1)
    try:
        table.validate(full=True)
    except pa.ArrowInvalid:  # It has one type for texts and bytes, and these bytes are not a text.
        table = asked(0)
        for at, column in enumerate(table.columns):
            if pa.types.is_binary(column.type):
                with contextlib.suppress(pa.ArrowInvalid):
                    table = table.set_column(at, table.schema[at].name, column.cast(pa.string()))
    return table


def _datafusion(place: str) -> pa.Table:
    from datafusion import SessionContext
    from deltalake import DeltaTable

    context = SessionContext()
    context.register_table("t", DeltaTable(place))
    return context.sql("SELECT * FROM t").to_arrow_table()


def _delta_rs_arrow(place: str) -> pa.Table:
    from deltalake import DeltaTable

    return DeltaTable(place).to_pyarrow_table()


def _ray(place: str) -> pa.Table:
    import ray

    tables = ray.get(ray.data.read_delta(place).to_arrow_refs())
    return pa.concat_tables(tables)


READERS: dict[str, Callable[[str], pa.Table]] = {
    "polars": _polars,
    "daft": _daft,
    "sail": _sail,
    "clickhouse": _clickhouse,
    "datafusion": _datafusion,
    "delta-rs-arrow": _delta_rs_arrow,
    "ray": _ray,
}


def _as_pairs(found: Any, wanted: Any) -> Any:
    """Write a map as its pairs: some engines hold it as a list of structs of a key and a value."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return {name: _as_pairs(value, wanted.get(name)) for name, value in found.items()}
    pairs = isinstance(found, list) and all(isinstance(item, dict) and set(item) == {"key", "value"} for item in found)
    return sorted([item["key"], item["value"]] for item in found) if pairs else found


def answer(reader: Callable[[str], pa.Table], place: str, case: Case) -> str:
    """Read a table, and compare it with what is there."""
    without = None if case.read == "*" else case.read.rpartition(" ")[2]
    try:
        found = values(reader(place))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"refused: {said(error, place)}"
    if len(case.rows) == 1:
        found = [_as_pairs(row, case.rows[0]) for row in found]
    told = outcome(found, case.rows, without=without)
    if case.name == "timestampNtz" and told.startswith("other"):
        found = [
            {name: item.removesuffix("+00:00") if isinstance(item, str) else item for name, item in row.items()}
            for row in found
        ]
        told = "same, with a time zone" if outcome(found, case.rows) == SAME else told
    return told


def main(name: str, folder: str, out: str) -> None:
    """See above."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    told: dict[str, dict[str, str]] = {}
    for writer in sorted(item for item in Path(folder).iterdir() if item.is_dir()):
        for number, case in enumerate(CASES):
            place = writer / str(number)
            if place.is_dir():
                told.setdefault(writer.name, {})[case.name] = answer(READERS[name], str(place), case)
    Path(out).write_text(json.dumps(told, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
