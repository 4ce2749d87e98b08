"""Re-export the exception names that Delta users catch, and the warning about deprecated names.

The classes are in ``pydelta.errors`` and ``pydelta.deprecation``.
"""

from pydelta.deprecation import DeltaDeprecationWarning
from pydelta.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)

__all__ = [
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "DeltaConcurrentModificationException",
    "DeltaDeprecationWarning",
    "MetadataChangedException",
    "ProtocolChangedException",
]
