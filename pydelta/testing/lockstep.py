"""Run threads one at a time in a given order: interleavings without sleeps or luck."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

__all__ = ["Lockstep", "interleavings", "run_lockstep"]

_PATIENCE_S: Final = 30.0


class Lockstep:
    """A participant that ``at`` blocks until the schedule lets it continue. It can be a transaction's observer."""

    def __init__(self) -> None:
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self.done = False
        self.phases: list[str] = []
        self.result: Any = None

    def at(self, phase: str) -> None:
        """Stop the participant until its next turn."""
        self.phases.append(phase)
        self._stopped.release()
        self._wait(self._go)

    def turn(self) -> None:
        """Run the participant until it stops again or is done."""
        self._go.release()
        self._wait(self._stopped)

    def body(self, run: Callable[[Lockstep], Any]) -> None:
        """Run the participant's thread: wait for the first turn, then record the result or the error."""
        self._wait(self._go)
        try:
            self.result = run(self)
        except BaseException as error:  # noqa: BLE001 -- passed to the test, which judges it
            self.result = error
        finally:
            self.done = True
            self._stopped.release()

    @staticmethod
    def _wait(semaphore: threading.Semaphore) -> None:
        if not semaphore.acquire(timeout=_PATIENCE_S):
            raise TimeoutError("A participant did not reach its next phase: the schedule is stuck.")


def run_lockstep(
    bodies: Mapping[str, Callable[[Lockstep], Any]],
    schedule: Sequence[str],
    *,
    on_turn: Callable[[str], None] = lambda name: None,
) -> dict[str, Any]:
    """Run participants in threads, one at a time.

    Args:
        bodies: Functions by name. Each is called with its ``Lockstep`` and stops whenever it calls ``at``.
        schedule: Names in the order of turns. Turns of finished participants are skipped. When the schedule ends, the
            others are finished in the order of ``bodies``.
        on_turn: Called with the participant's name before each turn.

    Returns:
        The result of each participant, or the exception it raised.
    """
    steps = {name: Lockstep() for name in bodies}
    threads = [threading.Thread(target=steps[name].body, args=(body,), daemon=True) for name, body in bodies.items()]
    for thread in threads:
        thread.start()
    for name in schedule:
        if not steps[name].done:
            on_turn(name)
            steps[name].turn()
    for name, step in steps.items():
        while not step.done:
            on_turn(name)
            step.turn()
    for thread in threads:
        thread.join(_PATIENCE_S)
    return {name: step.result for name, step in steps.items()}


def interleavings(first: str, first_turns: int, second: str, second_turns: int) -> Iterator[tuple[str, ...]]:
    """List every way to merge this many turns of one participant with those of another.

    Example:
        >>> sorted("".join(turns) for turns in interleavings("a", 1, "b", 2))
        ['abb', 'bab', 'bba']
    """
    if not first_turns or not second_turns:
        yield (first,) * first_turns + (second,) * second_turns
        return
    for rest in interleavings(first, first_turns - 1, second, second_turns):
        yield (first, *rest)
    for rest in interleavings(first, first_turns, second, second_turns - 1):
        yield (second, *rest)
