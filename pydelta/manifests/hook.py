"""Publish manifests after a commit, where ``delta.compatibility.symlinkFormatManifest.enabled=true``."""

from __future__ import annotations

from pydelta.manifests.publish import ManifestOptions, publish
from pydelta.txn.hooks import HookContext, after_commits_where, table_says

__all__ = ["publish_after_commit"]

_synced = table_says("pydelta.sync.enabled")


@after_commits_where(table_says("delta.compatibility.symlinkFormatManifest.enabled"))
def publish_after_commit(context: HookContext) -> None:
    """See ``pydelta.txn.hooks``: what fails here fails no commit, and the next publication makes up for it.

    A table that is synced to a metastore is left to that hook, which publishes the manifests itself.
    """
    if not _synced(context):
        publish(context.log, ManifestOptions(wait_seconds=context.deadline.remaining()))
