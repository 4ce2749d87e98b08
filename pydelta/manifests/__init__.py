"""Publish symlink manifests: text files that name a table's data files for Trino and Presto.

::

    log since the last published version --changes--> partitions to write again
    snapshot --contents--> _symlink_format_manifest/[day=2024-01-01/]manifest, one location per line
                 `-- publish, under a lease, never backwards --> _pydelta/manifests.json (version of each partition)
"""

from pydelta.manifests.contents import MANIFEST_DIR, Manifest, check_publishable, manifests_of, values_of_directory
from pydelta.manifests.lease import MANIFESTS, TWIN, Lease, LeaseLostError, ManifestsBusyError, is_doubted
from pydelta.manifests.named import named_files
from pydelta.manifests.publish import (
    MANY_FILES,
    ManifestOptions,
    PublishResult,
    forget_emptied,
    holding,
    publish,
    publish_ahead,
    publish_from,
    publish_under,
)
from pydelta.manifests.state import ManifestState, read_state
from pydelta.manifests.verify import ManifestReport, verify_manifests
from pydelta.manifests.versions import EMPTY_DIR, publish_version, remove_retired

__all__ = [
    "EMPTY_DIR",
    "MANIFESTS",
    "MANIFEST_DIR",
    "MANY_FILES",
    "TWIN",
    "Lease",
    "LeaseLostError",
    "Manifest",
    "ManifestOptions",
    "ManifestReport",
    "ManifestState",
    "ManifestsBusyError",
    "PublishResult",
    "check_publishable",
    "forget_emptied",
    "holding",
    "is_doubted",
    "manifests_of",
    "named_files",
    "publish",
    "publish_ahead",
    "publish_from",
    "publish_under",
    "publish_version",
    "read_state",
    "remove_retired",
    "values_of_directory",
    "verify_manifests",
]
