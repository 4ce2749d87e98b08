"""Merge rows into a table in this process: the row work of MERGE, without a Spark job.

::

    candidate files --columns of keys and conditions--> live rows --join by keys--> pairs --the rest of the condition-->
        first clause whose condition is true --> rows that change, by file; rows of the source that have a pair

    write: touched files --rewrite--> copied, updated, not the deleted ones; source rows without a pair --> inserted

If two rows of the source would change one row of the table, Spark reports the error with the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

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
from pydelta.engines.arrow.merge.merge_rule import MergeRule, SeveralSources, both_sides
from pydelta.engines.arrow.merge.merge_source import LiveRows, MergeSource, Numbers, Pairs, TargetRows, one_batch
from pydelta.engines.arrow.merge.record_index import WantedKeys
from pydelta.engines.arrow.partition_moves import PartitionsOfRows, with_partitions
from pydelta.engines.arrow.tasks.arrow import file_array, replaced, same_shape
from pydelta.engines.arrow.tasks.write_files import FileRecord, WriteTask, run_task
from pydelta.engines.arrow.threads import for_threads
from pydelta.engines.arrow.updates import file_places, refuse_rules, required_places
from pydelta.log import Snapshot
from pydelta.predicate.expressions import Column, fields_of
from pydelta.protocol.actions import AddFile
from pydelta.protocol.paths import decode_log_path
from pydelta.protocol.roaring import Positions
from pydelta.protocol.row_sets import RowSet
from pydelta.protocol.schema import to_arrow_type
from pydelta.storage.discarding import discard

__all__ = ["ArrowMerge"]

_SMALL: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class _Changing:
    """Changing rows of a file, by position: the clause of each, and its row of the source, -1 without one."""

    positions: Numbers
    clauses: Numbers
    sources: Numbers

    @classmethod
    def of(cls, positions: Numbers, clauses: Numbers, sources: Numbers) -> _Changing:
        """Sort the rows by position, in arrays as small as their values allow."""
        order = np.argsort(positions, kind="stable")
        positions, sources = positions[order], sources[order]
        if not len(positions) or int(positions[-1]) < _SMALL:
            positions = positions.astype(np.int32)
        if not len(sources) or int(sources.max()) < _SMALL:
            sources = sources.astype(np.int32)
        return cls(positions, clauses[order].astype(np.int16), sources)

    def followed_by(self, more: _Changing) -> _Changing:
        """Append rows at later positions."""
        return _Changing(
            np.concatenate([self.positions, more.positions]),
            np.concatenate([self.clauses, more.clauses]),
            np.concatenate([self.sources, more.sources]),
        )


_V = TypeVar("_V")


class _Made(Mapping[int, _V]):
    """Values by the numbers of files, each made from the file's changing rows when it is asked for."""

    def __init__(self, of: Mapping[int, _Changing], make: Callable[[Positions], _V]) -> None:
        self._of, self._make = of, make

    def __getitem__(self, number: int) -> _V:
        return self._make(self._of[number].positions.astype(np.uint64))

    def __iter__(self) -> Iterator[int]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)


def _positions(positions: Positions) -> Positions:
    return positions


class ArrowMerge:
    """A merge in progress. Call ``find`` and then ``write`` once each.

    Args:
        snapshot: The table.
        rule: The merge.
        source: The source, whose columns expressions name by their positions.
        task: Options for writing files of the table.
        place: Store of the files.
        most_changes: Maximum number of rows that change, each of which takes ten bytes; None for no limit.

    Raises:
        NotHere: Only Spark can handle the table, a clause or a type.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        rule: MergeRule,
        source: MergeSource,
        *,
        task: WriteTask,
        place: FilePlace,
        most_changes: int | None = None,
    ) -> None:
        refuse_table(snapshot)
        values: set[str] = {name for clause in rule.clauses for name in clause.values}
        refuse_rules(snapshot, inserts=bool(rule.numbers(ClauseOn.NOT_MATCHED)))
        self._snapshot, self._rule, self._task, self._place = snapshot, rule, task, place
        self._target = TargetRows(snapshot, rule, task=task, place=place)
        self._source = source
        self._places = file_places(snapshot, task, values)
        self._required = required_places(snapshot, task)
        self._partitions = {  # The task splits inserted rows.
            number: PartitionsOfRows(snapshot, clause.values)
            for number, clause in enumerate(rule.clauses)
            if clause.on is not ClauseOn.NOT_MATCHED
        }
        self._check_values()
        self._most_changes = most_changes
        self._found: dict[int, _Changing] = {}

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

    def narrowed(self, files: pl.DataFrame) -> pl.DataFrame:
        """Leave out files without a match by the record index. See ``Merging.narrowed``."""
        rows = self._source.held
        return files if rows is None else WantedKeys(self._snapshot, self._rule, rows).left(files, self._place)

    # --- pairs -----------------------------------------------------------------------------------------------

    def find(self, files: pl.DataFrame) -> MergeMatches:
        """Pair the rows of files with the source. See ``Merging.find``.

        Raises:
            NotHere, NeedsSpark: Only Spark can do it reliably, or report the error.
            StorageError: A file is missing or damaged, or the store failed.
        """
        adds = self._snapshot.files.adds(files)
        counts = {"updated": 0, "deleted": 0, "alone_updated": 0, "alone_deleted": 0}
        alone = bool(self._rule.numbers(ClauseOn.NOT_MATCHED_BY_SOURCE))
        for pairs in self._source.pairs(adds, self._target, all_rows=alone):
            changing = self._changing(adds[pairs.number], pairs)
            if len(changing.positions):
                before = self._found.get(pairs.number)
                self._found[pairs.number] = changing if before is None else before.followed_by(changing)
                self._count(changing, counts)
                if self._most_changes is not None and counts["updated"] + counts["deleted"] > self._most_changes:
                    raise NotHere(f"more than {self._most_changes} rows that change")
        inserts = bool(self._rule.numbers(ClauseOn.NOT_MATCHED))
        return MergeMatches(
            positions=_Made(self._found, _positions), paired=self._source.num_matched if inserts else 0, **counts
        )

    def _count(self, changing: _Changing, counts: dict[str, int]) -> None:
        for clause, how_many in zip(*np.unique(changing.clauses, return_counts=True), strict=True):
            kind = self._rule.clauses[int(clause)]
            what = "deleted" if kind.action is ClauseAction.DELETE else "updated"
            counts[what] += int(how_many)
            if kind.on is ClauseOn.NOT_MATCHED_BY_SOURCE:
                counts[f"alone_{what}"] += int(how_many)

    def _changing(self, add: AddFile, pairs: Pairs) -> _Changing:
        """Find the rows of a file that change, and mark the rows of the source that match."""
        rows, at, sources = pairs.rows, pairs.at, pairs.sources
        column = self._pair(add, rows, at, sources)
        holds = np.ones(len(at), dtype=np.bool_)
        for part in self._rule.rest:
            holds &= true_rows(part, column, len(at))
        if not holds.all():
            at, sources = at[holds], sources[holds]
            column = self._pair(add, rows, at, sources)
        self._source.mark(sources)
        clauses = self._first_of(ClauseOn.MATCHED, column, len(at))
        taken = clauses >= 0
        places, first, times = np.unique(at[taken], return_index=True, return_counts=True)
        if (times > 1).any() and not only_deletes(self._rule.clauses):
            raise SeveralSources("several rows of the source for one row")
        clauses, sources = clauses[taken][first], sources[taken][first].astype(np.int64)
        if self._rule.numbers(ClauseOn.NOT_MATCHED_BY_SOURCE):
            alone = np.ones(len(rows.positions), dtype=np.bool_)
            alone[at] = False
            others = np.flatnonzero(alone)
            column = self._pair(add, rows, others, None)
            decided = self._first_of(ClauseOn.NOT_MATCHED_BY_SOURCE, column, len(others))
            others, decided = others[decided >= 0], decided[decided >= 0]
            places = np.concatenate([places, others])
            clauses = np.concatenate([clauses, decided])
            sources = np.concatenate([sources, np.full(len(others), -1, np.int64)])
        return _Changing.of(rows.positions[places], clauses, sources)

    def _pair(self, add: AddFile, rows: LiveRows, at: Numbers, sources: Numbers | None) -> Columns:
        mine = rows.batch.take(pa.array(at))
        return both_sides(self._target.of(add, mine), None if sources is None else self._source.rows(sources))

    def _first_of(self, on: ClauseOn, column: Columns, size: int) -> Numbers:
        """Find for each row the first clause of a kind whose condition is true, -1 without one."""
        found = np.full(size, -1, dtype=np.int64)
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
            rows = _Made(dict(enumerate(found)), RowSet.of)
            written = rewrite(self._snapshot, files, rows, change, task=self._task, place=self._place)
            passed = replace(passed, copied=sum(change.copied.values()), updated=sum(change.updated.values()))
        if not self._rule.numbers(ClauseOn.NOT_MATCHED) or not self._source.num_rows:
            return written, passed
        try:
            records, inserted, others = self._insert()
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
        return both, replace(passed, inserted=inserted, source=source, paired=source - others)

    def _updates(self, found: _Changing) -> bool:
        return any(self._rule.clauses[int(number)].action is ClauseAction.UPDATE for number in np.unique(found.clauses))

    def _change(self, of: dict[str, _Changing], *, copy_others: bool) -> _Change:
        return _Change(self, of, copy_others=copy_others)

    def new_rows(
        self, clause: int, add: AddFile, before: pa.RecordBatch, sources: Numbers
    ) -> tuple[dict[int, pa.Array], list[pa.Array]]:
        """Compute the values that a clause sets in rows of a file, by the positions of columns in files.

        Also returns the new partition values of the rows, if the clause sets some.
        """
        theirs = self._source.rows(sources) if len(sources) and sources[0] >= 0 else None
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

    def _insert(self) -> tuple[list[FileRecord], int, int]:
        """Write the source rows without a match that a clause inserts.

        Returns the files, the number of rows in them, and that of all source rows without a match.
        """
        inserted = others = 0

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal inserted, others
            for rows in self._source.unmatched():
                others += rows.num_rows
                clauses = self._first_of(ClauseOn.NOT_MATCHED, both_sides(None, rows), rows.num_rows)
                for number in self._rule.numbers(ClauseOn.NOT_MATCHED):
                    own = rows.filter(pa.array(clauses == number))
                    if own.num_rows:
                        inserted += own.num_rows
                        yield from self._inserted(number, own)

        task = for_threads(self._task, 1)
        records = run_task(batches(), task, partition_id=0, store=self._place.store)
        return records, inserted, others

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
        clauses: Numbers,
        sources: Numbers,
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
        return whole, leaving, one_batch(pa.Table.from_batches(moved)) if moved else None
