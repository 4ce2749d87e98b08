"""Match a table's rows with those of an overwrite by replaceUsing or replaceOn, with one join.

::

    condition over table and data: resolved once, clock and zone frozen
    the data, stored at this point ------------------------------+
    candidate files (ranges of the keys): what it reads --join, once--> rows of files

The rows that are matched are those that are written, because both read the stored data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

import polars as pl
from pyspark import StorageLevel
from pyspark.sql import Column

from pydelta.commands.write.matches import key_columns
from pydelta.commands.write.options import StatementCondition, WriteOptions
from pydelta.engines.spark.change.assignments import to_column
from pydelta.engines.spark.change.binding import Moment, SparkColumns, folded
from pydelta.engines.spark.change.merge_bind import bind_pairing, qualified
from pydelta.engines.spark.change.merge_keys import keys_of, ranges_of, target_conjuncts
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.lost_rows import reading_kept
from pydelta.engines.spark.own_settings import exact_filters
from pydelta.engines.spark.scan.deleted_rows import collect_rows
from pydelta.engines.spark.scan.scan import FILE_ROW_COLUMN, ROW_INDEX_COLUMN, Extra, scan_dataframe
from pydelta.engines.spark.types import from_spark
from pydelta.engines.spark.write.columns import stored
from pydelta.predicate import Expr
from pydelta.protocol.row_sets import RowSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pydelta.log import Snapshot

__all__ = ["SparkMatching"]

_TARGET, _SOURCE = "__pydelta_target", "__pydelta_source"
_COMMAND: Final = "the overwrite"


class SparkMatching:
    """See ``Matching``. The data is computed on construction, once the condition is known to fit.

    Args:
        spark: The session.
        snapshot: The table.
        raw: The rows as given by the user, for ``replaceOn``.
        shaped: The same rows with the table's column names, for ``replaceUsing``.
        options: Decides between the two.
    """

    def __init__(
        self, spark: SparkSession, snapshot: Snapshot, raw: DataFrame, shaped: DataFrame, options: WriteOptions
    ) -> None:
        self._spark = spark
        self._jvm = Jvm.of(spark)
        self._snapshot = snapshot
        moment = Moment(spark)
        alias = options.target_alias
        if options.replace_using is not None:
            rows, condition = shaped.alias(_SOURCE), self._keys(options.replace_using, raw, shaped)
        else:
            given = options.replace_on
            rows = raw
            condition = to_column(given.native if isinstance(given, StatementCondition) else given, "replaceOn")
        self._table = self._scan(None).alias(alias or _TARGET)
        self._condition = bind_pairing(
            moment,
            self._table.join(rows),
            condition,
            "The condition of replaceUsing" if options.replace_using is not None else "The condition of replaceOn",
            aliases="name the table with the option targetAlias (in SQL, with AS behind it) and the data with df.alias",
        )
        self._columns = SparkColumns(self._table)
        self._columns.used_in(self._condition)
        self.source = _kept(moment, rows)
        self._count: int | None = None

    def _keys(self, given: Sequence[str], raw: DataFrame, shaped: DataFrame) -> Column:
        """Build the condition that the columns of ``replaceUsing`` are equal, as the table will store them."""
        schema, data = self._snapshot.schema, from_spark(shaped.schema)
        pairs = []
        for key in key_columns(given, schema, data, raw.columns):
            field, its = schema.field(key), data.field(key)
            assert field is not None
            assert its is not None
            pairs.append(qualified(_TARGET, key) == stored(qualified(_SOURCE, its.name), its.data_type, field))
        return reduce(lambda left, right: left & right, pairs)

    def count_rows(self) -> int:
        """See ``Matching.count_rows``."""
        if self._count is None:
            with reading_kept(self._snapshot.table_uri, _COMMAND):
                self._count = self.source.count()
        return self._count

    def filters(self) -> Sequence[Expr]:
        """See ``Matching.filters``: the range of each key, or its single values for a partition column with few."""
        condition = folded(self._spark, self._condition)
        partitions = frozenset(item.lower() for item in self._snapshot.partition_columns)
        keys = list(keys_of(self._jvm, condition, self._table))
        return [
            *target_conjuncts(condition, self._table),
            *ranges_of(self._jvm, self.source, keys, partitions),
        ]

    def rows_in(self, snapshot: Snapshot, files: pl.DataFrame) -> Mapping[int, RowSet]:
        """See ``Matching.rows_in``."""
        target = self._columns.over(self._scan(files))
        rows = target.join(self.source, self._condition.column, "left_semi")
        with exact_filters(self._spark), reading_kept(snapshot.table_uri, _COMMAND):
            return collect_rows(rows, file_column=FILE_ROW_COLUMN, row_column=ROW_INDEX_COLUMN)

    def _scan(self, files: pl.DataFrame | None) -> DataFrame:
        extra = Extra.NONE if files is None else Extra.PLACE
        return scan_dataframe(self._spark, self._snapshot, pinned=True, files=files, extra=extra)


def _kept(moment: Moment, rows: DataFrame) -> DataFrame:
    """Materialize the rows, keeping their alias and the ids of their columns."""
    plan = rows._jdf.queryExecution().analyzed()
    kept = moment.source(rows).localCheckpoint(True, StorageLevel.MEMORY_AND_DISK)
    return kept.alias(str(plan.alias())) if str(plan.nodeName()) == "SubqueryAlias" else kept
