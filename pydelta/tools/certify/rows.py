"""Compute the rows of each version from a log, and compare each commit with its operation. Pure."""

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
"""Commits that change no row. One operation may make several of them besides its own commit."""
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The effect of a commit.

    Args:
        version: Version of the commit.
        saw: Earlier rows that it consumed.
        missed: Earlier rows that its condition selects but that it left unchanged.
        wrong: Differences between its effect and its operation.
    """

    version: int
    saw: frozenset[Row] = frozenset()
    missed: frozenset[Row] = frozenset()
    wrong: tuple[Broken, ...] = field(default=())


def states_of(commits: Sequence[Commit]) -> dict[int, Rows]:
    """Return the rows after each existing version. Version -1 has no rows."""
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
    """Compare the effect of each commit with its operation.

    Args:
        commits: Commits, ascending.
        steps: Operations by id.
        events: Events that name the targets of restores.
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
    """A commit between two states. ``ever`` holds the rows of all earlier versions."""

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
        """Judge a commit that must not change any row."""
        return Effect(version=self.commit.version, wrong=tuple(self._compare(Counter(), Counter())))

    def foreign(self) -> Effect:
        """Judge a commit that no operation of the run made."""
        says = f"{self._who()} was made by nobody of this run: somebody else writes here, or the commit lost its name."
        return Effect(version=self.commit.version, wrong=(self._broken(says),))

    def restore(self, states: Mapping[int, Rows], target: int | None) -> Effect:
        """Judge a restore, which has the rows of its target and of blind appends that it did not see."""
        if target is None:  # The process died and its target is not known, so any earlier version will do.
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
        """Judge a commit of an operation that adds rows or changes rows of one key."""
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
        """Yield rows that disappeared or appeared unexpectedly."""
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
