"""Update and compact in this process as well: ``ArrowEngine`` with the two steps that commands leave to Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from pydelta.commands.change.update import BoundUpdate
from pydelta.commands.engine import Assignments, RewriteOutput
from pydelta.commands.optimize.plan import Layout
from pydelta.commands.write.options import WriteMode, WriteOptions
from pydelta.engines.arrow.changes import Place, rewrite
from pydelta.engines.arrow.engine import ArrowEngine
from pydelta.engines.arrow.expressions import Constant
from pydelta.engines.arrow.layout import Session, TableShape, make_task
from pydelta.engines.arrow.updates import update_rows
from pydelta.errors import UnsupportedFeatureError
from pydelta.log import DeltaLog, Snapshot
from pydelta.protocol.actions import AddFile
from pydelta.protocol.row_sets import RowSet
from pydelta.protocol.row_tracking import materialized_columns
from pydelta.protocol.types import PrimitiveType

__all__ = ["LocalEngine"]

_STRING = PrimitiveType("string")


class LocalEngine(ArrowEngine):
    """Sets text columns to constants, and writes the rows of several files into one.

    Args:
        log: The table's.
    """

    def __init__(self, log: DeltaLog) -> None:
        super().__init__(log)
        self._table = log

    def bind_update(self, snapshot: Snapshot, condition: Any, assignments: Assignments) -> BoundUpdate:
        """See ``UpdatingEngine.bind_update``; a value is a text, and no expression."""
        values = {column: Constant(value, _STRING) for column, value in assignments}
        return BoundUpdate(condition=self.bind_condition(snapshot, condition), native=values)

    def write_updated(
        self,
        snapshot: Snapshot,
        files: pl.DataFrame,
        rows: Mapping[int, RowSet] | None,
        bound: BoundUpdate,
        *,
        copy_others: bool,
    ) -> RewriteOutput:
        """See ``UpdatingEngine.write_updated``."""
        task = make_task(
            TableShape.of(snapshot),
            WriteOptions(mode=WriteMode.APPEND),
            Session(settings=self._table.settings, store_options=self._table.options),
            change_data=snapshot.properties.enable_change_data_feed,
            row_tracking=bool(materialized_columns(snapshot.properties)),
        )
        change = update_rows(snapshot, task, bound.native, copy_others=copy_others)
        place = Place(store=self._table.store, options=self._table.options)
        return rewrite(snapshot, files, rows, change, task=task, place=place)

    def compact(
        self, snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame, *, max_bytes: int
    ) -> RewriteOutput:
        """See ``RearrangingEngine.compact``."""
        del files, max_bytes
        none = np.empty(0, dtype=np.uint64)
        adds: list[AddFile] = []
        rows = 0
        for _, group in plan.group_by("bin", maintain_order=True):
            frame = group.drop("bin")
            written = self.write_without(snapshot, frame, {place: RowSet.of(none) for place in range(frame.height)})
            adds += [add.replace(data_change=False) for add in written.adds]
            rows += written.num_rows
        return RewriteOutput(adds=tuple(adds), num_rows=rows)

    def lay_out(
        self, snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame, *, layout: Layout, target_bytes: int
    ) -> RewriteOutput:
        """Refuse: rows are put in order by Spark."""
        raise UnsupportedFeatureError(
            "Only Spark puts rows in order.",
            features=("ZORDER BY",),
            hint="Run it in a session.",
            table=snapshot.table_uri,
        )
