"""Run two participants in every order that can matter, treating orders as equal if their turns do not interact.

Interaction is observed, not assumed: a ``WatchedStore`` records what each turn reads, lists and writes. The turns of
one run show where another order could have a different result, and that order runs next (dynamic partial-order
reduction). In the end, every order is equivalent, turn by turn, to one that was run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydelta.storage.interface import DeleteReport, ObjectInfo, PutOutcome
from pydelta.storage.memory import MemoryStore
from pydelta.testing.lockstep import Lockstep, run_lockstep

__all__ = ["Turn", "WatchedStore", "every_order", "run_every_order"]


@dataclass(slots=True)
class Turn:
    """The actions of a participant between two stops.

    Args:
        name: Name of the participant.
        reads: Paths that were read or checked.
        writes: Paths that were put or deleted, including puts that found an existing object.
        lists: Prefixes that were listed.
    """

    name: str
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    lists: set[str] = field(default_factory=set)

    def touches(self, other: Turn) -> bool:
        """Return whether the order of two turns can matter: one writes what the other reads, writes or lists."""
        return self._changes(other) or other._changes(self)

    def _changes(self, other: Turn) -> bool:
        if self.writes & (other.reads | other.writes):
            return True
        return any(path.startswith(prefix) for path in self.writes for prefix in other.lists)


class WatchedStore(MemoryStore):
    """A memory store that records what each turn does. ``begin`` starts a turn."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.turns: list[Turn] = [Turn("setting up")]

    def begin(self, name: str) -> None:
        """Record the following calls as a turn of this participant."""
        self.turns.append(Turn(name))

    def list_from(self, start: str, *, prefix: str) -> Iterator[ObjectInfo]:
        """See ``Store.list_from``."""
        self.turns[-1].lists.add(prefix)
        return super().list_from(start, prefix=prefix)

    def list_all(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """See ``Store.list_all``."""
        self.turns[-1].lists.add(prefix)
        return super().list_all(prefix)

    def read(self, path: str) -> bytes:
        """See ``Store.read``."""
        self.turns[-1].reads.add(path)
        return super().read(path)

    def head(self, path: str) -> ObjectInfo | None:
        """See ``Store.head``."""
        self.turns[-1].reads.add(path)
        return super().head(path)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """See ``Store.put_if_absent``."""
        self.turns[-1].writes.add(path)
        return super().put_if_absent(path, data)

    def put(self, path: str, data: bytes) -> None:
        """See ``Store.put``."""
        self.turns[-1].writes.add(path)
        super().put(path, data)

    def delete_many(self, paths: Iterable[str]) -> DeleteReport:
        """See ``Store.delete_many``."""
        names = list(paths)
        self.turns[-1].writes.update(names)
        return super().delete_many(names)


@dataclass(slots=True)
class _Choice:
    """A place in an order: the participant chosen, those to try there, and those already tried."""

    name: str
    wanted: set[str]
    tried: set[str]


def every_order(run: Callable[[Sequence[str]], Sequence[Turn]]) -> Iterator[tuple[str, ...]]:
    """Run two participants in every order that can matter, one order after the other.

    Args:
        run: Runs both from the start, with turns in the given order, and then to the end in any order that is always
            the same. Returns all turns.

    Yields:
        The order of each run, after the run.
    """
    path: list[_Choice] = []
    while True:
        turns = run([choice.name for choice in path])
        path += [_Choice(turn.name, {turn.name}, {turn.name}) for turn in turns[len(path) :]]
        for place, name in _races(turns):
            path[place].wanted.add(name)
        yield tuple(turn.name for turn in turns)
        while path and not path[-1].wanted - path[-1].tried:
            path.pop()
        if not path:
            return
        last = path[-1]
        last.name = min(last.wanted - last.tried)
        last.tried.add(last.name)


def run_every_order(
    start: Callable[[], tuple[WatchedStore, Mapping[str, Callable[[Lockstep], Any]]]],
) -> Iterator[tuple[tuple[str, ...], WatchedStore, dict[str, Any]]]:
    """Run two participants on a store, starting again for every order that can matter.

    Args:
        start: Creates the initial store and the participants; see ``run_lockstep``.

    Yields:
        The order, the store afterwards, and what each participant returned or raised.
    """
    ended: list[tuple[WatchedStore, dict[str, Any]]] = []

    def run(schedule: Sequence[str]) -> Sequence[Turn]:
        store, bodies = start()
        before = len(store.turns)
        results = run_lockstep(bodies, schedule, on_turn=store.begin)
        ended.append((store, results))
        return store.turns[before:]

    for order in every_order(run):
        store, results = ended.pop()
        yield order, store, results


def _races(turns: Sequence[Turn]) -> Iterator[tuple[int, str]]:
    """Find places where running the other participant first could change the outcome. Yields place and participant."""
    for later, turn in enumerate(turns):
        before = [place for place in range(later) if turns[place].name != turn.name and turns[place].touches(turn)]
        if not before:
            continue
        last = before[-1]
        own = [place for place in range(last + 1, later) if turns[place].name == turn.name]
        others = [place for place in range(last, later) if turns[place].name != turn.name]
        ordered = any(turns[other].touches(turns[mine]) for mine in own for other in others if other < mine)
        if not ordered:  # Otherwise earlier turns of this participant already had to wait for that turn.
            yield last, turn.name
