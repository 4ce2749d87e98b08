"""What users of Delta branch on: condition, SQLSTATE, parameters and class of the errors of a session."""

from __future__ import annotations

import pytest
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    ParseException,
    PySparkException,
    UnsupportedOperationException,
)

from pydelta.errors import ConstraintViolatedError, DeltaError
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def at(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("conditions") / "t")
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id INT NOT NULL, v VARCHAR(3), s STRUCT<a: INT, b: STRING>, g STRING, "
        "CONSTRAINT pos CHECK (id > 0)) USING delta PARTITIONED BY (g)"
    )
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'a', named_struct('a', 1, 'b', 'x'), 'p'), (2, 'b', NULL, 'q')")
    return path


CASES = {
    "UPDATE {t} SET id = 1, ID = 2": ("DELTA_CONFLICT_SET_COLUMN", "42701", AnalysisException),
    "UPDATE {t} SET nope = 1": ("UNRESOLVED_COLUMN.WITH_SUGGESTION", "42703", AnalysisException),
    "UPDATE {t} SET s = named_struct('c', 1)": (
        "DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION",
        "42846",
        AnalysisException,
    ),
    "MERGE INTO {t} t USING (SELECT 1 AS id) q ON t.id = q.nope WHEN MATCHED THEN DELETE": (
        "DELTA_MERGE_UNRESOLVED_EXPRESSION",
        "42601",
        AnalysisException,
    ),
    "MERGE INTO {t} t USING (SELECT 1 AS id) q ON t.id = q.id WHEN MATCHED THEN UPDATE SET nope = 1": (
        "DELTA_MERGE_UNRESOLVED_EXPRESSION",
        "42601",
        AnalysisException,
    ),
    "MERGE INTO {t} t USING (SELECT 1 AS id) q ON t.id = q.id WHEN NOT MATCHED THEN INSERT (id) VALUES (q.nope)": (
        "DELTA_MERGE_UNRESOLVED_EXPRESSION",
        "42601",
        AnalysisException,
    ),
    "UPDATE {t} SET s.nope = 1": ("FIELD_NOT_FOUND", "42704", AnalysisException),
    "DELETE FROM {t} WHERE nope = 1": ("UNRESOLVED_COLUMN.WITH_SUGGESTION", "42703", AnalysisException),
    "DELETE FROM {t} WHERE rand() < 2": ("INVALID_NON_DETERMINISTIC_EXPRESSIONS", "42K0E", AnalysisException),
    "DELETE FROM {t} WHERE id IN (SELECT 1)": ("DELTA_UNSUPPORTED_SUBQUERY", "0AKDC", AnalysisException),
    "INSERT INTO {t} VALUES (0, 'a', NULL, 'p')": ("DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", "23001", PySparkException),
    "INSERT INTO {t} VALUES (NULL, 'a', NULL, 'p')": ("DELTA_NOT_NULL_CONSTRAINT_VIOLATED", "23502", PySparkException),
    "INSERT INTO {t} VALUES (1, 'long', NULL, 'p')": ("DELTA_EXCEED_CHAR_VARCHAR_LIMIT", "22001", PySparkException),
    "INSERT INTO {t} REPLACE WHERE g = 'p' VALUES (9, 'a', NULL, 'q')": (
        "DELTA_REPLACE_WHERE_MISMATCH",
        "44000",
        AnalysisException,
    ),
    "SELECT * FROM {t} VERSION AS OF 99": ("DELTA_VERSION_NOT_FOUND", "22003", AnalysisException),
    "SELECT * FROM {t} TIMESTAMP AS OF '2001-01-01'": (
        "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION",
        "42816",
        AnalysisException,
    ),
    "RESTORE TABLE {t} TO VERSION AS OF 99": ("DELTA_CANNOT_RESTORE_TABLE_VERSION", "22003", AnalysisException),
    "RESTORE TABLE {t} TO TIMESTAMP AS OF '2001-01-01'": (
        "DELTA_CANNOT_RESTORE_TIMESTAMP_EARLIER",
        "22003",
        AnalysisException,
    ),
    "OPTIMIZE {t} ZORDER BY (nope)": ("DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST", "42703", IllegalArgumentException),
    "OPTIMIZE {t} FULL": ("DELTA_OPTIMIZE_FULL_NOT_SUPPORTED", "42601", UnsupportedOperationException),
    "OPTIMIZE {t} ZRDER BY (id)": ("PARSE_SYNTAX_ERROR", "42601", ParseException),
    "OPTIMIZE nope_table": ("TABLE_OR_VIEW_NOT_FOUND", "42P01", AnalysisException),
    "GENERATE nope FOR TABLE {t}": ("DELTA_MODE_NOT_SUPPORTED", "0AKDC", IllegalArgumentException),
    "ALTER TABLE {t} ADD COLUMN v STRING": ("FIELD_ALREADY_EXISTS", "42710", AnalysisException),
    "ALTER TABLE {t} RENAME COLUMN v TO w": ("DELTA_UNSUPPORTED_RENAME_COLUMN", "0AKDC", AnalysisException),
    "ALTER TABLE {t} ALTER COLUMN id TYPE SMALLINT": ("NOT_SUPPORTED_CHANGE_COLUMN", "0A000", AnalysisException),
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.nope' = '1')": (
        "DELTA_UNKNOWN_CONFIGURATION",
        "F0000",
        AnalysisException,
    ),
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'maybe')": (
        "DELTA_INVALID_PROPERTY_VALUE",
        "22023",
        IllegalArgumentException,
    ),
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 1 day')": (
        "DELTA_INVALID_PROPERTY_VALUE",
        "22023",
        IllegalArgumentException,
    ),
    "ALTER TABLE {t} ADD CONSTRAINT pos CHECK (id > 1)": (
        "DELTA_CONSTRAINT_ALREADY_EXISTS",
        "42710",
        AnalysisException,
    ),
    "ALTER TABLE {t} ADD CONSTRAINT x CHECK (id > 1)": (
        "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION",
        "23512",
        AnalysisException,
    ),
    "ALTER TABLE {t} ADD CONSTRAINT x CHECK (id + 1)": (
        "DELTA_NON_BOOLEAN_CHECK_CONSTRAINT",
        "42621",
        AnalysisException,
    ),
    "ALTER TABLE {t} ADD CONSTRAINT __Char_Varchar_String_Length_Check__ CHECK (id > 0)": (
        "DELTA_INVALID_CONSTRAINT_NAME",
        "42939",
        AnalysisException,
    ),
}


@pytest.mark.parametrize("statement", CASES)
def test_a_statement_is_refused_by_the_name_that_delta_has_for_it(spark, at, statement):
    condition, state, kind = CASES[statement]
    with pytest.raises(PySparkException) as caught:
        spark.sql(statement.replace("{t}", f"delta.`{at}`")).collect()
    error = caught.value
    assert isinstance(error, DeltaError)
    assert error.hint or kind is ParseException, "ours say what to do next"
    assert (error.getCondition(), error.getSqlState()) == (condition, state)
    assert isinstance(error, kind)
    assert str(error).startswith(f"[{condition}] ")


def test_parameters_say_what_it_is_about(spark, at):
    def parameters(run):
        with pytest.raises(PySparkException) as caught:
            run()
        return caught.value.getMessageParameters()

    t = f"delta.`{at}`"
    assert parameters(lambda: spark.sql(f"SELECT * FROM {t} VERSION AS OF 99").collect()) == {
        "userVersion": "99",
        "earliest": "0",
        "latest": "1",
    }
    broken = parameters(lambda: spark.sql(f"INSERT INTO {t} VALUES (-5, 'a', NULL, 'p')"))
    assert (broken["constraintName"], broken["expression"]) == ("pos", "id > 0")
    assert '"id":-5' in broken["values"]
    unresolved = parameters(lambda: spark.sql(f"DELETE FROM {t} WHERE nope = 1"))
    assert unresolved["objectName"] == "`nope`"


def test_a_broken_rule_is_a_class_of_ours_too(spark, at):
    with pytest.raises(ConstraintViolatedError, match="CHECK constraint 'pos'"):
        spark.sql(f"INSERT INTO delta.`{at}` VALUES (0, 'a', NULL, 'p')")


def test_two_source_rows_for_one_have_the_name_that_delta_has(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.range(3).write.format("delta").save(path)
    table = DeltaTable.forPath(spark, path)
    source = spark.sql("SELECT CAST(1 AS BIGINT) AS id, 'a' AS v UNION ALL SELECT 1, 'b'")
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id").whenMatchedUpdate(set={"id": "s.id + 10"})
    with pytest.raises(UnsupportedOperationException) as caught:
        merge.execute()
    assert caught.value.getCondition() == "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"
    assert caught.value.getSqlState() == "21506"


def test_types_of_a_protocol_to_come_name_the_feature_that_brings_them(spark, tmp_path):
    with pytest.raises(UnsupportedOperationException, match="geospatial") as caught:
        spark.sql(f"CREATE TABLE delta.`{tmp_path}/g` (id INT, at GEOMETRY(4326)) USING delta")
    assert caught.value.getCondition() == "DELTA_GEOSPATIAL_NOT_SUPPORTED"
    assert caught.value.features == ("geospatial",)


def test_a_log_kept_shorter_than_files_is_refused_when_a_table_is_made(spark, tmp_path):
    with pytest.raises(IllegalArgumentException, match="deletedFileRetentionDuration"):
        spark.sql(
            f"CREATE TABLE delta.`{tmp_path}/r` (id INT) USING delta TBLPROPERTIES "
            "('delta.deletedFileRetentionDuration' = 'interval 60 days')"
        )
    spark.sql(
        f"CREATE TABLE delta.`{tmp_path}/r` (id INT) USING delta TBLPROPERTIES "
        "('delta.deletedFileRetentionDuration' = 'interval 30 days')"
    )
