"""Describe a commit in words: who, what, how many rows, which files, and who sees it."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from pydelta.errors.redaction import hide_text, hide_value
from pydelta.log.history import CommitRecord
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
    action_to_dict,
)
from pydelta.tools.ui.formats import amount, duration, number
from pydelta.tools.ui.values import UNCHANGED_ROWS, CommitState, Rows

__all__ = ["Detail", "FileLine", "commit_state", "describe_commit"]

_FILES_SHOWN: Final = 100
_LINES_SHOWN: Final = 100
_LINE_LENGTH: Final = 4000
_NO_ROWS: Final = ("VACUUM", "OPTIMIZE", "REORG", "SET ", "UNSET ", "CHANGE ", "ADD ", "RENAME ", "DROP ", "UPGRADE ")
"""Prefixes of operations that change no row. CREATE TABLE without AS SELECT is another one."""
_WORDS: Final[Mapping[str, str]] = {
    "numOutputRows": "{} rows written",
    "numInsertedRows": "{} rows inserted",
    "numUpdatedRows": "{} rows updated",
    "numDeletedRows": "{} rows deleted",
    "numCopiedRows": "{} rows copied unchanged",
    "numSourceRows": "{} rows in the source",
    "numTargetRowsInserted": "{} rows inserted",
    "numTargetRowsUpdated": "{} rows updated",
    "numTargetRowsDeleted": "{} rows deleted",
    "numTargetRowsCopied": "{} rows copied unchanged",
    "numFiles": "{} files",
    "numAddedFiles": "{} files added",
    "numRemovedFiles": "{} files removed",
    "numTargetFilesAdded": "{} files added",
    "numTargetFilesRemoved": "{} files removed",
    "numAddedChangeFiles": "{} change files added",
    "numDeletionVectorsAdded": "{} deletion vectors added",
    "numDeletionVectorsRemoved": "{} deletion vectors removed",
    "numDeletionVectorsUpdated": "{} deletion vectors updated",
    "numFilesToDelete": "{} files to delete",
    "sizeOfDataToDelete": "{} to delete",
    "numDeletedFiles": "{} files deleted",
    "numVacuumedDirectories": "directories looked at: {}",
    "numOutputBytes": "{} written",
    "numAddedBytes": "{} added",
    "numRemovedBytes": "{} removed",
    "executionTimeMs": "took {}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLine:
    """A file that a commit added or removed. ``rows`` is None if the log does not record it."""

    path: str
    size: int | None
    rows: int | None
    hidden_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """One commit, explained.

    Args:
        commit: The commit as in the list.
        facts: Name and text of facts about the writer.
        parameters: Parameters of the operation.
        phrases: Its metrics, in words.
        added, removed: The first files of each kind.
        added_files, added_bytes, removed_files, removed_bytes: Totals of all files.
        added_rows, removed_rows: From file statistics; None if a file has none.
        change_files: Number of files of the change feed.
        changes: Other changes: protocol, schema, properties, transactions, domains.
        waited: The version that it read, and the number of commits in between; None if not recorded.
        lines: Its first lines, as JSON.
        more_lines: Number of further lines.
    """

    commit: CommitState
    facts: tuple[tuple[str, str], ...]
    parameters: Mapping[str, str]
    phrases: tuple[str, ...]
    added: tuple[FileLine, ...]
    removed: tuple[FileLine, ...]
    added_files: int
    added_bytes: int
    removed_files: int
    removed_bytes: int
    added_rows: int | None
    removed_rows: int | None
    change_files: int
    changes: tuple[str, ...]
    waited: tuple[int, int] | None
    lines: tuple[str, ...]
    more_lines: int


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        return {}
    return {str(key): str(hide_value(str(key), item)) for key, item in value.items() if item is not None}


def _number(metrics: Mapping[str, str], *names: str) -> int | None:
    """Sum some metrics. Returns None if none of them is recorded."""
    found = [int(metrics[name]) for name in names if metrics.get(name, "").isdecimal()]
    return sum(found) if found else None


def _rows(operation: str | None, metrics: Mapping[str, str]) -> Rows:
    if operation is not None and (operation.upper().startswith(_NO_ROWS) or operation.upper() == "CREATE TABLE"):
        return UNCHANGED_ROWS
    if "numTargetRowsInserted" in metrics or "numTargetRowsUpdated" in metrics:
        return Rows(
            inserted=_number(metrics, "numTargetRowsInserted"),
            updated=_number(metrics, "numTargetRowsUpdated"),
            deleted=_number(metrics, "numTargetRowsDeleted"),
        )
    inserted = None
    if operation not in ("DELETE", "UPDATE", "MERGE", "RESTORE"):
        inserted = _number(metrics, "numOutputRows")
    return Rows(
        inserted=inserted, updated=_number(metrics, "numUpdatedRows"), deleted=_number(metrics, "numDeletedRows")
    )


def _who(info: Mapping[str, Any]) -> str | None:
    name = info.get("userName") or info.get("userId")
    if name:
        return hide_text(str(name))
    engine = info.get("engineInfo")
    return hide_text(str(engine)) if engine else None


def commit_state(record: CommitRecord) -> CommitState:
    """Summarize a commit from its ``commitInfo``."""
    info: Mapping[str, Any] = record.commit_info.fields if record.commit_info else {}
    operation = info.get("operation")
    metrics = _texts(info.get("operationMetrics"))
    named = hide_text(str(operation)) if operation else None
    return CommitState(
        version=record.version,
        timestamp_ms=record.timestamp_ms,
        operation=named,
        who=_who(info),
        rows=_rows(named, metrics),
        metrics=metrics,
    )


def describe_commit(record: CommitRecord, actions: Sequence[Action], before: Metadata | None) -> Detail:
    """Explain a commit.

    Args:
        record: Version, time and provenance.
        actions: The actions of the commit.
        before: Metadata of the previous version; None if unknown.
    """
    info: Mapping[str, Any] = record.commit_info.fields if record.commit_info else {}
    commit = commit_state(record)
    adds = [action for action in actions if isinstance(action, AddFile)]
    removes = [action for action in actions if isinstance(action, RemoveFile)]
    read = info.get("readVersion")
    is_version = isinstance(read, int) and not isinstance(read, bool) and -1 <= read < record.version
    return Detail(
        commit=commit,
        facts=tuple(_facts(info)),
        parameters=_texts(info.get("operationParameters")),
        phrases=tuple(_phrase(name, value) for name, value in commit.metrics.items()),
        added=tuple(map(_line, adds[:_FILES_SHOWN])),
        removed=tuple(map(_line, removes[:_FILES_SHOWN])),
        added_files=len(adds),
        added_bytes=sum(add.size for add in adds),
        removed_files=len(removes),
        removed_bytes=sum(remove.size or 0 for remove in removes),
        added_rows=_total(adds),
        removed_rows=_total(removes),
        change_files=sum(isinstance(action, AddCDCFile) for action in actions),
        changes=tuple(_changes(actions, before)),
        waited=(read, record.version - 1 - read) if is_version and isinstance(read, int) else None,
        lines=tuple(_raw(action) for action in actions[:_LINES_SHOWN]),
        more_lines=max(len(actions) - _LINES_SHOWN, 0),
    )


def _facts(info: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    named = {
        "userName": "user",
        "userId": "user id",
        "userMetadata": "note",
        "engineInfo": "engine",
        "clusterId": "cluster",
        "job": "job",
        "notebook": "notebook",
        "isolationLevel": "isolation level",
        "txnId": "transaction id",
    }
    for key, name in named.items():
        if info.get(key) not in (None, "", {}):
            value = hide_value(key, info[key])
            yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if info.get("isBlindAppend") is True:
        yield "reads", "nothing: it only adds"


def _phrase(name: str, value: str) -> str:
    if not value.isdecimal():
        return f"{name}: {value}"
    shown: str
    if name.endswith("Bytes") or name == "sizeOfDataToDelete":
        shown = amount(int(value))
    elif name.endswith("TimeMs"):
        shown = duration(int(value) / 1000)
    else:
        shown = number(int(value))
    text = _WORDS[name].format(shown) if name in _WORDS else f"{name}: {shown}"
    return re.sub(r"(?<=^1 )(\w+ )*?(row|file|vector)s\b", lambda found: found[0][:-1], text)


class _Counts(msgspec.Struct, rename="camel"):
    """The part of a file's statistics that this module reads."""

    num_records: int | None = None


_COUNTS: Final = msgspec.json.Decoder(_Counts)


def _counts(action: AddFile | RemoveFile) -> tuple[int | None, int]:
    """Return the rows of a file, if its statistics have them, and how many of them a deletion vector hides."""
    hidden = action.deletion_vector.cardinality if action.deletion_vector is not None else 0
    try:
        return _COUNTS.decode(action.stats or "{}").num_records, hidden
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None, hidden


def _line(action: AddFile | RemoveFile) -> FileLine:
    rows, hidden = _counts(action)
    return FileLine(path=hide_text(action.path), size=action.size, rows=rows, hidden_rows=hidden)


def _total(actions: Iterable[AddFile | RemoveFile]) -> int | None:
    total = 0
    for rows, hidden in map(_counts, actions):
        if rows is None:
            return None
        total += rows - hidden
    return total


def _raw(action: Action) -> str:
    (kind, body), *_ = action_to_dict(action).items()
    text = json.dumps({kind: hide_value("", body)}, ensure_ascii=False, default=str)
    return text if len(text) <= _LINE_LENGTH else f"{text[:_LINE_LENGTH]} … ({len(text)} characters)"


def _changes(actions: Sequence[Action], before: Metadata | None) -> Iterable[str]:
    for action in actions:
        if isinstance(action, Protocol):
            features = sorted({*(action.reader_features or ()), *(action.writer_features or ())})
            named = f", features {', '.join(features)}" if features else ""
            yield f"Protocol: reader {action.min_reader_version}, writer {action.min_writer_version}{named}."
        elif isinstance(action, Metadata):
            yield from _metadata_changes(action, before)
        elif isinstance(action, SetTransaction):
            yield f"Transaction {action.version} of the application {hide_text(action.app_id)}."
        elif isinstance(action, DomainMetadata):
            yield f"Domain {action.domain} {'removed' if action.removed else 'set'}."
        elif isinstance(action, CommitInfo):
            continue


def _metadata_changes(after: Metadata, before: Metadata | None) -> Iterable[str]:
    if before is None:
        yield "Schema, partitioning and properties of the table are set."
        return
    old, new = _column_types(before), _column_types(after)
    yield from (f"Column {name} ({new[name]}) is added." for name in new if name not in old)
    yield from (f"Column {name} is dropped or renamed." for name in old if name not in new)
    retyped = [name for name in new if old.get(name, new[name]) != new[name]]
    yield from (f"Column {name} changes from {old[name]} to {new[name]}." for name in retyped)
    if before.partition_columns != after.partition_columns:
        yield f"Partitioned by {', '.join(after.partition_columns) or 'nothing'}."
    names = itertools.chain(before.configuration, after.configuration)
    for name in dict.fromkeys(names):
        was, is_now = before.configuration.get(name), after.configuration.get(name)
        if was != is_now and is_now is None:
            yield f"Property {name} is unset."
        elif was != is_now:
            yield f"Property {name} is {hide_value(name, is_now)}."


def _column_types(metadata: Metadata) -> dict[str, str]:
    try:
        fields = json.loads(metadata.schema_string)["fields"]
        found = {}
        for field in fields:
            kind = field["type"]
            found[str(field["name"])] = kind if isinstance(kind, str) else str(kind.get("type"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
    return found
