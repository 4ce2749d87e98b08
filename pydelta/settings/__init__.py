"""Parse table properties and session settings into frozen values.

Precedence for a setting: call option > session (``spark.pydelta.*``, then the ``spark.databricks.delta.*`` alias)
> table property > environment (``PYDELTA_*``) > default.
"""

from __future__ import annotations

import difflib
import functools
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydelta.errors import InvalidArgumentError, UnknownSettingError
from pydelta.errors.conditions import Condition
from pydelta.settings.maintenance import POLICY_PREFIX, MaintenancePolicy, policy_names
from pydelta.settings.reference import check_reference_settings, reference_settings
from pydelta.settings.values import (
    DAY_MS,
    choice,
    parse_bool,
    parse_bytes,
    parse_columns,
    parse_duration_ms,
    parse_integer,
    parse_interval_ms,
    parse_positive_int,
    parse_ratio,
)

__all__ = ["Settings", "TableProperties", "parse_bool", "parse_bytes", "parse_duration_ms", "parse_interval_ms"]


_JOBS_IN_DRIVER: Final = re.compile(r"local(\[[^\]]*\])?$")
_BYTES_BESIDE_NO_CLUSTER: Final = 256 * 1024 * 1024
"""Spark's jobs have the same cores as this process there, so it gives nothing away that a cluster would do sooner."""


def _or_none(parse: Callable[..., int]) -> Callable[..., int]:
    """A parser that takes what ``parse`` takes, and 0."""
    return lambda text, *, name: 0 if text.strip() == "0" else parse(text, name=name)


def _on_or_auto(text: str, *, name: str) -> bool:
    """``true`` or ``false``; ``auto`` and ``legacy``, which other engines know, count as true."""
    return text.strip().lower() in ("auto", "legacy") or parse_bool(text, name=name)


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
    "delta.autoOptimize.autoCompact": ("auto_compact", _on_or_auto),
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
            close = difflib.get_close_matches(lower, known, n=1)
            raise UnknownSettingError(
                f"Unknown table property {name!r}.",
                hint=f"Did you mean {known[close[0]]!r}?"
                if close
                else f"Names of your own must not begin with {prefix!r}.",
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


_SESSION_PREFIX: Final = "spark.pydelta."
_DEFAULTS_PREFIXES: Final = ("spark.databricks.delta.properties.defaults.", "spark.pydelta.properties.defaults.")

_SESSION_PARSERS: Final[Mapping[str, tuple[str, Callable[..., Any]]]] = {
    "enabled": ("enabled", parse_bool),
    "log.maxSnapshotChain": ("max_snapshot_chain", parse_positive_int),
    "log.maxFilesInMemory": ("max_files_in_memory", _or_none(parse_positive_int)),
    "change.maxRetries": ("change_max_retries", _or_none(parse_positive_int)),
    "change.giveWay": ("change_give_way_ms", _or_none(parse_duration_ms)),
    "change.retryOn": ("change_retry_on", choice("rearranged", "any")),
    "optimize.giveWay": ("optimize_give_way_ms", _or_none(parse_duration_ms)),
    "commit.maxAttempts": ("commit_max_attempts", parse_positive_int),
    "commit.backoff": ("commit_backoff_ms", parse_positive_int),
    "storage.probe": ("probe_store", parse_bool),
    "storage.hadoopCheck": ("hadoop_check", parse_bool),
    "read.metadataQuery": ("metadata_query", parse_bool),
    "read.pinned": ("read_pinned", parse_bool),
    "stream.schemaLocationAnywhere": ("stream_schema_anywhere", parse_bool),
    "schema.autoMerge": ("schema_auto_merge", parse_bool),
    "write.partitionOverwriteMode": ("partition_overwrite_mode", choice("static", "dynamic")),
    "write.targetFileSize": ("target_file_size_bytes", parse_bytes),
    "write.maxOpenFiles": ("max_open_files", parse_positive_int),
    "write.optimize": ("optimize_write", parse_bool),
    "write.optimizeBinSize": ("optimize_write_bin_bytes", parse_bytes),
    "write.replaceWhereCheck": ("replace_where_check", parse_bool),
    "write.replaceWhereDataColumns": ("replace_where_data_columns", parse_bool),
    "write.txnAppId": ("txn_app_id", lambda text, *, name: text),
    "write.txnVersion": ("txn_version", parse_integer),
    "write.txnVersionAutoReset": ("txn_version_auto_reset", parse_bool),
    "optimize.maxFileSize": ("optimize_max_file_bytes", parse_bytes),
    "optimize.minFileSize": ("optimize_min_file_bytes", parse_bytes),
    "optimize.maxDeletedRowsRatio": ("optimize_max_deleted_ratio", parse_ratio),
    "autoCompact.enabled": ("auto_compact", _on_or_auto),
    "autoCompact.maxFileSize": ("auto_compact_max_file_bytes", parse_bytes),
    "autoCompact.minFileSize": ("auto_compact_min_file_bytes", parse_bytes),
    "autoCompact.minNumFiles": ("auto_compact_min_files", _or_none(parse_positive_int)),
    "vacuum.retentionCheck": ("retention_check", parse_bool),
    "restore.vacuumCheck": ("vacuum_check", parse_bool),
    "local.maxBytes": ("local_max_bytes", _or_none(parse_bytes)),
    "local.optimizeMaxBytes": ("local_optimize_max_bytes", _or_none(parse_bytes)),
    "commit.userMetadata": ("user_metadata", lambda text, *, name: text),
    "checkpoint.behindFiles": ("checkpoint_behind_files", parse_positive_int),
    "hooks.timeout": ("hooks_timeout_ms", parse_duration_ms),
    "sync.name": ("sync_name", lambda text, *, name: text),
    "sync.metastore": ("sync_metastore", lambda text, *, name: text),
    "sync.partitionValueLength": ("sync_partition_value_length", parse_integer),
}
_FREE_PREFIXES: Final = ("logStore.",)
_ALIASES: Final[Mapping[str, str]] = {
    "spark.hadoop.hive.metastore.uris": "sync.metastore",
    "spark.sql.sources.partitionOverwriteMode": "write.partitionOverwriteMode",
    **{key: item.ours for key, item in reference_settings().items() if item.ours and item.ours in _SESSION_PARSERS},
}
_IN_MEBIBYTES: Final = frozenset({"spark.databricks.delta.optimizeWrite.binSize"})
"""Aliases whose numbers without a unit are no bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Session-level settings.

    Args:
        enabled: Whether a session that a builder makes is enabled by itself; see ``spark.session.wishes``.
        max_snapshot_chain: Commits applied on top of each other before a snapshot is rebuilt from a checkpoint.
        max_files_in_memory: Of a checkpoint with more files not all are held in memory: what matches a condition is
            looked for part by part.
        change_max_retries: How often a DELETE, UPDATE or MERGE is run again by itself after a conflict.
        change_retry_on: Which conflicts these are: ``any`` over rows, or ``rearranged``, where the winner only moved
            rows to other files.
        change_give_way_ms: How long a change that begins waits for those that are run again.
        optimize_give_way_ms: How long OPTIMIZE waits for changes that are run again.
        commit_max_attempts: Races a commit may lose before it gives up.
        commit_backoff_ms: Upper end of the first jittered pause between attempts.
        probe_store: Race-test put-if-absent at a process's first commit to a bucket.
        hadoop_check: Refuse a table in a store that Spark itself could not read, before anything is written.
        metadata_query: Answer ``count(*)``, ``min`` and ``max`` from statistics where those are exact.
        read_pinned: Keep a DataFrame at the version that was the newest when it was made.
        stream_schema_anywhere: Let a stream keep its schemas outside of its checkpoint.
        target_file_size_bytes: Size at which the writer starts a new file.
        max_open_files: Parquet writers that one task keeps open at once.
        optimize_write: Shuffle rows before a write so that each partition gets few files; None: as the table says.
        optimize_write_bin_bytes: Bytes that such a shuffle brings together for one task.
        replace_where_check: Refuse rows of a ``replaceWhere`` that do not satisfy its condition.
        replace_where_data_columns: Let ``replaceWhere`` name columns that do not partition the table.
        txn_app_id: Application that this session's changes of rows are committed for, each ``txn_version`` once.
        txn_version: The application's version; belongs to ``txn_app_id``.
        txn_version_auto_reset: Unset the version in the session after each such commit.
        optimize_max_file_bytes: Target of OPTIMIZE; None: the table's ``delta.targetFileSize``, or 1 GiB.
        optimize_min_file_bytes: OPTIMIZE leaves files of this size and larger alone; None: the target.
        optimize_max_deleted_ratio: A file of which a larger part is deleted is rewritten by OPTIMIZE.
        auto_compact: Compact after a write; None: as the table says.
        auto_compact_max_file_bytes: Target of that.
        auto_compact_min_file_bytes: It leaves files of this size and larger alone; None: half its target.
        auto_compact_min_files: Small files that a partition must have for it.
        retention_check: VACUUM refuses a retention below the table's.
        vacuum_check: RESTORE refuses what a VACUUM that is under way may be deleting.
        local_max_bytes: Bytes of files that DELETE and UPDATE read or rewrite in this process, without a Spark job;
            0 for none; 256 MiB where the session's jobs run in the driver's process. See ``docs/guides/settings.md``.
        local_optimize_max_bytes: The same for OPTIMIZE and REORG; of no account where the former is 0.
        user_metadata: Goes into the history with each commit.
        default_properties: ``delta.*`` properties that a new table gets.
        checkpoint_behind_files: From so many live files on, a checkpoint is written behind the commit that brings it.
        hooks_timeout_ms: What runs after a commit may wait so long for others, each hook in all.
        sync_name: Database of a table's external twin, from ``{database}``, that of its own entry.
        sync_metastore: Address of the metastore that tables are synced to after a commit.
        sync_partition_value_length: Characters of a partition's value that the metastore's database holds.
    """

    enabled: bool | None = None
    max_snapshot_chain: int = 50
    max_files_in_memory: int = 3_000_000
    change_max_retries: int = 10
    change_retry_on: str = "any"
    change_give_way_ms: int = 5_000
    optimize_give_way_ms: int = 60_000
    commit_max_attempts: int = 200
    commit_backoff_ms: int = 20
    probe_store: bool = True
    hadoop_check: bool = True
    metadata_query: bool = True
    read_pinned: bool = False
    stream_schema_anywhere: bool = False
    schema_auto_merge: bool = False
    partition_overwrite_mode: str = "static"
    target_file_size_bytes: int = 128 * 1024 * 1024
    max_open_files: int = 64
    optimize_write: bool | None = None
    optimize_write_bin_bytes: int = 512 * 1024 * 1024
    replace_where_check: bool = True
    replace_where_data_columns: bool = True
    # Not shown, since logs are shared by what settings show, and a version may be another for each command.
    txn_app_id: str | None = field(default=None, repr=False)
    txn_version: int | None = field(default=None, repr=False)
    txn_version_auto_reset: bool = field(default=False, repr=False)
    optimize_max_file_bytes: int | None = None
    optimize_min_file_bytes: int | None = None
    optimize_max_deleted_ratio: float = 0.05
    auto_compact: bool | None = None
    auto_compact_max_file_bytes: int = 128 * 1024 * 1024
    auto_compact_min_file_bytes: int | None = None
    auto_compact_min_files: int = 50
    retention_check: bool = True
    vacuum_check: bool = True
    local_max_bytes: int = 64 * 1024 * 1024
    local_optimize_max_bytes: int = 256 * 1024 * 1024
    user_metadata: str | None = None
    checkpoint_behind_files: int = 100_000
    hooks_timeout_ms: int = 10_000
    sync_name: str = "{database}_symlink"
    sync_metastore: str | None = None
    sync_partition_value_length: int = 255
    default_properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def transaction(self) -> tuple[str | None, int | None]:
        """The application and its version that the session commits for; both None where it names none.

        Raises:
            InvalidArgumentError: Just one of the two is set.
        """
        if (self.txn_app_id is None) != (self.txn_version is None):
            raise InvalidArgumentError(
                "The settings write.txnAppId and write.txnVersion belong together, and only one of them is set.",
                hint="Set both or neither of spark.databricks.delta.write.txnAppId and "
                "spark.databricks.delta.write.txnVersion (or the same under spark.pydelta.write).",
            )
        if self.txn_version is not None and self.txn_version < 0:
            raise InvalidArgumentError(
                f"The setting write.txnVersion is {self.txn_version}, but it must be a non-negative integer.",
                hint="Count the writes of the application from 0.",
            )
        return self.txn_app_id, self.txn_version

    @classmethod
    def resolve(cls, session: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None) -> Settings:
        """Read the settings of a Spark session (all its keys may be given) and of the environment.

        Raises:
            UnknownSettingError: A ``spark.pydelta.*`` key that nothing reads, with a suggestion.
            InvalidArgumentError: A value that cannot be right, named; a setting of the reference engine whose value
                is not supported and would change what is written.
        """
        session = session or {}
        check_reference_settings(session)
        env = os.environ if env is None else env
        values: dict[str, Any] = {}
        if _JOBS_IN_DRIVER.match(session.get("spark.master", "")):
            values["local_max_bytes"] = _BYTES_BESIDE_NO_CLUSTER
        for key, (name, parser) in _SESSION_PARSERS.items():
            variable = "PYDELTA_" + re.sub(r"(?<=[a-z])(?=[A-Z])|\.", "_", key).upper()
            if variable in env:
                values[name] = parser(env[variable], name=variable)
        for alias, key in _ALIASES.items():
            if alias in session:
                name, parser = _SESSION_PARSERS[key]
                text = session[alias]
                unit = "m" if alias in _IN_MEBIBYTES and text.strip().isdigit() else ""
                values[name] = parser(text.strip() + unit if unit else text, name=alias)
        defaults: dict[str, str] = {}
        for full, text in session.items():
            prefix = next((p for p in _DEFAULTS_PREFIXES if full.startswith(p)), None)
            if prefix is not None:
                defaults["delta." + full.removeprefix(prefix)] = text
            elif full.startswith(_SESSION_PREFIX):
                key = full.removeprefix(_SESSION_PREFIX)
                if key.startswith(_FREE_PREFIXES):
                    continue
                if key not in _SESSION_PARSERS:
                    close = difflib.get_close_matches(key, _SESSION_PARSERS, n=1, cutoff=0.4)
                    raise UnknownSettingError(
                        f"Unknown setting {full!r}.",
                        hint=f"Did you mean {_SESSION_PREFIX + close[0]!r}?"
                        if close
                        else f"The settings are: {', '.join(_SESSION_PREFIX + name for name in _SESSION_PARSERS)}.",
                    )
                name, parser = _SESSION_PARSERS[key]
                values[name] = parser(text, name=full)
        return cls(**values, default_properties=defaults)
