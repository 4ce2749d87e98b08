"""Let the rows of ``createDataFrame([…])`` reach the JVM without a Python worker.

PySpark writes a list as pickled batches for the JVM. They are labelled as batches of one fixed size, and what is
handed to the JVM must be labelled as of any size, so PySpark sends each batch through a Python worker that only copies
it. The bytes are the same in both: each batch is one pickled list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.core.rdd import RDD
from pyspark.serializers import AutoBatchedSerializer, BatchedSerializer, CPickleSerializer
from pyspark.sql import SparkSession

from pydelta.engines.spark.session.patches import is_enabled, patch

__all__ = ["install"]

_METHOD = "_createFromLocal"


def install() -> None:
    """Install the route where PySpark has the method. ``patches.restore_all`` removes it."""
    if _METHOD in vars(SparkSession):
        patch(SparkSession, _METHOD, _create)


def _create(original: Callable[..., Any]) -> Callable[..., Any]:
    def create(self: SparkSession, data: Any, schema: Any) -> Any:
        rdd, struct = original(self, data, schema)
        if is_enabled(self) and type(rdd) is RDD and _is_pickled(rdd._jrdd_deserializer):
            rdd._jrdd_deserializer = AutoBatchedSerializer(CPickleSerializer())
        return rdd, struct

    return create


def _is_pickled(serializer: Any) -> bool:
    return type(serializer) is BatchedSerializer and type(serializer.serializer) is CPickleSerializer
