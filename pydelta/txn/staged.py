"""Group a commit's actions by kind, both for the transaction that wants to commit and for the winner.

Both sides have the same type, so the rules of ``conflicts`` can compare them directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from pydelta.log.runs import joined, objects_of, of_kind, runs_of
from pydelta.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)

__all__ = ["ROW_TRACKING_DOMAIN", "VACUUM_END", "VACUUM_START", "Operation", "Staged", "WinningCommit"]

ROW_TRACKING_DOMAIN = "delta.rowTracking"
VACUUM_START = "VACUUM START"
VACUUM_END = "VACUUM END"
"""Files are deleted between the commits of these two operations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The operation as shown in the history.

    Args:
        name: The name that Delta users know: ``WRITE``, ``DELETE``, ``CREATE TABLE`` …
        parameters: Strings and None are stored unchanged, other values as JSON.
        metrics: Counts, bytes and milliseconds. The log stores them as strings.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The actions that a transaction wants to publish.

    Args:
        actions: All of them, in the given order.
        adds, removes, cdc_files, transactions, domains: The same, by kind.
        metadata, protocol, commit_info: The one of its kind, if any.
    """

    actions: Sequence[Action] = ()
    adds: Sequence[AddFile] = ()
    removes: Sequence[RemoveFile] = ()
    cdc_files: tuple[AddCDCFile, ...] = ()
    transactions: tuple[SetTransaction, ...] = ()
    domains: tuple[DomainMetadata, ...] = ()
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    commit_info: CommitInfo | None = None

    @classmethod
    def of(cls, actions: Iterable[Action], **others: Any) -> Self:
        """Group actions by kind. Of several metadata or protocol actions, the last one counts."""
        listed = joined(actions)
        objects = tuple(objects_of(listed))

        def only(kind: type[Any]) -> tuple[Any, ...]:
            return tuple(action for action in objects if isinstance(action, kind))

        def last(kind: type[Any]) -> Any:
            return next((action for action in reversed(objects) if isinstance(action, kind)), None)

        return cls(
            actions=listed,
            adds=of_kind(listed, AddFile),
            removes=of_kind(listed, RemoveFile),
            cdc_files=only(AddCDCFile),
            transactions=only(SetTransaction),
            domains=only(DomainMetadata),
            metadata=last(Metadata),
            protocol=last(Protocol),
            commit_info=last(CommitInfo),
            **others,
        )

    @property
    def has_files(self) -> bool:
        """Whether any data or change file is added or removed."""
        return bool(self.adds or self.removes or self.cdc_files)

    @property
    def only_adds_files(self) -> bool:
        """Whether no file is removed and no change data is written. Also True for a commit without files."""
        return not self.removes and not self.cdc_files

    @property
    def changes_rows(self) -> bool:
        """Whether any file action adds or removes rows (``dataChange``)."""
        return bool(self.cdc_files) or changes_rows(self.adds) or changes_rows(self.removes)

    @property
    def only_rearranges(self) -> bool:
        """Whether it has only file actions, none of which changes rows, as in a compaction."""
        others = self.transactions or self.metadata or self.protocol
        domains = [item for item in self.domains if item.domain != ROW_TRACKING_DOMAIN]
        return self.has_files and not self.changes_rows and not others and not domains


def changes_rows(files: Sequence[AddFile] | Sequence[RemoveFile]) -> bool:
    """Return whether any of the file actions adds or removes rows (``dataChange``)."""
    if any(run.data_change for run in runs_of(files)):
        return True
    return any(isinstance(file, (AddFile, RemoveFile)) and file.data_change for file in objects_of(files))


@dataclass(frozen=True, slots=True, kw_only=True)
class WinningCommit(Staged):
    """A commit that took a version that this transaction wanted.

    Args:
        version: The version it took.
    """

    version: int

    @property
    def operation(self) -> str | None:
        """The operation in its ``commitInfo``. Other writers may omit it."""
        return self.commit_info.operation if self.commit_info else None

    @property
    def is_blind_append(self) -> bool:
        """Whether it declares that it read nothing and only added. Without a declaration it counts as having read."""
        return self.commit_info is not None and self.commit_info.get("isBlindAppend") is True
