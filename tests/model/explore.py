"""Walk every state that a scenario can reach, and check the promises in each.

::

    for each state, once:  each actor's next steps | a crash | a lost put that lands | a tick of the clock

docs/reference/model.md lists the assumptions: a transaction commits within the retention of removed files, a stopped
publisher continues within it, and one that wrote after its lease ran out lives long enough to leave its doubt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from tests.model import sidecars
from tests.model.actors import FIRST, KINDS, RETENTION, Actor, Publishing, Writing, set_actor
from tests.model.lake import Commit, File, Lake, Lease, Rules, taken, with_commit
from tests.model.promises import ALWAYS, IN_THE_END

CRASHED = "crashed"


class Scenario(NamedTuple):
    """Who works on a table, and how much may go wrong.

    Args:
        name: For people.
        actors: At most one of a name.
        ticks: Of the clock.
        crashes, losses: At most so many.
        deletes: Row "a" was deleted in version 1, so that version 0 has a file that the table no longer has.
        versions: Further ones, which change no file, and a V2 checkpoint of version 1.
        keeps_log: Clean-ups keep what the table says.
    """

    name: str
    actors: tuple[Actor, ...]
    ticks: int = 0
    crashes: int = 0
    losses: int = 0
    deletes: bool = False
    versions: int = 0
    keeps_log: bool = True


class Explored(NamedTuple):
    """What was found.

    Args:
        states: Different ones.
        steps: Between them.
        wrong: The promise that is broken and how; empty if none is.
        trace: The shortest way there.
    """

    states: int
    steps: int
    wrong: str = ""
    trace: tuple[str, ...] = ()


def begin(scenario: Scenario) -> Lake:
    """The first state: a table of two rows in one file."""
    whole, rest = File("first.parquet", frozenset("ab")), File("rest.parquet", frozenset("b"))
    lake = Lake(
        time=0,
        history=(),
        logged=frozenset(),
        strays=frozenset(),
        checkpoints=frozenset(),
        files=((whole, 0),),
        pending=frozenset(),
        manifest=None,
        state=None,
        lease=Lease(),
        doubt=False,
        actors=tuple((FIRST | sidecars.FIRST)[actor.kind] for actor in scenario.actors),
        told=("",) * len(scenario.actors),
        crashes=scenario.crashes,
        losses=scenario.losses,
        keeps_log=scenario.keeps_log,
    )
    lake = with_commit(lake, 0, Commit("nobody", "CREATE", adds=frozenset([whole])))
    if scenario.deletes:
        lake = lake._replace(files=(*lake.files, (rest, 0)))
        lake = with_commit(lake, 1, Commit("somebody", "DELETE", frozenset([rest]), frozenset([whole]), row="a"))
    for number in range(scenario.versions):
        lake = with_commit(lake, number + 1, Commit(f"somebody {number}", "SET TBLPROPERTIES"))
    return sidecars.with_checkpoints(lake) if scenario.versions else lake


def is_over(local: object) -> bool:
    """Whether an actor takes no more steps."""
    return local == CRASHED or getattr(local, "at", "") == "end"


def steps(lake: Lake, scenario: Scenario, rules: Rules) -> Iterator[tuple[str, Lake]]:
    """Everything that can happen next."""
    for index, actor in enumerate(scenario.actors):
        local = lake.actors[index]
        if is_over(local):
            continue
        yield from (KINDS.get(actor.kind) or sidecars.KINDS[actor.kind])(lake, index, actor, rules)
        if lake.crashes and not has_written_late(lake, local):
            yield f"{actor.name} dies", set_actor(lake._replace(crashes=lake.crashes - 1), index, CRASHED)
    for put in sorted(lake.pending):
        after = lake._replace(pending=lake.pending - {put})
        if put.version not in taken(lake) or not rules.put_if_absent:
            yield f"{put.commit.by}'s put of {put.version} lands", with_commit(after, put.version, put.commit)
        else:
            yield f"{put.commit.by}'s put of {put.version} is refused", after
    if lake.time < scenario.ticks and all(is_in_time(lake, local) for local in lake.actors):
        yield "a tick", tick(lake)


def has_written_late(lake: Lake, local: object) -> bool:
    """Whether a publisher wrote after its lease ran out and has not said so yet."""
    return isinstance(local, Publishing) and local.wrote and lake.time >= local.expires


def is_in_time(lake: Lake, local: object) -> bool:
    """Whether a transaction that is on its way, or a publisher about to write, may stay so for another tick."""
    if isinstance(local, Publishing) and local.at in ("write", "state"):
        return lake.time < local.expires + 1
    if isinstance(local, sidecars.Checkpointing):
        return sidecars.is_in_time(lake, local)
    if not isinstance(local, Writing) or local.at not in ("put", "put it", "settle", "follow") or local.commit is None:
        return True
    return not local.commit.adds or local.commit.op == "RESTORE" or lake.time + 1 - local.began <= RETENTION


def tick(lake: Lake) -> Lake:
    """A tick later; a put that is late by more than the retention lands no more."""
    written = dict(lake.files)
    now = lake.time + 1
    kept = frozenset(
        put for put in lake.pending if all(now - written.get(file, now) <= RETENTION for file in put.commit.adds)
    )
    return lake._replace(time=now, pending=kept)


def explore(scenario: Scenario, rules: Rules | None = None) -> Explored:
    """Walk all of a scenario, breadth first, to its end or to the first promise that is broken."""
    rules = rules or Rules()
    names = tuple(actor.name for actor in scenario.actors)
    first = begin(scenario)
    came: dict[Lake, tuple[Lake, str] | None] = {first: None}
    waiting, taken = deque([first]), 0
    while waiting:
        lake = waiting.popleft()
        is_end = all(is_over(local) for local in lake.actors)
        for promise in (*ALWAYS, *(IN_THE_END if is_end else ())):
            wrong = promise(lake, names)
            if wrong:
                return Explored(len(came), taken, f"{promise.__name__}: {wrong}", tuple(way(came, lake)))
        for label, after in steps(lake, scenario, rules):
            taken += 1
            if after not in came:
                came[after] = (lake, label)
                waiting.append(after)
    return Explored(len(came), taken)


def way(came: dict[Lake, tuple[Lake, str] | None], lake: Lake) -> list[str]:
    """How a state was reached first."""
    labels = []
    while (before := came[lake]) is not None:
        lake, label = before
        labels.append(label)
    return labels[::-1]
