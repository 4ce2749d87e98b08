"""The table of cases: which counts of a command add up, and what is said of those that do not."""

from __future__ import annotations

import pytest

from pydelta.commands.change.reconcile import Passed, RowCounts, check_rows, reconcile
from pydelta.errors import ObjectNotFoundError, RowsDoNotAddUpError

ADDS_UP = [
    # copies
    RowCounts(live=10, deleted=3, written=7),
    RowCounts(live=10, deleted=10, written=0),
    RowCounts(live=10, deleted=3, written=7, changes=3),
    RowCounts(live=10, updated=4, written=10),
    RowCounts(live=10, updated=4, written=10, changes=8),
    RowCounts(live=10, updated=10, written=10),
    RowCounts(live=10, updated=2, deleted=3, inserted=5, written=12),
    RowCounts(live=10, updated=2, deleted=3, inserted=5, written=12, changes=12),
    RowCounts(live=0, inserted=5, written=5, changes=5),
    RowCounts(live=0, written=0),
    # deletion vectors
    RowCounts(live=10, deleted=3, hidden=3, written=0),
    RowCounts(live=10, updated=4, hidden=4, written=4),
    RowCounts(live=10, updated=4, hidden=4, written=4, changes=8),
    RowCounts(live=10, updated=2, deleted=3, inserted=5, hidden=5, written=7, changes=12),
    RowCounts(live=10, deleted=10, hidden=10, written=0),
    # what a merge counted on the way
    RowCounts(live=10, updated=2, inserted=5, written=15, passed=Passed(copied=8, updated=2, inserted=5)),
    RowCounts(
        live=10,
        updated=2,
        deleted=3,
        inserted=5,
        written=12,
        source=9,
        paired=4,
        passed=Passed(copied=5, updated=2, inserted=5, source=9, paired=4),
    ),
    RowCounts(live=10, updated=2, hidden=2, written=2, source=9, passed=Passed(updated=2)),
]
DOES_NOT = [
    (
        RowCounts(live=10, deleted=3, written=6),
        "6 rows were written where 0 updated, 7 copied and 0 inserted ones",
    ),
    (RowCounts(live=10, deleted=3, written=8), "8 rows were written"),
    (RowCounts(live=10, deleted=11, written=0), "11 rows matched in files that hold 10"),
    (RowCounts(live=10, updated=4, written=9), "9 rows were written where 4 updated, 6 copied"),
    (RowCounts(live=10, updated=4, written=11), "11 rows were written"),
    (RowCounts(live=10, deleted=3, written=7, changes=2), "the change data feed has 2 rows but should have 3"),
    (RowCounts(live=10, updated=4, written=10, changes=4), "the change data feed has 4 rows but should have 8"),
    (RowCounts(live=10, updated=2, deleted=3, inserted=5, written=11), "5 inserted ones make 12"),
    (RowCounts(live=0, inserted=5, written=4), "4 rows were written"),
    (RowCounts(live=10, updated=4, hidden=3, written=4), "deletion vectors hide 3 rows where 4 matched"),
    (RowCounts(live=10, updated=4, hidden=5, written=4), "deletion vectors hide 5 rows where 4 matched"),
    (RowCounts(live=10, updated=4, hidden=4, written=5), "5 rows were written where 4 updated, 0 copied"),
    (RowCounts(live=10, updated=4, hidden=4, written=3), "3 rows were written"),
    (RowCounts(live=10, deleted=3, hidden=3, written=1), "1 rows were written"),
    (RowCounts(live=10, updated=4, hidden=4, written=4, changes=7), "has 7 rows but should have 8"),
    (
        RowCounts(live=10, updated=2, written=10, passed=Passed(copied=9, updated=1)),
        "1 rows were updated but should be 2; 9 rows were copied but should be 8",
    ),
    (
        RowCounts(live=0, inserted=2, written=2, source=2, passed=Passed(inserted=2, source=3)),
        "3 rows were looked at in the source but should be 2",
    ),
    (
        RowCounts(live=0, inserted=2, written=2, source=3, paired=2, passed=Passed(inserted=2, source=3, paired=1)),
        "1 rows were left out of the source for their pairs but should be 2",
    ),
]


@pytest.mark.parametrize("counts", ADDS_UP)
def test_counts_that_add_up_pass(counts):
    reconcile(counts)


@pytest.mark.parametrize(("counts", "message"), DOES_NOT)
def test_counts_that_do_not_add_up_are_named(counts, message):
    with pytest.raises(RowsDoNotAddUpError, match=message) as caught:
        reconcile(counts, table="s3://b/t")
    assert caught.value.table == "s3://b/t"
    assert "Nothing was committed" in str(caught.value)


def test_each_wrong_sum_is_named():
    with pytest.raises(RowsDoNotAddUpError) as caught:
        reconcile(RowCounts(live=10, updated=4, hidden=3, written=5, changes=1))
    assert str(caught.value).count(";") >= 2


def test_copied_rows_are_what_is_left():
    assert RowCounts(live=10, deleted=2, updated=3, written=8).copied == 5
    assert RowCounts(live=10, deleted=2, updated=3, written=3, hidden=5).copied == 0


def test_the_footers_have_the_last_word(caplog):
    said = RowCounts(live=9, deleted=3, written=7)
    assert check_rows(said, lambda: 10, table="t") == RowCounts(live=10, deleted=3, written=7)
    assert "9 live rows, and their footers say 10" in caplog.text
    with pytest.raises(RowsDoNotAddUpError):
        check_rows(said, lambda: 9)
    with pytest.raises(RowsDoNotAddUpError, match="8 copied"):
        check_rows(said, lambda: 11)


def test_footers_that_cannot_be_read_do_not_hide_what_is_wrong():
    def recount():
        raise ObjectNotFoundError("gone")

    with pytest.raises(RowsDoNotAddUpError, match="6 copied") as caught:
        check_rows(RowCounts(live=9, deleted=3, written=7), recount)
    assert isinstance(caught.value.__cause__, ObjectNotFoundError)


def test_footers_are_not_read_when_the_log_adds_up():
    def recount():
        raise AssertionError("a request for nothing")

    counts = RowCounts(live=10, deleted=3, written=7)
    assert check_rows(counts, recount) is counts
