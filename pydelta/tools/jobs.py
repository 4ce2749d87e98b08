"""Run a job: parse its arguments, print one line of JSON, return an exit code. All of ``jobs/`` use this.

::

    main(argv) -> run_job(arguments(), work, argv)
                    --help                    prints the help, returns 0
                    invalid arguments         prints the error, returns 1; ``work`` is not called, so no session starts
                    work(given)               prints its report, returns the report's code
                    DeltaError                prints the error, returns its code (``pydelta.errors``)
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from pydelta.api.console.old_names import current_names
from pydelta.api.console.standard_output import sparing_output
from pydelta.errors import DeltaError, InvalidArgumentError
from pydelta.tools.lineage import job_run

__all__ = ["JobParser", "JobReport", "error_row", "listed", "pairs", "run_job"]


_SHARED: Final[Mapping[str, Mapping[str, Any]]] = {
    "tables": {"nargs": "*", "metavar": "TABLE", "help": "locations, or names of tables in the metastore"},
    "--all-databases": {"action": "store_true", "help": "every Delta table in the metastore"},
    "--bad-records": {
        "metavar": "PATH_OR_NAME",
        "help": "table for records that do not fit; without it they fail the job",
    },
    "--checkpoint": {"required": True, "metavar": "PATH", "help": "location for the stream's progress"},
    "--database": {
        "action": "append",
        "default": [],
        "metavar": "NAME",
        "help": "every Delta table of this database; several with commas, * for all",
    },
    "--dry-run": {"action": "store_true", "help": "show what would be done and why; change nothing"},
    "--inventory": {"metavar": "TABLE", "help": "location or name of the inventory table, as load_inventory makes it"},
    "--metastore": {"metavar": "URI", "help": "thrift://host:9083; by default that of the session"},
    "--option": {"action": "append", "default": [], "metavar": "K=V", "help": "option of Spark's source"},
    "--parallel": {"type": int, "metavar": "N", "help": "how many run in parallel"},
    "--partition-by": {"metavar": "A,B", "help": "partition columns of a new table"},
    "--suppress": {"metavar": "LOCATION", "help": "leave out rows whose keys are in this list of erased keys"},
    "--suppress-column": {
        "action": "append",
        "default": [],
        "metavar": "COLUMN=KEY",
        "help": "the column that holds a key of the list; by default, the columns that are named as its keys",
    },
    "--table": {"metavar": "PATH_OR_NAME", "help": "a location, or a name in the catalog"},
    "--trigger": {
        "default": "available-now",
        "help": "available-now (default), once, or seconds between two batches",
    },
    "--where": {"metavar": "CONDITION", "help": "only these partitions"},
    "--write-option": {"action": "append", "default": [], "metavar": "K=V", "help": "option of the writer"},
}
"""The arguments that several jobs have, with what ``argparse`` takes."""


class JobParser(argparse.ArgumentParser):
    """A parser that raises instead of ending the process, which may be a notebook's. Old names still work."""

    def share(self, *names: str, **changes: Any) -> None:
        """Add arguments that several jobs have.

        Args:
            names: Their names.
            changes: What differs from the shared definition.
        """
        for name in names:
            self.add_argument(name, **{**_SHARED[name], **changes})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments, whose names may be those of the last release."""
        given = sys.argv[1:] if args is None else args
        return super().parse_known_args(current_names(self.prog, given, has_commands=False), namespace)

    def error(self, message: str) -> NoReturn:
        """Raise for invalid arguments.

        Raises:
            InvalidArgumentError: Always.
        """
        raise InvalidArgumentError(message, hint="Run it with --help to see the arguments.")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """The line that a job prints, and its exit code."""

    line: Mapping[str, Any]
    exit_code: int = 0

    @classmethod
    def of_rows(cls, name: str, rows: Sequence[Mapping[str, Any]]) -> JobReport:
        """Report a job over many items, where a failure does not stop the rest. The job's exit code is the worst one.

        Args:
            name: Key of the rows in the line.
            rows: One row per thing. Those of failures contain ``error_row``.
        """
        return cls(line={name: rows}, exit_code=max((int(row.get("exit_code", 0)) for row in rows), default=0))


def listed(text: str | None) -> list[str] | None:
    """Split a comma-separated argument; None if it was not given."""
    return [item.strip() for item in text.split(",")] if text else None


def pairs(items: Sequence[str], flag: str) -> dict[str, str]:
    """Parse the values of a repeatable flag, each given as ``name=value``.

    Raises:
        InvalidArgumentError: A value has no equals sign.
    """
    found = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals:
            raise InvalidArgumentError(f"{flag} is {item!r}.", hint=f"Write it as {flag} name=value.")
        found[name] = value
    return found


def error_row(error: DeltaError) -> dict[str, Any]:
    """Describe an error for a job's report."""
    return {"error": error.code, "message": str(error), "exit_code": error.exit_code}


def run_job(
    parser: argparse.ArgumentParser, work: Callable[[list[str]], JobReport], argv: Sequence[str] | None = None
) -> int:
    """Run a job to its end.

    Args:
        parser: Parser of its arguments, a ``JobParser``.
        work: Does the work with the given arguments, and returns the report.
        argv: The arguments; None for those of the process.

    Returns:
        The exit code.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    given = current_names(parser.prog, given, has_commands=False)  # Later parsers do not warn again.
    with sparing_output():  # The job's work counts even if its line cannot be printed.
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
    """Do a job's work, and report it to lineage if that is enabled."""
    reports: list[JobReport] = []
    with job_run(job, lambda: _failure(reports[0])):
        reports.append(work(given))
    return reports[0]


def _failure(report: JobReport) -> str | None:
    """Return why a job over many things failed; None if it did not."""
    if not report.exit_code:
        return None
    rows = [row for value in report.line.values() if isinstance(value, list) for row in value if "message" in row]
    return str(rows[0]["message"]) if rows else f"exit code {report.exit_code}"
