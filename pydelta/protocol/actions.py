"""Parse and write the actions of a commit. Each JSON line is one frozen action.

Python names are snake_case; the format's camelCase stays in this file. Readers ignore fields and actions that the
protocol does not define ("Delta Log Entries").
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Final, Self, TypeAlias

import msgspec

from pydelta.errors import LogCorruptedError
from pydelta.protocol.malformed import MALFORMED_JSON, reason

__all__ = [
    "Action",
    "AddCDCFile",
    "AddFile",
    "CheckpointMetadata",
    "CommitInfo",
    "DeletionVectorDescriptor",
    "DomainMetadata",
    "FileKey",
    "Format",
    "Metadata",
    "Protocol",
    "RemoveFile",
    "SetTransaction",
    "Sidecar",
    "decode_commit",
    "encode_commit",
]

Long: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""The format's long type. A larger number fits in no column."""


class _Action(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base of all actions: compared by value, camelCase in JSON, defaults omitted, no cycles and so no GC tracking."""

    kind: ClassVar[str] = ""

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class FileKey(msgspec.Struct, frozen=True, order=True):
    """The identity of a logical file: its path as written in the log and the unique id of its deletion vector."""

    path: str
    dv_id: str | None = None


class DeletionVectorDescriptor(_Action, frozen=True, kw_only=True):
    """Location of a deletion vector ("Deletion Vector Descriptor Schema")."""

    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: Long
    cardinality: Long
    offset: Long | None = None

    @property
    def unique_id(self) -> str:
        """``<type><path or inline>``, followed by ``@<offset>`` if there is an offset."""
        base = f"{self.storage_type}{self.path_or_inline_dv}"
        return base if self.offset is None else f"{base}@{self.offset}"


class Format(_Action, frozen=True, kw_only=True, omit_defaults=False):
    """Encoding of the data files; always parquet."""

    provider: str = "parquet"
    options: dict[str, str] = {}


EMPTY_SCHEMA: Final = '{"type":"struct","fields":[]}'


class Metadata(_Action, frozen=True, kw_only=True):
    """Schema, partitioning and properties ("Change Metadata"). The last one in the log replaces all earlier ones.

    A table created without columns has no ``schemaString`` in the log, which means a struct without fields.
    """

    kind: ClassVar[str] = "metaData"
    id: str
    schema_string: str = EMPTY_SCHEMA
    name: str | None = None
    description: str | None = None
    format: Format = Format()
    partition_columns: tuple[str, ...] = ()
    configuration: dict[str, str] = {}
    created_time: Long | None = None


class Protocol(_Action, frozen=True, kw_only=True):
    """Versions and features that a client must know ("Protocol Evolution")."""

    kind: ClassVar[str] = "protocol"
    min_reader_version: Long
    min_writer_version: Long
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


class AddFile(_Action, frozen=True, kw_only=True):
    """Adds a file to the table or updates its metadata ("Add File and Remove File").

    ``path`` is URI-encoded as in the log. ``partition_values`` maps physical column names to serialized strings (None
    for null). ``stats`` is JSON text.
    """

    kind: ClassVar[str] = "add"
    path: str
    partition_values: dict[str, str | None]
    size: Long
    modification_time: Long
    data_change: bool
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None
    clustering_provider: str | None = None

    @property
    def key(self) -> FileKey:
        """Path and deletion vector id."""
        return FileKey(self.path, self.deletion_vector.unique_id if self.deletion_vector else None)

    def remove(self, *, deletion_timestamp: int, data_change: bool = True) -> RemoveFile:
        """Return the remove of this file, with extended metadata. The time is in epoch milliseconds."""
        return RemoveFile(
            path=self.path,
            data_change=data_change,
            deletion_timestamp=deletion_timestamp,
            extended_file_metadata=True,
            partition_values=self.partition_values,
            size=self.size,
            stats=self.stats,
            tags=self.tags,
            deletion_vector=self.deletion_vector,
            base_row_id=self.base_row_id,
            default_row_commit_version=self.default_row_commit_version,
        )


class RemoveFile(_Action, frozen=True, kw_only=True):
    """Removes a file from the table. It stays in the log as a tombstone until its retention ends."""

    kind: ClassVar[str] = "remove"
    path: str
    data_change: bool
    deletion_timestamp: Long | None = None
    extended_file_metadata: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: Long | None = None
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None

    @property
    def key(self) -> FileKey:
        """Path and deletion vector id."""
        return FileKey(self.path, self.deletion_vector.unique_id if self.deletion_vector else None)


class AddCDCFile(_Action, frozen=True, kw_only=True):
    """A change file of this version ("Add CDC File"). It is not part of the table's state."""

    kind: ClassVar[str] = "cdc"
    path: str
    partition_values: dict[str, str | None]
    size: Long
    data_change: bool = False
    tags: dict[str, str | None] | None = None


class SetTransaction(_Action, frozen=True, kw_only=True):
    """Progress of an application ("Transaction Identifiers"). Times are in epoch milliseconds."""

    kind: ClassVar[str] = "txn"
    app_id: str
    version: Long
    last_updated: Long | None = None


class DomainMetadata(_Action, frozen=True, kw_only=True):
    """A named configuration string ("Domain Metadata"); ``removed`` makes it a tombstone."""

    kind: ClassVar[str] = "domainMetadata"
    domain: str
    configuration: str
    removed: bool


class CheckpointMetadata(_Action, frozen=True, kw_only=True):
    """The ``checkpointMetadata`` action, which occurs exactly once in a V2 checkpoint and nowhere else."""

    kind: ClassVar[str] = "checkpointMetadata"
    version: Long
    tags: dict[str, str | None] | None = None


class Sidecar(_Action, frozen=True, kw_only=True):
    """Reference from a V2 checkpoint to a file of adds and removes. ``path`` is a name in ``_sidecars``."""

    kind: ClassVar[str] = "sidecar"
    path: str
    size_in_bytes: Long
    modification_time: Long
    tags: dict[str, str | None] | None = None


class CommitInfo(msgspec.Struct, frozen=True):
    """Provenance of a commit ("Commit Provenance Information"): free-form JSON, stored unchanged.

    Args:
        fields: The decoded object, with camelCase keys.
    """

    kind: ClassVar[str] = "commitInfo"
    fields: dict[str, Any]

    def get(self, name: str) -> Any:
        """Return a field by its name in the file, or None."""
        return self.fields.get(name)

    @property
    def txn_id(self) -> str | None:
        """The id by which a writer recognizes its own commit."""
        value = self.fields.get("txnId")
        return value if isinstance(value, str) else None

    @property
    def operation(self) -> str | None:
        """Name of the operation, such as ``WRITE`` or ``DELETE``."""
        value = self.fields.get("operation")
        return value if isinstance(value, str) else None

    @property
    def in_commit_timestamp(self) -> int | None:
        """``inCommitTimestamp`` in epoch milliseconds."""
        value = self.fields.get("inCommitTimestamp")
        return value if isinstance(value, int) and not isinstance(value, bool) else None


Action: TypeAlias = (
    AddFile
    | RemoveFile
    | AddCDCFile
    | Metadata
    | Protocol
    | SetTransaction
    | DomainMetadata
    | CommitInfo
    | CheckpointMetadata
    | Sidecar
)

_KINDS: Mapping[str, type[Any]] = {
    kind.kind: kind
    for kind in (
        AddFile, RemoveFile, AddCDCFile, Metadata, Protocol, SetTransaction, DomainMetadata, CheckpointMetadata, Sidecar
    )
}  # fmt: skip


def decode_action(entry: Mapping[str, Any]) -> Action | None:
    """Convert a decoded JSON object to its action. Returns None for a kind that the protocol does not define.

    Raises:
        msgspec.ValidationError: A required field is missing or has the wrong type.
    """
    for name, body in entry.items():
        if body is None:
            continue
        if name == CommitInfo.kind:
            return CommitInfo(dict(body))
        kind = _KINDS.get(name)
        if kind is not None:
            action: Action = msgspec.convert(body, kind, strict=False)
            return action
    return None


class _Line(msgspec.Struct, kw_only=True, gc=False):
    """One line of a commit. Exactly one field is set, the action; other kinds are ignored."""

    add: AddFile | None = None
    remove: RemoveFile | None = None
    cdc: AddCDCFile | None = None
    meta_data: Metadata | None = msgspec.field(default=None, name="metaData")
    protocol: Protocol | None = None
    txn: SetTransaction | None = None
    domain_metadata: DomainMetadata | None = msgspec.field(default=None, name="domainMetadata")
    checkpoint_metadata: CheckpointMetadata | None = msgspec.field(default=None, name="checkpointMetadata")
    sidecar: Sidecar | None = None
    commit_info: dict[str, Any] | None = msgspec.field(default=None, name="commitInfo")

    def action(self) -> Action | None:
        """Return the action, or None for a kind that the protocol does not define."""
        if self.commit_info is not None:
            return CommitInfo(self.commit_info)
        return (
            self.add or self.remove or self.cdc or self.meta_data or self.protocol or self.txn or self.domain_metadata
            or self.checkpoint_metadata or self.sidecar
        )  # fmt: skip


_LINES: Final = msgspec.json.Decoder(_Line, strict=False)


def decode_commit(data: bytes, *, source: str) -> tuple[Action, ...]:
    """Return the actions of one commit file, in the order of its lines.

    Like the reference reader, it ignores text after an object on the same line unless it is another object, and it
    accepts an object that spans several lines.

    Args:
        data: Newline-delimited JSON.
        source: File name, for messages.

    Raises:
        LogCorruptedError: A line is not a JSON object or lacks a required field. The error names line and file.
    """
    try:
        return tuple(action for line in _LINES.decode_lines(data) if (action := line.action()) is not None)
    except MALFORMED_JSON:
        pass  # Parse line by line below, to name the bad line in the error.
    actions: list[Action] = []
    number = 0
    try:
        for number, line in enumerate(data.splitlines(), start=1):  # noqa: B007 -- the handler names it
            if not line.strip():
                continue
            try:
                entry = msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return _decode_loosely(data)
            action = _checked_action(entry)
            if action is not None:
                actions.append(action)
    except (*MALFORMED_JSON, TypeError) as error:
        line_number, why = error.args if isinstance(error, _LineError) else (number, error)
        raise LogCorruptedError(
            f"Line {line_number} of {source} is not a valid action: {reason(why)}",
            hint="The file is truncated or damaged. Restore it from a backup of _delta_log; "
            "if later checkpoints exist, newer versions may still be readable.",
        ) from error
    return tuple(actions)


class _LineError(ValueError):
    """A line number and the error on that line."""


def _checked_action(entry: object) -> Action | None:
    if not isinstance(entry, dict):
        raise TypeError(f"a JSON object was expected, found {type(entry).__name__}")
    return decode_action(entry)


def _refuse_constant(name: str) -> None:
    """Raise ValueError: ``NaN`` and ``Infinity`` are not JSON."""
    raise ValueError(f"{name} is not JSON")


def _without_lone_surrogates(value: Any) -> Any:
    """Replace lone surrogates by U+FFFD. JSON can spell them but UTF-8 cannot."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_without_lone_surrogates(key): _without_lone_surrogates(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_lone_surrogates(item) for item in value]
    return value


def _decode_loosely(data: bytes) -> tuple[Action, ...]:
    """Decode consecutive objects regardless of line breaks. Other text is allowed only after an object on its line."""
    text = data.decode()
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    actions: list[Action] = []
    position = 0
    behind_object = False
    while position < len(text):
        char = text[position]
        if char == "{":
            try:
                entry, position = decoder.raw_decode(text, position)
                action = _checked_action(_without_lone_surrogates(entry))
            except (*MALFORMED_JSON, TypeError) as error:
                raise _LineError(text.count("\n", 0, position) + 1, error) from error
            if action is not None:
                actions.append(action)
            behind_object = True
        elif char in "\r\n":
            behind_object = False
            position += 1
        elif behind_object or char.isspace():
            position += 1
        else:
            raise _LineError(text.count("\n", 0, position) + 1, f"unexpected {char!r}")
    return tuple(actions)


def action_to_dict(action: Action) -> dict[str, Any]:
    """Return the JSON object of a commit line, ``{kind: {…}}``."""
    if isinstance(action, CommitInfo):
        return {action.kind: action.fields}
    body: dict[str, Any] = msgspec.to_builtins(action)
    if isinstance(action, Metadata):  # The protocol requires these fields even if they equal our defaults.
        body.setdefault("format", {"provider": "parquet", "options": {}})
        body.setdefault("schemaString", action.schema_string)
        body.setdefault("partitionColumns", [])
        body.setdefault("configuration", {})
    elif isinstance(action, AddCDCFile):
        body.setdefault("dataChange", False)
    elif isinstance(action, Protocol):
        for name in ("readerFeatures", "writerFeatures"):
            if name in body:
                body[name] = list(body[name])
    return {action.kind: body}


def encode_commit(actions: Iterable[Action]) -> bytes:
    r"""Encode actions as newline-delimited UTF-8 JSON with a final newline.

    Example:
        >>> encode_commit([SetTransaction(app_id="a", version=1)])
        b'{"txn":{"appId":"a","version":1}}\n'
    """
    return b"".join(map(_line, actions))


def _line(action: Action) -> bytes:
    if isinstance(action, (AddFile, RemoveFile)):  # This is the fast path: a commit may have many of these.
        return b'{"%s":%s}\n' % (action.kind.encode(), msgspec.json.encode(action))
    return msgspec.json.encode(action_to_dict(action)) + b"\n"


def encode_json(value: object) -> str:
    """Return compact JSON, the form of nested documents in the log (schema, statistics, parameters)."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
