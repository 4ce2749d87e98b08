"""Read the options of ``pydelta erase``, ask for consent, and show what was done."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pydelta.api.console.command_line import AsJson, DryRun, StorageOptions, storage_options
from pydelta.api.console.output import print_json, print_table
from pydelta.errors import DeltaError, InvalidArgumentError

if TYPE_CHECKING:
    from pydelta.commands.run import Context
    from pydelta.tools.erasure.performing import Beside, Performed
    from pydelta.tools.erasure.register import Filed, Register
    from pydelta.tools.erasure.running import ErasureOutcome, ErasureRequest

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
_Map = Annotated[
    str | None,
    typer.Option("--map", metavar="FILE", help="TOML: which column of each table holds which key of the file."),
]
_History = Annotated[
    str | None,
    typer.Option("--history", metavar="POLICY", help="drop: give up all earlier versions. Required for an erasure."),
]
_ObjectVersions = Annotated[
    str,
    typer.Option(
        "--object-versions",
        metavar="POLICY",
        help="drop: delete older versions of objects in a bucket that keeps them; absent: the store keeps none.",
    ),
]
_DeletesWith = Annotated[
    str | None,
    typer.Option(
        "--deletes-with",
        metavar="FILE",
        help="Storage options of the key that may delete, as NAME=VALUE lines; by default those of --option.",
    ),
]
_Search = Annotated[
    list[str] | None,
    typer.Option("--search", metavar="LOCATION", help="Search this folder, too, such as event logs; delete nothing."),
]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
_Report = Annotated[
    Path | None, typer.Option("--report", metavar="FOLDER", help="Write a report there, as JSON and HTML.")
]
_Sign = Annotated[
    Path | None, typer.Option("--sign", metavar="FILE", help="Sign the report with this Ed25519 private key (PEM).")
]
_Register = Annotated[
    str | None,
    typer.Option("--register", metavar="LOCATION", help="The table of requests: note this one, or with --due read it."),
]
_Deadline = Annotated[
    str | None,
    typer.Option("--deadline", metavar="DAY", help="File the request for this day in the register; erase nothing yet."),
]
_Due = Annotated[
    bool, typer.Option("--due", help="Run what the register has open, the earliest deadline first; --dry-run lists it.")
]
_Suppress = Annotated[
    str | None,
    typer.Option("--suppress", metavar="LOCATION", help="Add the keys to this list, which ingest jobs leave out."),
]
_Verify = Annotated[
    Path | None,
    typer.Option("--verify", metavar="REPORT", help="Check a report, or a folder of them, and nothing else."),
]
_PublicKey = Annotated[
    Path | None, typer.Option("--public-key", metavar="FILE", help="The key that --verify expects (PEM).")
]
_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _How:
    """The flags of a run, the file with the storage options of the key that may delete, the register and a deadline."""

    deletes_with: str | None = None
    register: str | None = None
    deadline: str | None = None
    yes: bool = False
    dry_run: bool = False
    as_json: bool = False


def add_erase(app: typer.Typer) -> None:
    """Add the command to an application."""

    @app.command()
    def erase(
        tables: _Tables = None,
        keys: _Keys = None,
        column: _Column = None,
        where: _Where = None,
        mapping: _Map = None,
        history: _History = None,
        object_versions: _ObjectVersions = "keep",
        dry_run: DryRun = False,
        yes: _Yes = False,
        report: _Report = None,
        sign: _Sign = None,
        register: _Register = None,
        deadline: _Deadline = None,
        due: _Due = False,
        suppress: _Suppress = None,
        search: _Search = None,
        deletes_with: _DeletesWith = None,
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
        how = _How(
            deletes_with=deletes_with,
            yes=yes,
            dry_run=dry_run,
            as_json=as_json,
            register=register,
            deadline=deadline,
        )
        beside = _beside(option, search, report, sign, suppress)
        if due:
            _run_due(how, beside)
            return
        _run(_request(keys, column, where, mapping, history, object_versions), tables or (), how, beside)


def _beside(
    option: Sequence[str] | None,
    search: Sequence[str] | None,
    report: Path | None,
    sign: Path | None,
    suppress: str | None,
) -> Beside:
    from pydelta.tools.erasure.performing import Beside

    options = storage_options(option)
    return Beside(options=options, search=search or (), report=report, sign=sign, suppress=suppress)


def _request(
    keys: str | None, column: str | None, where: str | None, mapping: str | None, history: str | None, versions: str
) -> ErasureRequest:
    from pydelta.api.python.local_arguments import object_versions_of, policy_of
    from pydelta.tools.erasure.running import ErasureRequest

    return ErasureRequest(
        keys_file=keys,
        column=column,
        where=where,
        mapping_file=mapping,
        history=policy_of(history),
        object_versions=object_versions_of(versions),
    )


def _run(request: ErasureRequest, tables: Sequence[str], how: _How, beside: Beside) -> None:
    """Run a request, or file it for a deadline.

    Raises:
        InvalidArgumentError: No table was given.
    """
    if not tables:
        raise InvalidArgumentError("No table was given.", hint="Name the location of at least one table.")
    register = None if how.register is None and how.deadline is None else _register(how, beside)
    if register is not None:
        register.check(request)
    if how.deadline is not None and register is not None:
        filed = register.file(request, tables=tables, deadline=how.deadline)
        print(f"Filed as {filed}, due on {how.deadline}: pydelta erase --due --register {how.register} --yes")  # noqa: T201
        return
    done = _erase(request, list(dict.fromkeys(tables)), how, beside)
    if done is None:
        return
    if register is not None:
        register.note(request, done, tables=tables)
    if done.status != "proven":
        raise typer.Exit(4)


def _erase(request: ErasureRequest, tables: Sequence[str], how: _How, beside: Beside) -> Performed | None:
    """Run a request; return None for a dry run.

    Raises:
        DeltaError: A table cannot be read, or consent is missing; or see ``perform``.
    """
    from pydelta.tools.erasure.performing import perform, read_options
    from pydelta.tools.erasure.running import choose, look_at

    deleting = None if how.deletes_with is None else {**beside.options, **read_options(how.deletes_with)}
    contexts = {table: _context(table, beside.options) for table in tables}
    targets = choose(request, contexts, named=tables, options=beside.options, deleting=deleting)
    planned = look_at(targets.chosen, request)
    if how.dry_run:
        _show_plans(planned, how.as_json)
        return None
    _consent(planned, request, how)
    done = perform(request, targets, planned, beside)
    if how.as_json:
        print_json(done.document)
    else:
        _show(done)
    return done


def _context(table: str, options: Mapping[str, str]) -> Context:
    from pydelta.commands.run import Context, existing_table
    from pydelta.engines.arrow.engine import ArrowEngine
    from pydelta.log import DeltaLog

    log = DeltaLog.for_table(table, options=options)
    existing_table(log.update())
    return Context(log, ArrowEngine(log))


def _consent(planned: Sequence[ErasureOutcome], request: ErasureRequest, how: _How) -> None:
    """Ask whether to go on, unless there is nothing to erase.

    Raises:
        InvalidArgumentError: Consent is missing, and nobody can be asked.
    """
    plans = [outcome.erasure.plan for outcome in planned if outcome.erasure is not None]
    drops = request.object_versions == "drop" and any(plan.look.kept_versions for plan in plans)
    needed = any(plan.is_needed for plan in plans)
    if not needed and not drops:
        return
    if needed and request.history is None:
        raise InvalidArgumentError(
            "Earlier versions hold rows of the keys or name them: what becomes of them has to be said.",
            hint="--history drop gives up all versions before the erasure. --dry-run shows what is touched.",
        )
    if how.yes:
        return
    if how.as_json or not sys.stdin.isatty():
        raise InvalidArgumentError(
            "Nothing was erased: nobody was asked.", hint="Look at the plan with --dry-run, then add --yes."
        )
    _show_plans(planned, as_json=False)
    if not typer.confirm("Erase these rows, and give up these versions for good?"):
        raise typer.Exit(1)


# -- the register -----------------------------------------------------------------------------------------------------


def _register(how: _How, beside: Beside) -> Register:
    """Open the register.

    Raises:
        InvalidArgumentError: None was named.
    """
    from pydelta.tools.erasure.register import Register

    if how.register is None:
        raise InvalidArgumentError("There is no register.", hint="Name its table with --register.")
    return Register(how.register, beside.options)


def _run_due(how: _How, beside: Beside) -> None:
    noted = _register(how, beside)
    if how.dry_run or not how.yes:
        waiting = noted.due()
        _show_due(waiting, as_json=how.as_json)
        if waiting and not how.dry_run:
            raise InvalidArgumentError("Nothing was erased.", hint="Add --yes to run these requests.")
        return

    def perform(filed: Filed) -> Performed:
        done = _erase(filed.request, filed.tables, how, beside)
        assert done is not None, "it is not a dry run"
        return done

    all_proven = True
    for filed, done in noted.run_due(perform):
        if isinstance(done, DeltaError):
            print(f"{filed.id}: {done}", file=sys.stderr)  # noqa: T201
        all_proven = all_proven and not isinstance(done, DeltaError) and done.status == "proven"
    if not all_proven:
        raise typer.Exit(4)


def _show_due(waiting: Sequence[Filed], *, as_json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {
            "id": filed.id,
            "deadline": None if filed.deadline is None else filed.deadline.isoformat(),
            "state": filed.state,
            "tables": ", ".join((*filed.tables, *filed.databases)),
        }
        for filed in waiting
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(tuple(rows[0]), [list(row.values()) for row in rows])
    else:
        print("Nothing is due.")  # noqa: T201


# -- what is shown ----------------------------------------------------------------------------------------------------


def _show_plans(planned: Sequence[ErasureOutcome], as_json: bool) -> None:
    from pydelta.tools.erasure.report import plan_of

    documents = [plan_of(outcome.erasure) for outcome in planned if outcome.erasure is not None]
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
        if number := document["olderVersions"]["number"]:
            lines.append(
                f"The bucket keeps {number} older versions of its objects: --object-versions drop deletes them."
            )
        lines += document["notListed"]
        print("\n".join(lines))  # noqa: T201


def _show(done: Performed) -> None:
    for outcome in done.outcomes:
        item = outcome.erasure
        if item is None:
            print(f"{outcome.target.name}: {outcome.error}")  # noqa: T201
            continue
        counts = item.result
        said = f"{item.table}: {counts.num_deleted_rows + counts.num_hidden_rows} rows erased, "
        said += f"{item.deleted_files} files deleted"
        if counts.num_deleted_versions:
            said += f", {counts.num_deleted_versions} older versions of objects deleted"
        if item.given_up is not None:
            said += f", versions {item.given_up[0]} to {item.given_up[1]} given up"
        print(f"{said}.")  # noqa: T201
        if item.is_proven:
            print(f"A search of {item.left.num_files} files found no key.")  # noqa: T201
            continue
        found = [(path, f"{state} file") for path, state in item.left.files.select("path", "state").iter_rows()]
        found += [(place.path, place.kind) for place in item.left.places] + list(item.left.unread)
        if item.left.kept_versions:
            found.append(("the bucket", f"{item.left.kept_versions} older versions: --object-versions drop"))
        found += [("the store", sentence) for sentence in item.left.unlisted]
        print(f"A search found {len(found)} places that are left, or that could not be searched:")  # noqa: T201
        print_table(("place", "what"), [list(pair) for pair in found[:_SHOWN]])
    for place in done.document["elsewhere"]:
        said = f"{place['location']}: {place['files']} files searched"
        named = ", ".join(place["found"][:_SHOWN])
        print(f"{said}, no key found." if not named else f"{said}; a key is in {named}.")  # noqa: T201
        if place["notRead"]:
            print(f"Not read: {', '.join(place['notRead'][:_SHOWN])}.")  # noqa: T201
    if done.written is not None:
        print(f"Report: {done.written}")  # noqa: T201


def _verify(place: Path, public_key: Path | None) -> None:
    from pydelta.tools.erasure.report import verify

    wrong = verify(place, public_key=public_key)
    for sentence in wrong:
        print(sentence, file=sys.stderr)  # noqa: T201
    if wrong:
        raise typer.Exit(4)
    print(f"{place}: unchanged since it was written.")  # noqa: T201
