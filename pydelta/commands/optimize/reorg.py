"""Rewrite files without the rows that their deletion vectors hide, in one commit: REORG … APPLY (PURGE).

::

    files with a vector, of the chosen partitions --bins--> live rows rewritten --> remove + add, dataChange=false
    none -> no commit

The hidden rows leave the disk only when VACUUM deletes the old files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from pydelta.commands.optimize.command import files_of_partitions, rewritten_by
from pydelta.commands.optimize.plan import BIN, pack
from pydelta.commands.optimize.result import OptimizeResult, columns_with_stats, history_metrics
from pydelta.commands.run import Attempt, Command
from pydelta.protocol.actions import encode_json
from pydelta.txn import Committed, Operation

__all__ = ["Purge", "PurgeResult"]

_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeResult:
    """The result of a purge. Sizes are in bytes; ``version`` is None if no file had a vector, so nothing was
    committed.
    """

    version: int | None
    num_added_files: int = 0
    num_added_bytes: int = 0
    num_removed_files: int = 0
    num_removed_bytes: int = 0
    num_deletion_vectors_removed: int = 0
    num_deletion_vector_rows_removed: int = 0
    committed: Committed | None = field(default=None, repr=False)
    rewritten: OptimizeResult = field(default=OptimizeResult(version=None), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge(Command[PurgeResult]):
    """REORG … APPLY (PURGE): rewrite files with deletion vectors without the rows that these hide.

    Args:
        condition: A condition over partition columns that limits the purge to these partitions.
        whole: Rewrite the other files too, with their columns' current types.

    Raises:
        InvalidArgumentError: The condition names columns that are not partition columns.
        ParseError, BindError: The condition does not fit the table.
        DeltaConcurrentModificationException: Another writer changed a file at the same time; run it again.

    Protocol: "Add File and Remove File" (``dataChange``), "Deletion Vectors".
    """

    condition: Any = None
    whole: bool = False

    def execute(self, attempt: Attempt) -> PurgeResult:
        """See ``Command.execute``."""
        snapshot, started = attempt.snapshot, attempt.now_ms()
        considered, predicate = files_of_partitions(attempt, self.condition, of="a purge")
        marked = considered if self.whole else considered.filter(pl.col("dv_id").is_not_null())
        if marked.is_empty():
            nothing = OptimizeResult(version=None, start_time_ms=started, end_time_ms=attempt.now_ms())
            return PurgeResult(version=None, rewritten=nothing)
        target = attempt.settings.optimize_max_file_bytes or snapshot.properties.target_file_size_bytes or _GIB
        plan = pack(marked, partition_by=snapshot.files.spec.keys, target_bytes=target)
        removed = snapshot.files.adds(plan)
        attempt.txn.mark_read(plan)
        written = attempt.stage(attempt.engine.compact(snapshot, removed, plan, max_bytes=target))
        adds = [add.replace(data_change=False) for add in written.adds]
        metrics = {**history_metrics(adds, removed), **rewritten_by(attempt.engine)}
        parameters = {"predicate": encode_json([predicate] if predicate else []), "applyPurge": True}
        operation = Operation(name="REORG", parameters=parameters, metrics=metrics)
        committed = attempt.txn.commit(attempt.rearranged(removed, adds), operation)
        vectors = [add.deletion_vector for add in removed if add.deletion_vector is not None]
        return PurgeResult(
            version=committed.version,
            num_added_files=len(adds),
            num_added_bytes=sum(add.size for add in adds),
            num_removed_files=len(removed),
            num_removed_bytes=sum(add.size for add in removed),
            num_deletion_vectors_removed=len(vectors),
            num_deletion_vector_rows_removed=sum(vector.cardinality for vector in vectors),
            committed=committed,
            rewritten=OptimizeResult(
                version=committed.version,
                added=tuple(adds),
                removed=tuple(removed),
                num_bins=plan[BIN].n_unique(),
                num_considered=marked.height,
                start_time_ms=started,
                end_time_ms=attempt.now_ms(),
                num_table_columns=len(snapshot.schema.fields),
                num_table_columns_with_stats=columns_with_stats(snapshot),
            ),
        )
