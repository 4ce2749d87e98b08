"""Derive the classes that clients of Spark Connect use from the classic ones: each method sends its call to the server.

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
    """What stands for an object on the server.

    Args:
        chain: The calls that give it there.
    """

    chain: Chain


def sent(
    classic: Callable[Concatenate[Any, _P], _R], give: Callable[[Any, Call], Any]
) -> Callable[Concatenate[Any, _P], _R]:
    """Return the remote twin of a method: it checks its arguments as the classic one does, and sends the call.

    Args:
        classic: The method, of which the twin has the signature, the text and the types.
        give: Gets the owner and the call, and returns what the twin returns.
    """

    @functools.wraps(classic)
    def method(self: Any, /, *arguments: _P.args, **named: _P.kwargs) -> _R:
        bound = accepted(classic, self, *arguments, **named)
        return cast("_R", give(self, Call(classic.__name__, bound.args[1:], bound.kwargs)))

    return method


def rows(owner: Any, call: Call) -> DataFrame:
    """Send a call; return the rows that it gives."""
    return cast("Chain", owner.chain).then(call).rows()


def counts(owner: Any, call: Call) -> Any:
    """Send a call; return what it counted."""
    return result_of(rows(owner, call).collect()[0][0])


def nothing(owner: Any, call: Call) -> None:
    """Send a call that gives nothing."""
    owner.chain.then(call).run()


def further(owner: Any, call: Call) -> Any:
    """Add a call to those of a builder, which is returned, or another with all of them if it does not change."""
    chain = owner.chain.then(call)
    if isinstance(owner, Remote):
        return replace(owner, chain=chain)
    owner.chain = chain
    return owner


def named(owner: Any, call: Call) -> Any:
    """Name a table for conditions: return it with the name."""
    (label,) = call.arguments
    chain = replace(owner.chain.then(call), given=Given(owner.chain.given.ids, label))
    return replace(owner, chain=chain, label=label)
