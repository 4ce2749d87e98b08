"""Find the pairs of a merge's rows and write its new files, by Spark's own plans.

::

    condition, clauses: resolved, clock and zone frozen
    source, each row numbered, stored -------------------------------+
    candidate files: keys and columns of conditions --join, once-----+--> pairs: file, row, source row, clause

        pairs with a clause --by file--> positions, counts, two sources for one row
        touched files, source rows in no pair: ``merging_rows``

The source and the pairs are evaluated once, so that a source that changes between passes cannot make the merge
inconsistent. Stored rows are cut off from the plan that made them: if a part is lost, the merge fails, and the part is
not computed again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from pyspark import StorageLevel
from pyspark.sql import functions as F

from pydelta.commands.change.merge import ClauseAction, ClauseOn, MergeClause, MergeMatches, only_deletes
from pydelta.commands.change.reconcile import Passed
from pydelta.commands.engine import NOTHING_WRITTEN, RewriteOutput
from pydelta.commands.write.plan import evolved_metadata, stored_schema
from pydelta.engines.arrow.layout import TableShape
from pydelta.engines.spark.change.assignments import names_of
from pydelta.engines.spark.change.binding import Moment, folded
from pydelta.engines.spark.change.merge_bind import BoundMerge, Sides, bind_merge
from pydelta.engines.spark.change.merge_choice import ArrowFirstMerge, foresee_arrow
from pydelta.engines.spark.change.merge_keys import keys_of, ranges_of, target_conjuncts
from pydelta.engines.spark.change.merge_rows import CLAUSE, FILE, ROW, SOURCE, SOURCE_ROW, MergedRows
from pydelta.engines.spark.change.shown import shown
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.local_rows import local_frame
from pydelta.engines.spark.lost_rows import reading_kept
from pydelta.engines.spark.own_settings import exact_filters
from pydelta.engines.spark.scan.newest import fixed
from pydelta.engines.spark.scan.refresh import reads_table
from pydelta.engines.spark.scan.scan import FILE_ROW_COLUMN, ROW_INDEX_COLUMN, Extra, scan_dataframe
from pydelta.engines.spark.types import from_spark
from pydelta.engines.spark.write.assignment import telling_overflow
from pydelta.engines.spark.write.columns import name
from pydelta.engines.spark.write.identity import GivenValues
from pydelta.engines.spark.write.observed import observing
from pydelta.engines.spark.write.writer import CHANGE_COLUMN, write_files
from pydelta.errors import InvalidArgumentError, SchemaMismatchError
from pydelta.errors.conditions import Condition
from pydelta.predicate import Expr
from pydelta.protocol.evolution import only_assigned
from pydelta.protocol.identity import identities
from pydelta.protocol.roaring import Positions
from pydelta.protocol.types import StructType, parse_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pydelta.log import Snapshot

__all__ = ["TARGET_ALIAS", "MergeStatement", "SparkMerge", "foresee_merge"]

_WORD_BITS: Final = 64
TARGET_ALIAS, _SOURCE_ALIAS = "__pydelta_target", "__pydelta_source"
_BROADCAST_FACTOR: Final = 3
_GENERATION: Final = "delta.generationExpression"
_KEEP_ANCESTORS: Final = "spark.checkpoint.checkpointAllMarkedAncestors"


@dataclass(slots=True)
class KeptSource:
    """State that all attempts of one merge share.

    Args:
        moment: Clock, time zone and user.
        source: The numbered rows that were read from the source.
        rows: Number of source rows, or None before they are counted.
    """

    moment: Moment | None = None
    source: DataFrame | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStatement:
    """A merge as the user wrote it.

    Args:
        condition: SQL text or a Column.
        clauses: The clauses, in order.
        alias: Name by which conditions and values may qualify the table.
        evolve: Whether clauses may add columns and fields that the source has.
        kept: State of all attempts: a merge that is run again keeps the clock and the source rows of the first attempt.
    """

    condition: Any
    clauses: Sequence[MergeClause]
    alias: str | None = None
    evolve: bool = False
    kept: KeptSource = field(default_factory=KeptSource, repr=False, compare=False)


class SparkMerge:
    """Runs a merge in Spark. See ``Merging``.

    Args:
        spark: The session.
        snapshot: The table.
        source: The rows to merge into it, possibly aliased.
        statement: The condition and the clauses.
    """

    def __init__(
        self,
        spark: SparkSession,
        snapshot: Snapshot,
        source: DataFrame,
        statement: MergeStatement,
    ) -> None:
        self._spark = spark
        self._jvm = Jvm.of(spark)
        self._snapshot = snapshot
        self._alias = statement.alias or TARGET_ALIAS
        kept = self._kept = statement.kept
        moment = kept.moment = kept.moment or Moment(spark)
        if kept.source is None:
            source = fixed(spark, source, snapshot)
        self._plan = source._jdf.queryExecution().analyzed()
        sides, self.schema, self._bound = _bound(spark, snapshot, source, statement, moment)
        self._table, self._source_alias = sides.table, sides.source_alias
        self.condition_sql, self.clause_texts = self._shown()
        self._rows = MergedRows(
            snapshot=snapshot,
            schema=self.schema,
            bound=self._bound,
            moment=moment,
            table=self._table,
            alias=self._alias,
        )
        started = time.monotonic()
        if kept.source is None:
            kept.source = self._numbered(moment.source(source))  # The source runs here, not earlier.
        self._source = kept.source
        self.source_ms = int((time.monotonic() - started) * 1000)
        self._arrow = ArrowFirstMerge(spark, snapshot, self.schema, self._bound, self._source)
        self._candidates: pl.DataFrame | None = None
        if self._arrow.rows is not None:
            kept.rows = self._arrow.rows.num_rows
        self._paired: DataFrame | None = None
        self._changes: DataFrame | None = None

    def _shown(self) -> tuple[str, Sequence[str | None]]:
        """Render the condition and the clauses' conditions for the history, with None for a clause without one."""
        conditions = [item.condition for item in self._bound.clauses]
        given = [self._bound.condition, *(item for item in conditions if item is not None)]
        first, *texts = shown(self._spark, [item.expression for item in given])
        following = iter(texts)
        return first, [None if item is None else next(following) for item in conditions]

    def _numbered(self, source: DataFrame) -> DataFrame:
        """Store the source's current rows, each with a unique number. Its columns keep their ids."""
        numbered = source.withColumn(SOURCE_ROW, F.monotonically_increasing_id())
        return numbered.localCheckpoint(True, StorageLevel.MEMORY_AND_DISK).alias(self._source_alias)

    # --- finding rows ------------------------------------------------------------------------------------------

    def count_source(self) -> int:
        """See ``Merging.count_source``."""
        if self._kept.rows is None:
            self._kept.rows = self._source.count()
        return self._kept.rows

    def source_reads_table(self) -> bool:
        """See ``Merging.source_reads_table``. Rows computed before the merge cannot be traced to a table."""
        return reads_table(self._jvm, self._plan, self._snapshot.table_uri)

    def target_filters(self) -> Sequence[Expr]:
        """See ``Merging.target_filters``. Gives ranges of keys, or all values of a partition column if few."""
        condition = folded(self._spark, self._bound.condition)
        if self._arrow.rows is not None:
            return [*target_conjuncts(condition, self._table), *self._arrow.filters]
        partitions = frozenset(item.lower() for item in self._snapshot.partition_columns)
        keys = list(keys_of(self._jvm, condition, self._table))
        return [
            *target_conjuncts(condition, self._table),
            *ranges_of(self._jvm, self._source, keys, partitions),
        ]

    def narrowed(self, files: pl.DataFrame) -> pl.DataFrame:
        """See ``Merging.narrowed``. The keys are at hand if this process has the source's rows."""
        return self._arrow.narrowed(files)

    def find(self, files: pl.DataFrame) -> MergeMatches:
        """See ``Merging.find``."""
        found = self._arrow.find(files)
        if found is not None:
            self._candidates = files
            return found
        with exact_filters(self._spark), reading_kept(self._snapshot.table_uri, "the merge"):
            return self._find(files)

    def _find(self, files: pl.DataFrame) -> MergeMatches:
        if not files.height or not self.count_source():
            return self._without_pairs(files)
        target = self._scan(files)
        pairs = target.join(self._hinted(self._source), self._bound.condition.column, "inner")
        pairs = pairs.select(
            name(FILE_ROW_COLUMN).alias(FILE),
            name(ROW_INDEX_COLUMN).alias(ROW),
            name(SOURCE_ROW).alias(SOURCE),
            self._bound.first_of(ClauseOn.MATCHED).alias(CLAUSE),
        )
        changes_rows = self._has(ClauseOn.MATCHED) or self._has(ClauseOn.NOT_MATCHED_BY_SOURCE)
        pairs = self._keep(pairs) if changes_rows else pairs
        found = self._changing(files, pairs) if changes_rows else MergeMatches()
        if not self._has(ClauseOn.NOT_MATCHED):
            return found
        paired = self._keep(pairs.select(name(SOURCE)).distinct())
        number = paired.count()
        self._paired = self._broadcast(paired, number)
        return replace(found, paired=number)

    def _changing(self, files: pl.DataFrame, pairs: DataFrame) -> MergeMatches:
        taken = F.when(name(CLAUSE).isNotNull(), name(SOURCE))
        per_row = pairs.groupBy(FILE, ROW).agg(
            F.max(taken).alias(SOURCE), F.max(name(CLAUSE)).alias(CLAUSE), F.count(taken).alias("n")
        )
        return self._found(files, self._keep(per_row))

    def _without_pairs(self, files: pl.DataFrame) -> MergeMatches:
        if not files.height or not self._has(ClauseOn.NOT_MATCHED_BY_SOURCE):
            return MergeMatches()
        schema = f"{FILE} long, {ROW} long, {SOURCE} long, {CLAUSE} int, n long"
        return self._found(files, local_frame(self._spark, [], schema))

    def _found(self, files: pl.DataFrame, per_row: DataFrame) -> MergeMatches:
        changes = per_row.filter(name(CLAUSE).isNotNull())
        if self._has(ClauseOn.NOT_MATCHED_BY_SOURCE):
            alone = self._scan(files)
            paired = per_row.select(FILE, ROW)
            same = (name(FILE_ROW_COLUMN) == name(FILE)) & (name(ROW_INDEX_COLUMN) == name(ROW))
            alone = alone.join(paired, same, "left_anti").select(
                name(FILE_ROW_COLUMN).alias(FILE),
                name(ROW_INDEX_COLUMN).alias(ROW),
                F.lit(None).cast("long").alias(SOURCE),
                self._bound.first_of(ClauseOn.NOT_MATCHED_BY_SOURCE).alias(CLAUSE),
                F.lit(1).cast("long").alias("n"),
            )
            changes = self._keep(changes.unionByName(alone.filter(name(CLAUSE).isNotNull())))
        self._changes = changes
        deletes = self._bound.numbers(action=ClauseAction.DELETE)
        is_delete = name(CLAUSE).isin(deletes) if deletes else F.lit(False)
        alone_ones = self._bound.numbers(on=ClauseOn.NOT_MATCHED_BY_SOURCE)
        is_alone = name(CLAUSE).isin(alone_ones) if alone_ones else F.lit(False)
        one = F.call_function("shiftleft", F.lit(1).cast("bigint"), name(ROW).bitwiseAND(F.lit(63)).cast("int"))
        words = (
            changes.groupBy(name(FILE).alias("file"), F.shiftright(name(ROW), 6).alias("word"))
            .agg(
                F.bit_or(one).alias("bits"),
                F.bool_or(name("n") > 1).alias("many"),
                F.count_if(is_delete).alias("deleted"),
                F.count_if(is_alone).alias("alone"),
                F.count_if(is_alone & is_delete).alias("alone_deleted"),
                F.count(F.lit(1)).alias("changed"),
            )
            .toArrow()
        )
        frame = pl.from_arrow(words)
        assert isinstance(frame, pl.DataFrame)
        if frame.height and bool(frame["many"].any()) and not only_deletes(item.clause for item in self._bound.clauses):
            self._refuse_ambiguous(files)
        deleted, alone_deleted = int(frame["deleted"].sum()), int(frame["alone_deleted"].sum())
        return MergeMatches(
            positions=dict(_positions(frame)),
            updated=int(frame["changed"].sum()) - deleted,
            deleted=deleted,
            alone_updated=int(frame["alone"].sum()) - alone_deleted,
            alone_deleted=alone_deleted,
        )

    def _refuse_ambiguous(self, files: pl.DataFrame) -> None:
        """Name the row, running again the part of the merge that finds it."""
        assert self._changes is not None
        row = self._changes.filter(name("n") > 1).orderBy(FILE, ROW).first()
        assert row is not None
        references = {item.lower() for item in self._jvm.reference_names(self._bound.condition.expression)}
        keys = [field.name for field in self._snapshot.schema.fields if field.name.lower() in references]
        one = self._scan(files).filter((name(FILE_ROW_COLUMN) == row[FILE]) & (name(ROW_INDEX_COLUMN) == row[ROW]))
        texts = [name(item).try_cast("string") for item in keys]  # Python lacks some of Spark's values.
        shown = one.select(*texts).first() if texts else ()
        assert shown is not None
        key = ", ".join(f"{item}={value}" for item, value in zip(keys, shown, strict=True))
        raise InvalidArgumentError(
            f"{row['n']} rows of the source would change the same row of the table, the one with {key}: which of them "
            "should win is not known.",
            hint="Keep one row per key in the source, or give the clauses conditions that only one of them passes.",
            table=self._snapshot.table_uri,
            condition=Condition.of("DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"),
        )

    # --- writing rows ------------------------------------------------------------------------------------------

    def write(self, files: pl.DataFrame, places: Sequence[int], *, copy_others: bool) -> tuple[RewriteOutput, Passed]:
        """See ``Merging.write``."""
        if self._candidates is not None:  # The pairs were found in this process.
            done = self._arrow.write(files, places, copy_others=copy_others)
            if done is not None:
                return done
            with exact_filters(self._spark), reading_kept(self._snapshot.table_uri, "the merge"):
                self._find(self._candidates)
        with reading_kept(self._snapshot.table_uri, "the merge"), telling_overflow():
            return self._write(files, places, copy_others=copy_others)

    def _write(self, files: pl.DataFrame, places: Sequence[int], *, copy_others: bool) -> tuple[RewriteOutput, Passed]:
        parts, of_source = [], None
        if files.height:
            target = self._scan(files, tracking=self._snapshot.properties.enable_row_tracking)
            parts.append(self._rows.changed(target, self._changes_in(places), copy_others=copy_others))
        values = GivenValues()
        if self._has(ClauseOn.NOT_MATCHED) and self.count_source():
            unpaired, of_source = self._unpaired()
            inserted, values = self._rows.inserted(unpaired)
            parts.append(inserted)
        if not parts:
            return NOTHING_WRITTEN, Passed()
        rows, on_the_way = self._rows.counted(parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1]))
        written = write_files(
            self._spark,
            self._rows.shaped(rows),
            replace(TableShape.of(self._snapshot), schema=self.schema),
            change_column=CHANGE_COLUMN if self._snapshot.properties.enable_change_data_feed else None,
        )
        seen = written.observed.get(on_the_way, {})
        source = of_source if isinstance(of_source, dict) else written.observed.get(of_source or "", {})
        passed = Passed(
            copied=seen.get("copied") or 0,
            updated=seen.get("updated") or 0,
            inserted=seen.get("inserted") or 0,
            source=source.get("rows"),  # The metric is missing if Spark dropped this part because no clause can insert.
            paired=source.get("paired") or 0,
        )
        return replace(written, marks=values.marks(written)), passed

    def _changes_in(self, places: Sequence[int]) -> DataFrame:
        """Select the rows that change, by new positions of files, with the source's columns if clauses read them."""
        assert self._changes is not None
        moved = local_frame(self._spark, [(old, new) for new, old in enumerate(places)], "old long, new long")
        changes = self._changes.join(F.broadcast(moved), name(FILE) == name("old"))
        changes = changes.select(name("new").alias(FILE), ROW, SOURCE, CLAUSE)
        if self._bound.numbers(on=ClauseOn.MATCHED, action=ClauseAction.UPDATE):
            changes = changes.join(self._source, name(SOURCE) == name(SOURCE_ROW), "left")
        return self._hinted(changes)

    def _unpaired(self) -> tuple[DataFrame, str | dict[str, int | None]]:
        """Select the source rows without a pair that a clause inserts.

        Returns:
            The rows, and either the counts of rows examined or the place where the job will report them.
        """
        rows = self._source.withColumn(SOURCE, F.lit(None).cast("long"))
        if self._paired is not None:
            rows = self._source.join(self._paired, name(SOURCE_ROW) == name(SOURCE), "left")
        counts = {"rows": F.count(F.lit(1)), "paired": F.count(name(SOURCE))}
        numbered = bool(identities(self.schema))
        told: str | dict[str, int | None]
        if numbered:  # Storing the rows fixes their partitions, but a job that stores rows reports no counts.
            (row,) = rows.agg(*[count.alias(item) for item, count in counts.items()]).collect()
            told = row.asDict()
        else:
            rows, told = observing(rows, counts)
        rows = rows.filter(name(SOURCE).isNull()).drop(SOURCE)
        rows = rows.withColumn(CLAUSE, self._bound.first_of(ClauseOn.NOT_MATCHED)).filter(name(CLAUSE).isNotNull())
        return (self._keep(rows) if numbered else rows), told

    # --- helpers -----------------------------------------------------------------------------------------------

    def _has(self, on: ClauseOn) -> bool:
        return bool(self._bound.numbers(on=on))

    def _scan(self, files: pl.DataFrame, *, tracking: bool = False) -> DataFrame:
        """Scan rows of files with their places, under the table's alias and with the columns that clauses read."""
        return self._bound.columns.over(self._scanned(files, tracking=tracking)).alias(self._alias)

    def _scanned(self, files: pl.DataFrame | None, *, tracking: bool = False) -> DataFrame:
        extra = Extra.NONE if files is None else Extra.PLACE
        extra |= Extra.TRACKING if tracking else Extra.NONE
        return scan_dataframe(self._spark, self._snapshot, pinned=True, files=files, extra=extra)

    def _hinted(self, frame: DataFrame) -> DataFrame:
        """Broadcast a small frame. Spark's own estimate does not know the source's row count."""
        return frame if self._has(ClauseOn.NOT_MATCHED_BY_SOURCE) else self._broadcast(frame, self.count_source())

    def _broadcast(self, frame: DataFrame, rows: int) -> DataFrame:
        threshold = int(self._jvm.sql_conf.autoBroadcastJoinThreshold())
        small = rows * int(frame._jdf.schema().defaultSize()) <= threshold * _BROADCAST_FACTOR
        return F.broadcast(frame) if small and threshold >= 0 else frame

    def _keep(self, frame: DataFrame) -> DataFrame:
        """Store rows that are used several times, once they are computed, and cut them off from their plan."""
        context = self._spark.sparkContext
        before = context.getLocalProperty(_KEEP_ANCESTORS)
        context.setLocalProperty(_KEEP_ANCESTORS, "true")  # Without it the ancestors of stored rows are not cut off.
        try:
            return frame.localCheckpoint(False, StorageLevel.MEMORY_AND_DISK)
        finally:
            context.setLocalProperty(_KEEP_ANCESTORS, before)  # type: ignore[arg-type] # None takes it away

    def ways(self) -> Mapping[str, str]:
        """See ``Engine.ways``."""
        return self._arrow.ways

    def close(self) -> None:
        """See ``Merging.close``. Spark's cleaner frees stored rows once nothing refers to them."""
        self._paired = self._changes = None


def foresee_merge(spark: SparkSession, snapshot: Snapshot, source: DataFrame, statement: MergeStatement) -> str:
    """Predict for EXPLAIN how a merge's rows would be found, running neither the merge nor its source.

    Raises:
        DeltaError: The statement does not fit the table.
    """
    sides, schema, bound = _bound(spark, snapshot, source, statement, Moment(spark))
    way = foresee_arrow(spark, snapshot, schema, bound, sides.source)
    conjuncts = target_conjuncts(folded(spark, bound.condition), sides.table)
    files = snapshot.files.select(data_filters=conjuncts, time_zone=Jvm.of(spark).time_zone())
    return f"{way} (at most {files.height} files, {int(files['size'].sum() or 0)} bytes)"


def _bound(
    spark: SparkSession, snapshot: Snapshot, source: DataFrame, statement: MergeStatement, moment: Moment
) -> tuple[Sides, StructType, BoundMerge]:
    """Return the sides of a merge, the table's schema afterwards, and the expressions resolved against them."""
    schema = _schema_after(spark, snapshot, statement, from_spark(source.schema))
    plan = source._jdf.queryExecution().analyzed()
    named = str(plan.nodeName()) == "SubqueryAlias"
    alias, source_alias = statement.alias or TARGET_ALIAS, str(plan.alias()) if named else _SOURCE_ALIAS
    empty = statement.evolve and not snapshot.schema.fields  # Such a table has no files either.
    table = Jvm.of(spark).nothing() if empty else scan_dataframe(spark, snapshot, pinned=True)
    sides = Sides(
        table=table.alias(alias),
        source=source if named else source.alias(source_alias),
        alias=alias,
        source_alias=source_alias,
        evolves=statement.evolve,
    )
    return sides, schema, bind_merge(moment, sides, statement.condition, statement.clauses, schema=schema)


def _schema_after(spark: SparkSession, snapshot: Snapshot, statement: MergeStatement, source: StructType) -> StructType:
    schema, clauses = snapshot.schema, statement.clauses
    star = any(clause.is_star for clause in clauses)
    if statement.evolve:
        qualifiers = {(statement.alias or TARGET_ALIAS).lower()}
        targets = {
            tuple(part.lower() for part in names_of(spark, schema, key, qualifiers))
            for clause in clauses
            if clause.on is not ClauseOn.NOT_MATCHED_BY_SOURCE
            for key, _ in clause.assignments or ()
        }
        brought = only_assigned(source, targets, all_columns=star)
        if not brought.fields:
            return schema
        return parse_schema(evolved_metadata(snapshot, stored_schema(brought), casts=True).schema_string)
    if not star:
        return schema
    numbered = {item.column for item in identities(schema)}
    missing = [
        field.name
        for field in schema.fields
        if source.field(field.name) is None and _GENERATION not in field.metadata and field.name not in numbered
    ]
    if missing:
        raise SchemaMismatchError(
            f"The source has no column {', '.join(map(repr, missing))}, which UPDATE * and INSERT * need.",
            hint="Set the columns one by one, or allow the schema to differ with withSchemaEvolution().",
            condition=Condition.of("DELTA_MERGE_UNRESOLVED_EXPRESSION", sqlExpr=missing),
        )
    return schema


def _positions(words: pl.DataFrame) -> Iterator[tuple[int, Positions]]:
    """Turn 64-bit words by file into the positions of their bits."""
    for (file,), part in words.sort("file", "word").group_by("file", maintain_order=True):
        bits = np.unpackbits(part["bits"].to_numpy().astype("<i8").view(np.uint8), bitorder="little")
        at = np.flatnonzero(bits)
        starts = part["word"].to_numpy().astype(np.uint64) * np.uint64(_WORD_BITS)
        yield int(str(file)), starts[at // _WORD_BITS] + (at % _WORD_BITS).astype(np.uint64)
