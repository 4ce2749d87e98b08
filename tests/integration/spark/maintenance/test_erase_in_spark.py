"""An erasure in a session: tables that only Spark can rewrite, shallow clones, and the job over several tables."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from jobs import erase
from pydelta.errors import BindError, InvalidArgumentError, UnsafeOperationError, VersionNotFoundError
from pydelta.storage import open_store
from pydelta.tables import DeltaTable
from tests.erased import names_of_key

pytestmark = pytest.mark.spark
KEY = "ann@example.org"


def rows_of(spark, path):
    return Counter(tuple(row) for row in spark.read.format("delta").load(path).select("who", "n").collect())


def made(spark, path, properties="", who="string", clause=""):
    """A table with the key in a live row, a hidden or rewritten one, and in a condition of the history."""
    spark.sql(f"CREATE TABLE delta.`{path}` (who {who}, n INT, at TIMESTAMP) USING delta {clause} "
              f"TBLPROPERTIES ('delta.enableDeletionVectors' = 'true' {properties})")  # fmt: skip
    at = "timestamp'2024-01-01 10:00:00'"
    spark.sql(f"INSERT INTO delta.`{path}` VALUES ('{KEY}', 1, {at}), ('bob', 2, {at}), ('{KEY}', 3, {at})")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE who = '{KEY}' AND n = 1")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES ('eve', 4, {at}), ('{KEY}', 5, {at})")
    spark.sql(f"UPDATE delta.`{path}` SET n = 6 WHERE who = '{KEY}' AND n = 5")


KINDS = {
    "plain": ("", "string", ""),
    "ids": (", 'delta.columnMapping.mode' = 'id'", "string", ""),
    "names": (", 'delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' = 'true'", "string", ""),
    "varchar": ("", "varchar(40)", ""),
    "char": ("", "char(20)", ""),
    "partitions": ("", "string", "PARTITIONED BY (who)"),
    "clustered": ("", "string", "CLUSTER BY (who)"),
    "row tracking": (", 'delta.enableRowTracking' = 'true'", "string", ""),
}


OFTEN = ("ids", "char")
"""The kinds that only Spark can rewrite."""


@pytest.mark.parametrize(
    "kind", [kind if kind in OFTEN else pytest.param(kind, marks=pytest.mark.ci) for kind in KINDS]
)
def test_nothing_of_a_key_is_left(spark, tmp_path, kind):
    properties, who, clause = KINDS[kind]
    path = str(tmp_path / "t")
    made(spark, path, properties, who, clause)
    before = rows_of(spark, path)
    store = open_store(path)
    assert names_of_key(store, KEY)
    table = DeltaTable.forPath(spark, path)
    with pytest.raises(UnsafeOperationError, match="given up"):
        table.erase({"who": [KEY]})
    planned = table.erase({"who": [KEY]}, dryRun=True)
    assert planned.num_files_found > 0
    assert rows_of(spark, path) == before
    done = table.erase({"who": [KEY]}, "drop")
    assert done.is_proven, done
    assert done.num_deleted_rows == 2
    assert names_of_key(store, KEY) == []
    assert rows_of(spark, path) == Counter({row: count for row, count in before.items() if row[0].strip() != KEY})
    with pytest.raises(VersionNotFoundError):
        spark.read.format("delta").option("versionAsOf", 1).load(path).collect()
    spark.sql(f"INSERT INTO delta.`{path}` VALUES ('new', 9, current_timestamp())")
    assert sum(rows_of(spark, path).values()) == 3


def test_a_frame_of_before_reads_the_table_afterwards(spark, tmp_path):
    path = str(tmp_path / "t")
    made(spark, path)
    frame = DeltaTable.forPath(spark, path).toDF()
    assert frame.count() == 4
    DeltaTable.forPath(spark, path).erase({"who": [KEY]}, history="drop")
    assert frame.count() == 2


def test_wrong_arguments_are_refused_and_show_no_key(spark, tmp_path):
    path = str(tmp_path / "t")
    made(spark, path)
    table = DeltaTable.forPath(spark, path)
    for arguments, kind in (
        (({"whom": ["secret-key"]}, "drop"), BindError),
        (({"who": "secret-key"}, "drop"), InvalidArgumentError),
        (({"n": ["secret-key"]}, "drop"), InvalidArgumentError),
        ((["secret-key"], "drop"), InvalidArgumentError),
        (({"who": ["secret-key"]}, "rewrite"), InvalidArgumentError),
    ):
        with pytest.raises(kind) as refused:
            table.erase(*arguments)
        assert "secret-key" not in str(refused.value)
    with pytest.raises(InvalidArgumentError, match="policy"):
        table.erase({"who": ["x"]}, "drop", objectVersions="some")


def test_shallow_clones_and_their_source_in_one_run(spark, tmp_path):
    source, clone, other = (str(tmp_path / name) for name in ("source", "clone", "other"))
    made(spark, source)
    DeltaTable.forPath(spark, source).clone(clone, isShallow=True)
    spark.sql(f"INSERT INTO delta.`{clone}` VALUES ('{KEY}', 7, current_timestamp()), ('ivy', 8, current_timestamp())")
    spark.range(3).write.format("delta").save(other)
    with pytest.raises(UnsafeOperationError, match="still read by others"):
        DeltaTable.forPath(spark, source).erase({"who": [KEY]}, "drop")
    keys = tmp_path / "keys.csv"
    keys.write_text(f"email\n{KEY}\n")
    mapping = tmp_path / "map.toml"
    mapping.write_text(f'["{source}"]\nwho = "email"\n["{clone}"]\nwho = "email"\n')
    how = ["--keys", str(keys), "--map", str(mapping), "--history", "drop"]
    planned = erase.run(spark, [source, clone, other, *how, "--dry-run"])
    assert planned.exit_code == 0
    assert planned.line["passedOver"] == {other: "the mapping does not name it"}
    done = erase.run(spark, [source, clone, other, *how, "--report", str(tmp_path / "reports")])
    assert done.exit_code == 0, json.dumps(done.line, indent=1)
    assert [table["status"] for table in done.line["tables"]] == ["proven", "proven"]
    assert names_of_key(open_store(source), KEY) == names_of_key(open_store(clone), KEY) == []
    assert sorted(row[0] for row in rows_of(spark, source)) == ["bob", "eve"]
    assert sorted(row[0] for row in rows_of(spark, clone)) == ["bob", "eve", "ivy"]


@pytest.mark.parametrize("clause", ["", "PARTITIONED BY (who)"])
def test_a_clone_that_has_only_files_of_its_source(spark, tmp_path, clause):
    source, clone = str(tmp_path / "source"), str(tmp_path / "clone")
    made(spark, source, clause=clause)
    DeltaTable.forPath(spark, source).clone(clone, isShallow=True)
    planned = DeltaTable.forPath(spark, clone).erase({"who": [KEY]}, dryRun=True)
    assert planned.num_files_found > 0
    done = DeltaTable.forPath(spark, clone).erase({"who": [KEY]}, "drop")
    assert (done.is_proven, done.num_deleted_rows, done.num_deleted_files) == (True, 2, 0)
    assert sum(rows_of(spark, source).values()) == 4
    assert DeltaTable.forPath(spark, source).erase({"who": [KEY]}, "drop").is_proven
    assert names_of_key(open_store(source), KEY) == names_of_key(open_store(clone), KEY) == []
    for path in (source, clone):
        assert sorted(row[0] for row in rows_of(spark, path)) == ["bob", "eve"]


def test_a_clone_whose_rows_of_a_key_were_deleted_gives_its_versions_up(spark, tmp_path):
    source, clone = str(tmp_path / "source"), str(tmp_path / "clone")
    made(spark, source)
    DeltaTable.forPath(spark, source).clone(clone, isShallow=True, properties={"delta.enableDeletionVectors": "false"})
    spark.sql(f"DELETE FROM delta.`{clone}` WHERE who <> 'bob'")
    found = DeltaTable.forPath(spark, clone).erase({"who": [KEY]}, dryRun=True)
    assert found.num_files_found > 0
    assert DeltaTable.forPath(spark, clone).erase({"who": [KEY]}, "drop").is_proven
    assert DeltaTable.forPath(spark, source).erase({"who": [KEY]}, "drop").is_proven


def test_the_job_runs_what_its_register_has_open(spark, tmp_path):
    path, register = str(tmp_path / "t"), str(tmp_path / "register")
    made(spark, path)
    keys = tmp_path / "keys.txt"
    keys.write_text(f"{KEY}\n")
    how = ["--keys", str(keys), "--column", "who", "--register", register]
    with pytest.raises(InvalidArgumentError, match="consent"):
        erase.run(spark, [path, *how, "--deadline", "2026-12-31"])
    filed = erase.run(spark, [path, *how, "--history", "drop", "--deadline", "2026-12-31"])
    assert filed.line["deadline"] == "2026-12-31"
    listed = erase.run(spark, ["--due", "--register", register, "--dry-run"])
    assert [row["id"] for row in listed.line["requests"]] == [filed.line["filed"]]
    ran = erase.run(spark, ["--due", "--register", register])
    assert ran.exit_code == 0
    assert ran.line["requests"][0]["report"]["status"] == "proven"
    assert names_of_key(open_store(path), KEY) == []
    assert erase.run(spark, ["--due", "--register", register]).line == {"requests": []}
    states = spark.read.format("delta").load(register).select("state").collect()
    assert [row[0] for row in states] == ["proven"]


def test_arguments_of_the_job_are_checked(spark, tmp_path):
    for arguments, message in (
        ([], "No table was named"),
        (["/t"], "Keys are given in one way"),
        (["/t", "--keys", "k", "--sign", "s"], "no report to sign"),
        (["--due"], "no register"),
        (["a.b", "--keys", "k"], "metastore"),
        (["--database", "d", "--keys", "k"], "need a metastore"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            erase.run(spark, arguments)
