"""Parse the properties of tables into frozen values, and check new ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydelta.errors import InvalidArgumentError, UnknownSettingError
from pydelta.errors.conditions import Condition
from pydelta.errors.suggestions import did_you_mean
from pydelta.settings.maintenance import POLICY_PREFIX, MaintenancePolicy, policy_names
from pydelta.settings.row import rows_of, setting, unset
from pydelta.settings.values import (
    choice,
    parse_bool,
    parse_bytes,
    parse_columns,
    parse_integer,
    parse_interval_ms,
    parse_on_or_auto,
    parse_positive_int,
    parse_text,
)

__all__ = [
    "ICEBERG_COMPAT",
    "KEPT_PROPERTIES",
    "TableProperties",
    "canonical_properties",
    "canonical_property",
    "check_property_names",
    "checked_properties",
    "iceberg_compat_version",
    "refuse_kept_properties",
]


def _isolation_level(text: str, *, name: str) -> str:
    """Parse a table's isolation level. Snapshot isolation in an old log counts as the default, which is stronger."""
    if text.strip().lower() == _SNAPSHOT_ISOLATION.lower():
        return "Serializable"
    return choice("Serializable", "WriteSerializable")(text, name=name)


_SNAPSHOT_ISOLATION: Final = "SnapshotIsolation"


def _iceberg_format(text: str, *, name: str) -> Literal[2, 3]:
    """Parse a version of Iceberg's format."""
    return 2 if choice("2", "3")(text, name=name) == "2" else 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProperties:
    """The ``delta.*`` properties that the engine acts on, with a row each. Times are in milliseconds, sizes in
    bytes.
    """

    # fmt: off
    checkpoint_interval: int = setting("delta.checkpointInterval", parse_positive_int, "10",
        "Number of commits between two checkpoints.")
    log_retention_ms: int = setting("delta.logRetentionDuration", parse_interval_ms, "interval 30 days",
        "How long the log files of old versions are kept.")
    deleted_file_retention_ms: int = setting(
        "delta.deletedFileRetentionDuration", parse_interval_ms, "interval 7 days",
        "How long VACUUM keeps files that were removed from the table.")
    set_transaction_retention_ms: int | None = unset("delta.setTransactionRetentionDuration", parse_interval_ms, None,
        "How long the last version of a writing application is kept; unset: for ever.")
    enable_expired_log_cleanup: bool = setting("delta.enableExpiredLogCleanup", parse_bool, "true",
        "Delete log files that are past their retention after a checkpoint.")
    append_only: bool = setting("delta.appendOnly", parse_bool, "false", "Refuse to delete or change rows.")
    checkpoint_write_stats_as_json: bool = setting("delta.checkpoint.writeStatsAsJson", parse_bool, "true",
        "Checkpoints hold statistics as text.")
    checkpoint_write_stats_as_struct: bool = setting("delta.checkpoint.writeStatsAsStruct", parse_bool, "true",
        "Checkpoints hold statistics as columns.")
    checkpoint_policy: str = setting("delta.checkpointPolicy", choice("classic", "v2"), "classic",
        "Format of checkpoints; `v2` has sidecars.")
    log_compaction_interval: int | None = unset("pydelta.log.compactionInterval", parse_positive_int, None,
        "Commits after which a log compaction file is written; unset: never.")
    iceberg_format_version: Literal[2, 3] | None = unset("pydelta.iceberg.formatVersion", _iceberg_format, None,
        "Format of the Iceberg entry: 3 hides rows by vectors, for readers that know them; unset: 2 for a new entry.")
    data_skipping_num_indexed_cols: int = setting("delta.dataSkippingNumIndexedCols", parse_integer, "32",
        "Leading columns that get statistics; -1 for all.")
    data_skipping_stats_columns: tuple[str, ...] | None = unset("delta.dataSkippingStatsColumns", parse_columns, None,
        "Columns that get statistics, instead of the leading ones.")
    isolation_level: str = setting("delta.isolationLevel", _isolation_level, "Serializable",
        "How strictly commits are checked for conflicts; `WriteSerializable` allows more of them.")
    in_commit_timestamps_enabled: bool = setting("delta.enableInCommitTimestamps", parse_bool, "false",
        "Store the time in each commit, increasing with the version.")
    in_commit_timestamp_enablement_version: int | None = unset(
        "delta.inCommitTimestampEnablementVersion", parse_integer, None,
        "First version with an in-commit timestamp; managed by the engine.")
    in_commit_timestamp_enablement_timestamp_ms: int | None = unset(
        "delta.inCommitTimestampEnablementTimestamp", parse_integer, None,
        "Time of that version; managed by the engine.")
    enable_deletion_vectors: bool = setting("delta.enableDeletionVectors", parse_bool, "false",
        "Hide deleted rows by deletion vectors instead of rewriting their files.")
    enable_change_data_feed: bool = setting("delta.enableChangeDataFeed", parse_bool, "false",
        "Record changed rows for `readChangeFeed`.")
    enable_row_tracking: bool = setting("delta.enableRowTracking", parse_bool, "false",
        "Give each row a stable id.")
    row_tracking_suspended: bool = setting("delta.rowTrackingSuspended", parse_bool, "false", "Give new rows no ids.")
    row_id_column: str | None = unset("delta.rowTracking.materializedRowIdColumnName", parse_text, None,
        "Column of files with the ids of copied rows; managed by the engine.")
    row_version_column: str | None = unset(
        "delta.rowTracking.materializedRowCommitVersionColumnName", parse_text, None,
        "Column of files with the versions of copied rows; managed by the engine.")
    enable_type_widening: bool = setting("delta.enableTypeWidening", parse_bool, "false",
        "Allow the type of a column to become wider.")
    column_mapping_mode: str = setting("delta.columnMapping.mode", choice("none", "name", "id"), "none",
        "How columns are found in files: by name, by physical name or by id.")
    column_mapping_max_id: int = setting("delta.columnMapping.maxColumnId", parse_integer, "0",
        "Highest id that a column has had; managed by the engine.")
    target_file_size_bytes: int | None = unset("delta.targetFileSize", parse_bytes, None,
        "Size of the files that the writer and OPTIMIZE create.")
    compression_codec: str = setting(
        "delta.parquet.compression.codec",
        choice("uncompressed", "none", "snappy", "gzip", "lz4", "lz4_raw", "zstd"), "snappy",
        "Compression of data files.")
    randomize_file_prefixes: bool = setting("delta.randomizeFilePrefixes", parse_bool, "false",
        "Put data files into folders with random names.")
    symlink_manifest_enabled: bool = setting("delta.compatibility.symlinkFormatManifest.enabled", parse_bool, "false",
        "Publish symlink manifests after each commit.")
    auto_compact: bool | None = unset("delta.autoOptimize.autoCompact", parse_on_or_auto, None,
        "Compact small files after a write.")
    optimize_write: bool | None = unset("delta.autoOptimize.optimizeWrite", parse_bool, None,
        "Shuffle rows before a write, so that partitions get few files.")
    # fmt: on

    @classmethod
    def parse(cls, configuration: Mapping[str, str]) -> TableProperties:
        """Parse the properties in a table's metadata. Names that the engine does not act on are ignored.

        Raises:
            InvalidArgumentError: A value is invalid. The error names it.
        """
        found = [row for key, row in _ROWS.items() if key in configuration]
        return cls(**{row.field: row.parse(configuration[row.key], name=row.key) for row in found})


ICEBERG_COMPAT: Final = "delta.enableIcebergCompatV{}"


def iceberg_compat_version(configuration: Mapping[str, str]) -> int:
    """Return the compatibility version that the properties enable: 1 or 2 (the higher if both), 0 for none."""
    for version in (2, 1):
        if configuration.get(ICEBERG_COMPAT.format(version), "").strip().lower() == "true":
            return version
    return 0


_ROWS: Final = rows_of(TableProperties)
_WITHOUT_FIELD: Final[Mapping[str, Callable[..., Any] | None]] = {
    "delta.autoOptimize": parse_bool,
    "delta.checkpointRetentionDuration": parse_interval_ms,
    "delta.columnMapping.hasDroppedOrRenamed": None,
    "delta.dataSkippingStringPrefixLength": functools.partial(parse_integer, least=0),
    "delta.dropFeatureTruncateHistory.retentionDuration": parse_interval_ms,
    "delta.enableFullRetentionRollback": parse_bool,
    "delta.enableIcebergCompatV1": parse_bool,
    "delta.enableIcebergCompatV2": parse_bool,
    "delta.enableIcebergCompatV3": parse_bool,
    "delta.enableIcebergWriterCompatV1": None,
    "delta.enableMaterializePartitionColumnsFeature": None,
    "delta.enableVariantShredding": parse_bool,
    "delta.minReaderVersion": None,
    "delta.minWriterVersion": None,
    "delta.parquet.format.version": None,
    "delta.randomPrefixLength": parse_positive_int,
    "delta.requireCheckpointProtectionBeforeVersion": None,
    "delta.sampleRetentionDuration": parse_interval_ms,
    "delta.tuneFileSizesForRewrites": None,
    "delta.universalFormat.enabledFormats": None,
    "delta.writePartitionColumnsToParquet": None,
    "pydelta.iceberg.unsupported": choice("refuse", "omit"),
}
"""Other known properties."""
_CHECKED_WHEN_SET: Final[Mapping[str, Callable[..., Any]]] = {
    **{name: check for name, check in _WITHOUT_FIELD.items() if check is not None},
    "delta.dataSkippingNumIndexedCols": functools.partial(parse_integer, least=-1),
}
"""Values that are checked when a property is set, but not when a table that has it is read."""
_KNOWN_PREFIXES: Final = ("delta.constraints.", "delta.feature.", "delta.rowTracking.", "delta.clustering.")
_PROPERTY_NAMES: Final = {name.lower(): name for name in (*_ROWS, *_WITHOUT_FIELD, *policy_names())}
"""Names in lower case -> names in the format's spelling."""
_CHECKED_PREFIXES: Final = ("delta.", POLICY_PREFIX, "pydelta.log.", "pydelta.iceberg.")


def canonical_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Spell table properties as the format does. Known names ignore case.

    Example:
        >>> canonical_properties({"delta.APPENDONLY": "true", "Own": "1"})
        {'delta.appendOnly': 'true', 'Own': '1'}
    """
    return {canonical_property(name): value for name, value in given.items()}


def canonical_property(name: str) -> str:
    """Spell the name of a table property as the format does. An unknown name stays unchanged."""
    return _PROPERTY_NAMES.get(name.lower(), name)


def checked_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a new table in the format's spelling, after checking that users may set them.

    Raises:
        UnknownSettingError, InvalidArgumentError: As in ``check_property_names`` and ``refuse_kept_properties``.
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
    """Refuse unknown names and invalid values before they enter a log.

    Only names that begin with ``delta.``, ``pydelta.maintenance.``, ``pydelta.log.`` or ``pydelta.iceberg.`` are
    checked. Others are the user's.

    Args:
        configuration: Properties to set.
        there: The table's earlier properties, with which the new ones have to be consistent.

    Raises:
        UnknownSettingError: A name is unknown. The error suggests the nearest known name.
        InvalidArgumentError: A value is invalid.
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
                hint=did_you_mean(name, known.values(), otherwise=f"Your own names must not begin with {prefix!r}."),
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
"""Properties that the engine manages, since each describes a single log."""


def refuse_kept_properties(given: Mapping[str, str], there: Mapping[str, str] | None = None) -> None:
    """Refuse properties that only the engine may set.

    Args:
        given: Properties that a user sets.
        there: The table's properties. Setting the existing value again is allowed.

    Raises:
        InvalidArgumentError: A property is managed by the engine.
    """
    for name in KEPT_PROPERTIES:
        if name in given and given[name] != (there or {}).get(name):
            raise InvalidArgumentError(
                f"{name} is managed by the engine and cannot be set.",
                hint="Leave it out.",
                condition=Condition.of("DELTA_CANNOT_MODIFY_TABLE_PROPERTY", prop=name),
            )
