"""Decide what is run for a job, in which environment, and what follows from its exit code."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

__all__ = [
    "Next",
    "command_of",
    "environment_of",
    "explained",
    "is_repeatable",
    "masked",
    "report_of",
    "secrets_of",
    "what_next",
]

HANDED_ON = re.compile(
    r"(STORE|S3|SPARK|PYSPARK|PYDELTA|HADOOP|OPENLINEAGE|METASTORE|LAKE|LOG|AIRFLOW_CTX)_\w+|"
    r"PATH|HOME|LANG|TZ|JAVA_HOME|SUBMIT_OPTIONS|JOBS_DIR|PYTHONDONTWRITEBYTECODE"
)
"""Names of the variables that a job gets: none of Airflow's settings is among them."""

_SECRET = re.compile(r"\w*(SECRET|PASSWORD|TOKEN|FERNET|SQL_ALCHEMY_CONN)\w*")
_REPEATABLE = frozenset({"compact", "delete", "inventory", "load_inventory", "manifests", "vacuum"})
"""Jobs that do nothing the second time."""

_MEANINGS = {
    1: "the input, an argument or the table has to change first",
    2: "nothing is lost: it is run again",
    3: "the outcome is unknown",
    4: "a check failed",
    126: "the program cannot be started",
    127: "the program was not found",
}


class Next(enum.Enum):
    """What follows from the end of a job."""

    DONE = "done"
    AGAIN = "again"
    GIVE_UP = "give up"


def command_of(job: str, arguments: Sequence[str], user: str) -> list[str]:
    """Return the command line of a job: by the store's user, on the cluster, as the stack's scheduler runs it.

    Args:
        job: The name of a job in ``jobs``, or a file that ends with ``.py``.
        arguments: Its arguments.
        user: The user of the store whose key it gets.
    """
    return ["as-user", user, "on-network", "submit", job, *arguments]


def environment_of(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a job: that of the stack's image, without Airflow's packages and secrets."""
    kept = {name: value for name, value in variables.items() if HANDED_ON.fullmatch(name)}
    paths = [path for path in kept.get("PATH", "").split(":") if not path.startswith("/opt/airflow")]
    return kept | {"PATH": ":".join(paths), "PYTHONPATH": "/opt/lakehouse"}


def is_repeatable(job: str, arguments: Sequence[str]) -> bool:
    """Return whether a job may run again where it is not known what the first run did.

    An ingest may if its batch has a name, or if it replaces what it wrote before.
    """
    if job == "ingest":
        words = [word for argument in arguments for word in argument.split("=", 1)]
        modes = [after for word, after in pairwise(words) if word == "--mode"]
        return "--batch-id" in words or modes[-1:] == ["overwrite"]
    return job in _REPEATABLE


def what_next(code: int, *, repeatable: bool, reported: bool = True) -> Next:
    """Decide what follows from an exit code.

    Args:
        code: The exit code; negative for a signal.
        repeatable: Whether the job may run again where it is not known what it did.
        reported: Whether it printed its line of JSON. A program that ended with 1 without one died.
    """
    if code == 0:
        return Next.DONE
    if code == 2:
        return Next.AGAIN
    if code in (4, 126, 127) or (code == 1 and reported):
        return Next.GIVE_UP
    return Next.AGAIN if repeatable else Next.GIVE_UP


def explained(name: str, code: int, *, repeatable: bool, report: Mapping[str, Any] | None = None) -> str:
    """Say how a job ended, and what to do.

    Args:
        name: What was run.
        code: Its exit code; negative for a signal.
        repeatable: Whether the job may run again where it is not known what it did.
        report: The line of JSON that it printed, if it did.
    """
    died = code < 0 or code > 128
    meaning = "it was killed" if died else _MEANINGS.get(code, "it died")
    if code == 1 and report is None:
        meaning = "it died before it could say why"
    said = f" It said: {report['message']}" if report and report.get("message") else ""
    following = what_next(code, repeatable=repeatable, reported=report is not None)
    if following is Next.AGAIN:
        hint = "It is run again if the task has retries left: a second run changes nothing that the first one did."
        hint = "It is run again if the task has retries left." if code == 2 else hint
    elif code in (1, 4, 126, 127) and (report is not None or code != 1):
        hint = "Then clear the task." if "Next:" in said else "Next: mend the cause, then clear the task."
    else:
        hint = (
            "What it did is not known, so it is not run again by itself. Next: look at the table's history, then "
            "clear the task. An ingest with --batch-id is repeated safely."
        )
    return f"{name} ended with exit code {code}: {meaning}.{said} {hint}"


def report_of(line: str) -> dict[str, Any] | None:
    """Read the line of JSON that a job prints; None if it is not one."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def secrets_of(variables: Mapping[str, str]) -> list[str]:
    """List the values of variables that are secrets, the longest first."""
    found = {value for name, value in variables.items() if _SECRET.fullmatch(name) and len(value) >= 8}
    return sorted(found, key=lambda value: (-len(value), value))


def masked(text: str, secrets: Iterable[str]) -> str:
    """Replace secrets in a text by stars."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
