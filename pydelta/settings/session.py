"""Parse the settings of a session and of the environment into frozen values.

Precedence for a setting: call option > session (``spark.pydelta.*``, then the ``spark.databricks.delta.*`` alias)
> table property > environment (``PYDELTA_*``) > default.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydelta.errors import InvalidArgumentError, UnknownSettingError
from pydelta.errors.suggestions import nearest
from pydelta.settings.reference import check_reference_settings, counting_settings
from pydelta.settings.values import (
    choice,
    parse_bool,
    parse_bytes,
    parse_duration_ms,
    parse_integer,
    parse_on_or_auto,
    parse_positive_int,
    parse_ratio,
)

__all__ = ["Settings"]

_JOBS_IN_DRIVER: Final = re.compile(r"local(\[[^\]]*\])?$")
_BYTES_BESIDE_NO_CLUSTER: Final = 256 * 1024 * 1024
"""Spark's jobs have the same cores as this process there, so it gives nothing away that a cluster would do sooner."""


def _or_none(parse: Callable[..., int]) -> Callable[..., int]:
    """A parser that takes what ``parse`` takes, and 0."""
    return lambda text, *, name: 0 if text.strip() == "0" else parse(text, name=name)


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
    "autoCompact.enabled": ("auto_compact", parse_on_or_auto),
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
    **{key: item.ours for key, item in counting_settings().items() if item.ours and item.ours in _SESSION_PARSERS},
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
        checkpoint_behind_files: Number of live files from which a checkpoint is written in the background.
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
                    meant = nearest(key, _SESSION_PARSERS, cutoff=0.4)
                    raise UnknownSettingError(
                        f"Unknown setting {full!r}.",
                        hint=f"Did you mean {_SESSION_PREFIX + meant!r}?"
                        if meant
                        else f"The settings are: {', '.join(_SESSION_PREFIX + name for name in _SESSION_PARSERS)}.",
                    )
                name, parser = _SESSION_PARSERS[key]
                values[name] = parser(text, name=full)
        return cls(**values, default_properties=defaults)
