"""What the tests of OPTIMIZE look at: the newest commit, live files, rows, what bounds rule out."""

from __future__ import annotations

import json
from pathlib import Path

from pydelta.log import DeltaLog


def last_commit(path):
    return DeltaLog.for_table(path).history(1)[0].commit_info.fields


def actions(path):
    log = DeltaLog.for_table(path)
    return log.actions(log.update().version)


def adds(path):
    snapshot = DeltaLog.for_table(path).update()
    return snapshot.files.adds(snapshot.files.core)


def rows(spark, path):
    return sorted(map(str, spark.read.format("delta").load(path).collect()))


def parquet_files(path):
    return {str(item.relative_to(path)) for item in Path(path).rglob("*.parquet") if "_delta_log" not in item.parts}


def skipped(path, column, value):
    """Files whose bounds rule a value out."""
    stats = [json.loads(add.stats) for add in adds(path)]
    return sum(not item["minValues"][column] <= value <= item["maxValues"][column] for item in stats)
