"""Read what the stack's scheduler runs by the clock, as tasks of the DAG maintenance."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakehouse_airflow.jobs import environment_of

__all__ = ["Line", "Step", "cron_of", "lines_of", "read_schedule"]


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a line, and the name of its task."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """A line with a time of day, ``HH:MM`` in UTC; None if it is off."""

    at: str | None
    steps: tuple[Step, ...]


def read_schedule(variables: Mapping[str, str], program: Sequence[str] | None = None) -> list[Line]:
    """Ask the scheduler's own program for the lines of its file.

    Args:
        variables: The environment, which has the times.
        program: What prints the lines as JSON; by default the stack's own.

    Raises:
        ValueError: The file cannot be read; the message is the program's.
    """
    command = program or ["/opt/venv/bin/python", "/opt/jobs/schedule.py", "/opt/jobs/schedule.conf", "--as-json"]
    kept = environment_of(variables) | {
        name: variables[name] for name in variables if re.fullmatch(r"[A-Z_]+_(AT|SECONDS|DAY|VACUUM)", name)
    }
    done = subprocess.run(command, env=kept, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"Exit code {done.returncode}."])[0]
        raise ValueError(f"jobs/schedule.conf cannot be read. {said} Next: mend the file, or the time in .env.")
    return lines_of(json.loads(done.stdout))


def lines_of(entries: Sequence[Mapping[str, object]]) -> list[Line]:
    """Choose the lines with a time of day, in the order of their times, and behind them those that are off."""
    found: list[Line] = []
    taken: set[str] = set()
    for entry in entries:
        if entry["every"] is not None or entry["keeps"]:
            continue
        commands = entry["commands"]
        assert isinstance(commands, list)
        steps = []
        for command in commands:
            name = _name(command)
            number = 2
            while name in taken:
                name, number = f"{_name(command)}_{number}", number + 1
            taken.add(name)
            steps.append(Step(name, tuple(command)))
        at = entry["at"]
        found.append(Line(None if at is None else str(at), tuple(steps)))
    return sorted(found, key=lambda line: line.at or "99:99")


def _name(command: Sequence[str]) -> str:
    """Name a task by its job: the file of ``python``, the word behind ``submit``, or the program."""
    words = list(command[2:] if command[0] == "as-user" else command)
    programs = {"python", "submit"}
    word = words[1] if words[0] in programs and len(words) > 1 else words[0]
    return re.sub(r"[^A-Za-z0-9_.-]", "_", word.rsplit("/", 1)[-1].removesuffix(".py"))


def cron_of(lines: Sequence[Line]) -> str | None:
    """Return when the DAG begins: at the first time of a line; None if all are off."""
    times = [line.at for line in lines if line.at is not None]
    if not times:
        return None
    hour, minute = min(times).split(":")
    return f"{int(minute)} {int(hour)} * * *"
