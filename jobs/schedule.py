"""Run commands at the times that a file specifies: the stack's scheduler.

A line is ``every SECONDS COMMAND`` (at once, then this long after each start), ``daily HH:MM COMMAND`` (UTC), ``keep
COMMAND`` (at once, and within half a minute after it ends) or ``never COMMAND``. ``&&`` joins commands, each of which
runs if the previous one ended with 0; ``$NAME`` and ``${NAME:-default}`` come from the environment; ``#`` begins a
comment. A command that is still running when its time comes again is left alone. The output of commands is passed on,
and one line of JSON reports how each ended.

``--without-daily`` leaves the lines that have a time of day to another program (Airflow: docs/guides/airflow.md), and
``--as-json`` prints all lines for it.

With ``--status FILE`` the state of each line of the schedule is written there. ``--healthy`` reads it, and further
``--status`` files in the same format that commands write, and ends with 1 if the last run of a line failed, does not
end or did not begin. It prints the reasons. Problems of single tables are printed as warnings, because the service
works.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final

from pydelta.api.console.standard_output import sparing_output
from pydelta.errors import DeltaError, InvalidArgumentError
from pydelta.tools.files import replace_json
from pydelta.tools.jobs import JobParser

__all__ = ["Ended", "Entry", "Scheduler", "StatusFile", "main", "parse_schedule", "problems", "warnings"]

Command = tuple[str, ...]

_SETTLED: Final = dt.timedelta(minutes=2)
"""A command that is kept running has recovered from an earlier end once it has run this long."""

_STUCK: Final = dt.timedelta(hours=6)
"""A run that takes longer is reported as stuck."""

_KEPT_SECONDS: Final = 30
"""How often a command that is kept running is checked."""

_LATE: Final = dt.timedelta(minutes=10)
"""A line is reported as not running after ten times its interval plus this delay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The result of a command: its exit code, and the end of its output."""

    code: int
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Commands and when to run them: at an interval in seconds, at a time of day (UTC), or never if neither is set.

    An entry that ``keeps`` running is not expected to end.
    """

    commands: tuple[Command, ...]
    every: int | None = None
    at: dt.time | None = None
    keeps: bool = False

    def next_run(self, now: dt.datetime, last: dt.datetime | None) -> dt.datetime | None:
        """Return the time of the next run.

        Args:
            now: The current time in UTC.
            last: When it last began; None if it has not begun yet.
        """
        if self.every is not None:
            return now if last is None else last + dt.timedelta(seconds=self.every)
        if self.at is None:
            return None
        today = dt.datetime.combine(now.date(), self.at, dt.UTC)
        return today if today > now else today + dt.timedelta(days=1)

    def as_json(self) -> dict[str, Any]:
        """Return its fields as JSON has them."""
        at = f"{self.at:%H:%M}" if self.at else None
        return {"commands": list(map(list, self.commands)), "every": self.every, "at": at, "keeps": self.keeps}


def parse_schedule(text: str, env: Mapping[str, str]) -> list[Entry]:
    """Parse a schedule.

    Raises:
        InvalidArgumentError: A line is invalid; the message has its number.
    """
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        plain = re.sub(r"(^|\s)#.*$", "", line).strip()
        if not plain:
            continue
        try:
            entries.append(_entry(shlex.split(_expanded(plain, env))))
        except ValueError as error:
            raise InvalidArgumentError(
                f"Line {number} of the schedule cannot be understood: {error}.",
                hint="Write 'every SECONDS COMMAND', 'daily HH:MM COMMAND', 'keep COMMAND' or 'never COMMAND'.",
            ) from error
    return entries


def _expanded(line: str, env: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name, default = match["plain"] or match["name"], match["default"]
        found = env.get(name) or default
        if found is None:
            raise ValueError(f"${name} is not set")
        return found

    return re.sub(r"\$(?:(?P<plain>[A-Z_]+)|\{(?P<name>[A-Z_]+)(?::-(?P<default>[^}]*))?\})", value, line)


def _entry(words: Sequence[str]) -> Entry:
    every: int | None = None
    at: dt.time | None = None
    kind, *rest = words
    if kind == "daily" and rest and rest[0] == "never":
        rest = rest[1:]
    elif kind == "daily" and rest:
        at, rest = dt.time.fromisoformat(rest[0]).replace(tzinfo=None), rest[1:]
    elif kind == "every" and rest:
        every, rest = int(rest[0]), rest[1:]
        if every < 1:
            raise ValueError("less than a second")
    elif kind == "keep":
        every = _KEPT_SECONDS
    elif kind != "never":
        raise ValueError(f"it begins with {kind!r}")
    commands: list[list[str]] = [[]]
    for word in rest:
        if word == "&&":
            commands.append([])
        else:
            commands[-1].append(word)
    if not all(commands):
        raise ValueError("there is no command")
    return Entry(commands=tuple(map(tuple, commands)), every=every, at=at, keeps=kind == "keep")


@dataclass(slots=True)
class StatusFile:
    """The state of each entry in a JSON file that is replaced atomically; does nothing without a path."""

    path: Path | None = None
    _rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, number: int, **facts: Any) -> None:
        """Update facts about an entry."""
        if self.path is None:
            return
        with self._lock:
            self._rows.setdefault(number, {}).update(facts)
            replace_json(self.path, [self._rows[key] for key in sorted(self._rows)])


def problems(rows: Sequence[Mapping[str, Any]], now: dt.datetime) -> list[str]:
    """List the problems of entries.

    Args:
        rows: Content of a ``StatusFile``.
        now: The current time in UTC.
    """
    found = []
    for row in rows:
        if row.get("warning"):
            continue
        name, since, ended = row["commands"], _time(row.get("since")), _time(row.get("ended"))
        keeps = bool(row.get("keeps"))
        if row.get("code") and not (keeps and since is not None and now - since > _SETTLED):
            found.append(
                f"{row['command']} ended with exit code {row['code']} at {row['ended']}\n{row['said']}".strip()
            )
        if since is not None and now - since > _STUCK and not keeps:
            found.append(f"{name} has been running since {row['since']} and does not come to an end")
        waits = dt.timedelta(seconds=10 * (row.get("every") or 0)) + _LATE
        if since is None and row.get("every") and ended is not None and now - ended > waits:
            found.append(f"{name} has not run since {row['ended']}, and should every {row['every']} s")
    return found


def warnings(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the problems of single tables: warning rows, and warning lines in the output of successful commands.

    Args:
        rows: Content of a ``StatusFile``.
    """
    found = [f"Warning: {row['command']}: {row['said']}" for row in rows if row.get("warning")]
    output = "\n".join(row.get("said") or "" for row in rows if row.get("code") == 0)
    return found + [line for line in output.splitlines() if line.startswith("Warning: ")]


def _time(text: str | None) -> dt.datetime | None:
    return dt.datetime.fromisoformat(text) if text else None


class Scheduler:
    """Starts entries when they are due, each in its own thread, never twice at once.

    Args:
        entries: The schedule.
        execute: Runs a command and returns how it ended.
        clock: Returns the time in UTC.
        status: Receives the state of entries.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        execute: Callable[[Command], Ended],
        clock: Callable[[], dt.datetime],
        status: StatusFile | None = None,
    ) -> None:
        self._entries = entries
        self._execute = execute
        self._clock = clock
        self._status = status or StatusFile()
        for number, entry in enumerate(entries):
            name = " && ".join(map(" ".join, entry.commands))
            at = f"{entry.at:%H:%M}" if entry.at else None
            off = entry.every is None and entry.at is None
            self._status.note(number, commands=name, every=entry.every, keeps=entry.keeps, at=at, off=off)
        self._last: dict[int, dt.datetime] = {}
        self._next = {number: entry.next_run(clock(), None) for number, entry in enumerate(entries)}
        for number in self._next:
            self._note_due(number)
        self._running: dict[int, threading.Thread] = {}

    def start_due(self) -> float | None:
        """Start due entries. Returns the seconds until the next one is due, or None if none ever will be."""
        now = self._clock()
        for number, entry in enumerate(self._entries):
            due = self._next[number]
            latest = entry.next_run(now, now)
            if due is None or latest is None:
                continue
            if due > now:
                # A time later than a run at this moment would set means that the clock was set back, maybe by a day.
                if latest < due:
                    self._next[number] = latest
                    self._note_due(number)
                continue
            self._last[number] = now
            self._next[number] = latest
            self._note_due(number)
            thread = self._running.get(number)
            if thread is None or not thread.is_alive():
                self._running[number] = threading.Thread(target=self._run, args=(number, entry), daemon=True)
                self._running[number].start()
        times = [due for due in self._next.values() if due is not None]
        return max((min(times) - now).total_seconds(), 0.0) if times else None

    def _note_due(self, number: int) -> None:
        due = self._next[number]
        self._status.note(number, due=_shown(due) if due is not None else None)

    def join(self) -> None:
        """Wait for running entries."""
        for thread in self._running.values():
            thread.join()

    def _run(self, number: int, entry: Entry) -> None:
        self._status.note(number, since=_shown(self._clock()))
        for command in entry.commands:
            began, name = self._clock(), " ".join(command)
            ended = self._execute(command)
            now = self._clock()
            took = round((now - began).total_seconds(), 1)
            print(json.dumps({"command": name, "exit_code": ended.code, "seconds": took}), flush=True)
            if ended.code:
                break
        self._status.note(number, since=None, ended=_shown(now), command=name, code=ended.code, said=ended.said)


def _shown(time: dt.datetime) -> str:
    return time.isoformat(timespec="seconds")


_LINES: Final = 12


def _pump(source: IO[bytes], target: IO[str], last: deque[str]) -> None:
    """Forward lines as they arrive, and remember the last ones."""
    for line in source:
        text = line.decode(errors="replace").rstrip("\n")
        print(text, file=target, flush=True)
        if text.strip():
            last.append(text[:500])


def _last_words(answers: Sequence[str], errors: Sequence[str]) -> str:
    """Choose the lines that explain a result: a job reports errors in its line of JSON, other commands in messages."""
    if any('"error":' in answer for answer in answers) or not errors:
        return "\n".join(answers)
    return "\n".join(errors)


class _Children:
    """Runs commands, and ends them when the process has to end."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._children: set[subprocess.Popen[bytes]] = set()

    def execute(self, command: Command) -> Ended:
        """Run a command to its end. Returns code 127 if it cannot be started."""
        if self.stop.is_set():
            return Ended(code=143)
        try:
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except OSError as error:
            message = f"{command[0]}: {error.strerror}"
            print(message, file=sys.stderr, flush=True)
            return Ended(code=127, said=message)
        self._children.add(child)
        assert child.stdout is not None
        assert child.stderr is not None
        answers: deque[str] = deque(maxlen=1)
        errors: deque[str] = deque(maxlen=_LINES)
        pumps = [
            threading.Thread(target=_pump, args=(child.stdout, sys.stdout, answers), daemon=True),
            threading.Thread(target=_pump, args=(child.stderr, sys.stderr, errors), daemon=True),
        ]
        for pump in pumps:
            pump.start()
        code = child.wait()
        for pump in pumps:
            pump.join()
        self._children.discard(child)
        return Ended(code=code, said=_last_words(answers, errors))

    def end(self, *_: object) -> None:
        """Stop on a signal, and end all children."""
        self.stop.set()
        for child in list(self._children):
            child.terminate()


def _healthy(statuses: Sequence[Path]) -> int:
    """Print the problems, and return the exit code.

    Raises:
        InvalidArgumentError: No file was named.
        OSError: The file does not exist yet.
    """
    if not statuses:
        raise InvalidArgumentError(
            "--healthy needs a status file.", hint="Give --status FILE, with the same file as the scheduler."
        )
    now = dt.datetime.now(dt.UTC)
    rows = [json.loads(status.read_text()) for status in statuses]
    found = [problem for each in rows for problem in problems(each, now)]
    minor = [warning for each in rows for warning in warnings(each)]
    print("\n".join([*(found or ["every run that was due ended well"]), *minor]))
    return 1 if found else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the schedule until a signal arrives."""
    parser = JobParser(prog="schedule.py", description=__doc__)
    parser.add_argument("schedule", type=Path, help="the file")
    parser.add_argument("--check", action="store_true", help="only check the file")
    parser.add_argument("--as-json", action="store_true", help="only check the file, and print its lines as JSON")
    parser.add_argument("--without-daily", action="store_true", help="never run the lines that have a time of day")
    parser.add_argument(
        "--status", type=Path, action="append", default=[], metavar="FILE", help="file for the state of each line"
    )
    parser.add_argument(
        "--healthy", action="store_true", help="only read the status; exit with 1 if something is wrong"
    )
    try:
        options = parser.parse_args(argv)
        if options.healthy:
            return _healthy(options.status)
        entries = parse_schedule(options.schedule.read_text(), os.environ)
    except (DeltaError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    if options.as_json:
        print(json.dumps([entry.as_json() for entry in entries]))
        return 0
    if options.without_daily:
        entries = [replace(entry, at=None) for entry in entries]
    for entry in entries:
        when = f"daily {entry.at:%H:%M}" if entry.at else "never"
        if entry.keeps:
            when = "kept running"
        elif entry.every:
            when = f"every {entry.every} s"
        print(f"{when}: {' && '.join(' '.join(command) for command in entry.commands)}", flush=True)
    if options.check:
        return 0
    children = _Children()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, children.end)
    status = StatusFile(options.status[0] if options.status else None)
    scheduler = Scheduler(entries, children.execute, lambda: dt.datetime.now(dt.UTC), status)
    while not children.stop.is_set():
        children.stop.wait(scheduler.start_due())
    scheduler.join()
    return 0


if __name__ == "__main__":
    with sparing_output():
        code = main()
    sys.exit(code)
