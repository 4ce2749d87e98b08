"""Rewrite the requests of Spark Connect's clients so that this engine sees the Delta tables in them.

::

    spark.table("t"), read.format("delta").load(p) --> a relation of SQL text: "PYDELTA RELATION {…}"
    df.write…, df.writeTo(…)…, df.mergeInto(…)…,
    writeStream…, a remote DeltaTable              --> a command of SQL text: "PYDELTA COMMAND <token>"
    everything else                                --> unchanged

Spark's own planner never asks a parser or a catalog about the former; SQL text reaches the session's parser, which
asks about both (``texts``). Messages are changed in place, and unknown fields are kept.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import zstandard
from google.protobuf import any_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.internal import api_implementation
from google.protobuf.message import Message
from pyspark.sql.connect.proto import base_pb2, commands_pb2, expressions_pb2, relations_pb2

from pydelta.api.python.wire import COMMAND_URL, rewritten

__all__ = [
    "Commands", "RelationText", "RemoteCommand", "analysis", "execution", "inflate", "messages_in", "session_of",
    "token_of", "with_user",
]  # fmt: skip

_RELATION: Final = "PYDELTA RELATION "
_COMMAND: Final = "PYDELTA COMMAND "
_PROVIDER: Final = "delta"
_MAX_INFLATED: Final = 512 << 20  # bytes
_KEPT: Final = 3600.0  # seconds


def _allow_deep_messages() -> None:
    """Allow messages to nest as deeply as Spark's own server does; the default fails at about fifty DataFrame calls."""
    if api_implementation.Type() == "upb":
        from google._upb import _message

        _message.SetAllowOversizeProtos(True)


_allow_deep_messages()


@dataclass(frozen=True, kw_only=True)
class RelationText:
    """The table or path that a read names.

    Args:
        table: A name as the client wrote it; None for a path.
        path: From ``format("delta").load(path)``; several paths are passed on for the reader to refuse; None if there
            is none.
        options: The reader's options.
        streaming: Whether it is ``readStream``.
        schema: Whether the client gave a schema.
    """

    table: str | None
    path: str | Sequence[str] | None
    options: Mapping[str, str]
    streaming: bool
    schema: bool = False

    def text(self) -> str:
        """Return the SQL text that represents it."""
        return _RELATION + json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> RelationText | None:
        """Parse such a text; None for any other.

        Raises:
            ValueError: It begins like one but is malformed.
        """
        if not text.startswith(_RELATION):
            return None
        try:
            return cls(**json.loads(text.removeprefix(_RELATION)))
        except TypeError as error:
            raise ValueError(f"not a relation of a remote client: {error}") from error


@dataclass(frozen=True, kw_only=True)
class RemoteCommand:
    """A command that a client sent.

    Args:
        user: The client's user, to find the session.
        session: The client's session.
        operation: The client's id of the operation.
        message: A ``spark.connect.Command``.
    """

    user: str
    session: str
    operation: str
    message: commands_pb2.Command


class Commands:
    """The commands that have arrived but not begun, by token.

    A command that never begins because its client disconnected is dropped after an hour.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._waiting: dict[str, tuple[float, RemoteCommand]] = {}
        self._lock = threading.Lock()
        self._now = now

    def put(self, command: RemoteCommand) -> str:
        """Store a command; returns the SQL text that refers to it."""
        token, now = uuid.uuid4().hex, self._now()
        with self._lock:
            for old, (since, _) in list(self._waiting.items()):
                if now - since < _KEPT:
                    break  # Commands are in order of arrival.
                del self._waiting[old]
            self._waiting[token] = (now, command)
        return _COMMAND + token

    def take(self, text: str) -> RemoteCommand | None:
        """Remove and return the command that a text refers to; None for any other text or a command that is gone."""
        token = token_of(text)
        with self._lock:
            found = self._waiting.pop(token, None) if token else None
        return found[1] if found else None

    def __len__(self) -> int:
        return len(self._waiting)


def token_of(text: str) -> str | None:
    """Return the token in a command's text; None for any other text."""
    return text.removeprefix(_COMMAND).strip() if text.startswith(_COMMAND) else None


def execution(data: bytes, commands: Commands) -> bytes:
    """Rewrite an ``ExecutePlanRequest``.

    Args:
        data: The serialized request.
        commands: Stores its command, if the engine is to run it.
    """
    request = base_pb2.ExecutePlanRequest.FromString(data)
    plan = request.plan
    changed = inflate(plan)
    changed |= _relations(plan)
    if plan.WhichOneof("op_type") == "command" and _is_ours(plan.command):
        kept = commands_pb2.Command()
        kept.CopyFrom(plan.command)
        context, session = request.user_context, request.session_id
        text = commands.put(
            RemoteCommand(user=context.user_id, session=session, operation=request.operation_id, message=kept)
        )
        plan.command.Clear()
        plan.command.sql_command.input.sql.query = text
        plan.command.sql_command.sql = text
        changed = True
    return request.SerializeToString() if changed else data


def analysis(data: bytes) -> bytes:
    """Rewrite an ``AnalyzePlanRequest``."""
    request = base_pb2.AnalyzePlanRequest.FromString(data)
    changed = False
    for message in messages_in(request):
        if isinstance(message, base_pb2.Plan):
            changed |= inflate(message)
    return request.SerializeToString() if _relations(request) or changed else data


def session_of(method: str, data: bytes) -> str:
    """Return the id of the session that a request names.

    Raises:
        KeyError: Spark Connect has no such method.
    """
    return str(_request_of(method).FromString(data).session_id)


def with_user(method: str, user: str) -> Callable[[bytes], bytes]:
    """Return a function that sets the user's name in the requests of a method.

    Raises:
        KeyError: Spark Connect has no such method.
    """
    make = _request_of(method)

    def sign(data: bytes) -> bytes:
        request = make.FromString(data)
        request.user_context.user_id = request.user_context.user_name = user
        return request.SerializeToString()

    return sign


def _request_of(method: str) -> Any:
    kind = base_pb2.DESCRIPTOR.services_by_name["SparkConnectService"].methods_by_name[method].input_type
    return getattr(base_pb2, kind.name)


def _is_ours(command: commands_pb2.Command) -> bool:
    kind = command.WhichOneof("command_type")
    if kind == "extension":
        return bool(command.extension.type_url == COMMAND_URL)
    if kind == "write_stream_operation_start":
        start = command.write_stream_operation_start
        if start.HasField("foreach_batch") or start.HasField("foreach_writer"):
            return False  # Spark runs the function in a process that calls the front.
        return start.WhichOneof("sink_destination") == "table_name" or start.format.lower() in ("", _PROVIDER)
    return kind in ("write_operation", "write_operation_v2", "merge_into_table_command")


def inflate(plan: base_pb2.Plan) -> bool:
    """Unpack a plan that a client has compressed."""
    if plan.WhichOneof("op_type") != "compressed_operation":
        return False
    packed = plan.compressed_operation
    inner = zstandard.ZstdDecompressor().decompress(packed.data, max_output_size=_MAX_INFLATED)
    kinds = base_pb2.Plan.CompressedOperation
    if packed.op_type == kinds.OP_TYPE_COMMAND:
        plan.command.CopyFrom(commands_pb2.Command.FromString(inner))
    else:
        plan.root.CopyFrom(relations_pb2.Relation.FromString(inner))
    return True


def _relations(message: Message) -> bool:
    """Replace all reads below a message by strings; returns whether there was one."""
    changed = False
    for found in messages_in(message):
        if isinstance(found, relations_pb2.Relation) and found.WhichOneof("rel_type") == "read":
            text = _read(found.read)
            if text is not None:
                found.sql.query = text.text()  # Setting this oneof field clears the read.
                changed = True
        elif isinstance(found, any_pb2.Any) and found.type_url == COMMAND_URL:
            changed |= _arguments(found)
    return changed


def _arguments(packed: any_pb2.Any) -> bool:
    """Rewrite the relations and expressions inside a command of a remote ``DeltaTable``."""
    before = packed.value
    packed.value = rewritten(before, _rewriting(relations_pb2.Relation), _rewriting(expressions_pb2.Expression))
    return bool(packed.value != before)


def _rewriting(kind: type[Message]) -> Callable[[bytes], bytes]:
    def rewrite(data: bytes) -> bytes:
        message = kind.FromString(data)
        return message.SerializeToString() if _relations(message) else data

    return rewrite


def _read(read: relations_pb2.Read) -> RelationText | None:
    kind = read.WhichOneof("read_type")
    if kind == "named_table":
        table = read.named_table
        return RelationText(
            table=table.unparsed_identifier, path=None, options=dict(table.options), streaming=read.is_streaming
        )
    source = read.data_source
    if kind != "data_source" or source.format.lower() != _PROVIDER:
        return None
    options = dict(source.options)
    named = next((value for name, value in options.items() if name.lower() == "path"), None)
    path: str | list[str] | None = named
    if source.paths:
        path = source.paths[0] if len(source.paths) == 1 else list(source.paths)
    given = bool(source.schema)
    return RelationText(table=None, path=path, options=options, streaming=read.is_streaming, schema=given)


def messages_in(message: Message) -> Iterator[Message]:
    """Walk over a message and all messages below it, without recursion because plans can be very deep."""
    waiting = [message]
    while waiting:
        found = waiting.pop()
        yield found
        for field, value in found.ListFields():
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                waiting.extend(_below(field, value))


def _below(field: FieldDescriptor, value: Any) -> Iterator[Message]:
    if field.message_type.GetOptions().map_entry:
        if field.message_type.fields_by_name["value"].type == FieldDescriptor.TYPE_MESSAGE:
            yield from value.values()
    elif field.is_repeated:
        yield from value
    else:
        yield value
