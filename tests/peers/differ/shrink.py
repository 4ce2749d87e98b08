"""``python -m differ.shrink --python PEER generated/SEED``: make a generated program that differs as small as it gets.

Statements are left out one at a time, all candidates of a round in one process of each engine, as long as one of them
still differs in what the whole program differs in first.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from corpus.generated import program

from differ.__main__ import results_of
from differ.compare import Difference, differences


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="differ.shrink", description="The smallest program that still differs.")
    parser.add_argument(
        "--python", required=True, help="the interpreter of the environment with PySpark 4.2 and pydelta"
    )
    parser.add_argument("name", help="a program of the generator, such as generated/17")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="programs-") as folder:
        name, found = asked.name, _found([asked.name], Path(folder), asked.python)[asked.name]
        if not found:
            print(f"{asked.name} is equal on both engines.")
            return 1
        kinds = {_kind(item) for item in found}
        while True:
            candidates = smaller(name)
            results = _found(candidates, Path(folder), asked.python)
            still = [item for item in candidates if kinds & {_kind(difference) for difference in results[item]}]
            if not still:
                break
            name = still[0]
            found = [item for item in _found([name], Path(folder), asked.python)[name] if _kind(item) in kinds]
    print("\n".join(f"{statement.text};" for statement in program(name).statements))
    for item in found:
        print(item)
    return 0


def smaller(name: str) -> list[str]:
    """The names of the program without one of its statements; the first one, which makes the table, stays.

    >>> smaller("generated/3~0,4,7")
    ['generated/3~0,7', 'generated/3~0,4']
    """
    base, _, kept = name.partition("~")
    places = [int(item) for item in kept.split(",")] if kept else list(range(len(program(base).statements)))
    rest = ([place for place in places if place != left] for left in places[1:])
    return [f"{base}~{','.join(map(str, item))}" for item in rest]


def _kind(difference: Difference) -> str:
    """What differs, without the place in the program: statements move when others go."""
    return ".".join(part for part in difference.where.split(".") if not part.isdigit())


def _found(names: list[str], folder: Path, python: str) -> dict[str, list[Difference]]:
    ours, theirs = (results_of(engine, names, folder, python) for engine in ("ours", "reference"))
    return {name: differences(name, ours[name], theirs[name]) for name in names}


if __name__ == "__main__":
    sys.exit(main())
