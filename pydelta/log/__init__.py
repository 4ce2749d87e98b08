"""Read the log's files into the state of a table.

::

    listing --segment--> checkpoint + commits --replay--> Snapshot (protocol, metadata, txn, domains, files)
       |                                                     |
       +-- history, cleanup                                  +-- FileTable: core columns, statistics on demand
                                                             +-- checkpoint, checksum: written for the next reader
    DeltaLog keeps the newest Snapshot and reads only commits after it.
"""

from pydelta.log.checkpoint.write import CheckpointResult
from pydelta.log.cleanup import CleanupResult
from pydelta.log.delta_log import DeltaLog
from pydelta.log.files import FileTable
from pydelta.log.history import CommitRecord
from pydelta.log.segment import LogSegment
from pydelta.log.snapshot import Snapshot
from pydelta.log.sums import FileSums

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
