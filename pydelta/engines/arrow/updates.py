"""Compute the new values of an UPDATE in this process, if the table needs no check that only Spark does.

Each batch keeps its order. As in Spark, new values are computed only for rows that change, so a row that stays cannot
fail the command.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pydelta.engines.arrow.changes import Change, ChangeOfColumns, ChangeOfMatches, Rewritten
from pydelta.engines.arrow.columns import ArrowColumns, fields_in
from pydelta.engines.arrow.evaluate import evaluate
from pydelta.engines.arrow.expressions import Exact, NotHere, type_of
from pydelta.engines.arrow.partition_moves import PartitionsOfRows, with_partitions
from pydelta.engines.arrow.tasks.write_files import WriteTask
from pydelta.log import Snapshot
from pydelta.predicate.expressions import fields_of
from pydelta.protocol.actions import AddFile
from pydelta.protocol.schema import physical_name, to_arrow_type
from pydelta.protocol.sized_texts import LENGTH
from pydelta.protocol.types import ArrayType, DataType, MapType, StructType

__all__ = ["file_places", "refuse_rules", "required_places", "requires_values", "update_rows"]

_COMPUTED: Final = ("delta.generationExpression", "delta.invariants", LENGTH)
_GIVEN: Final = ("CURRENT_DEFAULT", "delta.identity.step")
_CONSTRAINT: Final = "delta.constraints."


def update_rows(snapshot: Snapshot, task: WriteTask, values: Mapping[str, Exact], *, copy_others: bool) -> Change:
    """Return the ``Change`` that sets columns in the rows that matched.

    Args:
        snapshot: The table.
        task: Options for writing its files.
        values: New values by the table's names of columns.
        copy_others: Whether the other rows are also written.

    Raises:
        NotHere: The table has constraints, generated or sized columns, a value does not have its column's type, or the
            session stores times in another unit than the table's.
    """
    _refuse(snapshot, values)
    columns = ArrowColumns(snapshot, [field for value in values.values() for field in fields_of(value)])
    places = {place: values[column] for column, place in file_places(snapshot, task, values).items()}
    for at, value in places.items():
        if not task.file_schema.field(at).type.equals(to_arrow_type(type_of(value))):
            raise NotHere("a value that files hold in another type")
    for wanted in columns.schema:
        if not task.file_schema.field(wanted.name).type.equals(wanted.type):
            raise NotHere("a value that files hold in another type")
    required = required_places(snapshot, task)
    partitions = PartitionsOfRows(snapshot, values)

    def within(narrow: WriteTask) -> Change:
        return update_rows(snapshot, narrow, values, copy_others=copy_others)

    update = _Update(columns, places, required, partitions, hidden=task.hidden_columns, copy_others=copy_others)
    if not copy_others:
        return ChangeOfMatches(update)
    return update if partitions else _UpdateOfColumns(update, task, within)


class _UpdateOfColumns(ChangeOfColumns):
    """An UPDATE that keeps all rows in their places. See ``update_rows``."""

    def __init__(self, update: _Update, task: WriteTask, within: Callable[[WriteTask], Change]) -> None:
        self._update, self._names, self._within = update, task.file_schema.names, within

    def __call__(
        self, add: AddFile, batch: pa.RecordBatch, live: npt.NDArray[np.bool_], matched: npt.NDArray[np.bool_]
    ) -> Rewritten:
        return self._update(add, batch, live, matched)

    def columns(self) -> Collection[str]:
        return {*self._update.columns.schema.names, *(self._names[place] for place in self._update.places)}

    def within(self, task: WriteTask) -> Change:
        return self._within(task)

    def required(self) -> Collection[str]:
        return [self._names[place] for place in self._update.required]


class _Update:
    """See ``update_rows``. ``places`` and ``required`` are numbers of columns in the files."""

    def __init__(
        self,
        columns: ArrowColumns,
        places: Mapping[int, Exact],
        required: list[int],
        partitions: PartitionsOfRows,
        *,
        hidden: int,
        copy_others: bool,
    ) -> None:
        self.columns = columns
        self.places = places
        self.required = required
        self._partitions = partitions
        self._hidden = hidden
        self._copy_others = copy_others

    def __call__(
        self, add: AddFile, batch: pa.RecordBatch, live: npt.NDArray[np.bool_], matched: npt.NDArray[np.bool_]
    ) -> Rewritten:
        hit = live & matched
        if not hit.any():
            return Rewritten(rows=batch.filter(pa.array(live)) if self._copy_others else batch.slice(0, 0))
        mask = pa.array(hit)
        before = batch.filter(mask)
        column = self.columns.of(add.partition_values, before)
        arrays: list[Any] = list(batch.columns)
        for place, value in self.places.items():
            new = evaluate(value, column, before.num_rows)
            arrays[place] = pc.replace_with_mask(arrays[place], mask, new)
        if self._hidden:  # The row keeps its id, and its version becomes that of the current commit.
            arrays[-1] = pc.if_else(mask, pa.scalar(None, pa.int64()), arrays[-1])
        whole = pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
        after = whole.filter(mask)
        if any(after.column(place).null_count for place in self.required):
            raise NotHere("a null in a column that is NOT NULL")
        if self._partitions:
            moved = with_partitions(after, self._partitions.of(add, column, before.num_rows))
            stays = batch.filter(pa.array(live & ~hit)) if self._copy_others else batch.slice(0, 0)
            return Rewritten(rows=stays, changes=(("update_preimage", before),), moved=moved)
        rows = after
        if self._copy_others:
            rows = whole if live.all() else whole.filter(pa.array(live))
        return Rewritten(rows=rows, changes=(("update_preimage", before), ("update_postimage", after)))


def file_places(snapshot: Snapshot, task: WriteTask, columns: Iterable[str]) -> dict[str, int]:
    """Find which of the columns files hold, and their places in files."""
    names, mode = task.file_schema.names, snapshot.column_mapping_mode
    found = {}
    for column in columns:
        field = snapshot.schema.field(column)
        if field is None:
            continue
        name = field.name if mode == "none" else physical_name(field)
        if name in names:
            found[column] = names.index(name)
    return found


def required_places(snapshot: Snapshot, task: WriteTask) -> list[int]:
    """Find the places in files of the columns that are NOT NULL."""
    names = task.file_schema.names
    return [names.index(name) for name in _required(snapshot, snapshot.column_mapping_mode) if name in names]


def refuse_rules(snapshot: Snapshot, *, inserts: bool = False) -> None:
    """Check that new rows of a table need nothing that only Spark checks or computes.

    Args:
        snapshot: The table.
        inserts: Whether rows are added.

    Raises:
        NotHere: The table has constraints, generated or sized columns, or, for added rows, defaults or identity
            columns.
    """
    assert snapshot.metadata is not None
    if any(key.lower().startswith(_CONSTRAINT) for key in snapshot.metadata.configuration):
        raise NotHere("a table with CHECK constraints")
    for field in fields_in(snapshot.schema):
        if any(key in field.metadata for key in _COMPUTED):
            raise NotHere("a table with generated, checked, char or varchar columns")
        if inserts and any(key in field.metadata for key in _GIVEN):
            raise NotHere("a table with defaults or identity columns")
    if any(requires_values(field.data_type) for field in snapshot.schema.fields):
        raise NotHere("a table with NOT NULL inside a column")


def _refuse(snapshot: Snapshot, values: Mapping[str, Exact]) -> None:
    refuse_rules(snapshot)
    for column, value in values.items():
        target = snapshot.schema.field(column)
        if target is None or target.data_type != value.type:
            raise NotHere("a value of another type than its column")


def requires_values(data_type: DataType) -> bool:
    """Return whether a part of a type is NOT NULL."""
    if isinstance(data_type, StructType):
        return any(not field.nullable or requires_values(field.data_type) for field in data_type.fields)
    if isinstance(data_type, ArrayType):
        return not data_type.contains_null or requires_values(data_type.element_type)
    if isinstance(data_type, MapType):
        parts = (data_type.key_type, data_type.value_type)
        return not data_type.value_contains_null or any(map(requires_values, parts))
    return False


def _required(snapshot: Snapshot, mode: str) -> Iterator[str]:
    """Iterate over the names in files of the columns that are NOT NULL."""
    for field in snapshot.schema.fields:
        if not field.nullable:
            yield field.name if mode == "none" else physical_name(field)
