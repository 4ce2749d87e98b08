"""Change a table's protocol: upgrade it, add a feature, or drop one, in a few commits at most.

Dropping a feature, step by step::

    it can be dropped, and no feature or table state needs it    else an error that says what to do first
    a writer feature                  one commit: properties off, protocol lower
    a reader feature                  old versions still use it:
        truncateHistory=False         checkpoint, commit, checkpoint; older log files are protected from then on
        truncateHistory=True          properties off, log truncated; once no version uses it any more: commit

Protocol: "Protocol Evolution", "Table Features", "Checkpoint Protection".
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydelta.commands.alter.command import Alter
from pydelta.commands.alter.requests import UnsetProperties
from pydelta.commands.optimize.reorg import Purge
from pydelta.commands.run import Attempt, Command, Context, Task, existing_table, run
from pydelta.errors import UnsafeOperationError, UnsupportedFeatureError, VersionNotFoundError
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog, Snapshot
from pydelta.log.row_ids import BASE_ROW_ID, with_row_ids
from pydelta.protocol.actions import (
    Action,
    DomainMetadata,
    Protocol,
    action_to_dict,
    encode_json,
)
from pydelta.protocol.column_mapping import MODE
from pydelta.protocol.feature_removal import FeatureUse, Removal
from pydelta.protocol.feature_table import FEATURES
from pydelta.protocol.features import (
    at_least,
    ensure_writable,
    implied_features,
    with_feature,
    without_feature,
)
from pydelta.protocol.paths import LogFileKind
from pydelta.protocol.schema_edits import TYPE_CHANGES, all_paths, map_fields, name_of
from pydelta.protocol.types import StructField
from pydelta.settings import parse_interval_ms
from pydelta.txn import Committed, Operation, OptimisticTransaction

__all__ = ["AddFeature", "DropFeature", "FeatureResult", "UpgradeProtocol"]

_PROTECTION: Final = "checkpointProtection"
_VECTORS: Final = "deletionVectors"
_WIDENING: Final = ("typeWidening", "typeWidening-preview")
_PROTECTED_BEFORE: Final = "delta.requireCheckpointProtectionBeforeVersion"
_RETENTION: Final = "delta.dropFeatureTruncateHistory.retentionDuration"
_DAY: Final = "interval 24 hours"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureResult:
    """The result of a protocol change. ``version`` is the new version; None if nothing had to change."""

    version: int | None
    protocol: Protocol
    committed: Committed | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class UpgradeProtocol(Command[FeatureResult]):
    """Upgrade the table's protocol to at least these versions; it never goes down.

    Args:
        reader_version: 1 to 3.
        writer_version: 1 to 7.

    Raises:
        InvalidArgumentError: The versions do not exist.
        UnsupportedFeatureError: The versions imply features that this engine cannot write.

    Protocol: "Protocol Evolution".
    """

    reader_version: int
    writer_version: int

    def execute(self, attempt: Attempt) -> FeatureResult:
        """See ``Command.execute``."""
        wanted = at_least(_protocol(attempt.snapshot), reader=self.reader_version, writer=self.writer_version)
        operation = Operation(name="UPGRADE PROTOCOL", parameters={"newProtocol": _text(wanted)})
        return _change_protocol(attempt.txn, wanted, operation)


@dataclass(frozen=True, slots=True)
class AddFeature(Command[FeatureResult]):
    """Add a feature to the table's protocol, without enabling anything.

    A reader feature needs protocol (3, 7), any other writer version 7; both are set.

    Args:
        name: The feature.

    Raises:
        UnsupportedFeatureError: The feature does not exist, or this engine cannot write it.

    Protocol: "Table Features".
    """

    name: str

    def execute(self, attempt: Attempt) -> FeatureResult:
        """See ``Command.execute``."""
        wanted = with_feature(_protocol(attempt.snapshot), self.name)
        properties = {f"delta.feature.{self.name}": "supported"}
        operation = Operation(name="SET TBLPROPERTIES", parameters={"properties": encode_json(properties)})
        return _change_protocol(attempt.txn, wanted, operation)


def _change_protocol(txn: OptimisticTransaction, wanted: Protocol, operation: Operation) -> FeatureResult:
    if wanted == txn.snapshot.protocol:
        return FeatureResult(version=None, protocol=wanted)
    ensure_writable(wanted)
    txn.update_protocol(wanted)
    committed = txn.commit([], operation)
    return FeatureResult(version=committed.version, protocol=wanted, committed=committed)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropFeature(Task[FeatureResult]):
    """Remove a feature from the table's protocol.

    Dropping ``columnMapping``, ``deletionVectors`` or ``typeWidening`` rewrites files: without column mapping, without
    hidden rows, or with the columns' current types. Without an engine it is refused if a file must be rewritten.

    Args:
        name: The feature.
        truncate_history: Wait until no retained version uses it, and leave no protection behind. Only for reader
            features. The log is truncated to ``delta.dropFeatureTruncateHistory.retentionDuration``.

    Raises:
        UnsupportedFeatureError: The feature does not exist, is not in the table, or cannot be dropped.
        UnsafeOperationError: Another feature needs it, something uses it, or older versions do (with
            ``truncate_history``); the error says what to do first. In the last case its properties are already off.
        DeltaConcurrentModificationException: Another transaction won.

    Protocol: "Table Features", "Checkpoint Protection".
    """

    name: str
    truncate_history: bool = False

    def perform(self, context: Context) -> FeatureResult:
        """See ``Task.perform``."""
        log, name, truncate = context.log, self.name, self.truncate_history
        rewrites, now = context.engine.rewrites_files, context.clock()
        prepared, txn = False, _start(context)
        if name == "columnMapping" and rewrites and txn.snapshot.column_mapping_mode != "none":
            run(Alter(UnsetProperties(names=(MODE,))), context)
            prepared, txn = True, _start(context)
        removal = _removal(txn.snapshot, name, truncate_history=truncate)
        if rewrites and name in (_VECTORS, *_WIDENING) and removal.problem(_state(txn.snapshot)) is not None:
            _turn_off(txn, removal)
            run(Purge(whole=name in _WIDENING), context)
            if name in _WIDENING:
                _forget_type_changes(_start(context), rewritten=txn.snapshot)
            prepared, txn = True, _start(context)
        problem = removal.problem(_state(txn.snapshot))
        if problem is not None:
            raise _in_use(name, *problem)
        if name == _PROTECTION:
            _require_nothing_protected(log, txn.snapshot, truncate_history=truncate, now_ms=now)
        elif truncate:
            prepared = _turn_off(txn, removal) or prepared
            _truncate(log, name, removal, now_ms=now, prepared=prepared)
        protect = FEATURES[name].reader and not truncate
        if protect or truncate:
            # Readers that do not know the feature then need not replay older commits.
            log.checkpoint(log.update())
        committed = _drop(_start(context), name, removal, truncate_history=truncate, protect=protect)
        if protect or truncate:
            log.checkpoint(committed.snapshot)
        return FeatureResult(version=committed.version, protocol=_protocol(committed.snapshot), committed=committed)


def _drop(
    txn: OptimisticTransaction, name: str, removal: Removal, *, truncate_history: bool, protect: bool
) -> Committed:
    """Commit the lower protocol. Any concurrent change of another writer conflicts."""
    snapshot = txn.snapshot
    metadata = snapshot.metadata
    assert metadata is not None
    txn.read_whole_table(exactly=True)
    problem = removal.problem(_state(snapshot))
    if problem is not None:
        raise _in_use(name, *problem)
    protocol = without_feature(_protocol(snapshot), name)
    configuration = _without_properties(metadata.configuration, (*removal.properties, f"delta.feature.{name}"))
    if protect:
        protocol = with_feature(protocol, _PROTECTION)
        # A winner in between would only move the boundary forward, and it conflicts anyway.
        configuration[_PROTECTED_BEFORE] = str(snapshot.version + 1)
    txn.update_metadata(metadata.replace(configuration=configuration))
    txn.update_protocol(protocol)
    parameters = {"featureName": name, "truncateHistory": truncate_history}
    return txn.commit(_clean_actions(snapshot, name), Operation(name="DROP FEATURE", parameters=parameters))


def _clean_actions(snapshot: Snapshot, name: str) -> list[Action]:
    """Return file and domain actions that remove the last traces of a feature from the state."""
    if name != "rowTracking":
        return []
    tracked = with_row_ids(snapshot.files, snapshot.files.core)
    tracked = tracked.filter(tracked[BASE_ROW_ID].is_not_null())
    actions: list[Action] = [
        add.replace(base_row_id=None, default_row_commit_version=None, data_change=False)
        for add in snapshot.files.adds(tracked)
    ]
    domain = snapshot.domain_metadata.get("delta.rowTracking")
    if domain is not None:
        actions.append(DomainMetadata(domain=domain.domain, configuration=domain.configuration, removed=True))
    return actions


def _removal(snapshot: Snapshot, name: str, *, truncate_history: bool) -> Removal:
    """Return how to drop the feature, after checking that this is allowed."""
    present = implied_features(_protocol(snapshot))
    if name not in FEATURES or name not in present:
        raise UnsupportedFeatureError(
            f"The table feature {name!r} is not in the table's protocol, so it cannot be dropped.",
            features=(name,),
            hint=f"The table has: {', '.join(sorted(present)) or 'none'}.",
            condition=Condition.of(
                "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT"
                if name in FEATURES
                else "DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE",
                feature=name,
            ),
        )
    removal = FEATURES[name].removal
    if removal is None:
        removable = sorted(feature.name for feature in FEATURES.values() if feature.removal is not None)
        raise UnsupportedFeatureError(
            f"The table feature {name} cannot be dropped.",
            features=(name,),
            hint=f"These can be dropped: {', '.join(removable)}.",
            condition=Condition.of("DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE", feature=name),
        )
    needing = sorted(other for other in present if name in FEATURES[other].requires)
    if needing:
        raise UnsafeOperationError(
            f"The table feature {name} is needed by {', '.join(needing)}.",
            hint=f"Drop {', '.join(needing)} first.",
            condition=Condition.of("DELTA_FEATURE_DROP_DEPENDENT_FEATURE", feature=name, dependentFeatures=needing),
        )
    if truncate_history and not FEATURES[name].reader and name != _PROTECTION:
        raise UnsupportedFeatureError(
            f"{name} is a writer feature, so dropping it does not truncate the history.",
            features=(name,),
            hint="Leave truncateHistory out.",
            condition=Condition.of("DELTA_FEATURE_DROP_HISTORY_TRUNCATION_NOT_ALLOWED"),
        )
    return removal


def _in_use(name: str, what: str, hint: str) -> UnsafeOperationError:
    return UnsafeOperationError(f"The table feature {name} is in use: {what}.", hint=hint)


def _turn_off(txn: OptimisticTransaction, removal: Removal) -> bool:
    """Remove the feature's properties, so that no new version uses it; return whether there were any."""
    metadata = txn.snapshot.metadata
    assert metadata is not None
    left = _without_properties(metadata.configuration, removal.properties)
    turned_off = left != metadata.configuration
    if turned_off:
        removed = sorted(metadata.configuration.keys() - left.keys())
        txn.update_metadata(metadata.replace(configuration=left))
        parameters = {"properties": encode_json(removed), "ifExists": True}
        txn.commit([], Operation(name="UNSET TBLPROPERTIES", parameters=parameters))
    return turned_off


def _forget_type_changes(txn: OptimisticTransaction, *, rewritten: Snapshot) -> None:
    """Remove the record of type changes from the schema, once every file has the types of ``rewritten``.

    If another writer has changed a type since, the record stays, and with it the feature.
    """
    metadata, old = txn.snapshot.metadata, rewritten.metadata
    assert metadata is not None and old is not None
    if metadata.schema_string != old.schema_string:
        return
    changed = [name_of(path) for path, field in all_paths(txn.snapshot.schema) if TYPE_CHANGES in field.metadata]
    schema = map_fields(txn.snapshot.schema, _without_type_changes)
    txn.read_whole_table(exactly=True)
    txn.update_metadata(metadata.replace(schema_string=schema.to_json()))
    txn.commit([], Operation(name="DROP FEATURE", parameters={"columns": changed}))


def _without_type_changes(field: StructField) -> StructField:
    return field.replace(metadata={name: value for name, value in field.metadata.items() if name != TYPE_CHANGES})


def _truncate(log: DeltaLog, name: str, removal: Removal, *, now_ms: int, prepared: bool) -> None:
    """Delete log files beyond the retention; refuse while a remaining version uses the feature.

    ``prepared`` means that this call has just ended the feature's use, so the waiting only begins.
    """
    snapshot = log.update()
    log.checkpoint(snapshot)
    assert snapshot.metadata is not None
    text = snapshot.metadata.configuration.get(_RETENTION, _DAY)
    log.cleanup(now_ms, retention_ms=parse_interval_ms(text, name=_RETENTION))
    using = _newest_use(log, name, removal, snapshot.version)
    if using is not None:
        raise UnsafeOperationError(
            f"Version {using} is still in the log and uses the table feature {name}.",
            hint=f"New versions do not. Try again when that version is older than {text} ({_RETENTION}), or drop the "
            "feature without truncateHistory.",
            version=using,
            condition=Condition.of(
                "DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD"
                if prepared
                else "DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST",
                feature=name,
                logRetentionPeriodKey=_RETENTION,
                truncateHistoryLogRetentionPeriod=text,
            ),
        )


def _newest_use(log: DeltaLog, name: str, removal: Removal, last: int) -> int | None:
    """Return the newest version up to ``last`` that only a reader with the feature can read."""
    held = log.held()
    if name == "v2Checkpoint":
        found = [item.version for item in held.checkpoints if item.kind is LogFileKind.CHECKPOINT_V2]
        if found:
            return max(found)
    for version in sorted((version for version in held.commits if version <= last), reverse=True):
        with contextlib.suppress(VersionNotFoundError):  # Nobody can read a version that was given up.
            if any(removal.used_by(action) for action in log.actions(version)):
                return version
    oldest = min((item.version for item in held.checkpoints), default=None)
    if oldest is not None and oldest < last:
        state = log.snapshot(version=oldest)
        uses = removal.problem(_state(state)) is not None
        if uses or (state.metadata is not None and removal.used_by(state.metadata)):
            return oldest
    return None


def _require_nothing_protected(log: DeltaLog, snapshot: Snapshot, *, truncate_history: bool, now_ms: int) -> None:
    metadata = snapshot.metadata
    assert metadata is not None
    text = metadata.configuration.get(_PROTECTED_BEFORE, "0").strip()
    before = int(text) if text.isdigit() else snapshot.version
    if truncate_history:
        log.checkpoint(snapshot)
        retention = metadata.configuration.get(_RETENTION, _DAY)
        log.cleanup(now_ms, retention_ms=parse_interval_ms(retention, name=_RETENTION))
    held = log.held()
    oldest = min([*held.commits, *(item.version for item in held.checkpoints)], default=before)
    if oldest < before:
        raise UnsafeOperationError(
            f"Log files from version {oldest} on are still there, and those before version {before} are protected.",
            hint="Try again with truncateHistory=True when they are older than "
            f"{metadata.configuration.get(_RETENTION, _DAY)}.",
            condition=Condition.of(
                "DELTA_FEATURE_DROP_CHECKPOINT_PROTECTION_WAIT_FOR_RETENTION_PERIOD",
                truncateHistoryLogRetentionPeriod=metadata.configuration.get(_RETENTION, _DAY),
            ),
        )


def _without_properties(configuration: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    prefixes = tuple(name for name in names if name.endswith("."))
    return {
        key: value
        for key, value in configuration.items()
        if key not in names and not (prefixes and key.startswith(prefixes))
    }


def _start(context: Context) -> OptimisticTransaction:
    txn = context.start()
    existing_table(txn.snapshot)
    return txn


def _protocol(snapshot: Snapshot) -> Protocol:
    assert snapshot.protocol is not None
    return snapshot.protocol


def _state(snapshot: Snapshot) -> FeatureUse:
    core = snapshot.files.core
    assert snapshot.metadata is not None
    return FeatureUse(
        metadata=snapshot.metadata,
        column_mapping_mode=snapshot.column_mapping_mode,
        domains=sorted(snapshot.domain_metadata),
        vectors=core.height - core["dv_id"].null_count(),
    )


def _text(protocol: Protocol) -> str:
    body: dict[str, Any] = action_to_dict(protocol)["protocol"]
    return encode_json(body)
