"""Run commands at the times that a file gives: the stack's scheduler.

A line is ``every SECONDS COMMAND`` (at once, then so long after each beginning), ``daily HH:MM COMMAND`` (UTC) or
``never COMMAND``. ``&&`` joins commands of which each runs if the one before it ended with 0; ``$NAME`` and
``${NAME:-default}`` are taken from the environment; ``#`` begins a comment. A command that is still running when its
time comes again is left to run. What commands print goes on; how they ended is one line of JSON.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydelta.errors import DeltaError, InvalidArgumentError
from pydelta.ops.job_entry import JobParser

__all__ = ["Entry", "Scheduler", "main", "parse_schedule"]

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Commands, and when they run: after so many seconds, or at a time of day (UTC); neither for never."""

    commands: tuple[Command, ...]
    every: int | None = None
    at: dt.time | None = None

    def next_run(self, now: dt.datetime, last: dt.datetime | None) -> dt.datetime | None:
        """Tell when it runs next.

        Args:
            now: The time, in UTC.
            last: When it last began; None if it has not yet.
        """
        if self.every is not None:
            return now if last is None else last + dt.timedelta(seconds=self.every)
        if self.at is None:
            return None
        today = dt.datetime.combine(now.date(), self.at, dt.UTC)
        return today if today > now else today + dt.timedelta(days=1)


def parse_schedule(text: str, env: Mapping[str, str]) -> list[Entry]:
    """Read a schedule.

    Raises:
        InvalidArgumentError: A line that cannot be understood, by its number.
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
                hint="Write 'every SECONDS COMMAND', 'daily HH:MM COMMAND' or 'never COMMAND'.",
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
    return Entry(commands=tuple(map(tuple, commands)), every=every, at=at)


class Scheduler:
    """Starts entries when they are due, each in a thread of its own, never twice at once.

    Args:
        entries: The schedule.
        execute: Runs one command; its exit code.
        clock: The time in UTC.
    """

    def __init__(
        self, entries: Sequence[Entry], execute: Callable[[Command], int], clock: Callable[[], dt.datetime]
    ) -> None:
        self._entries = entries
        self._execute = execute
        self._clock = clock
        self._last: dict[int, dt.datetime] = {}
        self._next = {number: entry.next_run(clock(), None) for number, entry in enumerate(entries)}
        self._running: dict[int, threading.Thread] = {}

    def start_due(self) -> float | None:
        """Start what is due; seconds until the next one is, None if none ever will be."""
        now = self._clock()
        for number, entry in enumerate(self._entries):
            due = self._next[number]
            if due is None or due > now:
                continue
            self._last[number] = now
            self._next[number] = entry.next_run(now, now)
            thread = self._running.get(number)
            if thread is None or not thread.is_alive():
                self._running[number] = threading.Thread(target=self._run, args=(entry,), daemon=True)
                self._running[number].start()
        times = [due for due in self._next.values() if due is not None]
        return max((min(times) - now).total_seconds(), 0.0) if times else None

    def join(self) -> None:
        """Wait for what is running."""
        for thread in self._running.values():
            thread.join()

    def _run(self, entry: Entry) -> None:
        for command in entry.commands:
            began = self._clock()
            code = self._execute(command)
            took = round((self._clock() - began).total_seconds(), 1)
            print(json.dumps({"command": " ".join(command), "exit_code": code, "seconds": took}), flush=True)
            if code:
                return


class _Children:
    """Runs commands, and ends them when the process is told to end."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._children: set[subprocess.Popen[bytes]] = set()

    def execute(self, command: Command) -> int:
        """Run one to its end; 127 for one that cannot be started."""
        if self.stop.is_set():
            return 143
        try:
            child = subprocess.Popen(command)
        except OSError as error:
            print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
            return 127
        self._children.add(child)
        code = child.wait()
        self._children.discard(child)
        return code

    def end(self, *_: object) -> None:
        """For a signal."""
        self.stop.set()
        for child in list(self._children):
            child.terminate()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the schedule until told to end."""
    parser = JobParser(prog="schedule.py", description=__doc__)
    parser.add_argument("schedule", type=Path, help="the file")
    parser.add_argument("--check", action="store_true", help="only read it")
    try:
        options = parser.parse_args(argv)
        entries = parse_schedule(options.schedule.read_text(), os.environ)
    except (DeltaError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    for entry in entries:
        when = f"every {entry.every} s" if entry.every else f"daily {entry.at:%H:%M}" if entry.at else "never"
        print(f"{when}: {' && '.join(' '.join(command) for command in entry.commands)}", flush=True)
    if options.check:
        return 0
    children = _Children()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, children.end)
    scheduler = Scheduler(entries, children.execute, lambda: dt.datetime.now(dt.UTC))
    while not children.stop.is_set():
        children.stop.wait(scheduler.start_due())
    scheduler.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
