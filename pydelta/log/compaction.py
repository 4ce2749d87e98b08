"""Write log compaction files, which combine a run of commits so that opening a table reads fewer files.

::

    commits      100   101 … 110   111 … 120   121
    checkpoint   100
    compacted          101.110     111.120            --> opening 121 reads three files after the checkpoint

A run ends at each multiple of the interval and begins directly after the previous run or checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydelta.log.columns import file_key
from pydelta.log.runs import encode_actions
from pydelta.protocol.actions import (
    Action,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from pydelta.protocol.paths import LOG_DIR, compacted_file
from pydelta.storage.interface import PutOutcome, Store

__all__ = ["compact_run", "plan_run", "write_compacted"]


def plan_run(version: int, *, interval: int | None, checkpoint_interval: int) -> tuple[int, int] | None:
    """Choose the commits to compact after ``version``: first and last version. Pure.

    Args:
        version: The newest version.
        interval: Commits in a run; None or 1 for no compaction.
        checkpoint_interval: At each multiple of it a checkpoint is written, which makes a run unnecessary.

    Example:
        >>> plan_run(20, interval=10, checkpoint_interval=100)
        (11, 20)
        >>> plan_run(25, interval=10, checkpoint_interval=100) is None
        True
    """
    if interval is None or interval < 2 or version == 0 or version % interval or version % checkpoint_interval == 0:
        return None
    behind_checkpoint = version // checkpoint_interval * checkpoint_interval + 1
    first = max(version - interval + 1, behind_checkpoint)
    return (first, version) if first < version else None


def compact_run(commits: Iterable[Sequence[Action]], *, root: str) -> list[Action]:
    """Reconcile commits, oldest first, keeping the last action on each file, application and domain. Pure.

    Removes of files and domains stay, because they hide older entries. Actions without lasting state are dropped.

    Protocol: "Log Compaction Files", "Action Reconciliation".
    """
    last: dict[object, Action] = {}
    for actions in commits:
        for action in actions:
            identity = _identity(action, root)
            if identity is not None:
                last.pop(identity, None)
                last[identity] = action
    order = {"protocol": 0, "metaData": 1}
    return sorted(last.values(), key=lambda action: order.get(action.kind, 2))


def _identity(action: Action, root: str) -> object:
    if isinstance(action, (AddFile, RemoveFile)):
        return "file", file_key(action.path, action.key.dv_id, root)
    if isinstance(action, SetTransaction):
        return "txn", action.app_id
    if isinstance(action, DomainMetadata):
        return "domain", action.domain
    return type(action) if isinstance(action, (Protocol, Metadata)) else None


def write_compacted(store: Store, run: tuple[int, int], commits: Iterable[Sequence[Action]], *, root: str) -> bool:
    """Write the compaction file of a run unless it exists. Readers do not depend on it.

    Returns:
        Whether this call wrote it.
    """
    path = f"{LOG_DIR}/{compacted_file(*run)}"
    return store.put_if_absent(path, encode_actions(compact_run(commits, root=root))) is PutOutcome.CREATED
