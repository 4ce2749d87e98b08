"""Choose tests so that nearly all of what they run stays run."""

from __future__ import annotations

import heapq
import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["FILE", "IN_TURN", "TURNS", "Choice", "LeftOut", "chosen", "is_its_third", "is_its_turn", "names_in"]

FILE = Path(__file__).with_name("left_out.txt")
IN_TURN = Path(__file__).with_name("in_turn.txt")
CHEAP_SECONDS = 0.3
FEW_BRANCHES = 200
NEW_BRANCHES_PER_SECOND = 1.0
"""What a test has to run that none before it runs, for each second of the processor: another one waits for its turn."""
Branches = npt.NDArray[np.int64]
TURNS = 12


@dataclass(frozen=True)
class Choice:
    """Which tests run each time.

    Args:
        taken: Each time.
        in_turn: One case of each test of which no case is taken, and those that run what no taken one does: by turns.
        left_out: Further cases, which run more rarely.
    """

    taken: frozenset[str]
    in_turn: frozenset[str]
    left_out: frozenset[str]


def chosen(tests: Mapping[str, Branches], seconds: Mapping[str, float], number_of_branches: int) -> Choice:
    """Choose tests that together run nearly every branch which any of them runs, the cheapest first.

    A branch that only slow tests run, which run hardly anything else, is left to their turn. Cheap tests are taken.
    So is the cheapest case of a test that runs hardly a branch here: what it tries is in another process, where nothing
    is noted.

    Args:
        tests: For each test, the branches that it runs, as numbers below ``number_of_branches``.
        seconds: What each test costs; 0 where it is not known.
        number_of_branches: Of all.
    """
    cost = {name: max(seconds.get(name, 0.0), 0.05) for name in tests}
    cases: dict[str, list[str]] = defaultdict(list)
    for name in tests:
        cases[name.partition("[")[0]].append(name)
    first = {test: min(names, key=lambda name: (cost[name], name)) for test, names in cases.items()}
    taken = {name for name in tests if cost[name] < CHEAP_SECONDS}
    taken |= {name for name in first.values() if len(tests[name]) < FEW_BRANCHES}
    run = np.zeros(number_of_branches, bool)
    for name in taken:
        run[tests[name]] = True

    def worth(name: str) -> float:
        return int(np.count_nonzero(~run[tests[name]])) / cost[name]

    waiting = [(-worth(name), name) for name in tests if name not in taken]
    heapq.heapify(waiting)
    slow: list[str] = []
    while waiting:
        _, name = heapq.heappop(waiting)
        now = worth(name)
        if now < NEW_BRANCHES_PER_SECOND:
            slow.append(name)
            continue
        if waiting and now < -waiting[0][0]:  # others have run some of its branches since
            heapq.heappush(waiting, (-now, name))
            continue
        taken.add(name)
        run[tests[name]] = True
    in_turn = {first[test] for test, names in cases.items() if not taken.intersection(names)}
    for name in [*in_turn, *slow]:
        if worth(name):
            in_turn.add(name)
            run[tests[name]] = True
    return Choice(frozenset(taken), frozenset(in_turn), frozenset(tests.keys() - taken - in_turn))


@dataclass(frozen=True)
class LeftOut:
    """The tests that ``make test`` leaves out.

    Args:
        names: Those of ``left_out.txt``: further cases of tests.
        number: Of the part of them that is not left out after all, and
        of: how many parts there are; 0 for none.
        in_turn: Those of ``in_turn.txt``: tests that run in every ``TURNS``-th part.
    """

    names: frozenset[str]
    number: int = 0
    of: int = 0
    in_turn: frozenset[str] = frozenset()

    @classmethod
    def read(cls, part: str | None) -> LeftOut:
        """Read the lists; a part is written ``K/N``."""
        number, of = map(int, part.split("/")) if part else (0, 0)
        return cls(names_in(FILE), number, of, names_in(IN_TURN))

    def __contains__(self, name: str) -> bool:
        if name in self.in_turn:
            return not self.of or not _is_part(name, self.number, TURNS)
        return name in self.names and (not self.of or not _is_part(name, self.number, self.of))


def names_in(file: Path) -> frozenset[str]:
    """The names that a list has, one a line."""
    return frozenset(file.read_text().splitlines())


def _is_part(name: str, number: int, of: int) -> bool:
    return zlib.crc32(name.encode()) % of == number % of


def is_its_third(nodeid: str, part: str | None) -> bool:
    """Whether a test of a server, or one that CI alone runs, runs beside part K/N: one test in three with every K.

    Args:
        nodeid: Its name; all cases of a test run together.
        part: ``K/N``; None: no part is run, and every such test.
    """
    return part is None or _is_part(nodeid.partition("[")[0], int(part.partition("/")[0]), 3)


def is_its_turn(nodeid: str, part: str | None) -> bool:
    """Whether a test that is marked ``in_turn`` runs beside part K/N of those left out: a file in every twelfth K.

    Args:
        nodeid: Its name; all tests of a file have the same turn.
        part: ``K/N``; None: no part is run, and no such test.
    """
    if part is None:
        return False
    return _is_part(nodeid.partition("::")[0], int(part.partition("/")[0]), TURNS)
