"""The same conditions and commands by Spark and in this process: the same rows, feeds, ids and counts.

More cases, and others each time: ``PYDELTA_ARROW_EXAMPLES=50``.
"""

from __future__ import annotations

import itertools
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from both_ways import ANSI, LIMIT, SHAPES, ZONE, make, session, twice
from generated_changes import ZONES, conditions, tables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pydelta.engines.arrow.changes import FilePlace, find_rows
from pydelta.engines.arrow.expressions import NotHere
from pydelta.engines.spark.engine import SparkEngine
from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.protocol.paths import decode_log_path
from pydelta.storage import open_store
from pydelta.tables import DeltaTable

__all__ = ["session"]

pytestmark = pytest.mark.spark

EXAMPLES = int(os.environ.get("PYDELTA_ARROW_EXAMPLES", "0"))
few = settings(
    max_examples=EXAMPLES or 2,
    derandomize=not EXAMPLES,
    suppress_health_check=list(HealthCheck),
)
_NAMES = itertools.count()


@pytest.mark.damages_tables  # years that the other engine's Python cannot hold
@given(
    data=st.data(),
    texts=st.lists(conditions(), min_size=40, max_size=40, unique=True),
    zone=st.sampled_from(ZONES),
    ansi=st.booleans(),
    local_times=st.booleans(),
)
@few
def test_every_condition_finds_the_rows_that_spark_finds(session, tmp_path, data, texts, zone, ansi, local_times):
    """``local_times``: a column without a zone makes the writer store times as INT64, not as INT96."""
    path = str(tmp_path / f"t{next(_NAMES)}")
    rows = data.draw(tables())
    make(session, path, rows if local_times else rows.drop_columns("n"), partition_by=["p"])
    if not local_times:
        texts = [text for text in texts if not _reads(text, "n")]
    session.conf.set(ZONE, zone)
    session.conf.set(ANSI, str(ansi).lower())
    log = DeltaLog.for_table(path)
    snapshot, engine = log.update(), SparkEngine(session)
    files = snapshot.files.core
    place = FilePlace(store=open_store(path))
    taken = {}
    for text in texts:
        try:
            bound = engine.bind_condition(snapshot, text)
            found = find_rows(snapshot, files, bound.native.tree.exact(snapshot.schema), place)
        except (NotHere, DeltaError):
            continue
        taken[text] = {(number, int(at)) for number, rows in found.items() for at in rows.positions()}
    assert len(taken) > len(texts) // 3, "most conditions are computed here"
    ids = {}
    for number, add in enumerate(snapshot.files.adds(files)):
        column = pq.read_table(os.path.join(path, decode_log_path(add.path).text), columns=["id"], partitioning=None)
        ids |= {(number, at): value for at, value in enumerate(column.column("id").to_pylist())}
    frame = session.read.format("delta").load(path)
    answers = frame.selectExpr("id", *[f"coalesce({text}, false) AS c{n}" for n, text in enumerate(taken)]).collect()
    for number, (text, places) in enumerate(taken.items()):
        expected = sorted(row["id"] for row in answers if row[f"c{number}"])
        assert sorted(ids[place] for place in places) == expected, text


def _reads(text, column):
    padded = "".join(char if char.isalnum() else " " for char in text)
    return column in padded.split() or "localtimestamp" in text or "NTZ" in text


@pytest.mark.damages_tables
@given(
    data=st.data(),
    texts=st.lists(conditions(), min_size=3, max_size=3),
    shape=st.sampled_from(list(SHAPES)),
    zone=st.sampled_from(ZONES),
    ansi=st.booleans(),
)
@few
def test_deletes_one_after_the_other_leave_the_same(session, tmp_path, data, texts, shape, zone, ansi):
    path = str(tmp_path / f"t{next(_NAMES)}")
    properties, partition_by = SHAPES[shape]
    make(session, path, data.draw(tables(rows=16)), partition_by=partition_by, **properties)
    session.conf.set(ZONE, zone)
    session.conf.set(ANSI, str(ansi).lower())

    def run(copy):
        table = DeltaTable.forPath(session, copy)
        results = [table.delete(text) for text in texts]
        return [(result.version, result.num_deleted_rows) for result in results]

    twice(session, path, run, shape)


ASSIGNMENTS = [
    {"d": "d + 1"}, {"d": "NULL"}, {"i": "7"}, {"l": "i"}, {"s": "concat(s, '-é')"}, {"s": "p"}, {"m": "1.5"},
    {"d": "CASE WHEN d > 0 THEN d ELSE -d END", "ok": "NOT ok"}, {"t": "TIMESTAMP'1850-01-01 00:00:00Z'"},
    {"f": "-f"}, {"day": "NULL"},
    {"l": "l + 1"}, {"y": "y * 2"}, {"i": "coalesce(i, -1)"}, {"b": "X'FF00'"}, {"w": "CAST(1 AS DECIMAL(38,0))"},
    {"s": "upper(s)"}, {"st": "NULL"}, {"st.a": "'x'"}, {"p": "'new'"}, {"d": "0.1"}, {"h": "id"}, {"d": "i / 2"},
    {"n": "TIMESTAMP_NTZ'0001-01-01 00:00:00'"}, {"i": "if(ok, i, NULL)"}, {"l": "id % 3"},
]  # fmt: skip


@pytest.mark.damages_tables
@given(
    data=st.data(),
    text=conditions(),
    values=st.lists(st.sampled_from(ASSIGNMENTS), min_size=2, max_size=2),
    shape=st.sampled_from(list(SHAPES)),
    zone=st.sampled_from(ZONES),
    ansi=st.booleans(),
)
@few
def test_updates_leave_the_same(session, tmp_path, data, text, values, shape, zone, ansi):
    path = str(tmp_path / f"t{next(_NAMES)}")
    properties, partition_by = SHAPES[shape]
    make(session, path, data.draw(tables(rows=16)), partition_by=partition_by, **properties)
    session.conf.set(ZONE, zone)
    session.conf.set(ANSI, str(ansi).lower())

    def run(copy):
        table = DeltaTable.forPath(session, copy)
        results = [table.update(text, values[0]), table.update(None, values[1])]
        return [(result.version, result.num_updated_rows) for result in results]

    twice(session, path, run, shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_delete_and_an_update_of_every_shape_run_here(session, tmp_path, shape):
    path = str(tmp_path / "t")
    properties, partition_by = SHAPES[shape]
    rows = pa.table({"id": range(40), "p": [str(n % 3) for n in range(40)], "v": [n / 2 for n in range(40)]})
    make(session, path, rows, partition_by=partition_by, **properties)

    def run(copy):
        table = DeltaTable.forPath(session, copy)
        first = table.delete("id = 3 OR v > 18")
        second = table.update("id BETWEEN 10 AND 20", {"v": "v + 1"})
        return first.num_deleted_rows, first.num_copied_rows, second.num_updated_rows

    assert twice(session, path, run, shape) == ("arrow", "arrow")


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_move_to_other_partitions_here(session, tmp_path, shape):
    path = str(tmp_path / "t")
    properties, partition_by = SHAPES[shape]
    columns = {"p": [str(n % 3) for n in range(40)], "q": [n % 2 for n in range(40)], "v": [n / 2 for n in range(40)]}
    rows = pa.table({"id": range(40), **columns})
    make(session, path, rows, partition_by=[*partition_by, *(["q"] if partition_by else [])], **properties)

    def run(copy):
        table = DeltaTable.forPath(session, copy)
        told = [
            table.update("id BETWEEN 5 AND 20", {"p": "if(id = 7, NULL, if(v > 5, 'a b/é', p))", "v": "v + 1"}),
            table.update("p IS NULL OR id = 30", {"q": "id"}),
            table.update(None, {"p": "''", "q": "NULL"}),
        ]
        return [item.num_updated_rows for item in told]

    assert twice(session, path, run, shape)[1] == "arrow"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda table: table.delete("upper(s) = 'A'"), "Upper"),
        (lambda table: table.delete("length(s) = 1 AND id > 0"), "Length"),
    ],
)
def test_what_only_spark_computes_says_why(session, tmp_path, change, reason):
    path = str(tmp_path / "t")
    make(session, path, pa.table({"id": [1, 2], "s": ["a", "bb"]}))
    change(DeltaTable.forPath(session, path))
    metrics = DeltaTable.forPath(session, path).history(1).collect()[0]["operationMetrics"]
    assert metrics["scannedBy"] == f"spark: {reason}"
    assert metrics["rewrittenBy"] == "arrow"


def test_explain_says_who_would_look_for_the_rows(session, tmp_path):
    path = str(tmp_path / "t")
    make(session, path, pa.table({"id": [1, 2], "s": ["a", "b"], "p": ["x", "y"]}), partition_by=["p"])

    def told(statement):
        plan = session.sql(f"EXPLAIN {statement}").first()[0]
        return next((line.strip() for line in plan.splitlines() if "Rows found by" in line), None)

    found = told(f"DELETE FROM delta.`{path}` WHERE id = 1")
    assert found.startswith("+- Rows found by: arrow (1 files, ")
    assert "spark: Upper (2 files" in told(f"UPDATE delta.`{path}` AS t SET id = 0 WHERE upper(t.s) = 'A'")
    assert "no data file is read" in told(f"DELETE FROM delta.`{path}` WHERE p = 'x'")
    assert told(f"DELETE FROM delta.`{path}`") is None
    assert told(f"DELETE FROM delta.`{path}` WHERE nothing = 1") is None  # it says so when it runs
    session.conf.set(LIMIT, "0")
    assert "spark: spark.pydelta.local.maxBytes is 0" in told(f"DELETE FROM delta.`{path}` WHERE id = 1")
    assert DeltaLog.for_table(path).update().version == 0


def test_files_beyond_the_limit_are_spark_s(session, tmp_path):
    path = str(tmp_path / "t")
    make(session, path, pa.table({"id": range(100)}))
    session.conf.set(LIMIT, "70000")  # two files, each counted with 64 KiB
    DeltaTable.forPath(session, path).delete("id % 2 = 0")
    metrics = DeltaTable.forPath(session, path).history(1).collect()[0]["operationMetrics"]
    assert metrics["scannedBy"].startswith("spark: 2 files of ")
    assert LIMIT in metrics["scannedBy"]


@pytest.mark.damages_tables
def test_a_missing_file_fails_as_it_always_did(session, tmp_path):
    path = str(tmp_path / "t")
    make(session, path, pa.table({"id": range(10), "s": ["a"] * 10}))
    snapshot = DeltaLog.for_table(path).update()
    gone = decode_log_path(snapshot.files.adds(snapshot.files.core)[0].path).text
    os.remove(os.path.join(path, gone))
    texts = []
    for limit in ("0", "64m"):
        session.conf.set(LIMIT, limit)
        with pytest.raises(Exception) as caught:
            DeltaTable.forPath(session, path).delete("id >= 0 AND s = 'a'")
        texts.append((type(caught.value), gone in str(caught.value)))
    assert texts[0] == texts[1]
    assert DeltaLog.for_table(path).update().version == 0
