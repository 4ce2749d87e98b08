"""Encode the calls of a remote ``DeltaTable`` and their counts as messages, and decode them on the other side.

::

    forName("t").alias("a").merge(frame, condition).whenMatchedDelete().execute()
    --> [Call("forName", …), Call("alias", …), Call("merge", …), …] --> JSON, plans and expressions as Spark's messages

Expressions are sent as Spark Connect's own messages, never as text that would be parsed again.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import Any, Final

from pydelta.commands.change.delete import DeleteResult
from pydelta.commands.change.update import UpdateResult
from pydelta.commands.erase.command import ErasureResult
from pydelta.commands.optimize.reorg import PurgeResult
from pydelta.log import CheckpointResult, CleanupResult

__all__ = [
    "COMMAND_URL",
    "RESULTS",
    "Call",
    "Expression",
    "Schema",
    "WireIdentity",
    "WirePlan",
    "packed",
    "result_of",
    "result_text",
    "rewritten",
    "unpacked",
]

COMMAND_URL: Final = "type.googleapis.com/pydelta.Command"
RESULTS: Final = (CheckpointResult, CleanupResult, DeleteResult, ErasureResult, PurgeResult, UpdateResult)
"""Results that a remote call returns as objects, like a local one, instead of rows."""


@dataclass(frozen=True)
class WirePlan:
    """A DataFrame, as a serialized ``spark.connect.Relation``."""

    data: bytes


@dataclass(frozen=True)
class Expression:
    """A Column, as a serialized ``spark.connect.Expression``."""

    data: bytes


@dataclass(frozen=True)
class Schema:
    """A Spark type, as JSON."""

    json: str


@dataclass(frozen=True)
class WireIdentity:
    """An ``IdentityGenerator``."""

    start: int
    step: int


@dataclass(frozen=True)
class Call:
    """A call of a method.

    Args:
        method: Name of the method.
        arguments: Positional arguments.
        named: Keyword arguments.
    """

    method: str
    arguments: Sequence[Any] = ()
    named: Mapping[str, Any] = field(default_factory=dict)


_Value = str | int | float | bool | None
_BYTES: Final[Mapping[str, Callable[[bytes], Any]]] = {"plan": WirePlan, "expression": Expression}


def packed(calls: Iterable[Call]) -> bytes:
    """Encode calls.

    Raises:
        TypeError: An argument cannot be sent; the error shows it.
    """
    listed = [[call.method, [_out(item) for item in call.arguments], _items(call.named)] for call in calls]
    return json.dumps(listed).encode()


def unpacked(data: bytes) -> list[Call]:
    """Decode calls.

    Raises:
        ValueError: The data is malformed.
    """
    try:
        return [
            Call(method, [_in(item) for item in arguments], {name: _in(value) for name, value in named})
            for method, arguments, named in json.loads(data)
        ]
    except (KeyError, TypeError) as error:
        raise ValueError(f"not the calls of a remote DeltaTable: {error}") from error


def rewritten(data: bytes, plan: Callable[[bytes], bytes], expression: Callable[[bytes], bytes]) -> bytes:
    """Replace the messages of plans and expressions in encoded calls."""

    def change(value: Any) -> Any:
        if isinstance(value, list):
            return [change(item) for item in value]
        if isinstance(value, dict):
            (kind, inner), *_ = value.items()
            if kind in _BYTES:
                other = plan if kind == "plan" else expression
                return {kind: _text(other(base64.b64decode(inner)))}
            return {kind: change(inner)}
        return value

    return json.dumps(change(json.loads(data))).encode()


def result_text(result: Any) -> str:
    """Encode the result of a command: the fields that its ``repr`` shows, as JSON."""
    return json.dumps([type(result).__name__, {it.name: getattr(result, it.name) for it in fields(result) if it.repr}])


def result_of(text: str) -> Any:
    """Decode the result of a command.

    Raises:
        ValueError: It is not one of ``RESULTS``, or has other fields: client and server have different versions.
    """
    try:
        name, counts = json.loads(text)
        return {kind.__name__: kind for kind in RESULTS}[name](**{key: _frozen(value) for key, value in counts.items()})
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"not the counts of a command, although it has run: {error}. "
            "Install the same version of pydelta on the client and on the server."
        ) from error


def _frozen(value: Any) -> Any:
    """Turn lists of JSON into tuples, as results have them."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _out(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, WirePlan):
        return {"plan": _text(value.data)}
    if isinstance(value, Expression):
        return {"expression": _text(value.data)}
    if isinstance(value, Schema):
        return {"schema": value.json}
    if isinstance(value, WireIdentity):
        return {"identity": [value.start, value.step]}
    if isinstance(value, dt.datetime):
        return {"time": value.isoformat()}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, Mapping):
        return {"items": _items(value)}
    if isinstance(value, Iterable):
        return {"list": [_out(item) for item in value]}
    raise TypeError(f"{value!r} of type {type(value).__name__} cannot be sent to the server.")


def _items(values: Mapping[Any, Any]) -> list[Any]:
    return [[_out(name), _out(value)] for name, value in values.items()]


def _in(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind in _BYTES:
        return _BYTES[kind](base64.b64decode(inner))
    return _READ[kind](inner)


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "schema": Schema,
    "identity": lambda numbers: WireIdentity(*numbers),
    "time": dt.datetime.fromisoformat,
    "decimal": Decimal,
    "items": lambda pairs: {_in(name): _in(value) for name, value in pairs},
    "list": lambda items: [_in(item) for item in items],
}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
