"""What is not routed yet says so, in the caller's thread and without a stack of Python or Java."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException

from pydelta.errors import DeltaError, UnsupportedFeatureError

pytestmark = pytest.mark.spark


def _refused(kind, run, *words):
    with pytest.raises(kind) as caught:
        run()
    text = str(caught.value)
    assert isinstance(caught.value, DeltaError)
    assert isinstance(caught.value, AnalysisException)
    assert "Traceback" not in text
    assert "\tat " not in text
    for word in words:
        assert word in text


def test_streams_are_refused_before_they_start(spark, tmp_path):
    rate = spark.readStream.format("rate").load()
    _refused(UnsupportedFeatureError, lambda: spark.readStream.format("delta"), "readStream", "foreachBatch")
    _refused(UnsupportedFeatureError, lambda: rate.writeStream.format("delta"), "writeStream", "foreachBatch")
    start = rate.writeStream.option("checkpointLocation", str(tmp_path / "c")).start
    _refused(UnsupportedFeatureError, lambda: start(str(tmp_path / "t"), format="delta"), "foreachBatch")
