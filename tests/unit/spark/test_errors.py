"""Errors that Spark users catch are of both families."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, ParseException, PySparkException

from pydelta import errors
from pydelta.spark.errors import to_spark


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (errors.TableNotFoundError("t", hint="h"), AnalysisException),
        (errors.TableAlreadyExistsError("t"), AnalysisException),
        (errors.SchemaMismatchError("s"), AnalysisException),
        (errors.BindError("b"), AnalysisException),
        (errors.ParseError("p", line=2, column=5), ParseException),
        (errors.VersionNotFoundError("v"), AnalysisException),
        (errors.UnsupportedFeatureError("u", features=("x",)), AnalysisException),
    ],
)
def test_a_user_error_is_also_what_spark_raises(error, base):
    error.table = "/data/t"
    twin = to_spark(error)
    assert isinstance(twin, type(error)) and isinstance(twin, base)
    assert str(twin) == str(error)
    assert twin.getCondition() == error.code
    assert (twin.hint, twin.table, twin.args) == (error.hint, error.table, error.args)
    assert to_spark(twin) is twin


def test_what_the_class_adds_is_kept():
    assert to_spark(errors.ParseError("p", line=2, column=5)).column == 5
    assert to_spark(errors.UnsupportedFeatureError("u", features=("x",))).features == ("x",)


@pytest.mark.parametrize(
    "error", [errors.ConcurrentAppendException("c"), errors.StorageError("s"), errors.LogCorruptedError("l")]
)
def test_conflicts_storage_and_corruption_stay_as_they_are(error):
    assert to_spark(error) is error
    assert not isinstance(error, PySparkException)
