"""A source and clauses bound to a snapshot in; pairs of rows found and new files written out. All by Spark's own plans.

::

    source, each row numbered, kept as it is now --------------------+
    candidate files: keys and what conditions read --join, once------+--> pairs: file, row, source row, clause
        pairs with a clause --by file--> positions, counts, two sources for one row
        touched files: all columns --join by file and row--> rows as the clause leaves them
        source rows in no pair --> inserts

The source is evaluated once, so that a source that changes between passes cannot tear a merge apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from pyspark import StorageLevel
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column
from pyspark.sql import functions as F

from pydelta.commands.engine import Assignments, RewriteOutput
from pydelta.commands.merging import ClauseAction, ClauseOn, MergeClause, MergeMatches
from pydelta.commands.write_plan import evolved_metadata, stored_schema
from pydelta.errors import BindError, InvalidArgumentError, ParseError, SchemaMismatchError
from pydelta.predicate import Expr
from pydelta.protocol.identity import identities
from pydelta.protocol.roaring import Positions
from pydelta.protocol.row_tracking import ROW_ID_COLUMN, ROW_VERSION_COLUMN
from pydelta.protocol.types import StructType, parse_schema
from pydelta.spark.assignments import BoundAssignments, bind_assignments, refuse_numbered, to_column
from pydelta.spark.identity import GivenValues, with_identities
from pydelta.spark.jvm import Jvm
from pydelta.spark.merging_keys import keys_of, ranges_of, target_conjuncts
from pydelta.spark.own_settings import exact_filters
from pydelta.spark.scan import FILE_ROW_COLUMN, ROW_INDEX_COLUMN, scan_dataframe
from pydelta.spark.types import from_spark
from pydelta.spark.write_columns import absent, conform, name
from pydelta.spark.writer import CHANGE_COLUMN, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pydelta.log import Snapshot

__all__ = ["SparkMerge"]

_SOURCE_ROW: Final = "__pydelta_source_row"
_CLAUSE: Final = "__pydelta_clause"
_NEW: Final = "__pydelta_new"
_GIVEN: Final = "__pydelta_given_"
_FILE, _ROW, _SOURCE = "__pydelta_c_file", "__pydelta_c_row", "__pydelta_c_source"
_WORD_BITS: Final = 64
_TARGET_ALIAS, _SOURCE_ALIAS = "__pydelta_target", "__pydelta_source"
_BROADCAST_FACTOR: Final = 3
_GENERATION: Final = "delta.generationExpression"


class SparkMerge:
    """See ``Merging``.

    Args:
        spark: The session.
        snapshot: The table.
        source: The rows to merge into it, possibly aliased.
        condition: SQL text or a Column.
        clauses: In their order.
        alias: Name by which conditions and values may qualify the table.
        evolve: Whether ``UPDATE *`` and ``INSERT *`` may add columns.
    """

    def __init__(
        self,
        spark: SparkSession,
        snapshot: Snapshot,
        source: DataFrame,
        condition: Any,
        clauses: Sequence[MergeClause],
        *,
        alias: str | None,
        evolve: bool,
    ) -> None:
        self._spark = spark
        self._jvm = Jvm.of(spark)
        self._snapshot = snapshot
        self._clauses = tuple(clauses)
        self._alias = alias or _TARGET_ALIAS
        self._source_columns = source.columns
        source_schema = from_spark(source.schema)
        self._numbered_columns = {item.column: item for item in identities(snapshot.schema)}
        self.schema = self._schema_after(source_schema, evolve)
        self._condition = to_column(condition, "The condition of a merge")
        # resolved before the source runs for the first time
        plain = self._scan(None)
        joined = plain.join(source, self._bound(plain.join(source), self._condition, "The merge condition"), "inner")
        self.condition_sql = str(joined._jdf.queryExecution().analyzed().condition().get().sql())
        self._source_alias = self._alias_of(source)
        self._source = self._numbered(source)
        frames = {
            ClauseOn.MATCHED: self._scan(None).join(self._source),
            ClauseOn.NOT_MATCHED: self._source,
            ClauseOn.NOT_MATCHED_BY_SOURCE: self._scan(None),
        }
        self._conditions = [self._clause_condition(clause, frames[clause.on]) for clause in self._clauses]
        self.clause_texts: Sequence[str | None] = [
            None if column is None else self._sql_of(frames[clause.on], column)
            for clause, column in zip(self._clauses, self._conditions, strict=True)
        ]
        self._values = [self._bind_values(clause, frames[clause.on]) for clause in self._clauses]
        self._rows: int | None = None
        self._pairs: DataFrame | None = None
        self._changes: DataFrame | None = None

    # --- binding -------------------------------------------------------------------------------------------

    def _schema_after(self, source: StructType, evolve: bool) -> StructType:
        schema = self._snapshot.schema
        if not any(clause.is_star for clause in self._clauses):
            return schema
        if evolve:
            return parse_schema(evolved_metadata(self._snapshot, stored_schema(source)).schema_string)
        missing = [
            field.name
            for field in schema.fields
            if source.field(field.name) is None
            and _GENERATION not in field.metadata
            and field.name not in self._numbered_columns
        ]
        if missing:
            raise SchemaMismatchError(
                f"The source has no column {', '.join(map(repr, missing))}, which UPDATE * and INSERT * need.",
                hint="Set the columns one by one, or allow the schema to differ with withSchemaEvolution().",
            )
        return schema

    def _numbered(self, source: DataFrame) -> DataFrame:
        """The source as it is now, each row with a number of its own."""
        numbered = source.withColumn(_SOURCE_ROW, F.monotonically_increasing_id())
        return numbered.localCheckpoint(True, StorageLevel.MEMORY_AND_DISK).alias(self._source_alias)

    def _alias_of(self, source: DataFrame) -> str:
        plan = source._jdf.queryExecution().analyzed()
        return str(plan.alias()) if str(plan.nodeName()) == "SubqueryAlias" else _SOURCE_ALIAS

    def _bound(self, frame: DataFrame, column: Column, what: str) -> Column:
        try:
            analyzed = frame.filter(column)._jdf.queryExecution().analyzed()
        except ParseException as error:
            raise ParseError(f"{what} does not parse: {_first_line(error)}") from error
        except AnalysisException as error:
            shown = [item for item in frame.columns if not item.startswith("__pydelta")]
            raise BindError(
                f"{what} does not fit: {_first_line(error)}",
                hint=f"The columns there are: {', '.join(shown)}. Where both have one, give table and source an alias.",
            ) from error
        expression = analyzed.condition()
        if self._jvm.has_subquery(expression):
            raise InvalidArgumentError(f"{what} holds a subquery.", hint="Join its result into the source first.")
        if not expression.deterministic():
            raise InvalidArgumentError(
                f"{what} is not deterministic: {expression.sql()}.", hint="Compute such a value into a source column."
            )
        return column

    def _clause_condition(self, clause: MergeClause, frame: DataFrame) -> Column | None:
        if clause.condition is None:
            return None
        what = f"The condition of {clause.on.value} {clause.action.value.upper()}"
        return self._bound(frame, to_column(clause.condition, what), what)

    def _sql_of(self, frame: DataFrame, column: Column) -> str:
        return str(frame.filter(column)._jdf.queryExecution().analyzed().condition().sql())

    def _bind_values(self, clause: MergeClause, frame: DataFrame) -> BoundAssignments | None:
        if clause.action is ClauseAction.DELETE:
            return None
        given: Assignments | None = clause.assignments
        if given is None:
            known = {item.lower(): item for item in self._source_columns} | {
                item: item for item in self._source_columns
            }
            names = {item.name: known.get(item.name, known.get(item.name.lower())) for item in self.schema.fields}
            given = [
                (_quoted(own), _qualified(self._source_alias, its)) for own, its in names.items() if its is not None
            ]
        where, inserts = f"{clause.on.value} {clause.action.value.upper()}", clause.on is ClauseOn.NOT_MATCHED
        bound = bind_assignments(
            self._spark, self.schema, given, frame, qualifiers=[self._alias], where=where, inserts=inserts
        )
        refuse_numbered(self.schema, bound.columns, inserts=inserts)
        return bound

    # --- what is there -------------------------------------------------------------------------------------

    def count_source(self) -> int:
        """See ``Merging.count_source``."""
        if self._rows is None:
            self._rows = self._source.count()
        return self._rows

    def target_filters(self) -> Sequence[Expr]:
        """See ``Merging.target_filters``: the range of each key, few values of a partition column one by one."""
        plain = self._scan(None)
        analyzed = plain.join(self._source, self._condition, "inner")._jdf.queryExecution().analyzed()
        partitions = frozenset(item.lower() for item in self._snapshot.partition_columns)
        keys = list(keys_of(self._jvm, analyzed, plain))
        ranges = ranges_of(self._jvm, self._jvm.frame(analyzed.right()), keys, partitions)
        return [*target_conjuncts(analyzed, plain), *ranges]

    def find(self, files: pl.DataFrame) -> MergeMatches:
        """See ``Merging.find``."""
        with exact_filters(self._spark):
            return self._find(files)

    def _find(self, files: pl.DataFrame) -> MergeMatches:
        if not files.height or not self.count_source():
            return self._without_pairs(files)
        target = self._scan(files, identity=True)
        pairs = target.join(self._hinted(self._source), self._condition, "inner")
        pairs = pairs.select(
            name(FILE_ROW_COLUMN).alias(_FILE),
            name(ROW_INDEX_COLUMN).alias(_ROW),
            name(_SOURCE_ROW).alias(_SOURCE),
            self._first_clause(ClauseOn.MATCHED).alias(_CLAUSE),
        )
        self._pairs = self._keep(pairs)
        if not self._has(ClauseOn.MATCHED) and not self._has(ClauseOn.NOT_MATCHED_BY_SOURCE):
            return MergeMatches()
        taken = F.when(name(_CLAUSE).isNotNull(), name(_SOURCE))
        per_row = self._pairs.groupBy(_FILE, _ROW).agg(
            F.max(taken).alias(_SOURCE), F.max(name(_CLAUSE)).alias(_CLAUSE), F.count(taken).alias("n")
        )
        per_row = self._keep(per_row)
        return self._found(files, per_row)

    def _without_pairs(self, files: pl.DataFrame) -> MergeMatches:
        if not files.height or not self._has(ClauseOn.NOT_MATCHED_BY_SOURCE):
            return MergeMatches()
        schema = f"{_FILE} long, {_ROW} long, {_SOURCE} long, {_CLAUSE} int, n long"
        return self._found(files, self._spark.createDataFrame([], schema))

    def _found(self, files: pl.DataFrame, per_row: DataFrame) -> MergeMatches:
        changes = per_row.filter(name(_CLAUSE).isNotNull())
        if self._has(ClauseOn.NOT_MATCHED_BY_SOURCE):
            alone = self._scan(files, identity=True)
            paired = per_row.select(_FILE, _ROW)
            same = (name(FILE_ROW_COLUMN) == name(_FILE)) & (name(ROW_INDEX_COLUMN) == name(_ROW))
            alone = alone.join(paired, same, "left_anti").select(
                name(FILE_ROW_COLUMN).alias(_FILE),
                name(ROW_INDEX_COLUMN).alias(_ROW),
                F.lit(None).cast("long").alias(_SOURCE),
                self._first_clause(ClauseOn.NOT_MATCHED_BY_SOURCE).alias(_CLAUSE),
                F.lit(1).cast("long").alias("n"),
            )
            changes = self._keep(changes.unionByName(alone.filter(name(_CLAUSE).isNotNull())))
        self._changes = changes
        deletes = [number for number, item in enumerate(self._clauses) if item.action is ClauseAction.DELETE]
        is_delete = name(_CLAUSE).isin(deletes) if deletes else F.lit(False)
        one = F.call_function("shiftleft", F.lit(1).cast("bigint"), name(_ROW).bitwiseAND(F.lit(63)).cast("int"))
        words = (
            changes.groupBy(name(_FILE).alias("file"), F.shiftright(name(_ROW), 6).alias("word"))
            .agg(
                F.bit_or(one).alias("bits"),
                F.max(F.when(name("n") > 1, F.when(is_delete, 2).otherwise(1)).otherwise(0)).alias("many"),
                F.count_if(is_delete).alias("deleted"),
                F.count(F.lit(1)).alias("changed"),
            )
            .toArrow()
        )
        frame = pl.from_arrow(words)
        assert isinstance(frame, pl.DataFrame)
        updates = any(item.action is ClauseAction.UPDATE and item.on is ClauseOn.MATCHED for item in self._clauses)
        if frame.height and updates and bool((frame["many"] > 0).any()):
            self._refuse_ambiguous(files)
        deleted = int(frame["deleted"].sum())
        return MergeMatches(
            positions=dict(_positions(frame)), updated=int(frame["changed"].sum()) - deleted, deleted=deleted
        )

    def _refuse_ambiguous(self, files: pl.DataFrame) -> None:
        """Name the row: run again what is needed to find it."""
        assert self._changes is not None
        row = self._changes.filter(name("n") > 1).orderBy(_FILE, _ROW).first()
        assert row is not None
        joined = self._scan(None).join(self._source, self._condition, "inner")
        references = set(self._jvm.reference_names(joined._jdf.queryExecution().analyzed().condition().get()))
        keys = [field.name for field in self._snapshot.schema.fields if field.name in references]
        one = self._scan(files, identity=True).filter(
            (name(FILE_ROW_COLUMN) == row[_FILE]) & (name(ROW_INDEX_COLUMN) == row[_ROW])
        )
        texts = [name(item).try_cast("string") for item in keys]  # Python has not all values that Spark has
        shown = one.select(*texts).first() if texts else ()
        assert shown is not None
        key = ", ".join(f"{item}={value}" for item, value in zip(keys, shown, strict=True))
        raise InvalidArgumentError(
            f"{row['n']} rows of the source would change the same row of the table, the one with {key}: which of them "
            "should win is not known.",
            hint="Keep one row per key in the source, or give the clauses conditions that only one of them passes.",
            table=self._snapshot.table_uri,
        )

    # --- what becomes of it --------------------------------------------------------------------------------

    def write(self, files: pl.DataFrame, places: Sequence[int], *, copy_others: bool) -> RewriteOutput:
        """See ``Merging.write``."""
        parts = []
        if files.height:
            parts.append(self._changed_rows(files, places, copy_others=copy_others))
        values = GivenValues(None)
        if self._has(ClauseOn.NOT_MATCHED) and self.count_source():
            inserted, values = self._inserted_rows()
            parts.append(inserted)
        if not parts:
            return RewriteOutput(adds=(), num_rows=0)
        rows = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
        properties, metadata = self._snapshot.properties, self._snapshot.metadata
        assert metadata is not None
        shaped = conform(rows, schema=self.schema, configuration=metadata.configuration, carried=self._carried())
        written = write_files(
            self._spark,
            shaped,
            change_column=CHANGE_COLUMN if self._feed else None,
            table_uri=self._snapshot.table_uri,
            schema=self.schema,
            partition_columns=self._snapshot.partition_columns,
            properties=properties,
        )
        return replace(written, marks=values.marks())

    @property
    def _feed(self) -> bool:
        return self._snapshot.properties.enable_change_data_feed

    @property
    def _tracking(self) -> bool:
        return self._snapshot.properties.enable_row_tracking

    def _carried(self) -> list[str]:
        return [
            *([CHANGE_COLUMN] if self._feed else []),
            *([ROW_ID_COLUMN, ROW_VERSION_COLUMN] if self._tracking else []),
        ]

    def _written_names(self) -> list[str]:
        """The table's columns, without generated ones that no clause sets: they are made anew."""
        set_somewhere = {column for values in self._values if values is not None for column in values.columns}
        return [
            field.name
            for field in self.schema.fields
            if _GENERATION not in field.metadata or field.name in set_somewhere
        ]

    def _changed_rows(self, files: pl.DataFrame, places: Sequence[int], *, copy_others: bool) -> DataFrame:
        """Rows of the touched files as the clauses leave them."""
        assert self._changes is not None
        moved = self._spark.createDataFrame(list(zip(places, range(len(places)), strict=True)), "old long, new long")
        changes = self._changes.join(F.broadcast(moved), name(_FILE) == name("old"))
        changes = changes.select(name("new").alias(_FILE), _ROW, _SOURCE, _CLAUSE)
        if self._reads_source():
            changes = changes.join(self._source, name(_SOURCE) == name(_SOURCE_ROW), "left")
        target = self._scan(files, identity=True, tracking=self._tracking)
        same = (name(FILE_ROW_COLUMN) == name(_FILE)) & (name(ROW_INDEX_COLUMN) == name(_ROW))
        rows = target.join(self._hinted(changes), same, "left" if copy_others else "inner")
        deletes = [number for number, item in enumerate(self._clauses) if item.action is ClauseAction.DELETE]
        updates = [number for number, item in enumerate(self._clauses) if item.action is ClauseAction.UPDATE]
        deleted = name(_CLAUSE).isin(deletes) if deletes else F.lit(False)
        if not self._feed:
            rows = rows.filter(~F.coalesce(deleted, F.lit(False)))
        old = {field.name: _qualified(self._alias, field.name) for field in self._snapshot.schema.fields}
        names = self._written_names()
        blank = {field.name: old.get(field.name, absent(field)) for field in self.schema.fields}
        versions = {}
        for number in updates:
            values = self._values[number]
            assert values is not None
            versions[number] = values.apply(self.schema, blank)
        new = {item: self._chosen(versions, item, blank[item]) for item in names}
        if not self._feed:
            columns = [new[item].alias(item) for item in names]
            return rows.select(*columns, *self._tracked())
        # before a row becomes several: a value that is not deterministic is the same in the feed and in the table
        wide = rows.select(
            *[blank[item].alias(f"__old_{place}") for place, item in enumerate(names)],
            F.struct(*[new[item].alias(item) for item in names]).alias(_NEW),
            name(_CLAUSE),
            *([name(ROW_ID_COLUMN), name(ROW_VERSION_COLUMN)] if self._tracking else []),
        )
        kinds = F.when(name(_CLAUSE).isNull(), F.array(F.lit(None).cast("string")))
        if deletes:
            kinds = kinds.when(name(_CLAUSE).isin(deletes), F.array(F.lit("delete")))
        both = F.array(F.lit(None).cast("string"), F.lit("update_preimage"), F.lit("update_postimage"))
        wide = wide.withColumn(CHANGE_COLUMN, F.explode(kinds.otherwise(both)))
        before = name(CHANGE_COLUMN).isin("update_preimage", "delete")
        columns = [
            F.when(before, name(f"__old_{place}")).otherwise(name(_NEW).getField(item)).alias(item)
            for place, item in enumerate(names)
        ]
        tracked = []
        if self._tracking:
            kept = F.when(name(_CLAUSE).isNull(), name(ROW_VERSION_COLUMN)).alias(ROW_VERSION_COLUMN)
            tracked = [name(ROW_ID_COLUMN), kept]
        return wide.select(*columns, name(CHANGE_COLUMN), *tracked)

    def _chosen(self, versions: Mapping[int, Mapping[str, Column]], item: str, old: Column) -> Column:
        chosen: Column | None = None
        for number, columns in versions.items():
            values = self._values[number]
            assert values is not None
            if item not in values.columns:
                continue
            is_it = name(_CLAUSE) == F.lit(number)
            chosen = F.when(is_it, columns[item]) if chosen is None else chosen.when(is_it, columns[item])
        return old if chosen is None else chosen.otherwise(old)

    def _tracked(self) -> list[Column]:
        if not self._tracking:
            return []
        version = F.when(name(_CLAUSE).isNull(), name(ROW_VERSION_COLUMN)).alias(ROW_VERSION_COLUMN)
        return [name(ROW_ID_COLUMN), version]

    def _inserted_rows(self) -> tuple[DataFrame, GivenValues]:
        """Source rows in no pair, as the clauses insert them; and how far the values of identity columns went."""
        rows = self._source
        if self._pairs is not None:
            paired = self._pairs.select(name(_SOURCE)).distinct()
            rows = rows.join(paired, name(_SOURCE_ROW) == name(_SOURCE), "left_anti")
        rows = rows.withColumn(_CLAUSE, self._first_clause(ClauseOn.NOT_MATCHED)).filter(name(_CLAUSE).isNotNull())
        nothing = {field.name: absent(field) for field in self.schema.fields}
        versions = {}
        for number, clause in enumerate(self._clauses):
            values = self._values[number]
            if clause.on is ClauseOn.NOT_MATCHED and values is not None:
                versions[number] = values.apply(self.schema, nothing)
        given = GivenValues(None)
        if self._numbered_columns:  # of rows that are kept, the partitions are known
            numbered = tuple(self._numbered_columns.values())
            rows, given = with_identities(self._spark, self._keep(rows), numbered, prefix=_GIVEN)
            rows = rows.alias(self._source_alias)
        for column in self._numbered_columns:
            nothing[column] = name(_GIVEN + column)
        names = self._written_names()
        columns = [self._chosen(versions, item, nothing[item]).alias(item) for item in names]
        blank = F.lit(None).cast("long")
        tracked = [blank.alias(ROW_ID_COLUMN), blank.alias(ROW_VERSION_COLUMN)] if self._tracking else []
        found = rows.select(*columns, *tracked)
        if self._feed:
            kinds = F.array(F.lit(None).cast("string"), F.lit("insert"))
            found = found.withColumn(CHANGE_COLUMN, F.explode(kinds))
        return found, given

    # --- parts ---------------------------------------------------------------------------------------------

    def _has(self, on: ClauseOn) -> bool:
        return any(clause.on is on for clause in self._clauses)

    def _reads_source(self) -> bool:
        return any(clause.on is ClauseOn.MATCHED and clause.action is ClauseAction.UPDATE for clause in self._clauses)

    def _first_clause(self, on: ClauseOn) -> Column:
        """Number of the first clause of a kind whose condition is true; null without one."""
        chosen: Column | None = None
        for number, (clause, condition) in enumerate(zip(self._clauses, self._conditions, strict=True)):
            if clause.on is not on:
                continue
            holds = F.lit(True) if condition is None else condition
            chosen = F.when(holds, F.lit(number)) if chosen is None else chosen.when(holds, F.lit(number))
        return F.lit(None).cast("int") if chosen is None else chosen

    def _scan(self, files: pl.DataFrame | None, *, identity: bool = False, tracking: bool = False) -> DataFrame:
        frame = scan_dataframe(
            self._spark,
            self._snapshot,
            pinned=True,
            files=files,
            with_file_identity=identity,
            with_row_index=identity,
            with_row_tracking=tracking,
        )
        return frame.alias(self._alias)

    def _hinted(self, frame: DataFrame) -> DataFrame:
        """Broadcast what is small: the source was counted, which Spark's own estimate does not know."""
        threshold = int(self._jvm.session.sessionState().conf().autoBroadcastJoinThreshold())
        if threshold < 0:
            return frame
        width = int(frame._jdf.schema().defaultSize())
        small = self.count_source() * width <= threshold * _BROADCAST_FACTOR
        return F.broadcast(frame) if small and not self._has(ClauseOn.NOT_MATCHED_BY_SOURCE) else frame

    def _keep(self, frame: DataFrame) -> DataFrame:
        """Rows that are used several times, cut off from the plan that made them: the source is in no plan twice."""
        return frame.localCheckpoint(False, StorageLevel.MEMORY_AND_DISK)

    def close(self) -> None:
        """See ``Merging.close``. What was kept goes when Spark's own cleaner finds that nobody holds it."""
        self._pairs = self._changes = None


def _positions(words: pl.DataFrame) -> Iterator[tuple[int, Positions]]:
    """Words of 64 bits by file -> the positions of their bits."""
    for (file,), part in words.sort("file", "word").group_by("file", maintain_order=True):
        bits = np.unpackbits(part["bits"].to_numpy().astype("<i8").view(np.uint8), bitorder="little")
        at = np.flatnonzero(bits)
        starts = part["word"].to_numpy().astype(np.uint64) * np.uint64(_WORD_BITS)
        yield int(str(file)), starts[at // _WORD_BITS] + (at % _WORD_BITS).astype(np.uint64)


def _quoted(text: str) -> str:
    return "`" + text.replace("`", "``") + "`"


def _qualified(alias: str, column: str) -> Column:
    """A column by its name under an alias: one bound to a DataFrame is ambiguous once that is joined twice."""
    return F.col(f"{_quoted(alias)}.{_quoted(column)}")


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
