"""Check and freeze the options of a write as a user gives them. Pure."""

from __future__ import annotations

import enum
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydelta.errors import InvalidArgumentError, UnsupportedFeatureError
from pydelta.errors.conditions import Condition
from pydelta.errors.suggestions import nearest
from pydelta.settings import Settings, checked_properties, parse_bool

__all__ = ["HONOURED", "PASSED_OVER", "StatementCondition", "WriteMode", "WriteOptions", "guide_table"]


class WriteMode(enum.Enum):
    """The behaviour of a write when the table exists or not. The values appear in the history."""

    APPEND = "Append"
    OVERWRITE = "Overwrite"
    ERROR_IF_EXISTS = "ErrorIfExists"
    IGNORE = "Ignore"
    CREATE = "Create"
    """Refuse an existing table; the history shows CREATE TABLE AS SELECT."""
    REPLACE = "Replace"
    """Set a new schema, partitioning and properties; refuse a missing table."""
    CREATE_OR_REPLACE = "CreateOrReplace"

    @classmethod
    def parse(cls, text: str) -> WriteMode:
        """Parse Spark's mode names, ignoring case.

        Raises:
            InvalidArgumentError: The mode is unknown.
        """
        names = {
            "append": cls.APPEND,
            "overwrite": cls.OVERWRITE,
            "error": cls.ERROR_IF_EXISTS,
            "errorifexists": cls.ERROR_IF_EXISTS,
            "default": cls.ERROR_IF_EXISTS,
            "ignore": cls.IGNORE,
        }
        mode = names.get(text.strip().lower())
        if mode is None:
            raise InvalidArgumentError(
                f"There is no write mode {text!r}.",
                hint="Use append, overwrite, errorifexists or ignore.",
                condition=Condition.of("INVALID_SAVE_MODE", mode=text),
            )
        return mode

    @property
    def overwrites(self) -> bool:
        """Whether it removes all or part of an existing table's rows."""
        return self is WriteMode.OVERWRITE or self.replaces_table

    @property
    def replaces_table(self) -> bool:
        """Whether an existing table gets a new definition."""
        return self in (WriteMode.REPLACE, WriteMode.CREATE_OR_REPLACE)


HONOURED: Final[Mapping[str, str]] = {
    "clusterBy": "columns that OPTIMIZE orders rows by, if the write creates or overwrites the table; "
    "an append may repeat them",
    "compression": "codec of the data files; overrides the table's; `parquet.compression` is the same",
    "dataChange": "false: the write only moves existing rows to other files",
    "maxRecordsPerFile": "rows at which a file is closed",
    "mergeSchema": "add the data's new columns to the table",
    "optimizeWrite": "shuffle the rows first, so that each partition gets few files",
    "overwriteSchema": "let an overwrite replace schema and partitioning",
    "parquet.compression": "see `compression`, which takes precedence",
    "partitionOverwriteMode": "dynamic: an overwrite replaces only the partitions that the data has rows for",
    "path": "location of the table",
    "replaceOn": "an overwrite replaces the rows for which this condition is true with a row of the data",
    "replaceUsing": "an overwrite replaces the rows whose values in these columns match a row of the data",
    "replaceWhere": "an overwrite replaces the rows of this condition; an append names it in the history",
    "spark.sql.parquet.outputTimestampType": "the form of times: TIMESTAMP_MICROS by default, TIMESTAMP_MILLIS, INT96",
    "targetAlias": "the table's alias in `replaceOn`",
    "targetFileSize": "size at which a file is closed",
    "txnAppId": "with `txnVersion`: a version of an application is written once",
    "txnVersion": "see `txnAppId`",
    "userMetadata": "text for the history",
}
"""The options of a writer, and their meanings."""

PASSED_OVER: Final[Mapping[str, str]] = {
    "checkpointLocation": "an option of the stream, not of its batches",
    "queryName": "an option of the stream, not of its batches",
    "serialization.format": "added by Spark's catalog",
    "parquet.*": "tuning of another Parquet writer, such as `parquet.block.size`; files are laid out by size instead",
}
"""Options that are accepted but have no effect here; ``.*`` stands for any ending."""

_OF_READERS: Final = (
    "allowSourceColumnDrop",
    "allowSourceColumnRename",
    "allowSourceColumnTypeChange",
    "endingTimestamp",
    "endingVersion",
    "excludeRegex",
    "failOnDataLoss",
    "ignoreChanges",
    "ignoreDeletes",
    "ignoreFileDeletion",
    "maxBytesPerTrigger",
    "maxFilesPerTrigger",
    "readChangeData",
    "readChangeFeed",
    "schemaLocation",
    "schemaTrackingLocation",
    "skipChangeCommits",
    "startingTimestamp",
    "startingVersion",
    "streamingSourceTrackingId",
    "timestampAsOf",
    "versionAsOf",
)
_ENCRYPTION_PREFIXES: Final = ("parquet.encryption.", "parquet.crypto.")
_NEAR: Final = 0.8
"""The ``difflib`` similarity from which an unknown name counts as misspelled; libraries may pass other options."""
_REPLACING: Final = frozenset({"replaceWhere", "replaceUsing", "replaceOn"})
_STORAGE_PREFIXES: Final = ("fs.", "dfs.", "spark.hadoop.", "hadoop.", "google.cloud.")
_TIMESTAMP_TYPES: Final = ("INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementCondition:
    """A condition that was parsed with its statement, and is not parsed again.

    Args:
        text: For the history.
        native: An expression of the engine.
        by_column: It was given as a Column, which has no text before it is bound.
    """

    text: str
    native: Any
    by_column: bool = False

    def __str__(self) -> str:
        return self.text

    @classmethod
    def as_given(cls, condition: str | StatementCondition) -> Any:
        """Return the SQL text of an option, or the expression of a statement, for the engine to bind."""
        return condition.native if isinstance(condition, cls) else condition


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a write.

    Args:
        mode: What to do with an existing table.
        partition_by: Partition columns, or None if not given.
        cluster_by: Columns that OPTIMIZE orders rows by, or None if not given.
        merge_schema: Add the data's new columns to the table.
        overwrite_schema: Let an overwrite replace schema and partitioning.
        replace_where: Condition whose rows are replaced, or None.
        replace_where_check: Whether every new row must satisfy it.
        replace_using: Columns; the rows that have some data row's values in these columns are replaced.
        replace_on: A condition; the rows for which it is true with some row of the data are replaced.
        target_alias: The table's name in that condition.
        dynamic: Replace only the partitions that the data has rows for.
        txn_app_id, txn_version: Identify the write; a version that already landed is skipped.
        user_metadata: Free text for the history.
        data_change: False when the write only rearranges rows.
        max_records_per_file: 0 for no limit.
        optimize_write: Shuffle rows first, so that each partition gets few files; None if not given.
        compression: Codec, or None for the table's.
        timestamp_type: How times are stored in files, or None for the session's.
        properties: ``delta.*`` and other table properties for a table that this write creates.
        storage: Storage settings given with this write; they may hold secrets.
        description: The comment of a table that this write creates.
        managed: Whether the files of a table that this write creates belong to the catalog; for the history.
        by_save_as_table: The write is a ``saveAsTable``, which defines the table, new or not; for the history.
    """

    mode: WriteMode
    partition_by: tuple[str, ...] | None = None
    cluster_by: tuple[str, ...] | None = None
    merge_schema: bool = False
    overwrite_schema: bool = False
    replace_where: str | StatementCondition | None = None
    replace_where_check: bool = True
    replace_using: tuple[str, ...] | None = None
    replace_on: str | StatementCondition | None = None
    target_alias: str | None = None
    dynamic: bool = False
    txn_app_id: str | None = None
    txn_version: int | None = None
    user_metadata: str | None = None
    data_change: bool = True
    max_records_per_file: int = 0
    target_file_size: str | None = None
    optimize_write: bool | None = None
    compression: str | None = None
    timestamp_type: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    description: str | None = None
    managed: bool = False
    by_save_as_table: bool = False

    @classmethod
    def parse(
        cls,
        options: Mapping[str, str],
        *,
        mode: WriteMode,
        settings: Settings,
        partition_by: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
    ) -> WriteOptions:
        """Parse a writer's options; names ignore case, as in Spark.

        Args:
            options: As given to the writer.
            mode: The write mode.
            settings: The session's settings, used for options that are not given.
            partition_by: Partition columns, or None.
            properties: Table properties given apart from the options.
            description: The table's comment.

        Raises:
            InvalidArgumentError: A value is invalid, options contradict each other, or a name is nearly that of an
                option. Any other unknown name is a warning.
            UnknownSettingError: A ``delta.*`` property is unknown.
        """
        lower = {name.lower(): (name, str(value)) for name, value in options.items() if value is not None}
        given = _meant({name: lower[name.lower()][1] for name in HONOURED if name.lower() in lower}, mode)
        known = {name.lower() for name in HONOURED}
        table_properties = dict(properties or {})
        storage: dict[str, str] = {}
        for key, (name, value) in lower.items():
            if key.startswith("delta."):
                table_properties[name] = value
            elif key.startswith(_STORAGE_PREFIXES):
                storage[name] = value
            elif key not in known:
                _pass_over(name, value)
        table_properties = checked_properties(table_properties)
        app_id, version = _transaction(given, settings)
        parsed = cls(
            mode=mode,
            partition_by=_partitions(given, partition_by, mode),
            cluster_by=_names(given["clusterBy"], "clusterBy") if "clusterBy" in given else None,
            merge_schema=_flag(given, "mergeSchema", default=settings.schema_auto_merge),
            overwrite_schema=_flag(given, "overwriteSchema", default=False),
            replace_where=given.get("replaceWhere"),
            replace_where_check=settings.replace_where_check,
            replace_using=_names(given["replaceUsing"], "replaceUsing") if "replaceUsing" in given else None,
            replace_on=given.get("replaceOn"),
            target_alias=given.get("targetAlias"),
            dynamic=_dynamic(given, mode=mode, settings=settings),
            txn_app_id=app_id,
            txn_version=version,
            user_metadata=given.get("userMetadata", settings.user_metadata),
            data_change=_flag(given, "dataChange", default=True),
            max_records_per_file=max(_whole(given.get("maxRecordsPerFile", "0"), "maxRecordsPerFile"), 0),
            target_file_size=given.get("targetFileSize"),
            optimize_write=parse_bool(given["optimizeWrite"], name="optimizeWrite")
            if "optimizeWrite" in given
            else settings.optimize_write,
            compression=given.get("compression", given.get("parquet.compression")),
            timestamp_type=_timestamp_type(given.get("spark.sql.parquet.outputTimestampType")),
            properties=table_properties,
            storage=storage,
            description=description,
        )
        parsed._refuse_contradictions(explicit_dynamic="partitionOverwriteMode" in given)
        if mode.replaces_table and "overwriteSchema" in given and not parsed.overwrite_schema:
            raise InvalidArgumentError(
                "A replace creates the table again with the schema of the data, but overwriteSchema=false was given.",
                hint="Leave overwriteSchema out, or write with mode overwrite, which keeps the schema.",
                condition=Condition.of("DELTA_ILLEGAL_USAGE", option="overwriteSchema", operation="replacing"),
            )
        return parsed

    def narrowed(
        self,
        *,
        dynamic: bool = False,
        replace_where: str | StatementCondition | None = None,
        replace_using: tuple[str, ...] | None = None,
        replace_on: StatementCondition | None = None,
        target_alias: str | None = None,
    ) -> WriteOptions:
        """Return a copy for a statement or method that determines the rows to replace; arguments as in the class.

        Raises:
            InvalidArgumentError: An option does so too, or contradicts it.
        """
        if not dynamic and replace_where is None and replace_using is None and replace_on is None:
            return self
        own = {"replaceUsing": self.replace_using, "replaceOn": self.replace_on, "replaceWhere": self.replace_where}
        named = [name for name, value in own.items() if value is not None]
        if named:
            raise InvalidArgumentError(
                f"The option {named[0]} selects the rows to replace, but so does the statement or method.",
                hint=f"Leave {named[0]} out, or write with mode overwrite and no other option that selects rows.",
            )
        wanted = replace(
            self,
            dynamic=dynamic,
            replace_where=replace_where,
            replace_using=replace_using,
            replace_on=replace_on,
            target_alias=target_alias,
        )
        wanted._refuse_contradictions(explicit_dynamic=False)
        return wanted

    @property
    def replaces_matches(self) -> bool:
        """Whether rows are replaced because some row of the data matches them."""
        return self.replace_using is not None or self.replace_on is not None

    @property
    def replaces_all(self) -> bool:
        """Whether an overwrite replaces rows without a condition."""
        return self.replace_where is None and not self.replaces_matches

    def _refuse_contradictions(self, *, explicit_dynamic: bool) -> None:
        self._refuse_contradicting_replace(explicit_dynamic=explicit_dynamic)
        if self.replace_where is not None and self.mode not in (WriteMode.OVERWRITE, WriteMode.APPEND):
            raise InvalidArgumentError(
                f"replaceWhere works with mode overwrite, not with {self.mode.value}.",
                hint='Call .mode("overwrite"), or leave replaceWhere out.',
            )
        if self.replace_where is not None and self.overwrite_schema:
            raise InvalidArgumentError(
                "replaceWhere keeps rows of the table, so overwriteSchema cannot replace their schema.",
                hint="Use mergeSchema to add columns, or overwrite the whole table.",
                condition=Condition.of("DELTA_REPLACE_WHERE_IN_OVERWRITE"),
            )
        if self.dynamic and self.overwrite_schema:
            raise InvalidArgumentError(
                "A dynamic partition overwrite keeps partitions, so overwriteSchema cannot replace their schema.",
                hint="Use mergeSchema to add columns, or set partitionOverwriteMode to static.",
                condition=Condition.of("DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE"),
            )
        if self.dynamic and self.replace_where is not None and explicit_dynamic:
            raise InvalidArgumentError(
                "replaceWhere and partitionOverwriteMode=dynamic both select the rows to replace.",
                hint="Give one of the two.",
                condition=Condition.of("DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE"),
            )

    def _refuse_contradicting_replace(self, *, explicit_dynamic: bool) -> None:
        given = {"replaceUsing": self.replace_using, "replaceOn": self.replace_on, "replaceWhere": self.replace_where}
        named = [name for name, value in given.items() if value is not None]
        if not self.replaces_matches:
            return
        if self.mode is not WriteMode.OVERWRITE:
            raise InvalidArgumentError(
                f"{named[0]} works with mode overwrite, not with {self.mode.value}.",
                hint=f'Call .mode("overwrite"), or leave {named[0]} out.',
                condition=Condition.of("DELTA_DFV2_CREATE_REPLACE_INCOMPATIBLE_REPLACE_ON_OR_USING"),
            )
        if len(named) > 1:
            raise InvalidArgumentError(
                f"{' and '.join(named)} both select the rows to replace.",
                hint="Give one of the two.",
                condition=Condition.of(
                    "DELTA_INCOMPATIBLE_DATAFRAME_OPTIONS", firstDeltaOption=named[0], secondDeltaOption=named[1]
                ),
            )
        if self.overwrite_schema or explicit_dynamic:
            other = "overwriteSchema" if self.overwrite_schema else "partitionOverwriteMode"
            raise InvalidArgumentError(
                f"{named[0]} selects the rows to replace, but {other} was given too.",
                hint="Leave one of them out.",
                condition=Condition.of(
                    "DELTA_INCOMPATIBLE_DATAFRAME_OPTIONS", firstDeltaOption=named[0], secondDeltaOption=other
                ),
            )
        if not self.data_change:
            raise InvalidArgumentError(
                f"{named[0]} replaces rows, but dataChange=false means that no row changes.",
                hint="Leave dataChange out.",
                condition=Condition.of(
                    "DELTA_INCOMPATIBLE_DATAFRAME_OPTIONS", firstDeltaOption=named[0], secondDeltaOption="dataChange"
                ),
            )


def _transaction(given: Mapping[str, str], settings: Settings) -> tuple[str | None, int | None]:
    """Return what identifies the write: its own pair of options, or else the session's settings.

    Raises:
        InvalidArgumentError: Only one of the two was given.
    """
    app_id, version = given.get("txnAppId"), given.get("txnVersion")
    if (app_id is None) != (version is None):
        raise InvalidArgumentError(
            "txnAppId and txnVersion belong together, and only one of them was given.",
            hint="Give both, so that a repeated write is recognised.",
            condition=Condition.of(
                "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS", reason="txnAppId and txnVersion belong together"
            ),
        )
    if app_id is not None and version is not None:
        return app_id, _transaction_version(version)
    return settings.transaction


def _transaction_version(text: str) -> int:
    """Parse ``txnVersion``.

    Raises:
        InvalidArgumentError: It is not a whole number, or below 0.
    """
    number = _whole(text, "txnVersion")
    if number < 0:
        raise InvalidArgumentError(
            f"txnVersion is {number}, but it must be a non-negative integer.",
            hint="Count the writes of the application from 0.",
            condition=Condition.of("DELTA_ILLEGAL_OPTION", input=text, name="txnVersion"),
        )
    return number


def _timestamp_type(text: str | None) -> str | None:
    if text is not None and text.strip().upper() not in _TIMESTAMP_TYPES:
        raise InvalidArgumentError(
            f"spark.sql.parquet.outputTimestampType is {text!r}.", hint=f"Use one of {', '.join(_TIMESTAMP_TYPES)}."
        )
    return None if text is None else text.strip().upper()


def _partitions(
    given: Mapping[str, str], partition_by: Sequence[str] | None, mode: WriteMode
) -> tuple[str, ...] | None:
    """Return the partitioning that was asked for; overwriteSchema without one asks for a table without partitions."""
    if partition_by is None:
        redefines = mode is WriteMode.OVERWRITE and _flag(given, "overwriteSchema", default=False)
        return () if redefines else None
    return tuple(partition_by)


def _dynamic(given: Mapping[str, str], *, mode: WriteMode, settings: Settings) -> bool:
    text = given.get("partitionOverwriteMode", settings.partition_overwrite_mode).strip().lower()
    if text not in ("static", "dynamic"):
        raise InvalidArgumentError(
            f"partitionOverwriteMode is {text!r}.",
            hint="Set it to static or dynamic.",
            condition=Condition.of("DELTA_ILLEGAL_OPTION", input=text, name="partitionOverwriteMode"),
        )
    from_session = "partitionOverwriteMode" not in given
    if from_session and (_REPLACING & given.keys() or _flag(given, "overwriteSchema", default=False)):
        return False
    return text == "dynamic" and mode is WriteMode.OVERWRITE


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    return parse_bool(given[name], name=name) if name in given else default


def _names(text: str, option: str) -> tuple[str, ...]:
    """Parse ``a, b.c`` or a JSON list of names."""
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError:
            names = None
    else:
        names = [part.strip() for part in text.split(",")]
    if not isinstance(names, list) or not all(isinstance(item, str) and item for item in names):
        raise InvalidArgumentError(
            f"{option} is {text!r}.",
            hint="Name columns, with commas between them.",
            condition=Condition.of("DELTA_ILLEGAL_OPTION", input=text, name=option),
        )
    return tuple(names)


def _whole(text: str, name: str) -> int:
    try:
        return int(text.strip())
    except ValueError:
        raise InvalidArgumentError(
            f"{name} is {text!r}.",
            hint="Set it to a whole number.",
            condition=Condition.of("DELTA_ILLEGAL_OPTION", input=text, name=name),
        ) from None


def guide_table() -> str:
    """Format the options as a Markdown table for the guide."""
    rows = [f"| `{name}` | {meaning} |" for name, meaning in HONOURED.items()]
    rows += [f"| `{name}` | ignored: {meaning} |" for name, meaning in PASSED_OVER.items()]
    return "\n".join(["| option | meaning |\n|---|---|", *rows])


def _meant(given: dict[str, str], mode: WriteMode) -> dict[str, str]:
    """Drop options that choose the rows to replace, with a warning, if the write replaces none."""
    matching = [name for name in ("replaceUsing", "replaceOn") if name in given]
    if "replaceOn" not in given:
        given.pop("targetAlias", None)
    if not matching or mode not in (WriteMode.APPEND, WriteMode.ERROR_IF_EXISTS, WriteMode.IGNORE):
        return given
    text = f"{matching[0]} is for mode overwrite; {mode.value} ignores it and replaces no row."
    warnings.warn(text, stacklevel=3)
    return {name: value for name, value in given.items() if name not in matching}


def _pass_over(name: str, value: str) -> None:
    """Warn about an option without effect here; refuse one that is misspelled or cannot be granted."""
    lower = name.lower()
    if lower.startswith(_ENCRYPTION_PREFIXES):
        raise UnsupportedFeatureError(
            f"The write option {name!r} asks for encrypted files, but this engine does not encrypt data files.",
            features=("Parquet encryption",),
            hint="Leave it out, and let the store encrypt.",
        )
    if lower == "writepartitioncolumns":
        if value.strip().lower() == "false":
            return
        raise UnsupportedFeatureError(
            f"The write option {name!r} is {value!r}, but this engine does not write partition columns into data "
            f"files.",
            features=("writePartitionColumns",),
            hint="Leave it out: readers take them from the log.",
        )
    if lower in {item.lower() for item in PASSED_OVER} or lower.startswith("parquet."):
        return
    meant = nearest(lower, HONOURED, cutoff=_NEAR)
    of_readers = lower in {item.lower() for item in _OF_READERS}
    if meant is not None and not of_readers:
        raise InvalidArgumentError(f"Unknown write option {name!r}.", hint=f"Did you mean {meant!r}?")
    what = "It is an option of readers" if of_readers else "Nothing reads an option of that name"
    warnings.warn(f"The write option {name!r} is ignored. {what}.", stacklevel=2)
