"""A snapshot in, symlink manifests out: the files that Trino and Presto read, named by text files beside the table.

::

    log since the last published version --changes--> partitions to write again
    snapshot --contents--> _symlink_format_manifest/[day=2024-01-01/]manifest, one location a line
                 `-- publish, under a lease, never backwards --> _pydelta/manifests.json (version of each partition)
"""

from pydelta.manifests.contents import Manifest, manifests_of
from pydelta.manifests.publish import ManifestOptions, PublishResult, forget_emptied, publish
from pydelta.manifests.state import ManifestState, read_state
from pydelta.manifests.verify import ManifestReport, verify_manifests

__all__ = [
    "Manifest",
    "ManifestOptions",
    "ManifestReport",
    "ManifestState",
    "PublishResult",
    "forget_emptied",
    "manifests_of",
    "publish",
    "read_state",
    "verify_manifests",
]
