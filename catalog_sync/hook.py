"""Sync the manifests and the metastore entries after a commit to a table with ``pydelta.sync.enabled=true``."""

from __future__ import annotations

import shlex

from catalog_sync.entries import sync_entries
from catalog_sync.names import twin_name
from catalog_sync.sync import SyncOptions
from catalog_sync.targets import ENABLED_PROPERTY, TABLE_PROPERTY, SyncTarget, configured_name, is_enabled
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from pydelta.errors import DeltaError, InvalidArgumentError
from pydelta.settings import Settings
from pydelta.txn.hooks import HookContext, after_commits_where, table_says

__all__ = ["sync_after_commit"]


@after_commits_where(table_says(ENABLED_PROPERTY))
def sync_after_commit(context: HookContext) -> None:
    """Sync after a commit, see ``pydelta.txn.hooks``. A failure does not fail the commit; the next sync catches up.

    The address of the metastore comes from the session (``spark.pydelta.sync.metastore``, or that of its catalog) or
    from the environment (``PYDELTA_METASTORE``), never from the table: a table must not choose where its writers
    connect to.

    Raises:
        InvalidArgumentError: The table's property does not name its entry.
        DeltaError: An error of ``sync_entries``. If it can be retried, the hint has the command.
    """
    newest = context.log.update()  # It has the new name if the table was renamed since the commit.
    if not is_enabled(newest):
        return
    native = configured_name(newest)
    if native is None:
        raise InvalidArgumentError(
            f"{ENABLED_PROPERTY} is true, but the name of the table in the metastore is not known.",
            hint=f"Set the table property {TABLE_PROPERTY} to database.table.",
            table=context.log.uri,
        )
    settings: Settings = context.log.settings
    address = MetastoreAddress.parse(settings.sync_metastore)
    try:
        with Metastore(address, deadline=context.deadline) as metastore:
            target = SyncTarget(log=context.log, native=native, twin=twin_name(native, settings.sync_name))
            sync_entries(metastore, target, SyncOptions(deadline=context.deadline), snapshot=newest).check()
    except DeltaError as error:
        if error.retryable:
            command = f"catalog_sync sync {shlex.quote(context.log.uri)} --entry {native} --metastore {address}"
            error.hint = f"The commit stands, and the next one syncs it too; until then run: {command}"
        raise
