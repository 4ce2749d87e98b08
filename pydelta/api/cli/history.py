"""Print a table's history. This module and its imports need neither Typer nor Polars nor PyArrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pydelta.api.console.output import moment, print_json, print_table
from pydelta.commands.describe import describe_history

if TYPE_CHECKING:
    from pydelta.log.history import CommitRecord

__all__ = ["show_history"]

_COLUMNS = ("version", "timestamp", "operation", "operationParameters", "operationMetrics")


def show_history(path: str, options: Mapping[str, str], *, limit: int | None, as_json: bool) -> None:
    """Print the commits of a table, newest first.

    Args:
        path: Location of the table.
        options: Storage options.
        limit: The most commits to print; None for all.
        as_json: Print one JSON document instead of a table.

    Raises:
        DeltaError: There is no table, or its log cannot be read.
    """
    found = describe_history(_records(path, options, limit))
    records = [record | {"timestamp": moment(record["timestamp"])} for record in found]
    if as_json:
        print_json(records)
        return
    print_table(_COLUMNS, [[record[name] for name in _COLUMNS] for record in records])


def _records(path: str, options: Mapping[str, str], limit: int | None) -> Sequence[CommitRecord]:
    from pydelta.errors import error_context
    from pydelta.log.history import history_of_commits
    from pydelta.settings import Settings
    from pydelta.storage.registry import open_store
    from pydelta.storage.uris import normalize_uri

    Settings.resolve()  # Refuse unknown settings in the environment, as every command does.
    uri = normalize_uri(path)
    with error_context(table=uri):
        store = open_store(uri, options)
        found = history_of_commits(store, root=store.root, limit=limit)
    if found is not None:
        return found
    from pydelta.log import DeltaLog

    return DeltaLog.for_table(path, options=options).history(limit)
