"""Run a job: parse its arguments, print one line of JSON, return an exit code. Shared by all of ``jobs/``.

::

    main(argv) -> run_job(arguments(), work, argv)
                    --help                    the help, 0
                    arguments that are wrong  the error as a line, 1; ``work`` is not called: no session is started
                    work(given)               its report as a line, and the report's code
                    DeltaError                the error as a line, and the error's code (``pydelta.errors``)
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from pydelta.api.console.standard_output import sparing_output
from pydelta.errors import DeltaError, InvalidArgumentError
from pydelta.tools.lineage import job_run

__all__ = ["JobParser", "JobReport", "error_row", "listed", "pairs", "run_job"]


class JobParser(argparse.ArgumentParser):
    """Raises where the standard one ends the process: it may be a notebook's."""

    def error(self, message: str) -> NoReturn:
        """Raise for arguments that cannot be right.

        Raises:
            InvalidArgumentError: Always.
        """
        raise InvalidArgumentError(message, hint="Run it with --help to see the arguments.")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """What a job prints as its one line, and the process's exit code."""

    line: Mapping[str, Any]
    exit_code: int = 0

    @classmethod
    def of_rows(cls, name: str, rows: Sequence[Mapping[str, Any]]) -> JobReport:
        """Report a job over many things, of which one that fails stops no other; the worst exit code is the job's.

        Args:
            name: What the line calls them.
            rows: One each; those of failures have ``error_row`` in them.
        """
        return cls(line={name: rows}, exit_code=max((int(row.get("exit_code", 0)) for row in rows), default=0))


def listed(text: str | None) -> list[str] | None:
    """Split an argument with commas between its parts; None where it was not given."""
    return [item.strip() for item in text.split(",")] if text else None


def pairs(items: Sequence[str], flag: str) -> dict[str, str]:
    """Read the values of a flag that is given as often as there are names, as ``name=value``.

    Raises:
        InvalidArgumentError: One has no equals sign.
    """
    found = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals:
            raise InvalidArgumentError(f"{flag} is {item!r}.", hint=f"Write it as {flag} name=value.")
        found[name] = value
    return found


def error_row(error: DeltaError) -> dict[str, Any]:
    """Describe an error as jobs report it."""
    return {"error": error.code, "message": str(error), "exit_code": error.exit_code}


def run_job(
    parser: argparse.ArgumentParser, work: Callable[[list[str]], JobReport], argv: Sequence[str] | None = None
) -> int:
    """Run a job to its end.

    Args:
        parser: Of its arguments: a ``JobParser``.
        work: Does it, with the arguments as given.
        argv: The arguments; None for those of the process.

    Returns:
        The exit code.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    with sparing_output():  # what the job has done is done, whether or not its line can be printed
        return _run(parser, work, given)


def _run(parser: argparse.ArgumentParser, work: Callable[[list[str]], JobReport], given: list[str]) -> int:
    if "-h" in given or "--help" in given:
        parser.print_help()
        return 0
    try:
        parser.parse_args(given)
        report = _told(parser.prog.removesuffix(".py"), work, given)
    except DeltaError as error:
        print(json.dumps(error_row(error)), flush=True)
        return error.exit_code
    print(json.dumps(report.line), flush=True)
    return report.exit_code


def _told(job: str, work: Callable[[list[str]], JobReport], given: list[str]) -> JobReport:
    """Do a job's work, and tell of it where lineage is asked for."""
    reports: list[JobReport] = []
    with job_run(job, lambda: _failure(reports[0])):
        reports.append(work(given))
    return reports[0]


def _failure(report: JobReport) -> str | None:
    """Why a job over many things failed; None if it did not."""
    if not report.exit_code:
        return None
    rows = [row for value in report.line.values() if isinstance(value, list) for row in value if "message" in row]
    return str(rows[0]["message"]) if rows else f"exit code {report.exit_code}"
