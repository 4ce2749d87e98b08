"""Check a history of events and the log as found, and return the promises that did not hold. Pure.

An operation with an unknown outcome may or may not be in the log. One acknowledged as done must be there, and one
reported as failed must not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pydelta.tools.certify.history import SETUP, Commit, Event, History, PlannedStep, acknowledged
from pydelta.tools.certify.order import isolation, window_of
from pydelta.tools.certify.promises import PROMISES, Broken
from pydelta.tools.certify.rows import MAINTENANCE, Rows, effects, name_rows, states_of

__all__ = ["check"]

_EXPECTED: Final = frozenset({"", "conflict", "store", "refused"})


def check(history: History) -> list[Broken]:
    """Find the promises that did not hold, in the order of ``PROMISES``.

    Args:
        history: The history of a run. The same history always gives the same answer.
    """
    run = _Run(history)
    found = [*run.log(), *run.acknowledgements(), *run.effects(), *run.reads(), *run.others()]
    order = list(PROMISES)
    unique = {(item.promise, item.says): item for item in found}
    return sorted(unique.values(), key=lambda item: (order.index(item.promise), item.versions))


class _Run:
    """A history with the values that are derived from it once."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.commits = sorted(history.commits, key=lambda commit: commit.version)
        self.at = {commit.version: commit for commit in self.commits}
        self.head = max(self.at, default=-1)
        self.states = states_of(self.commits)
        self.steps: Mapping[str, PlannedStep] = {event.step.op: event.step for event in history.events}
        self.by_op: dict[str, list[Event]] = {}
        for event in sorted(history.events, key=lambda event: event.invoked_ns):
            self.by_op.setdefault(event.step.op, []).append(event)
        self.told = _told(history.events)
        self.began = {op: events[0].invoked_ns for op, events in self.by_op.items()}
        self.landed: dict[str, list[int]] = {}
        for commit in self.commits:
            if commit.op is not None and commit.operation not in MAINTENANCE:
                self.landed.setdefault(commit.op, []).append(commit.version)

    # -- the log alone ----------------------------------------------------------------------------------------------

    def log(self) -> Iterator[Broken]:
        """Check that the log is complete and never rewritten, and that its times ascend."""
        if self.history.race:
            yield Broken(promise="put-if-absent", says=self.history.race)
        missing = tuple(version for version in range(self.head + 1) if version not in self.at)
        unreadable = dict(self.history.unreadable)
        if holes := tuple(version for version in missing if version not in unreadable):
            shown = ", ".join(map(str, holes[:5])) + (" …" if len(holes) > 5 else "")
            yield Broken(
                promise="gapless", says=f"The log reaches version {self.head}, without {shown}.", versions=holes
            )
        for version, reason in self.history.unreadable:
            yield Broken(promise="gapless", says=f"Version {version} cannot be read: {reason}", versions=(version,))
        for commit in self.commits:
            if commit.rewritten:
                first, now = commit.first_op or "nobody", commit.op or "nobody"
                says = f"Version {commit.version} was a commit of {first}, and is one of {now}: it was written over."
                ops = tuple(sorted({commit.first_op or "", commit.op or ""} - {""}))
                yield Broken(promise="immutable", says=says, versions=(commit.version,), ops=ops)
        for before, after in zip(self.commits, self.commits[1:], strict=False):
            yield from _times(before, after)

    # -- acknowledgements -------------------------------------------------------------------------------------------

    def acknowledgements(self) -> Iterator[Broken]:
        """Check that acknowledged operations are in the log once, and failed ones are not."""
        for event in acknowledged(self.history.events):
            assert event.version is not None, "acknowledged"
            commit = self.at.get(event.version)
            op = event.step.op
            if commit is not None and commit.op == op:
                continue
            elsewhere = [commit.version for commit in self.commits if commit.op == op]
            if commit is None:
                now = "there is no such version"
            else:
                now = f"that version is {commit.operation or 'a commit'} of {commit.op or 'nobody'}"
            more = (
                f", and its commit is version {elsewhere[0]}" if elsewhere else ", and its commit is nowhere in the log"
            )
            others = [commit.op] if commit is not None and commit.op else []
            yield Broken(
                promise="durable",
                says=f"{_name(event)} was told that version {event.version} is its commit, but {now}{more}.",
                versions=(event.version, *elsewhere),
                ops=(op, *others),
            )
        for op, versions in self.landed.items():
            if len(versions) > 1 and op != SETUP:
                yield Broken(
                    promise="once",
                    says=f"{self._named(op)} is in the log {len(versions)} times: versions {_list(versions)}.",
                    versions=tuple(versions),
                    ops=(op,),
                )
        for op, events in self.by_op.items():
            yield from self._outcome(op, events)

    def _outcome(self, op: str, events: Sequence[Event]) -> Iterator[Broken]:
        landed = self.landed.get(op, [])
        if landed and all(event.outcome == "failed" for event in events):
            yield Broken(
                promise="failed",
                says=f"{_name(events[-1])} failed ({events[-1].error or 'no reason given'}), but it is version "
                f"{landed[0]}.",
                versions=tuple(landed),
                ops=(op,),
            )
        for event in events:
            silent = event.outcome == "ok" and event.version is None
            if silent and event.step.kind in ("append", "stream") and not landed:
                yield Broken(
                    promise="durable",
                    says=f"{_name(event)} was told that its rows are there, but no version has them.",
                    ops=(op,),
                )

    def _named(self, op: str) -> str:
        return _name(self.by_op[op][0]) if op in self.by_op else op

    # -- rows -------------------------------------------------------------------------------------------------------

    def effects(self) -> Iterator[Broken]:
        """Check that each commit did what its operation says, and that the commits have a serial order."""
        found = effects(self.commits, self.steps, self.history.events)
        for effect in found:
            yield from effect.wrong
        windows = {
            commit.version: window_of(self.by_op[commit.op])
            for commit in self.commits
            if commit.op in self.by_op and commit.operation not in MAINTENANCE
        }
        yield from isolation(self.history.level, self.commits, found, windows)
        for event in self.history.events:
            if event.outcome == "ok" and event.version is None and event.step.kind in ("delete", "update", "replace"):
                yield from self._did_nothing(event)

    def _did_nothing(self, event: Event) -> Iterator[Broken]:
        """Check an operation that found nothing to change: some version at that time must have had nothing for it."""
        if event.step.rows:
            yield Broken(
                promise="durable",
                says=f"{_name(event)} was told that its rows are there, but no version is its commit.",
                ops=(event.step.op,),
            )
            return
        first, last = self._known_at(event), self._latest_at(event)
        versions = [version for version in range(first, last + 1) if version in self.states]
        if versions and all(any(row[2] == event.step.key for row in self.states[version]) for version in versions):
            between = f"version {first}" if first == last else f"each of the versions {first} to {last}"
            yield Broken(
                promise="isolation",
                says=f"{_name(event)} found no row with k = {event.step.key}, but {between}, which it may have read, "
                "has some.",
                versions=(first,),
                ops=(event.step.op,),
            )

    def _known_at(self, event: Event) -> int:
        """Return the newest version that was acknowledged or read before an event began."""
        place = bisect_left(self.told, event.invoked_ns, key=lambda item: item[0])
        return self.told[place - 1][1] if place else 0

    def _latest_at(self, event: Event) -> int:
        """Return the newest version that can have existed when an event ended."""
        if event.returned_ns is None:
            return self.head
        there = [commit.version for commit in self.commits if self.began.get(commit.op or "", 0) <= event.returned_ns]
        return max(there, default=0)

    # -- reads ------------------------------------------------------------------------------------------------------

    def reads(self) -> Iterator[Broken]:
        """Check that each read shows exactly one version, and none older than those acknowledged before it."""
        for event in self.history.events:
            if event.step.kind != "read" or event.outcome != "ok" or event.version is None:
                continue
            op = (event.step.op,)
            known = self._known_at(event)
            if event.version < known:
                yield Broken(
                    promise="fresh",
                    says=f"{_name(event)} saw version {event.version}, but version {known} had been acknowledged, or "
                    "read, before it began.",
                    versions=(event.version, known),
                    ops=(*op, *self._ops_at(known)),
                )
            if event.version not in self.states:
                says = f"{_name(event)} saw version {event.version}, which is not in the log."
                yield Broken(promise="snapshot", says=says, versions=(event.version,), ops=op)
            elif event.rows is not None:
                yield from self._compared(event, Counter(event.rows), event.version)

    def _ops_at(self, version: int) -> tuple[str, ...]:
        commit = self.at.get(version)
        return (commit.op,) if commit is not None and commit.op else ()

    def _compared(self, event: Event, rows: Rows, version: int) -> Iterator[Broken]:
        state = self.states[version]
        if rows == state:
            return
        same = [other for other, found in self.states.items() if found == rows and other >= 0]
        if same:
            says = f"{_name(event)} was told that it sees version {version}, but it saw the rows of version {same[-1]}."
        else:
            says = (
                f"{_name(event)} saw rows of no version; compared with version {version}: {_difference(rows, state)}."
            )
        wrong = {row[0] for row in (rows - state) + (state - rows)}
        yield Broken(promise="snapshot", says=says, versions=(version,), ops=(event.step.op, *sorted(wrong)[:5]))

    # -- files, other engines, errors -------------------------------------------------------------------------------

    def others(self) -> Iterator[Broken]:
        """Check that needed files exist, engines agree, and errors have a reason."""
        retained = self._first_retained()
        for file in self.history.lost:
            last = self.head if file.until is None else file.until - 1
            if last >= retained:
                says = f"{file.path} is gone, and version {last} needs it (versions from {retained} on are retained)."
                yield Broken(promise="files", says=says, versions=(file.since, last), ops=self._ops_at(file.since))
        for read in self.history.reads:
            promise = "checkpoints" if read.how == "checkpoint" else "engines"
            name = f"{read.engine}{f' ({read.how})' if read.how else ''}"
            if read.rows is None:
                if read.version >= retained:
                    says = f"{name} cannot read version {read.version}: {read.error}"
                    yield Broken(promise=promise, says=says, versions=(read.version,))
            elif Counter(read.rows) != self.states.get(read.version, Counter()):
                difference = _difference(Counter(read.rows), self.states.get(read.version, Counter()))
                says = f"{name} reads other rows in version {read.version} than the log has: {difference}."
                yield Broken(promise=promise, says=says, versions=(read.version,))
        for event in self.history.events:
            if event.trouble not in _EXPECTED:
                yield Broken(promise="errors", says=f"{_name(event)} failed: {event.error}", ops=(event.step.op,))

    def _first_retained(self) -> int:
        """Return the oldest version that no VACUUM was allowed to touch, which was current after the last cut-off."""
        cutoffs = [
            event.wall_ms - self.history.retention_seconds * 1000
            for event in self.history.events
            if event.step.kind == "vacuum" and event.wall_ms
        ]
        if not cutoffs:
            return 0
        for commit, following in zip(self.commits, self.commits[1:], strict=False):
            if following.time_ms > max(cutoffs):
                return commit.version
        return self.head


def _told(events: Sequence[Event]) -> list[tuple[int, int]]:
    """List the moments of acknowledgements, each with the newest version acknowledged by then."""
    moments = sorted(
        (event.returned_ns, event.version)
        for event in events
        if event.outcome == "ok" and event.version is not None and event.returned_ns is not None
    )
    newest, found = 0, []
    for moment, version in moments:
        newest = max(newest, version)
        found.append((moment, newest))
    return found


def _times(before: Commit, after: Commit) -> Iterator[Broken]:
    """Check that a later version has a later time."""
    for name, first, then in (
        ("time in the history", before.time_ms, after.time_ms),
        ("in-commit timestamp", before.stamp_ms, after.stamp_ms),
    ):
        if first and then and then <= first:
            later = f"The {name} of version {after.version} ({then})"
            says = f"{later} is not after that of version {before.version} ({first})."
            yield Broken(promise="times", says=says, versions=(before.version, after.version))


def _name(event: Event) -> str:
    return f"{event.step.kind.upper()} {event.step.op} ({event.engine}, process {event.process})"


def _list(versions: Sequence[int]) -> str:
    return ", ".join(map(str, versions))


def _difference(rows: Rows, state: Rows) -> str:
    extra, lacking = rows - state, state - rows
    parts = [f"{name_rows(lacking)} missing"] if lacking else []
    parts += [f"{name_rows(extra)} on top"] if extra else []
    return ", and ".join(parts)
