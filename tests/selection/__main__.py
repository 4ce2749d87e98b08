"""Write ``left_out.txt`` from what a whole run noted: ``python -m tests.selection FOLDER``. See ``make selection``.

FOLDER has ``cpu.jsonl`` (``record.py``) and coverage's data with branches and contexts, in one file or more.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.selection.choosing import FILE, Branches, chosen

ALWAYS = ("tests/unit/", "tests/contracts/", "tests/property/", "tests/test_")  # start no Spark session


def main(folder: Path) -> None:
    """See above."""
    branches = _Branches()
    ran: dict[str, list[Branches]] = {}
    for file in sorted(folder.glob("*.cov")):
        for name, numbers in branches.of(file):
            ran.setdefault(name, []).append(numbers)
    by_test = {name: np.unique(np.concatenate(parts)) for name, parts in ran.items()}
    seconds: dict[str, float] = dict(map(json.loads, (folder / "cpu.jsonl").read_text().splitlines()))
    nothing = np.zeros(0, np.int64)
    candidates = {name: by_test.get(name, nothing) for name in seconds if not name.startswith(ALWAYS)}
    always = [numbers for name, numbers in by_test.items() if name.startswith(ALWAYS)]
    taken = chosen(candidates, seconds, np.unique(np.concatenate([nothing, *always])), len(branches))
    left_out = sorted(candidates.keys() - taken)
    FILE.write_text("".join(f"{name}\n" for name in left_out))
    spent = [sum(seconds[name] for name in names) for names in (taken, candidates)]
    print(f"{len(taken)} of {len(candidates)} tests, {spent[0]:.0f} of {spent[1]:.0f} s of the processor, run")
    print(f"all of {len(branches)} branches; {FILE.name} has {len(left_out)} lines")


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
