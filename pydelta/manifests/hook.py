"""Publish manifests after a commit, where ``delta.compatibility.symlinkFormatManifest.enabled=true``."""

from __future__ import annotations

from pydelta.manifests.publish import ManifestOptions, publish
from pydelta.txn import HookContext

__all__ = ["publish_after_commit"]

_SYNCED = "pydelta.sync.enabled"


def publish_after_commit(context: HookContext) -> None:
    """See ``pydelta.txn.hooks``: what fails here fails no commit, and the next publication makes up for it.

    A table that is synced to a metastore is left to that hook, which publishes the manifests itself.
    """
    metadata = context.snapshot.metadata
    if metadata is None or not context.snapshot.properties.symlink_manifest_enabled:
        return
    if metadata.configuration.get(_SYNCED, "").strip().lower() == "true":
        return
    publish(context.log, ManifestOptions(wait_seconds=context.deadline.remaining()))
