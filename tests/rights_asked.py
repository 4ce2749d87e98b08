"""What each user of the stack's store may do, right by right; asked of servers here and of the running stack."""

from __future__ import annotations

from typing import Final

from pydelta.errors import StoragePermissionError
from pydelta.storage import Store

USERS: Final = (
    "spark", "sync", "maintain", "inventory", "vacuum", "metastore", "trino", "presto", "page", "notebook",
)  # fmt: skip
DATA: Final = "part-00000.parquet"
LOG: Final = "_delta_log/00000000000000000000.json"
MANIFEST: Final = "_symlink_format_manifest/day=1/manifest"
STATE: Final = "_pydelta/manifests.json"
OBJECTS: Final = (DATA, LOG, MANIFEST, STATE)
_READERS: Final = ("trino", "presto", "page", "metastore")
WRITERS: Final = ("spark", "notebook")
_SYNCING: Final = ("sync", "maintain")

DENIED: Final = [
    *[(user, "delete", DATA) for user in USERS if user != "vacuum"],
    *[(user, "write", DATA) for user in USERS if user not in WRITERS],
    *[(user, kind, path) for user in _READERS for kind in ("write", "delete") for path in (LOG, MANIFEST, STATE)],
    *[(user, kind, LOG) for user in (*_SYNCING, "inventory") for kind in ("write", "delete")],
    *[("inventory", kind, MANIFEST) for kind in ("write", "delete")],
    *[("inventory", "read", path) for path in (DATA, LOG)],
]
"""User, what is tried, the object of a table."""
GRANTED: Final = [
    *[(user, "read", path) for user in USERS if user != "inventory" for path in (DATA, LOG)],
    *[(user, "write", path) for user in WRITERS for path in OBJECTS],
    *[(user, "delete", path) for user in (*WRITERS, "vacuum") for path in (LOG, MANIFEST, STATE)],
    *[(user, kind, path) for user in _SYNCING for kind in ("write", "delete") for path in (MANIFEST, STATE)],
    ("vacuum", "delete", DATA),
    ("vacuum", "write", LOG),
    ("vacuum", "write", MANIFEST),
]
LISTED: Final = {
    **{key: ["warehouse", "inventory", "work"] for key in WRITERS},
    **{key: ["warehouse"] for key in (*_SYNCING, "vacuum", "metastore", "trino", "presto")},
    "inventory": ["warehouse", "inventory"],
    "page": ["warehouse", "work"],
}
"""The places that each lists."""
KEPT: Final = {
    **{key: {("write", "work"), ("delete", "work")} for key in WRITERS},
    "inventory": {("write", "inventory"), ("delete", "inventory")},
}
"""What each does in the two places without tables."""


def attempt(store: Store, kind: str, path: str) -> str | None:
    """Try to ``write``, ``read``, ``list`` or ``delete``; None if it was done, else why it was refused."""
    try:
        if kind == "write":
            store.put(path, b"changed")
        elif kind == "read":
            store.read(path)
        elif kind == "list":
            list(store.list_all())
        else:
            report = store.delete_many([path])
            assert report.denied == bool(report.failed), report
            return report.failed[0][1] if report.failed else None
    except StoragePermissionError as error:
        return error.message
    return None
