"""Check a command's staged actions and turn them into a commit file for each attempt at a version.

``check_staged`` runs once and refuses actions that must never be in a log. ``render`` runs for each attempt and fills
in all that depends on the version: ``commitInfo``, in-commit timestamps, row ids.

``with_kept_enablement`` records when in-commit timestamps begin, for all commands (REPLACE, CLONE, RESTORE, ALTER …)::

    on before the commit    on after it           enablement version and time
    no                      no                    removed
    no                      yes                   this commit's, set by ``render``; none in a table's first version
    yes                     yes                   unchanged, whatever the new metadata contains
    yes                     no                    removed

Protocol: "In-Commit Timestamps".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import polars as pl

from pydelta.errors import BindError, InvalidArgumentError, LogCorruptedError, UnsafeOperationError
from pydelta.errors.conditions import Condition
from pydelta.log.replay import column_mapping_mode
from pydelta.log.runs import joined, key_columns, objects_of, runs_of
from pydelta.protocol.actions import (
    Action,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    encode_json,
)
from pydelta.protocol.malformed import MALFORMED_JSON
from pydelta.protocol.schema import parse_schema, physical_partition_columns
from pydelta.protocol.schema_edits import field_at, name_of, parse_path, resolve
from pydelta.protocol.stats import has_bounds, indexed_leaves
from pydelta.protocol.types import StructType
from pydelta.settings import TableProperties
from pydelta.txn.footprint import ROW_TRACKING_DOMAIN, Isolation, Operation, Staged, WinningCommit, changes_rows

__all__ = [
    "ENABLEMENT_TIMESTAMP",
    "ENABLEMENT_VERSION",
    "Base",
    "Intention",
    "check_staged",
    "check_stats_columns",
    "render",
    "with_kept_enablement",
]

ENABLEMENT_VERSION: Final = "delta.inCommitTimestampEnablementVersion"
ENABLEMENT_TIMESTAMP: Final = "delta.inCommitTimestampEnablementTimestamp"


def with_kept_enablement(after: Metadata, before: Metadata | None, *, was_on: bool, is_on: bool) -> Metadata:
    """Return the new metadata with the enablement properties of the old one, or without them.

    Args:
        after: The metadata to commit.
        before: The table's metadata; None if there is no table.
        was_on: Whether commits had in-commit timestamps before.
        is_on: Whether they will have them.
    """
    names = (ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP)
    configuration = {key: value for key, value in after.configuration.items() if key not in names}
    if before is not None and was_on and is_on:
        configuration |= {key: before.configuration[key] for key in names if key in before.configuration}
    return after if configuration == after.configuration else after.replace(configuration=configuration)


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The base of the next commit: the newest version seen, its time, and the last assigned row id.

    Args:
        version: -1 if the table does not exist yet.
        timestamp_ms: Commit time of that version, epoch milliseconds.
        row_id_high_water_mark: -1 if no row has an id.
    """

    version: int
    timestamp_ms: int
    row_id_high_water_mark: int = -1

    def after(self, winner: WinningCommit, *, file_time_ms: int) -> Base:
        """Return the base after ``winner``. ``file_time_ms`` is used if it has no in-commit timestamp."""
        stamped = winner.commit_info.in_commit_timestamp if winner.commit_info else None
        mark = row_id_high_water_mark(winner.domains)
        return Base(
            version=winner.version,
            timestamp_ms=stamped if stamped is not None else max(self.timestamp_ms + 1, file_time_ms),
            row_id_high_water_mark=max(self.row_id_high_water_mark, mark),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Intention:
    """The parts of a commit that are the same in all attempts.

    Args:
        staged: The checked actions, without ``commitInfo``.
        txn_id: Identifies the commit file as this transaction's own.
        read_version: Version of the snapshot that was read; -1 for a table that did not exist.
        stamped: Whether the commit has an in-commit timestamp; ``stamping_begins`` if it is the first one.
        row_tracking: Whether added files get row ids.
    """

    staged: Staged
    operation: Operation
    txn_id: str
    read_version: int
    level: Isolation
    is_blind_append: bool
    engine_info: str
    user_metadata: str | None = None
    user_name: str | None = None
    tags: Mapping[str, str] | None = None
    stamped: bool = False
    stamping_begins: bool = False
    row_tracking: bool = False


def row_id_high_water_mark(domains: Iterable[DomainMetadata]) -> int:
    """Return the mark in the domain ``delta.rowTracking``, or -1.

    Raises:
        LogCorruptedError: The domain exists but has no mark.
    """
    for item in domains:
        if item.domain == ROW_TRACKING_DOMAIN and not item.removed:
            mark = _whole_number(item.configuration, "rowIdHighWaterMark")
            if mark is None:
                raise LogCorruptedError(
                    f"The metadata domain {ROW_TRACKING_DOMAIN!r} holds no rowIdHighWaterMark: {item.configuration!r}.",
                    hint="Restore the commit that wrote it from a backup of _delta_log.",
                )
            return mark
    return -1


def _whole_number(text: str | None, name: str) -> int | None:
    """Read an integer from a JSON object in text form. Returns None if it is missing."""
    try:
        value = msgspec.json.decode(text or "{}").get(name)
    except (*MALFORMED_JSON, AttributeError):
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def partition_keys(metadata: Metadata, protocol: Protocol | None) -> frozenset[str]:
    """Return the keys of ``partitionValues``, which are physical names if column mapping is on."""
    if not metadata.partition_columns:
        return frozenset()
    mode = column_mapping_mode(protocol, metadata)
    schema = parse_schema(metadata.schema_string)
    return frozenset(physical_partition_columns(schema, metadata.partition_columns, mode))


def check_staged(staged: Staged, *, metadata: Metadata, protocol: Protocol, append_only: bool) -> None:
    """Refuse a set of actions that must not be in one commit.

    Args:
        staged: The changes to publish.
        metadata: The table's metadata after the commit.
        protocol: The table's protocol after the commit.
        append_only: Whether the table, as it was read, forbids removing rows.

    Raises:
        UnsafeOperationError: Rows are removed from an append-only table.
        InvalidArgumentError: Anything else is wrong. The error names the action.

    Protocol: "Action Reconciliation", "Append-only Tables", "Partition Value Serialization".
    """
    objects = tuple(objects_of(staged.actions))
    for action in objects:
        if action.kind in ("commitInfo", "checkpointMetadata", "sidecar"):
            raise InvalidArgumentError(
                f"A transaction was given a {action.kind} action.",
                hint="The transaction writes commitInfo itself; the other two are for checkpoints only.",
            )
    _refuse_repeats("metaData", [a.kind for a in objects if a.kind == "metaData"])
    _refuse_repeats("protocol", [a.kind for a in objects if a.kind == "protocol"])
    added, removed = key_columns(staged.adds), key_columns(staged.removes)
    _refuse_repeated_paths("add of path", added)
    _refuse_repeated_paths("remove of path", removed)
    _refuse_repeats("txn of application", [item.app_id for item in staged.transactions])
    _refuse_repeats("domainMetadata of domain", [item.domain for item in staged.domains])
    both = added.join(removed, on=["path", "dv_id"], how="semi", nulls_equal=True)["path"].sort().head(1).to_list()
    if both:
        raise InvalidArgumentError(
            f"File {both[0]} is both added and removed in one commit.",
            hint="A path may be in both only with different deletion vectors.",
            condition=Condition.of("DELTA_DUPLICATE_ACTIONS_FOUND", path=both[0]),
        )
    if append_only and changes_rows(staged.removes):
        first = next(remove for remove in staged.removes if remove.data_change)
        raise UnsafeOperationError(
            f"This table is append-only (delta.appendOnly=true), but the commit removes rows: file {first.path}.",
            hint="Set delta.appendOnly to false first, if you really want to remove rows.",
            condition=Condition.of("DELTA_CANNOT_MODIFY_APPEND_ONLY", config="delta.appendOnly"),
        )
    keys = partition_keys(metadata, protocol)
    for add in _one_of_each_run(staged.adds):
        if add.partition_values.keys() != keys:
            raise InvalidArgumentError(
                f"File {add.path} has partition values for {sorted(add.partition_values)}, "
                f"but the table is partitioned by {sorted(keys)}.",
                hint="Give exactly one value (or null) for each partition column.",
                condition=Condition.of(
                    "DELTA_INVALID_PARTITIONING_SCHEMA",
                    neededPartitioning=sorted(keys),
                    specifiedPartitioning=sorted(add.partition_values),
                ),
            )


def _one_of_each_run(adds: Sequence[AddFile]) -> Iterator[AddFile]:
    """Yield all adds outside runs and one per run, whose files all have the same partition columns."""
    for action in (*objects_of(adds), *(run[0] for run in runs_of(adds))):
        if isinstance(action, AddFile):
            yield action


def _refuse_repeated_paths(what: str, keys: pl.DataFrame) -> None:
    if keys["path"].n_unique() < keys.height:
        _refuse_repeats(what, keys["path"].to_list())


def _refuse_repeats(what: str, names: list[str]) -> None:
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidArgumentError(
                f"The commit holds more than one {what} {name!r}.", hint="Each may be in a commit only once."
            )
        seen.add(name)


def render(intention: Intention, base: Base, *, now_ms: int) -> Sequence[Action]:
    """Render the lines of the commit file for version ``base.version + 1``.

    ``commitInfo`` comes first, as in-commit timestamps require. Calling it again with a later base moves the commit
    there. Nothing of an earlier attempt remains.

    Args:
        intention: The parts that are the same in all attempts.
        base: The state on which to commit.
        now_ms: Current time, epoch milliseconds.

    Raises:
        InvalidArgumentError: Row ids are needed, but a file does not state its number of rows.

    Protocol: "In-Commit Timestamps", "Row Tracking", "Commit Provenance Information".
    """
    version = base.version + 1
    stamp = max(now_ms, base.timestamp_ms + 1) if intention.stamped else None
    runs: Sequence[Action] = ()
    staged = intention.staged.actions
    if runs_of(staged) and not intention.row_tracking:
        runs = joined(*runs_of(staged))
        staged = tuple(objects_of(staged))
    actions: list[Action] = list(staged)
    if intention.stamping_begins and stamp is not None:
        actions = [_with_enablement(action, version=version, stamp=stamp) for action in actions]
    if intention.row_tracking:
        actions = _with_row_ids(actions, base=base)
    order = {"protocol": 0, "metaData": 1}
    actions.sort(key=lambda action: order.get(action.kind, 2))
    return joined((_commit_info(intention, now_ms=now_ms, stamp=stamp), *actions), runs)


def _with_enablement(action: Action, *, version: int, stamp: int) -> Action:
    if not isinstance(action, Metadata):
        return action
    since = {
        ENABLEMENT_VERSION: str(version),
        ENABLEMENT_TIMESTAMP: str(stamp),
    }
    return action.replace(configuration={**action.configuration, **since})


def _with_row_ids(actions: list[Action], *, base: Base) -> list[Action]:
    """Assign ids above the mark to files without them. Files that keep their ids are unchanged."""
    version = base.version + 1
    staged = row_id_high_water_mark(action for action in actions if isinstance(action, DomainMetadata))
    first = mark = max(base.row_id_high_water_mark, staged)
    numbered: list[Action] = []
    for action in actions:
        if isinstance(action, AddFile):
            if action.base_row_id is None:
                rows = _num_records(action)
                action = action.replace(base_row_id=mark + 1)
                mark += rows
            if action.default_row_commit_version is None:
                action = action.replace(default_row_commit_version=version)
        numbered.append(action)
    if mark > first:
        numbered = [a for a in numbered if not (isinstance(a, DomainMetadata) and a.domain == ROW_TRACKING_DOMAIN)]
        configuration = encode_json({"rowIdHighWaterMark": mark})
        numbered.append(DomainMetadata(domain=ROW_TRACKING_DOMAIN, configuration=configuration, removed=False))
    return numbered


def _num_records(add: AddFile) -> int:
    count = _whole_number(add.stats, "numRecords")
    if count is None:
        raise InvalidArgumentError(
            f"File {add.path} has no numRecords statistic, but the table assigns ids to rows (rowTracking).",
            hint="Write the file with statistics.",
            condition=Condition.of("DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS"),
        )
    return count


def _commit_info(intention: Intention, *, now_ms: int, stamp: int | None) -> CommitInfo:
    operation = intention.operation
    parameters = {
        name: value if value is None or isinstance(value, str) else encode_json(value)
        for name, value in operation.parameters.items()
    }
    fields: dict[str, Any] = {} if stamp is None else {"inCommitTimestamp": stamp}
    fields["timestamp"] = now_ms
    if intention.user_name is not None:
        fields["userName"] = intention.user_name
    fields |= {"operation": operation.name, "operationParameters": parameters}
    if intention.read_version >= 0:
        fields["readVersion"] = intention.read_version
    fields |= {
        "isolationLevel": intention.level.value,
        "isBlindAppend": intention.is_blind_append,
        "operationMetrics": {name: str(value) for name, value in operation.metrics.items()},
    }
    if intention.user_metadata is not None:
        fields["userMetadata"] = intention.user_metadata
    if intention.tags:
        fields["tags"] = dict(intention.tags)
    fields |= {"engineInfo": intention.engine_info, "txnId": intention.txn_id}
    return CommitInfo(fields)


def check_stats_columns(metadata: Metadata) -> None:
    """Check that ``delta.dataSkippingStatsColumns`` names columns that can have statistics, each once.

    Fields of a struct are never refused for their type, because the struct may be named as a whole.

    Raises:
        BindError: The table has no such column.
        InvalidArgumentError: A partition column, a type without bounds, or a column named twice.
    """
    named = TableProperties.parse(metadata.configuration).data_skipping_stats_columns
    if named is None:
        return
    schema = parse_schema(metadata.schema_string)
    partitions = {name.lower() for name in metadata.partition_columns}
    seen: set[tuple[str, ...]] = set()
    for text in named:
        path = parse_path(text)
        if len(path) == 1 and path[0].lower() in partitions:
            condition = Condition.of("DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_PARTITIONED_COLUMN", column=text)
            raise _no_statistics(f"{text} is a partition column", condition)
        try:
            path = resolve(schema, path)
        except BindError as error:
            error.called(Condition.of("DELTA_COLUMN_NOT_FOUND_IN_SCHEMA", columnName=text, tableSchema=schema.tree()))
            raise
        field = field_at(schema, path)
        leaves = [(*path[:-1], *leaf) for leaf, _ in indexed_leaves(StructType((field,)), num_indexed=-1)]
        if len(path) == 1 and not isinstance(field.data_type, StructType) and not has_bounds(field.data_type):
            condition = Condition.of("DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_TYPE", column=text, type=field.data_type)
            raise _no_statistics(f"{text} is of type {field.data_type}", condition)
        twice = [name_of(leaf) for leaf in leaves if leaf in seen]
        if twice:
            condition = Condition.of("DELTA_DUPLICATE_DATA_SKIPPING_COLUMNS", columns=",".join(twice))
            raise _no_statistics(f"{', '.join(twice)} is named twice", condition)
        seen.update(leaves)


def _no_statistics(what: str, condition: Condition) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"delta.dataSkippingStatsColumns: {what}.",
        hint="Name columns whose values have an order, or structs of them, each once and no partition column.",
        condition=condition,
    )
