"""Choose tests so that what all of them run stays run."""

from __future__ import annotations

import heapq
import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["FILE", "TURNS", "LeftOut", "chosen", "is_its_turn"]

FILE = Path(__file__).with_name("left_out.txt")
Branches = npt.NDArray[np.int64]
TURNS = 4


def chosen(
    candidates: Mapping[str, Branches], seconds: Mapping[str, float], always: Branches, number_of_branches: int
) -> set[str]:
    """Choose tests that run every branch which a candidate runs, the cheapest first; and one case of each function.

    Args:
        candidates: For each test, the branches that it runs, as numbers below ``number_of_branches``.
        seconds: What each test costs; 0 where it is not known.
        always: Branches that tests run which are not to be chosen.
        number_of_branches: Of all.

    Returns:
        Names of tests.
    """
    run = np.zeros(number_of_branches, bool)
    run[always] = True
    cost = {name: max(seconds.get(name, 0.0), 0.05) for name in candidates}
    taken: set[str] = set()
    cases: dict[str, list[str]] = defaultdict(list)
    for name in candidates:
        cases[name.partition("[")[0]].append(name)
    for names in cases.values():
        first = min(names, key=lambda name: (cost[name], name))
        taken.add(first)
        run[candidates[first]] = True

    def worth(name: str) -> float:
        return int(np.count_nonzero(~run[candidates[name]])) / cost[name]

    waiting = [(-worth(name), name) for name in candidates if name not in taken]
    heapq.heapify(waiting)
    while waiting:
        _, name = heapq.heappop(waiting)
        now = worth(name)
        if not now:
            continue
        if waiting and now < -waiting[0][0]:  # others have run some of its branches since
            heapq.heappush(waiting, (-now, name))
            continue
        taken.add(name)
        run[candidates[name]] = True
    return taken


@dataclass(frozen=True)
class LeftOut:
    """The tests that ``make test`` leaves out.

    Args:
        names: Those of ``left_out.txt``.
        number: Of the part of them that is not left out after all, and
        of: how many parts there are; 0 for none.
    """

    names: frozenset[str]
    number: int = 0
    of: int = 0

    @classmethod
    def read(cls, part: str | None) -> LeftOut:
        """Read the list; a part is written ``K/N``."""
        number, of = map(int, part.split("/")) if part else (0, 0)
        return cls(frozenset(FILE.read_text().split("\n")), number, of)

    def __contains__(self, name: str) -> bool:
        if name not in self.names:
            return False
        return not self.of or zlib.crc32(name.encode()) % self.of != self.number % self.of


def is_its_turn(nodeid: str, part: str | None) -> bool:
    """Whether a test that is marked ``in_turn`` runs beside part K/N of those left out: a file in every fourth K.

    Args:
        nodeid: Its name; all tests of a file have the same turn.
        part: ``K/N``; None: no part is run, and no such test.
    """
    if part is None:
        return False
    return zlib.crc32(nodeid.partition("::")[0].encode()) % TURNS == int(part.partition("/")[0]) % TURNS
