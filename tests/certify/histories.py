"""Write small histories by hand: each operation has a row, a key and a moment."""

from __future__ import annotations

from pydelta.tools.certify.checker import check
from pydelta.tools.certify.history import SETUP, Commit, EngineRead, Event, History, LostFile, PlannedStep, Row

START_MS = 1_000_000


def row(op: str, key: int = 0, rev: str = "", number: int = 0) -> Row:
    return (op, number, key, rev)


class Story:
    """A log that grows by commits, and events around it; moments count up by themselves."""

    def __init__(self, level: str = "Serializable") -> None:
        self.level, self.now = level, 0
        self.events: list[Event] = []
        self.commits = [Commit(version=0, op=SETUP, operation="CREATE TABLE", time_ms=START_MS)]
        self.lost: list[LostFile] = []
        self.engine_reads: list[EngineRead] = []
        self.more: dict[str, object] = {}

    def moment(self) -> int:
        self.now += 10
        return self.now

    def commit(self, op: str | None, operation: str = "WRITE", added=(), removed=(), **more) -> int:
        """Put a commit into the log; nobody is told."""
        version = self.commits[-1].version + 1
        at = START_MS + version
        made = {"version": version, "op": op, "operation": operation, "time_ms": at}
        self.commits.append(Commit(**(made | {"added": tuple(added), "removed": tuple(removed)} | more)))
        return version

    def event(self, kind: str, op: str, outcome: str = "ok", version: int | None = None, **more) -> Event:
        """Let an operation be invoked and answered, at ``during`` (two moments) or one after the other."""
        began, ended = more.pop("during", None) or (self.moment(), self.moment())
        key = more.pop("key", 0)
        step = PlannedStep(op=op, kind=kind, key=key, rows=more.pop("count", 1 if kind in ("append", "stream") else 0))
        ended = None if more.pop("dead", False) else ended
        event = Event(
            step=step, process=1, invoked_ns=began, returned_ns=ended, outcome=outcome, version=version, **more
        )
        self.events.append(event)
        return event

    def append(self, op: str, key: int = 0, **more) -> int:
        version = self.commit(op, added=[row(op, key)])
        self.event("append", op, version=version, key=key, **more)
        return version

    def delete(self, op: str, key: int, rows, **more) -> int:
        version = self.commit(op, "DELETE", removed=rows)
        self.event("delete", op, version=version, key=key, **more)
        return version

    def read(self, op: str, version: int, rows, **more) -> None:
        self.event("read", op, version=version, rows=tuple(rows), **more)

    def history(self) -> History:
        return History(
            level=self.level,
            events=tuple(self.events),
            commits=tuple(self.commits),
            lost=tuple(self.lost),
            reads=tuple(self.engine_reads),
            **self.more,
        )

    def broken(self) -> set[str]:
        """The names of the promises that did not hold."""
        return {item.promise for item in check(self.history())}

    def said(self) -> str:
        return " | ".join(item.says for item in check(self.history()))
