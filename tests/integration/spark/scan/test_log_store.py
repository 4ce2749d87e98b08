"""A log store of the user's own, named in a setting, serves the commit as well as the tasks."""

from __future__ import annotations

import pytest

from pydelta.errors import InvalidArgumentError
from pydelta.storage import LocalStore

pytestmark = [pytest.mark.spark, pytest.mark.damages_tables]


def open_shelf(uri, options):
    """Serves ``shelf:///path`` from local disk."""
    return LocalStore("file://" + uri.removeprefix("shelf://"))


def test_a_store_named_in_a_setting_keeps_the_log(spark, tmp_path):
    from pydelta.engines.spark.logs import log_for_path

    spark.conf.set("spark.pydelta.logStore.shelf", f"{__name__}:open_shelf")
    try:
        assert log_for_path(spark, f"shelf://{tmp_path}/t").store.root == (tmp_path / "t").as_uri()
        spark.conf.set("spark.pydelta.logStore.shelf", "no.such:thing")
        with pytest.raises(InvalidArgumentError, match=r"spark\.pydelta\.logStore\.shelf"):
            log_for_path(spark, f"shelf://{tmp_path}/other")
    finally:
        spark.conf.unset("spark.pydelta.logStore.shelf")
