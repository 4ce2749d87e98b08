"""Run the row work of a MERGE in this process, over a source that Spark has run and stored once.

::

    condition, clauses --exact--> a rule --+-- source small enough: collected as Arrow, once --> find, write
                                           `-- anything else: Spark's plans, and ``ways`` has the reason
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pydelta.commands.change.merge import MergeMatches
from pydelta.commands.change.reconcile import Passed
from pydelta.commands.engine import RewriteOutput
from pydelta.engines.arrow.expressions import SOURCE, Exact, NotHere, source_field, type_of
from pydelta.engines.arrow.merge.merge_rule import ArrowClause, MergeRule, ranges
from pydelta.engines.arrow.merge.merge_source import HeldSource
from pydelta.engines.arrow.merge.merging import ArrowMerge
from pydelta.engines.arrow.tasks.arrow import file_array
from pydelta.engines.arrow.tasks.write_files import WriteTask
from pydelta.engines.spark.change.binding import folded
from pydelta.engines.spark.change.choice import REWRITTEN, SCANNED, ArrowFirst, written_by
from pydelta.engines.spark.change.merge_bind import BoundMerge
from pydelta.engines.spark.scan.filters import Tree
from pydelta.log import Snapshot
from pydelta.predicate.expressions import Column, Expr, fields_of
from pydelta.protocol.schema import to_arrow_type
from pydelta.protocol.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ArrowFirstMerge", "foresee_arrow"]

_MOST_CHANGES: Final = 1 << 26
"""Most rows that change in this process: they take 640 MB."""


class ArrowFirstMerge:
    """Tries the steps of one merge in this process.

    Args:
        spark: The session.
        snapshot: The table.
        schema: Schema of the table after the merge.
        bound: Condition and clauses.
        source: The stored rows of the source.
    """

    def __init__(
        self, spark: SparkSession, snapshot: Snapshot, schema: StructType, bound: BoundMerge, source: DataFrame
    ) -> None:
        self._spark, self._snapshot, self._schema, self._bound = spark, snapshot, schema, bound
        self._frame = source
        self._arrow = ArrowFirst(spark)
        self._merge: ArrowMerge | None = None
        self._filters: list[Expr] = []
        self.rows: pa.Table | None = None
        """The source's rows if this process does the merge, None otherwise."""
        if self._arrow.merge_limit().most_bytes:
            try:
                self._prepare()
            except NotHere as reason:
                self._arrow.ways[SCANNED] = f"spark: {reason}"
                self.rows = None

    @property
    def ways(self) -> Mapping[str, str]:
        """How the steps were done; see ``Engine.ways``."""
        return self._arrow.ways

    @property
    def filters(self) -> Sequence[Expr]:
        """Conditions over the table's keys that are true for every row with a match."""
        return self._filters

    def narrowed(self, files: pl.DataFrame) -> pl.DataFrame:
        """See ``Merging.narrowed``. What is left out has no match in Spark either."""
        return files if self._merge is None else self._merge.narrowed(files)

    def find(self, files: pl.DataFrame) -> MergeMatches | None:
        """Pair rows, or return None if Spark has to. See ``Merging.find``."""
        merge = self._merge
        if merge is None:
            return None
        found = self._arrow.tried(SCANNED, files, lambda: merge.find(files))
        if found is None:
            self._merge = None
        return found

    def write(
        self, files: pl.DataFrame, places: Sequence[int], *, copy_others: bool
    ) -> tuple[RewriteOutput, Passed] | None:
        """Write new rows, or return None if Spark has to. See ``Merging.write``."""
        merge = self._merge
        if merge is None:
            return None
        return self._arrow.tried(REWRITTEN, files, lambda: merge.write(files, places, copy_others=copy_others))

    # --- the rule and the source -----------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._arrow.refuse_session()
        plan = self._frame._jdf.queryExecution().analyzed()
        rule, used = _rule(self._spark, self._snapshot, self._schema, self._bound, plan)
        limit = self._arrow.merge_limit()
        size = _kept_bytes(self._spark, plan)
        if size is None or size > limit.most_bytes:
            raise NotHere(
                f"a source of {'unknown size' if size is None else f'{size} bytes, more than {limit.setting}'}"
            )
        self.rows = self._collected(used)
        self._filters = ranges(rule, [self.rows], {name.lower() for name in self._snapshot.partition_columns})
        task = self._arrow.write_task(self._snapshot)
        self._merge = _merge_of(self._snapshot, rule, self.rows, task)

    def _collected(self, used: Mapping[int, Column]) -> pa.Table:
        """Collect the source's rows, converting the columns that are read to the table's types."""
        try:
            found = self._frame.toArrow()
            columns = []
            for place, column in enumerate(found.columns):
                if place in used:
                    target = to_arrow_type(type_of(used[place]))
                    chunks = [file_array(chunk, target) for chunk in column.chunks]
                    columns.append(pa.chunked_array(chunks, type=target))
                else:
                    columns.append(column)
        except (PySparkException, Py4JError, pa.ArrowException) as error:
            raise NotHere("a source that Arrow does not hold") from error
        return pa.Table.from_arrays(columns, names=[str(place) for place in range(len(columns))])


def foresee_arrow(
    spark: SparkSession, snapshot: Snapshot, schema: StructType, bound: BoundMerge, source: DataFrame
) -> str:
    """Predict how a merge would be done, as far as this is known before its source is run. See ``ArrowFirstMerge``."""
    first = ArrowFirst(spark)
    limit = first.merge_limit()
    if not limit.most_bytes:
        return f"spark: {limit.setting} is 0"
    try:
        first.refuse_session()
        rule, _ = _rule(spark, snapshot, schema, bound, source._jdf.queryExecution().analyzed())
        task = first.write_task(snapshot)
        _merge_of(snapshot, rule, pa.table({}), task)
    except NotHere as reason:
        return f"spark: {reason}"
    files = first.limit().setting
    if files == limit.setting:
        return f"arrow, if the source and the files that its keys leave are not more than {files}"
    return f"arrow, if the source is not more than {limit.setting}, and the files that its keys leave than {files}"


def _merge_of(snapshot: Snapshot, rule: MergeRule, rows: pa.Table, task: WriteTask) -> ArrowMerge:
    place = written_by(task)
    return ArrowMerge(snapshot, rule, HeldSource(rows, rule), task=task, place=place, most_changes=_MOST_CHANGES)


def _rule(
    spark: SparkSession, snapshot: Snapshot, schema: StructType, bound: BoundMerge, source: Any
) -> tuple[MergeRule, dict[int, Column]]:
    """Build the merge's rule for this process, and find the source columns that it reads, by their places.

    Raises:
        NotHere: Spark has to do it.
    """
    if schema != snapshot.schema:
        raise NotHere("a merge that changes the schema")
    output = source.output()
    ids: dict[int, tuple[str, ...]] = dict.fromkeys(bound.columns.ids, ())
    ids |= {int(output.apply(place).exprId().id()): (SOURCE, str(place)) for place in range(output.size())}

    def read(expression: Any) -> Exact:
        return Tree.of(expression).exact(snapshot.schema, ids)

    clauses = []
    for item in bound.clauses:
        values: dict[str, Exact] = {}
        for assignment in () if item.values is None else item.values.items:
            if len(assignment.path) > 1 or assignment.expression is None:
                raise NotHere("a field in a struct that is set")
            values[assignment.path[0]] = read(assignment.expression.expression)
        condition = None if item.condition is None else read(folded(spark, item.condition))
        clauses.append(ArrowClause(on=item.clause.on, action=item.clause.action, condition=condition, values=values))
    rule = MergeRule.of(read(folded(spark, bound.condition)), clauses)
    fields = _fields(rule)
    used = {int(item.path[1]): item for item in fields if len(item.path) == len((SOURCE, ""))}
    if {int(item.path[1]) for item in fields} - used.keys():
        raise NotHere("a field in a struct of the source")
    return rule, used


def _fields(rule: MergeRule) -> list[Column]:
    """Return the source's columns that a rule reads."""
    parts = [part for key in rule.keys for part in key] + list(rule.rest)
    for clause in rule.clauses:
        parts += [*clause.values.values(), *([clause.condition] if clause.condition is not None else [])]
    return [item for part in parts for item in fields_of(part) if source_field(item.path)]


def _kept_bytes(spark: SparkSession, plan: Any) -> int | None:
    """Return the size of the stored rows in Spark's block manager, or None if it is unknown."""
    while str(plan.nodeName()) == "SubqueryAlias":
        plan = plan.child()
    if str(plan.nodeName()) != "LogicalRDD":
        return None
    number = int(plan.rdd().id())
    for info in spark.sparkContext._jsc.sc().getRDDStorageInfo():
        if int(info.id()) == number:
            return int(info.memSize()) + int(info.diskSize())
    return None
