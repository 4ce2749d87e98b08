"""EXPLAIN of MERGE and OPTIMIZE: who would do the work and why, as the history says afterwards; nothing is run."""

from __future__ import annotations

import itertools

import pytest

from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark

LIMIT = "spark.pydelta.local.maxBytes"
OPTIMIZE_LIMIT = "spark.pydelta.local.optimizeMaxBytes"
_GROUPS = itertools.count()


@pytest.fixture
def session(spark):
    yield spark
    for name in (LIMIT, OPTIMIZE_LIMIT):
        spark.conf.unset(name)


@pytest.fixture
def path(session, tmp_path):
    folder = str(tmp_path / "t")
    rows = session.range(40).selectExpr("id", "concat('s', id) AS s", "id % 2 AS p", "CAST(id AS double) AS d")
    rows.repartition(4).write.format("delta").partitionBy("p").save(folder)
    return folder


def told(session, path, statement, start):
    """What EXPLAIN says, after it has changed nothing and run no job."""
    version, group = DeltaLog.for_table(path).update().version, f"explain-{next(_GROUPS)}"
    session.sparkContext.setJobGroup(group, statement)
    frame = session.sql(f"EXPLAIN {statement}")
    assert session.sparkContext.statusTracker().getJobIdsForGroup(group) == []
    session.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    lines = [line.strip() for line in frame.first()["plan"].splitlines()]
    assert DeltaLog.for_table(path).update().version == version
    assert lines[0] == "== Physical Plan =="
    return next((line.removeprefix(f"+- {start}: ") for line in lines if line.startswith(f"+- {start}")), None)


def metric(session, path, name):
    return DeltaTable.forPath(session, path).history(1).first()["operationMetrics"].get(name)


def merge(path, on="t.id = s.id", does="UPDATE SET s = s.s"):
    return f"""MERGE INTO delta.`{path}` t USING (SELECT id, 'new' AS s, CAST(id AS double) AS d FROM range(3)) s
        ON {on} WHEN MATCHED THEN {does}"""


def test_a_merge_says_that_it_would_be_done_here(session, path):
    said = told(session, path, merge(path), "Rows found by")
    assert said.startswith(
        f"arrow, if the source is not more than {LIMIT}, and the files that its keys leave than "
        "spark.pydelta.local.changesMaxBytes (at most "
    )
    session.sql(merge(path))
    assert metric(session, path, "scannedBy") == "arrow"


@pytest.mark.parametrize(("files", "way"), [("1g", "arrow"), ("1", "spark: 2 files of ")])
def test_files_of_a_merge_have_a_limit_apart_from_that_of_its_source(session, path, files, way):
    settings = {"spark.pydelta.local.maxBytes": "60k", "spark.pydelta.local.changesMaxBytes": files}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        session.sql(merge(path))
    finally:
        for name in settings:
            session.conf.unset(name)
    assert metric(session, path, "scannedBy").startswith(way)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"on": "t.id = s.id AND upper(t.s) = 'S1'"}, "Upper"),
        ({"on": "t.id < s.id - 1"}, "a merge without an equality of keys"),
        ({"on": "t.d = s.d"}, None),
        ({"does": "UPDATE SET s = upper(s.s)"}, "Upper"),
    ],
)
def test_a_merge_says_why_it_would_be_spark_s(session, path, given, reason):
    said = told(session, path, merge(path, **given), "Rows found by")
    session.sql(merge(path, **given))
    done = metric(session, path, "scannedBy")
    assert done.startswith("spark: ")
    assert said.split(" (at most ")[0] == done
    assert reason is None or reason in done


def test_a_merge_counts_the_files_that_its_condition_leaves(session, path):
    every = DeltaLog.for_table(path).update().num_files
    assert f"(at most {every} files, " in told(session, path, merge(path), "Rows found by")
    part = int(told(session, path, merge(path, on="t.id = s.id AND t.p = 1"), "Rows found by").split()[-4])
    assert 0 < part < every


def test_a_merge_that_fails_when_it_runs_is_explained_without_a_way(session, path):
    assert told(session, path, merge(path, on="t.nothing = s.id"), "Rows found by") is None
    missing = f"MERGE INTO delta.`{path}` t USING no_such_table s ON t.id = s.id WHEN MATCHED THEN DELETE"
    assert told(session, path, missing, "Rows found by") is None


def test_with_the_limit_at_zero_all_is_spark_s(session, path):
    session.conf.set(LIMIT, "0")
    assert told(session, path, merge(path), "Rows found by").startswith(f"spark: {LIMIT} is 0")
    assert told(session, path, f"OPTIMIZE delta.`{path}`", "Files rewritten by").startswith(f"spark: {LIMIT} is 0 (")


def test_an_optimize_says_what_it_would_rewrite_and_who_would(session, path):
    files = DeltaLog.for_table(path).update().files.core
    said = told(session, path, f"OPTIMIZE delta.`{path}`", "Files rewritten by")
    assert said == f"arrow ({files.height} files, {files['size'].sum()} bytes, into 2)"
    half = told(session, path, f"FORMATTED OPTIMIZE delta.`{path}` WHERE p = 1", "Files rewritten by")
    assert half.endswith(", into 1)") and half != said
    ordered = told(session, path, f"optimize '{path}' ZORDER BY (id)", "Files rewritten by")
    assert ordered.startswith("arrow (") and ordered.endswith(", in order within 2 groups)")
    session.conf.set(OPTIMIZE_LIMIT, "1000")
    bound = told(session, path, f"OPTIMIZE delta.`{path}`", "Files rewritten by")
    session.sql(f"OPTIMIZE delta.`{path}`")
    done = metric(session, path, "rewrittenBy")
    assert done.startswith("spark: ") and OPTIMIZE_LIMIT in done
    assert bound.startswith(f"{done} (")
    assert told(session, path, f"OPTIMIZE delta.`{path}`", "Files rewritten by").startswith("nobody: ")


def test_an_optimize_that_only_spark_does_says_why(session, path):
    folder = f"{path}-mapped"
    session.sql(
        f"CREATE TABLE delta.`{folder}` (id bigint) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'id')"
    )
    for _ in range(2):
        session.sql(f"INSERT INTO delta.`{folder}` VALUES (1)")
    said = told(session, folder, f"OPTIMIZE delta.`{folder}`", "Files rewritten by")
    session.sql(f"OPTIMIZE delta.`{folder}`")
    done = metric(session, folder, "rewrittenBy")
    assert done.startswith("spark: columns mapped by id")
    assert said.startswith(f"{done} (2 files, ")


def test_an_optimize_that_is_refused_is_refused_by_explain(session, path):
    with pytest.raises(DeltaError, match="only partition columns are allowed"):
        session.sql(f"EXPLAIN OPTIMIZE delta.`{path}` WHERE id = 1")
