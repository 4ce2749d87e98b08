"""The options of a write as a user gives them in, checked and frozen ones out. Pure."""

from __future__ import annotations

import difflib
import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydelta.errors import InvalidArgumentError
from pydelta.settings import Settings, check_property_names, parse_bool

__all__ = ["WriteMode", "WriteOptions"]


class WriteMode(enum.Enum):
    """What a write does where there is, or is no, table. The values are what the history shows."""

    APPEND = "Append"
    OVERWRITE = "Overwrite"
    ERROR_IF_EXISTS = "ErrorIfExists"
    IGNORE = "Ignore"
    CREATE = "Create"
    """Refuse where there is a table; the history says CREATE TABLE AS SELECT."""
    REPLACE = "Replace"
    """New schema, partitioning and properties; refuse where there is no table."""
    CREATE_OR_REPLACE = "CreateOrReplace"

    @classmethod
    def parse(cls, text: str) -> WriteMode:
        """Spark's mode names, ignoring case.

        Raises:
            InvalidArgumentError: No such mode.
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
                f"There is no write mode {text!r}.", hint="Use append, overwrite, errorifexists or ignore."
            )
        return mode

    @property
    def replaces_table(self) -> bool:
        """Whether an existing table gets a new definition."""
        return self in (WriteMode.REPLACE, WriteMode.CREATE_OR_REPLACE)


_KNOWN: Final = (
    "clusterBy",
    "compression",
    "dataChange",
    "maxRecordsPerFile",
    "mergeSchema",
    "optimizeWrite",
    "overwriteSchema",
    "partitionOverwriteMode",
    "path",
    "replaceWhere",
    "targetFileSize",
    "txnAppId",
    "txnVersion",
    "userMetadata",
)
_STORAGE_PREFIXES: Final = ("fs.", "dfs.", "spark.hadoop.", "hadoop.")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """A write, as asked for.

    Args:
        mode: What to do with a table that is there.
        partition_by: Partition columns, or None where the caller did not say.
        cluster_by: Columns that OPTIMIZE orders rows by, or None where the caller did not say.
        merge_schema: Add the data's new columns to the table.
        overwrite_schema: Let an overwrite replace schema and partitioning.
        replace_where: Condition whose rows are replaced, or None.
        dynamic: Replace just the partitions that the data has rows for.
        txn_app_id, txn_version: Identify the write; a version that already landed is skipped.
        user_metadata: Free text for the history.
        data_change: False when the write only rearranges rows.
        max_records_per_file: 0 for no limit.
        optimize_write: Shuffle rows first, so that each partition gets few files; None where the option is silent.
        compression: Codec, or None for the table's.
        properties: ``delta.*`` and other table properties for a table that this write creates.
        storage: Storage settings given with this write; they may hold secrets.
        description: Comment on a table that this write creates.
    """

    mode: WriteMode
    partition_by: tuple[str, ...] | None = None
    cluster_by: tuple[str, ...] | None = None
    merge_schema: bool = False
    overwrite_schema: bool = False
    replace_where: str | None = None
    dynamic: bool = False
    txn_app_id: str | None = None
    txn_version: int | None = None
    user_metadata: str | None = None
    data_change: bool = True
    max_records_per_file: int = 0
    target_file_size: str | None = None
    optimize_write: bool | None = None
    compression: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    description: str | None = None

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
        """Read a writer's options; names ignore case, as in Spark.

        Args:
            options: As given to the writer.
            mode: The write mode.
            settings: The session's settings, used where an option is silent.
            partition_by: Partition columns, or None.
            properties: Table properties given apart from the options.
            description: Comment on the table.

        Raises:
            InvalidArgumentError: A value that cannot be right, options that contradict each other, or a name that is
                within a letter or two of one that exists.
            UnknownSettingError: A ``delta.*`` property that nothing reads.
        """
        lower = {name.lower(): (name, str(value)) for name, value in options.items() if value is not None}
        given = {name: lower[name.lower()][1] for name in _KNOWN if name.lower() in lower}
        table_properties = dict(properties or {})
        storage: dict[str, str] = {}
        for key, (name, value) in lower.items():
            if key.startswith("delta."):
                table_properties[name] = value
            elif key.startswith(_STORAGE_PREFIXES):
                storage[name] = value
            elif name not in given and key not in {known.lower() for known in _KNOWN}:
                _refuse_misspelling(name)
        check_property_names(table_properties)
        version = given.get("txnVersion")
        parsed = cls(
            mode=mode,
            partition_by=None if partition_by is None else tuple(partition_by),
            cluster_by=_names(given["clusterBy"], "clusterBy") if "clusterBy" in given else None,
            merge_schema=_flag(given, "mergeSchema", default=settings.schema_auto_merge),
            overwrite_schema=_flag(given, "overwriteSchema", default=False),
            replace_where=given.get("replaceWhere"),
            dynamic=_dynamic(given, mode=mode, settings=settings),
            txn_app_id=given.get("txnAppId"),
            txn_version=None if version is None else _whole(version, "txnVersion"),
            user_metadata=given.get("userMetadata", settings.user_metadata),
            data_change=_flag(given, "dataChange", default=True),
            max_records_per_file=max(_whole(given.get("maxRecordsPerFile", "0"), "maxRecordsPerFile"), 0),
            target_file_size=given.get("targetFileSize"),
            optimize_write=parse_bool(given["optimizeWrite"], name="optimizeWrite")
            if "optimizeWrite" in given
            else settings.optimize_write,
            compression=given.get("compression"),
            properties=table_properties,
            storage=storage,
            description=description,
        )
        parsed._refuse_contradictions(explicit_dynamic="partitionOverwriteMode" in given)
        return parsed

    def _refuse_contradictions(self, *, explicit_dynamic: bool) -> None:
        if (self.txn_app_id is None) != (self.txn_version is None):
            raise InvalidArgumentError(
                "txnAppId and txnVersion belong together, and only one of them was given.",
                hint="Give both, so that a repeated write is recognised.",
            )
        if self.replace_where is not None and self.mode is not WriteMode.OVERWRITE:
            raise InvalidArgumentError(
                f"replaceWhere goes with mode overwrite, not with {self.mode.value}.",
                hint='Call .mode("overwrite"), or leave replaceWhere out.',
            )
        if self.replace_where is not None and self.overwrite_schema:
            raise InvalidArgumentError(
                "replaceWhere keeps rows of the table, so overwriteSchema cannot replace their schema.",
                hint="Use mergeSchema to add columns, or overwrite the whole table.",
            )
        if self.dynamic and self.overwrite_schema:
            raise InvalidArgumentError(
                "A dynamic partition overwrite keeps partitions, so overwriteSchema cannot replace their schema.",
                hint="Use mergeSchema to add columns, or set partitionOverwriteMode to static.",
            )
        if self.dynamic and self.replace_where is not None and explicit_dynamic:
            raise InvalidArgumentError(
                "replaceWhere and partitionOverwriteMode=dynamic both say which rows to replace.",
                hint="Give one of the two.",
            )


def _dynamic(given: Mapping[str, str], *, mode: WriteMode, settings: Settings) -> bool:
    text = given.get("partitionOverwriteMode", settings.partition_overwrite_mode).strip().lower()
    if text not in ("static", "dynamic"):
        raise InvalidArgumentError(f"partitionOverwriteMode is {text!r}.", hint="Set it to static or dynamic.")
    from_session = "partitionOverwriteMode" not in given
    if from_session and ("replaceWhere" in given or _flag(given, "overwriteSchema", default=False)):
        return False
    return text == "dynamic" and mode is WriteMode.OVERWRITE


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    return parse_bool(given[name], name=name) if name in given else default


def _names(text: str, option: str) -> tuple[str, ...]:
    """``a, b.c`` or a JSON list of names."""
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError:
            names = None
    else:
        names = [part.strip() for part in text.split(",")]
    if not isinstance(names, list) or not all(isinstance(item, str) and item for item in names):
        raise InvalidArgumentError(f"{option} is {text!r}.", hint="Name columns, with commas between them.")
    return tuple(names)


def _whole(text: str, name: str) -> int:
    try:
        return int(text.strip())
    except ValueError:
        raise InvalidArgumentError(f"{name} is {text!r}.", hint="Set it to a whole number.") from None


def _refuse_misspelling(name: str) -> None:
    """Options of other libraries pass; one that looks like ours and is not would be ignored in silence."""
    close = difflib.get_close_matches(name.lower(), [known.lower() for known in _KNOWN], n=1, cutoff=0.85)
    if close:
        known = next(item for item in _KNOWN if item.lower() == close[0])
        raise InvalidArgumentError(f"Unknown write option {name!r}.", hint=f"Did you mean {known!r}?")
