"""Sort a commit's actions by kind: of the transaction that wants to commit, and of the one that won.

Both sides are the same value, so a rule of ``conflicts`` compares like with like.
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
"""Operations between whose commits files are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What the history says was done.

    Args:
        name: The operation as Delta users know it: ``WRITE``, ``DELETE``, ``CREATE TABLE`` …
        parameters: Texts and None go in as they are, anything else is written as JSON.
        metrics: Counts, bytes and milliseconds; the log keeps them as texts.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The actions that a transaction wants to publish.

    Args:
        actions: All of them, in the order given.
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
        """Sort actions by kind. Of several metadata or protocol actions the last one counts."""
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
        """Whether no file is removed and no change data written; true of a commit without files too."""
        return not self.removes and not self.cdc_files

    @property
    def changes_rows(self) -> bool:
        """Whether any file action says that rows appear or vanish (``dataChange``)."""
        return bool(self.cdc_files) or changes_rows(self.adds) or changes_rows(self.removes)

    @property
    def only_rearranges(self) -> bool:
        """Whether it consists of file actions alone and none of them changes rows, as a compaction does."""
        others = self.transactions or self.metadata or self.protocol
        domains = [item for item in self.domains if item.domain != ROW_TRACKING_DOMAIN]
        return self.has_files and not self.changes_rows and not others and not domains


def changes_rows(files: Sequence[AddFile] | Sequence[RemoveFile]) -> bool:
    """Whether one of the file actions says that rows appear or vanish (``dataChange``)."""
    if any(run.data_change for run in runs_of(files)):
        return True
    return any(isinstance(file, (AddFile, RemoveFile)) and file.data_change for file in objects_of(files))


@dataclass(frozen=True, slots=True, kw_only=True)
class WinningCommit(Staged):
    """A commit that took a version this transaction wanted.

    Args:
        version: The version it took.
    """

    version: int

    @property
    def operation(self) -> str | None:
        """Its operation as its ``commitInfo`` names it; other writers need not say."""
        return self.commit_info.operation if self.commit_info else None

    @property
    def is_blind_append(self) -> bool:
        """Whether it says that it read nothing and only added. One that does not say is taken to have read."""
        return self.commit_info is not None and self.commit_info.get("isBlindAppend") is True
