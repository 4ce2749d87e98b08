"""What is not routed yet says so, in the caller's thread and without a stack of Python or Java."""

from __future__ import annotations

import inspect

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


def test_streams_in_modes_without_batches_are_refused_before_they_start(spark, tmp_path):
    spark.range(1).write.format("delta").save(str(tmp_path / "t"))
    rate = spark.readStream.format("rate").load()
    table = spark.readStream.format("delta").load(str(tmp_path / "t"))
    for stream, sink in ((rate, "delta"), (table, "noop")):
        for trigger, name in (
            ({"realTime": "5 minutes"}, "real-time mode"),
            ({"continuous": "1 second"}, "continuous"),
        ):
            if next(iter(trigger)) not in inspect.signature(stream.writeStream.trigger).parameters:
                continue  # Spark 4.1 has no real-time mode
            writer = (
                stream.writeStream.format(sink).option("checkpointLocation", str(tmp_path / "c")).trigger(**trigger)
            )
            _refused(UnsupportedFeatureError, lambda writer=writer: writer.start(str(tmp_path / "o")), name, "commits")
