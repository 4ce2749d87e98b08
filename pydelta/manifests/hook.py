"""Publish manifests after a commit to a table with ``delta.compatibility.symlinkFormatManifest.enabled=true``."""

from __future__ import annotations

from pydelta.manifests.publish import ManifestOptions, publish
from pydelta.txn.hooks import HookContext, after_commits_where, table_says

__all__ = ["publish_after_commit"]

_synced = table_says("pydelta.sync.enabled")


@after_commits_where(table_says("delta.compatibility.symlinkFormatManifest.enabled"))
def publish_after_commit(context: HookContext) -> None:
    """Publish after a commit, see ``pydelta.txn.hooks``. A failure does not fail the commit; the next one catches up.

    A table that is synced to a metastore is left to the sync hook, which also publishes the manifests.
    """
    if not _synced(context):
        publish(context.log, ManifestOptions(wait_seconds=context.deadline.remaining()))
