"""Tell on the command line what maintenance a table needs by its policy, and why."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pydelta.api.console.command_line import named_values, storage_options
from pydelta.errors import InvalidArgumentError, TableNotFoundError
from pydelta.settings.clock import epoch_ms

if TYPE_CHECKING:
    from pydelta.settings.maintenance import MaintenancePolicy
    from pydelta.tools.maintenance.decide import Action
    from pydelta.tools.maintenance.state import MaintenanceState

__all__ = ["add_maintenance"]

_METASTORE = "PYDELTA_METASTORE"
_Many = list[str] | None
_Table = Annotated[str, typer.Argument(help="Location of the table, or its name in the metastore.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done and why: this command does no more.")]
_Metastore = Annotated[str | None, typer.Option("--metastore", help=f"thrift://host:9083; by default {_METASTORE}.")]
_BookOption = Annotated[
    str | None,
    typer.Option("--book", metavar="LOCATION", help="Of ops.maintenance, which knows what was done and what failed."),
]
_Default = Annotated[
    _Many, typer.Option("--default", metavar="NAME=VALUE", help="Of the policy, for what the table does not say.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
_Options = Annotated[
    _Many, typer.Option("--option", "-o", metavar="NAME=VALUE", help="A storage option, such as fs.s3a.endpoint.")
]
_BOOK = "ops.maintenance"
_INVENTORY = "inventory.datalake_report"


def add_maintenance(app: typer.Typer) -> None:
    """Add the command to an application."""

    @app.command()
    def maintenance(
        table: _Table,
        dry_run: _DryRun = False,
        metastore: _Metastore = None,
        book: _BookOption = None,
        default: _Default = None,
        as_json: _Json = False,
        option: _Options = None,
    ) -> None:
        """What a table needs by its properties pydelta.maintenance.*, and why. Changes nothing.

        The scheduler does it (jobs/maintain.py): python jobs/maintain.py TABLE does it once, without --dry-run.
        """
        if not dry_run:
            raise InvalidArgumentError(
                "This command only says what would be done, so it takes --dry-run.",
                hint=f"Add --dry-run. To have it done now: python jobs/maintain.py {table}",
            )
        options = storage_options(option)
        where = _place(table, metastore, book, options)
        state, policy, actions = _decided(
            where, named_values(default, what="A default", hint="Write --default NAME=VALUE."), options
        )
        if as_json:
            print(json.dumps(_document(state, policy, actions), indent=2, ensure_ascii=False))  # noqa: T201
            return
        for line in _lines(state, policy, actions):
            print(line)  # noqa: T201


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Where:
    """A table's name and location, and those of the book and the inventory, where they are known."""

    name: str
    location: str
    book: str | None
    inventory: str | None = None


def _place(table: str, metastore: str | None, book: str | None, options: dict[str, str]) -> _Where:
    """Look up where things lie.

    Raises:
        InvalidArgumentError: A name, and no metastore to look it up in.
        TableNotFoundError: The metastore has no such table.
        DeltaEnvironmentError: No package that speaks to a metastore.
    """
    from pydelta.tools.ui.sources import open_catalog

    if "/" in table and not metastore:
        return _Where(name=table, location=table, book=book)
    address = metastore or os.environ.get(_METASTORE)
    if address is None:
        raise InvalidArgumentError(
            f"{table} is a name, but there is no metastore to look it up in.",
            hint="Give the table's location, or --metastore thrift://host:9083.",
        )
    tables = open_catalog(address, (), options, _PATIENCE).tables()
    others = {"book": book or tables.get(_BOOK), "inventory": tables.get(_INVENTORY)}
    if "/" in table:
        return _Where(name=table, location=table, **others)
    name = table.strip().lower().replace("`", "")
    if name not in tables:
        raise TableNotFoundError(
            f"The metastore has no Delta table {table}.", hint="Check the name, or give the table's location."
        )
    return _Where(name=name, location=tables[name], **others)


_PATIENCE = 30.0


def _decided(
    where: _Where, defaults: dict[str, str], options: dict[str, str]
) -> tuple[MaintenanceState, MaintenancePolicy, list[Action]]:
    """What the table is like, how it wants to be maintained, and what it needs.

    Raises:
        DeltaError: The table or the book cannot be read, or a property cannot be right.
    """
    from pydelta.log import DeltaLog
    from pydelta.tools.inventory import bucket_of, loaded_until
    from pydelta.tools.maintenance.decide import DailyBudget, decide
    from pydelta.tools.maintenance.journal import Journal
    from pydelta.tools.maintenance.watch import Known, TableWatcher

    log = DeltaLog.for_table(where.location, options=options)
    now_ms = epoch_ms()
    watcher = TableWatcher(where.name, log, defaults)
    known, left = Known(), DailyBudget()
    state, policy = watcher.look(known, now_ms=now_ms)
    if where.book is not None:
        kept = Journal(DeltaLog.for_table(where.book, options=options))
        known = kept.known(log.uri)
        left = kept.left(DailyBudget(bytes=policy.budget_bytes, requests=policy.budget_requests), log.uri)
    if where.inventory is not None:
        listed = DeltaLog.for_table(where.inventory, options=options).update()
        if listed.version >= 0:
            made_ms = loaded_until(listed, bucket_of(where.location).bucket)
            known = dataclasses.replace(known, inventory_ms=made_ms)
    state, policy = watcher.look(known, now_ms=now_ms)
    return state, policy, decide(state, policy, left, now_ms=now_ms)


def _document(state: MaintenanceState, policy: MaintenancePolicy, actions: list[Action]) -> dict[str, Any]:
    return {
        "table": state.name,
        "location": state.uri,
        "version": state.version,
        "files": state.files,
        "bytes": state.bytes,
        "policy": dataclasses.asdict(policy),
        "actions": [dataclasses.asdict(action) for action in actions],
    }


def _lines(state: MaintenanceState, policy: MaintenancePolicy, actions: list[Action]) -> list[str]:
    from pydelta.tools.maintenance.decide import shown_bytes

    lines = [f"{state.name}, version {state.version}: {state.files} files, {shown_bytes(state.bytes)}"]
    if not policy.enabled:
        return [*lines, "pydelta.maintenance.enabled is false: the table is left alone"]
    for action in actions:
        lines.append(f"{action.kind}: {action.reason}")
        if action.held is not None:
            lines.append(f"  not yet: {action.held}")
    if not actions:
        small = state.compaction
        lines.append(
            f"nothing is due: merging small files would take away {max(small.saved, 0)} of the "
            f"{policy.compact_min_files} that it takes; VACUUM is {policy.vacuum}"
        )
    return lines
