"""The test with which a worker of ``session.py`` begins: it starts the session that all mutants use."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.scan.newest import follow_newest


@pytest.mark.spark
def test_a_session_is_there(spark: SparkSession) -> None:
    follow_newest(Jvm.of(spark))  # The session has this rule once: that of a child would end with it.
    assert spark.version
