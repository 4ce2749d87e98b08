"""Keep a world in which one seed decides everything: the clock, whose turn it is, what the store loses, who dies.

::

    actor calls the store --pause--> the seed says who goes on --> fault? --> effect on the memory --> the actor goes on

Actors are threads, of which one runs at a time. Whatever the engine does on threads of its own is done in line.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final
from unittest import mock

from pydelta.errors import StorageError
from pydelta.storage import memory, readers
from pydelta.storage.interface import PutOutcome
from pydelta.storage.memory import MemoryStore
from pydelta.storage.uris import split_location
from pydelta.testing import operations
from pydelta.testing.stores import SimulatedCrash, _Wrapper

__all__ = ["START_MS", "Actor", "Odds", "SimStore", "World", "replaced"]

START_MS: Final = 1_700_000_000_000
_CURRENT: Final = threading.local()


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """How often a call goes wrong: once in so many; 0 for never.

    Args:
        crash: The actor dies, before the call takes effect or after.
        lost_reply: A put-if-absent takes effect, and nobody learns of it.
        late: A put-if-absent has no reply, and takes effect later, if it can.
        fails: Nothing happens, and the store says that it may be tried again.
        lies: A put-if-absent replaces what is there and says that it created it: a planted fault.
    """

    crash: int = 250
    lost_reply: int = 40
    late: int = 40
    fails: int = 200
    lies: int = 0


@dataclass(eq=False, slots=True)
class Actor:
    """A process: a thread that runs when it is its turn."""

    name: str
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    stopped: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    done: bool = False
    dead: bool = False
    error: BaseException | None = None

    def run(self, body: Callable[[], None]) -> None:
        """Run the thread's body, from its first turn on."""
        self.go.acquire()
        _CURRENT.actor = self
        readers._own.reads = True  # reads side by side are done one by one, on this thread
        try:
            body()
        except BaseException as error:  # noqa: BLE001 -- judged by whoever started it
            self.error = error
        finally:
            self.done = True
            self.stopped.release()

    def turn(self) -> None:
        """Let it run until it calls the store again, or ends."""
        self.go.release()
        self.stopped.acquire()

    def pause(self) -> None:
        """Stop until the next turn."""
        self.stopped.release()
        self.go.acquire()


class World:
    """Everything that one seed decides.

    Args:
        seed: Where chance comes from.
        odds: What goes wrong.
        landed: Called for each object that appears under a new name, or replaces one: path, bytes, whether it replaced.

    Attributes:
        processes: What an actor that did not die knows from one round to the next.
    """

    def __init__(self, seed: str, odds: Odds, landed: Callable[[str, bytes, bool], None]) -> None:
        self.rng = random.Random(f"world {seed}")
        self._names = random.Random(f"names {seed}")
        self.odds = odds
        self.now_ms = START_MS
        self.trace: list[str] = []
        self.faults = True
        self._landed = landed
        self.memory = MemoryStore(f"memory://simulation{next(_NUMBERS)}/t")
        self._late: list[tuple[str, bytes]] = []
        self.processes: dict[str, Any] = {}

    def forget(self) -> None:
        """Let go of the objects, which a store in memory keeps for as long as the process lives."""
        memory._SPACES.pop(split_location(self.memory.root)[1])

    def uuid4(self) -> uuid.UUID:
        """Give the next id."""
        return uuid.UUID(int=self._names.getrandbits(128), version=4)

    def run_together(self, bodies: dict[str, Callable[[], None]]) -> dict[str, BaseException | None]:
        """Run actors until all have ended, one at a time, whose turn the seed says; then what is late lands."""
        actors = [Actor(name) for name in bodies]
        threads = [
            threading.Thread(target=actor.run, args=(body,), daemon=True)
            for actor, body in zip(actors, bodies.values(), strict=True)
        ]
        for thread in threads:
            thread.start()
        while running := [actor for actor in actors if not actor.done]:
            self.rng.choice(running).turn()
        for thread in threads:
            thread.join()
        while self._late:
            self._land_late()
        return {actor.name: actor.error for actor in actors}

    def call(self, verb: str, path: str, run: Callable[[], Any]) -> Any:
        """Do what an actor asks of the store, when it is its turn, or what becomes of that."""
        actor: Actor | None = getattr(_CURRENT, "actor", None)
        if actor is None:
            return run()
        if actor.dead:
            raise SimulatedCrash("the process is gone")
        actor.pause()
        self.now_ms += 1
        operations.NOW_MS = self.now_ms  # type: ignore[misc] -- what they stamp; put back by plan.recorded
        if self._late and self._hits(4):
            self._land_late()
        note = f"{actor.name}: {verb} {path}"
        self.trace.append(note)
        if self._hits(self.odds.crash):
            actor.dead = True
            after = self._hits(2)
            self.trace[-1] = f"{note} -- dies {'after' if after else 'before'}"
            if after:
                run()
            raise SimulatedCrash(note)
        if self._hits(self.odds.fails):
            self.trace[-1] = f"{note} -- fails"
            raise StorageError(f"{verb} of {path} failed on purpose.", retryable=True)
        return run()

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Create an object, or what becomes of that."""
        if self._hits(self.odds.lies) and self.memory.head(path) is not None:
            self.trace[-1] += " -- lies"
            self.put(path, data)
            return PutOutcome.CREATED
        if self._hits(self.odds.late):
            self.trace[-1] += " -- late"
            self._late.append((path, data))
            return PutOutcome.UNKNOWN
        outcome = self._create(path, data)
        if self._hits(self.odds.lost_reply):
            self.trace[-1] += f" -- {outcome.value}, reply lost"
            return PutOutcome.UNKNOWN
        self.trace[-1] += f" -- {outcome.value}"
        return outcome

    def put(self, path: str, data: bytes) -> None:
        """Create or replace an object."""
        replaced = self.memory.head(path) is not None
        self.memory.put(path, data)
        self._landed(path, data, replaced)

    def _create(self, path: str, data: bytes) -> PutOutcome:
        outcome = self.memory.put_if_absent(path, data)
        if outcome is PutOutcome.CREATED:
            self._landed(path, data, False)
        return outcome

    def _land_late(self) -> None:
        path, data = self._late.pop(0)
        self.trace.append(f"late: {path} -- {self._create(path, data).value}")

    def _hits(self, odds: int) -> bool:
        return bool(odds) and self.faults and self.rng.randrange(odds) == 0


_NUMBERS: Final = iter(range(1 << 62))


class SimStore(_Wrapper):
    """The store as an actor sees it."""

    def __init__(self, world: World) -> None:
        super().__init__(world.memory)
        self._world = world

    def _call(self, verb: str, path: str, run: Callable[[], Any]) -> Any:
        return self._world.call(verb, path, run)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """See ``Store.put_if_absent``."""
        outcome: PutOutcome = self._call("put_if_absent", path, lambda: self._world.put_if_absent(path, data))
        return outcome

    def put(self, path: str, data: bytes) -> None:
        """See ``Store.put``."""
        self._call("put", path, lambda: self._world.put(path, data))


class _InLine:
    """``ThreadPoolExecutor`` that does everything at once, on the thread that asks."""

    def __init__(self, *given: Any, **named: Any) -> None:
        del given, named

    def __enter__(self) -> _InLine:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def submit(self, run: Callable[..., Any], *given: Any, **named: Any) -> Future[Any]:
        """Run it now; a death of the process is not a result."""
        future: Future[Any] = Future()
        try:
            future.set_result(run(*given, **named))
        except Exception as error:  # noqa: BLE001 -- as a pool does
            future.set_exception(error)
        return future

    def map(self, run: Callable[..., Any], *items: Any) -> Iterator[Any]:
        """Run them all now."""
        return iter([run(*each) for each in zip(*items, strict=False)])

    def shutdown(self, **named: Any) -> None:
        """Nothing is running."""


_POOLS: Final = (
    "pydelta.commands.restore",
    "pydelta.commands.vacuum.delete",
    "pydelta.commands.vacuum.needed",
    "pydelta.commands.vacuum.listing",
    "pydelta.manifests.publish",
)


@contextlib.contextmanager
def replaced(world: World) -> Iterator[None]:
    """Let the engine take its time, its ids and its threads from the world."""
    with contextlib.ExitStack() as stack:
        for module in _POOLS:
            stack.enter_context(mock.patch(f"{module}.ThreadPoolExecutor", _InLine))
        stack.enter_context(mock.patch.object(time, "time_ns", lambda: world.now_ms * 1_000_000))
        stack.enter_context(mock.patch.object(time, "time", lambda: world.now_ms / 1000))
        stack.enter_context(mock.patch.object(uuid, "uuid4", world.uuid4))
        yield
