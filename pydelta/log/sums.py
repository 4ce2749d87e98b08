"""Sums before a commit and its actions in, sums after it out, or None where only the columns can tell."""

from __future__ import annotations

from collections.abc import Sequence

from pydelta.log.snapshot import FileSums
from pydelta.protocol.actions import Action, AddFile, RemoveFile

__all__ = ["sums_after"]


def sums_after(before: FileSums | None, actions: Sequence[Action]) -> FileSums | None:
    """Count a commit's adds and removes.

    An add of a file that is live already changes no count, and a remove may leave its size out. Data-changing adds
    name new files; adds that change no data are counted only when files are removed with them.
    """
    if before is None:
        return None
    adds = [action for action in actions if isinstance(action, AddFile)]
    removes = [action for action in actions if isinstance(action, RemoveFile)]
    if any(not add.data_change for add in adds) and not removes:
        return None
    if any(remove.size is None for remove in removes):
        return None
    return FileSums(
        num_files=before.num_files + len(adds) - len(removes),
        size_bytes=before.size_bytes
        + sum(add.size for add in adds)
        - sum(remove.size for remove in removes if remove.size is not None),
    )
