"""Check and freeze the options of ``readStream``. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pydelta.commands.stream.admission import DEFAULT_MAX_FILES, AdmissionBudget
from pydelta.commands.stream.evolution import ALWAYS, ChangeKind
from pydelta.errors import InvalidArgumentError
from pydelta.errors.conditions import Condition
from pydelta.errors.suggestions import nearest
from pydelta.settings import parse_bool, parse_bytes

__all__ = ["HONOURED", "LATEST", "SourceOptions"]

LATEST: Final = "latest"

HONOURED: Final = (
    "allowSourceColumnDrop",
    "allowSourceColumnRename",
    "allowSourceColumnTypeChange",
    "excludeRegex",
    "failOnDataLoss",
    "ignoreChanges",
    "ignoreDeletes",
    "ignoreFileDeletion",
    "maxBytesPerTrigger",
    "maxFilesPerTrigger",
    "path",
    "readChangeData",
    "readChangeFeed",
    "schemaLocation",
    "schemaTrackingLocation",
    "skipChangeCommits",
    "startingTimestamp",
    "startingVersion",
    "streamingSourceTrackingId",
    "withEventTimeOrder",
)
"""The options of a streaming reader; docs/guides/streams.md explains them.

``ignoreFileDeletion``, ``readChangeData`` and ``schemaLocation`` are older names of ``ignoreChanges``,
``readChangeFeed`` and ``schemaTrackingLocation``.
"""

_TRAVEL: Final = ("versionAsOf", "timestampAsOf")
_OF_BATCHES: Final = (*_TRAVEL, "endingVersion", "endingTimestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of a stream over a table.

    Args:
        starting_version: The first commit to read; None if not given or ``latest``.
        from_latest: Begin after the newest version.
        starting_timestamp: A time as written; without a zone, in the session's.
        max_files: Files per trigger; None for no limit.
        max_bytes: Bytes per trigger; None for no limit.
        ignore_deletes: Pass commits that only remove rows.
        ignore_changes: Pass commits that rewrite files, with all rows of their new files.
        skip_change_commits: Skip commits that change or remove rows.
        exclude: Skip files whose path matches.
        fail_on_data_loss: Stop if versions disappeared before they were read.
        change_feed: Stream the change feed.
        schema_location: Where the stream's schemas are stored; None for nowhere.
        tracking_id: Distinguishes the schemas of two streams of one table.
        event_time_order: Read the initial snapshot by the time of its rows.
        allowed: Changes of columns that may be followed: the values of ``allowSourceColumn…``, by name.
    """

    starting_version: int | None = None
    from_latest: bool = False
    starting_timestamp: str | None = None
    max_files: int | None = DEFAULT_MAX_FILES
    max_bytes: int | None = None
    ignore_deletes: bool = False
    ignore_changes: bool = False
    skip_change_commits: bool = False
    exclude: re.Pattern[str] | None = None
    fail_on_data_loss: bool = True
    change_feed: bool = False
    schema_location: str | None = None
    tracking_id: str | None = None
    event_time_order: bool = False
    allowed: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Parse a streaming reader's options; names ignore case, as in Spark.

        Raises:
            InvalidArgumentError: A value is invalid, options contradict each other, an option is only for batch
                queries, or a name is nearly that of an option.
        """
        lower = {name.lower(): str(value) for name, value in options.items() if value is not None}
        _refuse_others(lower)

        def flag(*names: str, default: bool = False) -> bool:
            found = [parse_bool(lower[name.lower()], name=name) for name in names if name.lower() in lower]
            return found[0] if found else default

        version, timestamp = lower.get("startingversion"), lower.get("startingtimestamp")
        if version is not None and timestamp is not None:
            raise InvalidArgumentError(
                f"startingVersion ({version}) and startingTimestamp ({timestamp}) were both given.",
                hint="Give one of the two.",
            )
        from_latest = version is not None and version.strip().lower() == LATEST
        if flag("withEventTimeOrder") and flag("readChangeFeed", "readChangeData"):
            raise InvalidArgumentError(
                "withEventTimeOrder and readChangeFeed were both given, but a change feed has its own order.",
                hint="Leave one of them out.",
            )
        max_bytes = lower.get("maxbytespertrigger")
        max_files = None if max_bytes is not None else DEFAULT_MAX_FILES
        if (text := lower.get("maxfilespertrigger")) is not None:
            max_files = _whole(text, "maxFilesPerTrigger", least=1)
        return cls(
            starting_version=None if version is None or from_latest else _whole(version, "startingVersion", least=0),
            from_latest=from_latest,
            starting_timestamp=timestamp,
            max_files=max_files,
            max_bytes=None if max_bytes is None else parse_bytes(max_bytes, name="maxBytesPerTrigger"),
            ignore_deletes=flag("ignoreDeletes"),
            ignore_changes=flag("ignoreChanges") or flag("ignoreFileDeletion"),
            skip_change_commits=flag("skipChangeCommits"),
            exclude=_pattern(lower.get("excluderegex")),
            fail_on_data_loss=flag("failOnDataLoss", default=True),
            change_feed=flag("readChangeFeed", "readChangeData"),
            schema_location=lower.get("schematrackinglocation", lower.get("schemalocation")),
            tracking_id=lower.get("streamingsourcetrackingid"),
            event_time_order=flag("withEventTimeOrder"),
            allowed=_allowed(lower),
        )

    def budget(self) -> AdmissionBudget:
        """Return the limits of one trigger."""
        return AdmissionBudget(max_files=self.max_files, max_bytes=self.max_bytes)

    def excludes(self, path: str) -> bool:
        """Return whether a file is skipped because of its path in the log."""
        return self.exclude is not None and self.exclude.search(path) is not None


def _refuse_others(lower: Mapping[str, str]) -> None:
    for name in _OF_BATCHES:
        if name.lower() in lower:
            raise InvalidArgumentError(
                f"{name} names a version to read once, but a stream continues with later versions.",
                hint="Say where to begin with startingVersion or startingTimestamp, or read once with spark.read.",
                condition=Condition.of("DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS") if name in _TRAVEL else None,
            )
    known = {name.lower() for name in HONOURED}
    for name in lower:
        meant = None if name in known or name.startswith("fs.") else nearest(name, HONOURED, cutoff=0.85)
        if meant is not None:
            raise InvalidArgumentError(f"Unknown read option {name!r}.", hint=f"Did you mean {meant!r}?")


def _allowed(lower: Mapping[str, str]) -> dict[str, str]:
    found = {kind.value: lower[kind.value.lower()] for kind in ChangeKind if kind.value.lower() in lower}
    for name, text in found.items():
        if text.strip().lower() != ALWAYS and not text.strip().isdigit():
            raise InvalidArgumentError(
                f"{name} is {text!r}.",
                hint=f"Set it to the version of the table up to which changes are followed, or to {ALWAYS}.",
            )
    return found


def _whole(text: str, name: str, *, least: int) -> int:
    if not text.strip().isdigit() or int(text) < least:
        also = f" or {LATEST!r}" if name == "startingVersion" else ""
        raise InvalidArgumentError(f"{name} is {text!r}.", hint=f"Set it to a whole number from {least}{also}.")
    return int(text)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise InvalidArgumentError(
            f"excludeRegex is {text!r}: {error}.", hint="Write a regular expression; it may match any part of the path."
        ) from None
