"""Build a table's state from the files of its log.

::

    listing --segment--> checkpoint + commits --replay--> Snapshot (protocol, metadata, txn, domains, files)
       |                                                     |
       +-- history, cleanup                                  +-- FileTable: core columns, statistics on demand
                                                             +-- checkpoint, checksum: written for the next reader
    DeltaLog caches the newest Snapshot and reads only the commits after it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pydelta.log.checkpoint.write import CheckpointResult
    from pydelta.log.cleanup import CleanupResult
    from pydelta.log.delta_log import DeltaLog
    from pydelta.log.files import FileTable
    from pydelta.log.history import CommitRecord
    from pydelta.log.segment import LogSegment
    from pydelta.log.snapshot import FileSums, Snapshot

__all__ = [
    "CheckpointResult",
    "CleanupResult",
    "CommitRecord",
    "DeltaLog",
    "FileSums",
    "FileTable",
    "LogSegment",
    "Snapshot",
]

_HOMES: Final = {
    "CheckpointResult": "pydelta.log.checkpoint.write",
    "CleanupResult": "pydelta.log.cleanup",
    "DeltaLog": "pydelta.log.delta_log",
    "FileTable": "pydelta.log.files",
    "CommitRecord": "pydelta.log.history",
    "LogSegment": "pydelta.log.segment",
    "Snapshot": "pydelta.log.snapshot",
    "FileSums": "pydelta.log.snapshot",
}


def __getattr__(name: str) -> Any:
    """Import Polars and PyArrow only if a name that needs them is used."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'pydelta.log' has no attribute {name!r}")
