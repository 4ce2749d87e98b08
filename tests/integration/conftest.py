"""After each test: every table that it wrote is read by delta-rs too, and the rows are the same."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from pydelta.errors import DeltaError
from pydelta.log import DeltaLog

# What delta-rs itself says of tables that it does not read. Anything else it says fails the test.
_BEYOND_DELTA_RS = (
    "variant",
    "Unsupported reader features",
    "Unsupported table features required",
    "void",
    "Unsupported Delta table type",
    "is not supported",
    "to type Map(",  # it does not fill in a field that a struct inside a map got later
)
_ROWS_COMPARED = 20_000


@pytest.fixture(autouse=True)
def delta_rs_reads_every_table(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compare, unless the test is marked ``damages_tables`` (it breaks them, or writes what only we can read)."""
    if (
        not {"spark", "tmp_path"} <= set(request.fixturenames)
        or request.node.get_closest_marker("damages_tables") is not None
    ):
        yield
        return
    # Asked for before the test, so that they outlive it until the comparison.
    spark, root = request.getfixturevalue("spark"), request.getfixturevalue("tmp_path")
    began = time.time_ns()
    yield
    for log_folder in sorted(root.rglob("_delta_log")):
        commits = list(log_folder.glob("*.json"))
        if any(commit.stat().st_mtime_ns >= began for commit in commits):  # a copy that was only read is another's
            _compare(spark, log_folder.parent)


def _compare(spark, path: Path) -> None:
    DeltaLog.clear_cache()
    try:
        snapshot = DeltaLog.for_table(str(path)).snapshot()
    except DeltaError as error:
        pytest.fail(f"the test left a table that we cannot read, {path}: {error}")
    try:
        theirs = deltalake.DeltaTable(str(_where_delta_rs_finds_it(path)))
        listed = sorted(theirs.get_add_actions().column("path").to_pylist()) if snapshot.num_files else []
        counted = _query(theirs, "select count(*) as n from t")[0]["n"]
        rows = _query(theirs, "select * from t") if counted <= _ROWS_COMPARED else None
    except Exception as error:
        if any(text in str(error) for text in _BEYOND_DELTA_RS):
            return
        raise AssertionError(f"delta-rs cannot read {path}: {error}") from error
    assert theirs.version() == snapshot.version
    assert len(listed) == snapshot.num_files
    ours = spark.read.format("delta").load(str(path))
    if rows is None:
        assert ours.count() == counted
    else:
        assert sorted(map(_text, _our_rows(ours))) == sorted(map(_text, rows))


def _our_rows(frame) -> list[dict]:
    try:
        return frame.toArrow().to_pylist()
    except pa.ArrowInvalid:  # PySpark cannot hand over a null struct whose fields are required
        return [row.asDict(recursive=True) for row in frame.collect()]


def _where_delta_rs_finds_it(path: Path) -> Path:
    """It decodes a percent sign in the location of a table once too often: such a table is shown to it elsewhere."""
    if "%" not in str(path):
        return path
    return shutil.copytree(path, path.parent / f"copy-{path.name.replace('%', 'percent')}", dirs_exist_ok=True)


def _query(table: deltalake.DeltaTable, sql: str) -> list[dict]:
    rows = deltalake.QueryBuilder().register("t", table).execute(sql).read_all()
    columns = {name: rows.column(name).to_pylist() for name in rows.schema.names}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _text(row: dict) -> str:
    """A row as text that does not depend on the order of columns or on the name of UTC."""
    return repr(sorted((name, _plain(value)) for name, value in row.items()))


def _plain(value):
    if isinstance(value, dict):
        return sorted((name, _plain(item)) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "isoformat"):
        return value.isoformat().replace("Z", "+00:00")
    return value
