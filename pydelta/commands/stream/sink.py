"""Write a batch of a stream once: the transaction of one epoch of a query."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydelta.errors import InvalidArgumentError, UnsupportedFeatureError
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog
from pydelta.protocol.actions import Action
from pydelta.storage.backoff import Backoff
from pydelta.txn import Committed, Operation, OptimisticTransaction
from pydelta.txn.commit import SILENT, Observer

__all__ = ["Epoch", "EpochTransaction", "OutputMode", "sink_options"]

_OPERATION: Final = "STREAMING UPDATE"
_REPLACES: Final = ("replaceWhere", "replaceUsing", "replaceOn")


class OutputMode(enum.Enum):
    """The effect of a batch on the table. The values appear in the history."""

    APPEND = "Append"
    COMPLETE = "Complete"

    @classmethod
    def parse(cls, text: str) -> OutputMode:
        """Parse Spark's output mode, ignoring case.

        Raises:
            UnsupportedFeatureError: It is update mode, which does not say which rows a batch replaces.
            InvalidArgumentError: The mode is unknown.
        """
        lower = text.strip().lower()
        for mode in cls:
            if mode.value.lower() == lower:
                return mode
        if lower == "update":
            raise UnsupportedFeatureError(
                "A Delta table accepts a stream in output mode append or complete, not update.",
                features=("outputMode update",),
                hint="Write updates with foreachBatch and MERGE, by the key of the rows; txnAppId and txnVersion let "
                "each batch count once.",
                condition=Condition.of("DELTA_UNSUPPORTED_OUTPUT_MODE", dataSource="delta", mode="Update"),
            )
        raise InvalidArgumentError(f"There is no output mode {text!r}.", hint="Use append or complete.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One batch of a query.

    Args:
        query_id: The query, which keeps its id over restarts.
        epoch_id: Number of the batch.
        mode: How it changes the table.
    """

    query_id: str
    epoch_id: int
    mode: OutputMode


class EpochTransaction(OptimisticTransaction):
    """A transaction whose commit is recorded as an epoch of a query."""

    def __init__(
        self, log: DeltaLog, epoch: Epoch, *, observer: Observer = SILENT, backoff: Backoff | None = None
    ) -> None:
        super().__init__(log, observer=observer, backoff=backoff)
        self._epoch = epoch

    def commit(
        self,
        actions: Sequence[Action],
        operation: Operation,
        *,
        user_metadata: str | None = None,
        tags: Mapping[str, str] | None = None,
        blind_append: bool | None = None,
    ) -> Committed:
        """See ``OptimisticTransaction.commit``; the operation is the epoch's, with the counts of the given one."""
        epoch, metrics = self._epoch, dict(operation.metrics)
        own = Operation(
            name=_OPERATION,
            parameters={
                "outputMode": epoch.mode.value,
                "queryId": epoch.query_id,
                "epochId": str(epoch.epoch_id),
            },
            metrics={
                "numRemovedFiles": metrics.get("numRemovedFiles", 0),
                "numAddedFiles": metrics.get("numFiles", 0),
                "numOutputRows": metrics.get("numOutputRows", 0),
                "numOutputBytes": metrics.get("numOutputBytes", 0),
            },
        )
        return super().commit(actions, own, user_metadata=user_metadata, tags=tags, blind_append=blind_append)


def sink_options(options: Mapping[str, str], *, mode: OutputMode) -> dict[str, str]:
    """Return the writer options of a batch, without its application and version, which each batch adds.

    Raises:
        InvalidArgumentError: ``txnVersion`` was given, which is the batch's number, or an option that selects rows to
            replace.
    """
    lower = {name.lower(): name for name in options}
    if "txnversion" in lower:
        raise InvalidArgumentError(
            "txnVersion was given for a stream, whose batches are numbered by Spark.",
            hint="Leave it out; txnAppId alone names the stream in the table instead of the query's id.",
        )
    for option in _REPLACES:
        if option.lower() in lower:
            raise InvalidArgumentError(
                f"{option} was given for a stream, which appends rows, or replaces all of them in mode complete.",
                hint=f"Write each batch with foreachBatch, and {option} in the batch's own write.",
            )
    own = ("txnappid", "partitionoverwritemode")
    kept = {name: value for name, value in options.items() if name.lower() not in own}
    if mode is OutputMode.COMPLETE:
        kept["partitionOverwriteMode"] = "static"  # The complete result replaces the whole table.
    return kept
