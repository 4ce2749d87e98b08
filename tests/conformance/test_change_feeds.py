"""The change feed of every table of the corpus that has one, row for row as the reference engine reads it."""

from __future__ import annotations

import pytest

from pydelta.errors import ChangeDataNotRecordedError
from tests.conformance.test_rows import FOLDER, _as_arrow, _canon, _index

pytestmark = pytest.mark.spark

# The reference engine leaves out that version 5 deletes row 3 by a vector and version 6 brings it back. By the rows of
# versions 4, 5 and 6 (8, 9 and 10 of them) both happened, and delta-rs reads both.
_TWO_MORE = "kernel-rs__data__cdf-table-with-dv"


def _cases():
    return [case for case in _index() if case.get("cdf")]


def _feed(spark, case):
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    return reader.option("startingVersion", case["cdf"]["startingVersion"]).load(str(FOLDER / "tables" / case["id"]))


def test_the_corpus_has_feeds():
    assert len(_cases()) == 16


@pytest.mark.parametrize("case", _cases(), ids=lambda case: case["id"])
def test_the_feed_is_the_one_the_reference_engine_reads(spark, case):
    expected = case["cdf"]
    if "condition" in expected:
        assert expected["condition"] == ChangeDataNotRecordedError.code
        with pytest.raises(ChangeDataNotRecordedError, match="version 0"):
            _feed(spark, case)
        return
    if case["id"] == _TWO_MORE:
        rows = _feed(spark, case).where("_commit_version >= 5").collect()
        found = sorted((row["_commit_version"], row["_change_type"], row["value"]) for row in rows)
        assert found == [(5, "delete", 3), (5, "insert", 0), (5, "insert", 5), (6, "insert", 3)]
        return
    found = _canon().fix_types(_as_arrow(_feed(spark, case).drop("_commit_timestamp")))
    assert found.num_rows == expected["rows"]
    assert _canon().canon(found) == expected["rows_hash"]
