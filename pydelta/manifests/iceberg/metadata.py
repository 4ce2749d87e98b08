"""Compute the next metadata file of an Iceberg entry from the one before. Pure.

There is no other book of an entry: what it was made from is in its properties and in the summaries of its snapshots.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = [
    "FOLDER",
    "HINT_PATH",
    "ID_PROPERTY",
    "METADATA_DIR",
    "VERSION_PROPERTY",
    "MetadataChange",
    "NewSnapshot",
    "current_snapshot",
    "encoded",
    "forgotten",
    "has_row_ids",
    "is_ours",
    "metadata_number",
    "metadata_path",
    "next_metadata",
    "next_row_id",
    "snapshot_version",
    "without_snapshots",
]

FOLDER: Final = "_pydelta/iceberg"
"""The Iceberg table's folder, under the root of the Delta table."""
METADATA_DIR: Final = f"{FOLDER}/metadata"
HINT_PATH: Final = f"{METADATA_DIR}/version-hint.text"
"""Holds the number of the newest metadata file, for readers without a catalog."""
ID_PROPERTY: Final = "pydelta.table.id"
VERSION_PROPERTY: Final = "pydelta.version"
TIMESTAMP_PROPERTY: Final = "pydelta.timestamp"
COVERED_PROPERTY: Final = "pydelta.files-with-hidden-rows"
LEFT_OUT_PROPERTY: Final = "pydelta.iceberg.left-out"
MAPPING_PROPERTY: Final = "schema.name-mapping.default"
_NAME: Final = re.compile(r"v([1-9][0-9]*)\.metadata\.json")
_FIRST_PARTITION_FIELD: Final = 1000
_MAIN: Final = "main"

Metadata = Mapping[str, Any]


def metadata_path(number: int) -> str:
    """Return the path of a metadata file under the table's root."""
    return f"{METADATA_DIR}/v{number}.metadata.json"


def metadata_number(name: str) -> int | None:
    """Return the number of a metadata file from its name, or None for other files.

    Example:
        >>> metadata_number("v12.metadata.json"), metadata_number("version-hint.text")
        (12, None)
    """
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSnapshot:
    """A snapshot to add.

    Args:
        id: Its id, not used before.
        manifest_list: Location of its manifest list.
        timestamp_ms: Time of the Delta version. Moved forward if the snapshot before is newer.
        summary: Iceberg's ``operation`` and counts, and the Delta version.
        row_ids: How many row ids it uses up, with format version 3.
    """

    id: int
    manifest_list: str
    timestamp_ms: int
    summary: Mapping[str, str]
    row_ids: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataChange:
    """What a sync changes.

    Args:
        location: Location of the Iceberg table.
        schema: The schema, as Iceberg's JSON, without its id.
        last_column_id: Highest field id that was ever given.
        spec: The partition spec, as Iceberg's JSON.
        properties: Properties to set.
        snapshot: The snapshot to add.
        keep: Number of snapshots and of earlier metadata files that stay.
        format_version: Version of Iceberg's format, not below the one before.
    """

    location: str
    schema: Mapping[str, Any]
    last_column_id: int
    spec: Mapping[str, Any]
    properties: Mapping[str, str]
    snapshot: NewSnapshot
    keep: int = 100
    format_version: int = 2


def next_metadata(
    previous: Metadata | None, change: MetadataChange, *, now_ms: int, previous_location: str | None = None
) -> dict[str, Any]:
    """Return the next metadata file.

    Args:
        previous: The metadata before, or None to start a table.
        change: What changes.
        now_ms: Current time, epoch milliseconds.
        previous_location: Location of the metadata before.
    """
    found = dict(previous) if previous is not None else _first(change)
    found["format-version"] = change.format_version
    found["schemas"], found["current-schema-id"] = _numbered(found["schemas"], change.schema, "schema-id")
    found["last-column-id"] = max(found["last-column-id"], change.last_column_id)
    _set_spec(found, change.spec)
    _add_snapshot(found, change.snapshot, keep=change.keep)
    found["properties"] = {**found["properties"], **change.properties}
    return _finished(found, previous, previous_location, now_ms=now_ms, keep=change.keep)


def _first(change: MetadataChange) -> dict[str, Any]:
    return {
        "format-version": change.format_version,
        "table-uuid": str(uuid.uuid4()),
        "location": change.location,
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": 0,
        "schemas": [],
        "partition-specs": [],
        "last-partition-id": _FIRST_PARTITION_FIELD - 1,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": {},
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
        "refs": {},
    }


def _numbered(
    known: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any], key: str
) -> tuple[list[Mapping[str, Any]], int]:
    """Return the items with the wanted one among them, and its id. An equal one keeps its id."""
    content = {name: value for name, value in wanted.items() if name != key}
    for item in known:
        if {name: value for name, value in item.items() if name != key} == content:
            return list(known), item[key]
    number = max((item[key] for item in known), default=-1) + 1
    return [*known, {**content, key: number}], number


def _set_spec(found: dict[str, Any], spec: Mapping[str, Any]) -> None:
    """Make a spec the default one, with the id that it has: manifests name it."""
    columns = {item["schema-id"]: item for item in found["schemas"]}[found["current-schema-id"]]["fields"]
    ids = {name.lower(): number for name, number in _full_names(columns)}
    others = [_renamed(item, ids) for item in found["partition-specs"] if item["spec-id"] != spec["spec-id"]]
    found["partition-specs"] = sorted([*others, dict(spec)], key=lambda item: int(item["spec-id"]))
    found["default-spec-id"] = spec["spec-id"]
    highest = max((part["field-id"] for part in spec["fields"]), default=0)
    found["last-partition-id"] = max(found["last-partition-id"], highest)


def _full_names(fields: Sequence[Mapping[str, Any]], above: str = "") -> Iterator[tuple[str, int]]:
    """Iterate over columns and the fields of structs, as Iceberg names them, with their ids."""
    for item in fields:
        name = f"{above}{item['name']}"
        yield name, item["id"]
        if isinstance(item["type"], Mapping) and item["type"]["type"] == "struct":
            yield from _full_names(item["type"]["fields"], f"{name}.")


def _renamed(spec: Mapping[str, Any], ids: Mapping[str, int]) -> dict[str, Any]:
    """Return an earlier spec without the names of other columns, with which Iceberg's own library opens no table.

    Readers find partition values by ids, so names are free. A replaced table gives ids and names to other columns.
    """
    fields = []
    for part in spec["fields"]:
        taken = ids.get(part["name"].lower(), part["source-id"]) != part["source-id"]
        fields.append({**part, "name": f"{part['name']}_{part['field-id']}"} if taken else part)
    return {**spec, "fields": fields}


def _add_snapshot(found: dict[str, Any], new: NewSnapshot, *, keep: int) -> None:
    number = found["last-sequence-number"] + 1
    time_ms = max([new.timestamp_ms, *(item["timestamp-ms"] + 1 for item in found["snapshots"])])
    added = {
        "snapshot-id": new.id,
        "sequence-number": number,
        "timestamp-ms": time_ms,
        "manifest-list": new.manifest_list,
        "summary": dict(new.summary),
        "schema-id": found["current-schema-id"],
    }
    parent = found.get("current-snapshot-id")
    if parent is not None:
        added["parent-snapshot-id"] = parent
    if has_row_ids(found["format-version"]):
        first = next_row_id(found)
        added |= {"first-row-id": first, "added-rows": new.row_ids}
        found["next-row-id"] = first + new.row_ids
    found["last-sequence-number"] = number
    found["current-snapshot-id"] = new.id
    found["snapshots"] = [*found["snapshots"], added][-keep:]
    found["snapshot-log"] = [*found["snapshot-log"], {"snapshot-id": new.id, "timestamp-ms": time_ms}]
    found["refs"] = {_MAIN: {"snapshot-id": new.id, "type": "branch"}}


def has_row_ids(format_version: int) -> bool:
    """Return whether a format version gives each row an id."""
    return format_version >= 3


def next_row_id(metadata: Metadata | None) -> int:
    """Return the id of the next new row, with format version 3."""
    return int(metadata.get("next-row-id", 0)) if metadata is not None else 0


def _finished(
    found: dict[str, Any], previous: Metadata | None, previous_location: str | None, *, now_ms: int, keep: int
) -> dict[str, Any]:
    """Drop what nothing refers to, and set the times."""
    held = {item["snapshot-id"] for item in found["snapshots"]}
    found["snapshot-log"] = [item for item in found["snapshot-log"] if item["snapshot-id"] in held]
    schemas = {found["current-schema-id"], *(item["schema-id"] for item in found["snapshots"])}
    found["schemas"] = [item for item in found["schemas"] if item["schema-id"] in schemas]
    newest = max((item["timestamp-ms"] for item in found["snapshots"]), default=0)
    if previous is not None and previous_location is not None:
        entry = {"metadata-file": previous_location, "timestamp-ms": previous["last-updated-ms"]}
        found["metadata-log"] = [*found["metadata-log"], entry][-keep:]
    found["last-updated-ms"] = max(now_ms, newest, previous["last-updated-ms"] + 1 if previous is not None else 0)
    return found


def without_snapshots(
    previous: Metadata,
    may_stay: Callable[[int | None], bool],
    *,
    now_ms: int,
    previous_location: str | None = None,
    keep: int = 100,
) -> dict[str, Any] | None:
    """Return the next metadata file without some snapshots, or None if all stay. The current one always stays.

    Args:
        previous: The metadata before.
        may_stay: Returns whether the snapshot of a Delta version may stay. The version is None if it is unknown.
        now_ms: Current time, epoch milliseconds.
        previous_location: Location of the metadata before.
        keep: Number of earlier metadata files that stay.
    """
    current = previous.get("current-snapshot-id")
    left = [
        item for item in previous["snapshots"] if item["snapshot-id"] == current or may_stay(snapshot_version(item))
    ]
    if len(left) == len(previous["snapshots"]):
        return None
    found = dict(previous)
    found["snapshots"] = left
    return _finished(found, previous, previous_location, now_ms=now_ms, keep=keep)


def forgotten(metadata: Metadata) -> dict[str, Any]:
    """Return metadata without any snapshot, to start again with the same field ids.

    No manifest is left that needs a partition spec, and the column that it names by id may now be another one.
    """
    found = {name: value for name, value in metadata.items() if name != "current-snapshot-id"}
    return {**found, "snapshots": [], "snapshot-log": [], "refs": {}, "partition-specs": []}


def current_snapshot(metadata: Metadata) -> Mapping[str, Any] | None:
    """Return the current snapshot."""
    number = metadata.get("current-snapshot-id")
    return next((item for item in metadata["snapshots"] if item["snapshot-id"] == number), None)


def snapshot_version(snapshot: Mapping[str, Any]) -> int | None:
    """Return the Delta version that a snapshot was made from, or None if another engine wrote it."""
    text = str(snapshot.get("summary", {}).get(VERSION_PROPERTY, ""))
    return int(text) if text.isdigit() else None


def is_ours(metadata: Metadata) -> bool:
    """Return whether a metadata file was made from a Delta log, and its current snapshot too."""
    snapshot = current_snapshot(metadata)
    properties = metadata.get("properties", {})
    return (
        snapshot is not None
        and ID_PROPERTY in properties
        and str(snapshot_version(snapshot)) == properties.get(VERSION_PROPERTY)
    )


def encoded(metadata: Metadata) -> bytes:
    """Encode a metadata file."""
    return json.dumps(metadata, ensure_ascii=False, separators=(",", ":")).encode()
