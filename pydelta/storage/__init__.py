"""Read, write and list bytes behind one small interface.

::

        location --normalize_uri--> URI --open_store--> Store (local | memory | object store | HDFS | a user's)
        Store.put_if_absent -> CREATED | ALREADY_EXISTS | UNKNOWN      only one writer wins
"""

from pydelta.storage.interface import DeleteReport, NearStore, ObjectInfo, PutOutcome, Store
from pydelta.storage.local import LocalStore
from pydelta.storage.memory import MemoryStore
from pydelta.storage.pages import ListPage, pages_of
from pydelta.storage.registry import open_store, register_store
from pydelta.storage.streams import ObjectWriter
from pydelta.storage.uris import normalize_uri, scheme_of

__all__ = [
    "DeleteReport",
    "ListPage",
    "LocalStore",
    "MemoryStore",
    "NearStore",
    "ObjectInfo",
    "ObjectWriter",
    "PutOutcome",
    "Store",
    "normalize_uri",
    "open_store",
    "pages_of",
    "register_store",
    "scheme_of",
]
