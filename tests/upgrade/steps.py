"""What the two versions do, and what has to be in the table then. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

EARLIER, NOW = "the earlier version", "this version"


class Step(NamedTuple):
    """One thing that one version does."""

    by: str
    do: str
    first: int
    count: int = 0

    @property
    def asked(self) -> dict[str, Any]:
        return {"do": self.do, "first": self.first, "count": self.count}


IN_TURN = (
    Step(EARLIER, "append", 0, 50),
    Step(NOW, "append", 50, 50),
    Step(NOW, "delete", 7),  # a deletion vector of this version, in a file of the earlier one
    Step(EARLIER, "delete", 8),  # the earlier version reads that vector and adds a row to it
    Step(EARLIER, "delete", 60),
    Step(NOW, "delete", 61),
    Step(NOW, "checkpoint", 0),
    Step(EARLIER, "append", 100, 20),  # after the other's checkpoint
    Step(EARLIER, "checkpoint", 0),
    Step(NOW, "append", 120, 20),
    Step(NOW, "delete", 100),
    Step(EARLIER, "delete", 120),
    Step(EARLIER, "append", 140, 10),  # a table that this version changed goes on with the earlier one alone
    Step(EARLIER, "delete", 141),
)
BESIDE = (Step(EARLIER, "many", 1000, 24), Step(NOW, "many", 2000, 24))


def expected_after(steps: Iterable[Step]) -> list[int]:
    """The ids that the table has to have."""
    found: set[int] = set()
    for step in steps:
        if step.do == "append":
            found |= set(range(step.first, step.first + step.count))
        elif step.do == "delete":
            found.discard(step.first)
        elif step.do == "many":
            numbers = range(step.first, step.first + step.count)
            found |= set(numbers) - {number - 1 for number in numbers if number % 3 == 2}
    return sorted(found)


def problems(step: Step, expected: list[int], answers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say what is wrong with what the versions read after a step."""
    found = []
    for name, read in answers.items():
        if read["ids"] != expected:
            lost = sorted(set(expected) - set(read["ids"]))[:5]
            more = [item for item in read["ids"] if item not in expected or read["ids"].count(item) > 1][:5]
            found.append(f"After {step.do} by {step.by}, {name} lacks {lost}, and has {more} too often.")
    if len({read["version"] for read in answers.values()}) > 1:
        found.append(f"After {step.do} by {step.by}, the versions of the table differ: {answers}.")
    return found
