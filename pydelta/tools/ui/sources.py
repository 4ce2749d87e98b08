"""Find the tables to show: named locations, tables below folders, and databases of a metastore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Final, Protocol
from urllib.parse import quote

from pydelta.errors import DeltaEnvironmentError, DeltaError, InvalidArgumentError
from pydelta.log import DeltaLog
from pydelta.protocol.paths import LOG_DIR
from pydelta.settings.clock import Deadline
from pydelta.storage import Store, normalize_uri, open_store, pages_of, scheme_of
from pydelta.tools.ui.values import ShownPlace, Trouble

__all__ = ["Catalog", "FoundTables", "Sources", "find_places", "open_catalog", "walk"]

_MOST_NAMES: Final = 50_000
_MOST_TABLES: Final = 1000
_HIGHEST: Final = "\U0010ffff"


class Catalog(Protocol):
    """A catalog of named tables that knows how current their twins are. Its entry point is ``pydelta.catalogs``."""

    def tables(self) -> Mapping[str, str]:
        """Return the location of each registered Delta table by name."""

    def twin(self, name: str, log: DeltaLog) -> Mapping[str, Any]:
        """Return the fields of a ``TwinState`` for a registered table.

        The field ``iceberg`` has those of a ``ShownIceberg``, if the table has an Iceberg entry or asks for one, and
        ``native_behind`` says whether the table's own entry has other columns or properties, if that is known.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The places to search for tables.

    Args:
        tables: Locations of tables, or ``NAME=LOCATION``.
        folders: Folders to search for tables.
        options: Storage options. They may hold secrets.
        seconds: Maximum time to search one folder.
    """

    tables: Sequence[str] = ()
    folders: Sequence[str] = ()
    options: Mapping[str, str] | None = None
    seconds: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTables:
    """The tables found, and problems with places that could not be searched."""

    places: tuple[ShownPlace, ...]
    troubles: tuple[Trouble, ...] = ()


def open_catalog(address: str | None, databases: Sequence[str], options: Mapping[str, str], seconds: float) -> Catalog:
    """Open the metastore's catalog through its entry point.

    Args:
        address: Address of the metastore; None for that of the environment.
        databases: Databases whose tables are shown; empty for all.
        options: Storage options.
        seconds: Timeout of one call.

    Raises:
        DeltaEnvironmentError: No package with a metastore client is installed.
        InvalidArgumentError: The address cannot be parsed.
    """
    for point in entry_points(group="pydelta.catalogs"):
        try:
            found: Catalog = point.load()(address, databases, options, seconds)
        except ImportError as error:
            raise DeltaEnvironmentError(
                f"The metastore's client needs a package that is not installed: {error.name}.",
                hint="pip install 'pydelta-lakehouse[sync]', or leave out --metastore and --database.",
            ) from error
        return found
    raise DeltaEnvironmentError(
        "No package that speaks to a metastore is installed.",
        hint="Install pydelta-lakehouse again with pip, with its entry points; or name tables by their locations.",
    )


def find_places(sources: Sources, catalog: Catalog | None, before: Sequence[ShownPlace] = ()) -> FoundTables:
    """Find all tables. A place that cannot be searched is reported and does not hide others.

    A location that is also registered in the metastore is shown under its name there.

    Args:
        sources: Where to look.
        catalog: A catalog with more tables and names, if any.
        before: Tables found last time, which stay if a metastore or store does not answer.
    """
    places: dict[str, ShownPlace] = {}
    troubles: list[Trouble] = []
    if catalog is not None:
        try:
            for name, location in sorted(catalog.tables().items()):
                uri = normalize_uri(location)
                places.setdefault(uri, ShownPlace(name=name, uri=uri, registered=True))
        except DeltaError as error:
            troubles.append(Trouble.of(error))
            places.update({place.uri: place for place in before if place.registered})
    for text in sources.tables:
        place = named_place(text)
        places.setdefault(place.uri, place)
    for folder in sources.folders:
        root = normalize_uri(folder)
        try:
            found, trouble = walk(open_store(root, sources.options), Deadline(sources.seconds))
        except DeltaError as error:
            troubles.append(Trouble.of(error))
            known = [place for place in before if place.uri == root or place.uri.startswith(f"{root}/")]
            places = {place.uri: place for place in known} | places
            continue
        if not found and trouble is None:
            trouble = Trouble(what=f"There is no Delta table below {root}.", next="Check the folder's name.")
        for path in found:
            plain = quote(path) if scheme_of(root) == "file" else path
            uri = f"{root}/{plain}" if path else root
            places.setdefault(uri, ShownPlace(name=path.replace("/", ".") or root.rpartition("/")[2], uri=uri))
        if trouble is not None:
            troubles.append(trouble)
    return FoundTables(places=_distinct(places.values()), troubles=tuple(troubles))


def named_place(text: str) -> ShownPlace:
    """Parse a location or ``NAME=LOCATION``.

    Raises:
        InvalidArgumentError: The text has no location.
    """
    name, equals, location = text.partition("=")
    if not equals or "/" in name:
        name, location = "", text
    uri = normalize_uri(location)
    if equals and name == "" and location != text:
        raise InvalidArgumentError(f"{text!r} has no name.", hint="Write NAME=LOCATION, or the location alone.")
    return ShownPlace(name=name or uri.rstrip("/").rpartition("/")[2], uri=uri)


def _distinct(places: Any) -> tuple[ShownPlace, ...]:
    """Make table names unique: if two tables share a name, the later one is named by its location."""
    found: dict[str, ShownPlace] = {}
    for place in places:
        name = place.name if place.name not in found else place.uri
        found[name] = ShownPlace(name=name, uri=place.uri, registered=place.registered)
    return tuple(found.values())


def walk(store: Store, deadline: Deadline) -> tuple[list[str], Trouble | None]:
    """Find the tables below a store's root by their ``_delta_log``. Folders inside tables are not searched.

    Returns:
        Sorted paths of the tables, and the reason if the search was not completed.
    """
    tables: set[str] = set()

    def enter(path: str) -> bool:
        parent, _, name = path.rpartition("/")
        if name == LOG_DIR:
            tables.add(parent)
            return False
        above = [path[:end] for end, char in enumerate(path) if char == "/"]
        return not name.startswith(("_", ".")) and tables.isdisjoint([*above, ""])

    looked, after, more = 0, "", True
    trouble = None
    while more and trouble is None:
        more = False
        for page in pages_of(store, after=after, enter=enter):
            looked += len(page.paths) + len(page.directories)
            logs = [path for path in page.paths if f"/{LOG_DIR}/" in f"/{path}"]
            for path in logs:
                tables.add(f"/{path}".partition(f"/{LOG_DIR}/")[0].removeprefix("/"))
            if len(tables) > _MOST_TABLES or looked > _MOST_NAMES or not deadline.remaining():
                trouble = Trouble(
                    what=f"Not all of {store.root} was looked at: {looked} names and {len(tables)} tables so far.",
                    next="Name its tables one by one, or show the databases of a metastore.",
                )
                break
            inside = _table_of(page.paths[-1], tables) if page.paths else None
            if inside is not None and getattr(store, "has_key_ranges", False):
                after, more = f"{inside}/{_HIGHEST}" if inside else _HIGHEST, bool(inside)
                break
    return sorted(tables), trouble


def _table_of(path: str, tables: set[str]) -> str | None:
    """Return the known table that contains a path."""
    if "" in tables:
        return ""
    return next((path[:end] for end, char in enumerate(path) if char == "/" and path[:end] in tables), None)
