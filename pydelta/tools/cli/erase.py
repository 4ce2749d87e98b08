"""Read the options of ``pydelta erase``, ask for consent, and show what was done."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pydelta.api.console.command_line import AsJson, DryRun, StorageOptions, storage_options
from pydelta.api.console.output import print_json, print_table
from pydelta.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pydelta.commands.erase.command import Erasure, History
    from pydelta.log import DeltaLog

__all__ = ["add_erase"]

_Tables = Annotated[list[str] | None, typer.Argument(metavar="TABLE…", help="Locations of tables.")]
_Keys = Annotated[
    str | None,
    typer.Option(
        "--keys", metavar="FILE", help="A key per line, with --column; or .csv, .ndjson or .parquet, by column."
    ),
]
_Column = Annotated[str | None, typer.Option("--column", metavar="NAME", help="The column that holds the keys.")]
_Where = Annotated[
    str | None, typer.Option("--where", "-w", help="Instead of a file: column = constant, or column IN (…).")
]
_History = Annotated[
    str | None,
    typer.Option("--history", metavar="POLICY", help="drop: give up all earlier versions. Required for an erasure."),
]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
_Report = Annotated[
    Path | None, typer.Option("--report", metavar="FOLDER", help="Write a report there, as JSON and HTML.")
]
_Sign = Annotated[
    Path | None, typer.Option("--sign", metavar="FILE", help="Sign the report with this Ed25519 private key (PEM).")
]
_Verify = Annotated[
    Path | None,
    typer.Option("--verify", metavar="REPORT", help="Check a report, or a folder of them, and nothing else."),
]
_PublicKey = Annotated[
    Path | None, typer.Option("--public-key", metavar="FILE", help="The key that --verify expects (PEM).")
]
_SHOWN = 20


def add_erase(app: typer.Typer) -> None:
    """Add the command to an application."""

    @app.command()
    def erase(
        tables: _Tables = None,
        keys: _Keys = None,
        column: _Column = None,
        where: _Where = None,
        history: _History = None,
        dry_run: DryRun = False,
        yes: _Yes = False,
        report: _Report = None,
        sign: _Sign = None,
        verify: _Verify = None,
        public_key: _PublicKey = None,
        as_json: AsJson = False,
        option: StorageOptions = None,
    ) -> None:
        """Delete the rows of keys from tables for good: files, history and log; then search what is left.

        Exits with 4 if the search found something, or if --verify did.
        """
        if verify is not None:
            _verify(verify, public_key)
            return
        _check(tables, by_file=keys is not None, by_condition=where is not None, names_column=column is not None)
        if sign is not None and report is None:
            raise InvalidArgumentError("There is no report to sign.", hint="Name a folder with --report.")
        from pydelta.api.python.local_arguments import policy_of
        from pydelta.tools.erasure.report import is_proven, report_of, write_report

        policy = policy_of(history)
        logs = _logs(tables or (), option)
        wanted = {log.uri: _wanted(log, keys, column, where) for log in logs}
        planned = [_run(log, wanted[log.uri], history=None, dry_run=True) for log in logs]
        if dry_run:
            _show_plans(planned, as_json)
            return
        _consent(planned, policy, yes=yes, as_json=as_json)
        done = [_run(log, wanted[log.uri], history=policy, dry_run=False) for log in logs]
        document = report_of(done, history=policy)
        written = None if report is None else write_report(document, report, key_file=sign)
        if as_json:
            print_json(document)
        else:
            _show(done, written)
        if not is_proven(document):
            raise typer.Exit(4)


def _check(tables: Sequence[str] | None, *, by_file: bool, by_condition: bool, names_column: bool) -> None:
    if not tables:
        raise InvalidArgumentError("No table was given.", hint="Name the location of at least one table.")
    if by_file == by_condition:
        raise InvalidArgumentError(
            "Keys are given in one way: by --keys or by --where.", hint="Give one of them, not both."
        )
    if by_condition and names_column:
        raise InvalidArgumentError("--where names its columns itself.", hint="Leave --column out.")


def _logs(tables: Sequence[str], option: Sequence[str] | None) -> list[DeltaLog]:
    from pydelta.commands.run import existing_table
    from pydelta.log import DeltaLog

    logs = [DeltaLog.for_table(table, options=storage_options(option)) for table in dict.fromkeys(tables)]
    for log in logs:
        existing_table(log.update())
    return logs


def _wanted(log: DeltaLog, keys: str | None, column: str | None, where: str | None) -> dict[str, list[str]]:
    from pydelta.tools.erasure.requests import keys_of_condition, keys_of_file

    if keys is not None:
        return keys_of_file(keys, column)
    assert where is not None
    return keys_of_condition(where, log.update())


def _run(log: DeltaLog, keys: Mapping[str, Sequence[str]], *, history: History | None, dry_run: bool) -> Erasure:
    from pydelta.commands.erase.command import Erase
    from pydelta.commands.run import Context, run
    from pydelta.engines.arrow.engine import ArrowEngine

    return run(Erase(keys=keys, history=history, dry_run=dry_run), Context(log, ArrowEngine(log)))


def _consent(planned: Sequence[Erasure], history: str | None, *, yes: bool, as_json: bool) -> None:
    """Ask whether to go on, unless there is nothing to erase.

    Raises:
        InvalidArgumentError: Consent is missing, and nobody can be asked.
    """
    if not any(item.plan.is_needed for item in planned):
        return
    if history is None:
        raise InvalidArgumentError(
            "Earlier versions hold rows of the keys or name them: what becomes of them has to be said.",
            hint="--history drop gives up all versions before the erasure. --dry-run shows what is touched.",
        )
    if yes:
        return
    if as_json or not sys.stdin.isatty():
        raise InvalidArgumentError(
            "Nothing was erased: nobody was asked.", hint="Look at the plan with --dry-run, then add --yes."
        )
    _show_plans(planned, as_json=False)
    if not typer.confirm("Erase these rows, and give up these versions for good?"):
        raise typer.Exit(1)


def _show_plans(planned: Sequence[Erasure], as_json: bool) -> None:
    from pydelta.tools.erasure.report import plan_of

    documents = [plan_of(item) for item in planned]
    if as_json:
        print_json(documents)
        return
    for document in documents:
        found = document["found"]
        rows = [[state, counts["files"], counts["rows"], counts["bytes"]] for state, counts in found.items()]
        print_table(("files", "number", "rows of the keys", "bytes"), rows, title=document["table"])
        gives_up = document["givesUp"]
        lines = [
            "Nothing to erase." if gives_up is None else f"Versions {gives_up[0]} to {gives_up[1]} are given up.",
            f"{document['places']} places in the log and beside it name a key.",
        ]
        if document["clones"]:
            lines.append(f"Shallow clones read its files: {', '.join(document['clones'])}.")
        if document["publishedAgain"]:
            lines.append(f"Published again: {', '.join(document['publishedAgain'])}.")
        print("\n".join(lines))  # noqa: T201


def _show(done: Sequence[Erasure], written: Path | None) -> None:
    for item in done:
        rows = sum(rows.num_rows + rows.num_hidden_rows for rows in item.rows)
        said = f"{item.table}: {rows} rows erased, {item.deleted_files} files deleted"
        if item.given_up is not None:
            said += f", versions {item.given_up[0]} to {item.given_up[1]} given up"
        print(f"{said}.")  # noqa: T201
        if item.is_proven:
            print(f"A search of {item.left.num_files} files found no key.")  # noqa: T201
            continue
        found = [(path, f"{state} file") for path, state in item.left.files.select("path", "state").iter_rows()]
        found += [(place.path, place.kind) for place in item.left.places] + list(item.left.unread)
        print(f"A search found {len(found)} places that are left:")  # noqa: T201
        print_table(("place", "what"), [list(pair) for pair in found[:_SHOWN]])
    if written is not None:
        print(f"Report: {written}")  # noqa: T201


def _verify(place: Path, public_key: Path | None) -> None:
    from pydelta.tools.erasure.report import verify

    wrong = verify(place, public_key=public_key)
    for sentence in wrong:
        print(sentence, file=sys.stderr)  # noqa: T201
    if wrong:
        raise typer.Exit(4)
    print(f"{place}: unchanged since it was written.")  # noqa: T201
