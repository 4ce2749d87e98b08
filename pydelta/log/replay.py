"""Replay a segment into the state at its version: checkpoint, then commits oldest first. The newest action wins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from pydelta.errors import LogCorruptedError, ObjectNotFoundError
from pydelta.log.checkpoint.read import Checkpoint, read_checkpoint
from pydelta.log.deltas import FileDelta, build_delta, merged
from pydelta.log.files import MOST_IN_MEMORY, FileTable
from pydelta.log.pruning import PartitionSpec
from pydelta.log.runs import decode_actions, objects_of, runs_of
from pydelta.log.segment import CheckpointFiles, CommitFile, LogSegment
from pydelta.protocol.actions import (
    Action,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)  # fmt: skip
from pydelta.protocol.features import supports
from pydelta.protocol.schema import parse_schema
from pydelta.settings import TableProperties
from pydelta.storage.interface import Store
from pydelta.storage.whole import read_listed

__all__ = ["Replayed", "State", "UnusableFile", "apply_actions", "partition_spec", "read_commit", "replay"]


class UnusableFile(Exception):
    """A checkpoint or compacted file cannot be read, but the state may be rebuilt without it.

    Args:
        name: Path of the file.
        error: The problem with it.
    """

    def __init__(self, name: str, error: LogCorruptedError) -> None:
        super().__init__(name)
        self.name = name
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything in the log besides files: the last protocol and metadata, application ids, domains."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    set_transactions: dict[str, SetTransaction] = field(default_factory=dict)
    domain_metadata: dict[str, DomainMetadata] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The state, the files and the newest commit's ``commitInfo``.

    Args:
        state: See ``State``.
        files: The live files.
        commit_info: That of the segment's last commit if replay read it as a commit, otherwise None.
        commit_info_read: Whether that commit was read, so that None means that it has no ``commitInfo``.
    """

    state: State
    files: FileTable
    commit_info: CommitInfo | None
    commit_info_read: bool


def apply_actions(state: State, actions: Iterable[Action]) -> State:
    """Return the state after more actions, oldest first. File actions are ignored.

    Protocol: "Action Reconciliation" keeps the last protocol and metadata, the last ``txn`` per application id and the
    last ``domainMetadata`` per domain. ``removed`` deletes the domain.
    """
    protocol, metadata = state.protocol, state.metadata
    transactions: dict[str, SetTransaction] | None = None
    domains: dict[str, DomainMetadata] | None = None
    for action in objects_of(actions):
        if isinstance(action, Protocol):
            protocol = action
        elif isinstance(action, Metadata):
            metadata = action
        elif isinstance(action, SetTransaction):
            transactions = dict(state.set_transactions) if transactions is None else transactions
            transactions[action.app_id] = action
        elif isinstance(action, DomainMetadata):
            domains = dict(state.domain_metadata) if domains is None else domains
            domains.pop(action.domain, None)
            if not action.removed:
                domains[action.domain] = action
    return replace(
        state,
        protocol=protocol,
        metadata=metadata,
        set_transactions=state.set_transactions if transactions is None else transactions,
        domain_metadata=state.domain_metadata if domains is None else domains,
    )


def read_commit(store: Store, commit: CommitFile) -> Sequence[Action]:
    """Read the actions of one commit or compacted file.

    Raises:
        LogCorruptedError: It is empty, truncated or not JSON.
    """
    data = store.read(commit.info.path)
    if len(data) < commit.info.size:  # The reply was cut off, or the file was replaced since it was listed.
        data = read_listed(store, commit.info)
    if not data or data.isspace():
        raise LogCorruptedError(
            f"{commit.info.path} is empty.",
            hint="An interrupted copy or a full disk leaves such files. Restore it from a backup of _delta_log.",
            version=commit.end,
        )
    try:
        return decode_actions(data, source=commit.info.path)
    except LogCorruptedError as error:
        error.version = commit.end
        raise


def column_mapping_mode(protocol: Protocol | None, metadata: Metadata | None) -> str:
    """Return the mode in effect. The property only counts if the protocol supports column mapping."""
    if protocol is None or metadata is None or not supports(protocol, "columnMapping"):
        return "none"
    return TableProperties.parse(
        {name: text for name, text in metadata.configuration.items() if name == "delta.columnMapping.mode"}
    ).column_mapping_mode


def partition_spec(state: State) -> PartitionSpec:
    """Derive the file table's partition spec from a state.

    Raises:
        LogCorruptedError: The schema in the metadata is invalid.
    """
    if state.metadata is None:
        return PartitionSpec.of(parse_schema('{"type":"struct","fields":[]}'), (), "none")
    mode = column_mapping_mode(state.protocol, state.metadata)
    return PartitionSpec.of(parse_schema(state.metadata.schema_string), state.metadata.partition_columns, mode)


def replay(
    store: Store,
    segment: LogSegment,
    *,
    check: Callable[[State], None],
    fallback: Callable[[LogCorruptedError], FileTable] | None = None,
    known: Checkpoint | None = None,
    most_in_memory: int = MOST_IN_MEMORY,
) -> Replayed:
    """Read only the files of a segment and build the state.

    Args:
        store: Bound to the table's root.
        segment: The files.
        check: Called with the state before any file column is built. Raises if the table must not be read.
        fallback: See ``FileTable``.
        known: See ``read_checkpoint``.
        most_in_memory: See ``FileTable``.

    Raises:
        UnusableFile: The checkpoint or a compacted file is damaged, so plan again without it.
        LogCorruptedError: A commit is damaged.
        ObjectNotFoundError: A commit disappeared between listing and reading.
    """
    root = store.root
    checkpoint = _open_checkpoint(store, segment.checkpoint, known) if segment.checkpoint else None
    state = apply_actions(State(), checkpoint.state if checkpoint else ())
    _require_complete(state, checkpoint)
    batches = [(commit, _read_batch(store, commit)) for commit in segment.commits]
    for _, actions in batches:
        state = apply_actions(state, actions)
    check(state)
    spec = partition_spec(state)
    deltas: list[FileDelta] = []
    if checkpoint is not None and checkpoint.inline:
        deltas.append(_delta(checkpoint.inline, checkpoint.version, spec, root))
    commits = _deltas(batches, spec, root)
    if commits:
        deltas.append(commits[0] if len(commits) == 1 else merged(commits))
    alone = bool(batches) and not batches[-1][0].is_compacted
    return Replayed(
        state=state,
        files=FileTable(
            root=root,
            spec=spec,
            base=checkpoint,
            deltas=deltas,
            fallback=fallback,
            most_in_memory=most_in_memory,
        ),
        commit_info=_commit_info(batches[-1][1]) if alone else None,
        commit_info_read=alone,
    )


def _open_checkpoint(store: Store, files: CheckpointFiles, known: Checkpoint | None) -> Checkpoint:
    try:
        return read_checkpoint(store, files, known=known)
    except LogCorruptedError as error:
        raise UnusableFile(files.name, error) from error
    except ObjectNotFoundError as error:
        missing = LogCorruptedError(f"{files.name} disappeared while it was read.", hint="Try again.")
        raise UnusableFile(files.name, missing) from error


def _read_batch(store: Store, commit: CommitFile) -> Sequence[Action]:
    if not commit.is_compacted:
        return read_commit(store, commit)
    try:
        actions = read_commit(store, commit)
        _require_reconciled(actions, commit.info.path)
    except LogCorruptedError as error:
        raise UnusableFile(commit.info.path, error) from error
    return actions


def _require_reconciled(actions: Sequence[Action], name: str) -> None:
    """Check that a compacted file has one action per file, application and domain, and no commit-only actions."""
    seen: set[object] = set()
    for action in actions:
        identity: object
        if isinstance(action, (AddFile, RemoveFile)):
            identity = action.key
        elif isinstance(action, SetTransaction):
            identity = (SetTransaction, action.app_id)
        elif isinstance(action, DomainMetadata):
            identity = (DomainMetadata, action.domain)
        elif isinstance(action, (Protocol, Metadata)):
            identity = type(action)
        else:
            identity = None
        if identity is None or identity in seen:
            what = f"a {action.kind} action" if identity is None else f"two actions for one {action.kind}"
            raise LogCorruptedError(
                f"{name} holds {what}, so it is not the reconciled result of its commits.",
                hint="The commits are read instead. The file can be deleted.",
            )
        seen.add(identity)


def _deltas(batches: Sequence[tuple[CommitFile, Sequence[Action]]], spec: PartitionSpec, root: str) -> list[FileDelta]:
    """Build the deltas of commits, oldest first: one per commit with runs, one for all commits in between."""
    found: list[FileDelta] = []
    small: list[Action] = []
    for commit, actions in batches:
        if not runs_of(actions):
            small += [action for action in actions if isinstance(action, (AddFile, RemoveFile))]
            version = commit.end
            continue
        if small:
            found.append(_delta(small, version, spec, root))
            small = []
        found.append(_delta(actions, commit.end, spec, root))
    if small:
        found.append(_delta(small, version, spec, root))
    return found


def _delta(actions: Sequence[Action], version: int, spec: PartitionSpec, root: str) -> FileDelta:
    return build_delta(actions, version=version, partition_names=spec.physical_names, root=root)


def _commit_info(actions: Iterable[Action]) -> CommitInfo | None:
    return next((action for action in objects_of(actions) if isinstance(action, CommitInfo)), None)


def _require_complete(state: State, checkpoint: Checkpoint | None) -> None:
    """Refuse a readable checkpoint without protocol or metadata. It violates the protocol, so nothing is guessed."""
    if checkpoint is None or (state.protocol is not None and state.metadata is not None):
        return
    missing = "protocol" if state.protocol is None else "metaData"
    raise LogCorruptedError(
        f"{checkpoint.name} has no {missing} action, which every checkpoint must have.",
        hint="The writer of this checkpoint is broken. Remove it if all commits from version 0 on are there.",
        version=checkpoint.version,
    )
