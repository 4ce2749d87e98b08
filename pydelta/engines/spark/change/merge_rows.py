"""Compute the rows that a merge writes, from its pairs of rows and the source rows without one.

::

    rows of touched files --no clause-----> copied, column by column
                          --UPDATE--------> the clause's values; generated columns made of them computed
                          --DELETE--------> none, except a row of the change data feed
    source rows in no pair --INSERT-------> the clause's values; defaults, generated and identity columns computed

Each row keeps the number of its clause to the end, which decides what is checked and computed for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from pydelta.commands.change.merge import ClauseAction, ClauseOn
from pydelta.engines.spark.change.binding import Moment
from pydelta.engines.spark.change.merge_bind import BoundMerge, qualified
from pydelta.engines.spark.change.update import recomputed
from pydelta.engines.spark.scan.scan import FILE_ROW_COLUMN, ROW_INDEX_COLUMN
from pydelta.engines.spark.write.columns import Brought, Generated, absent, as_type, cast_parts, conform, name
from pydelta.engines.spark.write.identity import GivenValues, with_identities
from pydelta.engines.spark.write.observed import observing
from pydelta.engines.spark.write.writer import CHANGE_COLUMN
from pydelta.protocol.identity import identities
from pydelta.protocol.row_tracking import ROW_ID_COLUMN, ROW_VERSION_COLUMN
from pydelta.protocol.types import StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pydelta.log import Snapshot

__all__ = ["CLAUSE", "FILE", "ROW", "SOURCE", "SOURCE_ROW", "MergedRows"]

SOURCE_ROW: Final = "__pydelta_source_row"
"""The source's column with row numbers."""

FILE: Final = "__pydelta_c_file"
ROW: Final = "__pydelta_c_row"
SOURCE: Final = "__pydelta_c_source"
CLAUSE: Final = "__pydelta_clause"
"""Columns of a pair: the file, its row, the source's row, and the clause that applies."""

_COPIED: Final = "__pydelta_copied"
_NEW: Final = "__pydelta_new"
_GIVEN: Final = "__pydelta_given_"
_GENERATION: Final = "delta.generationExpression"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedRows:
    """Builds the rows of one merge.

    Args:
        snapshot: The table.
        schema: Schema of the table after the merge.
        bound: Condition and clauses.
        moment: Clock, zone and user of the command. Defaults, generated columns and checks use them too.
        table: The scan that clauses were resolved against.
        alias: Alias of scans of the table.
    """

    snapshot: Snapshot
    schema: StructType
    bound: BoundMerge
    moment: Moment
    table: DataFrame
    alias: str

    @property
    def _feed(self) -> bool:
        return self.snapshot.properties.enable_change_data_feed

    @property
    def _tracking(self) -> list[str]:
        return [ROW_ID_COLUMN, ROW_VERSION_COLUMN] if self.snapshot.properties.enable_row_tracking else []

    def changed(self, target: DataFrame, changes: DataFrame, *, copy_others: bool) -> DataFrame:
        """Compute the rows of the touched files.

        Args:
            target: Their rows, under ``alias``, with file, row index, and ids if the table tracks rows.
            changes: ``FILE``, ``ROW`` and ``CLAUSE`` of the rows that change, with the source's columns if clauses read
                them.
            copy_others: Whether the other rows are written as well.
        """
        same = (name(FILE_ROW_COLUMN) == name(FILE)) & (name(ROW_INDEX_COLUMN) == name(ROW))
        rows = target.join(changes, same, "left" if copy_others else "inner")
        deleted = _is_among(self.bound.numbers(action=ClauseAction.DELETE))
        if not self._feed:
            rows = rows.filter(~deleted)
        old = {field.name: self._before(field) for field in self.schema.fields}
        new = self._chosen(self.bound.numbers(action=ClauseAction.UPDATE), old)
        if not self._feed:
            return rows.select(*[value.alias(item) for item, value in new.items()], name(CLAUSE), *self._kept_ids())
        # Compute values before a row becomes several, so that a nondeterministic value is the same in feed and table.
        wide = rows.select(
            *[value.alias(f"__old_{place}") for place, value in enumerate(old.values())],
            F.struct(*[value.alias(item) for item, value in new.items()]).alias(_NEW),
            name(CLAUSE),
            *[name(column) for column in self._tracking],
        )
        nothing = F.lit(None).cast("string")
        kinds = F.when(name(CLAUSE).isNull(), F.array(nothing)).when(deleted, F.array(F.lit("delete")))
        kinds = kinds.otherwise(F.array(nothing, F.lit("update_preimage"), F.lit("update_postimage")))
        wide = wide.withColumn(CHANGE_COLUMN, F.explode(kinds))
        columns = [
            F.when(_is_old_image(), name(f"__old_{place}")).otherwise(name(_NEW).getField(item)).alias(item)
            for place, item in enumerate(old)
        ]
        return wide.select(*columns, name(CLAUSE), name(CHANGE_COLUMN), *self._kept_ids())

    def _before(self, field: StructField) -> Column:
        """Return a column of an existing row, with null for columns and fields that the merge adds."""
        known = self.snapshot.schema.field(field.name)
        if known is None:
            return absent(field)
        return cast_parts(qualified(self.alias, known.name), known.data_type, field.data_type)

    def inserted(self, rows: DataFrame) -> tuple[DataFrame, GivenValues]:
        """Compute the source rows that clauses insert, and the values given to identity columns.

        Args:
            rows: The source's columns and ``CLAUSE``, never null, cut off from their plan if the table has identity
                columns.
        """
        numbered = identities(self.schema)
        rows, given = with_identities(rows.sparkSession, rows, numbered, prefix=_GIVEN)
        own = {item.column for item in numbered}
        blank = {
            field.name: name(_GIVEN + field.name) if field.name in own else _blank(field)
            for field in self.schema.fields
        }
        new = self._chosen(self.bound.numbers(on=ClauseOn.NOT_MATCHED), blank)
        ids = [F.lit(None).cast("long").alias(column) for column in self._tracking]
        columns = [value.alias(item) for item, value in new.items()]
        if not self._feed:
            return rows.select(*columns, name(CLAUSE), *ids), given
        kinds = F.array(F.lit(None).cast("string"), F.lit("insert"))
        wide = rows.select(*columns, name(CLAUSE), *ids)  # As above, compute values before a row becomes two.
        wide = wide.withColumn(CHANGE_COLUMN, F.explode(kinds))
        return wide.select(*map(name, new), name(CLAUSE), name(CHANGE_COLUMN), *self._tracking), given

    def counted(self, rows: DataFrame) -> tuple[DataFrame, str]:
        """Have the job count the table's rows by outcome. Returns the rows and the name of the observation."""
        of_table = name(CHANGE_COLUMN).isNull() if self._feed else F.lit(True)
        updated = _is_among(self.bound.numbers(action=ClauseAction.UPDATE))
        inserted = _is_among(self.bound.numbers(action=ClauseAction.INSERT))
        kinds = {"copied": name(CLAUSE).isNull(), "updated": of_table & updated, "inserted": of_table & inserted}
        return observing(rows, {kind: F.count_if(holds) for kind, holds in kinds.items()})

    def shaped(self, rows: DataFrame) -> DataFrame:
        """Compute the table's columns of the rows and check them. The columns that files need come last."""
        copied = name(CLAUSE).isNull()
        if self._feed:
            copied = copied | F.coalesce(_is_old_image(), F.lit(False))
        metadata = self.snapshot.metadata
        assert metadata is not None
        shaped = conform(
            rows.withColumn(_COPIED, copied),
            schema=self.schema,
            configuration=metadata.configuration,
            partition_columns=self.snapshot.partition_columns,
            brought=Brought(
                carried=[*([CHANGE_COLUMN] if self._feed else []), *self._tracking],
                copied=_COPIED,
                beside=[CLAUSE],
                generated=self._generated(),
            ),
        )
        return self.moment.frame(shaped)

    def _generated(self) -> Mapping[str, Generated]:
        """Find in which rows each generated column is computed, and in which it was given."""
        fields = [field.name for field in self.schema.fields if _GENERATION in field.metadata]
        if not fields:
            return {}
        inserts = self.bound.numbers(on=ClauseOn.NOT_MATCHED)
        anew: dict[str, list[int]] = {column: [] for column in fields}
        given: dict[str, list[int]] = {column: [] for column in fields}
        for number, item in enumerate(self.bound.clauses):
            stale = fields if number in inserts else recomputed(self.moment, self.snapshot, self.table, item.sets)
            for column in fields:
                if column in item.sets:
                    given[column].append(number)
                elif column in stale:
                    anew[column].append(number)
        return {
            column: Generated(
                anew=_is_among(anew[column]) if anew[column] else None,
                given=_is_among(given[column]) if given[column] else None,
            )
            for column in fields
        }

    def _chosen(self, numbers: Sequence[int], old: Mapping[str, Column]) -> dict[str, Column]:
        """Set each column by the row's clause, or keep its old value."""
        found = dict(old)
        for number in reversed(numbers):
            values = self.bound.clauses[number].values
            assert values is not None
            for column, value in values.apply(self.schema, old).items():
                if column in values.columns:
                    found[column] = F.when(name(CLAUSE) == F.lit(number), value).otherwise(found[column])
        return found

    def _kept_ids(self) -> list[Column]:
        """Keep row ids, and keep versions of rows that do not change."""
        if not self._tracking:
            return []
        version = F.when(name(CLAUSE).isNull(), name(ROW_VERSION_COLUMN)).alias(ROW_VERSION_COLUMN)
        return [name(ROW_ID_COLUMN), version]


def _is_among(numbers: Sequence[int]) -> Column:
    """Return whether a row's clause is one of these, never null."""
    return F.coalesce(name(CLAUSE).isin(list(numbers)), F.lit(False)) if numbers else F.lit(False)


def _is_old_image() -> Column:
    return name(CHANGE_COLUMN).isin("update_preimage", "delete")


def _blank(field: StructField) -> Column:
    """Return a new row's column before anything is computed."""
    return as_type(F.lit(None), field.data_type) if _GENERATION in field.metadata else absent(field)
