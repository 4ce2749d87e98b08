"""Store a file's rows in a tag of its ``add`` instead of bytes, with an engine that reads them there.

The log alone then contains the rows of a table. Tables are partitioned by ``p`` (string) and have one more column,
``x`` (long).
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from pydelta.commands.change.merge import MergeMatches
from pydelta.commands.change.reconcile import Passed
from pydelta.commands.engine import Assignments, BoundCondition, BoundUpdate, RefusingEngine, RewriteOutput
from pydelta.log import DeltaLog, Snapshot
from pydelta.log.vector_files import read_deleted_rows
from pydelta.predicate import Column, Compare, Expr, Literal
from pydelta.protocol.actions import AddCDCFile, AddFile, Metadata, encode_json
from pydelta.protocol.row_sets import RowSet
from pydelta.protocol.types import StructType
from pydelta.storage import open_store

__all__ = [
    "MARK",
    "NOW_MS",
    "ROWS_TAG",
    "LogEngine",
    "LogUpsert",
    "Row",
    "Rows",
    "add_file",
    "live_values",
    "rows_of",
    "table_metadata",
    "written_values",
]

ROWS_TAG: Final = "pydelta.testing.rows"
NOW_MS: Final = 1_700_000_000_000
MARK: Final = "txn "

Row: TypeAlias = tuple[str, int]
"""Partition and value; or ``"txn "`` with an application id, and its version."""
Rows: TypeAlias = Counter[Row]


def table_metadata(**properties: str) -> Metadata:
    """Build the metadata of the test table. Property names have ``_`` for ``.`` (``delta_appendOnly="true"``)."""
    fields = [
        {"name": "p", "type": "string", "nullable": True, "metadata": {}},
        {"name": "x", "type": "long", "nullable": True, "metadata": {}},
    ]
    return Metadata(
        id=str(uuid.uuid4()),
        schema_string=encode_json({"type": "struct", "fields": fields}),
        partition_columns=("p",),
        configuration={name.replace("_", "."): value for name, value in properties.items()},
        created_time=NOW_MS,
    )


def add_file(partition: str, values: Sequence[int], *, data_change: bool = True) -> AddFile:
    """Build the add action of a new file with these values of ``x``."""
    stats = {
        "numRecords": len(values),
        "minValues": {"x": min(values)},
        "maxValues": {"x": max(values)},
        "nullCount": {"x": 0},
    }
    return AddFile(
        path=f"p={partition}/part-{uuid.uuid4()}.parquet",
        partition_values={"p": partition},
        size=100 + len(values),
        modification_time=NOW_MS,
        data_change=data_change,
        stats=encode_json(stats),
        tags={ROWS_TAG: ",".join(map(str, values))},
    )


def written_values(add: AddFile) -> list[int]:
    """Return the values in the file, including those that a deletion vector hides."""
    text = (add.tags or {}).get(ROWS_TAG) or ""
    return [int(value) for value in text.split(",") if value]


def written_rows(adds: Sequence[AddFile]) -> list[int]:
    """Return the number of rows that each file was written with."""
    return [len(written_values(add)) for add in adds]


def live_values(add: AddFile, root: str) -> list[int]:
    """Return the values in the file, without those that its deletion vector hides."""
    hidden = _hidden_rows(add, root)
    return [value for position, value in enumerate(written_values(add)) if position not in hidden]


def _hidden_rows(add: AddFile, root: str) -> set[int]:
    if add.deletion_vector is None:
        return set()
    (hidden,) = read_deleted_rows([add.deletion_vector], store=open_store(root), root=root, options=None)
    return set(hidden.tolist())


def rows_of(snapshot: Snapshot) -> Rows:
    """Count the rows of the table, and add the progress of each application."""
    found: Rows = Counter((MARK + mark.app_id, mark.version) for mark in snapshot.set_transactions.values())
    if snapshot.version >= 0:
        for add in snapshot.files.adds(snapshot.files.core):
            found.update((add.partition_values["p"] or "", value) for value in live_values(add, snapshot.table_uri))
    return found


class LogEngine(RefusingEngine):
    """An engine for files without bytes, with the steps that the operations need."""

    rewrites_files = True

    def time_zone(self) -> str:
        """See ``Engine.time_zone``."""
        return "UTC"

    def match_partitions(self, snapshot: Snapshot, files: pl.DataFrame, condition: BoundCondition) -> pl.DataFrame:
        """See ``Engine.match_partitions``."""
        return files

    def bind_condition(self, snapshot: Snapshot, condition: Expr) -> BoundCondition:
        """Bind the condition ``x = value``; see ``Engine.bind_condition``."""
        assert isinstance(condition, Compare)
        assert isinstance(condition.right, Literal)
        names = frozenset({str(condition.left)})
        return BoundCondition(
            sql=str(condition), conjuncts=(condition,), references=names, native=condition.right.value
        )

    def count_rows(self, log: DeltaLog, files: Sequence[AddFile]) -> Sequence[int]:
        """See ``Engine.count_rows``."""
        return written_rows(files)

    def compact(
        self, snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame, *, max_bytes: int
    ) -> RewriteOutput:
        """See ``RearrangingEngine.compact``."""
        adds = []
        for number in plan["bin"].unique(maintain_order=True):
            members = [add for add, of in zip(files, plan["bin"], strict=True) if of == number]
            values = [value for add in members for value in live_values(add, snapshot.table_uri)]
            if values:
                adds.append(add_file(members[0].partition_values["p"] or "", values))
        return RewriteOutput(adds=tuple(adds), num_rows=0)

    def bind_update(self, snapshot: Snapshot, condition: Expr, assignments: Assignments) -> BoundUpdate:
        """See ``UpdatingEngine.bind_update``."""
        return BoundUpdate(condition=self.bind_condition(snapshot, condition), native=int(dict(assignments)["x"]))

    def match_rows(self, snapshot: Snapshot, files: pl.DataFrame, condition: BoundCondition) -> dict[int, RowSet]:
        """See ``Engine.match_rows``."""
        found = {}
        for place, add in enumerate(snapshot.files.adds(files)):
            live = set(live_values(add, snapshot.table_uri))
            rows = [at for at, item in enumerate(written_values(add)) if item == condition.native and item in live]
            if rows:
                found[place] = RowSet.of(np.array(rows, dtype=np.uint64))
        return found

    def write_without(self, snapshot: Snapshot, files: pl.DataFrame, rows: Mapping[int, RowSet]) -> RewriteOutput:
        """See ``Engine.write_without``."""
        return self._rewritten(snapshot, files, rows, None, copy_others=True)

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
        assert rows is not None
        return self._rewritten(snapshot, files, rows, bound.native, copy_others=copy_others)

    def _rewritten(
        self,
        snapshot: Snapshot,
        files: pl.DataFrame,
        rows: Mapping[int, RowSet],
        value: int | None,
        *,
        copy_others: bool,
    ) -> RewriteOutput:
        """Rewrite the files with a value in place of the given rows (None: without them), with the others if wanted."""
        adds, written = [], 0
        for place, add in enumerate(snapshot.files.adds(files)):
            count = len(rows[place])
            values = [] if value is None else [value] * count
            if copy_others:
                given = set(rows[place].positions().tolist())
                hidden = _hidden_rows(add, snapshot.table_uri)
                values += [item for at, item in enumerate(written_values(add)) if at not in given | hidden]
            if values:
                adds.append(add_file(add.partition_values["p"] or "", values))
            written += len(values)
        return RewriteOutput(adds=tuple(adds), num_rows=written)

    def discard(self, snapshot: Snapshot, adds: Sequence[AddFile | AddCDCFile]) -> None:
        """Do nothing, because there are no bytes."""

    def committed(self, snapshot: Snapshot) -> None:
        """Do nothing, because nothing is cached."""


class LogUpsert:
    """A ``Merging`` over files without bytes: rows with ``x = value`` get another value, or a row is inserted.

    Args:
        snapshot: Snapshot of the table.
        value: The value of ``x`` to match.
        new: The new value of matched rows, and the value of an inserted row.
        partition: Partition of an inserted row.
    """

    def __init__(self, snapshot: Snapshot, value: int, new: int, partition: str) -> None:
        self._snapshot = snapshot
        self._value, self._new, self._partition = value, new, partition
        self._matches = MergeMatches()
        self.condition_sql = f"(x = {value})"
        self.clause_texts: Sequence[str | None] = (None, None)
        self.schema: StructType = snapshot.schema
        self.source_ms = 0

    def source_reads_table(self) -> bool:
        """See ``Merging.source_reads_table``."""
        return False

    def count_source(self) -> int:
        """See ``Merging.count_source``."""
        return 1

    def target_filters(self) -> Sequence[Expr]:
        """See ``Merging.target_filters``."""
        return [Compare("=", Column(("x",)), Literal(self._value, "long"))]

    def narrowed(self, files: pl.DataFrame) -> pl.DataFrame:
        """Return the files, because there is no index; see ``Merging.narrowed``."""
        return files

    def find(self, files: pl.DataFrame) -> MergeMatches:
        """See ``Merging.find``."""
        condition = BoundCondition(sql="", conjuncts=(), references=frozenset({"x"}), native=self._value)
        rows = LogEngine().match_rows(self._snapshot, files, condition)
        positions = {place: found.positions() for place, found in rows.items()}
        self._matches = MergeMatches(
            positions=positions, updated=sum(map(len, positions.values())), paired=bool(positions)
        )
        return self._matches

    def write(self, files: pl.DataFrame, places: Sequence[int], *, copy_others: bool) -> tuple[RewriteOutput, Passed]:
        """See ``Merging.write``."""
        adds, rows, updated = [], 0, 0
        for place, add in zip(places, self._snapshot.files.adds(files), strict=True):
            values = [self._new] * len(self._matches.positions[place])
            updated += len(values)
            if copy_others:
                values += [item for item in live_values(add, self._snapshot.table_uri) if item != self._value]
            adds.append(add_file(add.partition_values["p"] or "", values))
            rows += len(values)
        if not places:
            adds.append(add_file(self._partition, [self._new]))
            rows += 1
        passed = Passed(
            copied=rows - updated if places else 0,
            updated=updated,
            inserted=0 if places else 1,
            source=1,
            paired=1 if places else 0,
        )
        return RewriteOutput(adds=tuple(adds), num_rows=rows), passed

    def ways(self) -> Mapping[str, str]:
        """Return nothing, because there is only one way; see ``Merging.ways``."""
        return {}

    def close(self) -> None:
        """Do nothing, because nothing was kept."""
