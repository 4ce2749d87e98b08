"""Find the tables that the REST catalog shows: the Iceberg entries of a metastore, or folders."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from catalog_sync.iceberg.entry import found_iceberg, iceberg_at
from catalog_sync.rest.routes import Namespace
from catalog_sync.targets import spark_scheme
from catalog_sync.thrift.client import Metastore
from pydelta.errors import InvalidArgumentError, TableNotFoundError
from pydelta.manifests.contents import DEFAULT_SCHEMES, with_scheme
from pydelta.manifests.iceberg.entry import find_newest
from pydelta.manifests.iceberg.metadata import HINT_PATH, METADATA_DIR, metadata_path
from pydelta.protocol.paths import plain_root
from pydelta.storage import Store, normalize_uri, open_store
from pydelta.storage.pages import paged, pages_of

__all__ = ["FolderTables", "MetadataCache", "MetastoreTables", "parse_named_table"]

_HIGHEST: Final = "\U0010ffff"
_CACHED_BYTES: Final = 64 << 20
_MOST_FOLDERS: Final = 10_000


class MetadataCache:
    """Metadata files that were read lately, by their locations. Safe to use from several threads.

    A file never changes; but a table that is dropped and made again at the same place has others of the same names.
    So each file is kept with a stamp, such as the time of its last change.
    """

    def __init__(self, limit: int = _CACHED_BYTES) -> None:
        self._limit = limit
        self._files: OrderedDict[str, tuple[object, bytes]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, location: str, read: Callable[[], bytes], stamp: object = None) -> bytes:
        """Return a file's content, reading it if it is not cached with this stamp."""
        with self._lock:
            found = self._files.get(location)
            if found is not None and found[0] == stamp:
                self._files.move_to_end(location)
                return found[1]
        data = read()
        self.put(location, data, stamp)
        return data

    def put(self, location: str, data: bytes, stamp: object = None) -> None:
        """Keep a file's content in the place of an earlier one."""
        with self._lock:
            before = self._files.pop(location, None)
            if before is not None:
                self._size -= len(before[1])
            if len(data) <= self._limit // 4:
                self._files[location] = (stamp, data)
                self._size += len(data)
                while self._size > self._limit:
                    self._size -= len(self._files.popitem(last=False)[1][1])


class MetastoreTables:
    """The Iceberg entries of a metastore that catalog_sync made, under the names of their tables.

    Args:
        connect: Opens a connection, one per request.
        databases: Databases of the tables to show, or empty for all.
        rule: Naming rule of Iceberg entries, ``spark.pydelta.sync.icebergName``.
        options: Storage options.
    """

    def __init__(
        self,
        connect: Callable[[], Metastore],
        databases: Sequence[str],
        rule: str,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._connect = connect
        self._databases = [name.lower() for name in databases]
        self._rule = rule
        self._options = dict(options or {})
        self._cache = MetadataCache()

    def namespaces(self) -> Iterable[Namespace]:
        """Return the databases whose tables may have Iceberg entries, without the suffix of the rule."""
        with self._connect() as metastore:
            there = metastore.databases()
        return [(name,) for database in there if (name := self._name_of(database)) is not None]

    def tables(self, namespace: Namespace) -> Sequence[str]:
        """Return the names of the Iceberg entries in a database."""
        database = self._database_of(namespace)
        if database is None:
            return []
        with self._connect() as metastore:
            return [str(entry.tableName) for entry in metastore.tables(database) if iceberg_at(entry) is not None]

    def location(self, namespace: Namespace, table: str) -> str | None:
        """Return the entry's ``metadata_location``, or None without an entry of ours."""
        database = self._database_of(namespace)
        if database is None:
            return None
        with self._connect() as metastore:
            entry = metastore.table(database, table.lower())
        if entry is None or iceberg_at(entry) is None:
            return None
        return found_iceberg(entry).metadata

    def read(self, namespace: Namespace, table: str, location: str) -> bytes:
        """Read metadata with this process's own access to the store."""
        folder, _, name = spark_scheme(location).rpartition("/")
        store = open_store(folder, self._options)
        info = store.head(name)
        stamp = None if info is None else (info.modification_time_ms, info.size)
        return self._cache.get(location, lambda: store.read(name), stamp)

    def _name_of(self, database: str) -> str | None:
        head, hole, tail = self._rule.strip().lower().partition("{database}")
        if not hole:
            name = database if database == head else None
        elif database.startswith(head) and database.endswith(tail) and len(database) > len(head) + len(tail):
            name = database[len(head) : len(database) - len(tail)]
        else:
            name = None
        return name if name is not None and (not self._databases or name in self._databases) else None

    def _database_of(self, namespace: Namespace) -> str | None:
        if len(namespace) != 1:
            return None
        database = self._rule.strip().lower().replace("{database}", namespace[0].lower())
        return database if self._name_of(database) is not None else None


def parse_named_table(text: str) -> tuple[Namespace, str, str]:
    """Parse ``namespace.table=URI``; the namespace may have several parts.

    Raises:
        InvalidArgumentError: The text has another form.
    """
    name, equals, location = text.partition("=")
    parts = name.split(".")
    if not equals or not location or len(parts) < 2 or not all(parts):
        raise InvalidArgumentError(
            f"{text!r} is not of the form NAMESPACE.TABLE=LOCATION.",
            hint="Write it as lake.orders=s3a://b/lake/orders.",
        )
    return tuple(parts[:-1]), parts[-1], normalize_uri(location)


class FolderTables:
    """Tables that are named one by one, and those in folders, without a metastore.

    Args:
        tables: Namespace, name and location of each named table.
        roots: Folders of tables. Each is a namespace with the name of the folder, and the tables are those of its
            subfolders that have Iceberg metadata.
        options: Storage options.
        fresh_seconds: How long the list of a folder is kept.
    """

    def __init__(
        self,
        tables: Iterable[tuple[Namespace, str, str]] = (),
        roots: Iterable[str] = (),
        options: Mapping[str, str] | None = None,
        *,
        fresh_seconds: float = 5.0,
    ) -> None:
        self._options = dict(options or {})
        self._named = {(namespace, name): location for namespace, name, location in tables}
        self._roots = [normalize_uri(root) for root in roots]
        self._fresh = fresh_seconds
        self._found: dict[tuple[Namespace, str], str] = {}
        self._looked: float | None = None
        self._lock = threading.Lock()
        self._cache = MetadataCache()

    def namespaces(self) -> Iterable[Namespace]:
        """Return the namespaces of the named tables and of the folders."""
        return {namespace for namespace, _ in self._all()} | {(_folder_name(root),) for root in self._roots}

    def tables(self, namespace: Namespace) -> Sequence[str]:
        """Return the names of the tables in a namespace."""
        return [name for place, name in self._all() if place == namespace]

    def location(self, namespace: Namespace, table: str) -> str | None:
        """Return the URI of the newest metadata in a table's folder, or None without one."""
        place = self._place(namespace, table)
        found = find_newest(open_store(place, self._options)) if place is not None else None
        if place is None or found is None:
            return None
        location = f"{with_scheme(plain_root(place), DEFAULT_SCHEMES)}{metadata_path(found.number)}"
        self._cache.put(location, found.data)
        return location

    def read(self, namespace: Namespace, table: str, location: str) -> bytes:
        """Read metadata with this process's own access to the store."""

        def found() -> bytes:
            place = self._place(namespace, table)
            if place is None:
                raise TableNotFoundError(f"{location} is gone.", hint="Look for the table again.")
            return open_store(place, self._options).read(f"{METADATA_DIR}/{location.rpartition('/')[2]}")

        return self._cache.get(location, found)

    def _place(self, namespace: Namespace, table: str) -> str | None:
        return self._named.get((namespace, table)) or self._all().get((namespace, table))

    def _all(self) -> dict[tuple[Namespace, str], str]:
        with self._lock:
            now = time.monotonic()
            if self._looked is None or now - self._looked >= self._fresh:
                self._found = {
                    ((_folder_name(root),), name): f"{root}/{name}"
                    for root in self._roots
                    for name in _subfolders(open_store(root, self._options))
                }
                self._looked = time.monotonic()
            return self._found | self._named


def _folder_name(root: str) -> str:
    return root.rstrip("/").rpartition("/")[2]


def _subfolders(store: Store) -> list[str]:
    """Return the names of the folders right below a root that have Iceberg metadata."""
    own = paged(store)
    names: set[str] = set()
    if own is not None and own.has_directories:
        names.update(next(pages_of(store, enter=lambda _: True)).directories)  # The first page is the root's.
    else:
        after, more = "", True
        while more and len(names) < _MOST_FOLDERS:  # One request per folder, however many files it has.
            more = False
            for page in pages_of(store, after=after):
                if page.paths:
                    name, slash, _ = page.paths[0].partition("/")
                    after, more = (f"{name}/{_HIGHEST}" if slash else page.paths[0]), True
                    if slash:
                        names.add(name)
                break
    return sorted(name for name in names if not name.startswith(("_", ".")) and store.head(f"{name}/{HINT_PATH}"))
