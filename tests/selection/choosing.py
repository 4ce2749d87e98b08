"""Choose tests so that what all of them run stays run."""

from __future__ import annotations

import heapq
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["FILE", "LeftOut", "chosen", "folded"]

FILE = Path(__file__).with_name("left_out.txt")
Branches = npt.NDArray[np.int64]


def chosen(
    candidates: Mapping[str, Branches], seconds: Mapping[str, float], always: Branches, number_of_branches: int
) -> set[str]:
    """Choose tests that run every branch which a candidate runs, the cheapest first; and one test of each file.

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
    by_file: dict[str, list[str]] = defaultdict(list)
    for name in candidates:
        by_file[name.partition("::")[0]].append(name)
    for names in by_file.values():
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


def folded(left_out: Iterable[str], all_tests: Iterable[str]) -> list[str]:
    """Write names shorter: a function for all of its cases, when all of them are left out."""
    out = set(left_out)
    kept = {name.partition("[")[0] for name in all_tests if name not in out}
    return sorted({name if name.partition("[")[0] in kept else name.partition("[")[0] for name in out})


@dataclass(frozen=True)
class LeftOut:
    """The tests that ``make test`` leaves out.

    Args:
        lines: Of ``left_out.txt``: tests, and functions that are left out with all of their cases.
        number: Of the part of them that is not left out after all, and
        of: how many parts there are; 0 for none.
    """

    lines: frozenset[str]
    number: int = 0
    of: int = 0

    @classmethod
    def read(cls, part: str | None) -> LeftOut:
        """Read the list; a part is written ``K/N``."""
        number, of = map(int, part.split("/")) if part else (0, 0)
        return cls(frozenset(FILE.read_text().splitlines()), number, of)

    def __contains__(self, name: str) -> bool:
        if name not in self.lines and name.partition("[")[0] not in self.lines:
            return False
        return not self.of or zlib.crc32(name.encode()) % self.of != self.number % self.of
