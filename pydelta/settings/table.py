"""Parse the properties of tables into frozen values, and check those that are to be set."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydelta.errors import InvalidArgumentError, UnknownSettingError
from pydelta.errors.conditions import Condition
from pydelta.errors.suggestions import did_you_mean
from pydelta.settings.maintenance import POLICY_PREFIX, MaintenancePolicy, policy_names
from pydelta.settings.values import (
    DAY_MS,
    choice,
    parse_bool,
    parse_bytes,
    parse_columns,
    parse_integer,
    parse_interval_ms,
    parse_on_or_auto,
    parse_positive_int,
)

__all__ = [
    "KEPT_PROPERTIES",
    "TableProperties",
    "canonical_properties",
    "canonical_property",
    "check_property_names",
    "checked_properties",
    "refuse_kept_properties",
]


def _isolation_level(text: str, *, name: str) -> str:
    """A level that a table may ask for; snapshot isolation in an old log counts as the default, which is stronger."""
    if text.strip().lower() == _SNAPSHOT_ISOLATION.lower():
        return "Serializable"
    return choice("Serializable", "WriteSerializable")(text, name=name)


_SNAPSHOT_ISOLATION: Final = "SnapshotIsolation"
_PROPERTY_PARSERS: Final[Mapping[str, tuple[str, Callable[..., Any]]]] = {
    "delta.checkpointInterval": ("checkpoint_interval", parse_positive_int),
    "delta.logRetentionDuration": ("log_retention_ms", parse_interval_ms),
    "delta.deletedFileRetentionDuration": ("deleted_file_retention_ms", parse_interval_ms),
    "delta.setTransactionRetentionDuration": ("set_transaction_retention_ms", parse_interval_ms),
    "delta.enableExpiredLogCleanup": ("enable_expired_log_cleanup", parse_bool),
    "delta.appendOnly": ("append_only", parse_bool),
    "delta.checkpoint.writeStatsAsJson": ("checkpoint_write_stats_as_json", parse_bool),
    "delta.checkpoint.writeStatsAsStruct": ("checkpoint_write_stats_as_struct", parse_bool),
    "pydelta.log.compactionInterval": ("log_compaction_interval", parse_positive_int),
    "delta.checkpointPolicy": ("checkpoint_policy", choice("classic", "v2")),
    "delta.dataSkippingNumIndexedCols": ("data_skipping_num_indexed_cols", parse_integer),
    "delta.dataSkippingStatsColumns": ("data_skipping_stats_columns", parse_columns),
    "delta.isolationLevel": ("isolation_level", _isolation_level),
    "delta.enableInCommitTimestamps": ("in_commit_timestamps_enabled", parse_bool),
    "delta.inCommitTimestampEnablementVersion": ("in_commit_timestamp_enablement_version", parse_integer),
    "delta.inCommitTimestampEnablementTimestamp": ("in_commit_timestamp_enablement_timestamp_ms", parse_integer),
    "delta.enableDeletionVectors": ("enable_deletion_vectors", parse_bool),
    "delta.enableChangeDataFeed": ("enable_change_data_feed", parse_bool),
    "delta.enableRowTracking": ("enable_row_tracking", parse_bool),
    "delta.enableTypeWidening": ("enable_type_widening", parse_bool),
    "delta.rowTrackingSuspended": ("row_tracking_suspended", parse_bool),
    "delta.rowTracking.materializedRowIdColumnName": ("row_id_column", lambda text, *, name: text),
    "delta.rowTracking.materializedRowCommitVersionColumnName": ("row_version_column", lambda text, *, name: text),
    "delta.columnMapping.mode": ("column_mapping_mode", choice("none", "name", "id")),
    "delta.columnMapping.maxColumnId": ("column_mapping_max_id", parse_integer),
    "delta.targetFileSize": ("target_file_size_bytes", parse_bytes),
    "delta.parquet.compression.codec": (
        "compression_codec",
        choice("uncompressed", "none", "snappy", "gzip", "lz4", "lz4_raw", "zstd"),
    ),
    "delta.randomizeFilePrefixes": ("randomize_file_prefixes", parse_bool),
    "delta.autoOptimize.autoCompact": ("auto_compact", parse_on_or_auto),
    "delta.autoOptimize.optimizeWrite": ("optimize_write", parse_bool),
    "delta.compatibility.symlinkFormatManifest.enabled": ("symlink_manifest_enabled", parse_bool),
}

_KNOWN_WITHOUT_FIELD: Final = frozenset(
    {
        "delta.autoOptimize",
        "delta.checkpointRetentionDuration",
        "delta.columnMapping.hasDroppedOrRenamed",
        "delta.dataSkippingStringPrefixLength",
        "delta.dropFeatureTruncateHistory.retentionDuration",
        "delta.enableFullRetentionRollback",
        "delta.enableIcebergCompatV1",
        "delta.enableIcebergCompatV2",
        "delta.enableIcebergCompatV3",
        "delta.enableIcebergWriterCompatV1",
        "delta.enableMaterializePartitionColumnsFeature",
        "delta.enableVariantShredding",
        "delta.minReaderVersion",
        "delta.minWriterVersion",
        "delta.parquet.format.version",
        "delta.randomPrefixLength",
        "delta.requireCheckpointProtectionBeforeVersion",
        "delta.sampleRetentionDuration",
        "delta.tuneFileSizesForRewrites",
        "delta.universalFormat.enabledFormats",
        "delta.writePartitionColumnsToParquet",
    }
)
_CHECKED_WHEN_SET: Final[Mapping[str, Callable[..., Any]]] = {
    **dict.fromkeys(
        (
            "delta.autoOptimize",
            "delta.enableFullRetentionRollback",
            "delta.enableIcebergCompatV1",
            "delta.enableIcebergCompatV2",
            "delta.enableIcebergCompatV3",
            "delta.enableVariantShredding",
        ),
        parse_bool,
    ),
    **dict.fromkeys(
        (
            "delta.checkpointRetentionDuration",
            "delta.dropFeatureTruncateHistory.retentionDuration",
            "delta.sampleRetentionDuration",
        ),
        parse_interval_ms,
    ),
    "delta.dataSkippingNumIndexedCols": functools.partial(parse_integer, least=-1),
    "delta.dataSkippingStringPrefixLength": functools.partial(parse_integer, least=0),
    "delta.randomPrefixLength": parse_positive_int,
}
"""What is looked at when a property is set, and not when a table that has it is read."""
_KNOWN_PREFIXES: Final = ("delta.constraints.", "delta.feature.", "delta.rowTracking.", "delta.clustering.")
_PROPERTY_NAMES: Final = {name.lower(): name for name in (*_PROPERTY_PARSERS, *_KNOWN_WITHOUT_FIELD, *policy_names())}
"""As they are written in lower case -> as the format spells them."""
_CHECKED_PREFIXES: Final = ("delta.", POLICY_PREFIX, "pydelta.log.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProperties:
    """The ``delta.*`` properties that the engine acts on, parsed. Times in milliseconds, sizes in bytes."""

    checkpoint_interval: int = 10
    log_retention_ms: int = 30 * DAY_MS
    deleted_file_retention_ms: int = 7 * DAY_MS
    set_transaction_retention_ms: int | None = None
    enable_expired_log_cleanup: bool = True
    append_only: bool = False
    checkpoint_write_stats_as_json: bool = True
    checkpoint_write_stats_as_struct: bool = True
    checkpoint_policy: str = "classic"
    log_compaction_interval: int | None = None
    data_skipping_num_indexed_cols: int = 32
    data_skipping_stats_columns: tuple[str, ...] | None = None
    isolation_level: str = "Serializable"
    in_commit_timestamps_enabled: bool = False
    in_commit_timestamp_enablement_version: int | None = None
    in_commit_timestamp_enablement_timestamp_ms: int | None = None
    enable_deletion_vectors: bool = False
    enable_change_data_feed: bool = False
    enable_row_tracking: bool = False
    row_tracking_suspended: bool = False
    row_id_column: str | None = None
    row_version_column: str | None = None
    enable_type_widening: bool = False
    column_mapping_mode: str = "none"
    column_mapping_max_id: int = 0
    target_file_size_bytes: int | None = None
    compression_codec: str = "snappy"
    randomize_file_prefixes: bool = False
    symlink_manifest_enabled: bool = False
    auto_compact: bool | None = None
    optimize_write: bool | None = None

    @classmethod
    def parse(cls, configuration: Mapping[str, str]) -> TableProperties:
        """Parse what a table's metadata carries; names that the engine does not act on are ignored.

        Raises:
            InvalidArgumentError: A value that cannot be right, named.
        """
        values = {
            name: parser(configuration[key], name=key)
            for key, (name, parser) in _PROPERTY_PARSERS.items()
            if key in configuration
        }
        return cls(**values)


def canonical_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Spell table properties as the format does: names that are known ignore case.

    Example:
        >>> canonical_properties({"delta.APPENDONLY": "true", "Own": "1"})
        {'delta.appendOnly': 'true', 'Own': '1'}
    """
    return {canonical_property(name): value for name, value in given.items()}


def canonical_property(name: str) -> str:
    """Spell the name of a table property as the format does; one that is not known stays as it is."""
    return _PROPERTY_NAMES.get(name.lower(), name)


def checked_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a new table as the format spells them, if they may be given.

    Raises:
        UnknownSettingError, InvalidArgumentError: See ``check_property_names`` and ``refuse_kept_properties``.
    """
    properties = canonical_properties(given)
    check_property_names(properties)
    refuse_kept_properties(properties)
    if "delta.feature.clustering" in properties:
        raise InvalidArgumentError(
            "The table feature clustering cannot be set by a property.",
            hint="Write CLUSTER BY (columns) in the definition.",
            condition=Condition.of(
                "DELTA_CREATE_TABLE_SET_CLUSTERING_TABLE_FEATURE_NOT_ALLOWED", tableFeature="clustering"
            ),
        )
    return properties


def check_property_names(configuration: Mapping[str, str], there: Mapping[str, str] | None = None) -> None:
    """Refuse names that no one defines, and values that cannot be right, before they enter a log.

    Names of ``delta.*``, ``pydelta.maintenance.*`` and ``pydelta.log.*`` are looked at; others are the user's own.

    Args:
        configuration: What is to be set.
        there: The table's properties before, for those that have to fit each other.

    Raises:
        UnknownSettingError: With the nearest known name as a suggestion.
        InvalidArgumentError: A value that cannot be right.
    """
    known = _PROPERTY_NAMES
    for name in configuration:
        lower = name.lower()
        prefix = next((prefix for prefix in _CHECKED_PREFIXES if lower.startswith(prefix)), None)
        if prefix is None or lower.startswith(tuple(known_prefix.lower() for known_prefix in _KNOWN_PREFIXES)):
            continue
        if known.get(lower) != name:
            raise UnknownSettingError(
                f"Unknown table property {name!r}.",
                hint=did_you_mean(name, known.values(), otherwise=f"Names of your own must not begin with {prefix!r}."),
                condition=Condition.of("DELTA_UNKNOWN_CONFIGURATION", config=name),
            )
        if lower == "delta.isolationlevel" and configuration[name].strip().lower() == _SNAPSHOT_ISOLATION.lower():
            raise InvalidArgumentError(
                f"{name} is {configuration[name]!r}: two writers could overwrite each other's changes.",
                hint="Set it to Serializable, which is the default, or to WriteSerializable. Commits that change no "
                "row, such as OPTIMIZE, use snapshot isolation anyway.",
                condition=Condition.of("DELTA_INVALID_PROPERTY_VALUE", property=name, value=configuration[name]),
            )
    MaintenancePolicy.parse(configuration)
    for name, check in _CHECKED_WHEN_SET.items():
        if name in configuration:
            check(configuration[name], name=name)
    made = TableProperties.parse({**(there or {}), **configuration})
    if made.enable_row_tracking and made.row_tracking_suspended:
        both = ("delta.enableRowTracking", "delta.rowTrackingSuspended")
        raise InvalidArgumentError(
            f"{both[0]} and {both[1]} cannot both be true.",
            hint="Set one of them to false.",
            condition=Condition.of(
                "DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION", property1=both[0], property2=both[1]
            ),
        )
    if not configuration.keys().isdisjoint(_RETENTIONS) and made.log_retention_ms < made.deleted_file_retention_ms:
        log, files = _RETENTIONS
        raise InvalidArgumentError(
            f"{log} would be shorter than {files}: versions would lose their log while their files are kept.",
            hint=f"Set {log} to at least the time of {files} (interval 7 days where it is not set).",
            condition=Condition.of("DELTA_INVALID_PROPERTY_VALUE", property=log, value=configuration.get(log, "")),
        )


_RETENTIONS: Final = ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration")

KEPT_PROPERTIES: Final = (
    "delta.columnMapping.maxColumnId",
    "delta.rowTracking.materializedRowIdColumnName",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
    "delta.inCommitTimestampEnablementVersion",
    "delta.inCommitTimestampEnablementTimestamp",
    "delta.requireCheckpointProtectionBeforeVersion",
)
"""Properties that the engine keeps for itself: each is about one log."""


def refuse_kept_properties(given: Mapping[str, str], there: Mapping[str, str] | None = None) -> None:
    """Nothing, when users may set these properties.

    Args:
        given: What they set.
        there: The table's properties; setting what is there already is not a change.

    Raises:
        InvalidArgumentError: One of them is the engine's own.
    """
    for name in KEPT_PROPERTIES:
        if name in given and given[name] != (there or {}).get(name):
            raise InvalidArgumentError(
                f"{name} is managed by the engine and cannot be set.",
                hint="Leave it out.",
                condition=Condition.of("DELTA_CANNOT_MODIFY_TABLE_PROPERTY", prop=name),
            )
