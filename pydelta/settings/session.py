"""Parse the settings of a session and of the environment into frozen values.

Precedence for a setting: call option > session (``spark.pydelta.*``, then the ``spark.databricks.delta.*`` alias)
> table property > environment (``PYDELTA_*``) > default.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydelta.errors import InvalidArgumentError, UnknownSettingError
from pydelta.errors.suggestions import nearest
from pydelta.settings.refused import DEFAULTS_PREFIX, PREFIX, ReferenceSetting, refuse_reference_settings
from pydelta.settings.row import rows_of, setting, unset
from pydelta.settings.values import (
    choice,
    parse_bool,
    parse_bytes,
    parse_duration_ms,
    parse_integer,
    parse_on_or_auto,
    parse_positive_int,
    parse_ratio,
    parse_text,
)

__all__ = ["ALIASES", "Settings", "honoured_settings"]

_JOBS_IN_DRIVER: Final = re.compile(r"local(\[[^\]]*\])?$")
_BYTES_BESIDE_NO_CLUSTER: Final = 256 * 1024 * 1024
"""With a master ``local[…]``, Spark's jobs use the cores of this process, so that a job is not faster."""
_NO_LIMIT: Final = 2**63 - 1
_SESSION_PREFIX: Final = "spark.pydelta."
_DEFAULTS_PREFIXES: Final = (DEFAULTS_PREFIX, "spark.pydelta.properties.defaults.")
_FREE_PREFIXES: Final = ("logStore.",)
_IN_MEBIBYTES: Final = frozenset({PREFIX + "optimizeWrite.binSize"})
"""Aliases for which a number without a unit means mebibytes."""


def _or_zero(parse: Callable[..., int]) -> Callable[..., int]:
    """Return a parser that accepts 0 in addition to the values of ``parse``."""
    return lambda text, *, name: 0 if text.strip() == "0" else parse(text, name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Session-level settings, with a row each: name, parser, default, meaning, and an alias if there is one."""

    # fmt: off
    enabled: bool | None = unset("enabled", parse_bool, None,
        "Whether pydelta is enabled in new sessions automatically.")
    max_snapshot_chain: int = setting("log.maxSnapshotChain", parse_positive_int, "50",
        "Commits applied on top of each other before a snapshot is rebuilt from a checkpoint.",
        alias="maxSnapshotLineageLength=50")
    max_files_in_memory: int = setting("log.maxFilesInMemory", _or_zero(parse_positive_int), "3000000",
        "Files of a checkpoint that are held in memory; a larger checkpoint is searched part by part.")
    change_max_retries: int = setting("change.maxRetries", _or_zero(parse_positive_int), "10",
        "How often a DELETE, UPDATE or MERGE is retried automatically after a conflict.")
    change_retry_on: str = setting("change.retryOn", choice("rearranged", "any"), "any",
        "Conflicts after which it is retried: `any`, or `rearranged` if the winner only moved rows.")
    change_give_way_ms: int = setting("change.giveWay", _or_zero(parse_duration_ms), "5s",
        "How long a new change waits for changes that are being retried.")
    optimize_give_way_ms: int = setting("optimize.giveWay", _or_zero(parse_duration_ms), "60s",
        "How long OPTIMIZE waits for changes that are being retried.")
    commit_max_attempts: int = setting("commit.maxAttempts", parse_positive_int, "200",
        "Races a commit may lose before it gives up.", alias="maxCommitAttempts=10000000")
    commit_backoff_ms: int = setting("commit.backoff", parse_positive_int, "20",
        "Upper end of the first jittered pause between attempts.")
    probe_store: bool = setting("storage.probe", parse_bool, "true",
        "Race-test put-if-absent at a process's first commit to a bucket.")
    hadoop_check: bool = setting("storage.hadoopCheck", parse_bool, "true",
        "Refuse to write a table to a store that Spark itself could not read.")
    metadata_query: bool = setting("read.metadataQuery", parse_bool, "true",
        "Answer count(*), min and max from statistics if these are exact.",
        alias="optimizeMetadataQuery.enabled=true")
    read_pinned: bool = setting("read.pinned", parse_bool, "false",
        "Keep a DataFrame at the version that was the newest when it was created.")
    count_rows: bool = setting("read.countRows", parse_bool, "true",
        "Count rows faster than Spark's reader in files with deletion vectors.")
    stream_schema_anywhere: bool = setting("stream.schemaLocationAnywhere", parse_bool, "false",
        "Let a stream keep its schemas outside of its checkpoint.",
        alias="streaming.allowSchemaLocationOutsideCheckpointLocation=false")
    schema_auto_merge: bool = setting("schema.autoMerge", parse_bool, "false",
        "Add new columns of the data to the table.", alias="schema.autoMerge.enabled=false")
    partition_overwrite_mode: str = setting("write.partitionOverwriteMode", choice("static", "dynamic"), "static",
        "`dynamic`: an overwrite replaces the partitions that the data has, not the whole table.",
        alias="spark.sql.sources.partitionOverwriteMode")
    target_file_size_bytes: int = setting("write.targetFileSize", parse_bytes, "128mb",
        "Size at which the writer starts a new file.")
    max_open_files: int = setting("write.maxOpenFiles", parse_positive_int, "64",
        "Parquet writers that one task keeps open at once.")
    optimize_write: bool | None = unset("write.optimize", parse_bool, None,
        "Shuffle rows before a write, so that partitions get few files; unset: as the table's property.",
        alias="optimizeWrite.enabled")
    optimize_write_bin_bytes: int = setting("write.optimizeBinSize", parse_bytes, "512mb",
        "Bytes that this shuffle collects for one task.", alias="optimizeWrite.binSize=536870912b")
    replace_where_check: bool = setting("write.replaceWhereCheck", parse_bool, "true",
        "Refuse rows that do not satisfy the condition of their replaceWhere.",
        alias="replaceWhere.constraintCheck.enabled=true")
    replace_where_data_columns: bool = setting("write.replaceWhereDataColumns", parse_bool, "true",
        "Let replaceWhere name columns that do not partition the table.", alias="replaceWhere.dataColumns.enabled=true")
    # They are not in the repr: settings with the same repr share a log, and the version may change with each command.
    txn_app_id: str | None = unset("write.txnAppId", parse_text, None,
        "Application id for commits that change rows; each write.txnVersion is committed once.",
        alias="write.txnAppId", shown=False)
    txn_version: int | None = unset("write.txnVersion", parse_integer, None,
        "The application's version; belongs to write.txnAppId.", alias="write.txnVersion", shown=False)
    txn_version_auto_reset: bool = setting("write.txnVersionAutoReset", parse_bool, "false",
        "Unset write.txnVersion in the session after each commit that used it.",
        alias="write.txnVersion.autoReset.enabled=false", shown=False)
    optimize_max_file_bytes: int | None = unset("optimize.maxFileSize", parse_bytes, None,
        "Target of OPTIMIZE; unset: the table's delta.targetFileSize, or 1 GiB.",
        alias="optimize.maxFileSize=1073741824")
    optimize_min_file_bytes: int | None = unset("optimize.minFileSize", parse_bytes, None,
        "OPTIMIZE leaves files of this size and larger alone; unset: its target.",
        alias="optimize.minFileSize=1073741824")
    optimize_max_deleted_ratio: float = setting("optimize.maxDeletedRowsRatio", parse_ratio, "0.05",
        "Share of deleted rows above which OPTIMIZE rewrites a file.", alias="optimize.maxDeletedRowsRatio=0.05")
    auto_compact: bool | None = unset("autoCompact.enabled", parse_on_or_auto, None,
        "Compact small files after a write; unset: as the table's property.", alias="autoCompact.enabled")
    auto_compact_max_file_bytes: int = setting("autoCompact.maxFileSize", parse_bytes, "128mb",
        "Size of the files that auto compaction makes.", alias="autoCompact.maxFileSize=134217728")
    auto_compact_min_file_bytes: int | None = unset("autoCompact.minFileSize", parse_bytes, None,
        "Auto compaction skips files from this size on; unset: half its target.", alias="autoCompact.minFileSize")
    auto_compact_min_files: int = setting("autoCompact.minNumFiles", _or_zero(parse_positive_int), "50",
        "Small files that a partition needs for auto compaction.", alias="autoCompact.minNumFiles=50")
    retention_check: bool = setting("vacuum.retentionCheck", parse_bool, "true",
        "VACUUM refuses a retention below the table's.", alias="retentionDurationCheck.enabled=true")
    vacuum_check: bool = setting("restore.vacuumCheck", parse_bool, "true",
        "RESTORE refuses versions whose files a running VACUUM may be deleting.")
    local_max_bytes: int = setting("local.maxBytes", _or_zero(parse_bytes), "64mb",
        "Bytes of a MERGE's source and of files that a change reads in this process, without a Spark job; 0 for none.")
    local_source_max_bytes: int = setting("local.sourceMaxBytes", _or_zero(parse_bytes), "64mb",
        "Bytes of rows that a MERGE without a session holds in memory; more are paired through temporary files.")
    local_changes_max_bytes: int | None = unset("local.changesMaxBytes", _or_zero(parse_bytes), None,
        "The limit for the files of DELETE, UPDATE and MERGE, of which few are held; unset: local.maxBytes if that is "
        "set, else none with a master local[…].")
    local_optimize_max_bytes: int = setting("local.optimizeMaxBytes", _or_zero(parse_bytes), "256mb",
        "The same limit for OPTIMIZE and REORG; ignored if local.maxBytes is 0.")
    user_metadata: str | None = unset("commit.userMetadata", parse_text, None,
        "Text that is stored in the history with each commit.", alias="commitInfo.userMetadata")
    checkpoint_behind_files: int = setting("checkpoint.behindFiles", parse_positive_int, "100000",
        "Number of live files from which a checkpoint is written in the background.")
    hooks_timeout_ms: int = setting("hooks.timeout", parse_duration_ms, "10s",
        "How long each hook after a commit may wait for other processes and services.")
    sync_name: str = setting("sync.name", parse_text, "{database}_symlink",
        "Database of a table's external twin; {database} stands for its native entry's database.")
    sync_iceberg_name: str = setting("sync.icebergName", parse_text, "{database}_iceberg",
        "Database of a table's Iceberg entry; {database} stands for its native entry's database.")
    sync_metastore: str | None = unset("sync.metastore", parse_text, None,
        "Address of the metastore that tables are synced to after a commit.", alias="spark.hadoop.hive.metastore.uris")
    sync_partition_value_length: int = setting("sync.partitionValueLength", parse_integer, "255",
        "Maximum length of a partition's value in the metastore's database, in characters.")
    # fmt: on
    default_properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def transaction(self) -> tuple[str | None, int | None]:
        """The application and its version that the session commits under, or (None, None) if it names none.

        Raises:
            InvalidArgumentError: Only one of the two is set, or the version is negative.
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

    @property
    def changes_limit(self) -> int:
        """Bytes of files that a DELETE, an UPDATE or a MERGE reads or rewrites in this process."""
        return self.local_max_bytes if self.local_changes_max_bytes is None else self.local_changes_max_bytes

    @classmethod
    def resolve(cls, session: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None) -> Settings:
        """Read the settings of a Spark session (other keys are ignored) and of the environment.

        Raises:
            UnknownSettingError: A ``spark.pydelta.*`` key is not known. The error has a suggestion.
            InvalidArgumentError: A value is invalid and named in the error; or a setting of the reference engine has an
                unsupported value that would change the written data.
        """
        session = session or {}
        if session:
            refuse_reference_settings(session, honoured_settings())
        env = os.environ if env is None else env
        values: dict[str, Any] = {}
        for key, row in _ROWS.items():
            variable = "PYDELTA_" + re.sub(r"(?<=[a-z])(?=[A-Z])|\.", "_", key).upper()
            if variable in env:
                values[row.field] = row.parse(env[variable], name=variable)
        for alias, row in ALIASES.items():
            if alias in session:
                text = session[alias]
                unit = "m" if alias in _IN_MEBIBYTES and text.strip().isdigit() else ""
                values[row.field] = row.parse(text.strip() + unit if unit else text, name=alias)
        defaults: dict[str, str] = {}
        for full, text in session.items():
            prefix = next((p for p in _DEFAULTS_PREFIXES if full.startswith(p)), None)
            if prefix is not None:
                defaults["delta." + full.removeprefix(prefix)] = text
            elif full.startswith(_SESSION_PREFIX):
                key = full.removeprefix(_SESSION_PREFIX)
                if key.startswith(_FREE_PREFIXES):
                    continue
                if key not in _ROWS:
                    meant = nearest(key, _ROWS, cutoff=0.4)
                    raise UnknownSettingError(
                        f"Unknown setting {full!r}.",
                        hint=f"Did you mean {_SESSION_PREFIX + meant!r}?"
                        if meant
                        else f"The settings are: {', '.join(_SESSION_PREFIX + name for name in _ROWS)}.",
                    )
                values[_ROWS[key].field] = _ROWS[key].parse(text, name=full)
        if _JOBS_IN_DRIVER.match(session.get("spark.master", "")) and "local_max_bytes" not in values:
            values = {"local_changes_max_bytes": _NO_LIMIT, "local_max_bytes": _BYTES_BESIDE_NO_CLUSTER, **values}
        return cls(**values, default_properties=defaults)


_ROWS: Final = rows_of(Settings)


@functools.cache
def honoured_settings() -> Mapping[str, ReferenceSetting]:
    """Return the settings of the reference engine with the meaning of one of ours, by their full names."""
    named = [(*row.alias.partition("=")[::2], row) for row in _ROWS.values() if not row.alias.startswith("spark.")]
    found = [
        ReferenceSetting(key=PREFIX + name, meaning=row.meaning, ours=row.key, default=default or None)
        for name, default, row in named
        if name
    ]
    for which, default in (("Reader", "1"), ("Writer", "2")):
        ours = f"properties.defaults.min{which}Version"
        meaning = f"{which} version of a new table."
        found.append(ReferenceSetting(key=PREFIX + ours, meaning=meaning, ours=ours, default=default))
    return {item.key: item for item in sorted(found, key=lambda item: item.key)}


ALIASES: Final = {
    **{row.alias: row for row in _ROWS.values() if row.alias.startswith("spark.")},
    **{key: _ROWS[item.ours] for key, item in honoured_settings().items() if item.ours and item.ours in _ROWS},
}
"""Full names of aliases, from Spark and from the reference engine."""
