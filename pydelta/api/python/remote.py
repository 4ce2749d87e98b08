"""Derive the classes of Spark Connect clients from the classic ones: each method sends its call to the server.

::

    class RemoteDeltaTable(Remote):
        delete = sent(DeltaTable.delete, counts)  --> the signature, text and checks of DeltaTable.delete
        merge = sent(DeltaTable.merge, merging)   --> RemoteMergeBuilder … execute()
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from pydelta.api.python.arguments import accepted
from pydelta.api.python.remote_calls import Chain, Given
from pydelta.api.python.wire import Call, result_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Remote", "counts", "further", "named", "nothing", "rows", "sent"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Remote:
    """A stand-in for an object on the server.

    Args:
        chain: The calls that create the object there.
    """

    chain: Chain


def sent(
    classic: Callable[Concatenate[Any, _P], _R], give: Callable[[Any, Call], Any]
) -> Callable[Concatenate[Any, _P], _R]:
    """Return the remote counterpart of a method, which checks its arguments in the same way and sends the call.

    Args:
        classic: The method. Its counterpart has the same signature, docstring and types.
        give: Takes the owner and the call, and returns the counterpart's result.
    """

    @functools.wraps(classic)
    def method(self: Any, /, *arguments: _P.args, **named: _P.kwargs) -> _R:
        bound = accepted(classic, self, *arguments, **named)
        return cast("_R", give(self, Call(classic.__name__, bound.args[1:], bound.kwargs)))

    return method


def rows(owner: Any, call: Call) -> DataFrame:
    """Send a call, and return its rows."""
    return cast("Chain", owner.chain).then(call).rows()


def counts(owner: Any, call: Call) -> Any:
    """Send a call, and return its counts."""
    return result_of(rows(owner, call).collect()[0][0])


def nothing(owner: Any, call: Call) -> None:
    """Send a call without a result."""
    owner.chain.then(call).run()


def further(owner: Any, call: Call) -> Any:
    """Add a call to a builder's, and return the builder, or a new one if builders of its class are immutable."""
    chain = owner.chain.then(call)
    if isinstance(owner, Remote):
        return replace(owner, chain=chain)
    owner.chain = chain
    return owner


def named(owner: Any, call: Call) -> Any:
    """Return a copy of a table with an alias for conditions."""
    (label,) = call.arguments
    chain = replace(owner.chain.then(call), given=Given(owner.chain.given.ids, label))
    return replace(owner, chain=chain, label=label)
