"""``replaceUsing`` and ``replaceOn``: rows that some row of the data matches are replaced, all others stay."""

from __future__ import annotations

import itertools
import json

import pytest
from built_once import built_once
from pyspark.sql import functions as F

from pydelta.errors import (
    BindError,
    ConcurrentAppendException,
    ConstraintViolatedError,
    InvalidArgumentError,
    RowsDoNotAddUpError,
    SchemaMismatchError,
    UnsafeOperationError,
)
from pydelta.log import DeltaLog

pytestmark = pytest.mark.spark

SCHEMA = "a int, b string, v int"
OLD = [(1, "x", 1), (1, "x", 2), (1, "y", 3), (2, "x", 4), (None, "x", 5), (None, None, 6), (3, "z", 7)]
NEW = [(1, "x", 100), (1, "x", 101), (None, "x", 102), (9, "q", 103)]
KINDS = {
    "plain": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "feed": {"delta.enableChangeDataFeed": "true"},
    "feed and vectors": {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"},
    "mapped": {"delta.columnMapping.mode": "name"},
    "tracked": {"delta.enableRowTracking": "true"},
}


def frame(spark, rows=NEW, schema=SCHEMA):
    return spark.createDataFrame(rows, schema)


@built_once
def table(spark, path, partition=(), **properties):
    writer = frame(spark, OLD).coalesce(1).write.format("delta").options(**properties)
    (writer.partitionBy(*partition) if partition else writer).save(path)


def rows(spark, path):
    return sorted(
        (tuple(row) for row in spark.read.format("delta").load(path).select("a", "b", "v").collect()), key=str
    )


def overwrite(data, path, **options):
    data.write.format("delta").mode("overwrite").options(**options).save(path)


def version_of(path):
    return DeltaLog.for_table(path).update().version


def last_commit(path):
    log = DeltaLog.for_table(path)
    return next(item for item in log.actions(log.update().version) if item.kind == "commitInfo")


def using(columns):
    """The model: equal and not null in all of these columns."""
    at = ["abv".index(column) for column in columns]
    return lambda old, new: all(old[i] is not None and old[i] == new[i] for i in at)


def replaced(matches, old=OLD, new=NEW):
    left = [row for row in old if not any(matches(row, other) for other in new)]
    return sorted([*left, *new], key=str)


@pytest.mark.parametrize(
    ("kind", "partition"),
    [*((kind, ()) for kind in KINDS), ("plain", ("a",)), ("vectors", ("b", "a")), ("feed and vectors", ("a",))],
)
def test_rows_with_the_values_of_some_row_are_replaced(spark, tmp_path, kind, partition):
    path = table(spark, tmp_path / "t", partition, **KINDS[kind])
    state = OLD
    for columns, new in (("a", NEW), ("ba", [(1, "x", 1), (2, "y", 2), (None, None, 3)])):
        overwrite(frame(spark, new), path, replaceUsing=", ".join(columns))
        state = replaced(using(columns), state, new)
        assert rows(spark, path) == state, columns
    assert version_of(path) == 2


def test_names_ignore_case_and_the_history_says_which_columns(spark, tmp_path):
    path = table(spark, tmp_path / "t")
    overwrite(frame(spark), path, REPLACEUSING=" A , b")
    assert rows(spark, path) == replaced(using("ab"))
    info = last_commit(path)
    assert info.operation == "WRITE"
    assert info.get("operationParameters") == {"mode": "Overwrite", "partitionBy": "[]", "replaceUsingCols": "(A,b)"}
    assert info.get("isBlindAppend") is False
    metrics = info.get("operationMetrics")
    assert {key: metrics[key] for key in ("numDeletedRows", "numCopiedRows")} == {
        "numDeletedRows": "2",
        "numCopiedRows": "5",
    }


@pytest.mark.parametrize("kind", ["feed", "feed and vectors"])
def test_the_change_feed_has_what_went_and_what_came(spark, tmp_path, kind):
    path = table(spark, tmp_path / "t", **KINDS[kind])
    overwrite(frame(spark), path, replaceUsing="a,b")
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(path)
    found = sorted((tuple(row) for row in feed.select("_change_type", "a", "b", "v").collect()), key=str)
    assert found == sorted([("delete", *OLD[0]), ("delete", *OLD[1]), *(("insert", *row) for row in NEW)], key=str)


@pytest.mark.parametrize(("vectors", "copied"), [("true", 0), ("false", 5)])
def test_vectors_hide_rows_where_the_table_writes_them(spark, tmp_path, vectors, copied):
    path = table(spark, tmp_path / "t", **{"delta.enableDeletionVectors": vectors})
    overwrite(frame(spark).coalesce(1), path, replaceUsing="a,b")
    actions = DeltaLog.for_table(path).actions(1)
    marked = [item for item in actions if item.kind == "add" and item.deletion_vector is not None]
    assert len(marked) == (1 if vectors == "true" else 0)
    assert last_commit(path).get("operationMetrics").get("numCopiedRows", "0") == str(copied)


@pytest.mark.parametrize("options", [{"replaceUsing": "a"}, {"replaceOn": "t.a = s.a", "targetAlias": "t"}])
def test_data_without_rows_replaces_nothing(spark, tmp_path, options):
    path = table(spark, tmp_path / "t")
    overwrite(frame(spark).where("a > 100").alias("s"), path, **options)
    assert rows(spark, path) == sorted(OLD, key=str)
    assert version_of(path) == 0


def test_no_table_yet_is_made(spark, tmp_path):
    path = str(tmp_path / "t")
    overwrite(frame(spark), path, replaceUsing="a")
    assert rows(spark, path) == sorted(NEW, key=str)


CONDITIONS = {
    "t.a <=> s.a AND t.b = s.b": lambda t, s: t[0] == s[0] and t[1] is not None and t[1] == s[1],
    "t.a <=> s.a": lambda t, s: t[0] == s[0],
    "t.a = 2": lambda t, s: t[0] == 2,
    "s.v = 103 AND t.v > 3": lambda t, s: s[2] == 103 and t[2] > 3,
    "true": lambda t, s: True,
    "false": lambda t, s: False,
}


@pytest.mark.parametrize("kind", ["plain", "feed and vectors"])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_rows_for_which_a_condition_holds_with_some_row_are_replaced(spark, tmp_path, condition, kind):
    path = table(spark, tmp_path / "t", **KINDS[kind])
    overwrite(frame(spark).alias("s"), path, replaceOn=condition, targetAlias="t")
    assert rows(spark, path) == replaced(CONDITIONS[condition])
    assert last_commit(path).get("operationParameters")["replaceOnCond"]


def test_rows_that_differ_each_time_they_are_computed_are_computed_once(spark, tmp_path):
    path = table(spark, tmp_path / "t")
    random = (F.rand() * 1_000_000).cast("int").alias("v")
    overwrite(spark.range(4).select(random).selectExpr("v % 4 AS a", "'new' AS b", "v"), path, replaceUsing="a")
    found = rows(spark, path)
    new = [row for row in found if row[1] == "new"]
    assert len(new) == 4
    assert found == replaced(using("a"), new=new)


def test_new_columns_come_along_where_they_are_allowed(spark, tmp_path):
    path = table(spark, tmp_path / "t")
    overwrite(frame(spark).withColumn("n", F.lit(1)), path, replaceUsing="a,b", mergeSchema="true")
    assert rows(spark, path) == replaced(using("ab"))
    assert spark.read.format("delta").load(path).where("n = 1").count() == len(NEW)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"replaceUsing": "a,nope"}, BindError, "no column 'nope'"),
        ({"replaceOn": "a = 1"}, BindError, "does not fit"),
        ({"replaceOn": "t.nope = 1", "targetAlias": "t"}, BindError, "nope"),
        ({"replaceOn": "t.v > rand()", "targetAlias": "t"}, InvalidArgumentError, "not deterministic"),
        ({"replaceOn": "t.a IN (SELECT 1)", "targetAlias": "t"}, InvalidArgumentError, "subquery"),
        ({"replaceOn": "t.a + 1", "targetAlias": "t"}, BindError, "does not fit"),
    ],
)
def test_what_cannot_be_matched_is_refused(spark, tmp_path, options, error, message):
    path = table(spark, tmp_path / "t")
    with pytest.raises(error, match=message):
        overwrite(frame(spark).alias("s"), path, **options)
    assert version_of(path) == 0
    assert rows(spark, path) == sorted(OLD, key=str)


def test_a_column_that_the_data_lacks_is_refused(spark, tmp_path):
    path = table(spark, tmp_path / "t")
    with pytest.raises(BindError, match="data has no column 'a'"):
        overwrite(frame(spark).drop("a"), path, replaceUsing="a")
    assert version_of(path) == 0


def test_a_row_that_the_table_refuses_leaves_nothing_behind(spark, tmp_path):
    path = table(spark, tmp_path / "t")
    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT small CHECK (v < 103)")
    before = sorted(item.name for item in (tmp_path / "t").glob("*.parquet"))
    with pytest.raises(ConstraintViolatedError):  # of one task: what another has finished by then is left for VACUUM
        overwrite(frame(spark).coalesce(1), path, replaceUsing="a")
    assert version_of(path) == 1
    assert sorted(item.name for item in (tmp_path / "t").glob("*.parquet")) == before


def test_an_append_only_table_refuses(spark, tmp_path):
    path = table(spark, tmp_path / "t", **{"delta.appendOnly": "true"})
    with pytest.raises(UnsafeOperationError, match="append-only"):
        overwrite(frame(spark), path, replaceUsing="a")


@pytest.mark.parametrize("kind", ["plain", "vectors"])
def test_rows_of_a_key_that_come_meanwhile_are_a_conflict(spark, tmp_path, monkeypatch, kind):
    from pydelta.engines.spark.write import writer

    path = table(spark, tmp_path / "t", **KINDS[kind])
    original = writer.DataFrameSource.write
    added = frame(spark, [(1, "x", 55)])

    def write_late(self, target):
        written = original(self, target)
        monkeypatch.setattr(writer.DataFrameSource, "write", original)
        added.write.format("delta").mode("append").save(path)
        return written

    monkeypatch.setattr(writer.DataFrameSource, "write", write_late)
    with pytest.raises(ConcurrentAppendException):
        overwrite(frame(spark), path, replaceUsing="a,b")
    assert rows(spark, path) == sorted([*OLD, (1, "x", 55)], key=str)
    assert {item.name for item in (tmp_path / "t").glob("*.parquet")} == {add.path for add in _adds(path)}
    assert not list((tmp_path / "t").glob("*.bin"))


def test_rows_of_keys_far_away_that_come_meanwhile_are_none(spark, tmp_path, monkeypatch):
    from pydelta.engines.spark.write import writer

    path = table(spark, tmp_path / "t")
    original = writer.DataFrameSource.write
    added = frame(spark, [(5_000, "x", 55)])

    def write_late(self, target):
        written = original(self, target)
        monkeypatch.setattr(writer.DataFrameSource, "write", original)
        added.write.format("delta").mode("append").save(path)
        return written

    monkeypatch.setattr(writer.DataFrameSource, "write", write_late)
    overwrite(frame(spark), path, replaceUsing="a,b")
    assert (5_000, "x", 55) in rows(spark, path)
    assert len(rows(spark, path)) == len(replaced(using("ab"))) + 1


def test_a_repeat_replaces_what_the_first_brought_and_a_transaction_just_once(spark, tmp_path):
    path = table(spark, tmp_path / "t")
    for _ in range(2):
        overwrite(frame(spark, [(1, "x", 100), (2, "x", 101)]), path, replaceUsing="a,b")
    assert rows(spark, path) == replaced(using("ab"), new=[(1, "x", 100), (2, "x", 101)])
    for _ in range(2):
        overwrite(frame(spark, [(7, "x", 0)]), path, replaceUsing="a", txnAppId="job", txnVersion="1")
    assert version_of(path) == 3


KEYS = {
    "bigint": "id",
    "decimal(20,0)": "id",
    "string": "id",
    "double": "id / 2",
    "date": "date_add(date'1500-01-01', CAST(id AS INT))",
    "timestamp": "timestamp_seconds(id)",
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_type(spark, tmp_path, kind):
    path = str(tmp_path / "t")
    key = f"CAST({KEYS[kind]} AS {kind}) AS k"
    spark.range(6).selectExpr(key, "'old' AS v").write.format("delta").save(path)
    overwrite(spark.range(2).selectExpr(key, "'new' AS v"), path, replaceUsing="k")
    found = sorted(row[0] for row in spark.read.format("delta").load(path).select("v").collect())
    assert found == ["new"] * 2 + ["old"] * 4


def test_the_data_may_be_made_of_the_table_itself(spark, tmp_path):
    path = table(spark, tmp_path / "t")
    data = spark.read.format("delta").load(path).where("a = 1").selectExpr("a", "b", "v + 1000 AS v")
    overwrite(data, path, replaceUsing="a,b")
    assert rows(spark, path) == replaced(using("ab"), new=[(1, "x", 1001), (1, "x", 1002), (1, "y", 1003)])


def test_keys_are_compared_as_the_table_holds_them(spark, tmp_path):
    name = f"delta.`{tmp_path / 't'}`"
    columns = "k CHAR(4), n BIGINT, day DATE GENERATED ALWAYS AS (CAST(at AS DATE)), at TIMESTAMP"
    spark.sql(f"CREATE TABLE {name} ({columns}) USING delta")
    spark.sql(f"INSERT INTO {name} (k, n, at) VALUES ('ab', 1, TIMESTAMP'2024-01-01 10:00:00'), ('c', 2, NULL)")
    data = spark.sql("SELECT 'ab' AS k, CAST(1 AS INT) AS n, TIMESTAMP'2024-02-02 10:00:00' AS at")
    overwrite(data, str(tmp_path / "t"), replaceUsing="k,n")
    found = spark.sql(f"SELECT k, n, CAST(day AS STRING) FROM {name} ORDER BY n").collect()
    assert [tuple(row) for row in found] == [("ab  ", 1, "2024-02-02"), ("c   ", 2, None)]


def test_a_key_that_the_data_leaves_to_the_table_is_refused(spark, tmp_path):
    name = f"delta.`{tmp_path / 't'}`"
    spark.sql(f"CREATE TABLE {name} (n INT, twice INT GENERATED ALWAYS AS (2 * n)) USING delta")
    with pytest.raises(BindError, match="data has no column 'twice'"):
        overwrite(spark.sql("SELECT 1 AS n"), str(tmp_path / "t"), replaceUsing="twice")


def test_rows_of_another_number_than_were_matched_fail_the_write(spark, tmp_path, monkeypatch):
    path = table(spark, tmp_path / "t", **KINDS["vectors"])
    before = sorted(item.name for item in (tmp_path / "t").iterdir())
    monkeypatch.setattr("pydelta.engines.spark.write.matches.SparkMatching.count_rows", lambda self: 5)
    with pytest.raises(RowsDoNotAddUpError, match="4 rows were written"):
        overwrite(frame(spark), path, replaceUsing="a")
    assert version_of(path) == 0
    assert sorted(item.name for item in (tmp_path / "t").iterdir()) == before


def test_an_empty_write_still_counts_as_its_transaction(spark, tmp_path):
    path = table(spark, tmp_path / "t")
    empty = frame(spark).where("a > 100")
    for _ in range(2):
        overwrite(empty, path, replaceUsing="a", txnAppId="job", txnVersion="1")
    assert version_of(path) == 1
    assert rows(spark, path) == sorted(OLD, key=str)
    assert DeltaLog.for_table(path).update().set_transactions["job"].version == 1


def test_a_session_that_overwrites_partitions_does_not_widen_what_goes(spark, tmp_path):
    path = table(spark, tmp_path / "t", ("a",))
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        overwrite(frame(spark), path, replaceUsing="a,b")
        spark.sql(f"INSERT INTO delta.`{path}` REPLACE USING (a, v) VALUES (2, 'x', 4)")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert rows(spark, path) == replaced(using("ab"))
    assert version_of(path) == 2


def test_every_way_to_write_takes_the_options(spark, tmp_path):
    path = table(spark, tmp_path / "t")
    name, data, state = f"delta.`{path}`", frame(spark), OLD
    overwriting = data.write.format("delta").mode("overwrite").option("replaceUsing", "a,b")
    for run in (
        lambda: overwriting.saveAsTable(name),
        lambda: overwriting.insertInto(name),
        lambda: data.writeTo(name).option("replaceUsing", "a,b").overwrite(F.lit(True)),
        lambda: data.alias("s").write.mode("overwrite").option("replaceOn", "t.a = s.a AND t.b = s.b")
        .option("targetAlias", "t").insertInto(name),
    ):  # fmt: skip
        run()
        state = replaced(using("ab"), state)
        assert rows(spark, path) == state
    assert version_of(path) == 4


def test_ways_to_write_that_say_themselves_which_rows_go_refuse_the_options(spark, tmp_path):
    path = table(spark, tmp_path / "t", ("a",))
    name, data = f"delta.`{path}`", frame(spark)
    new = data.writeTo(name).option("replaceUsing", "a")
    for run in (
        lambda: new.overwrite(F.col("a") == 1),
        lambda: new.overwritePartitions(),
        lambda: new.createOrReplace(),
    ):
        with pytest.raises(InvalidArgumentError, match=r"replaceUsing") as caught:
            run()
        assert caught.value.hint
    assert version_of(path) == 0


def test_an_append_replaces_no_row_whatever_its_options_say(spark, tmp_path):
    path = table(spark, tmp_path / "t", ("a",))
    name, data = f"delta.`{path}`", frame(spark)
    rows = spark.read.format("delta").load(path).count()
    for run in (
        lambda: data.writeTo(name).option("replaceUsing", "a").append(),
        lambda: data.write.format("delta").mode("append").option("replaceUsing", "a").save(path),
        lambda: data.write.mode("append").option("replaceOn", "true").insertInto(name),
    ):
        with pytest.warns(UserWarning, match=r"replace(Using|On) is for mode overwrite"):
            run()
        rows += data.count()
        assert spark.read.format("delta").load(path).count() == rows


def test_insert_into_refuses_a_key_that_goes_into_another_column(spark, tmp_path):
    path = table(spark, tmp_path / "t")
    data = frame(spark).select("v", "b", "a")
    with pytest.raises(SchemaMismatchError, match="replaceUsing names 'a'"):
        data.write.mode("overwrite").option("replaceUsing", "a").insertInto(f"delta.`{path}`")
    assert version_of(path) == 0


def test_a_new_table_is_not_made_for_a_column_that_is_not_there(spark, tmp_path):
    with pytest.raises(BindError, match="no column 'nope'"):
        overwrite(frame(spark), str(tmp_path / "t"), replaceUsing="nope")
    assert not (tmp_path / "t" / "_delta_log").exists()


# --- SQL --------------------------------------------------------------------------------------------------------

SOURCE = "SELECT * FROM VALUES (1, 'x', 100), (1, 'x', 101), (CAST(NULL AS INT), 'x', 102), (9, 'q', 103) AS q(a, b, v)"


@pytest.mark.parametrize("kind", ["plain", "feed and vectors"])
@pytest.mark.parametrize(
    ("statement", "matches"),
    [
        (f"INSERT INTO {{t}} REPLACE USING (a, b) {SOURCE}", using("ab")),
        (f"INSERT INTO {{t}} REPLACE USING (A) {SOURCE}", using("a")),
        (f"INSERT INTO {{t}} AS t REPLACE ON t.a <=> s.a SELECT * FROM ({SOURCE}) AS s", CONDITIONS["t.a <=> s.a"]),
        (f"INSERT INTO {{t}} AS t REPLACE ON t.a = k ({SOURCE.replace('q(a,', 'q(k,')})", using("a")),
    ],
)
def test_sql(spark, tmp_path, statement, matches, kind):
    path = table(spark, tmp_path / "t", **KINDS[kind])
    spark.sql(statement.format(t=f"delta.`{path}`"))
    assert rows(spark, path) == replaced(matches)
    assert version_of(path) == 1


def test_sql_calls_the_table_by_its_name(spark, tmp_path):
    path = table(spark, tmp_path / "t")
    spark.sql(f"CREATE TABLE matched_by_name USING delta LOCATION '{path}'")
    try:
        spark.sql(
            "INSERT INTO matched_by_name REPLACE ON default.matched_by_name.a = k AND matched_by_name.b = l "
            f"{SOURCE.replace('q(a, b,', 'q(k, l,')}"
        )
    finally:
        spark.sql("DROP TABLE matched_by_name")
    assert rows(spark, path) == replaced(using("ab"))
    assert "replaceOnCond" in last_commit(path).get("operationParameters")


def test_sql_by_name(spark, tmp_path):
    path = table(spark, tmp_path / "t")
    spark.sql(f"INSERT INTO delta.`{path}` BY NAME REPLACE USING (a, b) SELECT v, b, a FROM ({SOURCE})")
    assert rows(spark, path) == replaced(using("ab"))


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("REPLACE ON x.a = 1", BindError, "x"),
        ("REPLACE ON a = 1", BindError, r"(?i)ambiguous"),
        ("REPLACE ON rand() > 0", InvalidArgumentError, "not deterministic"),
        ("REPLACE USING (nope)", BindError, "table has no column 'nope'"),
    ],
)
def test_sql_that_cannot_be_matched_is_refused(spark, tmp_path, text, error, message):
    path = table(spark, tmp_path / "t")
    with pytest.raises(error, match=message) as caught:
        spark.sql(f"INSERT INTO delta.`{path}` {text} {SOURCE}")
    assert caught.value.hint
    assert version_of(path) == 0


def test_sql_by_position_refuses_a_key_at_another_place(spark, tmp_path):
    path = table(spark, tmp_path / "t")
    with pytest.raises(SchemaMismatchError, match="'a'"):
        spark.sql(f"INSERT INTO delta.`{path}` REPLACE USING (a) SELECT 1 AS v, 'x' AS b, 2 AS a")
    with pytest.raises(BindError, match="nope"):
        spark.sql(f"INSERT INTO delta.`{path}` REPLACE USING (nope) SELECT 1, 'x', 2")
    assert version_of(path) == 0


@pytest.mark.ci
def test_every_sequence_of_replacements_is_that_of_the_model(spark, tmp_path):
    path = table(spark, tmp_path / "t", **KINDS["vectors"])
    state = list(OLD)
    batches = [[(1, "x", 10)], [(2, "x", 11), (1, "y", 12)], [(None, None, 13)], [(1, "x", 14), (3, "z", 15)]]
    for columns, new in itertools.product(("a", "ab"), batches):
        overwrite(frame(spark, new), path, replaceUsing=",".join(columns))
        state = replaced(using(columns), state, new)
        assert rows(spark, path) == state
    counts = [json.loads(add.stats)["numRecords"] for add in _adds(path)]
    hidden = [add.deletion_vector.cardinality for add in _adds(path) if add.deletion_vector is not None]
    assert sum(counts) - sum(hidden) == len(state)


def _adds(path):
    snapshot = DeltaLog.for_table(path).update()
    return snapshot.files.adds(snapshot.files.core)
