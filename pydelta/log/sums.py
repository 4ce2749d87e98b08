"""Compute how a commit's actions change the number and bytes of live files, if that is possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydelta.log.runs import num_bytes, objects_of, of_kind, runs_of
from pydelta.protocol.actions import Action, AddFile, RemoveFile

__all__ = ["FileSums", "change_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSums:
    """The number of live files and their total size in bytes, or a change of both."""

    num_files: int
    size_bytes: int

    def plus(self, change: FileSums) -> FileSums:
        """Return the sums after a change."""
        return FileSums(num_files=self.num_files + change.num_files, size_bytes=self.size_bytes + change.size_bytes)


def change_of(actions: Sequence[Action]) -> FileSums | None:
    """Compute a commit's change of the sums. Returns None if only the file table can answer.

    An add of a file that is already live changes no count, and a remove may lack its size. Adds with ``dataChange``
    name new files. Other adds are counted only if files are removed with them.
    """
    adds, removes = of_kind(actions, AddFile), of_kind(actions, RemoveFile)
    rearranges = any(not run.data_change for run in runs_of(adds)) or any(
        isinstance(action, AddFile) and not action.data_change for action in objects_of(adds)
    )
    if rearranges and not removes:
        return None
    if any(isinstance(action, RemoveFile) and action.size is None for action in objects_of(removes)):
        return None
    return FileSums(num_files=len(adds) - len(removes), size_bytes=num_bytes(adds) - num_bytes(removes))
