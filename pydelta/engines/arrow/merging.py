"""Merge rows into a table in this process: the row work of MERGE, without a Spark job.

::

    candidate files --columns of keys and conditions--> live rows --join by keys--> pairs --the rest of the condition-->
        first clause whose condition is true --> rows that change, by file; rows of the source that have a pair

    write: touched files --rewrite--> copied, updated, not the deleted ones; source rows without a pair --> inserted

If two rows of the source would change one row of the table, Spark reports the error with the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from pydelta.commands.change.merge import ClauseAction, ClauseOn, MergeMatches, only_deletes
from pydelta.commands.change.reconcile import Passed
from pydelta.commands.engine import NOTHING_WRITTEN, RewriteOutput
from pydelta.engines.arrow.changes import FilePlace, Rewritten, rewrite
from pydelta.engines.arrow.columns import ArrowColumns, refuse_table
from pydelta.engines.arrow.conform import without_empty
from pydelta.engines.arrow.evaluate import Columns, evaluate, true_rows
from pydelta.engines.arrow.expressions import NotHere, source_field
from pydelta.engines.arrow.layout import output_of, written_columns
from pydelta.engines.arrow.merge_rule import MergeRule, SeveralSources, both_sides, one_array
from pydelta.engines.arrow.partition_moves import PartitionsOfRows, with_partitions
from pydelta.engines.arrow.tasks.arrow import file_array, replaced, same_shape
from pydelta.engines.arrow.tasks.old_files import hidden_rows, old_file, read_batches, rows_among
from pydelta.engines.arrow.tasks.write_files import FileRecord, WriteTask, run_task
from pydelta.engines.arrow.threads import cores, read_files
from pydelta.engines.arrow.updates import file_places, refuse_rules, required_places
from pydelta.log import Snapshot
from pydelta.predicate.expressions import Column, fields_of
from pydelta.protocol.actions import AddFile
from pydelta.protocol.paths import decode_log_path
from pydelta.protocol.row_sets import RowSet
from pydelta.protocol.schema import to_arrow_type
from pydelta.storage.discarding import discard

__all__ = ["ArrowMerge", "chunks"]

_BATCH_ROWS: Final = 131_072
_CHUNK_BYTES: Final = 64 * 1024 * 1024
"""Files of this size per processor are joined at once, so that memory does not grow with the table."""
_Places: Final = np.int64


@dataclass(frozen=True, slots=True)
class _Loaded:
    """Live rows of a file: their positions, and the columns that pairing reads."""

    positions: npt.NDArray[np.int64]
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class _Changing:
    """Changing rows of a file, by position: the clause of each, and its row of the source, -1 without one."""

    positions: npt.NDArray[np.int64]
    clauses: npt.NDArray[np.signedinteger[Any]]
    sources: npt.NDArray[np.signedinteger[Any]]


class ArrowMerge:
    """A merge in progress. Call ``find`` and then ``write`` once each.

    Args:
        snapshot: The table.
        rule: The merge.
        source: Rows of the source, with columns named by their positions.
        task: Options for writing files of the table.
        place: Store of the files.

    Raises:
        NotHere: Only Spark can handle the table, a clause or a type.
    """

    def __init__(
        self, snapshot: Snapshot, rule: MergeRule, source: pa.Table, *, task: WriteTask, place: FilePlace
    ) -> None:
        refuse_table(snapshot)
        values: set[str] = {name for clause in rule.clauses for name in clause.values}
        refuse_rules(snapshot, inserts=bool(rule.numbers(ClauseOn.NOT_MATCHED)))
        self._snapshot, self._rule, self._task, self._place = snapshot, rule, task, place
        self._columns = ArrowColumns(snapshot, rule.table_fields)
        self._read: pa.Schema = self._columns.schema
        if not len(self._read):  # With partition columns alone, any column of the files gives the number of rows.
            flat = [field for field in task.file_schema if not pa.types.is_nested(field.type)]
            self._read = pa.schema([*flat, *task.file_schema][:1])
        self._source = source
        self._places = file_places(snapshot, task, values)
        self._required = required_places(snapshot, task)
        self._partitions = {  # The task splits inserted rows.
            number: PartitionsOfRows(snapshot, clause.values)
            for number, clause in enumerate(rule.clauses)
            if clause.on is not ClauseOn.NOT_MATCHED
        }
        self._check_values()
        self._found: dict[int, _Changing] = {}
        self._unpaired: npt.NDArray[np.int64] = np.arange(source.num_rows, dtype=_Places)

    def _check_values(self) -> None:
        """Check that the values of all clauses have the types of their columns, and that files hold these types."""
        partitions = {name.lower() for name in self._snapshot.partition_columns}
        reading: list[Column] = []
        for clause in self._rule.clauses:
            for column, value in clause.values.items():
                target = self._snapshot.schema.field(column)
                if target is None or target.data_type != value.type:
                    raise NotHere("a value of another type than its column")
                at = self._places.get(column)
                if at is None and column.lower() not in partitions:
                    raise NotHere("a column that files do not hold")
                if at is not None and not same_shape(to_arrow_type(value.type), self._task.file_schema.field(at).type):
                    raise NotHere("a value that files hold in another type")
                reading += [item for item in fields_of(value) if not source_field(item.path)]
        self._values = ArrowColumns(self._snapshot, reading)
        for wanted in self._values.schema:
            if not self._task.file_schema.field(wanted.name).type.equals(wanted.type):
                raise NotHere("a value that files hold in another type")

    # --- pairs -----------------------------------------------------------------------------------------------

    def find(self, files: pl.DataFrame) -> MergeMatches:
        """Pair the rows of files with the source. See ``Merging.find``.

        Raises:
            NotHere, NeedsSpark: Only Spark can do it reliably, or report the error.
            StorageError: A file is missing or damaged, or the store failed.
        """
        adds = self._snapshot.files.adds(files)
        paired = np.zeros(self._source.num_rows, dtype=np.bool_)
        counts = {"updated": 0, "deleted": 0, "alone_updated": 0, "alone_deleted": 0}
        theirs = self._keys_of_source()
        for numbers in chunks([add.size for add in adds], max(_CHUNK_BYTES * cores(), self._source.nbytes)):
            part = [adds[number] for number in numbers]
            loaded = self._load(part)
            joined = self._joined(part, loaded, theirs)
            for at_part, number in enumerate(numbers):
                at, sources = joined.get(at_part, (np.empty(0, _Places), np.empty(0, _Places)))
                changing = self._of_file(part[at_part], loaded[at_part], at, sources, paired)
                if len(changing.positions):
                    self._found[number] = changing
                    self._count(changing, counts)
        self._unpaired = np.flatnonzero(~paired).astype(_Places)
        inserts = bool(self._rule.numbers(ClauseOn.NOT_MATCHED))
        return MergeMatches(
            positions={number: item.positions.astype(np.uint64) for number, item in self._found.items()},
            paired=int(paired.sum()) if inserts else 0,
            **counts,
        )

    def _count(self, changing: _Changing, counts: dict[str, int]) -> None:
        for clause, how_many in zip(*np.unique(changing.clauses, return_counts=True), strict=True):
            kind = self._rule.clauses[int(clause)]
            what = "deleted" if kind.action is ClauseAction.DELETE else "updated"
            counts[what] += int(how_many)
            if kind.on is ClauseOn.NOT_MATCHED_BY_SOURCE:
                counts[f"alone_{what}"] += int(how_many)

    def _load(self, adds: Sequence[AddFile]) -> list[_Loaded]:
        place, schema = self._place, self._read
        old = [old_file(add) for add in adds]
        hidden = hidden_rows(old, store=place.store, root=self._snapshot.table_uri, options=place.options)

        def read(number: int) -> _Loaded:
            positions, batches = [], []
            for start, batch in read_batches(old[number], schema, place.store):
                live = np.ones(batch.num_rows, dtype=np.bool_)
                if number in hidden:
                    live = ~rows_among(hidden[number], start, batch.num_rows)
                positions.append(np.flatnonzero(live).astype(_Places) + start)
                batches.append(batch if live.all() else batch.filter(pa.array(live)))
            whole = np.concatenate(positions) if positions else np.empty(0, _Places)
            return _Loaded(whole, _one_batch(pa.Table.from_batches(batches, schema=schema)))

        return read_files(read, len(old), place.store)

    def _keys_of_source(self) -> pl.DataFrame:
        """Return the keys of the source's rows, with their positions as ``s``."""
        column = both_sides(None, self._source)
        theirs = {
            f"k{number}": _joinable(evaluate(key, column, self._source.num_rows))
            for number, (_, key) in enumerate(self._rule.keys)
        }
        return pl.DataFrame(theirs).with_row_index("s")

    def _joined(
        self, adds: Sequence[AddFile], loaded: Sequence[_Loaded], right: pl.DataFrame
    ) -> dict[int, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Join by keys. Returns the positions of paired live rows and of source rows, by file."""
        names = right.columns[1:]
        parts = []
        for number, (add, rows) in enumerate(zip(adds, loaded, strict=True)):
            if not len(rows.positions):
                continue
            column = both_sides(self._columns.of(add.partition_values, rows.batch), None)
            keys = {
                name: _joinable(evaluate(key, column, rows.batch.num_rows))
                for name, (key, _) in zip(names, self._rule.keys, strict=True)
            }
            part = pl.DataFrame(keys).with_row_index("at")
            parts.append(part.with_columns(pl.lit(number, dtype=pl.UInt32).alias("file")))
        if not parts or right.is_empty():
            return {}
        pairs = pl.concat(parts).join(right, on=names, how="inner", nulls_equal=False).select("file", "at", "s")
        found = {}
        for (number,), part in pairs.sort("file", "at", "s").group_by("file", maintain_order=True):
            found[int(str(number))] = part["at"].to_numpy().astype(_Places), part["s"].to_numpy().astype(_Places)
        return found

    def _of_file(
        self,
        add: AddFile,
        rows: _Loaded,
        at: npt.NDArray[np.int64],
        sources: npt.NDArray[np.int64],
        paired: npt.NDArray[np.bool_],
    ) -> _Changing:
        """Find the rows of a file that change, and mark the paired rows of the source in ``paired``."""
        column = self._pair(add, rows, at, sources)
        holds = np.ones(len(at), dtype=np.bool_)
        for part in self._rule.rest:
            holds &= true_rows(part, column, len(at))
        if not holds.all():
            at, sources = at[holds], sources[holds]
            column = self._pair(add, rows, at, sources)
        paired[sources] = True
        clauses = self._first_of(ClauseOn.MATCHED, column, len(at))
        taken = clauses >= 0
        places, first, times = np.unique(at[taken], return_index=True, return_counts=True)
        if (times > 1).any() and not only_deletes(self._rule.clauses):
            raise SeveralSources("several rows of the source for one row")
        clauses, sources = clauses[taken][first], sources[taken][first]
        if self._rule.numbers(ClauseOn.NOT_MATCHED_BY_SOURCE):
            alone = np.ones(len(rows.positions), dtype=np.bool_)
            alone[at] = False
            others = np.flatnonzero(alone).astype(_Places)
            column = self._pair(add, rows, others, None)
            decided = self._first_of(ClauseOn.NOT_MATCHED_BY_SOURCE, column, len(others))
            others, decided = others[decided >= 0], decided[decided >= 0]
            places = np.concatenate([places, others])
            clauses = np.concatenate([clauses, decided])
            sources = np.concatenate([sources, np.full(len(others), -1, _Places)])
        order = np.argsort(places, kind="stable")
        small = np.int32 if self._source.num_rows < 1 << 31 else np.int64
        return _Changing(rows.positions[places[order]], clauses[order].astype(np.int16), sources[order].astype(small))

    def _pair(
        self, add: AddFile, rows: _Loaded, at: npt.NDArray[np.int64], sources: npt.NDArray[np.int64] | None
    ) -> Columns:
        mine = rows.batch.take(pa.array(at))
        theirs = None if sources is None else self._source.take(pa.array(sources))
        return both_sides(self._columns.of(add.partition_values, mine), theirs)

    def _first_of(self, on: ClauseOn, column: Columns, size: int) -> npt.NDArray[np.int64]:
        """Find for each row the first clause of a kind whose condition is true, -1 without one."""
        found = np.full(size, -1, dtype=_Places)
        for number in self._rule.numbers(on):
            condition = self._rule.clauses[number].condition
            holds = np.ones(size, dtype=np.bool_) if condition is None else true_rows(condition, column, size)
            found[(found < 0) & holds] = number
        return found

    # --- new rows --------------------------------------------------------------------------------------------

    def write(self, files: pl.DataFrame, places: Sequence[int], *, copy_others: bool) -> tuple[RewriteOutput, Passed]:
        """Write updated, copied and inserted rows. See ``Merging.write``.

        Raises:
            NotHere, NeedsSpark: Only Spark can do it reliably. Files written before the error are deleted.
            StorageError: A file is missing or damaged, or the store refused a request.
            RowsDoNotAddUpError: The new files hold other rows than they were given.
        """
        passed, written = Passed(), NOTHING_WRITTEN
        found = [self._found[place] for place in places]
        nothing = not copy_others and not self._task.change_data and not any(map(self._updates, found))
        if files.height and not nothing:
            adds = self._snapshot.files.adds(files)
            change = self._change(dict(zip([add.path for add in adds], found, strict=True)), copy_others=copy_others)
            if len(change.of) < len(adds):
                raise NotHere("a file that is in the table twice")
            rows = {number: RowSet.of(item.positions.astype(np.uint64)) for number, item in enumerate(found)}
            written = rewrite(self._snapshot, files, rows, change, task=self._task, place=self._place)
            passed = replace(passed, copied=sum(change.copied.values()), updated=sum(change.updated.values()))
        if not self._rule.numbers(ClauseOn.NOT_MATCHED) or not self._source.num_rows:
            return written, passed
        try:
            records, inserted = self._insert()
        except BaseException:
            discard(self._place.store, [decode_log_path(item.path).text for item in written.files])
            raise
        new = output_of(records)
        both = RewriteOutput(
            adds=(*written.adds, *new.adds),
            num_rows=written.num_rows + new.num_rows,
            changes=(*written.changes, *new.changes),
            num_changes=written.num_changes + new.num_changes,
        )
        source = self._source.num_rows
        return both, replace(passed, inserted=inserted, source=source, paired=source - len(self._unpaired))

    def _updates(self, found: _Changing) -> bool:
        return any(self._rule.clauses[int(number)].action is ClauseAction.UPDATE for number in np.unique(found.clauses))

    def _change(self, of: dict[str, _Changing], *, copy_others: bool) -> _Change:
        return _Change(self, of, copy_others=copy_others)

    def new_rows(
        self, clause: int, add: AddFile, before: pa.RecordBatch, sources: npt.NDArray[np.signedinteger[Any]]
    ) -> tuple[dict[int, pa.Array], list[pa.Array]]:
        """Compute the values that a clause sets in rows of a file, by the positions of columns in files.

        Also returns the new partition values of the rows, if the clause sets some.
        """
        theirs = self._source.take(pa.array(sources)) if len(sources) and sources[0] >= 0 else None
        column = both_sides(self._values.of(add.partition_values, before), theirs)
        values = self._rule.clauses[clause].values
        size, partitions = before.num_rows, self._partitions[clause]
        new = {}
        for name, value in values.items():
            if (at := self._places.get(name)) is not None:
                new[at] = file_array(evaluate(value, column, size), self._task.file_schema.field(at).type)
        return new, partitions.of(add, column, size) if partitions else []

    @property
    def rule(self) -> MergeRule:
        """The merge's rule."""
        return self._rule

    @property
    def task(self) -> WriteTask:
        """Options for writing files."""
        return self._task

    def check_required(self, rows: pa.RecordBatch) -> None:
        """Check that no column of new rows that is NOT NULL has a null.

        Raises:
            NotHere: One has. Spark reports which.
        """
        if any(rows.column(place).null_count for place in self._required):
            raise NotHere("a null in a column that is NOT NULL")

    def _insert(self) -> tuple[list[FileRecord], int]:
        """Write the source rows without a pair that a clause inserts. Returns the files and the number of rows."""
        rows = self._source.take(pa.array(self._unpaired))
        clauses = self._first_of(ClauseOn.NOT_MATCHED, both_sides(None, rows), rows.num_rows)
        batches: list[pa.RecordBatch] = []
        inserted = 0
        for number in self._rule.numbers(ClauseOn.NOT_MATCHED):
            own = rows.filter(pa.array(clauses == number))
            for start in range(0, own.num_rows, _BATCH_ROWS):
                part = own.slice(start, _BATCH_ROWS)
                inserted += part.num_rows
                batches += self._inserted(number, part)
        if not batches:
            return [], 0
        task = replace(self._task, encoders=cores())
        return run_task(batches, task, partition_id=0, store=self._place.store), inserted

    def _inserted(self, number: int, part: pa.Table) -> list[pa.RecordBatch]:
        """Make the new rows as a task takes them, with those of the change feed if there is one."""
        size, schema = part.num_rows, self._snapshot.schema
        column, values = both_sides(None, part), self._rule.clauses[number].values
        arrays = []
        data, partitions = written_columns(schema, self._snapshot.partition_columns)
        for name in (*data, *partitions):
            target = schema.field(name)
            assert target is not None, "the names are the schema's own"
            given = next((value for key, value in values.items() if key.lower() == name.lower()), None)
            array = pa.nulls(size, to_arrow_type(target.data_type)) if given is None else evaluate(given, column, size)
            if name in partitions:
                array = without_empty(array)
            if not target.nullable and array.null_count:
                raise NotHere("a null in a column that is NOT NULL")
            arrays.append(array)
        hidden = [pa.nulls(size, pa.int64())] * self._task.hidden_columns
        arrays = [*arrays[: len(data)], *hidden, *arrays[len(data) :]]
        names = [f"c{place}" for place in range(len(arrays) + 1)]
        if not self._task.change_data:
            return [pa.RecordBatch.from_arrays(arrays, names=names[:-1])]
        kinds = (pa.nulls(size, pa.string()), pa.repeat(pa.scalar("insert", pa.string()), size))
        return [pa.RecordBatch.from_arrays([*arrays, kind], names=names) for kind in kinds]


class _Change:
    """The change of the rows of touched files, a ``Change``. Batches of a file must come in their order."""

    def __init__(self, merge: ArrowMerge, of: dict[str, _Changing], *, copy_others: bool) -> None:
        self._merge = merge
        self.of = of
        self._copy_others = copy_others
        self._start = dict.fromkeys(of, 0)
        self.copied, self.updated = dict.fromkeys(of, 0), dict.fromkeys(of, 0)

    def __call__(
        self, add: AddFile, batch: pa.RecordBatch, live: npt.NDArray[np.bool_], matched: npt.NDArray[np.bool_]
    ) -> Rewritten:
        start = self._start[add.path]
        self._start[add.path] = start + batch.num_rows
        hit = live & matched
        if not hit.any():
            rows = batch.filter(pa.array(live)) if self._copy_others else batch.slice(0, 0)
            self.copied[add.path] += rows.num_rows
            return Rewritten(rows=rows)
        found = self.of[add.path]
        at = np.searchsorted(found.positions, np.flatnonzero(hit) + start)
        clauses, sources = found.clauses[at], found.sources[at]
        rule = self._merge.rule
        deletes = [number for number, item in enumerate(rule.clauses) if item.action is ClauseAction.DELETE]
        gone = np.isin(clauses, deletes)
        updated = hit.copy()
        updated[np.flatnonzero(hit)[gone]] = False
        whole, leaving, moved = self._updated(add, batch, updated, clauses[~gone], sources[~gone])
        self.updated[add.path] += int(updated.sum())
        after = whole.filter(pa.array(updated & ~leaving))
        rows = after
        if self._copy_others:
            stays = live & (updated | ~hit) & ~leaving
            rows = whole if stays.all() else whole.filter(pa.array(stays))
            self.copied[add.path] += rows.num_rows - after.num_rows
        deleted = batch.filter(pa.array(hit & ~updated))
        before = batch.filter(pa.array(updated))
        changes = (("delete", deleted), ("update_preimage", before), ("update_postimage", after))
        return Rewritten(rows=rows, changes=tuple(item for item in changes if item[1].num_rows), moved=moved)

    def _updated(
        self,
        add: AddFile,
        batch: pa.RecordBatch,
        updated: npt.NDArray[np.bool_],
        clauses: npt.NDArray[np.signedinteger[Any]],
        sources: npt.NDArray[np.signedinteger[Any]],
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_], pa.RecordBatch | None]:
        """Compute updated values. Returns the batch, a mask of rows that change their partition, and those rows."""
        arrays: list[Any] = list(batch.columns)
        where = np.flatnonzero(updated)
        going: list[tuple[npt.NDArray[np.bool_], list[pa.Array]]] = []
        for number in np.unique(clauses):
            own = clauses == number
            mask = np.zeros(batch.num_rows, dtype=np.bool_)
            mask[where[own]] = True
            before = batch.filter(pa.array(mask))
            values, partitions = self._merge.new_rows(int(number), add, before, sources[own])
            for place, new in values.items():
                arrays[place] = replaced(arrays[place], mask, new)
            if partitions:
                going.append((mask, partitions))
        if self._merge.task.hidden_columns and len(where):  # The row keeps its id, and gets the commit's version.
            arrays[-1] = pc.if_else(pa.array(updated), pa.scalar(None, pa.int64()), arrays[-1])
        whole = pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
        self._merge.check_required(whole.filter(pa.array(updated)))
        leaving = np.zeros(batch.num_rows, dtype=np.bool_)
        for mask, _ in going:
            leaving |= mask
        moved = [with_partitions(whole.filter(pa.array(mask)), partitions) for mask, partitions in going]
        return whole, leaving, _one_batch(pa.Table.from_batches(moved)) if moved else None


def chunks(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Divide files into runs of at most ``most`` bytes, or of one file. Pure.

    Example:
        >>> chunks([3, 4, 9, 1, 1], 8)
        [[0, 1], [2], [3, 4]]
    """
    found: list[list[int]] = []
    left = 0
    for number, size in enumerate(sizes):
        if not found or size > left:
            found.append([])
            left = most
        found[-1].append(number)
        left -= size
    return found


def _joinable(values: pa.Array) -> pl.Series:
    """Convert keys so that they are equal in Polars if and only if they are equal in Spark."""
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.string())  # With the same scale, equal numbers have equal text.
    elif pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    return pl.Series(pl.from_arrow(values))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([one_array(column) for column in table.columns], schema=table.schema)
