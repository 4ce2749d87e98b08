"""Answer ``DataFrame.inputFiles`` with the files that are left once partitions and statistics have ruled others out."""

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
    """Put the route in place; ``patches.restore_all`` takes it out again."""
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
        if others:  # scans that are not ours: their files are what Spark tells, without all of ours
            left = {**left, **dict.fromkeys(path for path in original(self) if path not in whole)}
        return list(left)

    return input_files


def _left(frame: DataFrame) -> tuple[dict[str, None], set[str], bool] | None:
    """The files of our scans that a query reads, all files of these tables, and whether others may read files too.

    None where no scan is ours.
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
    """Tell whether a filter holds a query, such as the other side of a join that Spark prunes by."""
    return str(expression.nodeName()).startswith("DynamicPruning") or jvm.has_subquery(expression)
