"""Compute the rows of each version from a log, and compare what each commit did with what its operation says. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pydelta.tools.certify.history import SETUP, Commit, Event, PlannedStep, Row, rows_written
from pydelta.tools.certify.promises import Broken

__all__ = ["MAINTENANCE", "Effect", "Rows", "effects", "name_rows", "states_of"]

Rows: TypeAlias = Counter[Row]
MAINTENANCE: Final = frozenset({"OPTIMIZE", "VACUUM START", "VACUUM END"})
"""Commits that change no row, of which an operation may make several beside its own."""
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a commit did.

    Args:
        version: Of the commit.
        saw: Rows that were there before and that it took up.
        missed: Rows that were there before, that its condition selects and that it left as they were.
        wrong: Why what it did is not what its operation says.
    """

    version: int
    saw: frozenset[Row] = frozenset()
    missed: frozenset[Row] = frozenset()
    wrong: tuple[Broken, ...] = field(default=())


def states_of(commits: Sequence[Commit]) -> dict[int, Rows]:
    """Return the rows after each version that is there; those of -1 are none."""
    found: dict[int, Rows] = {-1: Counter()}
    rows: Rows = Counter()
    for commit in commits:
        rows = rows.copy()
        rows.subtract(commit.removed)
        rows.update(commit.added)
        rows = Counter({row: count for row, count in rows.items() if count})
        found[commit.version] = rows
    return found


def effects(commits: Sequence[Commit], steps: Mapping[str, PlannedStep], events: Iterable[Event]) -> list[Effect]:
    """Compare what each commit did with what its operation says.

    Args:
        commits: Ascending.
        steps: By operation.
        events: For what restores went back to.
    """
    states = states_of(commits)
    targets = {
        event.version: event.target for event in events if event.step.kind == "restore" and event.outcome == "ok"
    }
    found, before, ever = [], -1, set[Row]()
    for commit in commits:
        change = _Change(commit, states[before], states[commit.version], ever)
        step = steps.get(commit.op or "")
        if commit.operation in MAINTENANCE or commit.op == SETUP:
            found.append(change.nothing())
        elif step is None:
            found.append(change.foreign())
        elif step.kind == "restore":
            target = targets.get(commit.version)
            found.append(change.restore(states, target))
        else:
            found.append(change.of(step))
        ever |= states[commit.version].keys()
        before = commit.version
    return found


def name_rows(rows: Iterable[Row]) -> str:
    """Name some rows in a sentence."""
    ids = sorted({f"{op}.{number}" for op, number, _, _ in rows})
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + more


class _Change:
    """A commit between two states; ``ever`` are rows of any version before."""

    def __init__(self, commit: Commit, before: Rows, after: Rows, ever: Set[Row]) -> None:
        self.commit, self.before, self.after, self.ever = commit, before, after, ever
        self.gone, self.new = before - after, after - before

    def _broken(self, says: str, rows: Iterable[Row] = ()) -> Broken:
        ops = {self.commit.op or "", *(row[0] for row in rows)} - {""}
        return Broken(
            promise="effects", says=says[0].upper() + says[1:], versions=(self.commit.version,), ops=tuple(sorted(ops))
        )

    def _who(self) -> str:
        return f"version {self.commit.version} ({self.commit.operation or 'a commit'} of {self.commit.op or 'nobody'})"

    def nothing(self) -> Effect:
        """A commit that may change no row."""
        return Effect(version=self.commit.version, wrong=tuple(self._compare(Counter(), Counter())))

    def foreign(self) -> Effect:
        """A commit that no operation of the run made."""
        says = f"{self._who()} was made by nobody of this run: somebody else writes here, or the commit lost its name."
        return Effect(version=self.commit.version, wrong=(self._broken(says),))

    def restore(self, states: Mapping[int, Rows], target: int | None) -> Effect:
        """A restore: the rows of its target, and of blind appends that it did not see."""
        if target is None:  # it died, and its target with it: any version will do
            fits = [version for version, rows in states.items() if version < self.commit.version and rows == self.after]
            if fits:
                return Effect(version=self.commit.version, saw=frozenset(self.before))
            says = f"{self._who()} has rows that no version before it had."
            return Effect(version=self.commit.version, wrong=(self._broken(says),))
        wanted = states.get(target, Counter())
        missed = frozenset((self.after - wanted) & self.before)
        unwanted = (self.after - wanted) - self.before
        wrong = []
        if lacking := wanted - self.after:
            wrong.append(
                self._broken(
                    f"Rows lost: {self._who()} restored version {target} without {name_rows(lacking)}.", lacking
                )
            )
        if unwanted:
            wrong.append(
                self._broken(
                    f"{self._who()} restored version {target} with {name_rows(unwanted)}, which it did not have.",
                    unwanted,
                )
            )
        saw = frozenset(self.before) - missed
        return Effect(version=self.commit.version, saw=saw, missed=missed, wrong=tuple(wrong))

    def of(self, step: PlannedStep) -> Effect:
        """A commit of an operation that changes rows of one key, or adds some."""
        mine = Counter(rows_written(step))
        of_key = Counter({row: count for row, count in self.before.items() if row[2] == step.key})
        changes = step.kind in ("delete", "update", "merge", "replace")
        taken = self.gone & of_key if changes else Counter[Row]()
        expected: Rows = Counter()
        if step.kind in ("append", "stream", "replace"):
            expected = mine
        elif step.kind in ("update", "merge"):
            expected = Counter({(op, number, key, step.op): count for (op, number, key, _), count in taken.items()})
            inserted = (step.op, 0, step.key, step.op)
            if step.kind == "merge" and not taken and self.new[inserted]:
                expected = Counter([inserted])
        missed = frozenset(of_key - taken) if changes else frozenset[Row]()
        wrong = tuple(self._compare(taken, expected))
        return Effect(version=self.commit.version, saw=frozenset(taken), missed=missed, wrong=wrong)

    def _compare(self, taken: Rows, expected: Rows) -> Iterable[Broken]:
        """What went beyond what may go, and came beyond what comes."""
        if lost := self.gone - taken:
            yield self._broken(
                f"Rows lost: {name_rows(lost)} went away in {self._who()}, which does not delete them.", lost
            )
        if lacking := expected - self.new:
            yield self._broken(f"Rows lost: {self._who()} should have brought {name_rows(lacking)}.", lacking)
        doubled = Counter({row: count for row, count in self.new.items() if self.after[row] > 1})
        extra = self.new - expected
        if doubled:
            yield self._broken(
                f"Rows doubled: {name_rows(doubled)} stand several times from {self._who()} on.", doubled
            )
        ids = {row[:2] for row in self.ever}
        back = Counter({row: count for row, count in (extra - doubled).items() if row[:2] in ids})
        if back:
            yield self._broken(
                f"Rows came back: {name_rows(back)} had been deleted or changed, and are there again as they were, "
                f"from {self._who()} on.",
                back,
            )
        if foreign := extra - doubled - back:
            yield self._broken(f"{self._who()} brought rows of another operation: {name_rows(foreign)}.", foreign)
