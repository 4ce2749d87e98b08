"""Answer ``DataFrame.inputFiles`` with the files that remain after pruning by partitions and statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import user_errors
from pydelta.engines.spark.scan.index import find_index
from pydelta.engines.spark.session.patches import is_enabled, patch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["install"]

_FILE_SCAN: Final = "FileSourceScanExec"
_WITHOUT_FILES: Final = (
    "InMemoryTableScanExec",
    "LocalTableScanExec",
    "OneRowRelationExec",
    "RangeExec",
)


def install() -> None:
    """Install the route; ``patches.restore_all`` removes it."""
    patch(ClassicFrame, "inputFiles", _input_files)


def _input_files(original: Callable[..., list[str]]) -> Callable[..., list[str]]:
    def input_files(self: DataFrame) -> list[str]:
        if not is_enabled(self.sparkSession):
            return original(self)
        with user_errors():
            found = _left(self)
        if found is None:
            return original(self)
        left, whole, others = found
        if others:
            # Spark lists the files of scans that are not ours, together with all files of our tables.
            left = {**left, **dict.fromkeys(path for path in original(self) if path not in whole)}
        return list(left)

    return input_files


def _left(frame: DataFrame) -> tuple[dict[str, None], set[str], bool] | None:
    """Return the remaining files of our scans, all files of these tables, and whether other scans may read files.

    Returns None if no scan is ours.
    """
    jvm = Jvm.of(frame.sparkSession)
    left: dict[str, None] = {}
    scans, others = [], False
    for leaf in jvm.to_list(frame._jdf.queryExecution().sparkPlan().collectLeaves()):
        kind = str(leaf.getClass().getSimpleName())
        index = find_index(leaf.relation().location()) if kind == _FILE_SCAN else None
        if index is None:
            others = others or kind not in _WITHOUT_FILES
            continue
        scans.append(index)
        known = [item for item in jvm.to_list(leaf.partitionFilters()) if not _decided_later(jvm, item)]
        left |= dict.fromkeys(index.paths(jvm.seq(known), leaf.dataFilters()))
    if not scans:
        return None
    whole = {path for index in scans for path in index.paths(jvm.seq([]), jvm.seq([]))} if others else set()
    return left, whole, others


def _decided_later(jvm: Jvm, expression: Any) -> bool:
    """Return whether a filter contains a query, such as the other side of a join in dynamic pruning."""
    return str(expression.nodeName()).startswith("DynamicPruning") or jvm.has_subquery(expression)
