"""Show on the command line what maintenance a table needs by its policy, and why."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pydelta.api.console.command_line import (
    METASTORE_VARIABLE,
    AsJson,
    DryRun,
    Metastore,
    StorageOptions,
    TableName,
    named_values,
    storage_options,
)
from pydelta.errors import InvalidArgumentError, TableNotFoundError
from pydelta.settings.clock import epoch_ms

if TYPE_CHECKING:
    from pydelta.settings.maintenance import MaintenancePolicy
    from pydelta.tools.maintenance.decide import Action
    from pydelta.tools.maintenance.state import MaintenanceState

__all__ = ["add_maintenance"]

_Many = list[str] | None
_Journal = Annotated[
    str | None,
    typer.Option("--journal", metavar="TABLE", help="Location or name of the journal of past actions."),
]
_Default = Annotated[
    _Many,
    typer.Option(
        "--default", metavar="NAME=VALUE", help="A policy default, for a property that the table does not set."
    ),
]
_JOURNAL = "ops.maintenance"
_INVENTORY = "inventory.datalake_report"


def add_maintenance(app: typer.Typer) -> None:
    """Add the command to an application."""

    @app.command()
    def maintain(
        table: TableName,
        dry_run: DryRun = False,
        metastore: Metastore = None,
        journal: _Journal = None,
        default: _Default = None,
        as_json: AsJson = False,
        option: StorageOptions = None,
    ) -> None:
        """Show what a table needs by its properties pydelta.maintenance.*, and why. Changes nothing.

        The scheduler (jobs/maintain.py) does what is needed: python jobs/maintain.py TABLE does it once.
        """
        if not dry_run:
            raise InvalidArgumentError(
                "This command only shows what would be done, so it needs --dry-run.",
                hint=f"Add --dry-run. To do it now, run: python jobs/maintain.py {table}",
            )
        options = storage_options(option)
        where = _place(table, metastore, journal, options)
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
    """The name and location of a table, and the locations of journal and inventory if known."""

    name: str
    location: str
    journal: str | None
    inventory: str | None = None


def _place(table: str, metastore: str | None, journal: str | None, options: dict[str, str]) -> _Where:
    """Look up a table, the journal and the inventory.

    Raises:
        InvalidArgumentError: A name was given, but no metastore to look it up in.
        TableNotFoundError: The metastore has no such table.
        DeltaEnvironmentError: No package with a metastore client is installed.
    """
    from pydelta.tools.ui.sources import open_catalog

    if "/" in table and not metastore:
        return _Where(name=table, location=table, journal=journal)
    address = metastore or os.environ.get(METASTORE_VARIABLE)
    if address is None:
        raise InvalidArgumentError(
            f"{table} is a name, but there is no metastore to look it up in.",
            hint="Give the table's location, or --metastore thrift://host:9083.",
        )
    tables = open_catalog(address, (), options, _PATIENCE).tables()
    named = journal or _JOURNAL
    others = {"journal": named if "/" in named else tables.get(named), "inventory": tables.get(_INVENTORY)}
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
    """Return the state of a table, its policy and the actions that it needs.

    Raises:
        DeltaError: The table or the journal cannot be read, or a property is invalid.
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
    if where.journal is not None:
        journal = Journal(DeltaLog.for_table(where.journal, options=options))
        known = journal.known(log.uri)
        left = journal.left(DailyBudget(bytes=policy.budget_bytes, requests=policy.budget_requests), log.uri)
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
            f"nothing is due: merging small files would save {max(small.saved, 0)} files, and the bound is "
            f"{policy.compact_min_files}; VACUUM is {policy.vacuum}"
        )
    return lines
