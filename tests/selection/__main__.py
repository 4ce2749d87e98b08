"""Write ``left_out.txt`` and ``in_turn.txt`` from what a run noted: ``python -m tests.selection FOLDER``.

FOLDER has ``cpu.jsonl`` (``record.py``) and coverage's data with branches and contexts, in one file or more. After a
run of all tests the lists are new; after one of ``--selected`` what was left out before stays so.
``make test SUITE=selection`` runs both.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.selection.choosing import FILE, IN_TURN, Branches, chosen, names_in


def main(folder: Path) -> None:
    """See above."""
    branches = _Branches()
    ran: dict[str, list[Branches]] = {}
    for file in sorted(folder.glob("*.cov")):
        for name, numbers in branches.of(file):
            ran.setdefault(name, []).append(numbers)
    by_test = {name: np.unique(np.concatenate(parts)) for name, parts in ran.items()}
    seconds: dict[str, float] = dict(map(json.loads, (folder / "cpu.jsonl").read_text().splitlines()))
    tests = {name: by_test.get(name, np.zeros(0, np.int64)) for name in seconds}
    choice = chosen(tests, seconds, len(branches))
    before = names_in(FILE), names_in(IN_TURN)
    if tests.keys() & (before[0] | before[1]):  # they ran, so all did
        before = frozenset(), frozenset()
    for file, names in ((FILE, choice.left_out | before[0]), (IN_TURN, choice.in_turn | before[1])):
        file.write_text("".join(f"{name}\n" for name in sorted(names)))
        print(f"{file.name} has {len(names)} lines")
    spent = [sum(seconds[name] for name in names) for names in (choice.taken, choice.in_turn, tests)]
    every, always = (len(np.unique(np.concatenate([tests[name] for name in names]))) for names in (tests, choice.taken))
    print(f"{len(choice.taken)} of {len(tests)} tests, {spent[0]:.0f} of {spent[2]:.0f} s of the processor, run")
    print(f"{always} of {every} branches; those by turns, which run the others, take {spent[1]:.0f} s")


class _Branches:
    """Numbers for branches, the same in all files of data."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int, int], int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def of(self, data: Path) -> Iterator[tuple[str, Branches]]:
        """The branches of each test."""
        found = sqlite3.connect(data)
        rows = found.execute(
            "SELECT context.context, file.path, fromno, tono FROM arc "
            "JOIN context ON context.id = context_id JOIN file ON file.id = file_id ORDER BY context.context"
        )
        test, numbers = "", set[int]()
        for context, path, start, end in rows:
            name = context.rpartition("|")[0]
            if name != test:
                if test:
                    yield test, np.fromiter(numbers, np.int64)
                test, numbers = name, set()
            numbers.add(self._numbers.setdefault((path, start, end), len(self._numbers)))
        if test:
            yield test, np.fromiter(numbers, np.int64)
        found.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
