"""Names of the columns that keep row ids."""

from __future__ import annotations

import pytest

from pydelta.protocol.row_tracking import materialized_columns, with_materialized_names
from pydelta.settings import TableProperties

_ID = "delta.rowTracking.materializedRowIdColumnName"
_VERSION = "delta.rowTracking.materializedRowCommitVersionColumnName"


@pytest.mark.parametrize("given", [{}, {"delta.enableRowTracking": "false"}, {"a": "b"}])
def test_a_table_without_tracking_gets_no_names(given):
    assert with_materialized_names(given) == given
    assert materialized_columns(TableProperties.parse(given)) == ()


def test_a_table_with_tracking_gets_two_and_keeps_them():
    once = with_materialized_names({"delta.enableRowTracking": "true", "a": "b"})
    assert set(once) == {"delta.enableRowTracking", "a", _ID, _VERSION}
    assert with_materialized_names(once) == once
    assert materialized_columns(TableProperties.parse(once)) == (once[_ID], once[_VERSION])


def test_a_name_that_a_column_has_is_replaced():
    given = {"delta.enableRowTracking": "true", _ID: "id", _VERSION: "v"}
    made = with_materialized_names(given, taken=["id"])
    assert made[_VERSION] == "v"
    assert made[_ID].startswith("_row-id-col-")
