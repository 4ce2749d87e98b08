"""Commit a command's changes as a new version of the table.

::

    start_transaction(log) -> reads (recorded) -> commit(actions, operation)
        prepare    check the actions, the protocol, append-only; isolation level
        publish    render N.json -> put if absent -> Landed
                       lost: each winner once, oldest first -> conflict, or rebase and put again
                       unknown: read back, compare txnId
        finish     apply to the snapshot -> hooks (checksum, checkpoint, clean-up, installed ones)
"""

from pydelta.txn.commit import Observer
from pydelta.txn.conflicts import Conflict, find_conflict
from pydelta.txn.footprint import Isolation, Operation, ReadPredicate, ReadSet, Staged, WinningCommit
from pydelta.txn.hooks import HookContext, HookFailure
from pydelta.txn.transaction import (
    Begin,
    CommitObserver,
    Committed,
    OptimisticTransaction,
    TransactionState,
    start_transaction,
)

__all__ = [
    "Begin",
    "CommitObserver",
    "Committed",
    "Conflict",
    "HookContext",
    "HookFailure",
    "Isolation",
    "Observer",
    "Operation",
    "OptimisticTransaction",
    "ReadPredicate",
    "ReadSet",
    "Staged",
    "TransactionState",
    "WinningCommit",
    "find_conflict",
    "start_transaction",
]
