"""MERGE: clauses in order, what is refused, what is not touched; with vectors, change feed and row tracking."""

from __future__ import annotations

import pytest
from built_once import built_once
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from pydelta.errors import (
    BindError,
    ConflictingSetError,
    ConstraintViolatedError,
    DuplicateInsertColumnError,
    InvalidArgumentError,
    SchemaMismatchError,
    UnsafeOperationError,
)
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark

VARIANTS = {
    "copied": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "feed": {"delta.enableChangeDataFeed": "true"},
    "vectors and feed": {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"},
}


@built_once
def make(spark, path, rows, columns="id long, v string, n int", partition=None, files=2, **properties):
    frame = spark.createDataFrame(rows, columns)
    builder = DeltaTable.create(spark).location(path).addColumns(frame.schema)
    for key, value in properties.items():
        builder = builder.property(key, value)
    if partition:
        builder = builder.partitionedBy(partition)
    builder.execute()
    if rows:
        frame.repartitionByRange(files, "id").write.format("delta").mode("append").save(path)


@pytest.fixture(params=list(VARIANTS))
def target(request, spark, tmp_path):
    """ids 0-9 in two files, ``v`` being ``t<id>``."""
    rows = [(number, f"t{number}", number) for number in range(10)]
    return make(spark, str(tmp_path / "t"), rows, **VARIANTS[request.param])


def source_of(spark, *rows, columns="id long, v string, n int"):
    return spark.createDataFrame(list(rows), columns).alias("s")


def merging(spark, path, source, condition="t.id = s.id"):
    return DeltaTable.forPath(spark, path).alias("t").merge(source, condition)


def contents(spark, path):
    return {row["id"]: tuple(row)[1:] for row in spark.read.format("delta").load(path).collect()}


def feed_of(spark, path, version):
    frame = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version).load(path)
    return sorted((row["_change_type"], row["id"], row["v"]) for row in frame.collect())


def test_upsert(spark, target):
    source = source_of(spark, (3, "s3", 30), (7, "s7", 70), (42, "s42", 420))
    before = contents(spark, target)
    row = merging(spark, target, source).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute().collect()[0]
    assert tuple(row) == (3, 2, 0, 1)
    assert contents(spark, target) == before | {3: ("s3", 30), 7: ("s7", 70), 42: ("s42", 420)}
    entry = DeltaTable.forPath(spark, target).history(1).collect()[0]
    assert entry["operation"] == "MERGE"
    metrics = entry["operationMetrics"]
    assert (metrics["numTargetRowsUpdated"], metrics["numTargetRowsInserted"], metrics["numSourceRows"]) == (
        "2",
        "1",
        "3",
    )
    properties = DeltaLog.for_table(target).update().properties
    if properties.enable_deletion_vectors:
        assert metrics["numTargetRowsCopied"] == "0"
    else:
        assert metrics["numTargetRowsCopied"] == "8"
    if properties.enable_change_data_feed:
        assert feed_of(spark, target, entry["version"]) == [
            ("insert", 42, "s42"),
            ("update_postimage", 3, "s3"),
            ("update_postimage", 7, "s7"),
            ("update_preimage", 3, "t3"),
            ("update_preimage", 7, "t7"),
        ]


def test_all_clauses_in_their_order(spark, target):
    source = source_of(spark, *[(number, f"s{number}", number * 10) for number in range(4, 16)])
    (
        merging(spark, target, source)
        .whenMatchedDelete("s.n = 50")
        .whenMatchedUpdate("t.id < 8", {"v": "concat(t.v, '-', s.v)", "n": F.col("t.n") + F.col("s.n")})
        .whenMatchedUpdate(set={"n": "-1"})
        .whenNotMatchedInsert("s.id < 12", {"id": "s.id", "v": "upper(s.v)"})
        .whenNotMatchedInsert("s.id = 13", {"id": "s.id * 100"})
        .whenNotMatchedBySourceUpdate("t.id = 1", {"v": "'alone'"})
        .whenNotMatchedBySourceDelete("t.id < 3")
        .execute()
    )
    assert contents(spark, target) == {
        1: ("alone", 1),
        3: ("t3", 3),
        4: ("t4-s4", 44),
        6: ("t6-s6", 66),
        7: ("t7-s7", 77),
        8: ("t8", -1),
        9: ("t9", -1),
        10: ("S10", None),
        11: ("S11", None),
        1300: (None, None),
    }
    log = DeltaLog.for_table(target)
    if log.update().properties.enable_change_data_feed:
        feed = feed_of(spark, target, log.update().version)
        assert [item for item in feed if item[0] == "delete"] == [
            ("delete", 0, "t0"),
            ("delete", 2, "t2"),
            ("delete", 5, "t5"),
        ]
        assert [item[1] for item in feed if item[0] == "insert"] == [10, 11, 1300]
        assert [item[1] for item in feed if item[0] == "update_preimage"] == [1, 4, 6, 7, 8, 9]


def test_two_source_rows_for_one_row_are_refused_with_its_key(spark, target):
    source = source_of(spark, (3, "a", 1), (3, "b", 2), (4, "c", 3))
    before, version = contents(spark, target), DeltaLog.for_table(target).update().version
    with pytest.raises(InvalidArgumentError, match=r"2 rows of the source .* id=3"):
        merging(spark, target, source).whenMatchedUpdateAll().execute()
    assert (contents(spark, target), DeltaLog.for_table(target).update().version) == (before, version)


def test_two_source_rows_are_fine_where_one_passes_the_condition(spark, target):
    source = source_of(spark, (3, "a", 1), (3, "b", 2))
    merging(spark, target, source).whenMatchedUpdate("s.n = 2", {"v": "s.v"}).execute()
    assert contents(spark, target)[3] == ("b", 3)
    assert len(contents(spark, target)) == 10


def test_two_source_rows_are_fine_for_a_delete_without_a_condition_alone(spark, target):
    source = source_of(spark, (3, "a", 1), (3, "b", 2))
    with pytest.raises(InvalidArgumentError, match=r"2 rows of the source .* id=3"):
        merging(spark, target, source).whenMatchedDelete("s.n > 0").execute()
    row = merging(spark, target, source).whenMatchedDelete().execute().collect()[0]
    assert tuple(row) == (1, 0, 1, 0)
    assert sorted(contents(spark, target)) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    log = DeltaLog.for_table(target)
    if log.update().properties.enable_change_data_feed:
        assert feed_of(spark, target, log.update().version) == [("delete", 3, "t3")]


def test_one_source_row_may_change_many(spark, target):
    source = source_of(spark, (0, "x", 5))
    merging(spark, target, source, "t.n > s.n").whenMatchedUpdate(set={"v": "s.v"}).execute()
    assert [key for key, value in sorted(contents(spark, target).items()) if value[0] == "x"] == [6, 7, 8, 9]


def test_insert_only_rewrites_nothing(spark, target):
    log = DeltaLog.for_table(target)
    before = set(log.update().files.core["path"])
    source = source_of(spark, (3, "s3", 1), (11, "s11", 2), (12, "s12", 3))
    result = merging(spark, target, source).whenNotMatchedInsertAll("s.n < 3").run()
    assert (result.num_inserted_rows, result.num_touched_files, result.num_copied_rows) == (1, 0, 0)
    assert before < set(log.update().files.core["path"])
    assert contents(spark, target)[11] == ("s11", 2)
    assert 12 not in contents(spark, target)


def test_duplicates_in_the_source_are_all_inserted(spark, target):
    merging(spark, target, source_of(spark, (20, "a", 1), (20, "a", 1))).whenNotMatchedInsertAll().execute()
    assert spark.read.format("delta").load(target).where("id = 20").count() == 2


def test_nothing_to_do_is_no_commit(spark, target):
    version = DeltaLog.for_table(target).update().version
    nobody = merging(spark, target, source_of(spark, (99, "x", 1))).whenMatchedUpdateAll().run()
    hidden = merging(spark, target, source_of(spark, (3, "x", 1))).whenMatchedUpdate("s.n = 7", {"v": "s.v"}).run()
    known = merging(spark, target, source_of(spark, (3, "x", 1))).whenNotMatchedInsertAll().run()
    empty = merging(spark, target, source_of(spark)).whenMatchedDelete().whenNotMatchedInsertAll().run()
    assert [item.version for item in (nobody, hidden, known, empty)] == [None] * 4
    assert DeltaLog.for_table(target).update().version == version


def test_a_false_condition_copies_nothing(spark, tmp_path):
    path = make(spark, str(tmp_path / "t"), [(n, f"t{n}", n) for n in range(10)])
    source = source_of(spark, (1, "a", 0), (8, "b", 1))
    result = merging(spark, path, source).whenMatchedUpdate("s.n = 1", {"v": "s.v"}).whenNotMatchedInsertAll().run()
    assert (result.num_touched_files, result.num_updated_rows, result.num_copied_rows) == (1, 1, 4)


def test_an_empty_source_with_clauses_for_rows_without_one(spark, target):
    merging(spark, target, source_of(spark)).whenNotMatchedBySourceDelete("t.id > 4").execute()
    assert sorted(contents(spark, target)) == [0, 1, 2, 3, 4]


def test_an_empty_table_takes_everything(spark, tmp_path):
    path = make(spark, str(tmp_path / "t"), [])
    source = source_of(spark, (1, "a", 1), (2, None, None))
    merging(spark, path, source).whenMatchedDelete().whenNotMatchedInsertAll().execute()
    assert contents(spark, path) == {1: ("a", 1), 2: (None, None)}


def test_null_keys_match_nothing_unless_the_condition_says_so(spark, tmp_path):
    path = make(spark, str(tmp_path / "t"), [(1, None, 1), (2, "k", 2)])
    source = source_of(spark, (8, None, 80), (9, "k", 90))
    merging(spark, path, source, "t.v = s.v").whenMatchedUpdate(set={"n": "s.n"}).execute()
    assert contents(spark, path) == {1: (None, 1), 2: ("k", 90)}
    merging(spark, path, source, "t.v <=> s.v").whenMatchedUpdate(set={"n": "s.n"}).execute()
    assert contents(spark, path) == {1: (None, 80), 2: ("k", 90)}


def test_files_that_cannot_match_are_not_read(spark, tmp_path):
    path = make(spark, str(tmp_path / "t"), [(n, f"t{n}", n) for n in range(100)], files=10)
    source = source_of(spark, (33, "x", 1), (38, "y", 2))
    result = merging(spark, path, source).whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
    assert result.num_candidate_files <= 2
    assert result.num_updated_rows == 2
    narrow = merging(spark, path, source, "t.id = s.id AND t.n < 0").whenMatchedUpdateAll().run()
    assert narrow.num_candidate_files == 0


def test_partitions_that_the_source_does_not_name_are_not_read(spark, tmp_path):
    rows = [(n, f"p{n % 5}", n) for n in range(50)]
    path = make(spark, str(tmp_path / "t"), rows, partition="v", files=1)
    source = source_of(spark, (1, "p1", -1), (3, "p3", -3))
    result = merging(spark, path, source, "t.v = s.v AND t.id = s.id").whenMatchedUpdateAll().run()
    assert (result.num_candidate_files, result.num_updated_rows) == (2, 2)


def test_schema_evolution_adds_columns_and_keeps_those_the_source_has_not(spark, target):
    source = spark.createDataFrame([(3, "s3", "new3"), (50, "s50", "new50")], "id long, v string, extra string").alias(
        "s"
    )
    with pytest.raises(SchemaMismatchError, match="'n'"):
        merging(spark, target, source).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    builder = merging(spark, target, source).whenMatchedUpdateAll().whenNotMatchedInsertAll()
    builder.withSchemaEvolution().execute()
    found = contents(spark, target)
    assert found[3] == ("s3", 3, "new3")
    assert found[50] == ("s50", None, "new50")
    assert found[4] == ("t4", 4, None)


def test_extra_columns_of_the_source_are_left_out_without_it(spark, target):
    source = spark.createDataFrame([(3, "s3", 33, "x")], "id long, v string, n int, extra string").alias("s")
    merging(spark, target, source).whenMatchedUpdateAll().execute()
    assert contents(spark, target)[3] == ("s3", 33)


def test_a_source_that_changes_between_passes_is_read_once(spark, target):
    source = (
        spark.range(100).selectExpr("id", "uuid() AS v", "CAST(rand() * 1000 AS int) AS n").where("n > 500").alias("s")
    )
    result = merging(spark, target, source).whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
    after = contents(spark, target)
    changed = [key for key, value in after.items() if not str(value[0]).startswith("t")]
    assert len(changed) == result.num_source_rows == result.num_inserted_rows + result.num_updated_rows
    assert all(after[key][1] > 500 for key in changed)


def test_columns_bound_to_the_source_work_as_values(spark, target):
    source = spark.createDataFrame([(3, "s3", 1)], "id long, v string, n int")
    table = DeltaTable.forPath(spark, target).alias("t")
    table.merge(source, F.col("t.id") == source["id"]).whenMatchedUpdate(set={"v": source["v"]}).execute()
    assert contents(spark, target)[3] == ("s3", 3)


@pytest.mark.parametrize(
    ("build", "error", "said"),
    [
        (lambda m: m, InvalidArgumentError, "no clause"),
        (lambda m: m.whenMatchedUpdate(set={"zz": "1"}), BindError, "no column 'zz'"),
        (lambda m: m.whenMatchedUpdate(set={"v": "s.missing"}), BindError, "missing"),
        (lambda m: m.whenMatchedUpdate("rand() > 0.5", {"v": "s.v"}), InvalidArgumentError, "not deterministic"),
        (lambda m: m.whenMatchedUpdate(set={"v": "'a'", "t.V": "'b'"}), ConflictingSetError, "sets 'v' twice"),
        (
            lambda m: m.whenNotMatchedInsert(values={"id": "1", "ID": "2"}),
            DuplicateInsertColumnError,
            "sets 'id' twice",
        ),
        (lambda m: m.whenMatchedDelete().whenMatchedUpdateAll(), InvalidArgumentError, "would never run"),
        (lambda m: m.whenNotMatchedInsert(values={"id": "t.id"}), BindError, "t"),
        (lambda m: m.whenMatchedUpdate(set={"n": "array(1)"}), AnalysisException, "DATATYPE_MISMATCH"),
    ],
)
def test_what_cannot_be_merged_is_refused_and_nothing_changes(spark, tmp_path, build, error, said):
    path = make(spark, str(tmp_path / "t"), [(1, "a", 1)])
    with pytest.raises(error) as caught:
        build(merging(spark, path, source_of(spark, (1, "b", 2)))).execute()
    assert said in str(caught.value)
    assert contents(spark, path) == {1: ("a", 1)}


def test_a_clause_without_values_is_refused_when_it_is_made(spark, tmp_path):
    path = make(spark, str(tmp_path / "t"), [(1, "a", 1)])
    with pytest.raises(InvalidArgumentError, match="'set' in whenMatchedUpdate cannot be None"):
        merging(spark, path, source_of(spark, (1, "b", 2))).whenMatchedUpdate()


def test_a_condition_that_fits_nothing_says_which_columns_there_are(spark, tmp_path):
    path = make(spark, str(tmp_path / "t"), [(1, "a", 1)])
    with pytest.raises(BindError, match="The merge condition"):
        merging(spark, path, source_of(spark, (1, "b", 2)), "t.idd = s.id").whenMatchedDelete().execute()


def test_constraints_hold_for_what_is_inserted_and_updated(spark, tmp_path):
    path = make(spark, str(tmp_path / "t"), [(1, "a", 1)], **{"delta.constraints.small": "n < 100"})
    for row in ((1, "b", 1000), (2, "b", 1000)):
        with pytest.raises(ConstraintViolatedError, match="small"):
            merging(spark, path, source_of(spark, row)).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert contents(spark, path) == {1: ("a", 1)}


def test_an_append_only_table_takes_inserts_alone(spark, tmp_path):
    path = make(spark, str(tmp_path / "t"), [(1, "a", 1)], **{"delta.appendOnly": "true"})
    with pytest.raises(UnsafeOperationError):
        merging(spark, path, source_of(spark, (1, "b", 2))).whenMatchedDelete().execute()
    merging(spark, path, source_of(spark, (2, "b", 2))).whenNotMatchedInsertAll().execute()
    assert sorted(contents(spark, path)) == [1, 2]


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_rows_keep_their_ids(spark, tmp_path, vectors):
    from pydelta.engines.spark.scan.scan import Extra, scan_dataframe

    properties = {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": vectors}
    path = make(spark, str(tmp_path / "t"), [(n, f"t{n}", n) for n in range(10)], **properties)

    def tracked():
        frame = scan_dataframe(spark, DeltaLog.for_table(path).update(), pinned=True, extra=Extra.TRACKING)
        return {row["id"]: (row["__pydelta_row_id"], row["__pydelta_row_version"]) for row in frame.collect()}

    before = tracked()
    source = source_of(spark, (3, "s", 1), (77, "s", 1))
    result = merging(spark, path, source).whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
    after = tracked()
    assert {key: after[key][0] for key in before} == {key: value[0] for key, value in before.items()}
    assert {key for key, value in after.items() if value[1] == result.version} == {3, 77}
    assert len({value[0] for value in after.values()}) == 11


def test_merges_one_after_the_other_over_vectors(spark, target):
    expected = contents(spark, target)
    for turn in range(4):
        rows = [(number, f"s{turn}", turn) for number in range(turn, turn + 8)]
        merging(spark, target, source_of(spark, *rows)).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        expected |= dict.fromkeys(range(turn, turn + 8), (f"s{turn}", turn))
    assert contents(spark, target) == expected
